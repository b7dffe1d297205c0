//! Histories of correct databases are accepted, those of too weak ones are not.
mod common;

use Level::{ReadCommitted, RepeatableRead, Serializable};
use common::{Database, crowded, simulate};
use history::{Class, History, Level, Op, Promise, Workload, check};
use proptest::prelude::*;

fn middling(seed: u64) -> Workload {
    Workload {
        seed,
        slots: 8,
        ..Workload::default()
    }
}

fn promises(level: Level) -> [Promise; 2] {
    [false, true].map(|real_time| Promise { level, real_time })
}

/// With many unknown outcomes not all ways can be tried: then nothing is said for certain.
#[test]
fn many_unknown_outcomes_leave_a_verdict_uncertain() {
    let seed = 6_216_383_483_507_407_961;
    let history = simulate(&middling(seed), Database::Serial, 4, 200, 16);
    for promise in [ReadCommitted, RepeatableRead, Serializable]
        .into_iter()
        .flat_map(promises)
    {
        let verdict = check(&history, promise).unwrap();
        assert!(
            verdict.holds() || !verdict.certain,
            "{promise:?}: {verdict}"
        );
    }
}

/// The times that clients know are no more than a hint: on a busy machine a client may hear of its
/// commit long after others have seen it.
#[test]
fn late_answers_leave_the_order_to_be_found() {
    for seed in 0..10 {
        let mut history = simulate(&middling(seed), Database::Serial, 8, 800, 0);
        for (number, transaction) in (0..).zip(&mut history.transactions) {
            // Every tenth waits for the answer while some dozens of others run.
            transaction.completed += 500 * u64::from(number % 10 == 0);
        }
        let verdict = check(&history, Serializable.into()).unwrap();
        assert!(verdict.holds(), "seed {seed}: {verdict}");
    }
}

/// On a machine with much else to do most answers are late, and the times suggest hundreds of
/// pairs wrongly.
#[test]
fn most_answers_may_be_late() {
    for seed in 0..4 {
        let mut history = simulate(&crowded(seed), Database::Serial, 8, 1200, 0);
        for (number, transaction) in (0..).zip(&mut history.transactions) {
            transaction.completed += 150 * (number * 7 % 11);
        }
        for level in [ReadCommitted, RepeatableRead, Serializable] {
            let verdict = check(&history, level.into()).unwrap();
            assert!(verdict.holds(), "seed {seed}, {level:?}: {verdict}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_serial_database_keeps_every_promise(seed: u64, unknown in 0u32..20) {
        for workload in [middling(seed), crowded(seed)] {
            let history = simulate(&workload, Database::Serial, 4, 200, unknown);
            for promise in [ReadCommitted, RepeatableRead, Serializable].into_iter().flat_map(promises) {
                let verdict = check(&history, promise).unwrap();
                let is_given_up = unknown > 5 && !verdict.certain;
                prop_assert!(verdict.holds() || is_given_up, "{:?}: {}", promise, verdict);
            }
        }
    }

    #[test]
    fn snapshot_isolation_is_accepted_and_its_write_skew_is_not(seed: u64) {
        let history = simulate(&middling(seed), Database::Snapshot, 8, 200, 5);
        // Statements read from old snapshots, so READ COMMITTED in real time is not kept.
        let kept = [ReadCommitted.into()].into_iter().chain(promises(RepeatableRead));
        for promise in kept {
            let verdict = check(&history, promise).unwrap();
            prop_assert!(verdict.holds(), "{:?}: {}", promise, verdict);
        }
        let verdict = check(&history, Serializable.into()).unwrap();
        let skew = |class| matches!(class, Class::G2 | Class::G2Item);
        prop_assert!(verdict.anomalies.iter().all(|anomaly| skew(anomaly.class)), "{}", verdict);
    }

    #[test]
    fn read_committed_is_accepted(seed: u64) {
        let history = simulate(&middling(seed), Database::ReadCommitted, 8, 200, 5);
        for promise in promises(ReadCommitted) {
            let verdict = check(&history, promise).unwrap();
            prop_assert!(verdict.holds(), "{:?}: {}", promise, verdict);
        }
    }

    /// A scan without one of its rows, where that row is neither new nor about to go.
    #[test]
    fn a_row_that_is_left_out_is_missed(seed: u64, place: prop::sample::Index) {
        let mut history = simulate(&middling(seed), Database::Serial, 4, 200, 0);
        let Some(rows) = some(&mut history, place, |op| match op {
            Op::Scan { rows, .. } if !rows.is_empty() => Some(rows),
            _ => None,
        }) else {
            return Ok(());
        };
        rows.remove(place.index(rows.len()));
        let verdict = check(&history, Promise::STRICT).unwrap();
        prop_assert!(!verdict.holds());
    }

    #[test]
    fn an_older_value_is_noticed(seed: u64, place: prop::sample::Index) {
        let mut history = simulate(&middling(seed), Database::Serial, 4, 200, 0);
        let Some(values) = some(&mut history, place, |op| match op {
            Op::ReadList { values, .. } if !values.is_empty() => Some(values),
            _ => None,
        }) else {
            return Ok(());
        };
        values.pop();
        prop_assert!(!check(&history, Promise::STRICT).unwrap().holds());
    }
}

/// One of the parts that `pick` finds in committed transactions.
fn some<'a, T>(
    history: &'a mut History,
    place: prop::sample::Index,
    pick: impl Fn(&'a mut Op) -> Option<T>,
) -> Option<T> {
    let transactions = history.transactions.iter_mut();
    let committed = transactions.filter(|one| one.outcome == history::Outcome::Committed);
    let ops = committed.flat_map(|one| one.events.iter_mut().map(|event| &mut event.op));
    let mut found: Vec<T> = ops.filter_map(pick).collect();
    (!found.is_empty()).then(|| found.swap_remove(place.index(found.len())))
}

/// The simulators are not so tame that there is nothing to find.
#[test]
fn weak_databases_are_found_out() {
    let refused = |database, level: Level| {
        let seeds = 0..50;
        let refused = seeds.filter(|seed| {
            let history = simulate(&middling(*seed), database, 8, 200, 0);
            !check(&history, level.into()).unwrap().holds()
        });
        refused.count()
    };
    assert!(refused(Database::Snapshot, Serializable) > 25);
    assert!(refused(Database::ReadCommitted, RepeatableRead) > 25);
    assert_eq!(refused(Database::Serial, Serializable), 0);
}

#[test]
fn the_same_seed_gives_the_same_transactions() {
    let workload = Workload::default();
    let plans = |number| workload.client(number).take(50).collect::<Vec<_>>();
    assert_eq!(plans(3), plans(3));
    assert_ne!(plans(3), plans(4));
    let other = Workload {
        seed: 1,
        ..workload.clone()
    };
    assert_ne!(plans(3), other.client(3).take(50).collect::<Vec<_>>());
}
