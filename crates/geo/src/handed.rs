//! Decided transactions that their sessions have handed over to the resolver, which commits them at
//! the nodes. In shared memory, under the lock of the board; zeroed memory is empty.
//!
//! A transaction is handed over when its rows are visible and confirmed, and before its slot
//! closes. A reader looks at the slots first and at these places then. So it finds the transaction
//! in one of both until the nodes have acknowledged it, or the board has it as unapplied.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Commits at nodes that are handed over at a time, at most; more are left to a pass.
pub const HANDED: usize = 1024;

/// Commits that wait for one connection's answers, at most: it gets them one after the other. A
/// session whose commit would be behind so many sends it by itself, and waits for it.
pub const QUEUE: usize = 16;

/// What has become of a hand-over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandOver {
    /// The resolver commits the transaction at its nodes.
    Taken,
    /// Too many wait at one of them, or everywhere.
    Busy,
    /// The resolver is not connected to one of them.
    NotLinked,
}

/// A commit at one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handed {
    /// The number of the hand-over: later ones have higher numbers. The nodes of a transaction
    /// have one each.
    pub ticket: u64,
    /// The server.
    pub server: u32,
    /// The user mapping with which it was prepared.
    pub mapping: u32,
    /// The incarnation that has decided it.
    pub incarnation: u64,
    /// The number of the transaction.
    pub sequence: u64,
}

#[repr(C)]
struct Place {
    /// 0: free.
    ticket: AtomicU64,
    database: AtomicU64,
    server: AtomicU64,
    mapping: AtomicU64,
    incarnation: AtomicU64,
    sequence: AtomicU64,
}

/// All of them.
#[repr(C)]
pub struct HandOvers {
    /// Places that are taken.
    count: AtomicU64,
    places: [Place; HANDED],
}

impl HandOvers {
    /// Hands a commit over. False: there is no room.
    pub fn add(&self, database: u32, handed: &Handed) -> bool {
        let is_free = |place: &&Place| place.ticket.load(Relaxed) == 0;
        let Some(place) = self.places.iter().find(is_free) else {
            return false;
        };
        place.ticket.store(handed.ticket, Relaxed);
        place.database.store(u64::from(database), Relaxed);
        place.server.store(u64::from(handed.server), Relaxed);
        place.mapping.store(u64::from(handed.mapping), Relaxed);
        place.incarnation.store(handed.incarnation, Relaxed);
        place.sequence.store(handed.sequence, Relaxed);
        self.count.fetch_add(1, Relaxed);
        true
    }

    /// How many more there is room for.
    pub fn room(&self) -> usize {
        HANDED - self.count.load(Relaxed) as usize
    }

    /// How many wait for the connection of that user mapping.
    pub fn queue(&self, database: u32, mapping: u32) -> usize {
        let is_its = |place: &&Place| place.mapping.load(Relaxed) == u64::from(mapping);
        self.of(database).filter(is_its).count()
    }

    fn taken(&self) -> impl Iterator<Item = &Place> {
        // Mostly there is none.
        let places = match self.count.load(Relaxed) {
            0 => &self.places[..0],
            _ => &self.places[..],
        };
        places
            .iter()
            .filter(|place| place.ticket.load(Relaxed) != 0)
    }

    fn of(&self, database: u32) -> impl Iterator<Item = &Place> {
        let is_its = move |place: &&Place| place.database.load(Relaxed) == u64::from(database);
        self.taken().filter(is_its)
    }

    /// Those of the database, the first ones first.
    pub fn all(&self, database: u32) -> Vec<Handed> {
        let read = |place: &Place| Handed {
            ticket: place.ticket.load(Relaxed),
            server: place.server.load(Relaxed) as u32,
            mapping: place.mapping.load(Relaxed) as u32,
            incarnation: place.incarnation.load(Relaxed),
            sequence: place.sequence.load(Relaxed),
        };
        let mut all: Vec<Handed> = self.of(database).map(read).collect();
        all.sort_unstable_by_key(|one| one.ticket);
        all
    }

    /// Whether one waits at that server that has this ticket or an earlier one.
    pub fn has(&self, database: u32, server: u32, ticket: u64) -> bool {
        self.of(database).any(|place| {
            place.server.load(Relaxed) == u64::from(server) && place.ticket.load(Relaxed) <= ticket
        })
    }

    /// It is not handed over any more.
    pub fn remove(&self, ticket: u64) {
        self.forget(|place| place.ticket.load(Relaxed) == ticket);
    }

    /// The database has been dropped.
    pub fn forget_database(&self, database: u32) {
        self.forget(|place| place.database.load(Relaxed) == u64::from(database));
    }

    fn forget(&self, is_it: impl Fn(&Place) -> bool) {
        for place in self.taken().filter(|place| is_it(place)) {
            place.ticket.store(0, Relaxed);
            self.count.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
impl Default for HandOvers {
    fn default() -> HandOvers {
        let zero = || AtomicU64::new(0);
        HandOvers {
            count: zero(),
            places: std::array::from_fn(|_| Place {
                ticket: zero(),
                database: zero(),
                server: zero(),
                mapping: zero(),
                incarnation: zero(),
                sequence: zero(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(ticket: u64, server: u32) -> Handed {
        Handed {
            ticket,
            server,
            mapping: 7,
            incarnation: 3,
            sequence: 100 + ticket,
        }
    }

    #[test]
    fn what_is_handed_over_is_there_until_it_is_removed() {
        let all = HandOvers::default();
        assert!(
            all.add(5, &handed(2, 1)) && all.add(5, &handed(1, 2)) && all.add(6, &handed(3, 1))
        );
        assert_eq!(all.all(5), [handed(1, 2), handed(2, 1)]);
        assert_eq!(all.room(), HANDED - 3);
        all.remove(1);
        all.remove(1);
        assert_eq!(all.all(5), [handed(2, 1)]);
        all.forget_database(5);
        assert!(all.all(5).is_empty() && all.all(6).len() == 1);
        assert_eq!(all.room(), HANDED - 1);
    }

    #[test]
    fn later_ones_keep_nobody_waiting() {
        let all = HandOvers::default();
        assert!(all.add(5, &handed(4, 1)));
        assert!(all.has(5, 1, 4) && all.has(5, 1, u64::MAX));
        assert!(!all.has(5, 1, 3) && !all.has(5, 2, 4) && !all.has(6, 1, 4));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let all = HandOvers::default();
        assert!((1..=HANDED as u64).all(|ticket| all.add(5, &handed(ticket, 1))));
        assert!(!all.add(5, &handed(9999, 1)) && all.room() == 0);
        all.remove(17);
        assert!(all.add(5, &handed(9999, 1)));
    }
}
