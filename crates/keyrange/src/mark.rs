//! What is remembered of a relation, and of each of its ranges, beside the rings: who was the last
//! to register there, and of whom entries are missing. A ring is shared by many ranges of many
//! tables; these words tell whether what happened to it is of any concern to who has read a given
//! table or range.
//!
//! A relation or range has its mark by a hash. Two that share one only count each other's writes:
//! words rise, and never fall.

use crate::{
    Relation,
    csn::Csn,
    fault::{Fault, planted},
    ranges::Range,
    survey::Survey,
    word::Word,
};

/// The highest transactions and CSN of entries that are missing somewhere.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Missing {
    /// The highest transaction of which an entry is missing.
    pub(crate) fxid: Word,
    /// The highest CSN of those that had one.
    pub(crate) csn: Word,
    /// The highest transaction that found no place, or whose entry was overwritten: before it had a
    /// CSN, or after it had moved to an earlier position.
    pub(crate) pending_fxid: Word,
}

impl Missing {
    /// To be read after the slots.
    #[inline]
    pub(crate) fn gap(&self) -> Gap {
        Gap {
            fxid: self.fxid.get(),
            csn: self.csn.get(),
            pending_fxid: self.pending_fxid.get(),
        }
    }
}

/// Of whom entries can be missing: nobody above these.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Gap {
    /// Entries of transactions up to this one can be missing.
    pub fxid: u64,
    /// The highest CSN of those that had one when they were overwritten.
    pub csn: Csn,
    /// The highest of the others.
    pub pending_fxid: u64,
}

impl Gap {
    /// What is missing by two marks that were both raised for each missing entry: each of them is
    /// an upper bound.
    pub(crate) fn both(self, other: Gap) -> Gap {
        Gap {
            fxid: self.fxid.min(other.fxid),
            csn: self.csn.min(other.csn),
            pending_fxid: self.pending_fxid.min(other.pending_fxid),
        }
    }

    /// What is missing here or there.
    pub(crate) fn either(self, other: Gap) -> Gap {
        Gap {
            fxid: self.fxid.max(other.fxid),
            csn: self.csn.max(other.csn),
            pending_fxid: self.pending_fxid.max(other.pending_fxid),
        }
    }

    /// Whether an entry can be missing of a transaction that a snapshot does not see. `survey` was
    /// made after the marks were read; all that ran when the snapshot was taken, and that it does
    /// not see, have CSNs above `prefix`.
    pub(crate) fn can_hide(&self, survey: &Survey, prefix: Csn) -> bool {
        let is_of_running = self.fxid >= survey.first
            && (self.csn > survey.prefix.max(prefix) || self.pending_fxid >= survey.first);
        self.fxid >= survey.end || is_of_running
    }
}

/// The mark of a relation or a range. Zeroed memory is a new one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Mark {
    /// The highest transaction that has ever been about to register there.
    last_fxid: Word,
    missing: Missing,
    /// What the counters are about: the relation or range that was the last to be counted here.
    counted: Word,
    registrations: Word,
    conflicts: Word,
    covered: Word,
}

#[cfg(not(test))] // a model's words are larger
const _: () = assert!(size_of::<Mark>() == 64);

/// The marks of a relation and of a range of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spots {
    relation: u32,
    range: u32,
}

/// What is counted of a relation or range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    Registration,
    Conflict,
    Cover,
}

/// All marks of a pair of rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks<'a>(&'a [Mark]);

fn name(relation: Relation, range: Option<Range>) -> u64 {
    let place = range.map_or(0x5bd1_e995, |range| {
        range.rotate_left(29) ^ 0x27d4_eb2f_1656_67c5
    });
    let mixed =
        (relation ^ place.wrapping_mul(0x9fb2_1c65_1e98_df25)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53) | 1
}

impl<'a> Marks<'a> {
    pub(crate) fn new(marks: &'a [Mark]) -> Self {
        assert!(!marks.is_empty());
        Marks(marks)
    }

    fn at(&self, name: u64) -> u32 {
        ((name >> 32) as usize % self.0.len()) as u32
    }

    pub(crate) fn spots(&self, relation: Relation, range: Range) -> Spots {
        Spots {
            relation: self.at(name(relation, None)),
            range: self.at(name(relation, Some(range))),
        }
    }

    fn of(&self, spots: Spots) -> [&'a Mark; 2] {
        [spots.relation, spots.range].map(|at| &self.0[at as usize])
    }

    fn mark(&self, relation: Relation, range: Option<Range>) -> &'a Mark {
        &self.0[self.at(name(relation, range)) as usize]
    }

    /// A transaction is about to register there. Before it takes its CSN.
    pub(crate) fn enter(&self, spots: Spots, fxid: u64) {
        if !planted(Fault::MarkNotRaised) {
            for mark in self.of(spots) {
                mark.last_fxid.lift(fxid);
            }
        }
    }

    /// What is missing of both. Before it is taken away, or its CSN is.
    pub(crate) fn missing(&self, spots: Spots) -> [&'a Missing; 2] {
        self.of(spots).map(|mark| &mark.missing)
    }

    /// Whether no transaction from `fxid` on has registered there.
    #[inline]
    pub(crate) fn is_quiet(&self, relation: Relation, range: Option<Range>, fxid: u64) -> bool {
        self.mark(relation, range).last_fxid.get() < fxid
    }

    /// The highest transaction that has registered anything of the relation.
    pub(crate) fn last(&self, relation: Relation) -> u64 {
        self.mark(relation, None).last_fxid.get()
    }

    /// What is missing of the relation, or of a range of it.
    pub(crate) fn gap(&self, relation: Relation, range: Option<Range>) -> Gap {
        let all = self.mark(relation, None).missing.gap();
        let of_range = |range| self.mark(relation, Some(range)).missing.gap();
        range.map_or(all, |range| all.both(of_range(range)))
    }

    /// Counts something of the relation or range. Where two of them share a mark, the last one is
    /// counted, from 0.
    pub(crate) fn count(&self, relation: Relation, range: Option<Range>, what: Counted) {
        let name = name(relation, range);
        let mark = self.mark(relation, range);
        if mark.counted.get() != name {
            mark.counted.set(name);
            for counter in [&mark.registrations, &mark.conflicts, &mark.covered] {
                counter.set(0);
            }
        }
        let counter = match what {
            Counted::Registration => &mark.registrations,
            Counted::Conflict => &mark.conflicts,
            Counted::Cover => &mark.covered,
        };
        counter.add(1);
    }

    /// What has been counted: entries, conflicts found, looks at the range as a whole.
    pub(crate) fn totals(&self, relation: Relation, range: Option<Range>) -> [u64; 3] {
        let mark = self.mark(relation, range);
        if mark.counted.get() != name(relation, range) {
            return [0; 3];
        }
        [&mark.registrations, &mark.conflicts, &mark.covered].map(Word::get)
    }
}
