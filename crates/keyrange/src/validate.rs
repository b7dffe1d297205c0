//! Validation: whether somebody before me in CSN order wrote what I read without my seeing it.

use std::ops::ControlFlow;

use crate::{
    DEFINITION, Relation,
    csn::{Csn, CsnState},
    entry::Entry,
    fault::{Fault, planted},
    image::Interval,
    is_definition,
    look::{Look, is_everywhere},
    mark::{Counted, Gap},
    predicate::{IntervalSet, Predicates},
    ranges::{Range, RangeMap},
    register::RingSpace,
    ring::{Place, Rings},
    snapshot::Snapshot,
};

/// How it came to a conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The written keys and the read ones overlap.
    Overlap,
    /// The whole range was read.
    Cover,
    /// The whole relation was read, or may have been written.
    Relation,
}

/// A write that the validated transaction should have seen and did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub cause: Cause,
    pub relation: Relation,
    /// `None`: anywhere in the relation.
    pub range: Option<Range>,
    /// The writer.
    pub fxid: u64,
    /// Its CSN; 0 if that could not be found out.
    pub csn: Csn,
    pub written: Interval,
    pub read: Interval,
}

/// Why a transaction must roll back (SQLSTATE 40001).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Conflict(Conflict),
    /// Entries up to transaction `fxid` may have been overwritten that the snapshot does not see.
    HistoryLost {
        relation: Relation,
        /// `None`: in any of its ranges.
        range: Option<Range>,
        fxid: u64,
    },
    /// The snapshot does not see a transaction from before the server's start, whose writes nobody
    /// knows.
    Restarted,
}

/// What a validation did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Work {
    /// Buckets passed without a look at their slots.
    pub quiet: u64,
    /// Buckets whose slots were looked at.
    pub walked: u64,
    pub slots: u64,
    /// Ranges of which the whole was read, among those looked at.
    pub covered: u64,
}

/// A validation about to run, at PRE_COMMIT and after registration (or, for a transaction without
/// writes, at any time after its reading point: `README.md`).
pub struct Validation<'a, S> {
    pub space: RingSpace<'a>,
    pub snapshot: &'a S,
    /// Only transactions with a CSN below this one count: one's own CSN, or `ReadingPoint::before`.
    pub before: Csn,
    /// Of those that ran when the snapshot was taken, it sees all that have CSNs up to this one: an
    /// earlier `Survey::lasting_prefix`; 0 without one.
    pub prefix: Csn,
    /// The ranges of a relation, as all its concurrent writers have them.
    pub ranges: &'a dyn Fn(Relation) -> RangeMap<'a>,
    /// Called while a CSN is just being written, again and again. False: waited enough; the CSN
    /// then counts as smaller.
    pub wait: &'a dyn Fn() -> bool,
}

impl<'a, S: Snapshot> Validation<'a, S> {
    /// Whether the transaction may commit, and at what cost that was found.
    pub fn run(&self, predicates: &Predicates) -> (Result<(), Refusal>, Work) {
        let mut first = None;
        let (result, work) = self.conflicts(predicates, &mut |conflict| {
            first = Some(conflict);
            ControlFlow::Break(())
        });
        let result = match first {
            Some(conflict) => Err(Refusal::Conflict(conflict)),
            None => result,
        };
        (result, work)
    }

    /// What a validation does that finds all quiet, so that there is nothing to be told of these
    /// predicates; `None` if one is not, or all there are would be looked at.
    pub fn quiet(&self, predicates: &Predicates) -> Option<Work> {
        let mut work = Work::default();
        let xmin = self.snapshot.xmin();
        if xmin < self.space.clock.complete_from() {
            return None;
        }
        let pair = self.space.writes;
        for (relation, read) in predicates.iter() {
            if pair.ranges.is_unwritten(relation, None, xmin) {
                work.quiet += 1;
                continue;
            }
            let map = (self.ranges)(relation);
            if !is_definition(relation) && is_everywhere(pair.ranges, read, &map) {
                return None;
            }
            let is_unwritten = |range| pair.ranges.is_unwritten(relation, Some(range), xmin);
            let all = self
                .space
                .narrow(&pair, relation, read, &map, &is_unwritten, |look| {
                    work.quiet += 1;
                    let is_quiet = look.rings.is_quiet(look.bucket, xmin);
                    is_quiet.then_some(()).ok_or(())
                });
            all.ok()?;
        }
        Some(work)
    }

