//! How long transactions that need nothing more of their clients take from their update of the row
//! to their commit. Where that is short, each keeps the ticket until then: passing it on costs the
//! next transaction a sleep before its commit, which is longer.

use crate::Patience;
use crate::row::Row;

/// What a row begins with, in microseconds: long, so that the ticket is passed on.
const FIRST: u32 = 1000;
const LONGEST: u32 = 1_000_000;

impl Row {
    /// lock-free: a transaction took so many microseconds. The estimate goes an eighth of itself up
    /// or down, and so to the median: those that lose the processor in between do not count more
    /// than others.
    pub fn note_rest(&self, microseconds: u64) {
        let before = self.expected_rest();
        let step = (before / 8).max(1);
        let after = match microseconds > u64::from(before) {
            true => before + step,
            false => before - step,
        };
        self.rest.set(after.clamp(1, LONGEST));
    }

    /// lock-free: whether transactions take at most so many microseconds as a rule.
    #[inline]
    pub fn is_brief(&self, microseconds: u32) -> bool {
        self.expected_rest() <= microseconds
    }

    /// lock-free: somebody waits for the row in the ordinary way, who is let through where
    /// transactions follow each other. It counts as one whose transactions take longest.
    pub fn let_follow(&self) {
        self.rest.set(LONGEST);
    }

    /// lock-free: whether a process may stay awake for the ticket: it is one of few, nobody queued
    /// holds something for which others may wait, and turns need not be in order of arrival. Then
    /// it says when that is over (`end_watch`).
    pub fn begin_watch(&self, patience: Patience) -> bool {
        if patience.fair_every <= 1 || self.holding.get() > 0 {
            return false;
        }
        let may = self.watching.add(1) < patience.competitors;
        if !may {
            self.end_watch();
        }
        may
    }

    /// lock-free: the process goes to get the ticket.
    pub fn end_watch(&self) {
        self.watching.sub(1);
    }

    fn expected_rest(&self) -> u32 {
        match self.rest.get() {
            0 => FIRST,
            known => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_brief_once_most_transactions_are() {
        let row = Row::default();
        assert!(!row.is_brief(50), "nothing is known");
        (0..10).for_each(|_| row.note_rest(20));
        assert!(!row.is_brief(50), "too little is known");
        (0..100).for_each(|n| row.note_rest(if n % 4 == 0 { 100_000 } else { 20 }));
        assert!(row.is_brief(50), "one in four lost the processor");
        (0..30).for_each(|_| row.note_rest(3000));
        assert!(!row.is_brief(50) && row.is_brief(3500));
        (0..200).for_each(|_| row.note_rest(0));
        assert!(row.is_brief(1) && !row.is_brief(0), "0 switches it off");
        row.let_follow();
        assert!(!row.is_brief(10_000), "whatever the setting");
    }

    #[test]
    fn few_stay_awake() {
        let patience = Patience {
            fair_every: 32,
            longest_wait: u64::MAX,
            newest_first: 0,
            holds: false,
            competitors: 2,
        };
        let row = Row::default();
        assert!(row.begin_watch(patience) && row.begin_watch(patience));
        assert!(
            !row.begin_watch(patience) && !row.begin_watch(patience),
            "two do"
        );
        row.end_watch();
        assert!(row.begin_watch(patience), "one has gone");
        row.end_watch();
        row.holding.set(1);
        assert!(
            !row.begin_watch(patience),
            "others may wait for one that is queued"
        );
        row.holding.set(0);
        let in_order = Patience {
            fair_every: 1,
            ..patience
        };
        assert!(!row.begin_watch(in_order));
        assert!(row.begin_watch(patience), "who was refused does not count");
    }
}
