//! Turns of the line: whether a transaction may be at work on its records or stands in line, and
//! who has to look when that changes. All of it happens under the lock of the records; those who
//! are named to be woken are woken after it.

use crate::fault::{Fault, planted};
use crate::line::AT_ONCE;
use crate::records::Records;

/// At a node that is nearer than this, in microseconds, a record is contended when it takes half as
/// long: the time that a statement takes there may be that of its PREPARE, for a disk or a standby.
const NEAR_US: u64 = 20_000;

/// A record that a transaction wants to be at work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The hash of what names it.
    pub hash: u64,
    /// The round trip to its node, in microseconds, if it is known.
    pub round_trip: Option<u64>,
}

/// What came of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The process stands in line; it looks again when it is woken.
    pub stands: bool,
    /// Processes that have to look now.
    pub wake: Vec<u32>,
}

impl Records {
    /// The record before which the process has to stand in line: one that takes long at its node
    /// because others wait there, and on which enough are at work, or for which somebody stands in
    /// line who has come before. None: it may be at work on all of them.
    ///
    /// What its node reports is a row of hotlock's, which has a queue of its own: transactions
    /// follow each other there, and wait with PREPARE.
    fn crowded(&self, wanted: &[Wanted], actor: u32, now: u64) -> Option<u64> {
        let is_crowded = |one: &&Wanted| {
            let (known, trip) = (self.known(one.hash, now), one.round_trip);
            let is_contended = trip.is_some_and(|trip| known.local >= trip.max(NEAR_US) / 2);
            let is_full = || known.in_flight >= AT_ONCE || self.line().is_behind(actor, one.hash);
            is_contended && known.queue == 0 && is_full()
        };
        wanted.iter().find(is_crowded).map(|one| one.hash)
    }

    /// The process looks whether it may be at work on all of these records. If so, it leaves the
    /// line and `enter` is called, which begins that. If not, it stands in line. One that is not
    /// patient does not stand, nor one for whom there is no room.
    pub fn take_turn(
        &self,
        wanted: &[Wanted],
        actor: u32,
        now: u64,
        is_patient: bool,
        enter: impl FnOnce(&Records),
    ) -> Turn {
        let line = self.line();
        let before = line.stands_before(actor);
        let crowded = match is_patient {
            true => self.crowded(wanted, actor, now),
            false => None,
        };
        let stands = crowded.is_some_and(|hash| line.stand(actor, hash));
        // The next one there may look.
        let left =
            before.filter(|before| crowded != Some(*before) && !planted(Fault::TurnLeftUntold));
        if !stands {
            enter(self);
            line.leave(actor);
        }
        Turn {
            stands,
            wake: self.first_before(left.as_slice()),
        }
    }

    /// The process stands in line no more. Returns who has to look now.
    pub fn leave_line(&self, actor: u32) -> Vec<u32> {
        let left = self.line().leave(actor);
        match planted(Fault::LineLeftUntold) {
            true => Vec::new(),
            false => self.first_before(left.as_slice()),
        }
    }

    /// A transaction has ended that was at work on these records. Returns who has to look now.
    pub fn end_all(&self, hashes: &[u64], has_committed: bool, now: u64) -> Vec<u32> {
        for &hash in hashes {
            self.end(hash, has_committed, now);
        }
        match planted(Fault::EndUntold) {
            true => Vec::new(),
            false => self.first_before(hashes),
        }
    }

    fn first_before(&self, hashes: &[u64]) -> Vec<u32> {
        let first = hashes.iter().filter_map(|&hash| self.line().first(hash));
        let mut first: Vec<u32> = first.collect();
        first.sort_unstable();
        first.dedup();
        first
    }
}

#[cfg(test)]
mod tests;
