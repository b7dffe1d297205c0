//! What a transaction has read: intervals of images for each relation, a superset of its scans.

use std::collections::BTreeMap;

use smallvec::{Array, SmallVec};

use crate::{
    Relation,
    image::{Image, Interval},
    ranges::RangeMap,
};

/// Intervals of a relation that need no memory of their own.
const INLINE: usize = 8;

/// With more than these, a set is a tree, unless its intervals came in order.
const FEW: usize = 64;

/// Disjoint intervals in order, with at least one image between any two.
#[derive(Clone, Default, Debug)]
pub struct IntervalSet {
    /// Empty if there is a tree.
    few: SmallVec<[Interval; INLINE]>,
    /// By their lowest images, the highest ones.
    many: Option<BTreeMap<Image, Image>>,
}

impl IntervalSet {
    /// Adds an interval. With more than `most` (at least 1), those nearest to each other become
    /// their hulls, as many as to leave room for others. Whether that has happened.
    pub fn insert(&mut self, interval: Interval, most: usize) -> bool {
        if self.many.is_none() {
            let is_below =
                |have: &Interval| have.high() < interval.low() && !have.touches(&interval);
            if self.few.len() < most && self.few.last().is_none_or(is_below) {
                self.few.push(interval);
                return false;
            }
            if self.few.len() < FEW {
                self.insert_few(interval);
            } else {
                self.many = Some(self.few.drain(..).map(ends).collect());
            }
        }
        if let Some(many) = &mut self.many {
            insert_into(many, interval);
            if many.len() <= INLINE {
                self.few = self.iter().collect();
                self.many = None;
            }
        }
        let is_full = self.len() > most.max(1);
        if is_full {
            self.join(most);
        }
        is_full
    }

    fn insert_few(&mut self, interval: Interval) {
        let is_below = |have: &Interval| have.high() < interval.low() && !have.touches(&interval);
        let first = self.few.partition_point(is_below);
        let touching = self.few[first..]
            .iter()
            .take_while(|have| have.touches(&interval))
            .count();
        let hull = self.few[first..first + touching]
            .iter()
            .fold(interval, |hull, have| hull.hull(have));
        if touching == 0 {
            self.few.insert(first, hull);
        } else {
            self.few[first] = hull;
            self.few.drain(first + 1..first + touching);
        }
    }

    #[cold]
    fn join(&mut self, most: usize) {
        let mut all: SmallVec<[Interval; INLINE]> = self.iter().collect();
        join_nearest(&mut all, most - most / 4);
        self.few = all;
        self.many = None;
    }

    /// The interval that overlaps `other`, the lowest of several.
    pub fn overlapping(&self, other: &Interval) -> Option<Interval> {
        let Some(many) = &self.many else {
            let at = self.few.partition_point(|have| have.high() < other.low());
            let found = self.few.get(at).copied();
            return found.filter(|have| have.overlaps(other));
        };
        let below = many.range(..=other.low()).next_back();
        let below = below.filter(|(_, high)| **high >= other.low());
        let found = below.or_else(|| many.range(other.low()..=other.high()).next());
        found.and_then(|(&low, &high)| Interval::new(low, high))
    }

    /// Whether all of `other` is in the set.
    pub fn covers(&self, other: &Interval) -> bool {
        self.overlapping(other)
            .is_some_and(|have| have.covers(other))
    }

    /// Whether every key is in the set.
    #[inline]
    pub fn is_everything(&self) -> bool {
        matches!(self.few[..], [Interval::ALL])
    }

    /// How many ranges have keys in the set.
    #[inline]
    pub fn ranges_in(&self, map: &RangeMap) -> u64 {
        if let [one] = &self.few[..] {
            return map.ranges_of(one).total();
        }
        let mut last = None;
        self.iter().fold(0, |sum: u64, part| {
            let again = last == Some(map.range_of(part.low()));
            last = Some(map.range_of(part.high()));
            sum.saturating_add(map.ranges_of(&part).total() - u64::from(again))
        })
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Interval> + '_ {
        let many = self.many.iter().flat_map(|many| many.iter());
        let many = many.filter_map(|(&low, &high)| Interval::new(low, high));
        self.few.iter().copied().chain(many)
    }

