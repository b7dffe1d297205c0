//! What a transaction that only reads copies of the rings, to be validated by that whatever is
//! overwritten later. The proof is in README.md.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use crate::{
    Relation,
    csn::Csn,
    entry::Entry,
    fault::{Fault, planted},
    image::{Image, Interval},
    mark::Gap,
    predicate::{IntervalSet, Predicates},
    ranges::Range,
    ring::{Place, Rings},
    snapshot::Snapshot,
    validate::{Conflict, Refusal, Validation, Work, conflict},
};

/// What the entries of a ring copy are enough for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// All that the snapshot does not see and that has a CSN below this one.
    before: Csn,
    /// All that it sees from this CSN on, the first of the above. Without any, it is `Csn::MAX`.
    from: Csn,
    /// But some up to this CSN had been overwritten.
    lost: Csn,
    /// The rings of which some of the first sort were missing, in order.
    holes: Vec<usize>,
}

/// The writes that may decide on a transaction without writes, of all relations. At most as many as
/// the rings have slots: what comes into a slot while it is copied is neither seen nor of a CSN so
/// low.
#[derive(Debug)]
pub struct RingCopy {
    /// By relation and lowest key.
    entries: Vec<Entry>,
    /// The highest key of an entry and those before it in its relation.
    reach: Vec<Image>,
    extent: Extent,
}

impl<S: Snapshot> Validation<'_, S> {
    /// Shows `keep` all entries that may decide on any predicates of this transaction, which has
    /// its reading point (`before`) and no writes: those that the snapshot does not see, with their
    /// CSNs, and those that it sees from the first of these on. `None`: there can be no ring copy.
    /// Looks at every bucket, once or twice.
    pub fn copy(&self, keep: &mut dyn FnMut(Entry)) -> (Option<Extent>, Work) {
        let mut work = Work::default();
        let xmin = self.snapshot.xmin();
        let mut from = Csn::MAX;
        let mut missing: Vec<(usize, Gap)> = Vec::new();
        if xmin < self.space.clock.complete_from() {
            return (None, work);
        }
        for (rings, bucket) in self.all_buckets() {
            if rings.is_quiet(bucket, xmin) {
                work.quiet += 1;
                continue;
            }
            work.walked += 1;
            let walk = rings.walk(bucket, xmin, |entry, place| {
                if let Some(csn) = self.csn_of_missed(&rings, entry, place) {
                    if csn != 0 {
                        from = from.min(csn);
                    }
                    let csn = Some(csn);
                    keep(Entry { csn, ..*entry });
                }
                true
            });
            work.slots += walk.slots;
            if walk.gap.fxid >= xmin && !planted(Fault::RingCopyIncomplete) {
                missing.push((rings.ring(bucket), walk.gap));
            }
        }
        let extent = Extent {
            before: self.before,
            from,
            lost: self.copy_newer(from, keep),
            holes: self.holes(missing),
        };
        (Some(extent), work)
    }

    /// The rings whose gaps can hide what the snapshot does not see.
    fn holes(&self, missing: Vec<(usize, Gap)>) -> Vec<usize> {
        if missing.is_empty() {
            return Vec::new();
        }
        let survey = self.snapshot.survey();
        let can_hide =
            |(ring, gap): (usize, Gap)| gap.can_hide(&survey, self.prefix).then_some(ring);
        let mut holes: Vec<usize> = missing.into_iter().filter_map(can_hide).collect();
        holes.sort_unstable();
        holes
    }

    /// Shows `keep` the entries from that CSN on which the snapshot sees. Returns the highest CSN
    /// that is missing, if it may be one of these.
    fn copy_newer(&self, from: Csn, keep: &mut dyn FnMut(Entry)) -> Csn {
        if from == Csn::MAX || planted(Fault::NewerNotCopied) {
            return 0;
        }
        let lost = self.all_buckets().map(|(rings, bucket)| {
            rings.walk_since(bucket, from, |entry| {
                if entry.csn.is_none_or(|csn| csn >= from) && self.snapshot.sees(entry.fxid) {
                    keep(*entry);
                }
                true
            })
        });
        lost.map(|gap| gap.csn).max().unwrap_or(0)
    }

    fn all_buckets(&self) -> impl Iterator<Item = (Rings<'_>, usize)> {
        let pair = self.space.writes;
        let all = [pair.relations, pair.ranges, self.space.definitions];
        all.into_iter()
            .flat_map(|rings| (0..rings.len()).map(move |bucket| (rings, bucket)))
    }

    /// The CSN of an entry that the snapshot does not see, if it is below `before`; 0 if it cannot
    /// be found out.
    fn csn_of_missed(&self, rings: &Rings, entry: &Entry, place: Place) -> Option<Csn> {
        let is_later = entry.csn.is_some_and(|csn| csn >= self.before);
        if is_later || planted(Fault::PendingNotCopied) && entry.csn.is_none() {
            return None;
        }
        self.missed(rings, entry, place)
    }
}

