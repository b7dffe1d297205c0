//! Images of keys: 128-bit numbers in the order of the keys, and intervals of them.
//!
//! The order is that of a B-tree with NULLS LAST: a <= b implies image(a) <= image(b). The upper
//! half of the numbers is for keys whose first column is NULL. Equal images do not mean equal keys.

/// The image of a key.
pub type Image = u128;

/// The first image of a key whose first column is NULL.
pub const FIRST_NULL: Image = 1 << 127;

/// The images from `low` to `high`, both included; never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Interval {
    low: Image,
    high: Image,
}

impl Interval {
    /// Every key.
    pub const ALL: Interval = Interval {
        low: 0,
        high: Image::MAX,
    };

    /// Every key whose first column is not NULL.
    pub const VALUES: Interval = Interval {
        low: 0,
        high: FIRST_NULL - 1,
    };

    /// Every key whose first column is NULL.
    pub const NULLS: Interval = Interval {
        low: FIRST_NULL,
        high: Image::MAX,
    };

    /// The interval between two images, `None` when `low` is above `high`.
    pub fn new(low: Image, high: Image) -> Option<Self> {
        (low <= high).then_some(Interval { low, high })
    }

    /// One image.
    pub const fn point(image: Image) -> Self {
        Interval {
            low: image,
            high: image,
        }
    }

    #[inline]
    pub fn low(&self) -> Image {
        self.low
    }

    #[inline]
    pub fn high(&self) -> Image {
        self.high
    }

    #[inline]
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether all of `other` is in this interval.
    #[inline]
    pub fn covers(&self, other: &Interval) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// Whether the two overlap or no image lies between them.
    pub fn touches(&self, other: &Interval) -> bool {
        self.low <= other.high.saturating_add(1) && other.low <= self.high.saturating_add(1)
    }

    /// The smallest interval that covers both.
    pub fn hull(&self, other: &Interval) -> Interval {
        Interval {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    pub fn intersection(&self, other: &Interval) -> Option<Interval> {
        Interval::new(self.low.max(other.low), self.high.min(other.high))
    }
}
