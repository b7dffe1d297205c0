//! Finding hot rows: buckets of slots in shared memory.
//!
//! A look-up takes no lock: one hash and one load when the bucket is empty, which is the cost of a row that is not hot.
//! It may miss a row that is just being moved; the caller then takes PostgreSQL's ordinary way, which is always right.
//! What it finds must be verified (`Row::is`) under the row's lock. Inserting and removing want the directory's lock.

use crate::{Identity, Row, Word32, Word64};

/// Index of a hot row's slot.
pub type Slot = u32;

/// Steps that a look-up makes before it gives up on a chain that changes under it.
const STEPS: usize = 64;

/// The buckets, the slots and the contention counters.
#[derive(Clone, Copy)]
pub struct Directory<'a> {
    /// First slot of each bucket, index + 1. The length is a power of two.
    pub buckets: &'a [Word32],
    pub rows: &'a [Row],
    /// Transactions that now wait for a row that is not hot, by hash. The length is a power of two.
    pub contention: &'a [Word32],
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

    /// A free slot, if any. The caller holds the directory's lock.
    pub fn free_slot(&self) -> Option<Slot> {
        let count = self.rows.len();
        let start = self.cursor.get() as usize;
        let found = (0..count)
            .map(|n| (start + n) % count)
            .find(|&n| !self.rows[n].is_used())?;
        self.cursor.set(found as u64 + 1);
        Some(found as Slot)
    }

    /// Makes the free slot a hot row. The caller holds the directory's lock and that slot's.
    pub fn insert(&self, slot: Slot, identity: &Identity, label: &[u8], now: u64) {
        let row = &self.rows[slot as usize];
        let bucket = self.bucket(identity.hash());
        row.next_in_bucket.set(bucket.get());
        row.claim(identity, label, now);
        bucket.publish(slot + 1);
        self.used.add(1);
    }

    /// Frees the slot of a row that nobody refers to. The caller holds the directory's lock and that slot's.
    pub fn remove(&self, slot: Slot) {
        let row = &self.rows[slot as usize];
        let mut link = self.bucket(row.hash.get());
        while let Some(at) = link.get().checked_sub(1) {
            if at == slot {
                link.publish(row.next_in_bucket.get());
                row.hash.publish(0);
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

    #[test]
    fn rows_are_found_until_they_are_removed_and_slots_are_used_again() {
        let buckets: Vec<Word32> = (0..2).map(|_| Word32::default()).collect();
        let rows: Vec<Row> = (0..8).map(|_| Row::default()).collect();
        let contention: Vec<Word32> = (0..8).map(|_| Word32::default()).collect();
        let (used, cursor) = (Word32::default(), Word64::default());
        let directory = Directory {
            buckets: &buckets,
            rows: &rows,
            contention: &contention,
            used: &used,
            cursor: &cursor,
        };
        let identity = |n: u64| Identity::new(1, 2, &n.to_le_bytes());
        for round in 0..50_u64 {
            let first = round * 8;
            for n in first..first + 8 {
                let slot = directory.free_slot().expect("eight slots");
                directory.insert(slot, &identity(n), b"", 0);
            }
            assert_eq!(directory.free_slot(), None);
            for n in first..first + 8 {
                let slot = directory.find(&identity(n)).expect("inserted");
                assert!(rows[slot as usize].is(&identity(n)));
                directory.remove(slot);
                assert_eq!(directory.find(&identity(n)), None);
            }
            assert_eq!(used.get(), 0);
        }
    }
}
