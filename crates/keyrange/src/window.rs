//! The exclusion window. A validated transaction that missed writes before it in CSN order may
//! still stand before their writers. The condition: no transaction that must come before it stands
//! after them. The idea is that of SSN (Wang et al., 2017), with positions in place of stamps per
//! version. The proof is in README.md.

use std::ops::ControlFlow;

use crate::{
    csn::Csn,
    entry::Entry,
    fault::{Fault, planted},
    predicate::Predicates,
    register::{Numbered, RingPair},
    snapshot::Snapshot,
    validate::{Conflict, Refusal, Validation, Work},
};

/// What became of the validation of a transaction with writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where it stands: its CSN, or the position before the first that it missed.
    pub position: Csn,
    pub moved: bool,
}

/// What a transaction wrote.
#[derive(Clone, Debug)]
pub struct Written {
    pub keys: Predicates,
    /// Where it could have been told of others' rows when it wrote: at least these keys.
    pub learned: Predicates,
    /// The definitions by which it has read and written.
    pub definitions: Predicates,
}

impl<S: Snapshot> Validation<'_, S> {
    /// Where a transaction with a CSN (`before`) and these predicates stands, or why it must roll
    /// back. `written` tells what it wrote; without it the transaction does not move, as it has
    /// learned of others in other ways.
    pub fn place(
        &self,
        numbered: &Numbered,
        predicates: &Predicates,
        written: Option<&dyn Fn() -> Written>,
    ) -> (Result<Placed, Refusal>, Work) {
        let window = self.space.reads.zip(written);
        let mut first: Option<Conflict> = None;
        let (result, work) = self.conflicts(predicates, &mut |conflict| {
            if first.is_none_or(|first| conflict.csn < first.csn) {
                first = Some(conflict);
            }
            if window.is_none() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let position = numbered.csn;
        let placed = match (first, window) {
            (None, _) => result.map(|()| Placed {
                position,
                moved: false,
            }),
            (Some(first), Some((reads, written))) if result.is_ok() && is_whole(first.csn) => self
                .move_before(first.csn, numbered, predicates, &written(), &reads)
                .ok_or(Refusal::Conflict(first)),
            (Some(first), _) => Err(Refusal::Conflict(first)),
        };
        (placed, work)
    }

    fn move_before(
        &self,
        first: Csn,
        numbered: &Numbered,
        predicates: &Predicates,
        written: &Written,
        reads: &RingPair,
    ) -> Option<Placed> {
        let position = first - 1;
        let late = planted(Fault::MovedSilently);
        if !late {
            numbered.move_to(position);
        }
        if !planted(Fault::NewerIgnored) {
            self.can_stand_before(position, predicates).ok()?;
            self.can_stand_before(position, &written.definitions).ok()?;
        }
        if !planted(Fault::LaterWritesIgnored) {
            self.nobody_wrote(position, &written.learned)
                .then_some(())?;
        }
        self.nobody_read(position, &written.keys, reads)
            .then_some(())?;
        if late {
            numbered.move_to(position);
        }
        Some(Placed {
            position,
            moved: true,
        })
    }

    /// Whether no other transaction from that position on wrote there. This one need not have seen
    /// that to know of it: it could insert what the other has deleted. Whoever it knows of has
    /// ended.
    fn nobody_wrote(&self, position: Csn, keys: &Predicates) -> bool {
        let counts = |entry: &Entry| !self.snapshot.did_abort(entry.fxid);
        self.is_clear(&self.space.writes, position, keys, counts)
    }

    /// Whether no validated transaction from that position on has read what this one wrote. Those
    /// that have no CSN yet will see where it stands.
    fn nobody_read(&self, position: Csn, keys: &Predicates, reads: &RingPair) -> bool {
        self.is_clear(reads, position, keys, |_| true)
    }

    /// Whether no entry of another transaction with a CSN from `position` on that counts is among
    /// these keys, and none is missing.
    fn is_clear(
        &self,
        pair: &RingPair,
        position: Csn,
        keys: &Predicates,
        counts: impl Fn(&Entry) -> bool,
    ) -> bool {
        keys.iter().all(|(relation, keys)| {
            let map = (self.ranges)(relation);
            let clear = self.space.buckets(pair, relation, keys, &map, |look| {
                let mut is_met = false;
                let gap = look.rings.walk_since(look.bucket, position, |entry| {
                    is_met = entry.relation == relation
                        && entry.csn.is_some_and(|csn| csn >= position)
                        && !self.snapshot.is_mine(entry.fxid)
                        && entry.overlapping(keys).is_some()
                        && counts(entry);
                    !is_met
                });
                let is_whole = look.gap(relation, gap).csn < position;
                (!is_met && is_whole).then_some(()).ok_or(())
            });
            clear.is_ok()
        })
    }

    /// Whether nobody has moved before `position` whose writes were read and not seen: asked by a
    /// transaction without writes at its end, after its reads were registered with that position.
    pub fn nobody_moved(&self, position: Csn, predicates: &Predicates) -> bool {
        let pair = self.space.writes;
        let xmin = self.snapshot.xmin();
        predicates.iter().all(|(relation, read)| {
            if pair.ranges.is_unwritten(relation, None, xmin) {
                return true;
            }
            let map = (self.ranges)(relation);
            // The highest transaction that may have moved and whose entries are not all there.
            let mut hidden = 0;
            let nobody = self.space.buckets(&pair, relation, read, &map, |look| {
                let rings = look.rings;
                if rings.is_quiet(look.bucket, xmin) {
                    return Ok(());
                }
                let mut has_moved = false;
                let walk = rings.walk(look.bucket, xmin, |entry, _| {
                    has_moved = entry.relation == relation
                        && entry
                            .csn
                            .is_some_and(|csn| !is_whole(csn) && csn < position)
                        && !self.snapshot.has_ended(entry.fxid)
                        && entry.overlapping(read).is_some()
                        && !self.snapshot.did_abort(entry.fxid);
                    !has_moved
                });
                hidden = hidden.max(look.gap(relation, walk.gap).pending_fxid);
                (!has_moved).then_some(()).ok_or(())
            });
            // A transaction that has no CSN by now will find what this one has read.
            nobody.is_ok()
                && (hidden < xmin
                    || hidden < self.snapshot.survey().first
                    || self.shows_no_writer(relation, read))
        })
    }
}

/// Whether it is a CSN, not the position of somebody who has moved, and known.
fn is_whole(csn: Csn) -> bool {
    csn != 0 && csn.is_multiple_of(2)
}
