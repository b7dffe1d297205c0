//! What is a conflict with a write that was missed, what is not, and what is told of it.

use std::ops::ControlFlow;

use keyrange::{
    Cause, Conflict, Count, Counters, DEFINITION, Grid, Interval, Kind, Layout, Operator, Pieces,
    Predicates, RangeMap, Refusal, ScanKey, Validation, Value, WriteSet,
};

use crate::memory::{MAP, Memory, TABLE, View, since};

#[test]
fn a_write_that_was_missed_is_told_with_all_that_is_known() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[150, 160]);
    let (result, _) = memory.validate(&since(10), 9, 155, 170);
    let conflict = Conflict {
        cause: Cause::Overlap,
        relation: TABLE,
        range: Some(1),
        fxid: 11,
        csn: 2,
        written: Interval::point(160),
        read: Interval::new(155, 170).unwrap(),
    };
    assert_eq!(result, Err(Refusal::Conflict(conflict)));
    assert_eq!(memory.validate(&since(10), 9, 161, 170).0, Ok(()));
    assert_eq!(memory.validate(&since(10), 9, 151, 159).0, Ok(()));
    let cause = |low, high| match memory.validate(&since(10), 9, low, high).0 {
        Err(Refusal::Conflict(conflict)) => conflict.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(100, 199), Cause::Cover);
    assert_eq!(cause(0, u128::MAX), Cause::Relation);
}

#[test]
fn what_was_seen_is_ones_own_rolled_back_or_later_is_no_conflict() {
    let memory = Memory::new(64, 8);
    let csn = memory.write(11, &[5]);
    let check = |view: View, before| memory.validate(&view, before, 0, 9).0.is_ok();
    let view = |ended, aborted, me| View {
        xmin: 10,
        ended,
        aborted,
        me,
    };
    assert!(!check(view(vec![], vec![], 12), csn + 1));
    assert!(check(view(vec![11], vec![], 12), csn + 1));
    assert!(check(view(vec![], vec![11], 12), csn + 1));
    assert!(check(view(vec![], vec![], 11), csn + 1));
    assert!(check(view(vec![], vec![], 12), csn));
}

#[test]
fn a_csn_is_known_after_its_process_has_gone_on() {
    let memory = Memory::new(64, 8);
    let first = memory.write(11, &[5]);
    memory.write(15, &[500]); // the same process
    assert!(memory.validate(&since(10), first + 1, 5, 5).0.is_err());
    assert!(memory.validate(&since(10), first, 5, 5).0.is_ok());
}

#[test]
fn who_published_and_has_no_csn_comes_later() {
    let memory = Memory::new(64, 8);
    let mut writes = WriteSet::new(3);
    writes.write(0, TABLE, &MAP, Interval::point(5));
    let space = memory.space();
    let registered = space.register(1, 11, &writes, &|_| MAP, &|_| true);
    let mine = memory.write(12, &[500]);
    assert!(memory.validate(&since(10), mine, 5, 5).0.is_ok());
    assert!(registered.take_csn().csn > mine);
}

/// Each of many keys in a range is found, and what is between them is free.
#[test]
fn many_keys_of_a_range_stay_keys() {
    for map in [
        RangeMap::Boundaries(&[1 << 80]),
        RangeMap::BoundariesInPieces(&[1 << 80], Pieces::new(16, 0)),
    ] {
        many_keys_stay_keys(map);
    }
}

