//! What a transaction has written: for each range its keys, of many those nearest to each other
//! joined; in too many ranges, the whole relation. Subtransactions that roll back take their writes
//! with them.

use smallvec::SmallVec;

use crate::{
    Relation,
    image::{Image, Interval},
    parts::{Parts, pack},
    predicate::{Predicates, join_nearest},
    ranges::{Range, RangeMap},
};

/// Keys of a range that are kept as they come. The model has few ranges and keys.
const FEW: usize = if cfg!(test) { 1 } else { 4 };

/// Intervals kept of more; if there are others, those nearest to each other are joined until a
/// quarter is left.
const MANY: usize = 128;

/// What was written in one range.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Touch {
    /// Different images, at most `FEW`.
    Few(SmallVec<[Image; FEW]>),
    /// Disjoint, in order.
    Many(Intervals),
}

/// More than a few keys, apart so that a range with less needs little memory.
type Intervals = SmallVec<[Interval; 1]>;

impl Touch {
    fn add(&mut self, written: Interval) {
        if let Touch::Few(keys) = self {
            if written.low() == written.high() {
                if keys.contains(&written.low()) {
                    return;
                }
                if keys.len() < FEW {
                    return keys.push(written.low());
                }
            }
            keys.sort_unstable();
            *self = Touch::Many(keys.iter().copied().map(Interval::point).collect());
        }
        if let Touch::Many(intervals) = self {
            insert(intervals, written);
            if intervals.len() > MANY {
                join_nearest(intervals, MANY / 4);
            }
        }
    }

    fn intervals(&self) -> impl Iterator<Item = Interval> + '_ {
        let (keys, many) = match self {
            Touch::Few(keys) => (&keys[..], &[][..]),
            Touch::Many(many) => (&[][..], &many[..]),
        };
        let keys = keys.iter().copied().map(Interval::point);
        keys.chain(many.iter().copied())
    }

    /// What is to be registered of it.
    fn entries(&self, mut entry: impl FnMut(Interval, Parts)) {
        match self {
            Touch::Few(keys) => {
                for &key in keys {
                    entry(Interval::point(key), Parts::ALL);
                }
            }
            Touch::Many(many) => pack(many, entry),
        }
    }
}

/// Those that overlap the interval become its hull with them.
fn insert(intervals: &mut Intervals, interval: Interval) {
    let first = intervals.partition_point(|have| have.high() < interval.low());
    let end = first + intervals[first..].partition_point(|have| have.low() <= interval.high());
    if first == end {
        return intervals.insert(first, interval);
    }
    intervals[first] = interval.hull(&intervals[first]).hull(&intervals[end - 1]);
    intervals.drain(first + 1..end);
}

/// The writes of one subtransaction, or of the transaction itself.
#[derive(Clone, Default, Debug)]
struct Level {
    nesting: u32,
    /// In the order of relations and ranges.
    ranges: Vec<(Relation, Range, Touch)>,
    /// In order.
    whole: Vec<Relation>,
}

impl Level {
    fn add(&mut self, relation: Relation, range: Range, written: Interval, most: usize) {
        if self.whole.binary_search(&relation).is_ok() {
            return;
        }
        let place = (relation, range);
        match self
            .ranges
            .binary_search_by_key(&place, |&(r, n, _)| (r, n))
        {
            Ok(at) => self.ranges[at].2.add(written),
            Err(at) => {
                let mut touch = Touch::Few(SmallVec::new());
                touch.add(written);
                self.ranges.insert(at, (relation, range, touch));
                if self.of(relation).len() > most {
                    self.add_all(relation);
                }
            }
        }
    }

    /// Where the relation's ranges are.
    fn of(&self, relation: Relation) -> std::ops::Range<usize> {
        let first = self.ranges.partition_point(|&(r, ..)| r < relation);
        let end = self.ranges.partition_point(|&(r, ..)| r <= relation);
        first..end
    }

    fn add_all(&mut self, relation: Relation) {
        self.ranges.drain(self.of(relation));
        if let Err(at) = self.whole.binary_search(&relation) {
            self.whole.insert(at, relation);
        }
    }

    fn clear(&mut self) {
        self.ranges.clear();
        self.whole.clear();
    }
}

/// Something written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    pub relation: Relation,
    /// `None`: anywhere in the relation.
    pub place: Option<(Range, Interval)>,
}

/// All writes of one transaction.
#[derive(Clone, Debug)]
pub struct WriteSet {
    /// By ascending nesting; the first is the transaction itself.
    levels: Vec<Level>,
    most_ranges: usize,
}

