//! The checker against every order: its verdict on small histories is the truth.
mod common;

use common::{Database, crowded, serializable, simulate, snapshot};
use history::{History, Level, Op, check};
use proptest::prelude::*;

/// A small history, right or wrong: of a database that is too weak, or with a result that is
/// another one's.
fn small(most: usize) -> impl Strategy<Value = History> {
    let database = prop_oneof![
        Just(Database::ReadCommitted),
        Just(Database::Snapshot),
        Just(Database::Serial),
    ];
    let unknown = prop_oneof![Just(0u32), Just(30)];
    let changes = prop::collection::vec(any::<[prop::sample::Index; 2]>(), 0..=1);
    let parts = (any::<u64>(), database, 2..=most, unknown, changes);
    parts.prop_map(|(seed, database, count, unknown, changes)| {
        let mut history = simulate(&crowded(seed), database, 4, count, unknown);
        // The reads of everything would leave little to guess.
        history.transactions.pop();
        for [from, to] in changes {
            confuse(&mut history, from, to);
        }
        history
    })
}

/// Gives an operation the result of another one of the same kind, if there is one.
fn confuse(history: &mut History, from: prop::sample::Index, to: prop::sample::Index) {
    let all = || {
        let numbered = history.transactions.iter().enumerate();
        numbered
            .flat_map(|(one, transaction)| (0..transaction.events.len()).map(move |op| (one, op)))
    };
    let places: Vec<(usize, usize)> = all().collect();
    if places.is_empty() {
        return;
    }
    let (from, to) = (*from.get(&places), *to.get(&places));
    let source = history.transactions[from.0].events[from.1].op.clone();
    match (&source, &mut history.transactions[to.0].events[to.1].op) {
        (Op::ReadList { values: from, .. }, Op::ReadList { values, .. }) => values.clone_from(from),
        (Op::Read { value: from, .. }, Op::Read { value, .. }) => *value = *from,
        (Op::Scan { rows: from, .. }, Op::Scan { rows, range, .. }) => {
            *rows = from
                .iter()
                .copied()
                .filter(|row| range.contains(row.0))
                .collect();
        }
        (_, Op::Scan { rows, .. }) => drop(rows.pop()),
        (_, Op::ReadList { values, .. }) => drop(values.pop()),
        (_, Op::Delete { removed, .. }) => *removed = None,
        (_, Op::Update { replaced, .. }) => *replaced = None,
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn serializable_is_what_has_a_serial_order(history in small(6)) {
        let verdict = check(&history, Level::Serializable.into()).unwrap();
        prop_assert!(verdict.certain);
        prop_assert_eq!(verdict.holds(), serializable(&history), "{}", verdict);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn repeatable_read_is_what_has_an_order_of_snapshots(history in small(4)) {
        let verdict = check(&history, Level::RepeatableRead.into()).unwrap();
        prop_assert!(verdict.certain);
        prop_assert_eq!(verdict.holds(), snapshot(&history), "{}", verdict);
    }
}

/// The small histories are neither nearly all right nor nearly all wrong.
#[test]
fn both_verdicts_are_tested() {
    let seeds = 0..1000;
    let right = seeds.filter(|seed| {
        let history = simulate(&crowded(*seed), Database::ReadCommitted, 4, 6, 0);
        check(&history, Level::Serializable.into()).unwrap().holds()
    });
    let right = right.count();
    assert!(
        (200..800).contains(&right),
        "{right} of 1000 are serializable"
    );
}
