//! Every row that a scan's keys let through is in the intervals that they are projected to. The
//! intervals of a simple scan have no other keys.

mod values;

use std::cmp::Ordering;

use keyrange::{FIRST_NULL, Image, Interval, Kind, Layout, Operator, ScanKey, Value};
use proptest::prelude::*;
use values::{KINDS, Sql, kinds, not_null, row};

const OPERATORS: [Operator; 5] = [
    Operator::Less,
    Operator::LessEqual,
    Operator::Equal,
    Operator::GreaterEqual,
    Operator::Greater,
];

/// A scan key that owns its values; `None` is a constant that cannot be projected.
#[derive(Clone, Debug)]
enum Condition {
    Compare(usize, Operator, Option<Sql>),
    Any(usize, Operator, Vec<Option<Sql>>),
    IsNull(usize),
    IsNotNull(usize),
    Row(Operator, Vec<(usize, Option<Sql>)>),
}

/// A truth value of SQL for "column operator constant"; nobody knows what an unknown constant
/// gives: true.
fn compare(column: &Sql, operator: Operator, constant: &Option<Sql>) -> bool {
    let Some(constant) = constant else {
        return column != &Sql::Null;
    };
    if column == &Sql::Null || constant == &Sql::Null {
        return false;
    }
    holds(operator, column.order(constant))
}

fn holds(operator: Operator, order: Ordering) -> bool {
    match operator {
        Operator::Less => order.is_lt(),
        Operator::LessEqual => order.is_le(),
        Operator::Equal => order.is_eq(),
        Operator::GreaterEqual => order.is_ge(),
        Operator::Greater => order.is_gt(),
    }
}

/// Whether the comparison of rows is true, or could be for some value of an unknown constant.
fn compare_rows(row: &[Sql], operator: Operator, members: &[(usize, Option<Sql>)]) -> bool {
    for (column, constant) in members {
        let Some(constant) = constant else {
            return row[*column] != Sql::Null;
        };
        if row[*column] == Sql::Null || constant == &Sql::Null {
            return false;
        }
        let order = row[*column].order(constant);
        if order.is_ne() {
            return holds(operator, order);
        }
    }
    holds(operator, Ordering::Equal)
}

impl Condition {
    fn lets_through(&self, row: &[Sql]) -> bool {
        match self {
            Condition::Compare(at, operator, value) => compare(&row[*at], *operator, value),
            Condition::Any(at, operator, values) => values
                .iter()
                .any(|value| compare(&row[*at], *operator, value)),
            Condition::IsNull(at) => row[*at] == Sql::Null,
            Condition::IsNotNull(at) => row[*at] != Sql::Null,
            Condition::Row(operator, members) => compare_rows(row, *operator, members),
        }
    }
}

fn known(value: &Option<Sql>) -> Value<'_> {
    value.as_ref().map_or(Value::Unknown, Sql::value)
}

fn project(layout: &Layout, conditions: &[Condition]) -> Vec<Interval> {
    let arrays: Vec<Vec<Value>> = conditions
        .iter()
        .map(|condition| match condition {
            Condition::Any(_, _, values) => values.iter().map(known).collect(),
            Condition::Row(_, members) => members.iter().map(|(_, value)| known(value)).collect(),
            _ => Vec::new(),
        })
        .collect();
    let rows: Vec<Vec<(usize, Value)>> = conditions
        .iter()
        .map(|condition| match condition {
            Condition::Row(_, members) => members
                .iter()
                .map(|(at, value)| (*at, known(value)))
                .collect(),
            _ => Vec::new(),
        })
        .collect();
    let keys: Vec<ScanKey> = conditions
        .iter()
        .enumerate()
        .map(|(n, condition)| match condition {
            Condition::Compare(at, operator, value) => {
                ScanKey::Compare(*at, *operator, known(value))
            }
            Condition::Any(at, operator, _) => ScanKey::Any(*at, *operator, &arrays[n]),
            Condition::IsNull(at) => ScanKey::IsNull(*at),
            Condition::IsNotNull(at) => ScanKey::IsNotNull(*at),
            Condition::Row(operator, _) => ScanKey::Row(*operator, &rows[n]),
        })
        .collect();
    layout.project(&keys).to_vec()
}

/// A constant for a column: one of the column's values, often that of the row, or of a wider
/// integer type, or NULL, or one that has no image.
fn constant(kind: Kind, of_row: Sql) -> BoxedStrategy<Option<Sql>> {
    let wide = match kind {
        Kind::Int2 | Kind::Int4 => not_null(Kind::Int8),
        kind => not_null(kind),
    };
    prop_oneof![
        6 => Just(Some(of_row)),
        4 => not_null(kind).prop_map(Some),
        2 => wide.prop_map(Some),
        1 => Just(Some(Sql::Null)),
        1 => Just(None),
    ]
    .boxed()
}

