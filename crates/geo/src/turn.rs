//! Turns at contended records: whether a transaction may be at work on its records or stands in
//! line, and who has to look when that changes. All of it happens under the lock of the records;
//! those that are named to be woken are woken after it.

use crate::fault::{Fault, planted};
use crate::line::{InLine, Line, Place};
use crate::record_id::RecordId;
use crate::records::Records;

/// The records, and the line before them.
#[derive(Clone, Copy)]
pub struct Turns<'a> {
    records: &'a Records,
    line: Line<'a>,
}

/// What came of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The process stands in line; it looks again when it is woken, and after a while.
    pub stands: bool,
    /// Processes that have to look now.
    pub wake: Vec<u32>,
}

impl<'a> Turns<'a> {
    /// The turns in that memory: a place for each process.
    pub fn new(records: &'a Records, places: &'a [Place]) -> Turns<'a> {
        let line = Line::new(records.line(), places);
        Turns { records, line }
    }

    /// What is known of records.
    pub fn records(&self) -> &'a Records {
        self.records
    }

    /// The record before which the process has to stand in line: one at which as many have a turn
    /// as may have, or before which somebody stands who has come before. None: it may be at work on
    /// all of them.
    fn crowded<'r>(&self, wanted: &[&'r RecordId], backend: u32, now: u64) -> Option<&'r RecordId> {
        let is_crowded = |one: &&RecordId| {
            let room = self.records.room(one.hash(), now);
            room.is_some_and(|has_room| !has_room || self.line.is_behind(backend, one.hash()))
        };
        wanted.iter().copied().find(is_crowded)
    }

    /// The process looks whether it may be at work on all of these records. If so, it leaves the
    /// line and `enter` is called, which begins that. If not, it stands in line.
    pub fn take(
        &self,
        wanted: &[&RecordId],
        backend: u32,
        now: u64,
        enter: impl FnOnce(&Records),
    ) -> Turn {
        let before = self.line.stands_before(backend);
        let crowded = self.crowded(wanted, backend, now);
        match crowded {
            Some(record) => self.line.stand(backend, record, now),
            None => {
                enter(self.records);
                self.line.leave(backend);
            }
        }
        // The next one there may look.
        let stands_before = crowded.map(RecordId::hash);
        let left = before.filter(|_| before != stands_before && !planted(Fault::TurnLeftUntold));
        Turn {
            stands: crowded.is_some(),
            wake: self.first_before(left.as_slice()),
        }
    }

    /// The process stands in line no more. Returns who has to look now.
    pub fn leave_line(&self, backend: u32) -> Vec<u32> {
        let left = self.line.leave(backend);
        match planted(Fault::LineLeftUntold) {
            true => Vec::new(),
            false => self.first_before(left.as_slice()),
        }
    }

    /// A transaction gives its turns at these records back: the locks at the nodes are released, or
    /// what releases them is on its way. Returns who has to look now.
    pub fn give_back(&self, hashes: &[u64], now: u64) -> Vec<u32> {
        hashes
            .iter()
            .for_each(|&hash| self.records.end_turn(hash, now));
        match planted(Fault::EndUntold) {
            true => Vec::new(),
            false => self.first_before(hashes),
        }
    }

    /// Those that stand first before these records: when there may be more room than before.
    pub fn first_before(&self, hashes: &[u64]) -> Vec<u32> {
        let first = hashes.iter().filter_map(|&hash| self.line.first(hash));
        let mut first: Vec<u32> = first.collect();
        first.sort_unstable();
        first.dedup();
        first
    }

    /// All that stand in line, in no order.
    pub fn standing(&self) -> Vec<InLine> {
        self.line.all()
    }

    /// How many stand in line before the record.
    pub fn in_line(&self, hash: u64) -> u64 {
        self.line.length(hash)
    }
}

#[cfg(test)]
mod tests;