impl RingCopy {
    /// Of the entries that `Validation::copy` has shown.
    pub fn new(mut entries: Vec<Entry>, extent: Extent) -> Self {
        entries.sort_unstable_by_key(|entry| (entry.relation, entry.keys.low()));
        let mut last: Option<(Relation, Image)> = None;
        let reach = entries.iter().map(|entry| {
            let before = last.filter(|(relation, _)| *relation == entry.relation);
            let reach = before.map_or(0, |(_, reach)| reach).max(entry.keys.high());
            last = Some((entry.relation, reach));
            reach
        });
        RingCopy {
            reach: reach.collect(),
            entries,
            extent,
        }
    }

    /// Shows `found` what `Validation::conflicts` would have found when the ring copy was made.
    /// `validation` is of the same transaction. An error: there may be others that nobody knows.
    pub fn conflicts<S: Snapshot>(
        &self,
        validation: &Validation<S>,
        predicates: &Predicates,
        found: &mut dyn FnMut(Conflict) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        debug_assert!(validation.before <= self.extent.before);
        for (relation, read) in predicates.iter() {
            let map = (validation.ranges)(relation);
            for (entry, part) in self.overlapping(relation, read) {
                if let Some(csn) = entry.csn.filter(|&csn| csn < validation.before)
                    && !validation.snapshot.sees(entry.fxid)
                    && !validation.snapshot.did_abort(entry.fxid)
                {
                    validation.space.count_conflict(entry);
                    if found(conflict(entry, part, csn, &map)).is_break() {
                        return Ok(());
                    }
                }
            }
            self.is_whole_for(validation, relation, read)?;
        }
        Ok(())
    }

    /// Whether nothing of what was read is missing: the rings where it would be had been copied, or
    /// nothing of the relation is missing there by now.
    fn is_whole_for<S: Snapshot>(
        &self,
        validation: &Validation<S>,
        relation: Relation,
        read: &IntervalSet,
    ) -> Result<(), Refusal> {
        if self.extent.holes.is_empty() {
            return Ok(());
        }
        let pair = validation.space.writes;
        let map = (validation.ranges)(relation);
        let mut missing: Option<(Gap, Option<Range>)> = None;
        let all: Result<(), Refusal> =
            validation
                .space
                .buckets(&pair, relation, read, &map, |look| {
                    let ring = look.rings.ring(look.bucket);
                    if self.extent.holes.binary_search(&ring).is_ok() {
                        let gap = look.rings.gap_of(relation, look.range);
                        let (known, range) = missing.unwrap_or((gap, look.range));
                        missing = Some((known.either(gap), range));
                    }
                    Ok(())
                });
        all?;
        match missing {
            Some((gap, range))
                if validation.can_hide(|| gap) && !validation.shows_no_writer(relation, read) =>
            {
                Err(Refusal::HistoryLost {
                    relation,
                    range,
                    fxid: gap.fxid,
                })
            }
            _ => Ok(()),
        }
    }

    /// As `Validation::can_stand_before`, which is asked itself if the ring copy does not reach so
    /// far.
    pub fn can_stand_before<S: Snapshot>(
        &self,
        validation: &Validation<S>,
        from: Csn,
        predicates: &Predicates,
    ) -> Result<(), Refusal> {
        if from < self.extent.from || from <= self.extent.lost {
            return validation.can_stand_before(from, predicates);
        }
        predicates.iter().try_for_each(|(relation, read)| {
            let newer = self.overlapping(relation, read).find(|(entry, _)| {
                entry.csn.is_none_or(|csn| csn >= from) && validation.has_seen(entry)
            });
            newer.map_or(Ok(()), |(entry, part)| {
                let map = (validation.ranges)(relation);
                let csn = entry.csn.unwrap_or(0);
                Err(Refusal::Conflict(conflict(entry, part, csn, &map)))
            })
        })
    }

    /// The entries among these keys, each with the first interval that it overlaps.
    fn overlapping(
        &self,
        relation: Relation,
        read: &IntervalSet,
    ) -> impl Iterator<Item = (&Entry, Interval)> {
        spans(read).into_iter().flat_map(move |span| {
            let end = self.entries.partition_point(|entry| {
                (entry.relation, entry.keys.low()) <= (relation, span.high())
            });
            let below = self.entries[..end].iter().zip(&self.reach[..end]).rev();
            below
                .take_while(move |(entry, reach)| {
                    entry.relation == relation && **reach >= span.low()
                })
                .filter_map(move |(entry, _)| {
                    let part = entry.overlapping(read).filter(|part| span.covers(part));
                    part.map(|part| (entry, part))
                })
        })
    }
}

/// Intervals that are looked for one by one. A wide entry is met by each of them.
const FEW: usize = 16;

/// Disjoint intervals that hold those that were read, each of them whole.
fn spans(read: &IntervalSet) -> SmallVec<[Interval; FEW]> {
    if read.len() <= FEW {
        return read.iter().collect();
    }
    let hull = read.iter().reduce(|hull, part| hull.hull(&part));
    hull.into_iter().collect()
}
