//! Which buckets are looked at for what was read: `README.md`, "Pieces".

use smallvec::SmallVec;

use crate::{
    Relation,
    fault::{Fault, planted},
    is_definition,
    mark::Gap,
    predicate::IntervalSet,
    ranges::{Range, RangeMap},
    register::{RingPair, RingSpace},
    ring::Rings,
};

/// Whether these keys are looked for in all buckets.
pub(crate) fn is_everywhere(rings: Rings, read: &IntervalSet, map: &RangeMap) -> bool {
    // A read of everything need not know how the writers of the time divided the relation.
    if read.is_everything() {
        return true;
    }
    let most = rings.len() as u64;
    let at_most = read.iter().try_fold(0, |sum: u64, part| {
        let each = 1 + map.pieces_of(&part).len() as u64;
        let sum = sum.saturating_add(map.ranges_of(&part).total().saturating_mul(each));
        (sum <= most).then_some(sum)
    });
    at_most.is_none() && has_more_rings(read, map, most)
}

/// As above, but keys that share a ring count once.
#[cold]
fn has_more_rings(read: &IntervalSet, map: &RangeMap, most: u64) -> bool {
    let mut count = 0;
    let counted = each_ring(read, map, &|_| false, |_, _| {
        count += 1;
        (count <= most).then_some(()).ok_or(())
    });
    counted.is_err()
}

/// Shows `visit` the rings of these keys, each once, until it fails: for each range its own
/// (`None`), then those of its pieces in which one of the keys can be; nothing of ranges that
/// `is_out` knows to be of no concern.
fn each_ring<E>(
    read: &IntervalSet,
    map: &RangeMap,
    is_out: &dyn Fn(Range) -> bool,
    mut visit: impl FnMut(Range, Option<u32>) -> Result<(), E>,
) -> Result<(), E> {
    let mut last = None;
    // Of the last range: whether there is nothing left to show, and which pieces have been shown.
    let mut is_done = false;
    let mut shown = Shown::default();
    for part in read.iter() {
        for range in map.ranges_of(&part) {
            // Neighbouring intervals may be in the same range.
            if last.replace(range) != Some(range) {
                shown.clear();
                is_done = is_out(range);
                if !is_done && !planted(Fault::RangeMissed) {
                    visit(range, None)?;
                }
            }
            if is_done {
                continue;
            }
            for piece in map.pieces_of(&part) {
                if shown.add(piece) {
                    visit(range, Some(piece))?;
                }
            }
            is_done = shown.count == map.pieces();
        }
    }
    Ok(())
}

/// Pieces of a range.
#[derive(Default)]
struct Shown {
    bits: SmallVec<[u64; 4]>,
    count: u32,
}

impl Shown {
    /// Whether it has not been among them.
    fn add(&mut self, piece: u32) -> bool {
        let (word, bit) = ((piece / u64::BITS) as usize, 1 << (piece % u64::BITS));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.count += u32::from(is_new);
        is_new
    }

    fn clear(&mut self) {
        self.bits.clear();
        self.count = 0;
    }
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

impl<'a> RingSpace<'a> {
    /// Shows `visit` the buckets where writes to what was read of a relation may be, until it
    /// fails.
    pub(crate) fn buckets<'l, E>(
        &self,
        pair: &RingPair<'l>,
        relation: Relation,
        read: &IntervalSet,
        map: &RangeMap,
        visit: impl FnMut(Look<'l>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        'a: 'l,
    {
        self.buckets_but(pair, relation, read, map, &|_| false, visit)
    }

    /// As `buckets`, without those of ranges for which `is_out` is true: they are known to be of no
    /// concern.
    pub(crate) fn buckets_but<'l, E>(
        &self,
        pair: &RingPair<'l>,
        relation: Relation,
        read: &IntervalSet,
        map: &RangeMap,
        is_out: &dyn Fn(Range) -> bool,
        mut visit: impl FnMut(Look<'l>) -> Result<(), E>,
    ) -> Result<(), E>
    where
        'a: 'l,
    {
        let (relations, rings) = (pair.relations, pair.ranges);
        if is_definition(relation) || !is_everywhere(rings, read, map) {
            return self.narrow(pair, relation, read, map, is_out, visit);
        }
        visit(Look::of_all(relations, relations.bucket_of(relation, 0)))?;
        (0..rings.len()).try_for_each(|bucket| visit(Look::of_all(rings, bucket)))
    }

    /// As `buckets_but`, for a definition, or for keys that are not looked for in all buckets.
    pub(crate) fn narrow<'l, E>(
        &self,
        pair: &RingPair<'l>,
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
            let rings = self.definitions;
            return visit(Look::of_all(rings, rings.bucket_of(relation, 0)));
        }
        let (relations, rings) = (pair.relations, pair.ranges);
        visit(Look::of_all(relations, relations.bucket_of(relation, 0)))?;
        each_ring(read, map, is_out, |range, piece| {
            visit(Look {
                rings,
                bucket: rings.bucket_of_piece(relation, range, piece),
                range: Some(range),
                is_piece: piece.is_some(),
            })
        })
    }
}
