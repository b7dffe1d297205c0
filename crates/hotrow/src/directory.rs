//! Finding hot rows: buckets of slots in shared memory.
//!
//! A look-up takes no lock: one hash and one load when the bucket is empty, which is the cost of a
//! row that is not hot. It may miss a row that is just being moved; the caller then takes
//! PostgreSQL's ordinary way, which is always right. What it finds must be verified (`Row::is`)
//! under the row's lock. Inserting and removing want the directory's lock.

use crate::{Identity, Promotion, Row, Slot, Word32, Word64};

/// Steps that a look-up makes before it gives up on a chain that changes under it.
const STEPS: usize = 64;

/// Slots that a search for a row to evict looks at.
const WINDOW: usize = 64;

/// The buckets, the slots and the contention counters.
#[derive(Clone, Copy)]
pub struct Directory<'a> {
    /// First slot of each bucket, index + 1. The length is a power of two.
    pub buckets: &'a [Word32],
    pub rows: &'a [Row],
    /// Transactions that now wait for a row that is not hot, by hash. The length is a power of two.
    pub contention: &'a [Word32],
    /// Rows that count to each role's share, by hash; written under the directory's lock. Roles of
    /// the same hash have one share.
    pub shares: &'a [Word32],
    /// The slots in use; written under the directory's lock.
    pub used: &'a Word32,
    /// Where the search for a free slot begins; written under the directory's lock.
    pub cursor: &'a Word64,
}

impl<'a> Directory<'a> {
    fn bucket(&self, hash: u64) -> &'a Word32 {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// The slot that probably holds that row.
    #[inline]
    pub fn find(&self, identity: &Identity) -> Option<Slot> {
        let hash = identity.hash();
        let mut at = self.bucket(hash).get();
        for _ in 0..STEPS {
            let slot = at.checked_sub(1)?;
            let row = self.rows.get(slot as usize)?;
            if row.hash.get() == hash {
                return Some(slot);
            }
            at = row.next_in_bucket.get();
        }
        None
    }

