//! What the clients do: transfers over nodes. A transaction leaves its number at each node that it
//! writes to, by a trigger there, and some also in the coordinator's ledger.
use std::collections::BTreeSet;

use postgres::error::Severity;
use postgres::{Client, Error};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

/// Notes the number that an update has written to `owner`.
pub const TRIGGER: &str = "
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.trace VALUES (NEW.owner::bigint) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER UPDATE ON account FOR EACH ROW
    WHEN (NEW.owner IS DISTINCT FROM OLD.owner) EXECUTE FUNCTION note()";

/// What a client was told at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its COMMIT was confirmed.
    Acknowledged,
    /// It has failed, or was rolled back on purpose.
    Refused,
    /// The connection broke when it may have been committing, or nobody knows (08007).
    InDoubt,
}

/// A transaction as its client remembers it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub number: i64,
    /// The nodes that it has written to.
    pub nodes: BTreeSet<usize>,
    pub in_ledger: bool,
    pub fate: Fate,
    /// What was sent, for people.
    pub sql: String,
}

/// A transaction to run.
pub struct Transaction {
    pub number: i64,
    pub nodes: BTreeSet<usize>,
    pub in_ledger: bool,
    /// Sent one by one.
    messages: Vec<String>,
    /// The first message that may commit; none if it is rolled back.
    commits: Option<usize>,
    /// The message is sent as a prepared statement.
    is_prepared: bool,
}

/// A row and what it gets.
type Part = (i32, i32);

impl Transaction {
    /// Draws a transaction over some of `nodes`.
    pub fn draw(rng: &mut SmallRng, nodes: usize, number: i64) -> Self {
        let all: Vec<usize> = (0..nodes).collect();
        let count = *[1, 2, 2, 2, 2, nodes]
            .choose(rng)
            .expect("there is a choice");
        let chosen: BTreeSet<usize> = all.choose_multiple(rng, count).copied().collect();
        let row = |rng: &mut SmallRng| rng.random_range(0..10);
        let mut parts: Vec<Part> = Vec::new();
        for node in &chosen {
            parts.push((*node as i32 * 1000 + row(rng), 1));
        }
        if count == 1 {
            let first = parts[0].0;
            let other = first - first % 10 + (first % 10 + rng.random_range(1..10)) % 10;
            parts.push((other, 1));
        }
        parts[0].1 = 1 - parts.len() as i32;
        if rng.random_bool(0.15) {
            parts.reverse();
        }
        let in_ledger = rng.random_bool(0.5);
        let mut drawn = Transaction {
            number,
            nodes: chosen,
            in_ledger,
            messages: Vec::new(),
            commits: Some(0),
            is_prepared: false,
        };
        match rng.random_range(0..100) {
            0..40 => {
                drawn.messages = vec![drawn.statement(&parts)];
                drawn.is_prepared = rng.random_bool(0.3);
            }
            40..60 => drawn.messages = vec![drawn.block(rng, &parts).join("; ")],
            _ => {
                drawn.messages = drawn.block(rng, &parts);
                drawn.commits = drawn.commits.map(|_| drawn.messages.len() - 1);
            }
        }
        drawn
    }

    /// All rows in one statement.
    fn statement(&self, parts: &[Part]) -> String {
        let number = self.number;
        let cases = parts
            .iter()
            .map(|(id, amount)| format!("WHEN {id} THEN {amount}"));
        let cases: Vec<String> = cases.collect();
        let ids: Vec<String> = parts.iter().map(|(id, _)| id.to_string()).collect();
        let noted = match self.in_ledger {
            true => format!("WITH noted AS (INSERT INTO ledger VALUES ({number})) "),
            false => String::new(),
        };
        format!(
            "{noted}UPDATE account SET balance = balance + CASE id {} END, owner = '{number}' \
             WHERE id IN ({})",
            cases.join(" "),
            ids.join(", ")
        )
    }

    /// A statement for each row, between BEGIN and an end.
    fn block(&mut self, rng: &mut SmallRng, parts: &[Part]) -> Vec<String> {
        let number = self.number;
        let update = |(id, amount): &Part, owner: i64| {
            format!(
                "UPDATE account SET balance = balance + {amount}, owner = '{owner}' WHERE id = {id}"
            )
        };
        let mut lines = vec!["BEGIN".to_owned()];
        let has_savepoint = rng.random_bool(0.25);
        if has_savepoint && rng.random_bool(0.5) {
            lines.push("SAVEPOINT kept".to_owned());
        }
        for part in parts {
            lines.push(update(part, number));
        }
        if has_savepoint {
            let undone = parts.choose(rng).expect("there is a part");
            lines.push("SAVEPOINT undone".to_owned());
            lines.push(update(undone, -number));
            lines.push("ROLLBACK TO undone".to_owned());
        }
        if self.in_ledger {
            let at = rng.random_range(1..=lines.len());
            // Not within what is undone.
            let at = if has_savepoint { 1 } else { at };
            lines.insert(at, format!("INSERT INTO ledger VALUES ({number})"));
        }
        match rng.random_bool(0.1) {
            true => {
                self.commits = None;
                lines.push("ROLLBACK".to_owned());
            }
            false => lines.push("COMMIT".to_owned()),
        }
        lines
    }

    /// Runs it. The error is for the caller's account; the entry says what it means.
    pub fn run(self, client: &mut Client) -> (Entry, Option<Error>) {
        let mut error = None;
        let mut sent = 0;
        for message in &self.messages {
            let result = match self.is_prepared {
                true => client.execute(message, &[]).map(|_| ()),
                false => client.batch_execute(message),
            };
            if let Err(told) = result {
                error = Some(told);
                break;
            }
            sent += 1;
        }
        let may_have_committed = self.commits.is_some_and(|commits| sent >= commits);
        let fate = match &error {
            None if self.commits.is_some() => Fate::Acknowledged,
            Some(error) if may_have_committed && leaves_doubt(error) => Fate::InDoubt,
            _ => Fate::Refused,
        };
        let entry = Entry {
            number: self.number,
            nodes: self.nodes,
            in_ledger: self.in_ledger,
            fate,
            sql: self.messages.join("; "),
        };
        (entry, error)
    }
}

/// Whether an error in COMMIT leaves the outcome open: the session is gone, or it said so.
fn leaves_doubt(error: &Error) -> bool {
    is_broken(error) || error.code().is_some_and(|code| code.code() == "08007")
}

/// Whether the session is gone.
pub fn is_broken(error: &Error) -> bool {
    let severity = error.as_db_error().map(|told| told.parsed_severity());
    match severity {
        None => true,
        Some(severity) => matches!(severity, Some(Severity::Fatal | Severity::Panic)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::rng;

    #[test]
    fn transfers_move_money_and_make_none() {
        let mut rng = rng(1, 1, 1);
        for number in 1..500 {
            let drawn = Transaction::draw(&mut rng, 3, number);
            let sql = drawn.messages.join("; ");
            assert!((1..=3).contains(&drawn.nodes.len()), "{sql}");
            assert_eq!(sql.contains("ledger"), drawn.in_ledger, "{sql}");
            assert_eq!(
                drawn.commits.is_none(),
                sql.ends_with("; ROLLBACK"),
                "{sql}"
            );
            if let Some(commits) = drawn.commits {
                let last = &drawn.messages[commits];
                assert_eq!(commits + 1, drawn.messages.len(), "{last}");
            }
        }
    }
}
