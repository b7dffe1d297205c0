//! The line before a contended record, at the coordinator: who stands in it has locked nothing at
//! any node.
//!
//! At its node a transaction would wait with locks on other records, behind more than its lock
//! timeout lets it wait for. Here it waits in the order of beginning, and leaves when few enough
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
    /// The number of its transaction. Smaller ones began before.
    number: AtomicU64,
    /// The record before which it stands.
    hash: AtomicU64,
}

/// All that stand before some record.
#[repr(C)]
pub struct Line {
    places: [Place; PLACES],
}

impl Line {
    /// The process stands before that record from now on, and before no other. False: there is no
    /// room.
    pub fn stand(&self, actor: u32, number: u64, hash: u64) -> bool {
        let own = u64::from(actor) + 1;
        let with = |wanted| {
            let is_it = move |one: &&Place| one.actor.load(Relaxed) == wanted;
            self.places.iter().find(is_it)
        };
        let Some(place) = with(own).or_else(|| with(0)) else {
            return false;
        };
        place.number.store(number, Relaxed);
        place.hash.store(hash, Relaxed);
        place.actor.store(own, Relaxed);
        true
    }

    /// The process stands in line no more.
    pub fn leave(&self, actor: u32) {
        let own = u64::from(actor) + 1;
        for one in &self.places {
            if one.actor.load(Relaxed) == own {
                one.actor.store(0, Relaxed);
            }
        }
    }

    fn before(&self, hash: u64) -> impl Iterator<Item = &Place> {
        let is_it =
            move |one: &&Place| one.actor.load(Relaxed) != 0 && one.hash.load(Relaxed) == hash;
        self.places.iter().filter(is_it)
    }

    /// Who has stood before the record for longest: its number and process.
    pub fn first(&self, hash: u64) -> Option<(u64, u32)> {
        let both = |one: &Place| (one.number.load(Relaxed), one.actor.load(Relaxed) as u32 - 1);
        self.before(hash).map(both).min()
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
    fn who_began_first_is_first() {
        let line = empty();
        assert_eq!(line.first(9), None);
        for (actor, number) in [(3, 30), (0, 20), (7, 40)] {
            assert!(line.stand(actor, number, 9));
        }
        assert!(line.stand(5, 10, 8));
        assert_eq!((line.first(9), line.length(9)), (Some((20, 0)), 3));
        line.leave(0);
        assert_eq!((line.first(9), line.length(9)), (Some((30, 3)), 2));
        assert_eq!(line.first(8), Some((10, 5)));
    }

    #[test]
    fn a_process_stands_before_one_record() {
        let line = empty();
        assert!(line.stand(3, 30, 9) && line.stand(3, 30, 8));
        assert_eq!((line.length(9), line.length(8)), (0, 1));
        line.leave(3);
        line.leave(3);
        assert_eq!(line.length(8), 0);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let line = empty();
        for actor in 0..PLACES as u32 {
            assert!(line.stand(actor, 1, 9));
        }
        assert!(!line.stand(1000, 1, 9));
        assert!(line.stand(5, 2, 8), "its own place");
        line.leave(0);
        assert!(line.stand(1000, 1, 9));
    }
}
