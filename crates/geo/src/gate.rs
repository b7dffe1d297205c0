//! The gate between commits at nodes and snapshots of several nodes.
//!
//! A commit is inside from before anything of it can be seen, at a node or at the coordinator. It
//! leaves when all of its nodes have acknowledged it, or it is known as unapplied. A reader is
//! inside while it takes its snapshots. So each snapshot of a reader sees a commit in full, or
//! nothing of it; and whoever sees a commit sees those that were acknowledged before it began. The
//! proof is in the README.
//!
//! Commits do not keep each other out, nor do readers. Of a commit and a reader that have a server
//! in common one waits: the one that came later. So neither kind can starve the other.
//!
//! Everything here is read and changed under one lock of the glue. Zeroed memory is an open gate.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What a process does at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It commits at nodes.
    Commit,
    /// It takes snapshots of nodes.
    Read,
}

/// Servers of a database. It may have more than were added: two may share a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Servers {
    database: u32,
    bits: u64,
}

impl Servers {
    /// None yet.
    pub fn of(database: u32) -> Servers {
        Servers { database, bits: 0 }
    }

    /// With this one.
    pub fn with(self, server: u32) -> Servers {
        // The upper bits of a product spread numbers that follow each other.
        let bit = server.wrapping_mul(0x9E37_79B1) >> (u32::BITS - 6);
        Servers {
            bits: self.bits | 1 << bit,
            ..self
        }
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }
}

const OUTSIDE: u64 = 0;
const WAITS: u64 = 1;
const INSIDE: u64 = 2;

/// A process's place at the gate; zeroed memory is one of a process that is outside.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Seat {
    state: AtomicU64,
    reads: AtomicU64,
    ticket: AtomicU64,
    database: AtomicU64,
    bits: AtomicU64,
}

impl Seat {
    fn is(&self, state: u64) -> bool {
        self.state.load(Relaxed) == state
    }

    /// Whether its process is outside, and does not wait. Its own process needs no lock to ask.
    pub fn is_outside(&self) -> bool {
        self.is(OUTSIDE)
    }

    /// Whether one of two that are not outside has to wait for the other.
    fn excludes(&self, other: &Seat) -> bool {
        let of =
            |word: fn(&Seat) -> &AtomicU64| (word(self).load(Relaxed), word(other).load(Relaxed));
        let (sides, databases) = (of(|seat| &seat.reads), of(|seat| &seat.database));
        let (own, others) = of(|seat| &seat.bits);
        sides.0 != sides.1 && databases.0 == databases.1 && own & others != 0
    }
}

/// The gate; there is one for all databases.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Gate {
    /// The number of the one that came last.
    tickets: AtomicU64,
    /// Readers that wait or are inside.
    readers: AtomicU64,
}

impl Gate {
    /// The process comes to the gate, from outside. Whether it is inside at once; else it waits in
    /// line.
    pub fn come(&self, seats: &[Seat], me: usize, side: Side, servers: Servers) -> bool {
        let own = &seats[me];
        let reads = side == Side::Read;
        own.reads.store(u64::from(reads), Relaxed);
        own.database.store(u64::from(servers.database), Relaxed);
        own.bits.store(servers.bits, Relaxed);
        own.ticket
            .store(self.tickets.fetch_add(1, Relaxed), Relaxed);
        own.state.store(WAITS, Relaxed);
        if reads {
            self.readers.fetch_add(1, Relaxed);
        }
        self.enter(seats, me)
    }

    /// Whether a process that waits in line is inside from now on.
    pub fn enter(&self, seats: &[Seat], me: usize) -> bool {
        let own = &seats[me];
        let ticket = own.ticket.load(Relaxed);
        let goes_first = |other: &Seat| {
            other.is(INSIDE) || other.is(WAITS) && other.ticket.load(Relaxed) < ticket
        };
        let may = self.readers.load(Relaxed) == 0
            || !seats
                .iter()
                .any(|other| goes_first(other) && own.excludes(other));
        if may {
            own.state.store(INSIDE, Relaxed);
        }
        may
    }