    /// Shows `found` every conflict until it breaks off. An error: there may be others that nobody
    /// knows.
    pub fn conflicts(
        &self,
        predicates: &Predicates,
        found: &mut dyn FnMut(Conflict) -> ControlFlow<()>,
    ) -> (Result<(), Refusal>, Work) {
        let mut work = Work::default();
        let restarted = self.snapshot.xmin() < self.space.clock.complete_from();
        let result = if restarted && !predicates.is_empty() {
            Err(Refusal::Restarted)
        } else {
            predicates.iter().try_for_each(|(relation, read)| {
                let mut check = RelationCheck {
                    validation: self,
                    relation,
                    read,
                    found,
                    work: &mut work,
                    gap: None,
                    stopped: false,
                };
                check.run()
            })
        };
        (result, work)
    }

    /// Whether the transaction, which has no writes, can stand before all with CSNs from `from` on:
    /// it has read nothing that one of them wrote. All that it has seen had left the running list
    /// before its snapshot.
    pub fn can_stand_before(&self, from: Csn, predicates: &Predicates) -> Result<(), Refusal> {
        predicates.iter().try_for_each(|(relation, read)| {
            let map = (self.ranges)(relation);
            let pair = self.space.writes;
            self.space.buckets(&pair, relation, read, &map, |look| {
                let mut newer = None;
                let gap = look.rings.walk_since(look.bucket, from, |entry| {
                    let is_newer = entry.csn.is_none_or(|csn| csn >= from);
                    if entry.relation == relation
                        && is_newer
                        && let Some(read) = entry.overlapping(read)
                        && self.has_seen(entry)
                    {
                        newer = Some(conflict(entry, read, entry.csn.unwrap_or(0), &map));
                    }
                    newer.is_none()
                });
                match newer {
                    Some(conflict) => Err(Refusal::Conflict(conflict)),
                    None if look.gap(relation, gap).csn >= from => Err(Refusal::HistoryLost {
                        relation,
                        range: look.range,
                        fxid: 0,
                    }),
                    None => Ok(()),
                }
            })
        })
    }

    /// Whether the snapshot sees all changes of the relation's definition, as far as these are
    /// known: shows `found` those that it does not see and that have not rolled back, whenever they
    /// get their CSNs. False: there may be others.
    pub fn definition_is_seen(&self, relation: Relation, found: &mut dyn FnMut(&Entry)) -> bool {
        let relation = relation | DEFINITION;
        let bucket = self.space.definitions.bucket_of(relation, 0);
        self.unseen_definitions(bucket, Some(relation), &mut |entry| {
            found(entry);
            true
        })
    }

    /// Whether the snapshot sees all changes of definitions, of whatever relation, that have been
    /// registered.
    pub fn definitions_are_seen(&self) -> bool {
        (0..self.space.definitions.len()).all(|bucket| {
            let mut all = true;
            let is_known = self.unseen_definitions(bucket, None, &mut |_| {
                all = false;
                false
            });
            all && is_known
        })
    }

