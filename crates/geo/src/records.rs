//! What a coordinator has seen of records, the rows of foreign tables that a key names: how long
//! they take at their nodes, how many transactions are at work on them, how many of them commit.
//!
//! A table of fixed size, read and changed under the lock of the board: sets of a few places, of
//! which the least recently used one that no transaction is at work on makes room. Times are in
//! microseconds. Zeroed memory knows no record.

use crate::admission::Contention;
use crate::line::Head;
use crate::record_id::RecordId;
use crate::window::Window;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const SETS: usize = 512;
const WAYS: usize = 8;
/// After each such time tries and commits count half; so does the time of a record that nobody has
/// used meanwhile.
const PERIOD_US: u64 = 10_000_000;
/// For so long a node's report of a record counts.
pub(crate) const REPORT_US: u64 = 2_000_000;
/// A new time counts for one part in so many, or half if it is shorter.
const NEW: u64 = 4;

/// What is known of a record.
#[repr(C)]
struct Record {
    /// 0: the place is free.
    hash: AtomicU64,
    database: AtomicU64,
    server: AtomicU64,
    relation: AtomicU64,
    used_at: AtomicU64,
    /// When tries and commits were halved last.
    aged_at: AtomicU64,
    /// How long it takes at its node (w): an exponentially weighted moving average.
    local: AtomicU64,
    tries: AtomicU64,
    commits: AtomicU64,
    in_flight: AtomicU64,
    window: Window,
    /// What its node has reported (`Report`), and when.
    queue: AtomicU64,
    turn: AtomicU64,
    follows: AtomicU64,
    reported_at: AtomicU64,
}

/// All records, and the line before them. Zeroed memory knows none.
#[repr(C)]
pub struct Records {
    places: [Record; SETS * WAYS],
    line: Head,
}

/// What a node reports of a hot row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Transactions that wait for it or are at work on it (q).
    pub queue: u64,
    /// The time from one turn to the next (h).
    pub turn: u64,
    /// Whether transactions follow each other on it.
    pub follows: bool,
}

/// A record as it is known now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The hash of what names it.
    pub hash: u64,
    /// The foreign server.
    pub server: u32,
    /// The foreign table.
    pub relation: u32,
    /// How long it takes at its node (w).
    pub local: u64,
    /// Transactions that have ended, and those of them that have committed: halved as time goes by.
    pub tries: u64,
    /// See `tries`.
    pub commits: u64,
    /// Transactions of this coordinator that are at work on it.
    pub in_flight: u64,
    /// What its node has reported of late: transactions there, ...
    pub queue: u64,
    /// ... and the time from one's turn to the next one's.
    pub turn: u64,
    /// So many transactions may have a turn at it at a time; None: there is no limit.
    pub at_once: Option<u64>,
}

impl Record {
    /// Halves what is old.
    fn age(&self, now: u64) {
        let halve = |what: &AtomicU64, times: u64| {
            let halved = what.load(Relaxed).checked_shr(times.min(64) as u32);
            what.store(halved.unwrap_or(0), Relaxed);
        };
        let aged_at = self.aged_at.load(Relaxed);
        let periods = now.saturating_sub(aged_at) / PERIOD_US;
        if periods > 0 {
            halve(&self.tries, periods);
            halve(&self.commits, periods);
            self.aged_at.store(aged_at + periods * PERIOD_US, Relaxed);
            self.window.age(periods);
        }
        let unused = now.saturating_sub(self.used_at.load(Relaxed)) / PERIOD_US;
        if unused > 0 && self.in_flight.load(Relaxed) == 0 {
            halve(&self.local, unused);
            self.window.open();
            self.used_at.fetch_add(unused * PERIOD_US, Relaxed);
        }
    }

    fn known(&self, now: u64) -> Known {
        self.age(now);
        let is_fresh = self.reported_at.load(Relaxed) + REPORT_US >= now;
        let reported = |what: &AtomicU64| if is_fresh { what.load(Relaxed) } else { 0 };
        Known {
            hash: self.hash.load(Relaxed),
            server: self.server.load(Relaxed) as u32,
            relation: self.relation.load(Relaxed) as u32,
            local: self.local.load(Relaxed),
            tries: self.tries.load(Relaxed),
            commits: self.commits.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            queue: reported(&self.queue),
            turn: reported(&self.turn),
            at_once: self.window.size(),
        }
    }
}

impl Records {
    fn set(&self, hash: u64) -> &[Record] {
        let set = (hash as usize % SETS) * WAYS;
        &self.places[set..set + WAYS]
    }

    fn find(&self, hash: u64) -> Option<&Record> {
        let is_it = |one: &&Record| one.hash.load(Relaxed) == hash;
        self.set(hash).iter().find(is_it)
    }

    /// What is known of the record; all zero: nothing.
    pub fn known(&self, hash: u64, now: u64) -> Known {
        let found = self.find(hash).map(|one| one.known(now));
        found.unwrap_or_default()
    }

    /// What is known of all records of a database.
    pub fn all(&self, database: u32, now: u64) -> Vec<Known> {
        let is_of = |one: &&Record| {
            one.hash.load(Relaxed) != 0 && one.database.load(Relaxed) == u64::from(database)
        };
        let found = self.places.iter().filter(is_of);
        found.map(|one| one.known(now)).collect()
    }

    /// What all places in line have in common.
    pub(crate) fn line(&self) -> &Head {
        &self.line
    }

