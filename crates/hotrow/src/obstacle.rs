//! Why updates of a row do not follow each other, counted for whoever wants to change that.

use crate::Mode;
use crate::row::{Row, Tail};

/// What has kept a transaction from following, or others from following it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Obstacle {
    /// The update is made in a savepoint, or in a block with an exception handler.
    Subtransaction,
    /// The transaction is not READ COMMITTED.
    Isolation,
    /// The statement calls, reads or returns what must not come from uncommitted data.
    Statement,
    /// The transaction had locked the row in PostgreSQL's own way before.
    LockedBefore,
    /// The update may change a unique key.
    Key,
    /// The page has no room for the version, an indexed column changes, or others have locked the
    /// version.
    Page,
    /// A predecessor has gone on to change or lock its own version.
    SecondChange,
    /// The group has as many members as it may have, or has ended because a session without group
    /// locking waits.
    GroupEnded,
    /// The row backs off.
    Backoff,
    /// The transaction has written so much that logical decoding would stream it.
    Large,
    /// Somebody commits a change of definitions.
    Definitions,
    /// The transaction is a member of as many hot rows as it can be.
    ManyRows,
}

impl Obstacle {
    pub const ALL: [Obstacle; 12] = [
        Obstacle::Subtransaction,
        Obstacle::Isolation,
        Obstacle::Statement,
        Obstacle::LockedBefore,
        Obstacle::Key,
        Obstacle::Page,
        Obstacle::SecondChange,
        Obstacle::GroupEnded,
        Obstacle::Backoff,
        Obstacle::Large,
        Obstacle::Definitions,
        Obstacle::ManyRows,
    ];
}

impl Row {
    /// lock-free: counts one.
    pub fn note_obstacle(&self, obstacle: Obstacle) {
        self.counters.obstacles[obstacle as usize].add(1);
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

    /// Those that have been met, with how often; the most frequent comes first.
    pub fn obstacles(&self) -> impl Iterator<Item = (Obstacle, u64)> {
        let mut counts = Obstacle::ALL
            .map(|obstacle| (obstacle, self.counters.obstacles[obstacle as usize].get()));
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        counts.into_iter().take_while(|&(_, count)| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_its_own_place() {
        for (n, obstacle) in Obstacle::ALL.into_iter().enumerate() {
            assert_eq!(obstacle as usize, n);
        }
    }

    #[test]
    fn the_most_frequent_comes_first_and_what_was_not_met_is_left_out() {
        let row = Row::default();
        row.note_obstacle(Obstacle::Page);
        for _ in 0..3 {
            row.note_obstacle(Obstacle::Subtransaction);
        }
        let met: Vec<_> = row.obstacles().collect();
        assert_eq!(met, [(Obstacle::Subtransaction, 3), (Obstacle::Page, 1)]);
    }
}
