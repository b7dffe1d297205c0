//! Rings of registered writes. Nobody waits here: not who writes, not who reads.
//!
//! A writer looks at `head`, raises the bucket's `max_fxid`, takes a ticket from `head` (ticket t belongs to slot t mod N), and makes the
//! slot its own. Then, in this order: it raises `evicted_fxid` to the transaction of the entry that it will overwrite, and
//! `evicted_csn` or `evicted_pending_fxid`; it takes the CSN away, so that its transaction cannot stamp the slot any more; it
//! sets the slot's sequence number to 2t + 1; it writes the fields; it sets the sequence number to 2t + 2. Who finds its
//! slot in the hands of a running transaction takes another ticket, and after a few of them counts itself as evicted. One
//! that is late may overwrite the entry of a later ticket: it marks it as evicted like any other.
//!
//! A reader visits every slot of the bucket once and then reads `evicted_fxid`. It takes an entry whose sequence number is
//! even and the same after the fields as before. Anything else it leaves out, and misses nothing that it needs:
//! - The number is odd or changes: the entry that was there has been marked in `evicted_fxid` before, and the one that will
//!   be there belongs to a transaction that had not published all its entries when the reader looked, so it had no CSN,
//!   and its CSN will be above any that was taken before.
//! - A ticket taken whose slot still has the old entry: the reader takes the old entry, and what was said above holds for
//!   the new one. If its writer died, the transaction has never had a CSN and has not committed; the slot is taken over
//!   by the next writer that comes along, once the dead one's transaction is known to have ended.
//!
//! The fields of a slot are stored with Release and loaded with Acquire. Who reads a field of a newer entry sees that
//! entry's odd sequence number, or a later one, in the second look; who reads the even number sees all fields before it.

use std::hint::black_box;

use crate::{
    Relation,
    fault::{Fault, planted},
    image::Interval,
    parts::Parts,
    predicate::IntervalSet,
    ranges::Range,
    word::Word,
};

/// The head of a ring. Zeroed memory is an empty one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bucket {
    /// Tickets taken.
    head: Word,
    /// The highest transaction that has ever been about to register here.
    max_fxid: Word,
    /// The highest transaction of which an entry is missing here.
    evicted_fxid: Word,
    /// The highest CSN of an entry that was published here, and of one that is missing here.
    max_csn: Word,
    evicted_csn: Word,
    /// The highest transaction whose entry was overwritten before it had a CSN, or after it had moved to an earlier position, or that
    /// found no place.
    evicted_pending_fxid: Word,
    /// Conflicts found here, and looks at ranges that had been read as a whole.
    conflicts: Word,
    covered: Word,
}

/// One registered write. Zeroed memory is an empty slot.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Slot {
    /// 0: never used; 2t + 1: ticket t is being written; 2t + 2: is published.
    sequence: Word,
    /// The transaction that is about to write the slot, 0 for none.
    owner: Word,
    fxid: Word,
    /// `PENDING | t` until the transaction has put its CSN here.
    csn: Word,
    /// No transaction with a ticket before this one is above this.
    earlier_fxid: Word,
    relation: Word,
    range: Word,
    low: [Word; 2],
    high: [Word; 2],
    /// In the lower half; the parts in the upper.
    process: Word,
}

#[cfg(not(test))] // a model's words are larger
const _: () = assert!(size_of::<Slot>() == 96 && size_of::<Bucket>() == 64);

/// A CSN that is not known yet; the rest is the ticket.
const PENDING: u64 = 1 << 63;

/// Tickets that a writer takes before it counts itself as evicted.
const TRIES: usize = 4;

/// A published write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub fxid: u64,
    /// The writer's process, whose `Committer` knows the CSN while it is not here.
    pub process: u32,
    pub csn: Option<u64>,
    pub relation: Relation,
    pub range: Range,
    pub keys: Interval,
    /// Those of `keys` in which there are any.
    pub parts: Parts,
}

impl Entry {
    /// The lowest interval of the set in which something of the entry may be.
    #[inline]
    pub fn overlapping(&self, set: &IntervalSet) -> Option<Interval> {
        self.parts.overlapping(&self.keys, set)
    }
}

/// Where an entry was published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    slot: usize,
    ticket: u64,
}

