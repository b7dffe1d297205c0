//! Where index scans have found a row: versions in its HOT chains from which later scans go on.

use crate::{Word32, Word64};

/// Of so many chains the last place is kept. A row that changes pages has one on each, until its
/// old versions are gone.
const CHAINS: usize = 8;

/// A place is kept for so many transactions. Transaction ids come round again.
const RECENT: u32 = 1 << 30;

/// A version that a snapshot has seen, and the chain in which a scan has come to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The address that the index has: the chain's root.
    pub root: u64,
    /// The table's file: a table that is written anew has other addresses.
    pub file: u32,
    /// The version's address.
    pub version: u64,
    /// The transaction that has written the version, and has committed.
    pub xid: u32,
}

/// As long as a chain goes on for at most so many versions from the place that is noted, that is
/// near enough.
const NEAR: u64 = 8;

impl Found {
    /// Whether this is to be noted in the place of what was known of the same chain.
    pub fn is_far_from(&self, known: &Found) -> bool {
        self.version.abs_diff(known.version) > NEAR
    }
}

/// The places of one row. They are changed under the row's lock, and read without it.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Places {
    /// Odd while they are changed (a sequence lock).
    changes: Word32,
    /// The one that is displaced next.
    next: Word32,
    places: [Place; CHAINS],
}

#[derive(Debug, Default)]
#[repr(C)]
struct Place {
    root: Word64,
    version: Word64,
    /// 0: there is none.
    xid: Word32,
    file: Word32,
}

impl Place {
    fn is_used(&self) -> bool {
        self.xid.get() != 0
    }

    fn is_of(&self, root: u64, file: u32) -> bool {
        self.root.get() == root && self.file.get() == file && self.is_used()
    }
}

impl Places {
    #[inline]
    fn of(&self, root: u64, file: u32) -> Option<&Place> {
        self.places.iter().find(|place| place.is_of(root, file))
    }

    fn displaced(&self) -> &Place {
        let n = self.next.get() as usize % CHAINS;
        self.next.set((n + 1) as u32);
        &self.places[n]
    }

    fn change(&self, body: impl FnOnce()) {
        let before = self.changes.get();
        self.changes.publish(before.wrapping_add(1));
        body();
        self.changes.publish(before.wrapping_add(2));
    }

    /// The slot becomes another row's. Under the row's lock.
    pub(crate) fn forget(&self) {
        self.change(|| self.places.iter().for_each(|place| place.xid.set(0)));
    }

    /// lock-free: the place that was noted last for that chain. None also if it is being changed.
    #[inline]
    pub fn last(&self, root: u64, file: u32) -> Option<Found> {
        let before = self.changes.get();
        let place = self.of(root, file)?;
        let found = Found {
            root,
            file,
            version: place.version.get(),
            xid: place.xid.get(),
        };
        let is_whole = before.is_multiple_of(2) && self.changes.get() == before;
        is_whole.then_some(found)
    }

    /// Notes where the row was found. Under the row's lock.
    pub fn note(&self, found: &Found) {
        self.change(|| {
            for place in self.places.iter().filter(|place| place.is_used()) {
                let behind = found.xid.wrapping_sub(place.xid.get());
                if behind.cast_signed().unsigned_abs() > RECENT {
                    place.xid.set(0);
                }
            }
            let place = self
                .of(found.root, found.file)
                .unwrap_or_else(|| self.displaced());
            place.root.set(found.root);
            place.file.set(found.file);
            place.version.set(found.version);
            place.xid.set(found.xid);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::thread;

    fn at(root: u64, version: u64, xid: u32) -> Found {
        Found {
            root,
            file: 7,
            version,
            xid,
        }
    }

    #[test]
    fn the_last_place_of_each_chain_is_kept() {
        let places = Places::default();
        assert_eq!(places.last(1, 7), None);
        places.note(&at(1, 11, 100));
        places.note(&at(2, 21, 101));
        places.note(&at(1, 12, 102));
        assert_eq!(places.last(1, 7), Some(at(1, 12, 102)));
        assert_eq!(places.last(2, 7), Some(at(2, 21, 101)));
        assert_eq!(places.last(1, 8), None, "another file");
    }

    #[test]
    fn one_chain_more_displaces_the_oldest() {
        let places = Places::default();
        let chains = CHAINS as u64;
        for root in 1..=chains + 1 {
            places.note(&at(root, 0, root as u32));
        }
        assert_eq!(places.last(1, 7), None);
        assert!((2..=chains + 1).all(|root| places.last(root, 7).is_some()));
    }

    #[test]
    fn places_of_long_ago_are_forgotten() {
        let places = Places::default();
        places.note(&at(1, 11, 100));
        places.note(&at(2, 21, 100 + RECENT));
        assert!(places.last(1, 7).is_some());
        places.note(&at(2, 21, 101 + RECENT));
        assert_eq!(places.last(1, 7), None);
        places.note(&at(1, 11, u32::MAX));
        places.note(&at(2, 21, 3));
        assert!(places.last(1, 7).is_some(), "the ids have come round");
    }

    #[test]
    fn only_what_is_far_from_what_is_known_is_noted() {
        let known = at(1, 100, 7);
        assert!(!at(1, 100 + NEAR, 8).is_far_from(&known));
        assert!(at(1, 101 + NEAR, 8).is_far_from(&known));
        assert!(
            at(1, 2, 8).is_far_from(&known),
            "line pointers are used again"
        );
    }

    #[test]
    fn a_place_is_read_as_a_whole() {
        let places = Places::default();
        let is_over = AtomicBool::new(false);
        let of = |n: u64| at(n % 11, n * 3, n as u32);
        thread::scope(|scope| {
            for root in 0..2 {
                let (places, is_over) = (&places, &is_over);
                scope.spawn(move || {
                    while !is_over.load(SeqCst) {
                        if let Some(found) = places.last(root, 7) {
                            assert_eq!(found, of(u64::from(found.xid)));
                        }
                    }
                });
            }
            (1..=200_000).for_each(|n| places.note(&of(n)));
            is_over.store(true, SeqCst);
        });
    }
}
