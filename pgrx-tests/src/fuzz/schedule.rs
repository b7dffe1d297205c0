//! A schedule: steps of several sessions in a drawn order, and what each may do.
use std::fmt;

use serde::Serialize;

use super::schema::Schema;

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Protocol {
    Simple,
    /// A block of one statement in one message: `BEGIN; statement; COMMIT`.
    Block,
    /// Parse, Bind, Execute of an unnamed statement.
    Extended,
    /// A named statement, kept by the session.
    Prepared,
    CopyOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// Settings of the session, or a part of the scene: belongs to no transaction.
    Outside,
    Begin,
    Statement,
    /// A statement that is a transaction, or several (a procedure).
    Whole,
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
    Prepare,
    /// COMMIT PREPARED
    CommitPrepared,
    RollbackPrepared,
}

/// How it is known that a write was done, if its statement has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its answer tells of each row.
    Told,
    /// It counts one row.
    Counted,
    /// It cannot succeed without.
    Certain,
}

/// A bit that a statement adds to rows, or a line that it adds to a log.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub table: char,
    /// The row; none for any.
    pub n: Option<u32>,
    pub bit: u32,
    /// The transaction that it belongs to.
    pub unit: usize,
    pub known: Known,
}

/// A line with the step's number in a table without bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    Ledger,
    Remote,
}

impl Log {
    pub const ALL: [Log; 2] = [Log::Ledger, Log::Remote];

    pub fn table(self) -> &'static str {
        match self {
            Log::Ledger => "ledger",
            Log::Remote => "remote_t",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Step {
    /// Unique in the schedule, and stays when others are dropped.
    pub id: usize,
    pub session: usize,
    /// The transaction that it belongs to.
    pub unit: usize,
    pub kind: Kind,
    pub sql: String,
    pub protocol: Protocol,
    pub parameter: Option<i64>,
    pub writes: Vec<Write>,
    pub log: Option<Log>,
    /// Rows that it may remove or give another key, for which no version can be expected to stay.
    pub removes: Vec<(char, u32)>,
    /// Its rows are all rows of these tables.
    pub whole: Vec<char>,
    /// Its condition is true of that row once this bit is in its value.
    pub needs: Option<(char, u32, u32)>,
    /// It changes the function `defined`, which then tells of this step.
    pub defines: bool,
    /// It only writes a table that nobody reads, and of which no other statement knows.
    pub aside: bool,
    /// What it tells of rows comes of one snapshot. (What stands in brackets does in any case.)
    pub snapshot: bool,
    /// SQLSTATEs that stock PostgreSQL may give it, besides those that anything may give.
    pub errors: Vec<&'static str>,
    /// An error of these SQLSTATEs says that the row's value is not 0.
    pub blames: Option<(char, u32)>,
    /// For procedures: transactions that it ends by itself before its own, and whether they commit.
    pub parts: Vec<(usize, bool)>,
}

impl Step {
    pub fn is_end(&self) -> bool {
        matches!(
            self.kind,
            Kind::Commit
                | Kind::Rollback
                | Kind::Prepare
                | Kind::CommitPrepared
                | Kind::RollbackPrepared
        )
    }
}

/// How the transactions of a session run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Any setting of the extension's is on.
    pub on: bool,
    /// Reads of other tables do not wait.
    pub immediate: bool,
    /// Reads of other tables may not wait, and be asked again before the commit.
    pub asks_again: bool,
    /// Above READ COMMITTED: one snapshot for all statements.
    pub one_snapshot: bool,
    pub validated: bool,
    /// Looks at views with another role's eyes.
    pub other_role: bool,
    pub app_role: bool,
    /// It fails if it uses more than it has declared.
    pub is_strict: bool,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    pub seed: u64,
    pub schema: Schema,
    /// Added to all keys.
    pub base: u32,
    pub sessions: usize,
    /// By unit.
    pub modes: Vec<Mode>,
    /// Run before, by a session of its own that holds a snapshot from before until the end.
    pub churn: Vec<String>,
    pub steps: Vec<Step>,
}

impl Schedule {
    /// Whether any statement or table has one of the texts; any schedule if there are none.
    pub fn mentions(&self, texts: &[String]) -> bool {
        let statements = self.steps.iter().map(|step| &step.sql);
        let has = |text: &String| {
            let mut statements = statements.clone().chain(&self.churn);
            statements.any(|sql| sql.contains(text.as_str()))
                || self
                    .schema
                    .summary()
                    .iter()
                    .any(|line| line.contains(text.as_str()))
        };
        texts.is_empty() || texts.iter().any(has)
    }

    pub fn mode(&self, unit: usize) -> Mode {
        self.modes.get(unit).copied().unwrap_or_default()
    }
}

/// The name of a session in transcripts.
pub fn letter(session: usize) -> char {
    char::from(b'A' + session as u8)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{}> {}",
            letter(self.session),
            self.sql.trim().replace('\n', " ")
        )?;
        if let Some(parameter) = self.parameter {
            write!(f, "  -- $1 = {parameter}")?;
        }
        match self.protocol {
            Protocol::Simple => Ok(()),
            other => write!(f, "  -- {other:?}"),
        }
    }
}