    pub fn len(&self) -> usize {
        match &self.many {
            Some(many) => many.len(),
            None => self.few.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for IntervalSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for IntervalSet {}

fn ends(interval: Interval) -> (Image, Image) {
    (interval.low(), interval.high())
}

/// Those that touch it become its hull with them.
fn insert_into(many: &mut BTreeMap<Image, Image>, interval: Interval) {
    let (mut low, mut high) = ends(interval);
    while let Some((&first, &last)) = many.range(..=high.saturating_add(1)).next_back()
        && last.saturating_add(1) >= low
    {
        many.remove(&first);
        low = low.min(first);
        high = high.max(last);
    }
    many.insert(low, high);
}

/// Leaves at most `most` of these intervals, which are disjoint and in order: those with the
/// smallest gaps between them become their hulls.
pub(crate) fn join_nearest<A: Array<Item = Interval>>(parts: &mut SmallVec<A>, most: usize) {
    let surplus = parts.len().saturating_sub(most.max(1));
    if surplus == 0 {
        return;
    }
    let gap = |n: usize| parts[n + 1].low() - parts[n].high();
    let mut gaps: Vec<usize> = (0..parts.len() - 1).collect();
    gaps.select_nth_unstable_by_key(surplus - 1, |&n| (gap(n), n));
    gaps.truncate(surplus);
    gaps.sort_unstable();
    let mut closed = gaps.into_iter().peekable();
    let mut end = 0;
    for n in 1..parts.len() {
        let next = parts[n];
        if closed.next_if_eq(&(n - 1)).is_some() {
            parts[end] = parts[end].hull(&next);
        } else {
            end += 1;
            parts[end] = next;
        }
    }
    parts.truncate(end + 1);
}

/// All predicates of one transaction. Reads of rolled-back subtransactions stay.
#[derive(Clone, Debug)]
pub struct Predicates {
    /// In the order of the relations.
    relations: Vec<(Relation, IntervalSet)>,
    most: usize,
    /// Intervals of all relations.
    count: usize,
}

/// Once a transaction has four times as many intervals as a relation may have, none gets more than
/// these.
const SCARCE: usize = 256;

impl Predicates {
    /// No predicate yet; at most `most` intervals are kept for a relation, by widening them, and in
    /// all not much more than four times as many.
    pub fn new(most: usize) -> Self {
        Predicates {
            relations: Vec::new(),
            most,
            count: 0,
        }
    }

    /// The transaction has read, or looked for, the keys of these intervals, as `Layout::project`
    /// tells them.
    pub fn read(&mut self, relation: Relation, intervals: &[Interval]) {
        for &interval in intervals {
            self.read_one(relation, interval);
        }
    }

    /// As `read`, for one interval. Returns whether others have been widened for it: keys now count
    /// as read that had not been.
    pub fn read_one(&mut self, relation: Relation, interval: Interval) -> bool {
        let at = self.place(relation).unwrap_or_else(|at| {
            let new = (relation, IntervalSet::default());
            self.relations.insert(at, new);
            at
        });
        let most = if self.count < 4 * self.most {
            self.most
        } else {
            self.most.min(SCARCE)
        };
        let set = &mut self.relations[at].1;
        let before = set.len();
        let is_widened = set.insert(interval, most);
        self.count = self.count + set.len() - before;
        is_widened
    }

    /// All that the other has read of the relation.
    pub fn read_as(&mut self, relation: Relation, other: &Predicates) {
        if let Ok(at) = other.place(relation) {
            for interval in other.relations[at].1.iter() {
                self.read_one(relation, interval);
            }
        }
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
        self.count = 0;
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
