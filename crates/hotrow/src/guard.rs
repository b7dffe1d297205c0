//! The read guard: what may be visible before it is durable, by early visibility.
//!
//! A transaction that lets its rows be seen before its flush says so per table. A reader that could
//! have seen such a row learns from here up to which WAL position it must wait before it completes.
//! Tables share buckets by hash: a collision makes a reader wait for a flush that it did not need.

use crate::{Word32, Word64};

const BUCKETS: usize = 1024;

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
struct Bucket {
    committing: Word32,
    until: Word64,
}

/// Per table: how far WAL must be durable for what is visible.
#[derive(Debug)]
#[repr(C)]
pub struct ReadGuard {
    /// Something has been announced since the server started.
    used: Word32,
    buckets: [Bucket; BUCKETS],
}

impl Default for ReadGuard {
    fn default() -> Self {
        ReadGuard {
            used: Word32::default(),
            buckets: std::array::from_fn(|_| Bucket::default()),
        }
    }
}

impl ReadGuard {
    fn bucket(&self, database: u32, relation: u32) -> &Bucket {
        let mixed = (database ^ relation.rotate_left(16)).wrapping_mul(0x9e37_79b1) >> 22;
        &self.buckets[mixed as usize % BUCKETS]
    }

    /// Whether any transaction has ever become visible early.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used.get() != 0
    }

    /// From now on readers have to look.
    pub fn use_it(&self) {
        if !self.is_used() {
            self.used.publish(1);
        }
    }

    /// A writer of the table is about to become visible early.
    pub fn announce(&self, database: u32, relation: u32) {
        self.bucket(database, relation).committing.add(1);
    }

    /// The announced writer is visible; its commit record ends at `until` (0 when it rolled back
    /// instead).
    pub fn settle(&self, database: u32, relation: u32, until: u64) {
        let bucket = self.bucket(database, relation);
        bucket.until.raise(until);
        bucket.committing.sub(1);
    }

    /// What somebody who has just read the table must wait for.
    pub fn check(&self, database: u32, relation: u32) -> Verdict {
        let bucket = self.bucket(database, relation);
        if bucket.committing.get() != 0 {
            return Verdict::Everything;
        }
        match bucket.until.get() {
            0 => Verdict::Durable,
            until => Verdict::Until(until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_waits_for_what_became_visible_early_in_its_table_only() {
        let guard = Box::new(ReadGuard::default());
        assert_eq!(guard.check(1, 10), Verdict::Durable);
        guard.announce(1, 10);
        assert_eq!(guard.check(1, 10), Verdict::Everything);
        assert_eq!(guard.check(1, 11), Verdict::Durable);
        guard.settle(1, 10, 500);
        assert_eq!(guard.check(1, 10), Verdict::Until(500));
    }

    #[test]
    fn a_rolled_back_announcement_leaves_nothing() {
        let guard = Box::new(ReadGuard::default());
        guard.announce(1, 10);
        guard.settle(1, 10, 0);
        assert_eq!(guard.check(1, 10), Verdict::Durable);
    }
}
