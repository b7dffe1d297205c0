//! Many intervals in one entry of a ring: their hull, divided into parts, and the parts that have
//! any of them.

use smallvec::{SmallVec, smallvec};

use crate::{
    fault::{Fault, planted},
    image::{Image, Interval},
    predicate::IntervalSet,
};

/// Intervals in one range that have an entry each. The model has few keys.
pub const KEYS: usize = if cfg!(test) { 1 } else { 8 };

/// Entries for the intervals in one range if they are more.
const HULLS: usize = if cfg!(test) { 1 } else { 4 };

/// The exponent of 2 that a hull has parts at most.
const EXPONENT: u32 = 5;

/// Parts of a hull: bit n stands for part n. All have the same width, a power of 2, but for the
/// last, which may be narrower. Without any bit it stands for all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parts(u32);

impl Parts {
    /// The whole hull.
    pub const ALL: Parts = Parts(0);

    pub(crate) fn from_bits(bits: u32) -> Self {
        Parts(bits)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The parts of `hull` that have images of these intervals, all of which are in it.
    fn of(hull: &Interval, within: &[Interval]) -> Self {
        let part = |image: Image| ((image - hull.low()) >> exponent_of(hull)) as u32;
        let end = within.len() - usize::from(planted(Fault::PartForgotten));
        let bits = within[..end].iter().fold(0, |bits, interval| {
            bits | first_bits(part(interval.high())) & !first_bits(part(interval.low()))
                | 1 << part(interval.low())
        });
        if bits == first_bits(part(hull.high())) {
            return Parts::ALL;
        }
        Parts(bits)
    }

    /// The lowest interval of the set that has images in these parts of the hull.
    #[inline]
    pub(crate) fn overlapping(self, hull: &Interval, set: &IntervalSet) -> Option<Interval> {
        let first = set.overlapping(hull)?;
        if self == Parts::ALL {
            return Some(first);
        }
        (0..=(hull.high() - hull.low()) >> exponent_of(hull))
            .filter(|&n| self.0 & 1 << n != 0)
            .find_map(|n| set.overlapping(&part(hull, n)))
    }
}

/// Bits 0 to `n`.
fn first_bits(n: u32) -> u32 {
    u32::MAX >> (u32::BITS - 1 - n)
}

/// The exponent of the width of the hull's parts.
fn exponent_of(hull: &Interval) -> u32 {
    let length = Image::BITS - (hull.high() - hull.low()).leading_zeros();
    length.saturating_sub(EXPONENT)
}

/// Part n, which there is.
fn part(hull: &Interval, n: u128) -> Interval {
    let exponent = exponent_of(hull);
    let low = hull.low() + (n << exponent);
    let high = low.saturating_add((1 << exponent) - 1).min(hull.high());
    Interval::new(low, high).unwrap_or(*hull)
}

/// Shows `entry` what stands for these intervals in the ring of their range, most often one for
/// each. They are disjoint and in order.
pub(crate) fn pack(intervals: &[Interval], mut entry: impl FnMut(Interval, Parts)) {
    if intervals.len() <= KEYS {
        return intervals.iter().for_each(|&one| entry(one, Parts::ALL));
    }
    // Full ones that are close to each other are one.
    let mut last: Option<Interval> = None;
    for within in divide(intervals) {
        let hull = hull_of(within);
        let parts = Parts::of(&hull, within);
        if let Some(full) = last.take() {
            if parts == Parts::ALL && are_close(&full, &hull) {
                last = Some(full.hull(&hull));
                continue;
            }
            entry(full, Parts::ALL);
        }
        if parts == Parts::ALL {
            last = Some(hull);
        } else {
            entry(hull, parts);
        }
    }
    if let Some(full) = last {
        entry(full, Parts::ALL);
    }
}

/// At most `HULLS` lists of some of them: the one with the longest hull is divided in the midst of
/// that.
fn divide(intervals: &[Interval]) -> SmallVec<[&[Interval]; HULLS]> {
    let mut lists: SmallVec<[&[Interval]; HULLS]> = smallvec![intervals];
    while lists.len() < HULLS {
        let length = |list: &[Interval]| {
            let hull = hull_of(list);
            (list.len() > 1).then_some(hull.high() - hull.low())
        };
        let longest = (0..lists.len()).max_by_key(|&n| length(lists[n]));
        let Some(longest) = longest.filter(|&n| lists[n].len() > 1) else {
            break;
        };
        let list = lists[longest];
        let hull = hull_of(list);
        let middle = hull.low() + (hull.high() - hull.low()) / 2;
        let at = list.partition_point(|one| one.low() <= middle);
        let (low, high) = list.split_at(at.clamp(1, list.len() - 1));
        lists[longest] = low;
        lists.insert(longest + 1, high);
    }
    lists
}

/// From the first to the last of these, of which there are some.
fn hull_of(intervals: &[Interval]) -> Interval {
    let first = intervals.first().copied().unwrap_or(Interval::ALL);
    intervals.last().map_or(first, |last| first.hull(last))
}

/// Whether what is between two intervals, the lower one first, is little beside them.
fn are_close(low: &Interval, high: &Interval) -> bool {
    high.low() - low.high() <= low.hull(high).high().saturating_sub(low.low()) >> EXPONENT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(low: Image, high: Image) -> Interval {
        Interval::new(low, high).unwrap()
    }

    #[test]
    fn parts_cover_what_they_are_of() {
        for (low, length) in [
            (0, 0),
            (0, 5),
            (7, 31),
            (7, 32),
            (3, 33),
            (0, 1000),
            (5, Image::MAX - 5),
        ] {
            let hull = of(low, low + length);
            let step = (length / 64).max(1);
            for n in (0..=length / step).map(|n| low + n * step) {
                let middle = low + length / 2;
                let within = [
                    of(low, low),
                    of(n.min(middle), n.max(middle)),
                    of(low + length, low + length),
                ];
                let parts = Parts::of(&hull, &within);
                for image in [low, n, middle, low + length] {
                    let mut set = IntervalSet::default();
                    set.insert(Interval::point(image), 1);
                    assert_eq!(parts.overlapping(&hull, &set), Some(Interval::point(image)));
                }
            }
        }
    }

    #[test]
    fn what_is_between_is_left_out() {
        let hull = of(100, 900);
        let parts = Parts::of(&hull, &[of(100, 101), of(400, 410), of(900, 900)]);
        let overlapping = |low, high| {
            let mut set = IntervalSet::default();
            set.insert(of(low, high), 1);
            parts.overlapping(&hull, &set)
        };
        assert_eq!(overlapping(500, 850), None);
        assert_eq!(overlapping(0, 99), None);
        assert_eq!(overlapping(0, 100), Some(of(0, 100)));
        assert_eq!(overlapping(300, 500), Some(of(300, 500)));
        assert_eq!(Parts::of(&hull, &[hull]), Parts::ALL);
    }
}
