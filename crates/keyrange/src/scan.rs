//! What the keys of an index scan say of the images of the rows that it can return.
//!
//! The result is a superset: what cannot be told of a scan key leaves it out, and a conjunction
//! without one of its terms is wider. A scan whose keys contradict each other returns nothing
//! whatever is in the table, and reads no interval.

use smallvec::{SmallVec, smallvec};

use crate::{
    fault::{Fault, planted},
    image::{FIRST_NULL, Image, Interval},
    kind::{Placed, Value},
    layout::{COLUMNS, Column, Layout},
    predicate::join_nearest,
};

/// A B-tree strategy. All of them are false for NULL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    Less,
    LessEqual,
    Equal,
    GreaterEqual,
    Greater,
}

/// One condition of a scan; a row is returned when all are true. Columns are counted from 0 in the
/// range key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScanKey<'a> {
    Compare(usize, Operator, Value<'a>),
    /// `column operator ANY (array)`
    Any(usize, Operator, &'a [Value<'a>]),
    IsNull(usize),
    IsNotNull(usize),
    /// `(columns) operator (values)`, compared from left to right.
    Row(Operator, &'a [(usize, Value<'a>)]),
}

/// Intervals that one scan may become; of more, those next to each other are joined.
const MOST: usize = 1 << 14;

/// The fields from the first to the second.
type Span = (u128, u128);

/// Most columns have one span.
type Spans = SmallVec<[Span; 1]>;

/// The intervals that a scan reads; most read one.
pub type Intervals = SmallVec<[Interval; 1]>;

impl Layout {
    /// The images that a row returned by a scan with these keys can have: disjoint intervals in
    /// order, none if the scan can return nothing.
    pub fn project(&self, keys: &[ScanKey]) -> Intervals {
        if let Some(one) = self.one_value(keys) {
            return smallvec![one];
        }
        let mut images = match self.only_column() {
            Some(only) => {
                let mut spans = column_spans(0, only, keys);
                bound(&mut spans, MOST);
                let parts = spans.iter().map(|&span| part(only, 0, span));
                parts.flatten().collect()
            }
            None => self.combinations(keys),
        };
        for key in keys {
            if let ScanKey::Row(operator, members) = key {
                let row = self.row_interval(*operator, members);
                images = images
                    .iter()
                    .filter_map(|image| image.intersection(&row))
                    .collect();
            }
        }
        if planted(Fault::PredicateNarrowed)
            && let Some(last) = images.pop()
        {
            let high = last.high().checked_sub(self.unit());
            images.extend(high.and_then(|high| Interval::new(last.low(), high)));
        }
        images
    }

    /// The interval of the scan that most short transactions make: the only column equals a value.
    fn one_value(&self, keys: &[ScanKey]) -> Option<Interval> {
        let &[ScanKey::Compare(0, Operator::Equal, value)] = keys else {
            return None;
        };
        let column = self.only_column()?;
        let field = column.place(value)?.field;
        part(column, 0, (field, field)).filter(|_| !planted(Fault::PredicateNarrowed))
    }

    /// The images of all combinations of the fields that each column can have. If they are too
    /// many, fields next to each other are joined.
    fn combinations(&self, keys: &[ScanKey]) -> Intervals {
        let mut spans: SmallVec<[Spans; 2]> = SmallVec::new();
        let mut columns: SmallVec<[&Column; COLUMNS]> = SmallVec::new();
        let mut product = 1_usize;
        for (n, column) in self.columns().enumerate() {
            let mut own = column_spans(n, column, keys);
            if own.is_empty() {
                return Intervals::new();
            }
            bound(&mut own, MOST / product);
            product *= own.len();
            spans.push(own);
            columns.push(column);
        }
        let mut images = Intervals::new();
        expand(&columns, &spans, 0, &mut images);
        images
    }

    /// The hull of the keys for which the comparison of rows can be true.
    fn row_interval(&self, operator: Operator, members: &[(usize, Value)]) -> Interval {
        let mut low: Image = 0;
        let mut rest = Image::MAX;
        let mut placed_all = true;
        for (n, (&(column, value), layout)) in members.iter().zip(self.columns()).enumerate() {
            let placed = layout.place(value).filter(|_| column == n);
            placed_all &= placed.is_some_and(|placed| placed.exact);
            if let Some(placed) = placed {
                low |= layout.put(placed.field);
                rest = layout.rest();
            }
            if !placed_all {
                break;
            }
        }
        if rest == Image::MAX {
            return Interval::ALL; // not even the first member has an image
        }
        placed_all &= members.len() <= self.columns().count();
        let high = low | rest;
        let values = FIRST_NULL - 1;
        let interval = match operator {
            Operator::Less if placed_all => low.checked_sub(1).and_then(|h| Interval::new(0, h)),
            Operator::Less | Operator::LessEqual => Interval::new(0, high),
            Operator::Equal => Interval::new(low, high),
            Operator::Greater if placed_all => Interval::new(high + 1, values),
            Operator::Greater | Operator::GreaterEqual => Interval::new(low, values),
        };
        interval.unwrap_or(Interval::point(low))
    }
}