/// All rings of one kind: bucket b has the slots from b * N on, N = slots / buckets.
#[derive(Clone, Copy, Debug)]
pub struct Rings<'a> {
    buckets: &'a [Bucket],
    slots: &'a [Slot],
}

/// What a walk through a bucket has met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// Slots looked at.
    pub slots: u64,
    /// Entries of transactions up to this one can be missing.
    pub evicted_fxid: u64,
    /// The highest CSN of those that had one when they were overwritten.
    evicted_csn: u64,
    /// The highest of the others.
    evicted_pending_fxid: u64,
}

impl Walk {
    /// Whether an entry can be missing of a transaction that a snapshot does not see: it sees all below `xmin`, and all with CSNs up to
    /// `prefix`.
    pub fn is_incomplete(&self, xmin: u64, prefix: u64) -> bool {
        self.evicted_fxid >= xmin
            && (self.evicted_csn > prefix || self.evicted_pending_fxid >= xmin)
    }
}

impl<'a> Rings<'a> {
    /// Rings over shared memory that was zeroed at the start.
    ///
    /// # Panics
    /// If there is no bucket, or not at least one slot for each.
    pub fn new(buckets: &'a [Bucket], slots: &'a [Slot]) -> Self {
        assert!(!buckets.is_empty() && slots.len() >= buckets.len());
        Rings { buckets, slots }
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The bucket of a range.
    pub fn bucket_of(&self, relation: Relation, range: Range) -> usize {
        let mixed = (relation ^ range.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 32) as usize % self.buckets.len()
    }

    fn depth(&self) -> usize {
        self.slots.len() / self.buckets.len()
    }

    fn slot(&self, bucket: usize, ticket: u64) -> usize {
        let depth = self.depth();
        bucket * depth + (ticket % depth as u64) as usize
    }

    /// Asks for the memory of a bucket's head, to be used soon. That of several comes at once, one after the other it would be waited for.
    #[inline]
    pub fn expect_head(&self, bucket: usize) {
        black_box(self.buckets[bucket].head.glance());
    }

    /// The same for the slot that comes next.
    #[inline]
    pub fn expect_slot(&self, bucket: usize) {
        let slot = &self.slots[self.slot(bucket, self.buckets[bucket].head.glance())];
        black_box((slot.sequence.glance(), slot.process.glance()));
    }

    /// Publishes a write (but for its CSN), which must be before its transaction takes one. `None`: there was no place, and the
    /// transaction counts as evicted. `is_running` tells whether a transaction is still in progress.
    pub fn publish(
        &self,
        bucket: usize,
        entry: &Entry,
        is_running: &dyn Fn(u64) -> bool,
    ) -> Option<Place> {
        let head = &self.buckets[bucket];
        // In this order: whoever has a ticket below `next` has raised `max_fxid` before it took that.
        let next = head.head.get();
        // Before the ticket is taken: whoever has a later ticket must find it in `max_fxid`.
        let before = match planted(Fault::MaxRaisedLate) {
            false => head.max_fxid.raise(entry.fxid),
            true => head.max_fxid.get(),
        };
        for _ in 0..TRIES {
            let ticket = head.head.add(1);
            let slot = self.slot(bucket, ticket);
            let nobody_between = ticket == next || planted(Fault::EarlierForgotten);
            let earlier_fxid = if nobody_between {
                before
            } else {
                head.max_fxid.get()
            };
            if self.slots[slot].acquire(entry.fxid, is_running) {
                self.slots[slot].write(head, ticket, earlier_fxid, entry);
                self.slots[slot].owner.set(0);
                if planted(Fault::MaxRaisedLate) {
                    head.max_fxid.raise(entry.fxid);
                }
                return Some(Place { slot, ticket });
            }
        }
        if !planted(Fault::UnplacedNotMarked) {
            head.evicted_pending_fxid.raise(entry.fxid);
            head.evicted_fxid.raise(entry.fxid);
        }
        None
    }

    /// Puts the CSN into an entry that was published. If it has been overwritten, the bucket remembers that.
    pub fn stamp(&self, place: Place, csn: u64) {
        let bucket = place.slot / self.depth();
        self.buckets[bucket].max_csn.raise(csn);
        let word = &self.slots[place.slot].csn;
        if word.exchange(PENDING | place.ticket, csn).is_err() && !planted(Fault::LostCsnForgotten)
        {
            self.buckets[bucket].evicted_csn.raise(csn);
        }
    }

    /// Replaces the CSN of an entry by the position that its transaction has moved to. If the entry is not there any more, the bucket
    /// remembers that.
    pub fn move_to(&self, place: Place, fxid: u64, csn: u64, position: u64) {
        let slot = &self.slots[place.slot];
        if slot.csn.exchange(csn, position).is_err() {
            self.move_unplaced(place.slot / self.depth(), fxid);
        }
    }

    /// Remembers that a transaction without a place in a bucket has moved to an earlier position.
    pub fn move_unplaced(&self, bucket: usize, fxid: u64) {
        self.buckets[bucket].evicted_pending_fxid.raise(fxid);
    }

    /// The highest transaction that may have moved and is not (or not everywhere) in the bucket.
    pub fn evicted_moved_fxid(&self, bucket: usize) -> u64 {
        self.buckets[bucket].evicted_pending_fxid.get()
    }

    /// Remembers that a transaction with that CSN found no place in a bucket.
    pub fn stamp_unplaced(&self, bucket: usize, csn: u64) {
        self.buckets[bucket].max_csn.raise(csn);
        self.buckets[bucket].evicted_csn.raise(csn);
    }

    /// Shows `visit` the entries of a bucket if one with a CSN from `from` on was published there, until it returns false. Returns the
    /// highest CSN that is missing. Complete for transactions that had left the running list before.
    pub fn walk_since(
        &self,
        bucket: usize,
        from: u64,
        mut visit: impl FnMut(&Entry) -> bool,
    ) -> u64 {
        let head = &self.buckets[bucket];
        if head.max_csn.get() < from {
            return 0;
        }
        let slots = bucket * self.depth()..(bucket + 1) * self.depth();
        for read in self.slots[slots].iter().filter_map(Slot::read) {
            if !visit(&read.entry) {
                break;
            }
        }
        head.evicted_csn.get()
    }

    /// Whether no transaction from `xmin` on has registered in the bucket.
    #[inline]
    pub fn is_quiet(&self, bucket: usize, xmin: u64) -> bool {
        self.buckets[bucket].max_fxid.get() < xmin
    }

    /// Shows `visit` the entries of a bucket, newest first, until it returns false or all others are of transactions below
    /// `xmin`. Every entry that was published before, and that `evicted_fxid` in the result does not cover, is shown.
    pub fn walk(
        &self,
        bucket: usize,
        xmin: u64,
        mut visit: impl FnMut(&Entry, Place) -> bool,
    ) -> Walk {
        let head = &self.buckets[bucket];
        let marks = |slots| Walk {
            slots,
            evicted_fxid: head.evicted_fxid.get(),
            evicted_csn: head.evicted_csn.get(),
            evicted_pending_fxid: head.evicted_pending_fxid.get(),
        };
        let early = planted(Fault::MarkReadFirst).then(|| marks(0));
        let taken = head.head.get();
        let oldest = taken.saturating_sub(self.depth() as u64);
        let mut slots = 0;
        for ticket in (oldest..taken).rev() {
            let slot = self.slot(bucket, ticket);
            slots += 1;
            let Some(read) = self.slots[slot].read() else {
                continue;
            };
            let place = Place {
                slot,
                ticket: read.ticket,
            };
            if read.entry.fxid >= xmin && !visit(&read.entry, place) {
                break;
            }
            // An older entry in the place of this ticket's says nothing of the tickets between.
            let is_newest = read.ticket == ticket || planted(Fault::OldEntryEndsWalk);
            if is_newest && read.earlier_fxid < xmin {
                break;
            }
        }
        early.unwrap_or_else(|| marks(slots))
    }

    /// Counts a conflict found in the bucket.
    pub(crate) fn count_conflict(&self, bucket: usize) {
        self.buckets[bucket].conflicts.add(1);
    }

    /// Counts a look at a range that had been read as a whole.
    pub(crate) fn count_covered(&self, bucket: usize) {
        self.buckets[bucket].covered.add(1);
    }

    /// The entries in the rings at present, each with its bucket; one that is being written is left out.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Entry)> + '_ {
        let depth = self.depth();
        let published =
            move |(n, slot): (usize, &Slot)| slot.read().map(|read| (n / depth, read.entry));
        self.slots.iter().enumerate().filter_map(published)
    }