    /// Calls `found` with changes of definitions in that bucket, of one relation or all, until it
    /// returns false. These are the changes that the snapshot does not see and that have not rolled
    /// back. False: there may be others.
    fn unseen_definitions(
        &self,
        bucket: usize,
        relation: Option<Relation>,
        found: &mut dyn FnMut(&Entry) -> bool,
    ) -> bool {
        let (snapshot, rings) = (self.snapshot, self.space.definitions);
        let xmin = snapshot.xmin();
        if xmin < self.space.clock.complete_from() {
            return false;
        }
        if rings.is_quiet(bucket, xmin) {
            return true;
        }
        let walk = rings.walk(bucket, xmin, |entry, _| {
            let is_unseen = relation.is_none_or(|relation| relation == entry.relation)
                && !snapshot.is_mine(entry.fxid)
                && !snapshot.has_ended(entry.fxid)
                && !snapshot.did_abort(entry.fxid);
            !is_unseen || found(entry)
        });
        !self.can_hide(|| {
            let of_relation = |relation| walk.gap.both(rings.gap_of(relation, None));
            relation.map_or(walk.gap, of_relation)
        })
    }

    /// Whether what is missing, once it has been looked up, can be of a transaction that the
    /// snapshot does not see.
    pub(crate) fn can_hide(&self, gap: impl FnOnce() -> Gap) -> bool {
        let gap = gap();
        gap.fxid >= self.snapshot.xmin() && gap.can_hide(&self.snapshot.survey(), self.prefix)
    }

    /// What the rings do not tell of rows, their versions may. Those of definitions tell nothing.
    pub(crate) fn shows_no_writer(&self, relation: Relation, read: &IntervalSet) -> bool {
        !is_definition(relation) && self.snapshot.shows_no_writer(relation, read)
    }

    /// Whether the snapshot sees what the entry tells of. In doubt (it is just being overwritten),
    /// yes.
    pub(crate) fn has_seen(&self, entry: &Entry) -> bool {
        self.snapshot.sees(entry.fxid)
            && (entry.csn.is_none() || !self.snapshot.did_abort(entry.fxid))
    }

    /// Whether any of these predicates makes validation look at all there is.
    pub fn looks_everywhere(&self, predicates: &Predicates) -> bool {
        predicates.iter().any(|(relation, read)| {
            let mut parts = read.iter();
            parts.any(|part| part.low() != part.high())
                && is_everywhere(self.space.writes.ranges, read, &(self.ranges)(relation))
        })
    }

    /// The CSN of an entry's transaction if it is another one that the snapshot does not see, and
    /// below `before`; 0 if it cannot be found out.
    pub(crate) fn missed(&self, rings: &Rings, entry: &Entry, place: Place) -> Option<Csn> {
        if self.snapshot.is_mine(entry.fxid) || self.snapshot.has_ended(entry.fxid) {
            return None;
        }
        Some(self.csn_of(rings, entry, place)).filter(|&csn| csn < self.before)
    }

    /// The CSN of the entry's transaction: `Csn::MAX` if it will be above all that have been taken,
    /// 0 if it cannot be found out.
    fn csn_of(&self, rings: &Rings, entry: &Entry, place: Place) -> Csn {
        if let Some(csn) = entry.csn {
            return csn;
        }
        let Some(committer) = self.space.committers.get(entry.process as usize) else {
            return 0;
        };
        loop {
            match committer.look(entry.fxid) {
                CsnState::None => return Csn::MAX,
                CsnState::Known(csn) => return csn,
                CsnState::Taking if (self.wait)() => {}
                CsnState::Taking => return 0,
                // It has put the CSN into its entries before it went on, if it ever had one.
                CsnState::Gone => {
                    return match rings.again(place) {
                        Some(entry) => entry.csn.unwrap_or(0),
                        None => Csn::MAX, // overwritten, and counted as evicted before that
                    };
                }
            }
        }
    }
}

/// A conflict with that entry.
pub(crate) fn conflict(entry: &Entry, read: Interval, csn: Csn, map: &RangeMap) -> Conflict {
    let in_range = entry.keys != Interval::ALL;
    let cause = if !in_range || read == Interval::ALL {
        Cause::Relation
    } else if read.covers(&map.bounds(entry.range)) {
        Cause::Cover
    } else {
        Cause::Overlap
    };
    Conflict {
        cause,
        relation: entry.relation,
        range: in_range.then_some(entry.range),
        fxid: entry.fxid,
        csn,
        written: entry.keys,
        read,
    }
}

