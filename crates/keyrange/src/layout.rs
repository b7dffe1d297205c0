//! How the columns of a range key share the 128 bits of an image.
//!
//! Each column has a field with one bit more than its value, set for NULL; the first column's is on
//! the left. After a field that does not hold its value exactly come zeros: what follows could not
//! be in order.

use crate::{
    image::{Image, Interval},
    kind::{Decoded, Kind, Placed, Value},
};

/// Columns of a range key that can have a part in the image; later ones are left out of it.
pub const COLUMNS: usize = 8;

/// A prefix column that is followed by others gets as many bytes of the image.
const INNER_PREFIX_BITS: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    kind: Kind,
    /// Of the value, without the NULL bit.
    bits: u32,
    /// Bits on the right of the field.
    shift: u32,
}

/// The fields of a range key's columns. Constant for a range key; what was written under one layout
/// must not be validated under another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    columns: [Option<Column>; COLUMNS],
}

impl Column {
    /// The field of NULL, which is the highest.
    pub(crate) fn null(&self) -> u128 {
        1 << self.bits
    }

    /// The highest field of a value.
    pub(crate) fn highest(&self) -> u128 {
        self.null() - 1
    }

    /// The field of a value that is not NULL.
    pub(crate) fn place(&self, value: Value) -> Option<Placed> {
        self.kind.place(value, self.bits)
    }

    /// Whether all keys with this field have the same value here.
    pub(crate) fn is_exact(&self, field: u128) -> bool {
        field == self.null() || self.kind.is_exact(field, self.bits)
    }

    /// This column's field in an image.
    pub(crate) fn field(&self, image: Image) -> u128 {
        (image >> self.shift) & (self.null() | self.highest())
    }

    /// What a field tells of its value.
    pub(crate) fn decode(&self, field: u128) -> Decoded {
        if field >= self.null() {
            return Decoded::Null;
        }
        self.kind.decode(field, self.bits)
    }

    /// The part of an image that is this field.
    pub(crate) fn put(&self, field: u128) -> Image {
        field << self.shift
    }

    /// The bits of this field and all on its right.
    pub(crate) fn all(&self) -> Image {
        self.put(self.null() | self.highest()) | self.rest()
    }

    /// All bits on the right of this field.
    pub(crate) fn rest(&self) -> Image {
        (1 << self.shift) - 1
    }
}

impl Layout {
    /// The layout of a key with these columns: each has what it needs while there are bits left.
    ///
    /// # Panics
    /// If there is no column.
    pub fn fit(kinds: &[Kind]) -> Self {
        let last = kinds.len() - 1;
        Self::with_bits(kinds.iter().enumerate().map(|(n, &kind)| {
            let natural = kind.natural_bits();
            let is_prefix = matches!(kind, Kind::Text | Kind::Bytes);
            let bits = if is_prefix && n < last {
                INNER_PREFIX_BITS
            } else {
                natural
            };
            (kind, bits)
        }))
    }

    /// A layout with so many bits for each column's values; what does not fit is cut, and so are
    /// bits that a kind has no use for.
    pub fn with_bits(columns: impl IntoIterator<Item = (Kind, u32)>) -> Self {
        let mut layout = Layout {
            columns: [None; COLUMNS],
        };
        let mut left = 128_u32;
        for (place, (kind, bits)) in layout.columns.iter_mut().zip(columns) {
            let bits = bits.min(kind.natural_bits()).min(left.saturating_sub(1));
            if bits == 0 {
                break;
            }
            left -= bits + 1;
            *place = Some(Column {
                kind,
                bits,
                shift: left,
            });
        }
        layout
    }

    /// The column of a key that has no other.
    #[inline]
    pub(crate) fn only_column(&self) -> Option<&Column> {
        match &self.columns[..2] {
            [Some(only), None] => Some(only),
            _ => None,
        }
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().map_while(Option::as_ref)
    }

    /// The distance of the images of neighbouring values of the first column: 1 for integers, in
    /// images.
    pub fn unit(&self) -> u128 {
        self.columns().next().map_or(1, |first| 1 << first.shift)
    }

    /// The bits on the right of the last field: zero in the images of rows, and not in all that
    /// scans ask for.
    pub fn unused(&self) -> Image {
        self.columns().last().map_or(0, Column::rest)
    }

    /// The images that rows in the interval can have: each one by itself if they are at most
    /// `most`, else as one interval. Scans ask for more, as the bits on the right of the last field
    /// are zero in all of them.
    pub fn rows(&self, keys: &Interval, most: usize) -> Vec<Interval> {
        let unused = self.unused();
        let high = keys.high() & !unused;
        let Some(low) = keys.low().checked_add(unused) else {
            return Vec::new();
        };
        let low = low & !unused;
        let Some(all) = Interval::new(low, high) else {
            return Vec::new();
        };
        let shift = unused.count_ones();
        let steps = (high - low) >> shift;
        if steps >= most as u128 {
            return vec![all];
        }
        (0..=steps)
            .map(|step| Interval::point(low + (step << shift)))
            .collect()
    }

    /// The image of the key with these column values: one image, or all that it could be if a value
    /// is unknown.
    pub fn image(&self, values: &[Value]) -> Interval {
        let mut image = 0;
        for (n, column) in self.columns().enumerate() {
            let value = values.get(n).copied().unwrap_or(Value::Unknown);
            let placed = match value {
                Value::Null => Some(Placed {
                    field: column.null(),
                    exact: true,
                }),
                value => column.place(value),
            };
            match placed {
                Some(placed) => {
                    image |= column.put(placed.field);
                    if !column.is_exact(placed.field) {
                        break;
                    }
                }
                None => {
                    let high = image | column.put(column.null()) | column.rest();
                    return Interval::new(image, high).unwrap_or(Interval::ALL);
                }
            }
        }
        Interval::point(image)
    }
}