fn many_keys_stay_keys(map: RangeMap) {
    let keys_of = |count: u128| (0..count).map(move |n| (1 << 40) + n * n * (1 << 20) / count);
    for count in [5, 8, 9, 20, 50] {
        let memory = Memory::new(64, 32);
        let mut writes = WriteSet::new(3);
        keys_of(count).for_each(|key| writes.write(0, TABLE, &map, Interval::point(key)));
        let space = memory.space();
        let registered = space.register(1, 11, &writes, &|_| map, &|_| true);
        let placed = registered.placed();
        assert!(placed <= 8, "{placed} entries for {count} keys");
        let before = registered.take_csn().csn + 1;
        let validate = |low: u128, high: u128| {
            let mut predicates = Predicates::new(8);
            predicates.read(TABLE, &[Interval::new(low, high).unwrap()]);
            let view = since(10);
            let validation = Validation {
                ranges: &|_| map,
                ..memory.validation(&view, before)
            };
            let found = validation.run(&predicates).0;
            // What was copied finds the same.
            let ring_copy = memory.copy(&view, before).unwrap();
            let mut copied = Ok(());
            let is_whole = ring_copy.conflicts(&validation, &predicates, &mut |conflict| {
                copied = Err(Refusal::Conflict(conflict));
                ControlFlow::Break(())
            });
            assert_eq!(is_whole, Ok(()));
            assert_eq!(found.is_ok(), copied.is_ok());
            found
        };
        let keys: Vec<u128> = keys_of(count).collect();
        assert!(keys.iter().all(|&key| validate(key, key).is_err()));
        assert!(
            keys.windows(2)
                .all(|two| validate(two[0], two[1] - 1).is_err())
        );
        let middle = |two: &[u128]| two[0] + (two[1] - two[0]) / 2;
        let between = keys.windows(2);
        let free = between.filter(|two| validate(middle(two), middle(two)).is_ok());
        let free = free.count();
        assert!(free * 2 > keys.len(), "{free} of {count}");
        assert!(count > 8 || free == keys.len() - 1);
        assert!(validate(0, keys[0] - 1).is_ok());
        assert!(validate(keys[keys.len() - 1] + 1, u128::MAX).is_ok());
    }
}

/// Transaction 11 writes these keys, and takes a CSN: the one after it.
fn after_write(memory: &Memory, map: RangeMap, keys: Interval) -> u64 {
    let mut writes = WriteSet::new(3);
    writes.write(0, TABLE, &map, keys);
    let space = memory.space();
    let registered = space.register(1, 11, &writes, &|_| map, &|_| true);
    registered.take_csn().csn + 1
}

/// A scan by key looks at the rings of the range and of that key's piece. It asks for all images
/// that differ in bits that no column has.
#[test]
fn a_key_that_was_read_is_looked_for_in_its_piece() {
    for kinds in [&[Kind::Int8][..], &[Kind::Int4], &[Kind::Int4, Kind::Int4]] {
        let layout = Layout::fit(kinds);
        let map = RangeMap::Grid(Grid::new(1 << 127).with_pieces(Pieces::new(16, layout.unused())));
        let memory = Memory::new(4096, 8);
        let key_of = |n: i64| vec![Value::Int(n); kinds.len()];
        let before = after_write(&memory, map, layout.image(&key_of(7)));
        let view = since(10);
        let validation = Validation {
            ranges: &|_| map,
            ..memory.validation(&view, before)
        };
        for n in 0..50 {
            let keys = key_of(n).into_iter().enumerate();
            let keys: Vec<_> = keys
                .map(|(column, value)| ScanKey::Compare(column, Operator::Equal, value))
                .collect();
            let mut predicates = Predicates::new(8);
            predicates.read(TABLE, &layout.project(&keys));
            let (result, work) = validation.run(&predicates);
            assert_eq!(result.is_err(), n == 7, "{kinds:?}, {n}");
            // That of the relation, that of the range, that of the piece.
            assert_eq!(work.quiet + work.walked, 3, "{kinds:?}, {n}");
        }
    }
}

/// However many keys were read in a range, each of its rings is looked at once.
#[test]
fn many_keys_that_were_read_share_the_rings_of_their_range() {
    const KEYS: u128 = 5000;
    let map = RangeMap::BoundariesInPieces(&[1 << 80], Pieces::new(16, 0));
    let memory = Memory::new(4096, 8);
    let written = (1 << 40) + 7 * 2;
    let before = after_write(&memory, map, Interval::point(written));
    let view = since(10);
    let validation = Validation {
        ranges: &|_| map,
        ..memory.validation(&view, before)
    };
    let run = |odd: u128| {
        let mut predicates = Predicates::new(KEYS as usize);
        for n in 0..KEYS {
            predicates.read(TABLE, &[Interval::point((1 << 40) + 2 * n + odd)]);
        }
        validation.run(&predicates)
    };
    let (result, work) = run(1);
    assert_eq!(result, Ok(()));
    assert_eq!(work.quiet + work.walked, 1 + 1 + 16);
    assert!(run(0).0.is_err());
    let ring_copy = memory.copy(&view, before).unwrap();
    let copied = |odd: u128| {
        let all: Vec<Interval> = (0..KEYS)
            .map(|n| Interval::point((1 << 40) + 2 * n + odd))
            .collect();
        memory.missed(&ring_copy, &view, before, &all)
    };
    assert_eq!((copied(1), copied(0)), (vec![], vec![11]));
}