/// The validation of what was read of one relation.
struct RelationCheck<'v, 'a, S> {
    validation: &'v Validation<'a, S>,
    relation: Relation,
    read: &'v IntervalSet,
    found: &'v mut dyn FnMut(Conflict) -> ControlFlow<()>,
    work: &'v mut Work,
    /// What is missing of the relation in the buckets that were looked at, and the range where that
    /// was met first.
    gap: Option<(Gap, Option<Range>)>,
    stopped: bool,
}

impl<S: Snapshot> RelationCheck<'_, '_, S> {
    fn run(&mut self) -> Result<(), Refusal> {
        let validation = self.validation;
        let (relation, read) = (self.relation, self.read);
        let pair = validation.space.writes;
        let xmin = validation.snapshot.xmin();
        let is_quiet = |fxid| pair.ranges.is_unwritten(relation, None, fxid);
        let map = (validation.ranges)(relation);
        // A check that would have to look everywhere finds out first whether it must.
        if is_quiet(xmin)
            || is_everywhere(pair.ranges, read, &map) && {
                let last = pair.ranges.last_of(relation);
                last < validation.snapshot.survey().first
            }
        {
            self.work.quiet += 1;
            return Ok(());
        }
        let is_unwritten = |range| pair.ranges.is_unwritten(relation, Some(range), xmin);
        validation
            .space
            .buckets_but(&pair, relation, read, &map, &is_unwritten, |look| {
                self.bucket(&look, &map)
            })?;
        let Some((gap, range)) = self.gap.filter(|_| !self.stopped) else {
            return Ok(());
        };
        if validation.can_hide(|| gap)
            && !planted(Fault::EvictionIgnored)
            && !validation.shows_no_writer(relation, read)
        {
            let fxid = gap.fxid;
            return Err(Refusal::HistoryLost {
                relation,
                range,
                fxid,
            });
        }
        Ok(())
    }

    fn bucket(&mut self, look: &Look, map: &RangeMap) -> Result<(), Refusal> {
        if self.stopped {
            return Ok(());
        }
        let (rings, bucket) = (look.rings, look.bucket);
        let xmin = self.validation.snapshot.xmin();
        if rings.is_quiet(bucket, xmin) {
            self.work.quiet += 1;
            return Ok(());
        }
        self.work.walked += 1;
        if let Some(range) = look.range.filter(|_| !look.is_piece)
            && self.read.covers(&map.bounds(range))
        {
            self.work.covered += 1;
            rings.count_covered(self.relation, range);
        }
        let walk = rings.walk(bucket, xmin, |entry, place| {
            if let Some(conflict) = self.conflict(&rings, entry, place, map) {
                rings.count(entry, Counted::Conflict);
                self.stopped = (self.found)(conflict).is_break();
            }
            !self.stopped
        });
        self.work.slots += walk.slots;
        if walk.gap.fxid >= xmin {
            let gap = look.gap(self.relation, walk.gap);
            if gap.fxid >= xmin {
                let (known, range) = self.gap.unwrap_or((gap, look.range));
                self.gap = Some((known.either(gap), range));
            }
        }
        Ok(())
    }

    fn conflict(
        &self,
        rings: &Rings,
        entry: &Entry,
        place: Place,
        map: &RangeMap,
    ) -> Option<Conflict> {
        if entry.relation != self.relation {
            return None;
        }
        let read = entry.overlapping(self.read)?;
        let csn = self.validation.missed(rings, entry, place)?;
        if self.validation.snapshot.did_abort(entry.fxid) {
            return None;
        }
        Some(conflict(entry, read, csn, map))
    }
}