impl WriteSet {
    /// Nothing written yet; a relation written in more than `most_ranges` ranges counts as written
    /// as a whole.
    pub fn new(most_ranges: usize) -> Self {
        WriteSet {
            levels: vec![Level::default()],
            most_ranges,
        }
    }

    /// A key was written: the key of an inserted or deleted row; the old and the new key of an
    /// updated one (once if they are the same). `key` is what `Layout::image` tells; `nesting` is
    /// the subtransaction depth (0: the transaction).
    pub fn write(&mut self, nesting: u32, relation: Relation, map: &RangeMap, key: Interval) {
        let most = self.most_ranges;
        let level = self.level(nesting);
        let ranges = map.ranges_of(&key);
        if ranges.total() > most as u64 {
            return level.add_all(relation);
        }
        for range in ranges {
            if let Some(part) = map.bounds(range).intersection(&key) {
                level.add(relation, range, part, most);
            }
        }
    }

    /// Any key of the relation may have been written.
    pub fn write_all(&mut self, nesting: u32, relation: Relation) {
        self.level(nesting).add_all(relation);
    }

    fn level(&mut self, nesting: u32) -> &mut Level {
        if self.innermost() > nesting {
            self.release(nesting + 1); // a subtransaction that rolled back would have said so
        }
        if self.innermost() < nesting {
            self.levels.push(Level {
                nesting,
                ..Level::default()
            });
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    fn innermost(&self) -> u32 {
        self.levels.last().map_or(0, |level| level.nesting)
    }

    /// What was written in the subtransaction of that depth (at least 1), and inside it.
    pub fn inside(&self, nesting: u32) -> impl Iterator<Item = Write> + '_ {
        written(&self.levels[self.outside(nesting)..])
    }

    /// The subtransaction of that depth (at least 1) has rolled back, with all inside it.
    pub fn roll_back(&mut self, nesting: u32) {
        self.levels.truncate(self.outside(nesting));
    }

    /// The subtransaction of that depth (at least 1) has committed: its writes are now those of the
    /// one around it.
    pub fn release(&mut self, nesting: u32) {
        let ended = self.levels.split_off(self.outside(nesting));
        let most = self.most_ranges;
        for level in ended {
            let outer = self.level(nesting.saturating_sub(1));
            for relation in level.whole {
                outer.add_all(relation);
            }
            for (relation, range, touch) in level.ranges {
                for written in touch.intervals() {
                    outer.add(relation, range, written, most);
                }
            }
        }
    }

    /// How many levels are outside the subtransaction of that depth; the transaction itself always
    /// is.
    fn outside(&self, nesting: u32) -> usize {
        self.levels
            .partition_point(|level| level.nesting < nesting.max(1))
    }

    /// All that was written.
    pub fn iter(&self) -> impl Iterator<Item = Write> + '_ {
        written(&self.levels)
    }

    /// Shows `entry` what is to be registered: a relation and its range, or none if that may be
    /// any, and the parts of the interval there.
    pub(crate) fn entries(
        &self,
        mut entry: impl FnMut(Relation, Option<(Range, Interval, Parts)>),
    ) {
        for level in &self.levels {
            for &relation in &level.whole {
                entry(relation, None);
            }
            for (relation, range, touch) in &level.ranges {
                touch.entries(|keys, parts| entry(*relation, Some((*range, keys, parts))));
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        let is_empty = |level: &Level| level.ranges.is_empty() && level.whole.is_empty();
        self.levels.iter().all(is_empty)
    }

    /// Forgets all, but keeps the memory.
    pub fn clear(&mut self) {
        self.levels.truncate(1);
        self.levels[0].clear();
    }

    /// The written keys as predicates, at most `most` intervals for a relation.
    pub fn keys(&self, most: usize) -> Predicates {
        let mut keys = Predicates::new(most);
        for written in self.iter() {
            let interval = written.place.map_or(Interval::ALL, |(_, keys)| keys);
            keys.read(written.relation, &[interval]);
        }
        keys
    }
}

fn written(levels: &[Level]) -> impl Iterator<Item = Write> + '_ {
    levels.iter().flat_map(|level| {
        let whole = level.whole.iter().map(|&relation| Write {
            relation,
            place: None,
        });
        let ranges = level.ranges.iter().flat_map(|(relation, range, touch)| {
            touch.intervals().map(|written| Write {
                relation: *relation,
                place: Some((*range, written)),
            })
        });
        whole.chain(ranges)
    })
}
