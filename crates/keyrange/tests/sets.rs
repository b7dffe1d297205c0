//! Sets of intervals, logical ranges and write sets.

use keyrange::{
    FIRST_NULL, Grid, Image, Interval, IntervalSet, NARROWEST, NULL_RANGE, Predicates, RangeMap,
    Write, WriteSet, boundaries,
};
use proptest::prelude::*;

const TABLE: u64 = 1;

fn of(low: Image, high: Image) -> Interval {
    Interval::new(low, high).unwrap()
}

fn intervals(top: Image) -> impl Strategy<Value = Vec<Interval>> {
    let one = (0..=top, 0..=top).prop_map(|(a, b)| of(a.min(b), a.max(b)));
    let short = (0..=top, 0..4_u128).prop_map(move |(a, n)| of(a, (a + n).min(top)));
    prop::collection::vec(prop_oneof![1 => one, 6 => short], 0..12)
}

fn maps() -> impl Strategy<Value = (Option<u128>, Vec<Image>)> {
    let image = prop_oneof![1..60_u128, 1..FIRST_NULL];
    let power = (0..=128_u32).prop_map(|n| 1_u128.checked_shl(n).unwrap_or(0));
    let width = prop_oneof![1..8 * NARROWEST, any::<u128>(), power];
    (prop::option::of(width), prop::collection::vec(image, 0..8))
}

proptest! {
    #[test]
    fn a_set_has_all_that_was_put_in_and_no_more_without_need(parts in intervals(60)) {
        let mut exact = IntervalSet::default();
        let mut bounded = IntervalSet::default();
        for part in &parts {
            exact.insert(*part, 100);
            bounded.insert(*part, 2);
        }
        prop_assert!(bounded.len() <= 2);
        for image in 0..=60 {
            let point = Interval::point(image);
            let inside = parts.iter().any(|part| part.covers(&point));
            prop_assert_eq!(exact.overlapping(&point).is_some(), inside);
            prop_assert_eq!(exact.covers(&point), inside);
            prop_assert!(!inside || bounded.covers(&point));
        }
        for set in [&exact, &bounded] {
            let all: Vec<Interval> = set.iter().collect();
            for two in all.windows(2) {
                prop_assert!(two[0].high() + 1 < two[1].low(), "apart and in order");
            }
        }
    }

    #[test]
    fn a_large_set_is_like_a_small_one(
        parts in prop::collection::vec((0..20_000_u128, 0..3_u128), 100..600),
        wide in prop::collection::vec((0..20_000_u128, 0..2_000_u128), 0..3),
        most in prop_oneof![Just(1000_usize), 70..200_usize],
    ) {
        let mut set = IntervalSet::default();
        let mut inside = vec![false; 24_000];
        for (low, length) in parts.into_iter().chain(wide) {
            set.insert(of(low, low + length), most);
            prop_assert!(set.len() <= most);
            (low..=low + length).for_each(|image| inside[image as usize] = true);
        }
        let all: Vec<Interval> = set.iter().collect();
        prop_assert_eq!(all.len(), set.len());
        prop_assert!(all.windows(2).all(|two| two[0].high() + 1 < two[1].low()));
        for (image, inside) in inside.into_iter().enumerate() {
            let point = Interval::point(image as Image);
            let covered = set.covers(&point);
            prop_assert!(covered || !inside);
            prop_assert!(inside || !covered || most < 1000, "{}", image);
            let around = of(image as Image, image as Image + 7);
            let first = all.iter().copied().find(|have| have.overlaps(&around));
            prop_assert_eq!(set.overlapping(&around), first);
        }
    }

    #[test]
    fn each_image_is_in_the_bounds_of_its_range(
        (width, marks) in maps(),
        image in prop_oneof![0..60_u128, any::<u128>()],
        length in prop_oneof![0..60_u128, 0..20 * NARROWEST],
    ) {
        let mut sample = marks;
        let marks = boundaries(&mut sample, 9);
        let map = width.map_or(RangeMap::Boundaries(&marks), |width| RangeMap::Grid(Grid::new(width)));
        let range = map.range_of(image);
        prop_assert!(map.bounds(range).covers(&Interval::point(image)));
        prop_assert_eq!(range == NULL_RANGE, image >= FIRST_NULL);
        let interval = of(image, image.saturating_add(length));
        if map.ranges_of(&interval).total() <= 100 {
            let ranges: Vec<u64> = map.ranges_of(&interval).collect();
            prop_assert_eq!(ranges.len() as u64, map.ranges_of(&interval).total());
            let hull = ranges.iter().map(|&range| map.bounds(range)).reduce(|a, b| a.hull(&b));
            prop_assert!(hull.unwrap().covers(&interval));
            for range in ranges {
                prop_assert!(map.bounds(range).overlaps(&interval));
            }
        }
    }

    #[test]
    fn every_write_that_was_not_rolled_back_is_registered(
        steps in prop::collection::vec((0..7_u8, 0..60_u128), 0..60),
        most in 1..6_usize,
    ) {
        let map = RangeMap::Boundaries(&[10, 20, 30, 40, 50]);
        let mut set = WriteSet::new(most);
        // The writes of each open subtransaction, the transaction itself first.
        let mut open: Vec<Vec<Image>> = vec![Vec::new()];
        for (step, image) in steps {
            let nesting = open.len() as u32 - 1;
            match step {
                0 => open.push(Vec::new()),
                1 if nesting > 0 => {
                    set.roll_back(nesting);
                    open.pop();
                }
                2 if nesting > 0 => {
                    set.release(nesting);
                    let ended = open.pop().unwrap();
                    open.last_mut().unwrap().extend(ended);
                }
                _ => {
                    set.write(nesting, TABLE, &map, Interval::point(image));
                    open.last_mut().unwrap().push(image);
                }
            }
        }
        let registered: Vec<Write> = set.iter().collect();
        let kept: Vec<Image> = open.concat();
        for &image in &kept {
            let found = registered.iter().any(|written| match written.place {
                None => true,
                Some((range, keys)) => {
                    range == map.range_of(image) && keys.covers(&Interval::point(image))
                }
            });
            prop_assert!(found, "{image} of {registered:?}");
        }
        prop_assert_eq!(registered.is_empty(), kept.is_empty());
        for written in registered {
            if let Some((range, keys)) = written.place {
                prop_assert!(map.bounds(range).covers(&keys));
                // No wider than what was written there.
                prop_assert!(kept.contains(&keys.low()) && kept.contains(&keys.high()));
            }
        }
    }
}

