//! Whether a transaction that has checked a foreign key to the row is going to update it.

use crate::row::Row;

/// An update is expected from this score on. It rises while more than two of three checks are
/// followed by one.
const EXPECTED: u32 = 16;
const MOST: u32 = 32;
const RIGHT: u32 = 4;
const WRONG: u32 = 8;

impl Row {
    /// lock-free: whether an update is expected of whoever checks that the row exists.
    pub fn expects_update(&self) -> bool {
        self.expected.get() >= EXPECTED
    }

    /// Begins with that expectation: where rows are hot before anybody waits, nothing has to be
    /// learned first.
    pub(crate) fn expect_update(&self) {
        self.expected.set(MOST);
    }

    /// A transaction that has checked that the row exists has updated it, or has committed without.
    pub fn note_expectation(&self, was_right: bool) {
        let score = self.expected.get();
        self.expected.set(if was_right {
            (score + RIGHT).min(MOST)
        } else {
            score.saturating_sub(WRONG)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_expected_where_most_checks_are_followed_by_one() {
        let row = Row::default();
        for _ in 0..3 {
            row.note_expectation(true);
            assert!(!row.expects_update());
        }
        row.note_expectation(true);
        assert!(row.expects_update());
        for _ in 0..100 {
            for was_right in [true, true, true, false] {
                row.note_expectation(was_right);
            }
        }
        assert!(row.expects_update());
        for _ in 0..100 {
            for was_right in [true, false] {
                row.note_expectation(was_right);
            }
        }
        assert!(!row.expects_update());
    }
}
