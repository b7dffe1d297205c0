//! Which rings are looked at, what is lost of them, and how keys are spread over them.

use std::collections::BTreeSet;

use keyrange::{Grid, Interval, Pieces, Predicates, RangeMap, Refusal, WriteSet};

use crate::memory::{MAP, Memory, TABLE, interval, since};

#[test]
fn a_quiet_bucket_is_passed_without_a_look_at_its_slots() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[5]);
    let (result, work) = memory.validate(&since(12), 9, 0, 9);
    assert_eq!(
        (result, work.slots, work.walked, work.quiet),
        (Ok(()), 0, 0, 1) // the relation
    );
    memory.write(13, &[150]);
    let (result, work) = memory.validate(&since(12), 9, 0, 9);
    assert_eq!(
        (result, work.slots, work.walked, work.quiet),
        (Ok(()), 0, 0, 1) // writes anywhere in it; of the range nothing need be looked at
    );
}

#[test]
fn an_old_history_is_not_walked_through() {
    let memory = Memory::new(1, 8);
    for fxid in 3..9 {
        memory.write(fxid, &[u128::from(fxid)]);
    }
    memory.write(11, &[50]);
    let (result, work) = memory.validate(&since(10), 99, 0, 9);
    assert_eq!((result, work.slots), (Ok(()), 1));
}

#[test]
fn what_was_overwritten_is_lost_to_those_who_would_need_it_and_to_nobody_else() {
    let memory = Memory::new(1, 2);
    for fxid in 11..14 {
        memory.write(fxid, &[u128::from(fxid)]);
    }
    let lost = Refusal::HistoryLost {
        relation: TABLE,
        range: Some(0),
        fxid: 11,
    };
    assert_eq!(memory.validate(&since(10), 99, 50, 60).0, Err(lost));
    assert_eq!(memory.validate(&since(12), 99, 50, 60).0, Ok(()));
    assert!(matches!(
        memory.validate(&since(12), 99, 12, 12).0,
        Err(Refusal::Conflict(_))
    ));
    assert_eq!(memory.space().writes.ranges.evictions(), 1);
}

#[test]
fn after_a_start_nobody_passes_who_misses_somebody_from_before() {
    let memory = Memory::new(4, 4);
    memory.clock.start(100);
    assert_eq!(
        memory.validate(&since(99), 9, 0, 9).0,
        Err(Refusal::Restarted)
    );
    assert_eq!(memory.validate(&since(100), 9, 0, 9).0, Ok(()));
    assert_eq!(memory.run(&since(99), 9, &Predicates::new(1)).0, Ok(()));
}

#[test]
fn a_wide_predicate_looks_at_every_bucket_once() {
    let memory = Memory::new(3, 4);
    memory.write(11, &[350]);
    let (result, work) = memory.validate(&since(10), 9, 0, 320);
    assert_eq!((result, work.quiet + work.walked), (Ok(()), 4));
    assert!(memory.validate(&since(10), 9, 0, 350).0.is_err());
}

#[test]
fn buckets_are_quiet_if_nobody_came_there_whom_the_snapshot_may_not_see() {
    let memory = Memory::new(64, 4);
    memory.write(11, &[350]);
    let quiet = |xmin, low, high| {
        let mut predicates = Predicates::new(8);
        predicates.read(TABLE, &[Interval::new(low, high).unwrap()]);
        let view = since(xmin);
        let work = memory.validation(&view, 0).quiet(&predicates);
        work.map(|work| work.quiet)
    };
    assert_eq!(quiet(12, 350, 350), Some(1)); // the relation
    assert_eq!(quiet(11, 350, 350), None);
    // Writes anywhere in the relation; nobody wrote in the ranges.
    assert_eq!(quiet(11, 150, 250), Some(1));
    assert_eq!(quiet(11, 250, 350), None);
    assert_eq!(quiet(12, 0, u128::MAX), Some(1));
    assert_eq!(quiet(11, 0, u128::MAX), None); // all there is would be looked at
    let mut everything = WriteSet::new(1);
    everything.write_all(0, TABLE);
    memory.register(13, &everything);
    assert_eq!(quiet(12, 150, 150), None);
    memory.space().clock.start(20);
    assert_eq!(quiet(15, 150, 150), None);
    assert_eq!(quiet(20, 150, 150), Some(1));
}