    /// Since the server started, in that bucket: entries, conflicts found, looks at ranges that had been read as a whole.
    pub fn totals(&self, bucket: usize) -> [u64; 3] {
        let bucket = &self.buckets[bucket];
        [&bucket.head, &bucket.conflicts, &bucket.covered].map(Word::get)
    }

    /// Entries overwritten since the server started.
    pub fn evictions(&self) -> u64 {
        let depth = self.depth() as u64;
        let overwritten = |bucket: &Bucket| bucket.head.get().saturating_sub(depth);
        self.buckets.iter().map(overwritten).sum()
    }

    /// The entry again, if it is still there.
    pub fn again(&self, place: Place) -> Option<Entry> {
        let read = self.slots[place.slot].read()?;
        (read.ticket == place.ticket).then_some(read.entry)
    }
}

#[cfg(test)]
impl Rings<'_> {
    /// A writer that dies with a ticket: before it has the slot, with the slot untouched, or half written.
    pub(crate) fn abandon(&self, bucket: usize, fxid: u64, step: u32) {
        let head = &self.buckets[bucket];
        head.max_fxid.raise(fxid);
        let ticket = head.head.add(1);
        let slot = &self.slots[self.slot(bucket, ticket)];
        if step == 0 || slot.owner.exchange(0, fxid).is_err() {
            return;
        }
        if step > 0 {
            slot.take_csn_from(head, ticket);
        }
        if step == 2 {
            slot.sequence.set(2 * ticket + 1);
            slot.low[0].write_field(0);
        }
    }
}

