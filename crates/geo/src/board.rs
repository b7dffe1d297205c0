//! What sessions and resolvers of a coordinator tell each other in shared memory.
//!
//! Everything here is read and changed under one lock of the glue, except for `Board::sequence`.
//! Zeroed memory is an empty board.

use crate::handed::{HandOver, HandOvers, Handed, QUEUE};
use crate::interval::Interval;
use crate::linked::Linked;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Databases with a resolver, at most.
pub const DATABASES: usize = 64;
/// Transactions that were acknowledged by all nodes and whose decision rows are still there; of
/// more, the nodes are asked.
const ACKNOWLEDGED: usize = 1024;
/// Servers with transactions that are decided and not applied; of more, all servers count as such.
const SERVERS: usize = 256;

/// What a resolver is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// There is none.
    Absent,
    /// It was asked for, or is finding out who it is.
    Starting,
    /// It works: transactions may be prepared.
    Ready,
    /// It must not work: the coordinator may be a copy.
    Paused,
}

const PHASES: [Phase; 4] = [Phase::Absent, Phase::Starting, Phase::Ready, Phase::Paused];

/// A database that uses nodes.
#[repr(C)]
struct Database {
    oid: AtomicU64,
    phase: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
    incarnation: AtomicU64,
    /// The resolver's process, plus one.
    process: AtomicU64,
    /// Its complete passes.
    passes: AtomicU64,
    /// It is to end.
    leaves: AtomicU64,
    /// When it was asked for.
    claimed_at: AtomicU64,
    /// A session wants it to look at the nodes.
    wants_pass: AtomicU64,
    /// A session wants it to look for deadlocks.
    wants_look: AtomicU64,
    /// How often it has.
    looks: AtomicU64,
    /// What these have taught (`interval.rs`).
    learned: AtomicU64,
}

impl Database {
    /// There is no resolver, and none is expected any more.
    fn is_without(&self, now: u64) -> bool {
        let is_overdue =
            self.process.load(Relaxed) == 0 && self.claimed_at.load(Relaxed) + PATIENCE_US < now;
        PHASES[self.phase.load(Relaxed) as usize % PHASES.len()] == Phase::Absent || is_overdue
    }
}

/// Whether somebody may start a resolver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It may.
    Granted,
    /// There is one, or somebody starts it.
    Taken,
    /// There are as many databases as there is room for.
    NoRoom,
}

/// A resolver that has not come in this time, in microseconds, may be asked for again.
const PATIENCE_US: u64 = 30_000_000;

/// Transactions of a database that are decided and not applied at a server.
#[repr(C)]
struct Unapplied {
    database: AtomicU64,
    server: AtomicU64,
    count: AtomicU64,
    /// The number of the change with which a session has last left something there.
    left_at: AtomicU64,
}

/// A transaction whose commit all nodes have acknowledged.
#[repr(C)]
struct Acknowledged {
    database: AtomicU64,
    sequence: AtomicU64,
}

/// The whole of it.
#[repr(C)]
pub struct Board {
    sequence: AtomicU64,
    /// How often a session has left something to a resolver.
    changes: AtomicU64,
    /// The number of the last such change for which there was no room.
    lost_at: AtomicU64,
    databases: [Database; DATABASES],
    unapplied: [Unapplied; SERVERS],
    acknowledged: [Acknowledged; ACKNOWLEDGED],
    handed: HandOvers,
    linked: Linked,
}

/// What is known of a database's resolver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// Where it stands.
    pub phase: Phase,
    /// The database's UUID, as coordinator.
    pub coordinator: u128,
    /// The present incarnation; 0: it has none yet.
    pub incarnation: u64,
    /// The resolver's process.
    pub process: Option<u32>,
    /// Its complete passes.
    pub passes: u64,
    /// Whether it is to end.
    pub leaves: bool,
    /// How often it has looked for deadlocks.
    pub looks: u64,
    /// What these looks have taught, for `Interval`.
    pub learned: u64,
}

