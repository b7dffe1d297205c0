//! Values of every kind for property tests, with PostgreSQL's order of them.

use std::cmp::Ordering;

use keyrange::{Kind, Numeric, Value};
use proptest::prelude::*;

#[derive(Clone, PartialEq, Debug)]
pub enum Sql {
    Null,
    Bool(bool),
    Int(i64),
    Oid(u32),
    Float(f64),
    Uuid([u8; 16]),
    Special(i8),
    Decimal(bool, i32, Vec<u16>),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

impl Sql {
    pub fn value(&self) -> Value<'_> {
        match self {
            Sql::Null => Value::Null,
            Sql::Bool(bool) => Value::Bool(*bool),
            Sql::Int(int) => Value::Int(*int),
            Sql::Oid(oid) => Value::Oid(*oid),
            Sql::Float(float) => Value::Float(*float),
            Sql::Uuid(bytes) => Value::Uuid(*bytes),
            Sql::Special(-1) => Value::Numeric(Numeric::NegativeInfinity),
            Sql::Special(1) => Value::Numeric(Numeric::Infinity),
            Sql::Special(_) => Value::Numeric(Numeric::NaN),
            Sql::Decimal(negative, weight, digits) => Value::Numeric(Numeric::Finite {
                negative: *negative,
                weight: *weight,
                digits,
            }),
            Sql::Text(bytes) => Value::Text(bytes),
            Sql::Bytes(bytes) => Value::Bytes(bytes),
        }
    }

    /// The order of two values of one type that are not NULL.
    pub fn order(&self, other: &Sql) -> Ordering {
        match (self, other) {
            (Sql::Bool(a), Sql::Bool(b)) => a.cmp(b),
            (Sql::Int(a), Sql::Int(b)) => a.cmp(b),
            (Sql::Oid(a), Sql::Oid(b)) => a.cmp(b),
            (Sql::Uuid(a), Sql::Uuid(b)) => a.cmp(b),
            (Sql::Text(a), Sql::Text(b)) | (Sql::Bytes(a), Sql::Bytes(b)) => a.cmp(b),
            (Sql::Float(a), Sql::Float(b)) => match (a.is_nan(), b.is_nan()) {
                (false, false) => a.partial_cmp(b).unwrap(),
                (a, b) => a.cmp(&b),
            },
            (a, b) => decimal_order(a, b),
        }
    }
}

