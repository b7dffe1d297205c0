//! Rings of registered writes, a lock-free protocol: neither writers nor readers wait here.
//!
//! A writer publishes an entry in these steps, in this order:
//! 1. It looks at `head`, and raises the bucket's `max_fxid` to its own transaction.
//! 2. It takes a ticket from `head`. Ticket t belongs to slot t mod N.
//! 3. It makes the slot its own. If a running transaction has the slot, the writer takes another
//!    ticket. After a few of them it gives up, and counts itself as evicted.
//! 4. It notes in `missing` (of the bucket, and of the entry's relation and range) that it will
//!    overwrite the slot's old entry: the transaction, and its CSN. If the old entry has no CSN,
//!    the writer raises `pending_fxid` instead.
//! 5. It takes the old entry's CSN away, so that the old transaction cannot stamp the slot any
//!    more.
//! 6. It sets the slot's sequence number to 2t + 1.
//! 7. It writes the fields.
//! 8. It sets the sequence number to 2t + 2.
//!
//! A late writer may overwrite the entry of a later ticket: it marks that entry as evicted like
//! any other.
//!
//! A reader visits every slot of the bucket once, and reads `missing` after that. It takes an entry
//! if the sequence number is even, and has not changed when the fields have been read. It leaves
//! out any other entry, and misses nothing that it needs:
//! - The number is odd or changes. The old entry has been marked as missing before. The new one
//!   belongs to a transaction that had not published all its entries when the reader looked. So
//!   that transaction had no CSN, and its CSN will be above any that was taken before.
//! - A ticket is taken, and its slot still has the old entry. The reader takes the old entry; for
//!   the new one the case above holds. If the new one's writer died, its transaction has never had
//!   a CSN and has not committed. The next writer takes the slot over, once the dead writer's
//!   transaction is known to have ended.
//!
//! The fields of a slot are stored with Release and loaded with Acquire. A reader that loads a
//! field of a newer entry sees that entry's odd sequence number, or a later one, in its second
//! look. A reader that loads the even number sees all fields before it.

use std::hint::black_box;

use crate::{
    Relation,
    entry::Entry,
    fault::{Fault, planted},
    image::Interval,
    mark::{Counted, Gap, Mark, Marks, Missing, Spots},
    ranges::{Range, RangeMap},
    slot::{PENDING, Slot},
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
    /// The highest CSN of an entry that was published here.
    max_csn: Word,
    /// The entries that are missing here.
    missing: Missing,
}

#[cfg(not(test))] // a model's words are larger
const _: () = assert!(size_of::<Bucket>() == 64);

/// Tickets that a writer takes before it counts itself as evicted.
const TRIES: usize = 4;

/// Where an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    slot: usize,
    ticket: u64,
}

/// Where a writer has published an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    place: Place,
    spots: Spots,
}

/// Where a writer has found no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nowhere {
    bucket: usize,
    spots: Spots,
}

/// All rings of one kind: bucket b has the slots from b * N on, N = slots / buckets. The marks may
/// be those of other kinds, too.
#[derive(Clone, Copy, Debug)]
pub struct Rings<'a> {
    buckets: &'a [Bucket],
    slots: &'a [Slot],
    marks: Marks<'a>,
}

/// What a walk through a bucket has met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// Slots looked at.
    pub slots: u64,
    /// What can be missing.
    pub gap: Gap,
}

