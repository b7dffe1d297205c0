//! One slot of a ring: who owns it, what was published in it, and how that is taken away. The
//! protocol is in `ring.rs`.

use crate::{
    entry::Entry,
    fault::{Fault, planted},
    image::Interval,
    mark::{Marks, Missing},
    parts::Parts,
    word::Word,
};

/// One registered write. Zeroed memory is an empty slot.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Slot {
    /// 0: never used; 2t + 1: ticket t is being written; 2t + 2: is published.
    pub(crate) sequence: Word,
    /// The transaction that is about to write the slot, 0 for none.
    pub(crate) owner: Word,
    fxid: Word,
    /// `PENDING | t` until the transaction has put its CSN here.
    pub(crate) csn: Word,
    /// No transaction with a ticket before this one is above this.
    earlier_fxid: Word,
    relation: Word,
    range: Word,
    pub(crate) low: [Word; 2],
    high: [Word; 2],
    /// In the lower half; the parts in the upper.
    pub(crate) process: Word,
}

#[cfg(not(test))] // a model's words are larger
const _: () = assert!(size_of::<Slot>() == 96);

/// A CSN that is not known yet; the rest is the ticket.
pub(crate) const PENDING: u64 = 1 << 63;

/// A published entry, as it was read.
pub(crate) struct Read {
    pub(crate) ticket: u64,
    pub(crate) earlier_fxid: u64,
    pub(crate) entry: Entry,
}

impl Slot {
    /// Makes the slot this transaction's, if no other that still runs has it.
    pub(crate) fn acquire(&self, fxid: u64, is_running: &dyn Fn(u64) -> bool) -> bool {
        match self.owner.exchange(0, fxid) {
            Ok(()) => true,
            // A transaction that has ended does not write any more.
            Err(other) => !is_running(other) && self.owner.exchange(other, fxid).is_ok(),
        }
    }

    /// Before anything else: marks what is about to be overwritten, and takes its CSN away. From
    /// there on the transaction of the old entry cannot put a CSN there any more, and remembers it
    /// itself.
    pub(crate) fn take_csn_from(&self, marks: Marks, missing: &Missing, ticket: u64) {
        loop {
            let csn = self.csn.get();
            let late = planted(Fault::CsnTakenFirst);
            if !late {
                self.mark(marks, missing, csn);
            }
            // A backend that sees that the CSN has gone must see the marks.
            if self.csn.exchange(csn, PENDING | ticket).is_ok() {
                if late {
                    self.mark(marks, missing, csn);
                }
                return;
            }
        }
    }

    /// Marks an entry with that CSN as overwritten.
    fn mark(&self, marks: Marks, missing: &Missing, csn: u64) {
        let fxid = self.fxid.read_field();
        // An odd number is a dead writer's, which marked what it overwrote, and has never had a CSN
        // itself.
        let sequence = self.sequence.get();
        if sequence == 0 && csn == 0 {
            return; // never used
        }
        let is_whole = sequence != 0 && sequence.is_multiple_of(2);
        let spots = marks.spots(self.relation.read_field(), self.range.read_field());
        let [relation, range] = marks.missing(spots);
        let all = [missing, relation, range];
        let count = if planted(Fault::MarkForgotten) { 1 } else { 3 };
        for missing in &all[..count] {
            if is_whole && !planted(Fault::EvictionMarkedLate) {
                missing.fxid.lift(fxid);
            }
            if csn & PENDING != 0 {
                missing.pending_fxid.lift(fxid);
            } else if csn != 0 && !planted(Fault::OverwrittenCsnForgotten) {
                missing.csn.lift(csn);
                if !csn.is_multiple_of(2) {
                    missing.pending_fxid.lift(fxid);
                }
            }
        }
    }

    /// Writes the entry into a slot that the caller owns.
    pub(crate) fn write(
        &self,
        marks: Marks,
        missing: &Missing,
        ticket: u64,
        earlier_fxid: u64,
        entry: &Entry,
    ) {
        let victim = self.fxid.read_field();
        self.take_csn_from(marks, missing, ticket);
        self.sequence.set(2 * ticket + 1);
        let halves = |image: u128| [(image >> 64) as u64, image as u64];
        self.fxid.write_field(entry.fxid);
        self.earlier_fxid.write_field(earlier_fxid);
        self.relation.write_field(entry.relation);
        self.range.write_field(entry.range);
        for (word, half) in self.low.iter().zip(halves(entry.keys.low())) {
            word.write_field(half);
        }
        for (word, half) in self.high.iter().zip(halves(entry.keys.high())) {
            word.write_field(half);
        }
        self.process
            .write_field(u64::from(entry.process) | u64::from(entry.parts.bits()) << 32);
        self.sequence.set(2 * ticket + 2);
        if planted(Fault::EvictionMarkedLate) {
            missing.fxid.raise(victim);
        }
    }

    /// The published entry, if there is one and it stays while it is read.
    pub(crate) fn read(&self) -> Option<Read> {
        let sequence = self.sequence.get();
        if sequence == 0 || !sequence.is_multiple_of(2) {
            return None;
        }
        let image = |words: &[Word; 2]| {
            u128::from(words[0].read_field()) << 64 | u128::from(words[1].read_field())
        };
        let csn = self.csn.read_field();
        let (low, high) = (image(&self.low), image(&self.high));
        let process = self.process.read_field();
        let entry = Entry {
            fxid: self.fxid.read_field(),
            process: process as u32,
            parts: Parts::from_bits((process >> 32) as u32),
            csn: (csn & PENDING == 0).then_some(csn),
            relation: self.relation.read_field(),
            range: self.range.read_field(),
            keys: Interval::new(low, high).unwrap_or(Interval::ALL),
        };
        let earlier_fxid = self.earlier_fxid.read_field();
        let whole = self.sequence.get() == sequence || planted(Fault::TornRead);
        whole.then_some(Read {
            ticket: sequence / 2 - 1,
            earlier_fxid,
            entry,
        })
    }
}
