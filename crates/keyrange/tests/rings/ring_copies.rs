//! Copies of the rings, and validation by them.

use std::ops::ControlFlow;

use keyrange::{Conflict, Interval, Predicates, Refusal, WriteSet};

use crate::memory::{Memory, TABLE, View, interval, since};

#[test]
fn a_ring_copy_has_what_is_overwritten_later_and_nothing_from_after_the_reading_point() {
    let memory = Memory::new(2, 2);
    let view = since(10);
    let before = memory.write(11, &[150]) + 2;
    memory.write(12, &[160]);
    let ring_copy = memory.copy(&view, before).unwrap();
    for fxid in 20..40 {
        memory.write(fxid, &[150, 160, 350]);
    }
    let lost = memory.validate(&view, before, 0, 999).0;
    assert!(matches!(lost, Err(Refusal::HistoryLost { .. })));
    let missed = |low, high| memory.missed(&ring_copy, &view, before, &[interval(low, high)]);
    assert_eq!(missed(0, u128::MAX), [11]);
    assert_eq!(missed(150, 150), [11]);
    assert!(missed(151, 999).is_empty() && missed(0, 149).is_empty());
}

#[test]
fn a_conflict_in_a_ring_copy_is_told_as_one_in_the_rings() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[150, 160]);
    let view = since(10);
    let mut predicates = Predicates::new(8);
    predicates.read(TABLE, &[interval(155, 170)]);
    let mut told = Vec::new();
    let ring_copy = memory.copy(&view, 9).unwrap();
    let validation = memory.validation(&view, 9);
    let _ = ring_copy.conflicts(&validation, &predicates, &mut |conflict| {
        told.push(Refusal::Conflict(conflict));
        ControlFlow::Break(())
    });
    let (by_rings, _) = memory.run(&view, 9, &predicates);
    assert_eq!(told, [by_rings.unwrap_err()]);
}

#[test]
fn an_entry_in_a_ring_copy_is_found_by_any_of_its_keys_and_once() {
    let memory = Memory::new(64, 8);
    memory.write(11, &[100, 110, 120, 190]); // more than the three that are kept apart
    memory.write(12, &[130]);
    let mut whole = WriteSet::new(3);
    whole.write_all(0, TABLE + 1);
    memory.register(13, &whole);
    let view = since(10);
    let ring_copy = memory.copy(&view, 99).unwrap();
    let missed = |read: &[Interval]| memory.missed(&ring_copy, &view, 99, read);
    assert_eq!(missed(&[interval(130, 130)]).last(), Some(&12));
    assert_eq!(missed(&[interval(131, 200)]), [11]);
    let twice = [interval(100, 105), interval(109, 125), interval(129, 200)];
    let all = missed(&twice);
    assert_eq!(all.iter().filter(|&&fxid| fxid == 12).count(), 1);
    let mut other = Predicates::new(8);
    other.read(TABLE + 1, &[interval(7, 7)]);
    let mut found = 0;
    let _ = ring_copy.conflicts(&memory.validation(&view, 99), &other, &mut |conflict| {
        assert_eq!((conflict.fxid, conflict.range), (13, None));
        found += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(found, 1);
}

#[test]
fn a_ring_copy_is_not_enough_for_what_is_lost() {
    let memory = Memory::new(1, 2);
    for fxid in 11..14 {
        memory.write(fxid, &[u128::from(fxid)]);
    }
    let read = |xmin, relation| {
        let view = since(xmin);
        let ring_copy = memory.copy(&view, 99).unwrap();
        let mut predicates = Predicates::new(8);
        predicates.read(relation, &[interval(50, 60)]);
        let go_on = &mut |_| ControlFlow::Continue(());
        ring_copy.conflicts(&memory.validation(&view, 99), &predicates, go_on)
    };
    assert!(matches!(read(10, TABLE), Err(Refusal::HistoryLost { .. })));
    assert_eq!(read(10, TABLE + 1), Ok(()));
    assert_eq!(read(12, TABLE), Ok(()));
    memory.clock.start(100);
    assert!(memory.copy(&since(99), 99).is_none());
}

#[test]
fn who_stands_by_a_ring_copy_has_seen_nothing_of_later_ones() {
    let memory = Memory::new(2, 4);
    let missed = memory.write(11, &[150]);
    let seen = memory.write(12, &[350]);
    let view = View {
        xmin: 10,
        ended: vec![12],
        ..View::default()
    };
    let before = seen + 2;
    let ring_copy = memory.copy(&view, before).unwrap();
    for fxid in 20..40 {
        memory.write(fxid, &[150, 350]);
    }
    let stands = |from, low, high| {
        let mut predicates = Predicates::new(8);
        predicates.read(TABLE, &[interval(low, high)]);
        ring_copy.can_stand_before(&memory.validation(&view, before), from, &predicates)
    };
    assert_eq!(stands(missed, 0, 349), Ok(()));
    assert!(matches!(
        stands(missed, 0, 350),
        Err(Refusal::Conflict(Conflict { fxid: 12, .. }))
    ));
    assert_eq!(stands(seen + 1, 0, 350), Ok(()));
    // Of those before the first that was missed it knows nothing, and asks the rings.
    let lost = stands(missed - 1, 0, 350);
    assert!(matches!(lost, Err(Refusal::HistoryLost { .. })));
}
