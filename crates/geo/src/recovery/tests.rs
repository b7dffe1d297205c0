use super::*;
use crate::slots::{Slot, active};
use proptest::prelude::*;

const COORDINATOR: u128 = 7;
const INCARNATION: u64 = 5;
const MAPPING: u32 = 10;

fn gid(sequence: u64) -> Gid {
    Gid {
        coordinator: COORDINATOR,
        incarnation: INCARNATION,
        sequence,
        mapping: MAPPING,
    }
}

fn row(gid: Gid) -> Decision {
    Decision {
        gid,
        acknowledged: false,
        confirmed: true,
        lost: false,
    }
}

fn slots(sequences: &[u64]) -> Active {
    let (send, receive) = std::sync::mpsc::channel();
    let sequences = sequences.to_vec();
    let body = move || {
        let slots: Vec<Slot> = sequences.iter().map(|_| Slot::default()).collect();
        for (slot, &sequence) in slots.iter().zip(&sequences) {
            slot.open(sequence);
        }
        send.send(active(&slots)).unwrap();
    };
    shuttle::check_random(body, 1);
    receive.recv().unwrap()
}

fn pass(p: &[Gid], a: &[u64], t: &[Decision], q: &[Gid]) -> Vec<Action> {
    let scope = Scope {
        coordinator: COORDINATOR,
        incarnation: INCARNATION,
        mappings: vec![MAPPING, MAPPING + 1],
    };
    Pass::of(scope)
        .prepared(p.to_vec())
        .active(slots(a))
        .decided(t.to_vec())
        .prepared_again(q.to_vec())
}

#[test]
fn undecided_ones_are_rolled_back_unless_active() {
    let g = gid(1);
    for q in [vec![], vec![g]] {
        assert_eq!(pass(&[g], &[], &[], &q), [Action::RollBack(g)]);
        assert_eq!(pass(&[g], &[2], &[], &q), [Action::RollBack(g)]);
        assert_eq!(pass(&[g], &[1], &[], &q), []);
    }
    assert_eq!(pass(&[], &[], &[], &[g]), []);
}

#[test]
fn decided_ones_are_committed_if_seen_twice_and_confirmed() {
    let g = gid(1);
    assert_eq!(pass(&[g], &[], &[row(g)], &[g]), [Action::Commit(g)]);
    assert_eq!(pass(&[g], &[1], &[row(g)], &[g]), []);
    assert_eq!(pass(&[g], &[], &[row(g)], &[]), []);
    assert_eq!(pass(&[], &[], &[row(g)], &[g]), []);
    let unconfirmed = Decision {
        confirmed: false,
        ..row(g)
    };
    assert_eq!(pass(&[g], &[], &[unconfirmed], &[g]), []);
    assert_eq!(pass(&[], &[], &[unconfirmed], &[]), []);
}

#[test]
fn rows_of_gone_ones_are_erased_or_asked_about() {
    let g = gid(1);
    assert_eq!(pass(&[], &[], &[row(g)], &[]), [Action::AskStatus(g)]);
    assert_eq!(pass(&[], &[1], &[row(g)], &[]), []);
    let acknowledged = Decision {
        acknowledged: true,
        ..row(g)
    };
    assert_eq!(pass(&[], &[], &[acknowledged], &[]), [Action::Erase(g)]);
}

#[test]
fn earlier_incarnations_are_never_active_and_later_ones_are_left() {
    let earlier = Gid {
        incarnation: INCARNATION - 1,
        ..gid(1)
    };
    assert_eq!(
        pass(&[earlier], &[1], &[], &[earlier]),
        [Action::RollBack(earlier)]
    );
    assert_eq!(
        pass(&[earlier], &[1], &[row(earlier)], &[earlier]),
        [Action::Commit(earlier)]
    );
    let later = Gid {
        incarnation: INCARNATION + 1,
        ..gid(1)
    };
    assert_eq!(pass(&[later], &[], &[], &[later]), []);
    assert_eq!(pass(&[later], &[], &[row(later)], &[later]), []);
}

#[test]
fn others_names_are_left() {
    let foreign = Gid {
        coordinator: COORDINATOR + 1,
        ..gid(1)
    };
    let elsewhere = Gid {
        mapping: MAPPING + 2,
        ..gid(1)
    };
    for g in [foreign, elsewhere] {
        assert_eq!(pass(&[g], &[], &[], &[g]), []);
        assert_eq!(pass(&[g], &[], &[row(g)], &[g]), []);
        assert_eq!(pass(&[], &[], &[row(g)], &[]), []);
    }
}

proptest! {
    /// The rules as `recovery.rs` has them, over all combinations of a few transactions.
    #[test]
    fn actions_follow_the_sets(states in proptest::collection::vec(0u8..64, 1..6)) {
        let bit = |state: u8, bit: u8| state & (1 << bit) != 0;
        let gids = || (1..).zip(&states).map(|(sequence, &state)| (gid(sequence), state));
        let having = |which: u8| -> Vec<Gid> {
            gids().filter(|&(_, state)| bit(state, which)).map(|(gid, _)| gid).collect()
        };
        let a: Vec<u64> = having(1).iter().map(|gid| gid.sequence).collect();
        let rows = gids().filter(|&(_, state)| bit(state, 2)).map(|(gid, state)| Decision {
            gid,
            acknowledged: bit(state, 4),
            confirmed: bit(state, 5),
            lost: false,
        });
        let mut found = pass(&having(0), &a, &rows.collect::<Vec<_>>(), &having(3));
        let mut wanted: Vec<Action> = gids().filter_map(|(gid, state)| {
            let [p, a, t, q, acknowledged, confirmed] = [0, 1, 2, 3, 4, 5].map(|b| bit(state, b));
            match (a, t, p, q) {
                (false, false, true, _) => Some(Action::RollBack(gid)),
                (false, true, true, true) if confirmed => Some(Action::Commit(gid)),
                (false, true, false, false) if confirmed && acknowledged => {
                    Some(Action::Erase(gid))
                }
                (false, true, false, false) if confirmed => Some(Action::AskStatus(gid)),
                _ => None,
            }
        }).collect();
        found.sort();
        wanted.sort();
        prop_assert_eq!(found, wanted);
    }
}
