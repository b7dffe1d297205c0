//! Registering what a transaction wrote, and read. The order is the proof's: entries published, CSN
//! taken, validated, off the running list; the types leave no other.

use smallvec::SmallVec;

use crate::{
    Relation,
    csn::{Clock, Committer, Csn},
    entry::Entry,
    fault::{Fault, planted},
    image::Interval,
    is_definition,
    mark::Counted,
    parts::{Parts, pack},
    predicate::Predicates,
    ranges::{Range, RangeMap},
    ring::{Nowhere, Published, Rings},
    write::WriteSet,
};

/// Ranges of a relation for which reads are registered one by one; with more it is the whole
/// relation.
const MOST_READ_RANGES: u64 = 64;

/// All shared memory of range OCC. Every part is valid when zeroed.
#[derive(Clone, Copy, Debug)]
pub struct RingSpace<'a> {
    pub clock: &'a Clock,
    /// One for each process that can run a transaction.
    pub committers: &'a [Committer],
    pub writes: RingPair<'a>,
    /// What validated transactions have read, if there is to be an exclusion window.
    pub reads: Option<RingPair<'a>>,
    /// Changes of definitions, so that these are not overwritten by what happens to rows.
    pub definitions: Rings<'a>,
}

/// The rings of writes, or of reads.
#[derive(Clone, Copy, Debug)]
pub struct RingPair<'a> {
    /// Those in a range.
    pub ranges: Rings<'a>,
    /// Those anywhere in a relation.
    pub relations: Rings<'a>,
}

/// Where a transaction's entries are.
#[derive(Debug, Default)]
struct Places<'a> {
    placed: SmallVec<[(Rings<'a>, Published); 8]>,
    /// Buckets in which there was no place.
    unplaced: Vec<(Rings<'a>, Nowhere)>,
}

/// A transaction whose writes and reads are all published, or counted as evicted; it has no CSN
/// yet.
#[derive(Debug)]
#[must_use = "a transaction commits with a CSN"]
pub struct Registered<'b, 'a> {
    space: &'b RingSpace<'a>,
    process: u32,
    fxid: u64,
    writes: Places<'a>,
    reads: Places<'a>,
    /// Of a planted fault.
    early_csn: Option<Csn>,
}

/// A transaction that has its CSN and is not validated yet.
#[derive(Debug)]
pub struct Numbered<'a> {
    pub csn: Csn,
    fxid: u64,
    writes: Places<'a>,
}

/// Entries on their way into the rings, a few at a time, so that their memory, which others have
/// written to, comes at once.
struct Publisher<'p, 'a> {
    places: &'p mut Places<'a>,
    waiting: SmallVec<[(Rings<'a>, usize, Entry); TOGETHER]>,
    is_running: &'p dyn Fn(u64) -> bool,
}

/// Entries that are published together.
const TOGETHER: usize = 8;

impl<'p, 'a> Publisher<'p, 'a> {
    /// Notes in `places` where they are.
    fn new(places: &'p mut Places<'a>, is_running: &'p dyn Fn(u64) -> bool) -> Self {
        Publisher {
            places,
            waiting: SmallVec::new(),
            is_running,
        }
    }

    fn add(&mut self, rings: Rings<'a>, entry: Entry, map: &RangeMap) {
        let bucket = rings.bucket_for(entry.relation, entry.range, &entry.keys, map);
        rings.expect_head(bucket);
        self.waiting.push((rings, bucket, entry));
        if self.waiting.len() == TOGETHER {
            self.publish();
        }
    }

    fn publish(&mut self) {
        for (rings, bucket, _) in &self.waiting {
            rings.expect_slot(*bucket);
        }
        for (rings, bucket, entry) in self.waiting.drain(..) {
            match rings.publish(bucket, &entry, self.is_running) {
                Ok(published) => self.places.placed.push((rings, published)),
                Err(nowhere) => self.places.unplaced.push((rings, nowhere)),
            }
        }
    }
}

impl Places<'_> {
    fn stamp(&self, csn: Csn) {
        for (rings, published) in &self.placed {
            rings.stamp(*published, csn);
        }
        for (rings, nowhere) in &self.unplaced {
            rings.stamp_unplaced(*nowhere, csn);
        }
    }
}

/// Where something was written or read: in which range, and which parts of the interval; `None`:
/// anywhere in the relation.
type Where = Option<(Range, Interval, Parts)>;

/// Shows `publish` the entries of what was read: the intervals in each range, or the whole
/// relation.
fn each_read<'m>(
    predicates: &Predicates,
    map_of: &dyn Fn(Relation) -> RangeMap<'m>,
    mut publish: impl FnMut(Relation, Where, &RangeMap),
) {
    let mut in_range: SmallVec<[Interval; 4]> = SmallVec::new();
    for (relation, read) in predicates.iter() {
        let map = map_of(relation);
        if read.is_everything() || read.ranges_in(&map) > MOST_READ_RANGES {
            publish(relation, None, &map);
            continue;
        }
        let mut publish = |range, intervals: &[Interval]| {
            pack(intervals, |keys, parts| {
                publish(relation, Some((range, keys, parts)), &map);
            });
        };
        let mut last = None;
        for part in read.iter() {
            let ranges = map.ranges_of(&part);
            let is_in_one = ranges.total() == 1;
            for range in ranges {
                if let Some(before) = last.replace(range)
                    && before != range
                {
                    publish(before, &in_range);
                    in_range.clear();
                }
                if is_in_one {
                    in_range.push(part);
                } else {
                    in_range.extend(map.bounds(range).intersection(&part));
                }
            }
        }
        if let Some(range) = last {
            publish(range, &in_range);
            in_range.clear();
        }
    }
}

impl<'a> RingSpace<'a> {
    /// Publishes the writes of a transaction at PRE_COMMIT or PRE_PREPARE. By then it can write no
    /// more, and its predecessors have left the running list. Once for a transaction.
    ///
    /// `fxid` is its top-level id; `map_of` has the maps by which the writes were collected;
    /// `is_running` tells of a top-level id whether it is still in progress.
    pub fn register<'m>(
        &self,
        process: u32,
        fxid: u64,
        writes: &WriteSet,
        map_of: &dyn Fn(Relation) -> RangeMap<'m>,
        is_running: &dyn Fn(u64) -> bool,
    ) -> Registered<'_, 'a> {
        debug_assert!(fxid != 0 || writes.is_empty(), "a writer without an id");
        let committer = &self.committers[process as usize];
        committer.enter(fxid);
        let early = planted(Fault::CsnBeforePublication);
        let mut registered = Registered {
            space: self,
            process,
            fxid,
            writes: Places::default(),
            reads: Places::default(),
            early_csn: early.then(|| committer.take(self.clock)),
        };
        let mut publisher = Publisher::new(&mut registered.writes, is_running);
        writes.entries(|relation, place| {
            if planted(Fault::NotRegistered) {
                return;
            }
            let (mut rings, range, keys, parts) = self.writes.place(place);
            if is_definition(relation) {
                rings = self.definitions;
            }
            let entry = Entry {
                fxid,
                process,
                csn: None,
                relation,
                range,
                keys,
                parts,
            };
            publisher.add(rings, entry, &map_of(relation));
        });
        publisher.publish();
        registered
    }

    /// Publishes what a transaction without writes has read, at its end: it stands before all with
    /// CSNs from `position` on. `id` is different from all transactions' ids and from those of
    /// other processes.
    pub fn register_reader<'m>(
        &self,
        process: u32,
        id: u64,
        position: Csn,
        predicates: &Predicates,
        map_of: &dyn Fn(Relation) -> RangeMap<'m>,
        is_running: &dyn Fn(u64) -> bool,
    ) {
        let mut places = Places::default();
        self.publish_reads(&mut places, process, id, predicates, map_of, is_running);
        places.stamp(position);
    }

    fn publish_reads<'m>(
        &self,
        places: &mut Places<'a>,
        process: u32,
        id: u64,
        predicates: &Predicates,
        map_of: &dyn Fn(Relation) -> RangeMap<'m>,
        is_running: &dyn Fn(u64) -> bool,
    ) {
        let Some(pair) = self.reads.filter(|_| !planted(Fault::ReadsNotRegistered)) else {
            return;
        };
        let mut publisher = Publisher::new(places, is_running);
        each_read(predicates, map_of, |relation, place, map| {
            // Nobody moves who has changed a definition.
            if is_definition(relation) {
                return;
            }
            let (rings, range, keys, parts) = pair.place(place);
            let entry = Entry {
                fxid: id,
                process,
                csn: None,
                relation,
                range,
                keys,
                parts,
            };
            publisher.add(rings, entry, map);
        });
        publisher.publish();
    }
}