#[test]
fn a_row_of_keys_is_one_entry() {
    let memory = Memory::new(64, 32);
    let mut writes = WriteSet::new(3);
    (0..1000).for_each(|n| {
        writes.write(
            0,
            TABLE,
            &RangeMap::WHOLE,
            Interval::point((1 << 40) + (n << 20)),
        );
    });
    let space = memory.space();
    let registered = space.register(1, 11, &writes, &|_| RangeMap::WHOLE, &|_| true);
    assert_eq!(registered.placed(), 1);
}

#[test]
fn a_write_anywhere_in_the_relation_conflicts_with_every_predicate_on_it() {
    let memory = Memory::new(64, 8);
    let mut writes = WriteSet::new(3);
    writes.write_all(0, TABLE);
    memory.register(11, &writes);
    let (result, _) = memory.validate(&since(10), 9, 7, 7);
    assert!(matches!(
        result,
        Err(Refusal::Conflict(Conflict {
            cause: Cause::Relation,
            range: None,
            fxid: 11,
            ..
        }))
    ));
    let mut other = Predicates::new(8);
    other.read_all(TABLE + 1);
    assert_eq!(memory.run(&since(10), 9, &other).0, Ok(()));
}

#[test]
fn outcomes_are_counted() {
    let memory = Memory::new(64, 8);
    let counters = Counters::default();
    memory.write(11, &[5]);
    for low in [5, 6] {
        let (result, work) = memory.validate(&since(10), 9, low, 9);
        counters.validated(&result, &work);
    }
    let counts = [
        Count::Validated,
        Count::Passed,
        Count::Overlap,
        Count::HistoryLost,
    ];
    assert_eq!(counts.map(|count| counters.get(count)), [2, 1, 1, 0]);
    counters.reset();
    assert_eq!(counters.get(Count::Validated), 0);
}

#[test]
fn a_changed_definition_outlasts_what_happens_to_rows() {
    let memory = Memory::new(1, 1);
    let mut writes = WriteSet::new(3);
    writes.write_all(0, DEFINITION | TABLE);
    let csn = memory.register(11, &writes);
    for fxid in 12..20 {
        memory.write(fxid, &[1]);
    }
    let mut definition = Predicates::new(1);
    definition.read_all(DEFINITION | TABLE);
    let check = |view: &View| {
        let validation = Validation {
            space: memory.space(),
            snapshot: view,
            before: u64::MAX,
            prefix: 0,
            ranges: &|_| MAP,
            wait: &|| true,
        };
        let mut unseen = Vec::new();
        let is_known = validation.definition_is_seen(TABLE, &mut |entry| unseen.push(entry.fxid));
        assert!(is_known);
        let other = validation.definition_is_seen(TABLE + 1, &mut |_| panic!());
        assert!(other);
        assert_eq!(validation.definitions_are_seen(), unseen.is_empty());
        let stands = |from| validation.can_stand_before(from, &definition).is_ok();
        (unseen, stands(csn), stands(csn + 1))
    };
    assert_eq!(check(&since(10)), (vec![11], true, true));
    assert_eq!(check(&since(12)), (vec![], false, true));
    let rolled_back = View {
        aborted: vec![11],
        ..since(10)
    };
    assert_eq!(check(&rolled_back).0, []);
    assert!(matches!(
        memory.run(&since(10), u64::MAX, &definition).0,
        Err(Refusal::Conflict(conflict)) if conflict.fxid == 11
    ));
}