/// What sessions want of a resolver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wants {
    /// To look at the nodes, or to end.
    pub pass: bool,
    /// To look for deadlocks.
    pub look: bool,
}

impl Board {
    /// The number of the next transaction, from 1 on. Needs no lock.
    pub fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Relaxed) + 1
    }

    /// The number of the latest transaction; 0: there was none. Needs no lock.
    pub fn latest_sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }

    fn find(&self, database: u32) -> Option<&Database> {
        let is_it = |one: &&Database| one.oid.load(Relaxed) == u64::from(database);
        self.databases.iter().find(is_it)
    }

    /// What is known of the database's resolver.
    pub fn known(&self, database: u32) -> Option<Known> {
        let found = self.find(database)?;
        let high = u128::from(found.high.load(Relaxed));
        Some(Known {
            phase: PHASES[found.phase.load(Relaxed) as usize % PHASES.len()],
            coordinator: (high << 64) | u128::from(found.low.load(Relaxed)),
            incarnation: found.incarnation.load(Relaxed),
            process: (found.process.load(Relaxed) as u32).checked_sub(1),
            passes: found.passes.load(Relaxed),
            leaves: found.leaves.load(Relaxed) != 0,
            looks: found.looks.load(Relaxed),
            learned: found.learned.load(Relaxed),
        })
    }

    /// A session wants something of the resolver. It has to be woken.
    pub fn want(&self, database: u32, wants: Wants) {
        if let Some(found) = self.find(database) {
            found.wants_pass.fetch_or(u64::from(wants.pass), Relaxed);
            found.wants_look.fetch_or(u64::from(wants.look), Relaxed);
        }
    }

    /// Whether sessions want the resolver to look at the nodes, or to end. It takes that on.
    pub fn take_pass(&self, database: u32) -> bool {
        self.find(database).is_some_and(|found| {
            found.wants_pass.swap(0, Relaxed) + found.leaves.load(Relaxed) != 0
        })
    }

    /// Whether sessions want the resolver to look for deadlocks. It takes that on.
    pub fn take_look(&self, database: u32) -> bool {
        self.find(database)
            .is_some_and(|found| found.wants_look.swap(0, Relaxed) != 0)
    }

    /// The resolver has looked for deadlocks, and learns from it.
    pub fn looked(&self, database: u32, interval: &Interval, has_found: bool) {
        if let Some(found) = self.find(database) {
            found.looks.fetch_add(1, Relaxed);
            let learned = interval.learn(found.learned.load(Relaxed), has_found);
            found.learned.store(learned, Relaxed);
        }
    }

    /// The databases that have a place, with a resolver or without.
    pub fn databases(&self) -> Vec<u32> {
        let oids = self
            .databases
            .iter()
            .map(|one| one.oid.load(Relaxed) as u32);
        oids.filter(|oid| *oid != 0).collect()
    }

    /// The database has been dropped: its places are free again. Not as long as a resolver is, or
    /// is expected: it notices by itself.
    pub fn forget(&self, database: u32, now: u64) {
        let Some(found) = self.find(database).filter(|one| one.is_without(now)) else {
            return;
        };
        found.oid.store(0, Relaxed);
        for word in [
            &found.high,
            &found.low,
            &found.incarnation,
            &found.passes,
            &found.looks,
            &found.learned,
            &found.wants_pass,
            &found.wants_look,
            &found.claimed_at,
            &found.phase,
        ] {
            word.store(0, Relaxed);
        }
        let database = u64::from(database);
        for one in &self.unapplied {
            if one.database.load(Relaxed) == database {
                one.count.store(0, Relaxed);
            }
        }
        for one in &self.acknowledged {
            if one.database.load(Relaxed) == database {
                one.sequence.store(0, Relaxed);
            }
        }
        self.handed.forget_database(database as u32);
        self.linked.set(database as u32, &[]);
    }

    /// A resolver is going to be started, if there is none and there is room.
    pub fn claim(&self, database: u32, now: u64) -> Claim {
        let found = self.find(database).or_else(|| self.find(0));
        let Some(found) = found else {
            return Claim::NoRoom;
        };
        if !found.is_without(now) {
            return Claim::Taken;
        }
        found.claimed_at.store(now, Relaxed);
        found.oid.store(u64::from(database), Relaxed);
        found.phase.store(Phase::Starting as u64, Relaxed);
        found.leaves.store(0, Relaxed);
        Claim::Granted
    }

    /// The resolver of the database runs, as that process.
    pub fn started(&self, database: u32, process: u32) {
        if let Some(found) = self.find(database) {
            found.process.store(u64::from(process) + 1, Relaxed);
        }
        self.linked.set(database, &[]);
    }

    /// The resolver knows who the coordinator is.
    pub fn identified(&self, database: u32, coordinator: u128, incarnation: u64, phase: Phase) {
        if let Some(found) = self.find(database) {
            found.high.store((coordinator >> 64) as u64, Relaxed);
            found.low.store(coordinator as u64, Relaxed);
            found.incarnation.store(incarnation, Relaxed);
            found.phase.store(phase as u64, Relaxed);
        }
    }

    /// The resolver has given itself a name, and does not work yet.
    pub fn named(&self, database: u32, coordinator: u128, incarnation: u64) {
        self.identified(database, coordinator, incarnation, Phase::Starting);
    }

    /// The resolver has looked at all nodes, once more.
    pub fn passed(&self, database: u32) {
        if let Some(found) = self.find(database) {
            found.passes.fetch_add(1, Relaxed);
        }
    }

    /// The resolver is to end. False if there is none.
    pub fn ask_to_leave(&self, database: u32) -> bool {
        self.find(database).is_some_and(|found| {
            found.leaves.store(1, Relaxed);
            found.phase.load(Relaxed) != Phase::Absent as u64
        })
    }

    /// The resolver has ended, or could not be started. The incarnation stays: sessions may still
    /// vote in it.
    pub fn left(&self, database: u32) {
        if let Some(found) = self.find(database) {
            found.phase.store(Phase::Absent as u64, Relaxed);
            found.process.store(0, Relaxed);
            found.leaves.store(0, Relaxed);
        }
        self.linked.set(database, &[]);
    }

    /// All nodes have acknowledged the transaction. Forgotten if there is no room.
    pub fn acknowledge(&self, database: u32, sequence: u64) {
        let free = self
            .acknowledged
            .iter()
            .find(|one| one.sequence.load(Relaxed) == 0);
        if let Some(free) = free {
            free.database.store(u64::from(database), Relaxed);
            free.sequence.store(sequence, Relaxed);
        }
    }

    /// The transactions of the database that were acknowledged, and not taken yet.
    pub fn take_acknowledged(&self, database: u32) -> Vec<u64> {
        let mut taken = Vec::new();
        for one in &self.acknowledged {
            let sequence = one.sequence.load(Relaxed);
            if sequence != 0 && one.database.load(Relaxed) == u64::from(database) {
                one.sequence.store(0, Relaxed);
                taken.push(sequence);
            }
        }
        taken
    }

    /// The place of the server, which is a free one if it has none.
    fn place(&self, database: u32, server: u32) -> Option<&Unapplied> {
        let is_it = |one: &&Unapplied| {
            one.database.load(Relaxed) == u64::from(database)
                && one.server.load(Relaxed) == u64::from(server)
        };
        if let Some(one) = self.unapplied.iter().find(is_it) {
            return Some(one);
        }
        let is_free = |one: &&Unapplied| one.count.load(Relaxed) == 0;
        let free = self.unapplied.iter().find(is_free)?;
        free.database.store(u64::from(database), Relaxed);
        free.server.store(u64::from(server), Relaxed);
        free.left_at.store(0, Relaxed);
        Some(free)
    }

    /// A transaction is decided, and its session does not apply it at that server.
    pub fn leave_unapplied(&self, database: u32, server: u32) {
        let left_at = self.changes.fetch_add(1, Relaxed) + 1;
        match self.place(database, server) {
            Some(one) => {
                one.count.fetch_add(1, Relaxed);
                one.left_at.store(left_at, Relaxed);
            }
            None => self.lost_at.store(left_at, Relaxed),
        }
    }

    /// How often a session has left something to a resolver, for `set_unapplied`.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The resolver has looked: so many transactions wait to be applied at these servers, and none
    /// at others. Where a session has left something since there were so many `changes`, nothing
    /// is changed.
    pub fn set_unapplied(&self, database: u32, servers: &[(u32, u64)], changes: u64) {
        if self.lost_at.load(Relaxed) > changes {
            return;
        }
        let is_older = |one: &&Unapplied| one.left_at.load(Relaxed) <= changes;
        let of_database = |one: &&Unapplied| one.database.load(Relaxed) == u64::from(database);
        for one in self.unapplied.iter().filter(of_database).filter(is_older) {
            one.count.store(0, Relaxed);
        }
        for &(server, count) in servers {
            if let Some(one) = self.place(database, server).filter(is_older) {
                one.count.store(count, Relaxed);
            }
        }
    }

    /// Hands a decided transaction over to the resolver, which has to be woken: at all of these
    /// servers (each with the user mapping), or at none.
    pub fn hand_over(
        &self,
        database: u32,
        incarnation: u64,
        sequence: u64,
        nodes: &[(u32, u32)],
    ) -> HandOver {
        let is_linked = |node: &(u32, u32)| self.linked.has(database, node.1);
        let is_busy = |node: &(u32, u32)| self.handed.queue(database, node.1) >= QUEUE;
        if !nodes.iter().all(is_linked) {
            return HandOver::NotLinked;
        }
        if nodes.iter().any(is_busy) || self.handed.room() < nodes.len() {
            return HandOver::Busy;
        }
        for &(server, mapping) in nodes {
            let handed = Handed {
                ticket: self.changes.fetch_add(1, Relaxed) + 1,
                server,
                mapping,
                incarnation,
                sequence,
            };
            self.handed.add(database, &handed);
        }
        HandOver::Taken
    }

    /// The resolver is connected to nodes with these user mappings.
    pub fn set_linked(&self, database: u32, mappings: &[u32]) {
        self.linked.set(database, mappings);
    }

    /// What has been handed over, and is neither applied nor left to a pass.
    pub fn handed(&self, database: u32) -> Vec<Handed> {
        self.handed.all(database)
    }

    /// Whether something was handed over for that server by the time when there were so many
    /// `changes`.
    pub fn is_handed(&self, database: u32, server: u32, changes: u64) -> bool {
        self.handed.has(database, server, changes)
    }

    /// The node has acknowledged what was handed over.
    pub fn applied(&self, handed: &Handed) {
        self.handed.remove(handed.ticket);
    }

    /// What was handed over is a pass's to end.
    pub fn hand_back(&self, database: u32, handed: &Handed) {
        self.leave_unapplied(database, handed.server);
        self.handed.remove(handed.ticket);
    }

    /// Whether transactions wait to be applied at that server. If there was no room to tell, they
    /// may wait at any.
    pub fn has_unapplied(&self, database: u32, server: u32) -> bool {
        let mut is_full = true;
        for one in &self.unapplied {
            let count = one.count.load(Relaxed);
            is_full &= count > 0;
            let is_it = one.database.load(Relaxed) == u64::from(database)
                && one.server.load(Relaxed) == u64::from(server);
            if is_it && count > 0 {
                return true;
            }
        }
        is_full
    }
}

#[cfg(test)]
mod tests;
