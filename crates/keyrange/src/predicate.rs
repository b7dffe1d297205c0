//! What a transaction has read: intervals of images for each relation, a superset of its scans.

use smallvec::SmallVec;

use crate::{Relation, image::Interval, ranges::RangeMap};

/// Intervals of a relation that need no memory of their own.
const INLINE: usize = 8;

/// Disjoint intervals in order, with at least one image between any two.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct IntervalSet {
    intervals: SmallVec<[Interval; INLINE]>,
}

impl IntervalSet {
    /// Adds an interval. With more than `most` (at least 1), the two nearest to each other become their hull, which is returned.
    pub fn insert(&mut self, interval: Interval, most: usize) -> Option<Interval> {
        let is_below = |have: &Interval| have.high() < interval.low() && !have.touches(&interval);
        if self.intervals.len() < most && self.intervals.last().is_none_or(is_below) {
            self.intervals.push(interval);
            return None;
        }
        let first = self.intervals.partition_point(is_below);
        let touching = self.intervals[first..]
            .iter()
            .take_while(|have| have.touches(&interval))
            .count();
        let hull = self.intervals[first..first + touching]
            .iter()
            .fold(interval, |hull, have| hull.hull(have));
        if touching == 0 {
            self.intervals.insert(first, hull);
        } else {
            self.intervals[first] = hull;
            self.intervals.drain(first + 1..first + touching);
        }
        if self.intervals.len() > most.max(1) {
            self.merge_nearest()
        } else {
            None
        }
    }

    fn merge_nearest(&mut self) -> Option<Interval> {
        let gap = |n: usize| self.intervals[n + 1].low() - self.intervals[n].high();
        let nearest = (0..self.intervals.len() - 1).min_by_key(|&n| gap(n))?;
        let second = self.intervals.remove(nearest + 1);
        let hull = self.intervals[nearest].hull(&second);
        self.intervals[nearest] = hull;
        Some(hull)
    }

    /// The interval that overlaps `other`, the lowest of several.
    pub fn overlapping(&self, other: &Interval) -> Option<Interval> {
        let at = self
            .intervals
            .partition_point(|have| have.high() < other.low());
        self.intervals
            .get(at)
            .copied()
            .filter(|have| have.overlaps(other))
    }

    /// Whether all of `other` is in the set.
    pub fn covers(&self, other: &Interval) -> bool {
        self.overlapping(other)
            .is_some_and(|have| have.covers(other))
    }

    /// Whether every key is in the set.
    #[inline]
    pub fn is_everything(&self) -> bool {
        matches!(self.intervals[..], [Interval::ALL])
    }

    /// How many ranges have keys in the set, one counted again for each interval in it.
    #[inline]
    pub fn ranges_in(&self, map: &RangeMap) -> u64 {
        let totals = self.iter().map(|part| map.ranges_of(part).total());
        totals.fold(0, u64::saturating_add)
    }

    /// In how many rings their entries are looked for, at most.
    #[inline]
    pub(crate) fn rings_in(&self, map: &RangeMap) -> u64 {
        let totals = self.iter().map(|part| {
            let pieces = map.pieces_of(part).len() as u64;
            map.ranges_of(part).total().saturating_mul(1 + pieces)
        });
        totals.fold(0, u64::saturating_add)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Interval> {
        self.intervals.iter()
    }

    pub fn len(&self) -> usize {
        self.intervals.len()
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }
}

/// All predicates of one transaction. Reads of rolled-back subtransactions stay.
#[derive(Clone, Debug)]
pub struct Predicates {
    /// In the order of the relations.
    relations: Vec<(Relation, IntervalSet)>,
    most: usize,
}

impl Predicates {
    /// No predicate yet; at most `most` intervals are kept for a relation, by widening them.
    pub fn new(most: usize) -> Self {
        Predicates {
            relations: Vec::new(),
            most,
        }
    }

    /// The transaction has read, or looked for, the keys of these intervals, as `Layout::project` tells them.
    pub fn read(&mut self, relation: Relation, intervals: &[Interval]) {
        for &interval in intervals {
            self.read_one(relation, interval);
        }
    }

    /// The same for one interval. Returns what has been widened for it, if anything: keys there now count as read that had not
    /// been.
    pub fn read_one(&mut self, relation: Relation, interval: Interval) -> Option<Interval> {
        let at = self.place(relation).unwrap_or_else(|at| {
            let new = (relation, IntervalSet::default());
            self.relations.insert(at, new);
            at
        });
        self.relations[at].1.insert(interval, self.most)
    }

    /// Where the relation is, or belongs.
    fn place(&self, relation: Relation) -> Result<usize, usize> {
        self.relations
            .binary_search_by_key(&relation, |known| known.0)
    }

    /// The transaction has read what no interval describes.
    pub fn read_all(&mut self, relation: Relation) {
        self.read(relation, &[Interval::ALL]);
    }

    /// Whether the transaction has read all of that before.
    pub fn covers(&self, relation: Relation, interval: &Interval) -> bool {
        self.place(relation)
            .is_ok_and(|at| self.relations[at].1.covers(interval))
    }

    /// Forgets all, but keeps the memory.
    pub fn clear(&mut self) {
        self.relations.clear();
    }

    /// The relations with a predicate, each with its intervals.
    pub fn iter(&self) -> impl Iterator<Item = (Relation, &IntervalSet)> {
        self.relations
            .iter()
            .map(|(relation, set)| (*relation, set))
    }

    pub fn is_empty(&self) -> bool {
        self.relations.is_empty()
    }
}