/// The images with these fields in the column, whatever is on the right.
fn part(column: &Column, prefix: Image, (low, high): Span) -> Option<Interval> {
    let low = prefix | column.put(low);
    Interval::new(low, prefix | column.put(high) | column.rest())
}

/// The images of all combinations of fields.
fn expand(columns: &[&Column], spans: &[Spans], prefix: Image, images: &mut Intervals) {
    let column = columns[0];
    for &(low, high) in &spans[0] {
        if low == high && spans.len() > 1 && column.is_exact(low) {
            expand(&columns[1..], &spans[1..], prefix | column.put(low), images);
        } else {
            images.extend(part(column, prefix, (low, high)));
        }
    }
}

/// The fields that the column can have in a row for which all keys are true.
fn column_spans(n: usize, column: &Column, keys: &[ScanKey]) -> Spans {
    let mut spans: Option<Spans> = None;
    for key in keys {
        let allowed = match *key {
            ScanKey::Compare(at, operator, value) if at == n => compare(column, operator, value),
            ScanKey::Any(at, operator, values) if at == n => {
                let each = values.iter().map(|&v| compare(column, operator, v));
                union(each.flatten().collect())
            }
            ScanKey::IsNull(at) if at == n => smallvec![(column.null(), column.null())],
            ScanKey::IsNotNull(at) if at == n => smallvec![(0, column.highest())],
            // Only the first member of a row is compared for certain.
            ScanKey::Row(operator, [(at, value), ..]) if *at == n => {
                compare(column, operator.or_equal(), *value)
            }
            _ => continue,
        };
        spans = Some(match spans {
            Some(spans) => intersection(&spans, &allowed),
            None => allowed,
        });
    }
    spans.unwrap_or_else(|| smallvec![(0, column.null())])
}

/// The fields of the column for which the comparison can be true.
fn compare(column: &Column, operator: Operator, value: Value) -> Spans {
    let highest = column.highest();
    if value == Value::Null {
        return Spans::new();
    }
    let Some(Placed { field, exact }) = column.place(value) else {
        return smallvec![(0, highest)];
    };
    let span = match operator {
        Operator::Less if exact => field.checked_sub(1).map(|high| (0, high)),
        Operator::Less | Operator::LessEqual => Some((0, field)),
        Operator::Equal => Some((field, field)),
        Operator::Greater if exact => (field < highest).then(|| (field + 1, highest)),
        Operator::Greater | Operator::GreaterEqual => Some((field, highest)),
    };
    span.map_or_else(Spans::new, |span| smallvec![span])
}

impl Operator {
    fn or_equal(self) -> Self {
        match self {
            Operator::Less => Operator::LessEqual,
            Operator::Greater => Operator::GreaterEqual,
            other => other,
        }
    }
}

/// In order, overlapping ones made one.
fn union(mut spans: Spans) -> Spans {
    spans.sort_unstable();
    let mut disjoint = Spans::with_capacity(spans.len());
    for (low, high) in spans {
        match disjoint.last_mut() {
            Some(last) if low <= last.1 => last.1 = last.1.max(high),
            _ => disjoint.push((low, high)),
        }
    }
    disjoint
}

/// Leaves at most `most` of these disjoint spans.
fn bound(spans: &mut Spans, most: usize) {
    if spans.len() > most.max(1) {
        let parts = spans.iter().map(|&(low, high)| Interval::new(low, high));
        let mut parts: Intervals = parts.flatten().collect();
        join_nearest(&mut parts, most);
        *spans = parts.iter().map(|part| (part.low(), part.high())).collect();
    }
}

/// What is in both of two lists of disjoint spans in order.
fn intersection(a: &[Span], b: &[Span]) -> Spans {
    let (mut i, mut j) = (0, 0);
    let mut both = Spans::new();
    while i < a.len() && j < b.len() {
        let (low, high) = (a[i].0.max(b[j].0), a[i].1.min(b[j].1));
        if low <= high {
            both.push((low, high));
        }
        if a[i].1 <= b[j].1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}
