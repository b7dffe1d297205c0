//! Tests of the ticket's queue: grants, barging, and which waiter is signaled.

use super::*;
use crate::MEMBERS;

const STRICT: Patience = Patience {
    fair_every: 1,
    longest_wait: u64::MAX,
    newest_first: 0,
    holds: false,
    competitors: 1,
};
/// Arrivals do not compete.
const NONE: Patience = Patience {
    competitors: 0,
    ..STRICT
};
const LOOSE: Patience = Patience {
    fair_every: 1000,
    ..STRICT
};

fn members(backends: usize) -> (Row, Vec<Member>) {
    (
        Row::default(),
        (0..backends * MEMBERS).map(|_| Member::default()).collect(),
    )
}

fn member(backend: u32) -> MemberId {
    backend * MEMBERS as u32
}

#[test]
fn direct_grants_are_first_come_first_served() {
    let (row, members) = members(3);
    let w = Members { all: &members };
    assert_eq!(row.acquire(w, member(0), NONE, 0), Acquired::Granted);
    assert_eq!(row.acquire(w, member(1), NONE, 0), Acquired::Queued);
    assert_eq!(row.acquire(w, member(2), NONE, 0), Acquired::Queued);
    assert_eq!(row.release(w, member(0), STRICT, 0), Some(1));
    assert!(!row.try_acquire(member(0)));
    assert_eq!(row.retry(w, member(2)), Acquired::Queued);
    assert_eq!(row.retry(w, member(1)), Acquired::Granted);
    assert!(members[member(1) as usize].was_granted());
    assert_eq!(row.release(w, member(1), STRICT, 0), Some(2));
}

#[test]
fn a_free_ticket_signals_one_waiter_and_lets_others_barge() {
    let (row, members) = members(4);
    let w = Members { all: &members };
    row.acquire(w, member(0), NONE, 0);
    row.acquire(w, member(1), NONE, 0);
    row.acquire(w, member(2), NONE, 0);
    assert_eq!(row.release(w, member(0), LOOSE, 0), Some(1));
    assert_eq!(row.acquire(w, member(3), NONE, 0), Acquired::Granted);
    assert_eq!(
        row.release(w, member(3), LOOSE, 0),
        None,
        "one signal is already on its way"
    );
    assert_eq!(row.acquire(w, member(3), NONE, 0), Acquired::Granted);
    assert_eq!(row.retry(w, member(1)), Acquired::Queued);
    assert_eq!(
        row.release(w, member(3), LOOSE, 0),
        Some(1),
        "it answered and lost: signaled again"
    );
    assert_eq!(row.retry(w, member(1)), Acquired::Granted);
    assert_eq!(row.waiting(), 1);
}

#[test]
fn a_signaled_waiter_that_is_cancelled_passes_the_signal_on() {
    let (row, members) = members(3);
    let w = Members { all: &members };
    row.acquire(w, member(0), NONE, 0);
    row.acquire(w, member(1), NONE, 0);
    row.acquire(w, member(2), NONE, 0);
    assert_eq!(row.release(w, member(0), LOOSE, 0), Some(1));
    assert_eq!(row.leave(w, member(1), LOOSE, 0), Some(2));
}

#[test]
fn a_grant_to_a_cancelled_waiter_goes_on() {
    let (row, members) = members(3);
    let w = Members { all: &members };
    row.acquire(w, member(0), NONE, 0);
    row.acquire(w, member(1), NONE, 0);
    row.acquire(w, member(2), NONE, 0);
    assert_eq!(row.release(w, member(0), STRICT, 0), Some(1));
    assert_eq!(row.leave(w, member(1), STRICT, 0), Some(2));
    assert_eq!(row.retry(w, member(2)), Acquired::Granted);
}

#[test]
fn who_is_in_the_lock_manager_is_passed_over_and_keeps_its_place() {
    let (row, members) = members(3);
    let w = Members { all: &members };
    row.acquire(w, member(0), NONE, 0);
    row.acquire(w, member(1), NONE, 0);
    row.acquire(w, member(2), NONE, 0);
    assert!(row.enter_lock_manager(w, member(1)));
    assert_eq!(row.release(w, member(0), STRICT, 0), Some(2));
    assert_eq!(row.retry(w, member(1)), Acquired::Queued);
    assert_eq!(row.release(w, member(2), STRICT, 0), Some(1));
}

#[test]
fn the_newest_waiter_is_woken_until_the_first_has_waited_for_long() {
    let patience = Patience {
        newest_first: 100,
        competitors: 0,
        ..LOOSE
    };
    let (row, members) = members(5);
    let w = Members { all: &members };
    row.acquire(w, member(0), patience, 0);
    for (n, at) in [(1, 10), (2, 20), (3, 30)] {
        row.acquire(w, member(n), patience, at);
    }
    assert!(row.enter_lock_manager(w, member(3)));
    assert_eq!(row.release(w, member(0), patience, 109), Some(2));
    assert!(row.compete(w, member(2)));
    assert_eq!(row.acquire(w, member(4), patience, 109), Acquired::Queued);
    assert_eq!(row.release(w, member(2), patience, 110), Some(1));
    assert!(row.compete(w, member(1)));
    row.go_away(member(1));
    row.acquire(w, member(0), patience, 111);
    assert_eq!(row.come_back(w, member(1), patience, 112), Some(0));
}

