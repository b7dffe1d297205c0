//! What a load was told, to compare with what the database holds.
use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

/// Account of a load. Effects are counted in the workload's own unit (increments, sales, ...).
#[derive(Debug, Default)]
pub struct Tally {
    /// Effects of transactions whose COMMIT was confirmed.
    pub acknowledged: i64,
    /// Effects of transactions whose connection broke in COMMIT: there or not there.
    pub in_doubt: i64,
    /// Transactions rolled back on purpose.
    pub rolled_back: i64,
    /// Failed transactions by SQLSTATE, with the first message of each; broken connections that
    /// brought none are under `lost`.
    pub errors: BTreeMap<String, (u64, String)>,
}

/// The key of connections that broke without a message from the server.
pub(crate) const LOST: &str = "lost";

/// A race of PostgreSQL's own, an XX000: an updater that shares a version with lockers has aborted
/// in the commit log, so that nobody waits for it (heapam.c: DoesMultiXactIdConflict), and is still
/// among the running transactions, so that the next updater's MultiXact takes it over (multixact.c:
/// MultiXactIdExpand). The next updater fails, and nothing is lost. Kept apart from other internal
/// errors.
const ABORTING_UPDATER: &str = "new multixact has more than one updating member";

impl Tally {
    pub(crate) fn error(&mut self, code: &str, message: &str) {
        let code = match message.starts_with(ABORTING_UPDATER) {
            true => ABORTING_UPDATER,
            false => code,
        };
        let entry = self
            .errors
            .entry(code.to_owned())
            .or_insert_with(|| (0, message.to_owned()));
        entry.0 += 1;
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.acknowledged += other.acknowledged;
        self.in_doubt += other.in_doubt;
        self.rolled_back += other.rolled_back;
        for (code, (count, message)) in other.errors {
            self.errors.entry(code).or_insert((0, message)).0 += count;
        }
    }

    /// How often transactions failed with `code`.
    pub fn failed(&self, code: &str) -> u64 {
        self.errors.get(code).map_or(0, |(count, _)| *count)
    }

    /// Fails unless something was committed and every error is one of `codes`.
    pub fn only(&self, codes: &[&str]) -> Result<()> {
        ensure!(self.acknowledged > 0, "nothing was committed: {self:?}");
        for (code, (count, message)) in &self.errors {
            if code != ABORTING_UPDATER && !codes.contains(&code.as_str()) {
                bail!("{count} unexpected errors {code}, the first: {message}\n{self:?}");
            }
        }
        Ok(())
    }

    /// Fails unless `value` is what was acknowledged, with or without what is in doubt.
    pub fn explains(&self, value: i64) -> Result<()> {
        ensure!(
            self.acknowledged <= value && value <= self.acknowledged + self.in_doubt,
            "the database has {value}, but {} were acknowledged and {} are in doubt: {self:?}",
            self.acknowledged,
            self.in_doubt
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        Tally {
            acknowledged: 10,
            in_doubt: 2,
            ..Tally::default()
        }
    }

    #[test]
    fn a_value_is_explained_by_acknowledged_and_in_doubt_alone() {
        assert!(tally().explains(9).is_err(), "a lost effect");
        assert!((10..=12).all(|value| tally().explains(value).is_ok()));
        assert!(tally().explains(13).is_err(), "a double effect");
    }

    #[test]
    fn an_unexpected_error_is_told_with_its_message() {
        let mut tally = tally();
        tally.error("40001", "retry");
        assert!(tally.only(&["40001"]).is_ok());
        tally.error("XX000", "corrupted");
        let error = tally.only(&["40001"]).unwrap_err().to_string();
        assert!(error.contains("corrupted"), "{error}");
        assert!(
            Tally::default().only(&[]).is_err(),
            "nothing done is no success"
        );
    }
}