/// A write of key 5 in another relation.
fn write_elsewhere(memory: &Memory, fxid: u64) {
    let mut writes = WriteSet::new(3);
    writes.write(0, TABLE + 1, &MAP, Interval::point(5));
    memory.register(fxid, &writes);
}

#[test]
fn a_relation_that_nobody_wrote_needs_no_history() {
    let memory = Memory::new(1, 2);
    memory.write(9, &[5, 250]);
    (11..30).for_each(|fxid| write_elsewhere(&memory, fxid));
    for (low, high) in [(0, u128::MAX), (0, 9), (0, 320), (250, 250)] {
        let (result, work) = memory.validate(&since(10), 99, low, high);
        assert_eq!((result, work.walked, work.quiet), (Ok(()), 0, 1));
    }
}

#[test]
fn what_is_missing_of_other_relations_and_ranges_is_no_concern() {
    let memory = Memory::new(1, 2);
    memory.write(10, &[350]);
    (11..30).for_each(|fxid| write_elsewhere(&memory, fxid));
    // Of the relation, one entry is missing, of transaction 10.
    memory.write(30, &[350]);
    for (low, high) in [(0, 9), (150, 250), (320, 340)] {
        assert_eq!(memory.validate(&since(11), 99, low, high).0, Ok(()));
    }
    assert_eq!(memory.validate(&since(10), 99, 0, 9).0, Ok(()));
    assert!(matches!(
        memory.validate(&since(10), 99, 320, 340).0,
        Err(Refusal::HistoryLost { fxid: 10, .. })
    ));
    let mut whole = Predicates::new(8);
    whole.read_all(TABLE);
    let lost = memory.run(&since(10), 42, &whole).0;
    assert!(matches!(lost, Err(Refusal::HistoryLost { .. })), "{lost:?}");
}

#[test]
fn totals_are_those_of_a_range_and_not_of_its_bucket() {
    let memory = Memory::new(1, 4);
    memory.write(11, &[5]);
    memory.write(12, &[150]);
    memory.write(13, &[160]);
    write_elsewhere(&memory, 14);
    assert!(memory.validate(&since(10), 99, 100, 199).0.is_err());
    let rings = memory.space().writes.ranges;
    assert_eq!(rings.totals(TABLE, Some(0)), [1, 0, 0]);
    assert_eq!(rings.totals(TABLE, Some(1)), [2, 1, 1]);
    assert_eq!(rings.totals(TABLE + 1, Some(0)), [1, 0, 0]);
    assert_eq!(rings.totals(TABLE, None), [0, 0, 0]);
}

#[test]
fn the_keys_of_a_range_are_spread_over_its_pieces() {
    let map = RangeMap::Grid(Grid::new(1 << 100).with_pieces(Pieces::new(16, 0)));
    let memory = Memory::new(256, 2);
    let images: Vec<u128> = (0..2000).map(|n| n << 70).collect();
    let mut used = [0; 16];
    for &image in &images {
        used[map.piece_of(&Interval::point(image)).unwrap() as usize] += 1;
    }
    assert!(used.iter().all(|&count| count > 60), "{used:?}");
    assert_eq!(map.piece_of(&interval(1, 2)), None);
    let rings = memory.space().writes.ranges;
    let bucket = |keys: Interval| rings.bucket_for(TABLE, 0, &keys, &map);
    assert_eq!(bucket(interval(1, 2)), rings.bucket_of(TABLE, 0));
    let different: BTreeSet<usize> = images.iter().map(|&n| bucket(Interval::point(n))).collect();
    assert!(different.len() > 10);
}

#[test]
fn ranges_spread_over_the_buckets() {
    let memory = Memory::new(64, 1);
    let rings = memory.space().writes.ranges;
    let mut used = [0; 64];
    for relation in 0..10 {
        (0..640).for_each(|range| used[rings.bucket_of(16384 + relation, range)] += 1);
    }
    assert!(used.iter().all(|&n| (50..150).contains(&n)), "{used:?}");
}
