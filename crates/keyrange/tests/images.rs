//! Images are in the order of the keys, whatever the columns and however the bits are shared.

mod values;

use std::cmp::Ordering;

use keyrange::{FIRST_NULL, Image, Interval, Kind, Layout, Value};
use proptest::prelude::*;
use values::{Sql, kinds, row};

fn image(layout: &Layout, row: &[Sql]) -> Image {
    let values: Vec<Value> = row.iter().map(Sql::value).collect();
    let image = layout.image(&values);
    assert_eq!(
        image.low(),
        image.high(),
        "a key of known values is one image"
    );
    image.low()
}

/// The order of an index: from left to right, NULLs last.
fn order(a: &[Sql], b: &[Sql]) -> Ordering {
    let columns = a.iter().zip(b).map(|(a, b)| match (a, b) {
        (Sql::Null, _) | (_, Sql::Null) => (*a == Sql::Null).cmp(&(*b == Sql::Null)),
        (a, b) => a.order(b),
    });
    columns
        .into_iter()
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Columns, bits for each, and two keys that often share their first values.
fn two_keys() -> impl Strategy<Value = (Layout, Vec<Sql>, Vec<Sql>)> {
    kinds().prop_flat_map(|kinds| {
        let bits = prop::collection::vec(1..128_u32, kinds.len());
        let shared = 0..=kinds.len();
        let layout = (any::<bool>(), bits).prop_map({
            let kinds = kinds.clone();
            move |(fit, bits)| {
                if fit {
                    Layout::fit(&kinds)
                } else {
                    Layout::with_bits(kinds.iter().copied().zip(bits))
                }
            }
        });
        (layout, row(&kinds), row(&kinds), shared).prop_map(|(layout, a, mut b, shared)| {
            b[..shared].clone_from_slice(&a[..shared]);
            (layout, a, b)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn images_are_in_the_order_of_the_keys((layout, a, b) in two_keys()) {
        let (of_a, of_b) = (image(&layout, &a), image(&layout, &b));
        match order(&a, &b) {
            Ordering::Less => prop_assert!(of_a <= of_b),
            Ordering::Equal => prop_assert_eq!(of_a, of_b),
            Ordering::Greater => prop_assert!(of_a >= of_b),
        }
        prop_assert_eq!(of_a >= FIRST_NULL, a[0] == Sql::Null);
    }

    #[test]
    fn the_images_that_rows_can_have_are_those_of_rows(
        (layout, a, b) in two_keys(),
        more in any::<[u8; 2]>(),
        most in 1..20_usize,
    ) {
        let (a, b) = (image(&layout, &a), image(&layout, &b));
        let low = a.min(b).saturating_sub(more[0].into());
        let high = a.max(b).saturating_add(more[1].into());
        let rows = layout.rows(&Interval::new(low, high).unwrap(), most);
        prop_assert!(rows.len() <= most);
        prop_assert!(rows.iter().all(|keys| low <= keys.low() && keys.high() <= high));
        for key in [a, b] {
            prop_assert!(rows.iter().any(|keys| keys.overlaps(&Interval::point(key))));
        }
        prop_assert_eq!(layout.rows(&Interval::point(a), most), [Interval::point(a)]);
    }

    #[test]
    fn an_unknown_value_is_any_value((layout, a, _) in two_keys(), at in 0..4_usize) {
        let mut values: Vec<Value> = a.iter().map(Sql::value).collect();
        let at = at % values.len();
        values[at] = Value::Unknown;
        prop_assert!(layout.image(&values).covers(&Interval::point(image(&layout, &a))));
    }
}

fn exact(kinds: &[Kind], keys: &[&[Sql]]) {
    let layout = Layout::fit(kinds);
    for two in keys.windows(2) {
        assert!(image(&layout, two[0]) < image(&layout, two[1]), "{two:?}");
    }
}

#[test]
fn few_neighbours_are_told_one_by_one() {
    let layout = Layout::fit(&[Kind::Int4]);
    let key = |n: i64| layout.image(&[Value::Int(n)]);
    let whole = layout.image(&[Value::Int(3)]).hull(&key(4));
    let beyond = Interval::new(whole.low(), whole.high() + layout.unit() - 1).unwrap();
    assert_eq!(layout.rows(&beyond, 2), [key(3), key(4)]);
    assert_eq!(layout.rows(&beyond, 1), [whole]);
    let between = Interval::new(key(3).low() + 1, key(4).low() - 1).unwrap();
    assert_eq!(layout.rows(&between, 2), []);
}

#[test]
fn integers_times_and_short_composite_keys_are_exact() {
    use Sql::{Bool, Int, Null, Text};
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let keys: Vec<[Sql; 1]> = ends.iter().map(|&end| [Int(end)]).collect();
    let keys: Vec<&[Sql]> = keys.iter().map(|key| &key[..]).collect();
    exact(&[Kind::Int8], &keys);
    // TPC-C's order line: warehouse, district, order, line.
    exact(
        &[Kind::Int2, Kind::Int2, Kind::Int4, Kind::Int2],
        &[
            &[Int(-32768), Int(0), Int(7), Int(9)],
            &[Int(3), Int(4), Int(2_147_483_646), Int(2)],
            &[Int(3), Int(4), Int(2_147_483_647), Int(1)],
            &[Int(3), Int(4), Int(2_147_483_647), Int(2)],
            &[Int(3), Int(4), Null, Int(1)],
            &[Int(3), Int(5), Int(-2_147_483_648), Int(1)],
        ],
    );
    exact(
        &[Kind::Text, Kind::Int4],
        &[
            &[Text(b"tenant".into()), Int(1)],
            &[Text(b"tenant".into()), Int(2)],
            &[Text(b"tenant1".into()), Int(0)],
        ],
    );
    exact(&[Kind::Bool], &[&[Bool(false)], &[Bool(true)], &[Null]]);
}

#[test]
fn what_follows_a_value_that_is_cut_does_not_count() {
    let decimal = |last| Sql::Decimal(false, 0, vec![7, 7, 7, 7, 7, 7, 7, last]);
    let text = |last| Sql::Text([b'a', b'a', b'a', b'a', b'a', b'a', b'a', b'a', last].into());
    for (kind, first, second) in [
        (Kind::Numeric, decimal(1), decimal(2)),
        (Kind::Text, text(1), text(2)),
    ] {
        let layout = Layout::fit(&[kind, Kind::Int2]);
        let smaller = image(&layout, &[first, Sql::Int(9)]);
        assert_eq!(smaller, image(&layout, &[second, Sql::Int(1)]));
    }
}

#[test]
fn what_the_prefix_does_not_tell_apart_has_one_image() {
    let layout = Layout::fit(&[Kind::Text]);
    let of = |text: &[u8]| layout.image(&[Value::Text(text)]);
    assert_eq!(of(b"0123456789abcdefX"), of(b"0123456789abcdefY"));
    assert_ne!(of(b"0123456789abcde"), of(b"0123456789abcdf"));
}