    /// The counter of those who wait for a row that is not hot yet.
    pub fn contention(&self, identity: &Identity) -> &'a Word32 {
        &self.contention[(identity.hash() >> 32) as usize & (self.contention.len() - 1)]
    }

    fn share(&self, role: u32) -> &'a Word32 {
        let hash = role.wrapping_mul(0x9e37_79b1) >> 16;
        &self.shares[hash as usize & (self.shares.len() - 1)]
    }

    /// How many rows count to that role's share.
    pub fn held_by(&self, role: u32) -> u32 {
        self.share(role).get()
    }

    /// A row that may make room, if the next slots have one: of those that nobody refers to and
    /// that `may_go`, the one that
    /// has not been contended for longest. The caller holds the directory's lock, and looks again
    /// under the row's.
    pub fn dispensable(&self, may_go: impl Fn(&Row) -> bool) -> Option<Slot> {
        let count = self.rows.len();
        let start = self.cursor.get() as usize;
        self.cursor.set((start + WINDOW) as u64);
        (0..count.min(WINDOW))
            .map(|n| (start + n) % count)
            .filter(|&n| self.rows[n].is_used() && self.rows[n].is_idle() && may_go(&self.rows[n]))
            .min_by_key(|&n| self.rows[n].contended_at.get())
            .map(|n| n as Slot)
    }

    /// So many transactions wait for a row that is in the directory already. If that makes it hot
    /// for a role of which it was not,
    /// it counts to that one's share from now on. The caller holds the directory's lock.
    pub fn earn(&self, slot: Slot, role: u32, earned: u32, may_own: bool) {
        let row = &self.rows[slot as usize];
        let owner = row.owner.get();
        if may_own && owner != role && row.earned.get() < earned {
            self.share(owner).sub(1);
            self.share(role).add(1);
            row.owner.set(role);
        }
        row.earned.raise(earned);
    }

    /// A free slot, if any. The caller holds the directory's lock.
    pub fn free_slot(&self) -> Option<Slot> {
        let count = self.rows.len();
        if self.used.get() as usize >= count {
            return None;
        }
        let start = self.cursor.get() as usize;
        let found = (0..count)
            .map(|n| (start + n) % count)
            .find(|&n| !self.rows[n].is_used())?;
        self.cursor.set(found as u64 + 1);
        Some(found as Slot)
    }

    /// Makes the free slot a hot row. The caller holds the directory's lock and that slot's.
    pub fn insert(&self, slot: Slot, identity: &Identity, promotion: &Promotion) {
        let row = &self.rows[slot as usize];
        let bucket = self.bucket(identity.hash());
        row.next_in_bucket.set(bucket.get());
        row.claim(identity, promotion);
        bucket.publish(slot + 1);
        self.share(promotion.owner).add(1);
        self.used.add(1);
    }

    /// Frees the slot of a row that nobody refers to. The caller holds the directory's lock and
    /// that slot's.
    pub fn remove(&self, slot: Slot) {
        let row = &self.rows[slot as usize];
        let mut link = self.bucket(row.hash.get());
        while let Some(at) = link.get().checked_sub(1) {
            if at == slot {
                link.publish(row.next_in_bucket.get());
                row.hash.publish(0);
                self.share(row.owner.get()).sub(1);
                self.used.sub(1);
                return;
            }
            link = &self.rows[at as usize].next_in_bucket;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KEY_COLUMNS;

    struct Memory {
        buckets: Vec<Word32>,
        rows: Vec<Row>,
        contention: Vec<Word32>,
        shares: Vec<Word32>,
        used: Word32,
        cursor: Word64,
    }

    impl Memory {
        fn new() -> Memory {
            let words = |n| (0..n).map(|_| Word32::default()).collect();
            Memory {
                buckets: words(2),
                rows: (0..8).map(|_| Row::default()).collect(),
                contention: words(8),
                shares: words(16),
                used: Word32::default(),
                cursor: Word64::default(),
            }
        }

        fn directory(&self) -> Directory<'_> {
            Directory {
                buckets: &self.buckets,
                rows: &self.rows,
                contention: &self.contention,
                shares: &self.shares,
                used: &self.used,
                cursor: &self.cursor,
            }
        }
    }

    fn identity(n: u64) -> Identity {
        Identity::new(1, 2, &n.to_le_bytes())
    }

    fn promotion(owner: u32, now: u64) -> Promotion<'static> {
        Promotion {
            label: b"",
            columns: [0; KEY_COLUMNS],
            owner,
            earned: 0,
            now,
        }
    }

    #[test]
    fn rows_are_found_until_they_are_removed_and_slots_are_used_again() {
        let memory = Memory::new();
        let directory = memory.directory();
        for round in 0..50_u64 {
            let first = round * 8;
            for n in first..first + 8 {
                let slot = directory.free_slot().expect("eight slots");
                directory.insert(slot, &identity(n), &promotion(1, 0));
            }
            assert_eq!(directory.free_slot(), None);
            assert_eq!(directory.held_by(1), 8);
            for n in first..first + 8 {
                let slot = directory.find(&identity(n)).expect("inserted");
                assert!(memory.rows[slot as usize].is(&identity(n)));
                directory.remove(slot);
                assert_eq!(directory.find(&identity(n)), None);
            }
            assert_eq!((memory.used.get(), directory.held_by(1)), (0, 0));
        }
    }

    #[test]
    fn the_idle_row_that_was_contended_first_makes_room() {
        let memory = Memory::new();
        let directory = memory.directory();
        assert_eq!(directory.dispensable(|_| true), None);
        for n in 0..8 {
            let slot = directory.free_slot().expect("eight slots");
            directory.insert(slot, &identity(n), &promotion(1 + n as u32 % 2, 100 - n));
        }
        memory.rows[7].members.set(1);
        let found = directory.dispensable(|_| true);
        assert_eq!(found, Some(6), "slot 7 is in use");
        let found = directory.dispensable(|row| row.owner() == 2);
        assert_eq!(found, Some(5));
    }

    #[test]
    fn a_row_counts_to_the_share_of_whom_it_was_contended_by() {
        let memory = Memory::new();
        let directory = memory.directory();
        let slot = directory.free_slot().expect("eight slots");
        directory.insert(slot, &identity(1), &promotion(1, 0));
        let held = || [1, 2, 3].map(|role| directory.held_by(role));
        directory.earn(slot, 2, 4, false);
        assert_eq!(held(), [1, 0, 0], "role 2 has no room");
        directory.earn(slot, 2, 4, true);
        assert_eq!(held(), [1, 0, 0], "it was hot for role 2 before");
        directory.earn(slot, 3, 5, true);
        assert_eq!(held(), [0, 0, 1]);
        assert!(memory.rows[slot as usize].is_hot_for(2, 5));
        assert!(!memory.rows[slot as usize].is_hot_for(2, 6));
    }
}
