//! What a check says.
use std::fmt;

use crate::model::Value;

/// An isolation level, as PostgreSQL understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No G0 and no G1; a statement that reads sees a snapshot: if it sees a transaction it sees
    /// all of it, and all that it was built on.
    ReadCommitted,
    /// Snapshot isolation: every cycle of dependencies has two anti-dependencies in a row.
    RepeatableRead,
    /// No cycle of dependencies: there is a serial order in which everybody sees what they saw.
    Serializable,
}

/// What a history is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    pub level: Level,
    /// Also, what was completed before something was invoked comes before it.
    /// `Level::Serializable` becomes strict serializability with it.
    pub real_time: bool,
}

impl From<Level> for Promise {
    fn from(level: Level) -> Self {
        Promise {
            level,
            real_time: false,
        }
    }
}

impl Promise {
    /// Strict serializability.
    pub const STRICT: Promise = Promise {
        level: Level::Serializable,
        real_time: true,
    };
}

/// Why a history cannot be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Written twice: it does not tell who wrote what is read.
    RepeatedValue(Value),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Invalid::RepeatedValue(value) => write!(f, "value {value} is written more than once"),
        }
    }
}

impl std::error::Error for Invalid {}

/// What can be wrong with a history: phenomena of Adya's thesis (chapters 3 and 4) and of Elle,
/// and what is wrong already without looking at other transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A value is read that nobody wrote there.
    Garbage,
    /// A transaction does not see its own writes, or sees what it will write only later.
    Internal,
    /// A list with an element twice, two rows of one key, rows outside of the range, or no row
    /// where there always was one.
    Malformed,
    /// Two reads of a list of which neither continues the other.
    IncompatibleOrder,
    /// Two transactions replaced the same version, or a key had two rows at once.
    Fork,
    /// A committed transaction saw or replaced what a rolled back one wrote.
    G1a,
    /// A transaction saw or replaced what its writer itself replaced.
    G1b,
    /// A cycle of writes over each other.
    G0,
    /// A cycle of writes and reads of what was written.
    G1c,
    /// A statement at READ COMMITTED missed something that what it saw depends on.
    FracturedStatement,
    /// Two transactions read the same version and both replaced it: a cycle of one
    /// anti-dependency and one write.
    LostUpdate,
    /// A cycle with one anti-dependency: read skew, a read that is not repeatable.
    GSingle,
    /// A cycle with several anti-dependencies, no two of them in a row: a long fork.
    GNonadjacent,
    /// A cycle with two anti-dependencies in a row, none of them by a predicate: write skew.
    G2Item,
    /// A cycle with two anti-dependencies in a row, some of them by a predicate: phantoms.
    G2,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Class::Garbage => "garbage read",
            Class::Internal => "internal inconsistency",
            Class::Malformed => "malformed result",
            Class::IncompatibleOrder => "incompatible order",
            Class::Fork => "forked versions",
            Class::G1a => "G1a (aborted read)",
            Class::G1b => "G1b (intermediate read)",
            Class::G0 => "G0 (dirty write)",
            Class::G1c => "G1c (circular information flow)",
            Class::FracturedStatement => "fractured statement",
            Class::LostUpdate => "lost update",
            Class::GSingle => "G-single",
            Class::GNonadjacent => "G-nonadjacent",
            Class::G2Item => "G2-item",
            Class::G2 => "G2 (phantom)",
        })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    pub class: Class,
    /// Indexes of the transactions in the history; of a cycle in its order.
    pub transactions: Vec<usize>,
    /// The anomaly in words, a line for each step of a cycle.
    pub text: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.text)
    }
}

/// The answer of [`check`](crate::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What breaks the promise; empty if it is kept. All that is wrong with single reads (up to
    /// a limit), or else one cycle, a short one of the worst class.
    pub anomalies: Vec<Anomaly>,
    /// Only for a broken promise: it is broken however the rows that came and went under one key
    /// followed each other, and whatever the unknown outcomes were. Otherwise not all was tried;
    /// what the times and later reads suggest is out of the question.
    pub certain: bool,
}

impl Verdict {
    pub fn holds(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// Whether something of this class is reported.
    pub fn has(&self, class: Class) -> bool {
        self.anomalies.iter().any(|anomaly| anomaly.class == class)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.holds() {
            return f.write_str("the promise is kept");
        }
        for (number, anomaly) in self.anomalies.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{anomaly}")?;
        }
        if !self.certain {
            f.write_str(
                "\n(not all orders of rows under one key, or unknown outcomes, were tried)",
            )?;
        }
        Ok(())
    }
}
