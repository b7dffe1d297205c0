//! The line before a contended record, at the coordinator: who stands in it has no lock on a row at
//! any node.
//!
//! At its node a transaction would wait with locks on other records, behind more than its lock
//! timeout lets it wait for. Here transactions wait in the order of coming. One leaves when so few
//! are at work on the record that none of them waits for long (`turn.rs`).
//!
//! Read and changed under the lock of the records. Zeroed memory is empty.

use crate::record_id::RecordId;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A process's place in line.
#[repr(C)]
#[derive(Default)]
pub struct Place {
    /// Smaller ones have come before. 0: it does not stand in line.
    number: AtomicU64,
    /// The record before which it stands: its hash, ...
    hash: AtomicU64,
    /// ... and as this process knows it.
    database: AtomicU64,
    relation: AtomicU64,
    /// When it came.
    since: AtomicU64,
}

/// A process that stands in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InLine {
    /// The process.
    pub backend: u32,
    /// The hash of the record before which it stands.
    pub hash: u64,
    /// The database.
    pub database: u32,
    /// The foreign table.
    pub relation: u32,
    /// When it came.
    pub since: u64,
    /// Smaller ones have come before.
    number: u64,
}

/// Each with the one that stands before the same record and came just before it. None: it is the
/// next there.
pub fn with_ahead(mut all: Vec<InLine>) -> Vec<(InLine, Option<u32>)> {
    all.sort_unstable_by_key(|one| (one.hash, one.number));
    let before = std::iter::once(None).chain(all.iter().copied().map(Some));
    let ahead = |(before, one): (Option<InLine>, &InLine)| {
        let ahead = before.filter(|before| before.hash == one.hash);
        (*one, ahead.map(|ahead| ahead.backend))
    };
    before.zip(&all).map(ahead).collect()
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
    pub fn stand(&self, backend: u32, record: &RecordId, now: u64) {
        let own = self.place(backend);
        own.hash.store(record.hash(), Relaxed);
        own.database.store(u64::from(record.database()), Relaxed);
        own.relation.store(u64::from(record.relation()), Relaxed);
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

    /// All that stand in line, in no order.
    pub fn all(&self) -> Vec<InLine> {
        let stands = |(backend, place): (usize, &Place)| {
            let number = place.number.load(Relaxed);
            (number != 0).then(|| InLine {
                backend: backend as u32,
                hash: place.hash.load(Relaxed),
                database: place.database.load(Relaxed) as u32,
                relation: place.relation.load(Relaxed) as u32,
                since: place.since.load(Relaxed),
                number,
            })
        };
        self.places.iter().enumerate().filter_map(stands).collect()
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

    fn record(hash: u64) -> RecordId {
        RecordId::of_hash(hash, hash as u32 * 10)
    }

    #[test]
    fn who_comes_first_is_first() {
        let (head, places) = (Head::default(), places(10));
        let line = Line::new(&head, &places);
        assert_eq!(line.first(9), None);
        for backend in [3, 0, 7] {
            assert!(line.is_behind(backend, 9) == (backend != 3));
            line.stand(backend, &record(9), 1);
        }
        assert_eq!((line.first(9), line.length(9)), (Some(3), 3));
        assert!(!line.is_behind(3, 9) && line.is_behind(0, 9));
        assert_eq!(line.leave(3), Some(9));
        assert_eq!((line.first(9), line.length(9)), (Some(0), 2));
        line.stand(3, &record(9), 1);
        assert!(line.is_behind(3, 9), "it comes again");
    }

    #[test]
    fn a_process_stands_before_one_record_and_keeps_its_turn() {
        let (head, places) = (Head::default(), places(10));
        let line = Line::new(&head, &places);
        line.stand(3, &record(9), 1);
        line.stand(5, &record(8), 1);
        line.stand(3, &record(8), 1);
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
            line.stand(backend, &record(hash), now as u64);
        }
        line.stand(3, &record(8), 10);
        let told = |(one, ahead): (InLine, _)| (one.backend, one.relation, one.since, ahead);
        let all: Vec<_> = with_ahead(line.all()).into_iter().map(told).collect();
        let expected = [
            (3, 80, 1, None),
            (4, 80, 2, Some(3)),
            (7, 90, 0, None),
            (5, 90, 3, Some(7)),
        ];
        assert_eq!(all, expected);
    }
}
