//! Validation: whether somebody before me in CSN order wrote what I read without my seeing it.

use std::ops::ControlFlow;

use crate::{
    Relation,
    csn::{Csn, Standing},
    fault::{Fault, planted},
    image::Interval,
    predicate::{IntervalSet, Predicates},
    ranges::{Range, RangeMap},
    register::Board,
    ring::{Entry, Place, Rings},
};

/// What PostgreSQL knows of transactions, all by top-level 64-bit id.
pub trait Snapshot {
    /// All below had ended when the snapshot was taken.
    fn xmin(&self) -> u64;

    /// Whether it had ended when the snapshot was taken (`!XidInMVCCSnapshot`).
    fn has_ended(&self, fxid: u64) -> bool;

    /// Whether it has rolled back by now. False when in doubt.
    fn did_abort(&self, fxid: u64) -> bool;

    /// Whether it is the validated transaction itself.
    fn is_mine(&self, fxid: u64) -> bool;
}

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
    /// The snapshot does not see a transaction from before the server's start, whose writes nobody knows.
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

/// A validation about to run, at PRE_COMMIT and after registration (or, for a transaction without writes, at any time
/// after its reading point: `README.md`).
pub struct Validation<'a, S> {
    pub board: Board<'a>,
    pub snapshot: &'a S,
    /// Only transactions with a CSN below this one count: one's own CSN, or `ReadingPoint::before`.
    pub before: Csn,
    /// The ranges of a relation, as all its concurrent writers have them.
    pub ranges: &'a dyn Fn(Relation) -> RangeMap<'a>,
    /// Called while a CSN is just being written, again and again. False: waited enough; the CSN then counts as smaller.
    pub wait: &'a dyn Fn() -> bool,
}

impl<S: Snapshot> Validation<'_, S> {
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

    /// Shows `found` every conflict until it breaks off. An error: there may be others that nobody knows.
    pub fn conflicts(
        &self,
        predicates: &Predicates,
        found: &mut dyn FnMut(Conflict) -> ControlFlow<()>,
    ) -> (Result<(), Refusal>, Work) {
        let mut work = Work::default();
        let restarted = self.snapshot.xmin() < self.board.clock.complete_from();
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
                    stopped: false,
                };
                check.run()
            })
        };
        (result, work)
    }

    /// Whether the entry's transaction comes before the validated one.
    fn precedes(&self, rings: &Rings, entry: &Entry, place: Place) -> bool {
        if let Some(csn) = entry.csn {
            return csn < self.before;
        }
        let Some(committer) = self.board.committers.get(entry.process as usize) else {
            return true;
        };
        loop {
            match committer.look(entry.fxid) {
                Standing::None => return false,
                Standing::Known(csn) => return csn < self.before,
                Standing::Taking if (self.wait)() => {}
                Standing::Taking => return true,
                // It has put the CSN into its entries before it went on, if it ever had one.
                Standing::Gone => {
                    return match rings.again(place) {
                        Some(entry) => entry.csn.is_none_or(|csn| csn < self.before),
                        None => false, // overwritten, and counted as evicted before that
                    };
                }
            }
        }
    }
}

/// The validation of what was read of one relation.
struct RelationCheck<'v, 'a, S> {
    validation: &'v Validation<'a, S>,
    relation: Relation,
    read: &'v IntervalSet,
    found: &'v mut dyn FnMut(Conflict) -> ControlFlow<()>,
    work: &'v mut Work,
    stopped: bool,
}

impl<S: Snapshot> RelationCheck<'_, '_, S> {
    fn run(&mut self) -> Result<(), Refusal> {
        let board = &self.validation.board;
        let map = (self.validation.ranges)(self.relation);
        self.bucket(
            &board.relations,
            board.relations.bucket_of(self.relation, 0),
            None,
            &map,
        )?;
        let count = self
            .read
            .iter()
            .fold(0_u64, |sum, part| sum.saturating_add(map.count(part)));
        if count > board.ranges.len() as u64 {
            return (0..board.ranges.len())
                .try_for_each(|bucket| self.bucket(&board.ranges, bucket, None, &map));
        }
        let read = self.read;
        let ranges = read.iter().flat_map(|part| map.ranges_of(part));
        let mut last = None;
        for range in ranges {
            // Neighbouring intervals may be in the same range.
            if last.replace(range) != Some(range) {
                let bucket = board.ranges.bucket_of(self.relation, range);
                self.bucket(&board.ranges, bucket, Some(range), &map)?;
            }
        }
        Ok(())
    }

    fn bucket(
        &mut self,
        rings: &Rings,
        bucket: usize,
        range: Option<Range>,
        map: &RangeMap,
    ) -> Result<(), Refusal> {
        if self.stopped {
            return Ok(());
        }
        let xmin = self.validation.snapshot.xmin();
        if rings.is_quiet(bucket, xmin) {
            self.work.quiet += 1;
            return Ok(());
        }
        let covered = range.is_some_and(|range| self.read.covers(&map.bounds(range)));
        self.work.walked += 1;
        if covered {
            self.work.covered += 1;
            rings.count_covered(bucket);
        }
        let walk = rings.walk(bucket, xmin, |entry, place| {
            if let Some(conflict) = self.conflict(rings, entry, place, map) {
                rings.count_conflict(bucket);
                self.stopped = (self.found)(conflict).is_break();
            }
            !self.stopped
        });
        self.work.slots += walk.slots;
        let lost = walk.evicted_fxid >= xmin && !planted(Fault::EvictionIgnored);
        if lost && !self.stopped {
            return Err(Refusal::HistoryLost {
                relation: self.relation,
                range,
                fxid: walk.evicted_fxid,
            });
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
        let snapshot = self.validation.snapshot;
        if entry.relation != self.relation {
            return None;
        }
        let read = self.read.overlapping(&entry.keys)?;
        if snapshot.is_mine(entry.fxid)
            || snapshot.has_ended(entry.fxid)
            || !self.validation.precedes(rings, entry, place)
            || snapshot.did_abort(entry.fxid)
        {
            return None;
        }
        let in_range = entry.keys != Interval::ALL;
        let cause = if !in_range || read == Interval::ALL {
            Cause::Relation
        } else if read.covers(&map.bounds(entry.range)) {
            Cause::Cover
        } else {
            Cause::Overlap
        };
        Some(Conflict {
            cause,
            relation: self.relation,
            range: in_range.then_some(entry.range),
            fxid: entry.fxid,
            written: entry.keys,
            read,
        })
    }
}
