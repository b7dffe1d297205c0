//! Which buckets are looked at for what was read: `README.md`, "Pieces".

use crate::{
    Relation, is_definition,
    mark::Gap,
    predicate::IntervalSet,
    ranges::{Range, RangeMap},
    register::Ledger,
    ring::Rings,
    validate::{Snapshot, Validation},
};

/// Whether these keys are looked for in all buckets.
pub(crate) fn is_everywhere(rings: Rings, read: &IntervalSet, map: &RangeMap) -> bool {
    // Who has read everything need not know how the writers of the time divided the relation.
    read.is_everything() || read.rings_in(map) > rings.len() as u64
}

/// A bucket that is looked at for what was read of a relation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'l> {
    pub(crate) rings: Rings<'l>,
    pub(crate) bucket: usize,
    /// `None`: for any of its ranges.
    pub(crate) range: Option<Range>,
    /// For a piece of it.
    pub(crate) is_piece: bool,
}

impl<'l> Look<'l> {
    fn of_all(rings: Rings<'l>, bucket: usize) -> Self {
        Look {
            rings,
            bucket,
            range: None,
            is_piece: false,
        }
    }

    /// What is missing there of the relation, if so much is missing in the bucket.
    pub(crate) fn gap(&self, relation: Relation, in_bucket: Gap) -> Gap {
        if in_bucket == Gap::default() {
            return in_bucket;
        }
        in_bucket.both(self.rings.gap_of(relation, self.range))
    }
}

impl<'a, S: Snapshot> Validation<'a, S> {
    /// Shows `visit` the buckets where writes to what was read of a relation may be, until it fails.
    pub(crate) fn buckets<'l, E>(
        &self,
        ledger: &Ledger<'l>,
        relation: Relation,
        read: &IntervalSet,
        map: &RangeMap,
        visit: impl FnMut(Look<'l>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        'a: 'l,
    {
        self.buckets_but(ledger, relation, read, map, &|_| false, visit)
    }

    /// The same without those of ranges that are known to be of no concern.
    pub(crate) fn buckets_but<'l, E>(
        &self,
        ledger: &Ledger<'l>,
        relation: Relation,
        read: &IntervalSet,
        map: &RangeMap,
        is_out: &dyn Fn(Range) -> bool,
        mut visit: impl FnMut(Look<'l>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        'a: 'l,
    {
        let (relations, rings) = (ledger.relations, ledger.ranges);
        if is_definition(relation) || !is_everywhere(rings, read, map) {
            return self.narrow(ledger, relation, read, map, is_out, visit);
        }
        visit(Look::of_all(relations, relations.bucket_of(relation, 0)))?;
        (0..rings.len()).try_for_each(|bucket| visit(Look::of_all(rings, bucket)))
    }

    /// The same of a definition, or of keys that are not looked for in all buckets.
    pub(crate) fn narrow<'l, E>(
        &self,
        ledger: &Ledger<'l>,
        relation: Relation,
        read: &IntervalSet,
        map: &RangeMap,
        is_out: &dyn Fn(Range) -> bool,
        mut visit: impl FnMut(Look<'l>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        'a: 'l,
    {
        if is_definition(relation) {
            let rings = self.board.definitions;
            return visit(Look::of_all(rings, rings.bucket_of(relation, 0)));
        }
        let (relations, rings) = (ledger.relations, ledger.ranges);
        visit(Look::of_all(relations, relations.bucket_of(relation, 0)))?;
        // The last range, and whether all of its pieces have been shown, or none need be.
        let mut last = None;
        for part in read.iter() {
            for range in map.ranges_of(part) {
                let mut look = Look {
                    rings,
                    bucket: rings.bucket_of(relation, range),
                    range: Some(range),
                    is_piece: false,
                };
                // Neighbouring intervals may be in the same range.
                let is_done = match last {
                    Some((before, is_done)) if before == range => is_done,
                    _ => {
                        let is_out = is_out(range);
                        if !is_out {
                            visit(look)?;
                        }
                        is_out
                    }
                };
                let pieces = if is_done { 0..0 } else { map.pieces_of(part) };
                let is_all = is_done || pieces.len() as u32 == map.pieces();
                last = Some((range, is_all));
                look.is_piece = true;
                for piece in pieces {
                    look.bucket = rings.bucket_of_piece(relation, range, Some(piece));
                    visit(look)?;
                }
            }
        }
        Ok(())
    }
}
