//! What a transaction has written: for each range a few exact keys, then their hull; in too many ranges, the whole relation.
//! Subtransactions that roll back take their writes with them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Relation,
    image::{Image, Interval},
    predicate::Predicates,
    ranges::{Range, RangeMap},
};

/// Exact keys kept for a range.
pub const KEYS: usize = 4;

/// What was written in one range.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Touch {
    /// Different images, at most `KEYS`.
    Keys(Vec<Image>),
    Hull(Interval),
}

impl Touch {
    fn add(&mut self, written: Interval) {
        match self {
            Touch::Keys(keys) if written.low() == written.high() => {
                if keys.contains(&written.low()) {
                    return;
                }
                keys.push(written.low());
                if keys.len() > KEYS {
                    *self = Touch::Hull(self.hull().unwrap_or(written));
                }
            }
            _ => *self = Touch::Hull(self.hull().map_or(written, |hull| hull.hull(&written))),
        }
    }

    fn hull(&self) -> Option<Interval> {
        match self {
            Touch::Hull(hull) => Some(*hull),
            Touch::Keys(keys) => keys
                .iter()
                .map(|&key| Interval::point(key))
                .reduce(|a, b| a.hull(&b)),
        }
    }

    fn intervals(&self) -> Vec<Interval> {
        match self {
            Touch::Hull(hull) => vec![*hull],
            Touch::Keys(keys) => keys.iter().map(|&key| Interval::point(key)).collect(),
        }
    }
}

/// The writes of one subtransaction, or of the transaction itself.
#[derive(Clone, Default, Debug)]
struct Level {
    nesting: u32,
    ranges: BTreeMap<Relation, BTreeMap<Range, Touch>>,
    whole: BTreeSet<Relation>,
}

impl Level {
    fn add(&mut self, relation: Relation, range: Range, written: Interval, most: usize) {
        if self.whole.contains(&relation) {
            return;
        }
        let ranges = self.ranges.entry(relation).or_default();
        let touch = ranges.entry(range).or_insert(Touch::Keys(Vec::new()));
        touch.add(written);
        if ranges.len() > most {
            self.add_all(relation);
        }
    }

    fn add_all(&mut self, relation: Relation) {
        self.ranges.remove(&relation);
        self.whole.insert(relation);
    }
}

/// One write to be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
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
    /// Nothing written yet; a relation written in more than `most_ranges` ranges counts as written as a whole.
    pub fn new(most_ranges: usize) -> Self {
        WriteSet {
            levels: vec![Level::default()],
            most_ranges,
        }
    }

    /// A key was written: the key of an inserted or deleted row; the old and the new key of an updated one (once if they
    /// are the same). `key` is what `Layout::image` tells; `nesting` is the subtransaction depth (0: the transaction).
    pub fn write(&mut self, nesting: u32, relation: Relation, map: &RangeMap, key: Interval) {
        let most = self.most_ranges;
        let level = self.level(nesting);
        if map.count(&key) > most as u64 {
            return level.add_all(relation);
        }
        for range in map.ranges_of(&key) {
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
    pub fn inside(&self, nesting: u32) -> impl Iterator<Item = Written> + '_ {
        written(&self.levels[self.outside(nesting)..])
    }

    /// The subtransaction of that depth (at least 1) has rolled back, with all inside it.
    pub fn roll_back(&mut self, nesting: u32) {
        self.levels.truncate(self.outside(nesting));
    }

    /// The subtransaction of that depth (at least 1) has committed: its writes are now those of the one around it.
    pub fn release(&mut self, nesting: u32) {
        let ended = self.levels.split_off(self.outside(nesting));
        let most = self.most_ranges;
        for level in ended {
            let outer = self.level(nesting.saturating_sub(1));
            for relation in level.whole {
                outer.add_all(relation);
            }
            for (relation, ranges) in level.ranges {
                for (range, touch) in ranges {
                    for written in touch.intervals() {
                        outer.add(relation, range, written, most);
                    }
                }
            }
        }
    }

    /// How many levels are outside the subtransaction of that depth; the transaction itself always is.
    fn outside(&self, nesting: u32) -> usize {
        self.levels
            .partition_point(|level| level.nesting < nesting.max(1))
    }

    /// What is to be registered.
    pub fn iter(&self) -> impl Iterator<Item = Written> + '_ {
        written(&self.levels)
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The same keys as predicates, at most `most` intervals for a relation.
    pub fn keys(&self, most: usize) -> Predicates {
        let mut keys = Predicates::new(most);
        for written in self.iter() {
            let interval = written.place.map_or(Interval::ALL, |(_, keys)| keys);
            keys.read(written.relation, &[interval]);
        }
        keys
    }
}

fn written(levels: &[Level]) -> impl Iterator<Item = Written> + '_ {
    levels.iter().flat_map(|level| {
        let whole = level.whole.iter().map(|&relation| Written {
            relation,
            place: None,
        });
        let ranges = level.ranges.iter().flat_map(|(&relation, ranges)| {
            ranges.iter().flat_map(move |(&range, touch)| {
                touch.intervals().into_iter().map(move |written| Written {
                    relation,
                    place: Some((range, written)),
                })
            })
        });
        whole.chain(ranges)
    })
}