/// In an order that is neither theirs nor the reverse.
fn shuffled(count: Image) -> impl Iterator<Item = Image> {
    (0..count).map(move |n| n * 7919 % count) // a prime
}

#[test]
fn ten_thousand_keys_of_a_relation_stay_apart() {
    const MOST: usize = 1 << 14;
    let mut predicates = Predicates::new(MOST);
    for n in shuffled(10_000) {
        assert!(!predicates.read_one(TABLE, Interval::point(n * 10)));
    }
    let (_, set) = predicates.iter().next().unwrap();
    assert_eq!(set.len(), 10_000);
    assert!(set.iter().eq((0..10_000).map(|n| Interval::point(n * 10))));
    for n in 0..10_000 {
        assert!(set.covers(&Interval::point(n * 10)));
        assert_eq!(set.overlapping(&of(n * 10 + 1, n * 10 + 9)), None);
        let two = of(n * 10, n * 10 + 10);
        assert_eq!(set.overlapping(&two), Some(Interval::point(n * 10)));
    }
    let map = RangeMap::Boundaries(&[50_000]);
    assert_eq!(set.ranges_in(&map), 2);
    predicates.read_one(TABLE, of(5, 99_000));
    let (_, set) = predicates.iter().next().unwrap();
    assert_eq!(set.len(), 101);
}

#[test]
fn what_a_transaction_remembers_is_bounded() {
    const MOST: usize = 1 << 12;
    let mut predicates = Predicates::new(MOST);
    let mut was_widened = 0;
    for n in shuffled(20_000) {
        for relation in 1..=8 {
            was_widened += u64::from(predicates.read_one(relation, Interval::point(n * 10)));
        }
    }
    assert!(was_widened > 0);
    let total: usize = predicates.iter().map(|(_, set)| set.len()).sum();
    assert!(total <= 4 * MOST + 8 * 256, "{total}");
    for relation in 1..=8 {
        assert!((0..20_000).all(|n| predicates.covers(relation, &Interval::point(n * 10))));
    }
}

#[test]
fn keys_stay_apart_unless_too_many_then_the_relation() {
    let map = RangeMap::Boundaries(&[100_000, 200_000]);
    let mut set = WriteSet::new(2);
    let write = |set: &mut WriteSet, image| set.write(0, TABLE, &map, Interval::point(image));
    (0..2).for_each(|_| shuffled(100).for_each(|n| write(&mut set, n * 20)));
    let keys = set.iter().map(|written| written.place.unwrap());
    let mut keys: Vec<(u64, Interval)> = keys.collect();
    keys.sort_unstable();
    assert!(
        keys.into_iter()
            .eq((0..100).map(|n| (0, Interval::point(n * 20))))
    );
    // Those of one half; the other is far away.
    (0..200).for_each(|n| write(&mut set, n * 2));
    write(&mut set, 99_999);
    let inside = |image| {
        let point = Interval::point(image);
        set.iter()
            .any(|written| written.place.unwrap().1.covers(&point))
    };
    assert!((0..200).all(|n| inside(n * 2)) && (0..100).all(|n| inside(n * 20)));
    assert!(!inside(50_000) && inside(99_999));
    assert!(set.iter().count() <= 128);
    write(&mut set, 100_000);
    assert_eq!(set.iter().last().unwrap().place.unwrap().0, 1);
    write(&mut set, 200_000);
    let whole = Write {
        relation: TABLE,
        place: None,
    };
    assert_eq!(set.iter().collect::<Vec<_>>(), [whole]);
}

#[test]
fn a_subtransaction_of_which_nobody_heard_the_end_keeps_its_writes() {
    let map = RangeMap::WHOLE;
    let mut set = WriteSet::new(2);
    set.write(3, TABLE, &map, Interval::point(1));
    set.write(1, TABLE, &map, Interval::point(2));
    set.roll_back(2);
    assert_eq!(set.iter().count(), 2);
    set.roll_back(1);
    assert!(set.is_empty());
}

#[test]
fn a_sample_is_divided_into_parts_of_one_size() {
    let mut sample: Vec<Image> = (0..1000).rev().map(|n| n * n).collect();
    assert_eq!(
        boundaries(&mut sample, 4),
        [250 * 250, 500 * 500, 750 * 750]
    );
    let mut equal = vec![5; 100];
    assert_eq!(boundaries(&mut equal, 10), [5]);
    assert_eq!(boundaries(&mut Vec::new(), 10), []);
}

#[test]
fn a_scan_that_returns_nothing_is_no_predicate() {
    let mut predicates = Predicates::new(8);
    predicates.read(TABLE, &[]);
    assert!(predicates.is_empty());
    predicates.read_all(TABLE);
    assert_eq!(predicates.iter().next().map(|(_, set)| set.len()), Some(1));
}