fn decimal_order(a: &Sql, b: &Sql) -> Ordering {
    let rank = |sql: &Sql| match sql {
        Sql::Special(-1) => -1,
        Sql::Special(1) => 1,
        Sql::Special(_) => 2,
        _ => 0,
    };
    match (a, b) {
        (Sql::Decimal(_, wa, da), Sql::Decimal(_, wb, db)) => {
            let top = *wa.max(wb);
            let bottom = (*wa - da.len() as i32).min(*wb - db.len() as i32);
            let digit = |weight: i32, digits: &[u16], at: i32| {
                usize::try_from(weight - at)
                    .ok()
                    .and_then(|n| digits.get(n))
                    .map_or(0, |&digit| i32::from(digit))
            };
            let sign = |sql: &Sql| {
                if matches!(sql, Sql::Decimal(true, ..)) {
                    -1
                } else {
                    1
                }
            };
            let at = (bottom..=top)
                .rev()
                .map(|at| (sign(a) * digit(*wa, da, at)).cmp(&(sign(b) * digit(*wb, db, at))));
            // Digit by digit, with the sign on each digit, decides as long as the first that
            // differs does.
            let signs_differ = sign(a) != sign(b);
            let is_zero = |digits: &[u16]| digits.iter().all(|&digit| digit == 0);
            if signs_differ && !(is_zero(da) && is_zero(db)) {
                return sign(a).cmp(&sign(b));
            }
            at.into_iter()
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

pub const KINDS: [Kind; 10] = [
    Kind::Bool,
    Kind::Int2,
    Kind::Int4,
    Kind::Int8,
    Kind::Oid,
    Kind::Float8,
    Kind::Uuid,
    Kind::Numeric,
    Kind::Text,
    Kind::Bytes,
];

fn int(low: i64, high: i64) -> BoxedStrategy<Sql> {
    let near = prop_oneof![Just(low), Just(high), low..=high, -3..=3_i64];
    near.prop_map(Sql::Int).boxed()
}

fn bytes(least: u8) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(least), Just(255), Just(b'a'), least..=255];
    let tail = prop::collection::vec(byte.clone(), 0..6);
    // Long common beginnings, so that prefixes are cut between equal ones.
    (
        prop::sample::select(vec![0, 6, 7, 13, 14, 15, 16, 20]),
        tail,
    )
        .prop_map(|(length, tail)| {
            let mut bytes = vec![b'a'; length];
            bytes.extend(tail);
            bytes
        })
}

/// A value that a column of this kind can hold, but NULL.
pub fn not_null(kind: Kind) -> BoxedStrategy<Sql> {
    match kind {
        Kind::Bool => any::<bool>().prop_map(Sql::Bool).boxed(),
        Kind::Int2 => int(i64::from(i16::MIN), i64::from(i16::MAX)),
        Kind::Int4 => int(i64::from(i32::MIN), i64::from(i32::MAX)),
        Kind::Int8 => int(i64::MIN, i64::MAX),
        Kind::Oid => prop_oneof![any::<u32>(), 0..4_u32]
            .prop_map(Sql::Oid)
            .boxed(),
        Kind::Float8 => {
            let special = prop::sample::select(vec![
                0.0,
                -0.0,
                1.0,
                -1.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                -f64::NAN,
                f64::MIN_POSITIVE,
                5e-324,
            ]);
            prop_oneof![any::<f64>(), special]
                .prop_map(Sql::Float)
                .boxed()
        }
        Kind::Uuid => {
            let last = any::<u8>().prop_map(|last| {
                let mut bytes = [255; 16];
                bytes[15] = last;
                bytes
            });
            prop_oneof![any::<[u8; 16]>(), last]
                .prop_map(Sql::Uuid)
                .boxed()
        }
        Kind::Numeric => {
            let digit = prop_oneof![Just(0), Just(9999), Just(1), 0..10000_u16];
            let digits = prop::collection::vec(digit, 0..10);
            // As many equal digits as an image has, and what follows.
            let long = prop::collection::vec(0..2_u16, 0..3).prop_map(|tail| {
                let digits = [vec![7; 7], tail];
                digits.concat()
            });
            let digits = prop_oneof![digits, long];
            let weight = prop_oneof![-3..4_i32, Just(-4096), Just(32767)];
            let finite = (any::<bool>(), weight, digits);
            let finite = finite
                .prop_map(|(negative, weight, digits)| Sql::Decimal(negative, weight, digits));
            let special = prop::sample::select(vec![-1, 1, 2]).prop_map(Sql::Special);
            prop_oneof![8 => finite, 1 => special].boxed()
        }
        Kind::Text => bytes(1).prop_map(Sql::Text).boxed(),
        Kind::Bytes => bytes(0).prop_map(Sql::Bytes).boxed(),
    }
}

/// A value of a column of this kind.
pub fn value(kind: Kind) -> BoxedStrategy<Sql> {
    prop_oneof![1 => Just(Sql::Null), 6 => not_null(kind)].boxed()
}

/// One to four columns.
pub fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let narrow = prop::sample::select(vec![Kind::Bool, Kind::Int2, Kind::Int4, Kind::Text]);
    let kind = prop_oneof![prop::sample::select(KINDS.to_vec()), narrow];
    prop::collection::vec(kind, 1..=4)
}

/// A row of these columns.
pub fn row(kinds: &[Kind]) -> impl Strategy<Value = Vec<Sql>> + use<> {
    kinds.iter().map(|&kind| value(kind)).collect::<Vec<_>>()
}
