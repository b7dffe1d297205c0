//! What a transaction has written: for each range a few exact keys, then their hull; in too many ranges, the whole relation.
//! Subtransactions that roll back take their writes with them.

use smallvec::SmallVec;

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
    Keys(SmallVec<[Image; KEYS]>),
    Hull(Interval),
}

impl Touch {
    fn add(&mut self, written: Interval) {
        match self {
            Touch::Keys(keys) if written.low() == written.high() => {
                if keys.contains(&written.low()) {
                    return;
                }
                if keys.len() < KEYS {
                    return keys.push(written.low());
                }
            }
            _ => {}
        }
        let hull = self.intervals().fold(written, |hull, one| hull.hull(&one));
        *self = Touch::Hull(hull);
    }

    fn intervals(&self) -> impl Iterator<Item = Interval> + '_ {
        let (hull, keys) = match self {
            Touch::Hull(hull) => (Some(*hull), &[][..]),
            Touch::Keys(keys) => (None, &keys[..]),
        };
        hull.into_iter()
            .chain(keys.iter().map(|&key| Interval::point(key)))
    }
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
                let mut touch = Touch::Keys(SmallVec::new());
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

/// One write to be registered.
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

    /// The subtransaction of that depth (at least 1) has committed: its writes are now those of the one around it.
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

    /// How many levels are outside the subtransaction of that depth; the transaction itself always is.
    fn outside(&self, nesting: u32) -> usize {
        self.levels
            .partition_point(|level| level.nesting < nesting.max(1))
    }

    /// What is to be registered.
    pub fn iter(&self) -> impl Iterator<Item = Write> + '_ {
        written(&self.levels)
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