impl RingSpace<'_> {
    /// Counts a conflict with that entry of a write in its bucket.
    pub(crate) fn count_conflict(&self, entry: &Entry) {
        let rings = if is_definition(entry.relation) {
            self.definitions
        } else if entry.keys == Interval::ALL {
            self.writes.relations
        } else {
            self.writes.ranges
        };
        rings.count(entry, Counted::Conflict);
    }
}

impl<'a> RingPair<'a> {
    fn place(&self, place: Where) -> (Rings<'a>, Range, Interval, Parts) {
        match place {
            Some((range, keys, parts)) => (self.ranges, range, keys, parts),
            None => (self.relations, 0, Interval::ALL, Parts::ALL),
        }
    }
}

impl<'a> Registered<'_, 'a> {
    /// Publishes what the transaction has read, if it is validated, or counts as having read. `id`
    /// is its own, or if it has none as `register_reader` has it.
    pub fn add_reads<'m>(
        &mut self,
        id: u64,
        predicates: &Predicates,
        map_of: &dyn Fn(Relation) -> RangeMap<'m>,
        is_running: &dyn Fn(u64) -> bool,
    ) {
        let (space, reads) = (self.space, &mut self.reads);
        space.publish_reads(reads, self.process, id, predicates, map_of, is_running);
    }

    /// Entries published, of writes and reads.
    pub fn placed(&self) -> u64 {
        (self.writes.placed.len() + self.reads.placed.len()) as u64
    }

    /// Those for which there was no place in their ring.
    pub fn unplaced(&self) -> u64 {
        (self.writes.unplaced.len() + self.reads.unplaced.len()) as u64
    }

    /// Takes the transaction's CSN and puts it where validators look.
    pub fn take_csn(self) -> Numbered<'a> {
        let committer = &self.space.committers[self.process as usize];
        let take = || committer.take(self.space.clock);
        let csn = self.early_csn.unwrap_or_else(take);
        self.writes.stamp(csn);
        self.reads.stamp(csn);
        Numbered {
            csn,
            fxid: self.fxid,
            writes: self.writes,
        }
    }
}

impl Numbered<'_> {
    /// Tells that the transaction, which is not to be seen yet, has moved to an earlier position.
    pub(crate) fn move_to(&self, position: Csn) {
        for (rings, published) in &self.writes.placed {
            rings.move_to(*published, self.fxid, self.csn, position);
        }
        for (rings, nowhere) in &self.writes.unplaced {
            rings.move_unplaced(*nowhere, self.fxid);
        }
    }
}