struct Read {
    ticket: u64,
    earlier_fxid: u64,
    entry: Entry,
}

impl Slot {
    /// Makes the slot this transaction's, if no other that still runs has it.
    fn acquire(&self, fxid: u64, is_running: &dyn Fn(u64) -> bool) -> bool {
        match self.owner.exchange(0, fxid) {
            Ok(()) => true,
            // Who is not running any more does not write any more.
            Err(other) => !is_running(other) && self.owner.exchange(other, fxid).is_ok(),
        }
    }

    /// Before anything else: marks what is about to be overwritten, and takes its CSN away. From there on the transaction of the old entry
    /// cannot put a CSN there any more, and remembers it itself.
    fn take_csn_from(&self, head: &Bucket, ticket: u64) {
        loop {
            let csn = self.csn.get();
            let late = planted(Fault::CsnTakenFirst);
            if !late {
                self.mark(head, csn);
            }
            // Who sees that the CSN has gone must see the marks.
            if self.csn.exchange(csn, PENDING | ticket).is_ok() {
                if late {
                    self.mark(head, csn);
                }
                return;
            }
        }
    }

    /// Marks an entry with that CSN as overwritten.
    fn mark(&self, head: &Bucket, csn: u64) {
        let fxid = self.fxid.read_field();
        // An odd number is a dead writer's, which marked what it overwrote.
        let sequence = self.sequence.get();
        let is_whole = sequence != 0 && sequence.is_multiple_of(2);
        if is_whole && !planted(Fault::EvictionMarkedLate) {
            head.evicted_fxid.raise(fxid);
        }
        if csn & PENDING != 0 {
            head.evicted_pending_fxid.raise(fxid);
        } else if csn != 0 && !planted(Fault::OverwrittenCsnForgotten) {
            head.evicted_csn.raise(csn);
            if !csn.is_multiple_of(2) {
                head.evicted_pending_fxid.raise(fxid);
            }
        }
    }

    /// Writes the entry into a slot that the caller owns.
    fn write(&self, head: &Bucket, ticket: u64, earlier_fxid: u64, entry: &Entry) {
        let victim = self.fxid.read_field();
        self.take_csn_from(head, ticket);
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
            head.evicted_fxid.raise(victim);
        }
    }

    /// The published entry, if there is one and it stays while it is read.
    fn read(&self) -> Option<Read> {
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
