//! The read guard: what may be visible before it is durable, by early visibility.
//!
//! A transaction that lets its rows be seen before its flush says so per table. A reader that could
//! have seen such a row learns from here up to which WAL position it must wait before it completes.
//! Tables share buckets by hash: a collision makes a reader wait for a flush that it did not need.
//!
//! A writer's client is told at a level of its own (`synchronous_commit`). Stock PostgreSQL shows
//! a row once that level is reached, whatever the reader's level. So positions are kept for each
//! level: a reader does not wait for standbys because of a writer that did not.

use crate::{Word32, Word64};

const BUCKETS: usize = 1024;

/// How durable a commit is before its client is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Flushed on this server.
    Local,
    /// And by its synchronous standbys.
    Flushed,
    /// And applied by them.
    Applied,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Local, Level::Flushed, Level::Applied];
}

/// What a reader of a table has to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing of it became visible early.
    Durable,
    /// Wait for durability up to this WAL position.
    Until(u64),
    /// A commit is being published just now: wait for everything that is in WAL.
    Everything,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Place {
    committing: Word32,
    until: Word64,
}

impl Place {
    fn settle(&self, until: u64) {
        self.until.raise(until);
        self.committing.sub(1);
    }

    fn check(&self) -> Verdict {
        if self.committing.get() != 0 {
            return Verdict::Everything;
        }
        match self.until.get() {
            0 => Verdict::Durable,
            until => Verdict::Until(until),
        }
    }
}

/// A place for each level.
type Bucket = [Place; Level::ALL.len()];

/// Per table: how far WAL must be durable for what is visible.
#[derive(Debug)]
#[repr(C)]
pub struct ReadGuard {
    /// Something has been announced since the server started.
    used: Word32,
    /// Of all tables.
    all: Bucket,
    /// Up to there commits have been acknowledged without standbys, as there were none to wait for.
    alone: Word64,
    buckets: [Bucket; BUCKETS],
}

impl Default for ReadGuard {
    fn default() -> Self {
        ReadGuard {
            used: Word32::default(),
            all: Bucket::default(),
            alone: Word64::default(),
            buckets: std::array::from_fn(|_| Bucket::default()),
        }
    }
}

impl ReadGuard {
    fn place(&self, level: Level, database: u32, relation: u32) -> &Place {
        let mixed = (database ^ relation.rotate_left(16)).wrapping_mul(0x9e37_79b1) >> 22;
        &self.buckets[mixed as usize % BUCKETS][level as usize]
    }

    /// Whether any transaction has ever become visible early.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used.get() != 0
    }

    /// A transaction is about to become visible early. From now on readers have to look.
    pub fn begin(&self, level: Level) {
        if !self.is_used() {
            self.used.publish(1);
        }
        self.all[level as usize].committing.add(1);
    }

    /// That transaction has written to the table.
    pub fn announce(&self, level: Level, database: u32, relation: u32) {
        self.place(level, database, relation).committing.add(1);
    }

    /// The announced writer is visible; its commit record ends at `until` (0 when it rolled back
    /// instead). For each table that was announced.
    pub fn settle(&self, level: Level, database: u32, relation: u32, until: u64) {
        self.place(level, database, relation).settle(until);
    }

    /// After that.
    pub fn end(&self, level: Level, until: u64) {
        self.all[level as usize].settle(until);
    }

    /// A commit whose record ends there has been acknowledged when no standby was to be waited for.
    pub fn note_alone(&self, until: u64) {
        if self.alone.get() < until {
            self.alone.raise(until);
        }
    }

    /// Whether a reader need not wait for standbys up to that position, whatever they have: stock
    /// PostgreSQL has shown all up to there.
    pub fn is_acknowledged(&self, until: u64) -> bool {
        until <= self.alone.get()
    }

    /// What somebody who has just read the table must wait for at that level.
    pub fn check(&self, level: Level, database: u32, relation: u32) -> Verdict {
        self.place(level, database, relation).check()
    }

    /// What somebody must wait for who may have read any table.
    pub fn check_all(&self, level: Level) -> Verdict {
        self.all[level as usize].check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: Level = Level::Flushed;

    #[test]
    fn a_reader_waits_for_what_became_visible_early_in_its_table_only() {
        let guard = Box::new(ReadGuard::default());
        assert_eq!(guard.check(LEVEL, 1, 10), Verdict::Durable);
        guard.begin(LEVEL);
        guard.announce(LEVEL, 1, 10);
        assert_eq!(guard.check(LEVEL, 1, 10), Verdict::Everything);
        assert_eq!(guard.check_all(LEVEL), Verdict::Everything);
        assert_eq!(guard.check(LEVEL, 1, 11), Verdict::Durable);
        guard.settle(LEVEL, 1, 10, 500);
        guard.end(LEVEL, 500);
        assert_eq!(guard.check(LEVEL, 1, 10), Verdict::Until(500));
        assert_eq!(guard.check(LEVEL, 1, 11), Verdict::Durable);
        assert_eq!(guard.check_all(LEVEL), Verdict::Until(500));
    }

    #[test]
    fn a_rolled_back_announcement_leaves_nothing() {
        let guard = Box::new(ReadGuard::default());
        guard.begin(LEVEL);
        guard.announce(LEVEL, 1, 10);
        guard.settle(LEVEL, 1, 10, 0);
        guard.end(LEVEL, 0);
        assert_eq!(guard.check(LEVEL, 1, 10), Verdict::Durable);
        assert_eq!(guard.check_all(LEVEL), Verdict::Durable);
    }

    #[test]
    fn levels_are_apart() {
        let guard = Box::new(ReadGuard::default());
        guard.begin(Level::Local);
        guard.announce(Level::Local, 1, 10);
        for level in [Level::Flushed, Level::Applied] {
            assert_eq!(guard.check(level, 1, 10), Verdict::Durable);
            assert_eq!(guard.check_all(level), Verdict::Durable);
        }
        guard.settle(Level::Local, 1, 10, 500);
        guard.end(Level::Local, 500);
        assert_eq!(guard.check(Level::Local, 1, 10), Verdict::Until(500));
        assert_eq!(guard.check(Level::Flushed, 1, 10), Verdict::Durable);
    }
}
