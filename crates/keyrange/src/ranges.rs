//! The logical ranges of a relation: which piece of the key space an image belongs to.
//!
//! Keys whose first column is NULL are a range of their own.

use crate::image::{FIRST_NULL, Image, Interval};

/// The number of a range in its relation.
pub type Range = u64;

/// The range of the keys whose first column is NULL.
pub const NULL_RANGE: Range = Range::MAX;

/// The narrowest range of a grid, in images: the number of every range fits a `Range`.
pub const NARROWEST: u128 = 1 << 64;

/// How a relation's key space is divided. It must not change while a transaction is validated that has touched the
/// relation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeMap<'a> {
    /// Ranges of one width in images (see `Layout::unit`), at least `NARROWEST`; growth needs no maintenance.
    Grid { width: u128 },
    /// Range n begins at boundary n - 1, which is part of it; range 0 is what is below the first. Ascending.
    Boundaries(&'a [Image]),
}

impl RangeMap<'_> {
    /// Everything is one range.
    pub const WHOLE: RangeMap<'static> = RangeMap::Boundaries(&[]);

    /// The range of an image.
    pub fn range_of(&self, image: Image) -> Range {
        if image >= FIRST_NULL {
            return NULL_RANGE;
        }
        match *self {
            RangeMap::Grid { width } => divide(image, width.max(NARROWEST)) as Range,
            RangeMap::Boundaries(boundaries) => {
                boundaries.partition_point(|&boundary| boundary <= image) as Range
            }
        }
    }

    /// The images of a range that has one.
    pub fn bounds(&self, range: Range) -> Interval {
        if range == NULL_RANGE {
            return Interval::NULLS;
        }
        let (low, next) = match *self {
            RangeMap::Grid { width } => {
                let low = u128::from(range).saturating_mul(width.max(NARROWEST));
                (low, low.saturating_add(width.max(NARROWEST)))
            }
            RangeMap::Boundaries(boundaries) => {
                let at = |n: Option<usize>| n.and_then(|n| boundaries.get(n)).copied();
                let low = at((range as usize).checked_sub(1)).unwrap_or(0);
                (low, at(Some(range as usize)).unwrap_or(FIRST_NULL))
            }
        };
        let high = next.min(FIRST_NULL).saturating_sub(1);
        Interval::new(low.min(high), high).unwrap_or(Interval::VALUES)
    }

    /// The ranges that have images in the interval: those from the first to the last, and the one of NULLs.
    pub fn ranges_of(&self, interval: &Interval) -> impl Iterator<Item = Range> + use<> {
        let values = interval
            .intersection(&Interval::VALUES)
            .map(|values| self.range_of(values.low())..=self.range_of(values.high()));
        let nulls = interval.overlaps(&Interval::NULLS).then_some(NULL_RANGE);
        values.into_iter().flatten().chain(nulls)
    }

    /// How many ranges `ranges_of` has for the interval, at most `u64::MAX`.
    pub fn count(&self, interval: &Interval) -> u64 {
        let values = interval.intersection(&Interval::VALUES).map_or(0, |v| {
            (self.range_of(v.high()) - self.range_of(v.low())).saturating_add(1)
        });
        values.saturating_add(u64::from(interval.overlaps(&Interval::NULLS)))
    }
}

/// `image / width`, without a division of 128 bits where there is no need for one: default ranges are powers of two.
fn divide(image: Image, width: u128) -> u128 {
    if width.is_power_of_two() {
        image >> width.trailing_zeros()
    } else {
        image / width
    }
}

/// Boundaries that divide a sample of a relation's images into at most `ranges` parts of about one size. Sorts the sample.
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