    /// The process leaves, or gives up waiting, if it is not outside. Those that wait are told, to
    /// ask again.
    pub fn leave(&self, seats: &[Seat], me: usize, mut tell: impl FnMut(usize)) {
        let own = &seats[me];
        if own.is_outside() {
            return;
        }
        own.state.store(OUTSIDE, Relaxed);
        let readers = self.readers.load(Relaxed);
        // Without readers nobody waits.
        if readers > 0 {
            self.readers
                .store(readers - own.reads.load(Relaxed), Relaxed);
            (0..seats.len())
                .filter(|&other| seats[other].is(WAITS))
                .for_each(&mut tell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Side::{Commit, Read};

    struct At {
        gate: Gate,
        seats: [Seat; 6],
    }

    fn servers(list: &[u32]) -> Servers {
        list.iter().fold(Servers::of(5), |all, &one| all.with(one))
    }

    impl At {
        fn new() -> At {
            At {
                gate: Gate::default(),
                seats: std::array::from_fn(|_| Seat::default()),
            }
        }

        fn come(&self, me: usize, side: Side, list: &[u32]) -> bool {
            self.gate.come(&self.seats, me, side, servers(list))
        }

        fn enter(&self, me: usize) -> bool {
            self.gate.enter(&self.seats, me)
        }

        fn leave(&self, me: usize) -> Vec<usize> {
            let mut told = Vec::new();
            self.gate.leave(&self.seats, me, |one| told.push(one));
            told
        }
    }

    #[test]
    fn a_kind_does_not_keep_its_own_out() {
        for side in [Commit, Read] {
            let at = At::new();
            assert!(at.come(0, side, &[1]) && at.come(1, side, &[1, 2]));
            assert_eq!(at.leave(0), [] as [usize; 0]);
            assert_eq!(at.leave(1), [] as [usize; 0]);
        }
    }

    #[test]
    fn a_reader_waits_for_commits_and_they_for_it() {
        let at = At::new();
        assert!(at.come(0, Commit, &[1]) && at.come(1, Commit, &[2]));
        assert!(!at.come(2, Read, &[1, 2]));
        assert_eq!(at.leave(0), [2]);
        assert!(!at.enter(2));
        assert_eq!(at.leave(1), [2]);
        assert!(at.enter(2));
        assert!(!at.come(0, Commit, &[2]));
        assert_eq!(at.leave(2), [0]);
        assert!(at.enter(0));
    }

    #[test]
    fn of_two_that_wait_the_earlier_one_goes_first() {
        let at = At::new();
        assert!(at.come(0, Commit, &[1]));
        assert!(!at.come(1, Read, &[1]));
        assert!(!at.come(2, Commit, &[1]), "commits keep a reader out");
        assert!(!at.come(3, Read, &[1]));
        at.leave(0);
        assert!(!at.enter(3) && !at.enter(2));
        assert!(at.enter(1));
        assert_eq!(at.leave(1), [2, 3]);
        assert!(!at.enter(3), "readers keep a commit out");
        assert!(at.enter(2));
        at.leave(2);
        assert!(at.enter(3));
    }

    #[test]
    fn who_gives_up_is_out_of_the_way() {
        let at = At::new();
        assert!(at.come(0, Commit, &[1]));
        assert!(!at.come(1, Read, &[1]) && !at.come(2, Commit, &[1]));
        assert_eq!(at.leave(1), [2]);
        assert!(at.enter(2));
        assert!(at.leave(1).is_empty() && at.seats[1].is_outside());
    }

    #[test]
    fn other_servers_and_databases_do_not_matter() {
        let at = At::new();
        assert!(at.come(0, Commit, &[1]) && at.come(1, Read, &[2]));
        let elsewhere = Servers::of(6).with(2);
        assert!(at.gate.come(&at.seats, 2, Commit, elsewhere));
        assert!(!at.come(3, Commit, &[2]));
        assert!(servers(&[]).is_empty() && !servers(&[0]).is_empty());
    }
}
