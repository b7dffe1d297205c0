//! Images back as the keys they stand for, for messages and views.

use crate::{
    image::Image,
    kind::{Decoded, Numeric},
    layout::{Column, Layout},
};

/// A bound of an interval as a key.
#[derive(Clone, PartialEq, Debug)]
pub enum Bound {
    /// Nothing is below it, or nothing but NULLs above it, or nothing at all.
    Open,
    /// The values of the key's first columns, as far as the image has them.
    Key(Vec<Decoded>),
}

impl Layout {
    /// The key at the lower end of an interval.
    pub fn low_bound(&self, image: Image) -> Bound {
        bound(self.columns_until(image, |column| image & column.all() == 0))
    }

    /// The key at the upper end of an interval.
    pub fn high_bound(&self, image: Image) -> Bound {
        bound(self.columns_until(image, |column| {
            image & column.all() >= column.put(column.highest()) | column.rest()
        }))
    }

    /// One image's key.
    pub fn key(&self, image: Image) -> Vec<Decoded> {
        self.columns_until(image, |_| false)
    }

    /// The columns of the image from the left, until one from which on nothing is bounded.
    fn columns_until(&self, image: Image, is_open: impl Fn(&Column) -> bool) -> Vec<Decoded> {
        let mut values = Vec::new();
        for column in self.columns() {
            if is_open(column) {
                break;
            }
            let field = column.field(image);
            values.push(column.decode(field));
            if !column.is_exact(field) {
                break;
            }
        }
        values
    }
}

fn bound(values: Vec<Decoded>) -> Bound {
    if values.is_empty() {
        Bound::Open
    } else {
        Bound::Key(values)
    }
}

impl Numeric<'_> {
    /// A number as its image has it: sign, weight and first digits.
    pub(crate) fn text(negative: bool, weight: i64, digits: &[u128]) -> String {
        let sign = if negative { "-" } else { "" };
        let last = digits.iter().rposition(|&digit| digit != 0).unwrap_or(0) as i64;
        if !(-4..=12).contains(&weight) {
            let fraction: String = digits[1..].iter().map(|d| format!("{d:04}")).collect();
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            return format!("{sign}{}{point}{fraction}e{}", digits[0], weight * 4);
        }
        let digit = |place: i64| {
            usize::try_from(weight - place)
                .ok()
                .and_then(|n| digits.get(n))
        };
        let mut text = sign.to_owned();
        let whole: String = (0..=weight.max(0))
            .rev()
            .map(|place| format!("{:04}", digit(place).unwrap_or(&0)))
            .collect();
        let whole = whole.trim_start_matches('0');
        text.push_str(if whole.is_empty() { "0" } else { whole });
        let fraction: String = (weight - last..0)
            .rev()
            .map(|place| format!("{:04}", digit(place).unwrap_or(&0)))
            .collect();
        let fraction = fraction.trim_end_matches('0');
        if !fraction.is_empty() {
            text.push('.');
            text.push_str(fraction);
        }
        text
    }
}