impl<'a> Rings<'a> {
    /// Rings over shared memory that was zeroed at the start.
    ///
    /// # Panics
    /// If there is no bucket, not at least one slot for each, or no mark.
    pub fn new(buckets: &'a [Bucket], slots: &'a [Slot], marks: &'a [Mark]) -> Self {
        assert!(!buckets.is_empty() && slots.len() >= buckets.len());
        let marks = Marks::new(marks);
        Rings {
            buckets,
            slots,
            marks,
        }
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The bucket of a range: of its wide entries, and, if it has no pieces, of all.
    pub fn bucket_of(&self, relation: Relation, range: Range) -> usize {
        self.bucket_of_piece(relation, range, None)
    }

    /// The bucket of a piece of a range.
    pub(crate) fn bucket_of_piece(
        &self,
        relation: Relation,
        range: Range,
        piece: Option<u32>,
    ) -> usize {
        let piece = piece.map_or(0, |piece| u64::from(piece) + 1);
        let place = range.rotate_left(32) ^ piece.wrapping_mul(0xa076_1d64_78bd_642f);
        let mixed = (relation ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 32) as usize % self.buckets.len()
    }

    /// The bucket where an entry of these keys in that range is registered.
    pub fn bucket_for(
        &self,
        relation: Relation,
        range: Range,
        keys: &Interval,
        map: &RangeMap,
    ) -> usize {
        self.bucket_of_piece(relation, range, map.piece_of(keys))
    }

    /// A name for the ring of that bucket, different from those of all other rings.
    pub(crate) fn ring(&self, bucket: usize) -> usize {
        std::ptr::from_ref(&self.buckets[bucket]).addr()
    }

    fn depth(&self) -> usize {
        self.slots.len() / self.buckets.len()
    }

    fn slot(&self, bucket: usize, ticket: u64) -> usize {
        let depth = self.depth();
        bucket * depth + (ticket % depth as u64) as usize
    }

    /// Asks for the memory of a bucket's head, to be used soon. That of several comes at once, one
    /// after the other it would be waited for.
    #[inline]
    pub fn expect_head(&self, bucket: usize) {
        black_box(self.buckets[bucket].head.glance());
    }

    /// Asks for the memory of the slot that comes next in the bucket, to be used soon.
    #[inline]
    pub fn expect_slot(&self, bucket: usize) {
        let slot = &self.slots[self.slot(bucket, self.buckets[bucket].head.glance())];
        black_box((slot.sequence.glance(), slot.process.glance()));
    }

    /// Publishes a write (but for its CSN), which must be before its transaction takes one. An
    /// error: there was no place, and the transaction counts as evicted. `is_running` tells whether
    /// a transaction is still in progress.
    pub fn publish(
        &self,
        bucket: usize,
        entry: &Entry,
        is_running: &dyn Fn(u64) -> bool,
    ) -> Result<Published, Nowhere> {
        let head = &self.buckets[bucket];
        let spots = self.marks.spots(entry.relation, entry.range);
        self.marks.enter(spots, entry.fxid);
        self.count(entry, Counted::Registration);
        // In this order: whoever has a ticket below `next` has raised `max_fxid` before it took
        // that.
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
                let missing = &head.missing;
                self.slots[slot].write(self.marks, missing, ticket, earlier_fxid, entry);
                self.slots[slot].owner.set(0);
                if planted(Fault::MaxRaisedLate) {
                    head.max_fxid.raise(entry.fxid);
                }
                let place = Place { slot, ticket };
                return Ok(Published { place, spots });
            }
        }
        if !planted(Fault::UnplacedNotMarked) {
            for missing in self.missing(bucket, spots) {
                missing.pending_fxid.lift(entry.fxid);
                missing.fxid.lift(entry.fxid);
            }
        }
        Err(Nowhere { bucket, spots })
    }

    /// Where it is noted that an entry is missing: with its ring, its relation and its range.
    fn missing(&self, bucket: usize, spots: Spots) -> [&'a Missing; 3] {
        let [relation, range] = self.marks.missing(spots);
        [&self.buckets[bucket].missing, relation, range]
    }

    /// Puts the CSN into an entry that was published. If it has been overwritten, that is
    /// remembered.
    pub fn stamp(&self, published: Published, csn: u64) {
        let Published { place, spots } = published;
        let bucket = place.slot / self.depth();
        self.buckets[bucket].max_csn.raise(csn);
        let word = &self.slots[place.slot].csn;
        if word.exchange(PENDING | place.ticket, csn).is_err() && !planted(Fault::LostCsnForgotten)
        {
            self.stamp_unplaced(Nowhere { bucket, spots }, csn);
        }
    }

    /// Replaces the CSN of an entry by the position that its transaction has moved to. If the entry
    /// is not there any more, that is remembered.
    pub fn move_to(&self, published: Published, fxid: u64, csn: u64, position: u64) {
        let Published { place, spots } = published;
        let slot = &self.slots[place.slot];
        if slot.csn.exchange(csn, position).is_err() {
            let bucket = place.slot / self.depth();
            self.move_unplaced(Nowhere { bucket, spots }, fxid);
        }
    }

    /// Remembers that a transaction whose entry is missing has moved to an earlier position.
    pub fn move_unplaced(&self, at: Nowhere, fxid: u64) {
        for missing in self.missing(at.bucket, at.spots) {
            missing.pending_fxid.lift(fxid);
        }
    }

    /// Remembers that a transaction with that CSN has no entry where it should have one.
    pub fn stamp_unplaced(&self, at: Nowhere, csn: u64) {
        self.buckets[at.bucket].max_csn.raise(csn);
        for missing in self.missing(at.bucket, at.spots) {
            missing.csn.lift(csn);
        }
    }

    /// What is missing of a relation, or of a range of it. To be read after the slots.
    pub fn gap_of(&self, relation: Relation, range: Option<Range>) -> Gap {
        self.marks.gap(relation, range)
    }

    /// The highest transaction that has registered anything of a relation.
    pub(crate) fn last_of(&self, relation: Relation) -> u64 {
        self.marks.last(relation)
    }

    /// Whether no transaction from `fxid` on has registered anything of a relation, or of a range
    /// of it. For a range, entries that are anywhere in the relation do not count.
    #[inline]
    pub fn is_unwritten(&self, relation: Relation, range: Option<Range>, fxid: u64) -> bool {
        self.marks.is_quiet(relation, range, fxid)
    }

    /// Shows `visit` the entries of a bucket if one with a CSN from `from` on was published there,
    /// until it returns false. Returns what is missing. Complete for transactions that had left the
    /// running list before.
    pub fn walk_since(
        &self,
        bucket: usize,
        from: u64,
        mut visit: impl FnMut(&Entry) -> bool,
    ) -> Gap {
        let head = &self.buckets[bucket];
        if head.max_csn.get() < from {
            return Gap::default();
        }
        let slots = bucket * self.depth()..(bucket + 1) * self.depth();
        for read in self.slots[slots].iter().filter_map(Slot::read) {
            if !visit(&read.entry) {
                break;
            }
        }
        head.missing.gap()
    }

    /// Whether no transaction from `xmin` on has registered in the bucket.
    #[inline]
    pub fn is_quiet(&self, bucket: usize, xmin: u64) -> bool {
        self.buckets[bucket].max_fxid.get() < xmin
    }

    /// Shows `visit` the entries of a bucket, newest first, until it returns false or all others
    /// are of transactions below `xmin`. Every entry that was published before, and that `gap` in
    /// the result does not cover, is shown.
    pub fn walk(
        &self,
        bucket: usize,
        xmin: u64,
        mut visit: impl FnMut(&Entry, Place) -> bool,
    ) -> Walk {
        let head = &self.buckets[bucket];
        let marks = |slots| Walk {
            slots,
            gap: head.missing.gap(),
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

    /// Counts something of an entry's range, or of its relation if it may be anywhere there.
    pub(crate) fn count(&self, entry: &Entry, what: Counted) {
        let range = (entry.keys != Interval::ALL).then_some(entry.range);
        self.marks.count(entry.relation, range, what);
    }

    /// Counts a look at a range that had been read as a whole.
    pub(crate) fn count_covered(&self, relation: Relation, range: Range) {
        self.marks.count(relation, Some(range), Counted::Cover);
    }

    /// The entries in the rings at present; one that is being written is left out.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let published = |slot: &Slot| slot.read().map(|read| read.entry);
        self.slots.iter().filter_map(published)
    }

    /// Of that range, or of writes anywhere in the relation: entries, conflicts found, looks at
    /// ranges that had been read as a whole. Since the server started, or since another range that
    /// is counted in the same place was.
    pub fn totals(&self, relation: Relation, range: Option<Range>) -> [u64; 3] {
        self.marks.totals(relation, range)
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
    /// A writer that dies with a ticket: before it has the slot, with the slot untouched, or half
    /// written.
    pub(crate) fn abandon(&self, bucket: usize, fxid: u64, step: u32) {
        let head = &self.buckets[bucket];
        head.max_fxid.raise(fxid);
        let ticket = head.head.add(1);
        let slot = &self.slots[self.slot(bucket, ticket)];
        if step == 0 || slot.owner.exchange(0, fxid).is_err() {
            return;
        }
        if step > 0 {
            slot.take_csn_from(self.marks, &head.missing, ticket);
        }
        if step == 2 {
            slot.sequence.set(2 * ticket + 1);
            slot.low[0].write_field(0);
        }
    }
}
