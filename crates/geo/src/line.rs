//! The line before a contended record, at the coordinator: who stands in it has no lock on a row at
//! any node.
//!
//! At its node a transaction would wait with locks on other records, behind more than its lock
//! timeout lets it wait for. Here transactions wait in the order of coming. One leaves when so few
//! are at work on the record that none of them waits for long (`turn.rs`).
//!
//! Read and changed under the lock of the records. Zeroed memory is empty.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A process's place in line.
#[repr(C)]
#[derive(Default)]
pub struct Place {
    /// Smaller ones have come before. 0: it does not stand in line.
    number: AtomicU64,
    /// The record before which it stands.
    hash: AtomicU64,
    /// When it came.
    since: AtomicU64,
}

/// A process that stands in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InLine {
    /// The process.
    pub backend: u32,
    /// The record before which it stands.
    pub hash: u64,
    /// When it came.
    pub since: u64,
    /// The one that stands before that record and came just before it; None: it is the next there.
    pub ahead: Option<u32>,
}

/// What all places have in common.
#[repr(C)]
#[derive(Default)]
pub struct Head {
    /// The number of the one that has come last.
    latest: AtomicU64,
    /// How many stand in line.
    count: AtomicU64,
}

/// All that stand before some record: a place for each process.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    head: &'a Head,
    places: &'a [Place],
}

impl<'a> Line<'a> {
    /// The line in that memory.
    pub fn new(head: &'a Head, places: &'a [Place]) -> Line<'a> {
        Line { head, places }
    }

    fn place(&self, backend: u32) -> &'a Place {
        &self.places[backend as usize]
    }

    /// The process stands before that record from now on, and before no other. It keeps its turn.
    pub fn stand(&self, backend: u32, hash: u64, now: u64) {
        let own = self.place(backend);
        own.hash.store(hash, Relaxed);
        if own.number.load(Relaxed) == 0 {
            let number = self.head.latest.load(Relaxed) + 1;
            self.head.latest.store(number, Relaxed);
            own.number.store(number, Relaxed);
            own.since.store(now, Relaxed);
            self.head.count.fetch_add(1, Relaxed);
        }
    }

    /// The record before which the process stands.
    pub fn stands_before(&self, backend: u32) -> Option<u64> {
        let own = self.place(backend);
        (own.number.load(Relaxed) != 0).then(|| own.hash.load(Relaxed))
    }

    /// The process stands in line no more. The record before which it has stood.
    pub fn leave(&self, backend: u32) -> Option<u64> {
        let before = self.stands_before(backend)?;
        self.place(backend).number.store(0, Relaxed);
        self.head.count.fetch_sub(1, Relaxed);
        Some(before)
    }

    /// The numbers of those that stand before the record, and who they are.
    fn before(&self, hash: u64) -> impl Iterator<Item = (u64, u32)> {
        // Mostly there is nobody.
        let places = match self.head.count.load(Relaxed) {
            0 => &self.places[..0],
            _ => self.places,
        };
        let stands = move |(backend, place): (usize, &Place)| {
            let number = place.number.load(Relaxed);
            let is_it = number != 0 && place.hash.load(Relaxed) == hash;
            is_it.then_some((number, backend as u32))
        };
        places.iter().enumerate().filter_map(stands)
    }

    /// All that stand in line.
    pub fn all(&self) -> impl Iterator<Item = InLine> {
        (0..self.places.len() as u32).filter_map(|backend| {
            let hash = self.stands_before(backend)?;
            let own = self.place(backend);
            let number = own.number.load(Relaxed);
            let earlier = self.before(hash).filter(|&(other, _)| other < number);
            Some(InLine {
                backend,
                hash,
                since: own.since.load(Relaxed),
                ahead: earlier.max().map(|(_, backend)| backend),
            })
        })
    }

    /// The process that has come first of those that stand before the record.
    pub fn first(&self, hash: u64) -> Option<u32> {
        self.before(hash).min().map(|(_, backend)| backend)
    }

    /// Whether somebody stands before the record who has come before that process.
    pub fn is_behind(&self, backend: u32, hash: u64) -> bool {
        let own = match self.place(backend).number.load(Relaxed) {
            0 => u64::MAX,
            number => number,
        };
        self.before(hash).any(|(number, _)| number < own)
    }

    /// How many stand before the record.
    pub fn length(&self, hash: u64) -> u64 {
        self.before(hash).count() as u64
    }
}

#[cfg(test)]
pub(crate) fn places(count: usize) -> Vec<Place> {
    (0..count).map(|_| Place::default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_first() {
        let (head, places) = (Head::default(), places(10));
        let line = Line::new(&head, &places);
        assert_eq!(line.first(9), None);
        for backend in [3, 0, 7] {
            assert!(line.is_behind(backend, 9) == (backend != 3));
            line.stand(backend, 9, 1);
        }
        assert_eq!((line.first(9), line.length(9)), (Some(3), 3));
        assert!(!line.is_behind(3, 9) && line.is_behind(0, 9));
        assert_eq!(line.leave(3), Some(9));
        assert_eq!((line.first(9), line.length(9)), (Some(0), 2));
        line.stand(3, 9, 1);
        assert!(line.is_behind(3, 9), "it comes again");
    }

    #[test]
    fn a_process_stands_before_one_record_and_keeps_its_turn() {
        let (head, places) = (Head::default(), places(10));
        let line = Line::new(&head, &places);
        line.stand(3, 9, 1);
        line.stand(5, 8, 1);
        line.stand(3, 8, 1);
        assert_eq!((line.length(9), line.length(8)), (0, 2));
        assert_eq!((line.first(8), line.stands_before(3)), (Some(3), Some(8)));
        assert_eq!((line.leave(3), line.leave(3)), (Some(8), None));
        assert_eq!((line.length(8), line.stands_before(3)), (1, None));
    }

    #[test]
    fn each_has_the_one_before_it_ahead() {
        let (head, places) = (Head::default(), places(10));
        let line = Line::new(&head, &places);
        for (now, (backend, hash)) in [(7, 9), (3, 9), (4, 8), (5, 9)].into_iter().enumerate() {
            line.stand(backend, hash, now as u64);
        }
        line.stand(3, 8, 10);
        let all: Vec<_> = line
            .all()
            .map(|one| (one.backend, one.hash, one.since, one.ahead))
            .collect();
        let expected = [
            (3, 8, 1, None),
            (4, 8, 2, Some(3)),
            (5, 9, 3, Some(7)),
            (7, 9, 0, None),
        ];
        assert_eq!(all, expected);
    }
}
