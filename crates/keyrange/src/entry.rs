//! A write as it is published.

use crate::{Relation, image::Interval, parts::Parts, predicate::IntervalSet, ranges::Range};

/// A published write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub fxid: u64,
    /// The writer's process, whose `Committer` knows the CSN while it is not here.
    pub process: u32,
    pub csn: Option<u64>,
    pub relation: Relation,
    pub range: Range,
    pub keys: Interval,
    /// Those of `keys` in which there are any.
    pub parts: Parts,
}

impl Entry {
    /// The lowest interval of the set in which something of the entry may be.
    #[inline]
    pub fn overlapping(&self, set: &IntervalSet) -> Option<Interval> {
        self.parts.overlapping(&self.keys, set)
    }
}
