//! The line before a contended record, at the coordinator: who stands in it has no lock on a row at
//! any node.
//!
//! At its node a transaction would wait with locks on other records, behind more than its lock
//! timeout lets it wait for. Here it waits in the order of coming, and leaves when few enough
//! are at work on the record that none of them waits for long. The wait is limited by the glue, so
//! that what is not known here can keep nobody waiting for good.
//!
//! Read and changed under the lock of the records. Zeroed memory is empty.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Those that can stand in line; others go to the node.
const PLACES: usize = 256;

/// So many transactions are at work on a contended record at a time: one that has the lock there,
/// one that comes to it, and one whose COMMIT is on its way.
pub const AT_ONCE: u64 = 3;

/// One that stands in line.
#[repr(C)]
struct Place {
    /// Its process, plus one; 0: the place is free.
    actor: AtomicU64,
    /// Smaller ones have come before.
    number: AtomicU64,
    /// The record before which it stands.
    hash: AtomicU64,
}

/// All that stand before some record.
#[repr(C)]
pub struct Line {
    /// The number of the one that has come last.
    latest: AtomicU64,
    places: [Place; PLACES],
}

impl Line {
    fn place(&self, actor: u32) -> Option<&Place> {
        let own = u64::from(actor) + 1;
        let is_it = |one: &&Place| one.actor.load(Relaxed) == own;
        self.places.iter().find(is_it)
    }

    /// The process stands before that record from now on, and before no other. It keeps its turn.
    /// False: there is no room.
    pub fn stand(&self, actor: u32, hash: u64) -> bool {
        if let Some(own) = self.place(actor) {
            own.hash.store(hash, Relaxed);
            return true;
        }
        let is_free = |one: &&Place| one.actor.load(Relaxed) == 0;
        let Some(place) = self.places.iter().find(is_free) else {
            return false;
        };
        let number = self.latest.load(Relaxed) + 1;
        self.latest.store(number, Relaxed);
        place.number.store(number, Relaxed);
        place.hash.store(hash, Relaxed);
        place.actor.store(u64::from(actor) + 1, Relaxed);
        true
    }

    /// The record before which the process stands.
    pub fn stands_before(&self, actor: u32) -> Option<u64> {
        self.place(actor).map(|own| own.hash.load(Relaxed))
    }

    /// The process stands in line no more. The record before which it has stood.
    pub fn leave(&self, actor: u32) -> Option<u64> {
        let own = self.place(actor)?;
        own.actor.store(0, Relaxed);
        Some(own.hash.load(Relaxed))
    }

    fn before(&self, hash: u64) -> impl Iterator<Item = &Place> {
        let is_it =
            move |one: &&Place| one.actor.load(Relaxed) != 0 && one.hash.load(Relaxed) == hash;
        self.places.iter().filter(is_it)
    }

    /// The process that has come first of those that stand before the record.
    pub fn first(&self, hash: u64) -> Option<u32> {
        let number = |one: &&Place| one.number.load(Relaxed);
        let first = self.before(hash).min_by_key(number)?;
        Some(first.actor.load(Relaxed) as u32 - 1)
    }

    /// Whether somebody stands before the record who has come before that process.
    pub fn is_behind(&self, actor: u32, hash: u64) -> bool {
        let number = |one: &Place| one.number.load(Relaxed);
        let own = self.place(actor).map_or(u64::MAX, number);
        self.before(hash).any(|one| number(one) < own)
    }

    /// How many stand before the record.
    pub fn length(&self, hash: u64) -> u64 {
        self.before(hash).count() as u64
    }
}

#[cfg(test)]
pub(crate) fn empty() -> Line {
    let zero = || AtomicU64::new(0);
    Line {
        latest: zero(),
        places: std::array::from_fn(|_| Place {
            actor: zero(),
            number: zero(),
            hash: zero(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_first() {
        let line = empty();
        assert_eq!(line.first(9), None);
        for actor in [3, 0, 7] {
            assert!(line.is_behind(actor, 9) == (actor != 3));
            assert!(line.stand(actor, 9));
        }
        assert_eq!((line.first(9), line.length(9)), (Some(3), 3));
        assert!(!line.is_behind(3, 9) && line.is_behind(0, 9));
        assert_eq!(line.leave(3), Some(9));
        assert_eq!((line.first(9), line.length(9)), (Some(0), 2));
        assert!(line.stand(3, 9), "it comes again");
        assert!(line.is_behind(3, 9));
    }

    #[test]
    fn a_process_stands_before_one_record_and_keeps_its_turn() {
        let line = empty();
        assert!(line.stand(3, 9) && line.stand(5, 8) && line.stand(3, 8));
        assert_eq!((line.length(9), line.length(8)), (0, 2));
        assert_eq!((line.first(8), line.stands_before(3)), (Some(3), Some(8)));
        assert_eq!((line.leave(3), line.leave(3)), (Some(8), None));
        assert_eq!((line.length(8), line.stands_before(3)), (1, None));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let line = empty();
        for actor in 0..PLACES as u32 {
            assert!(line.stand(actor, 9));
        }
        assert!(!line.stand(1000, 9));
        assert!(line.stand(5, 8), "its own place");
        line.leave(0);
        assert!(line.stand(1000, 9));
    }
}
