//! How a hot row is worked at present, and how it learns from trouble.

use crate::Obstacle;
use crate::row::{Row, Tail};

/// The working mode of a hot row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Followers update on top of running predecessors.
    Group,
    /// Transactions that keep dooming each other: one at a time until the back-off is over.
    Backoff,
}

/// What a row backs off from: the last of what brought its score to the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Cause {
    Cascades,
    SecondChanges,
    Cycles,
}

/// What went wrong on a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// A rollback doomed this many followers.
    Cascade(u32),
    /// A transaction wanted its own version again after somebody had followed.
    OwnRow,
    /// Following would have closed a cycle of commit order.
    Cycle,
}

/// Score at which a row backs off. A success takes one point off.
const LIMIT: u32 = 256;
/// The first back-off; each further one is twice as long, up to 2^6 times.
const FIRST_BACKOFF_US: u64 = 500_000;

impl Row {
    /// The mode at time `now` (microseconds). The caller holds the row's lock.
    pub fn mode(&self, now: u64) -> Mode {
        if now < self.backoff_until.get() {
            Mode::Backoff
        } else {
            Mode::Group
        }
    }

    /// Notes trouble. Returns true when the row begins to back off.
    pub fn trouble(&self, trouble: Trouble, now: u64) -> bool {
        let points = match trouble {
            Trouble::Cascade(doomed) => doomed,
            Trouble::OwnRow | Trouble::Cycle => 64,
        };
        let cause = match trouble {
            Trouble::Cascade(_) => Cause::Cascades,
            Trouble::OwnRow => Cause::SecondChanges,
            Trouble::Cycle => Cause::Cycles,
        };
        let score = self.score.get().saturating_add(points);
        self.score.set(score);
        if score < LIMIT || now < self.backoff_until.get() {
            return false;
        }
        let doublings = self.backoffs.add(1).min(6);
        self.backoff_until
            .set(now + (FIRST_BACKOFF_US << doublings));
        self.cause.set(cause as u32);
        self.score.set(0);
        true
    }

    /// When the present back-off ends (microseconds), and what it is for. None: the row does not
    /// back off at `now`.
    pub fn backoff(&self, now: u64) -> Option<(u64, Cause)> {
        const CAUSES: [Cause; 3] = [Cause::Cascades, Cause::SecondChanges, Cause::Cycles];
        let until = self.backoff_until.get();
        let cause = CAUSES.get(self.cause.get() as usize)?;
        (now < until).then_some((until, *cause))
    }

    /// What keeps everybody from following the row's tail, in groups of at most `size`. The caller
    /// holds the row's lock.
    pub fn obstacle_behind(&self, tail: &Tail, size: u32, now: u64) -> Option<Obstacle> {
        if self.mode(now) != Mode::Group {
            Some(Obstacle::Backoff)
        } else if self.group_length() >= size || self.group_ended.get() != 0 {
            Some(Obstacle::GroupEnded)
        } else if !tail.open || tail.tid == 0 {
            Some(Obstacle::SecondChange)
        } else {
            None
        }
    }

    /// A member of the row committed.
    pub fn success(&self) {
        let score = self.score.get();
        if score > 0 {
            self.score.set(score - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_backs_off_after_repeated_trouble_and_is_tried_again() {
        let row = Row::default();
        let mut n = 0;
        while !row.trouble(Trouble::Cycle, 10) {
            n += 1;
            assert!(n < 100);
        }
        assert_eq!(row.mode(11), Mode::Backoff);
        let until = 10 + FIRST_BACKOFF_US;
        assert_eq!(row.backoff(11), Some((until, Cause::Cycles)));
        assert_eq!(row.backoff(until), None);
        assert_eq!(row.mode(10 + FIRST_BACKOFF_US), Mode::Group);
    }

    #[test]
    fn successes_make_up_for_trouble() {
        let row = Row::default();
        for _ in 0..10_000 {
            assert!(!row.trouble(Trouble::Cascade(3), 10));
            (0..3).for_each(|_| row.success());
        }
    }
}