fn condition(kinds: Vec<Kind>, row: Vec<Sql>) -> impl Strategy<Value = Condition> {
    (0..kinds.len(), prop::sample::select(OPERATORS.to_vec())).prop_flat_map(
        move |(at, operator)| {
            let one = constant(kinds[at], row[at].clone());
            let many = prop::collection::vec(one.clone(), 0..5);
            let from = at.min(1);
            let members: Vec<_> = (from..kinds.len())
                .map(|n| (Just(n), constant(kinds[n], row[n].clone())))
                .collect();
            let length = 1..=members.len();
            prop_oneof![
                4 => one.prop_map(move |value| Condition::Compare(at, operator, value)),
                2 => many.prop_map(move |values| Condition::Any(at, operator, values)),
                1 => Just(Condition::IsNull(at)),
                1 => Just(Condition::IsNotNull(at)),
                2 => (members, length).prop_map(move |(mut members, length)| {
                    members.truncate(length);
                    Condition::Row(operator, members)
                }),
            ]
        },
    )
}

/// A layout, a row and conditions, most of which the row satisfies.
fn scan() -> impl Strategy<Value = (Layout, Vec<Sql>, Vec<Condition>)> {
    kinds().prop_flat_map(|kinds| {
        let bits = prop::collection::vec(1..128_u32, kinds.len());
        (Just(kinds.clone()), bits, any::<bool>(), row(&kinds)).prop_flat_map(
            |(kinds, bits, fit, row)| {
                let layout = if fit {
                    Layout::fit(&kinds)
                } else {
                    Layout::with_bits(kinds.iter().copied().zip(bits))
                };
                let conditions = prop::collection::vec(condition(kinds, row.clone()), 0..4);
                (Just(layout), Just(row), conditions)
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_row_that_passes_is_in_the_intervals((layout, row, conditions) in scan()) {
        let intervals = project(&layout, &conditions);
        for two in intervals.windows(2) {
            prop_assert!(two[0].high() < two[1].low(), "in order and disjoint");
        }
        let passing: Vec<Condition> =
            conditions.into_iter().filter(|condition| condition.lets_through(&row)).collect();
        let values: Vec<Value> = row.iter().map(Sql::value).collect();
        let image = layout.image(&values);
        let intervals = project(&layout, &passing);
        prop_assert!(
            intervals.iter().any(|interval| interval.covers(&image)),
            "{passing:?}: {intervals:x?} without {image:x?}"
        );
    }
}

fn int4(first: i64, last: i64) -> Interval {
    let layout = Layout::fit(&[Kind::Int4]);
    let low = layout.image(&[Value::Int(first)]).low();
    let high = layout.image(&[Value::Int(last)]).low() + layout.unit() - 1;
    Interval::new(low, high).unwrap()
}

fn of_int4(keys: &[ScanKey]) -> Vec<Interval> {
    Layout::fit(&[Kind::Int4]).project(keys).to_vec()
}

#[test]
fn a_scan_of_integers_ends_at_the_last_one() {
    use Operator::{Equal, Greater, GreaterEqual, Less, LessEqual};
    use ScanKey::{Any, Compare, IsNotNull, IsNull};
    use Value::Int;
    let between = [
        Compare(0, GreaterEqual, Int(5)),
        Compare(0, LessEqual, Int(9)),
    ];
    assert_eq!(of_int4(&between), [int4(5, 9)]);
    let inside = [Compare(0, Greater, Int(5)), Compare(0, Less, Int(9))];
    assert_eq!(of_int4(&inside), [int4(6, 8)]);
    let (first, last) = (i64::from(i32::MIN), i64::from(i32::MAX));
    // Constants of int8 against the int4 column.
    assert_eq!(
        of_int4(&[Compare(0, Less, Int(1 << 40))]),
        [int4(first, last)]
    );
    assert_eq!(
        of_int4(&[Compare(0, Greater, Int(-(1 << 40)))]),
        [int4(first, last)]
    );
    assert_eq!(
        of_int4(&[IsNotNull(0)]),
        [Interval::VALUES.intersection(&int4(first, last)).unwrap()]
    );
    assert_eq!(of_int4(&[IsNull(0)])[0].low(), FIRST_NULL);
    let both = [Compare(0, Equal, Int(1)), Compare(0, Equal, Int(2))];
    assert_eq!(of_int4(&both), []);
    assert_eq!(of_int4(&[Compare(0, Equal, Value::Null)]), []);
    let list = [Int(9), Value::Null, Int(3), Int(9)];
    assert_eq!(of_int4(&[Any(0, Equal, &list)]), [int4(3, 3), int4(9, 9)]);
    assert_eq!(
        of_int4(&[Compare(0, Equal, Value::Unknown)]),
        [Interval::VALUES.intersection(&int4(first, last)).unwrap()]
    );
}

#[test]
fn a_composite_scan_is_as_narrow_as_its_columns() {
    use Operator::{Equal, Greater, Less};
    use ScanKey::{Any, Compare, Row};
    use Value::Int;
    let layout = Layout::fit(&[Kind::Int4, Kind::Int4]);
    let key = |a: i64, b: i64| -> Image { layout.image(&[Int(a), Int(b)]).low() };
    let next = |a: i64, b: i64| key(a, b + 1) - 1;
    let of = |low, high| Interval::new(low, high).unwrap();
    let point = [Compare(0, Equal, Int(1)), Compare(1, Equal, Int(2))];
    assert_eq!(layout.project(&point)[..], [of(key(1, 2), next(1, 2))]);
    let lists = [
        Any(0, Equal, &[Int(1), Int(5)]),
        Compare(1, Greater, Int(2)),
        Compare(1, Less, Int(7)),
    ];
    assert_eq!(
        layout.project(&lists)[..],
        [of(key(1, 3), next(1, 6)), of(key(5, 3), next(5, 6))]
    );
    let row = [Row(Greater, &[(0, Int(1)), (1, Int(2))])];
    let after = layout.project(&row);
    assert_eq!((after.len(), after[0].low()), (1, key(1, 3)));
}

#[test]
fn a_row_comparison_of_more_columns_than_an_image_has_is_widened() {
    let layout = Layout::fit(&[Kind::Bool; 9]);
    let ends = |column: usize| column == 0 || column == 8;
    let members: Vec<(usize, Value)> = (0..9).map(|n| (n, Value::Bool(ends(n)))).collect();
    let below = layout.project(&[ScanKey::Row(Operator::Less, &members)]);
    let key: Vec<Value> = (0..9).map(|n| Value::Bool(n == 0)).collect();
    let key = layout.image(&key);
    assert!(below.iter().any(|interval| interval.covers(&key)));
}

#[test]
fn thousands_of_values_stay_apart() {
    let values = |count: i64| (0..count).map(|n| Value::Int(n * 3)).collect::<Vec<_>>();
    let many = values(10_000);
    let only = of_int4(&[ScanKey::Any(0, Operator::Equal, &many)]);
    assert_eq!(only.len(), 10_000);
    assert_eq!(only[5], int4(15, 15));
    let layout = Layout::fit(&[Kind::Int4, Kind::Int4]);
    let of_one = [
        ScanKey::Compare(0, Operator::Equal, Value::Int(7)),
        ScanKey::Any(1, Operator::Equal, &many),
    ];
    assert_eq!(layout.project(&of_one).len(), 10_000);
    let more = values(100_000);
    let bounded = of_int4(&[ScanKey::Any(0, Operator::Equal, &more)]);
    assert!(
        (10_000..=1 << 14).contains(&bounded.len()),
        "{}",
        bounded.len()
    );
}

/// Of three columns with 200 values each.
#[test]
fn a_scan_on_too_many_points_stays_bounded() {
    let kinds = [Kind::Int4, Kind::Int4, Kind::Int2];
    let layout = Layout::fit(&kinds);
    let points: Vec<Value> = (0..200).map(|n| Value::Int(n * 3)).collect();
    let keys = [0, 1, 2].map(|column| ScanKey::Any(column, Operator::Equal, &points));
    let intervals = layout.project(&keys);
    assert!(intervals.len() <= 1 << 14, "{}", intervals.len());
    for key in [[597, 3, 0], [0, 0, 0], [300, 597, 597]] {
        let key = layout.image(&key.map(Value::Int));
        assert!(intervals.iter().any(|interval| interval.covers(&key)));
    }
    let outside = layout.image(&[Value::Int(3), Value::Int(600), Value::Int(0)]);
    assert!(!intervals.iter().any(|interval| interval.overlaps(&outside)));
}

#[test]
fn every_kind_can_be_scanned_for_equality() {
    proptest!(|((kind, sql) in prop::sample::select(KINDS.to_vec())
        .prop_flat_map(|kind| (Just(kind), not_null(kind))))| {
        let layout = Layout::fit(&[kind]);
        let found = layout.project(&[ScanKey::Compare(0, Operator::Equal, sql.value())]);
        prop_assert_eq!(found.len(), 1);
        prop_assert_eq!(found[0].low(), layout.image(&[sql.value()]).low());
        prop_assert!(found[0].high() - found[0].low() < layout.unit());
    });
}