#[test]
fn who_holds_something_is_not_passed_over() {
    let patience = Patience {
        newest_first: 100,
        competitors: 0,
        ..LOOSE
    };
    let holds = Patience {
        holds: true,
        ..patience
    };
    let (row, members) = members(4);
    let w = Members { all: &members };
    row.acquire(w, member(0), patience, 0);
    row.acquire(w, member(1), patience, 0);
    row.acquire(w, member(2), holds, 0);
    row.acquire(w, member(3), patience, 0);
    assert_eq!(row.release(w, member(0), patience, 1), Some(1));
    assert!(row.compete(w, member(1)));
    assert_eq!(row.release(w, member(1), patience, 2), Some(2));
    assert!(row.compete(w, member(2)));
    row.acquire(w, member(1), patience, 2);
    assert_eq!(row.release(w, member(2), patience, 3), Some(1));
}

#[test]
fn who_is_due_is_awake_when_the_holder_is_back() {
    let patience = Patience {
        newest_first: 100,
        competitors: 0,
        ..STRICT
    };
    let (row, members) = members(3);
    let w = Members { all: &members };
    row.acquire(w, member(0), patience, 0);
    row.go_away(member(0));
    row.acquire(w, member(1), patience, 0);
    row.acquire(w, member(2), patience, 0);
    assert_eq!(row.come_back(w, member(0), patience, 0), Some(1));
    assert_eq!(row.release(w, member(0), patience, 0), Some(1));
    assert_eq!(row.retry(w, member(1)), Acquired::Granted);
}

#[test]
fn an_arrival_stays_awake_if_nobody_is_when_the_holder_is_back() {
    let two = Patience {
        competitors: 2,
        ..LOOSE
    };
    let (row, members) = members(3);
    let w = Members { all: &members };
    row.acquire(w, member(0), two, 0);
    row.go_away(member(0));
    assert_eq!(row.come_back(w, member(0), two, 0), None);
    assert_eq!(row.acquire(w, member(1), two, 0), Acquired::Competing);
    assert_eq!(row.acquire(w, member(2), two, 0), Acquired::Queued);
}

#[test]
fn nobody_enters_the_lock_manager_on_a_free_ticket() {
    let (row, members) = members(2);
    let w = Members { all: &members };
    row.acquire(w, member(0), NONE, 0);
    row.acquire(w, member(1), NONE, 0);
    row.release(w, member(0), LOOSE, 0);
    assert!(!row.enter_lock_manager(w, member(1)));
    assert_eq!(row.retry(w, member(1)), Acquired::Granted);
}

#[test]
fn a_long_wait_ends_with_a_direct_grant() {
    let (row, members) = members(2);
    let w = Members { all: &members };
    row.acquire(w, member(0), NONE, 0);
    row.acquire(w, member(1), NONE, 0);
    let patience = Patience {
        longest_wait: 50,
        ..LOOSE
    };
    assert_eq!(row.release(w, member(0), patience, 51), Some(1));
    assert!(!row.try_acquire(member(0)));
}

#[test]
fn nobody_stays_awake_for_a_holder_that_is_away() {
    let (row, members) = members(4);
    let w = Members { all: &members };
    assert_eq!(row.acquire(w, member(0), LOOSE, 0), Acquired::Granted);
    assert_eq!(row.acquire(w, member(1), LOOSE, 0), Acquired::Competing);
    row.go_away(member(1));
    assert!(!row.is_away(), "it is not the holder");
    row.go_away(member(0));
    assert!(row.is_away());
    assert_eq!(row.retry(w, member(1)), Acquired::Queued, "it gives up");
    assert_eq!(row.acquire(w, member(2), LOOSE, 0), Acquired::Queued);
    assert_eq!(
        row.come_back(w, member(0), LOOSE, 0),
        Some(1),
        "awake in time"
    );
    assert_eq!(row.come_back(w, member(0), LOOSE, 0), None, "once");
    assert_eq!(row.acquire(w, member(3), LOOSE, 0), Acquired::Queued);
    assert_eq!(row.release(w, member(0), LOOSE, 0), None, "it is awake");
    assert!(row.compete(w, member(1)));
}

#[test]
fn a_release_ends_the_holders_absence() {
    let (row, members) = members(2);
    let w = Members { all: &members };
    row.acquire(w, member(0), LOOSE, 0);
    row.acquire(w, member(1), NONE, 0);
    row.go_away(member(0));
    assert_eq!(row.release(w, member(0), LOOSE, 0), Some(1));
    assert!(!row.is_away());
}

#[test]
fn arrivals_compete_as_long_as_few_do() {
    let (row, members) = members(4);
    let w = Members { all: &members };
    assert_eq!(row.acquire(w, member(0), LOOSE, 0), Acquired::Granted);
    assert_eq!(row.acquire(w, member(1), LOOSE, 0), Acquired::Competing);
    assert_eq!(row.acquire(w, member(2), LOOSE, 0), Acquired::Queued);
    assert!(!row.compete(w, member(1)));
    assert_eq!(
        row.release(w, member(0), LOOSE, 0),
        None,
        "one is awake already"
    );
    assert!(row.compete(w, member(1)));
    assert_eq!(row.release(w, member(1), LOOSE, 0), Some(2));
}
