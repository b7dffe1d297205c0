//! The logical ranges of a relation: which piece of the key space an image belongs to.
//!
//! Keys whose first column is NULL are a range of their own.
//!
//! A range may have *pieces*: a number of rings among which its keys are spread by a hash of their
//! images. So it does not matter where in the space of all keys the table's keys lie. What was
//! written to one key is in the ring of that key's piece; what was written to more than one is in
//! the ring of the range. Who has read one key looks at both of these; who has read more looks at
//! the range's ring and at those of all its pieces.

use crate::{
    fault::{Fault, planted},
    image::{FIRST_NULL, Image, Interval},
};

/// The number of a range in its relation.
pub type Range = u64;

/// The range of the keys whose first column is NULL.
pub const NULL_RANGE: Range = Range::MAX;

/// The narrowest range of a grid, in images: the number of every range fits a `Range`.
pub const NARROWEST: u128 = 1 << 64;

/// The rings among which the keys of each range of a relation are spread, beside the range's own.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Pieces {
    count: u32,
    /// The bits of an image that no column has (`Layout::unused`): an interval whose images differ
    /// in these only is one key.
    unused: Image,
}

impl Pieces {
    /// Each range has its own ring only.
    pub const NONE: Pieces = Pieces {
        count: 0,
        unused: 0,
    };

    /// So many pieces of keys with a layout that has these bits `unused`.
    pub fn new(count: u32, unused: Image) -> Self {
        Pieces { count, unused }
    }
}

/// How a relation's key space is divided. It must not change while a transaction is validated that
/// has touched the relation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeMap<'a> {
    Grid(Grid),
    /// Range n begins at boundary n - 1, which is part of it; range 0 is what is below the first.
    /// Ascending.
    Boundaries(&'a [Image]),
    /// As `Boundaries`, and each range has so many pieces.
    BoundariesInPieces(&'a [Image], Pieces),
}

/// Ranges of one width in images (see `Layout::unit`), at least `NARROWEST`; growth needs no
/// maintenance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    width: u128,
    /// The exponent of 2 that the width is, above that of `NARROWEST`: default ranges are, and need
    /// no division of 128 bits.
    shift: Option<u32>,
    pieces: Pieces,
}

impl Grid {
    /// Ranges of that width, or of `NARROWEST`.
    pub fn new(width: u128) -> Self {
        let width = width.max(NARROWEST);
        let exponent = || width.trailing_zeros() - NARROWEST.trailing_zeros();
        Grid {
            width,
            shift: width.is_power_of_two().then(exponent),
            pieces: Pieces::NONE,
        }
    }

    /// This grid, with these pieces in each range.
    pub fn with_pieces(self, pieces: Pieces) -> Self {
        Grid { pieces, ..self }
    }

    #[inline]
    fn range_of(&self, image: Image) -> Range {
        match self.shift {
            Some(shift) => (image / NARROWEST) as Range >> shift,
            None => (image / self.width) as Range,
        }
    }

    /// The first image of a range, and of the next.
    fn bounds(&self, range: Range) -> (Image, Image) {
        let low = u128::from(range).saturating_mul(self.width);
        (low, low.saturating_add(self.width))
    }
}

impl RangeMap<'_> {
    /// Everything is one range.
    pub const WHOLE: RangeMap<'static> = RangeMap::Boundaries(&[]);

    /// The range of an image.
    #[inline]
    pub fn range_of(&self, image: Image) -> Range {
        if image >= FIRST_NULL {
            return NULL_RANGE;
        }
        match *self {
            RangeMap::Grid(grid) => grid.range_of(image),
            RangeMap::Boundaries(boundaries) | RangeMap::BoundariesInPieces(boundaries, _) => {
                boundaries.partition_point(|&boundary| boundary <= image) as Range
            }
        }
    }

    #[inline]
    fn in_pieces(&self) -> Pieces {
        match self {
            RangeMap::Grid(grid) => grid.pieces,
            RangeMap::Boundaries(_) => Pieces::NONE,
            RangeMap::BoundariesInPieces(_, pieces) => *pieces,
        }
    }

    /// The pieces of each range; 0 if it has one ring.
    #[inline]
    pub fn pieces(&self) -> u32 {
        self.in_pieces().count
    }

    /// The piece where what was written to these keys, of one range, is registered; `None`: with
    /// the range itself.
    #[inline]
    pub fn piece_of(&self, keys: &Interval) -> Option<u32> {
        let Pieces { count, unused } = self.in_pieces();
        let image = keys.low() & !unused;
        if count == 0 || image != keys.high() & !unused {
            return None;
        }
        let mixed = (image as u64 ^ (image >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Some((mixed >> 32) as u32 % count)
    }

    /// The pieces in which keys of the interval, in one range, can have been registered, beside the
    /// range itself.
    #[inline]
    pub(crate) fn pieces_of(&self, keys: &Interval) -> std::ops::Range<u32> {
        let all = 0..self.pieces();
        if planted(Fault::PieceMissed) {
            return all.start..all.end.min(1);
        }
        self.piece_of(keys).map_or(all, |piece| piece..piece + 1)
    }

    /// The images of a range that has one.
    pub fn bounds(&self, range: Range) -> Interval {
        if range == NULL_RANGE {
            return Interval::NULLS;
        }
        let (low, next) = match *self {
            RangeMap::Grid(grid) => grid.bounds(range),
            RangeMap::Boundaries(boundaries) | RangeMap::BoundariesInPieces(boundaries, _) => {
                let at = |n: Option<usize>| n.and_then(|n| boundaries.get(n)).copied();
                let low = at((range as usize).checked_sub(1)).unwrap_or(0);
                (low, at(Some(range as usize)).unwrap_or(FIRST_NULL))
            }
        };
        let high = next.min(FIRST_NULL).saturating_sub(1);
        Interval::new(low.min(high), high).unwrap_or(Interval::VALUES)
    }

    /// The ranges that have images in the interval: those from the first to the last, and the one
    /// of NULLs.
    #[inline]
    pub fn ranges_of(&self, interval: &Interval) -> Ranges {
        let values = interval.intersection(&Interval::VALUES);
        let (next, left) = values.map_or((0, 0), |values| {
            let first = self.range_of(values.low());
            (first, self.range_of(values.high()) - first + 1)
        });
        Ranges {
            next,
            left,
            nulls: interval.overlaps(&Interval::NULLS),
        }
    }
}

/// Ranges in a row, and perhaps the one of NULLs.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    next: Range,
    /// Without the one of NULLs; at most 2^63.
    left: u64,
    nulls: bool,
}

impl Ranges {
    /// How many they are.
    #[inline]
    pub fn total(&self) -> u64 {
        self.left + u64::from(self.nulls)
    }
}

impl Iterator for Ranges {
    type Item = Range;

    #[inline]
    fn next(&mut self) -> Option<Range> {
        if self.left > 0 {
            self.left -= 1;
            self.next += 1;
            return Some(self.next - 1);
        }
        std::mem::take(&mut self.nulls).then_some(NULL_RANGE)
    }
}

/// Boundaries that divide a sample of a relation's images into at most `ranges` parts of about one
/// size. Sorts the sample.
pub fn boundaries(sample: &mut Vec<Image>, ranges: usize) -> Vec<Image> {
    sample.retain(|&image| image < FIRST_NULL);
    sample.sort_unstable();
    let ranges = ranges.max(1);
    let mut boundaries: Vec<Image> = (1..ranges)
        .filter_map(|n| sample.get(n * sample.len() / ranges).copied())
        .filter(|&boundary| boundary > 0)
        .collect();
    boundaries.dedup();
    boundaries
}