    /// Whether one more may have a turn at the record. None: there is no limit.
    ///
    /// There is none where its node reports that transactions follow each other: there statements
    /// do not wait.
    pub(crate) fn room(&self, hash: u64, now: u64) -> Option<bool> {
        let one = self.find(hash)?;
        let known = one.known(now);
        let room = one.window.has_room(known.local, now);
        room.filter(|_| known.queue == 0 || one.follows.load(Relaxed) == 0)
    }

    /// A transaction that is at work on the record has a turn.
    pub fn begin_turn(&self, hash: u64, now: u64) {
        if let Some(one) = self.find(hash) {
            one.window.begin(now);
        }
    }

    /// The turn that `begin_turn` was called for has come to its end.
    pub(crate) fn end_turn(&self, hash: u64, now: u64) {
        if let Some(one) = self.find(hash) {
            one.window.end(now);
        }
    }

    /// A transaction is at work on the record from now on. False: there is no room to remember it.
    pub fn begin(&self, id: &RecordId, now: u64) -> bool {
        let least_used = || {
            let is_idle = |one: &&Record| one.in_flight.load(Relaxed) == 0;
            let idle = self.set(id.hash()).iter().filter(is_idle);
            let place = idle.min_by_key(|one| match one.hash.load(Relaxed) {
                0 => 0,
                _ => one.used_at.load(Relaxed),
            })?;
            for what in [
                &place.local,
                &place.tries,
                &place.commits,
                &place.reported_at,
            ] {
                what.store(0, Relaxed);
            }
            place.window.clear();
            place.hash.store(id.hash(), Relaxed);
            place.database.store(u64::from(id.database()), Relaxed);
            place.server.store(u64::from(id.server()), Relaxed);
            place.aged_at.store(now, Relaxed);
            place.used_at.store(now, Relaxed);
            Some(place)
        };
        let Some(place) = self.find(id.hash()).or_else(least_used) else {
            return false;
        };
        place.age(now);
        place.relation.store(u64::from(id.relation()), Relaxed);
        place.used_at.store(now, Relaxed);
        place.in_flight.fetch_add(1, Relaxed);
        true
    }

    /// Whether the record is known.
    pub fn is_known(&self, id: &RecordId) -> bool {
        self.find(id.hash()).is_some()
    }

    /// The transaction that `begin` was called for has ended.
    pub fn end(&self, hash: u64, has_committed: bool, now: u64) {
        if let Some(one) = self.find(hash) {
            one.age(now);
            one.tries.fetch_add(1, Relaxed);
            one.commits.fetch_add(u64::from(has_committed), Relaxed);
        }
        self.forget(hash, now);
    }

    /// What the transaction that `begin` was called for has done to the record was rolled back.
    pub fn forget(&self, hash: u64, now: u64) {
        if let Some(one) = self.find(hash) {
            one.age(now);
            let in_flight = one.in_flight.load(Relaxed);
            one.in_flight.store(in_flight.saturating_sub(1), Relaxed);
            one.used_at.store(now, Relaxed);
        }
    }

    /// Notes how long a part of a statement about these records has taken at its node, beyond the
    /// round trip. It has taken at least so long if it was not whole. The time is shared out in the
    /// proportion of what the records took before (GeoTP, Eq. 4). `longest` is the longest round
    /// trip of all its parts.
    pub fn measured(&self, hashes: &[u64], local: u64, longest: u64, is_whole: bool, now: u64) {
        let found = hashes.iter().filter_map(|&hash| self.find(hash));
        let found: Vec<&Record> = found.inspect(|one| one.age(now)).collect();
        // Of what took no time each has a like share.
        let weight = |one: &Record| u128::from(one.local.load(Relaxed)) + 1;
        let weights: Vec<u128> = found.iter().map(|one| weight(one)).collect();
        let sum: u128 = weights.iter().sum();
        for (one, weight) in found.into_iter().zip(weights) {
            let share = (u128::from(local) * weight / sum) as u64;
            let before = one.local.load(Relaxed);
            one.window.measured(share, longest, is_whole);
            if !is_whole && share < before {
                continue;
            }
            let next = match before {
                0 => share,
                // What is not waited for any more is soon no longer expected to take long.
                before if share < before => before.midpoint(share),
                before => (before * (NEW - 1) + share) / NEW,
            };
            one.local.store(next, Relaxed);
        }
    }

    /// The node has reported this of the record. Of one that is not known, nothing is noted.
    pub fn reported(&self, hash: u64, report: Report, now: u64) {
        if let Some(one) = self.find(hash) {
            one.queue.store(report.queue, Relaxed);
            one.turn.store(report.turn, Relaxed);
            one.follows.store(u64::from(report.follows), Relaxed);
            one.reported_at.store(now, Relaxed);
        }
    }

    /// How long a part of a statement that is about these records is going to take at its node: the
    /// sum of what each has taken, or of what its queue there is going to take, if that is more.
    pub fn forecast(&self, hashes: &[u64], now: u64) -> u64 {
        let one = |&hash: &u64| {
            let known = self.known(hash, now);
            known.local.max(known.queue.saturating_mul(known.turn))
        };
        hashes.iter().map(one).fold(0, u64::saturating_add)
    }

    /// How contended these records are, for a transaction that is not at work on them yet.
    pub fn contention(&self, hashes: &[u64], now: u64) -> Vec<Contention> {
        let one = |&hash: &u64| {
            let known = self.known(hash, now);
            Contention {
                commits: known.commits,
                tries: known.tries,
                others: known.in_flight.max(known.queue),
                local: known.local,
            }
        };
        hashes.iter().map(one).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
