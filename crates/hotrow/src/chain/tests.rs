//! Tests of the dependency list: rollbacks, readers, wake-ups, groups.

use super::*;

fn setup(backends: usize) -> (Row, Vec<Member>) {
    (
        Row::default(),
        (0..backends * MEMBERS).map(|_| Member::default()).collect(),
    )
}

fn id(backend: u32) -> MemberId {
    backend * MEMBERS as u32
}

fn woken(f: impl FnOnce(&mut dyn FnMut(BackendId))) -> Vec<BackendId> {
    let mut list = Vec::new();
    f(&mut |backend| list.push(backend));
    list
}

#[test]
fn a_rollback_dooms_everybody_behind_and_leaves_the_last_good_tail() {
    let (row, members) = setup(4);
    let w = Members { all: &members };
    for backend in 0..4 {
        row.link_writer(w, id(backend), 100 + backend, u64::from(backend));
    }
    let mut woke = Vec::new();
    assert_eq!(row.roll_back(w, id(1), |a| woke.push(a)), 2);
    assert_eq!(woke, [3, 2]);
    assert_eq!(row.tail(w).map(|t| t.xid), Some(100));
    assert!(!members[id(0) as usize].is_doomed() && !members[id(1) as usize].is_doomed());
    assert!(members[id(2) as usize].is_doomed() && members[id(3) as usize].is_doomed());
    assert_eq!(row.roll_back(w, id(3), |_| panic!("nobody is left")), 0);
    assert_eq!(row.running(), 1);
}

#[test]
fn a_version_that_is_rolled_back_leaves_a_reader() {
    let (row, members) = setup(4);
    let w = Members { all: &members };
    for backend in 0..4 {
        row.link_writer(w, id(backend), 100 + backend, u64::from(backend));
    }
    assert_eq!(row.roll_back_version(w, id(2), true, |_| ()), 1);
    assert_eq!(row.tail(w).map(|t| t.xid), Some(101));
    assert!(row.is_linked(w, id(2)) && !row.close(w, id(1)));
    assert_eq!(row.roll_back_version(w, id(1), false, |_| ()), 1);
    assert!(members[id(2) as usize].is_doomed() && !row.is_linked(w, id(1)));
    assert_eq!(row.roll_back_version(w, id(2), true, |_| ()), 0);
    assert_eq!(row.listed(), 1);
}

#[test]
fn readers_are_doomed_but_doom_nobody_and_are_no_tail() {
    let (row, members) = setup(3);
    let w = Members { all: &members };
    row.link_writer(w, id(0), 100, 1);
    row.link_reader(w, id(1), 101);
    assert_eq!(row.tail(w).map(|t| t.member), Some(id(0)));
    row.link_writer(w, id(2), 102, 2);
    assert_eq!(row.predecessor(w, id(2)), Some(id(0)));
    assert_eq!(row.roll_back(w, id(1), |_| ()), 0);
    assert!(!members[id(2) as usize].is_doomed());
}

#[test]
fn a_reader_that_has_kept_the_ticket_becomes_a_writer_in_its_place() {
    let (row, members) = setup(3);
    let w = Members { all: &members };
    row.link_writer(w, id(0), 100, 1);
    row.link_reader(w, id(1), 101);
    row.link_reader(w, id(1), 101);
    row.link_writer(w, id(1), 101, 0);
    row.publish(w, id(1), 2);
    assert_eq!((row.listed(), row.group_length()), (2, 2));
    assert_eq!(
        row.tail(w).map(|t| (t.member, t.xid, t.tid)),
        Some((id(1), 101, 2))
    );
    assert_eq!(row.predecessor(w, id(1)), Some(id(0)));
    assert_eq!(row.roll_back(w, id(0), |_| ()), 1);
    assert!(members[id(1) as usize].is_doomed() && row.listed() == 0);
}

#[test]
fn a_commit_wakes_the_readers_and_the_next_writer_only() {
    let (row, members) = setup(4);
    let w = Members { all: &members };
    row.link_writer(w, id(0), 100, 1);
    row.link_reader(w, id(1), 101);
    row.link_writer(w, id(2), 102, 2);
    row.link_writer(w, id(3), 103, 3);
    for backend in 1..4 {
        assert!(row.await_predecessor(w, id(backend)));
    }
    assert_eq!(woken(|wake| row.wake_those_behind(w, id(0), wake)), [1, 2]);
    assert_eq!(woken(|wake| row.depart(w, id(0), wake)), [1, 2]);
    assert!(!row.await_predecessor(w, id(2)));
    assert!(row.await_predecessor(w, id(3)));
}

#[test]
fn the_head_is_known_with_those_that_wait_for_it_elsewhere() {
    let (row, members) = setup(4);
    let w = Members { all: &members };
    assert_eq!(row.head(w), None);
    row.link_writer(w, id(0), 100, 1);
    row.link_reader(w, id(1), 101);
    row.link_writer(w, id(2), 102, 2);
    row.link_writer(w, id(3), 103, 3);
    [1, 2, 3]
        .into_iter()
        .for_each(|backend| members[id(backend) as usize].patient.set(1));
    assert_eq!(row.head(w), Some((id(0), 100, 2)));
    row.depart(w, id(0), |_| ());
    assert_eq!(row.head(w), Some((id(2), 102, 1)));
}

#[test]
fn who_has_been_at_a_row_is_known_by_process() {
    let (row, members) = setup(3);
    let w = Members { all: &members };
    for (n, slot) in [(0, 7), (1, 4)] {
        members[id(0) as usize + n].begin(slot);
    }
    row.link_writer(w, id(0) + 1, 100, 1);
    assert!(row.has_before(w, 4, 0, 100));
    assert!(!row.has_before(w, 4, 0, 99), "in a savepoint of that one");
    assert!(
        !row.has_before(w, 7, 0, 100),
        "its membership of 7 is not in this list"
    );
    assert!(!row.has_before(w, 4, 1, 101));
    assert!(row.try_acquire(id(1)));
    assert!(row.has_before(w, 4, 1, 101));
    row.depart(w, id(0) + 1, |_| ());
    assert!(!row.has_before(w, 4, 0, 100));
    members[id(2) as usize].begin(4);
    row.link_reader(w, id(2), 102);
    assert!(!row.has_before(w, 4, 2, 102), "it has only looked");
}

#[test]
fn a_reader_that_could_not_write_is_a_reader_again_and_one_that_withdraws_is_no_writer() {
    let (row, members) = setup(2);
    let w = Members { all: &members };
    row.link_writer(w, id(0), 100, 1);
    row.link_reader(w, id(1), 101);
    row.link_writer(w, id(1), 101, 0);
    assert_eq!(row.group_length(), 2);
    row.step_back(w, id(1));
    assert_eq!((row.group_length(), row.running()), (1, 2));
    assert_eq!(row.tail(w).map(|tail| tail.xid), Some(100));
    assert!(!row.close(w, id(0)), "somebody depends on it");
    row.withdraw(w, id(1));
    assert_eq!((row.group_length(), row.running()), (1, 1));
    row.link_reader(w, id(1), 101);
    row.roll_back(w, id(0), |_| ());
    row.withdraw(w, id(1));
    assert!(!members[id(1) as usize].is_doomed());
}

#[test]
fn a_closed_or_ended_tail_is_not_followed() {
    let (row, members) = setup(2);
    let w = Members { all: &members };
    row.link_writer(w, id(0), 100, 1);
    assert!(row.tail(w).is_some_and(|t| t.open));
    assert!(row.close(w, id(0)));
    assert!(row.tail(w).is_some_and(|t| !t.open));
    row.depart(w, id(0), |_| ());
    row.link_writer(w, id(1), 101, 2);
    assert!(row.tail(w).is_some_and(|t| t.open));
    row.end_group(w);
    assert!(row.tail(w).is_some_and(|t| !t.open));
    row.depart(w, id(1), |_| ());
    row.link_writer(w, id(0), 102, 3);
    assert!(
        row.tail(w).is_some_and(|t| t.open),
        "a new group begins when the list was empty"
    );
}

#[test]
fn a_reader_that_stays_keeps_no_group() {
    let (row, members) = setup(3);
    let w = Members { all: &members };
    row.link_writer(w, id(0), 100, 1);
    row.link_reader(w, id(1), 101);
    row.end_group(w);
    row.depart(w, id(0), |_| ());
    assert_eq!((row.listed(), row.group_length()), (1, 0));
    row.link_writer(w, id(2), 102, 2);
    assert!(row.tail(w).is_some_and(|t| t.open));
    // A writer whose version is rolled back, and that stays as a reader, keeps none either.
    row.end_group(w);
    assert_eq!(row.roll_back_version(w, id(2), true, |_| ()), 0);
    assert_eq!((row.listed(), row.group_length()), (2, 0));
    row.end_group(w);
    row.link_writer(w, id(0), 103, 3);
    assert!(row.tail(w).is_some_and(|t| t.open));
    assert_eq!(row.group_length(), 1);
}

#[test]
fn a_follower_forbids_its_predecessor_to_close() {
    let (row, members) = setup(2);
    let w = Members { all: &members };
    row.link_writer(w, id(0), 100, 1);
    row.link_writer(w, id(1), 101, 0);
    assert!(!row.close(w, id(0)));
    assert_eq!(row.follower(w, id(0)), Some(101));
    row.withdraw(w, id(1));
    assert!(row.close(w, id(0)));
}

#[test]
fn who_is_looked_at_cannot_close() {
    let (row, members) = setup(3);
    let w = Members { all: &members };
    let patience = crate::Patience {
        fair_every: 2,
        longest_wait: u64::MAX,
        newest_first: 1,
        holds: false,
        competitors: 1,
    };
    row.link_writer(w, id(0), 100, 1);
    row.link_writer(w, id(1), 101, 2);
    assert_eq!(row.acquire(w, id(2), patience, 0), crate::Acquired::Granted);
    row.offer_tail(id(1));
    assert!(!row.close(w, id(1)));
    // The one before it is not looked at, though it is the last one now.
    assert_eq!(row.roll_back(w, id(1), |_| ()), 0);
    assert!(row.close(w, id(0)));
    row.offer_tail(id(0));
    assert!(!row.close(w, id(0)));
    row.take_back_tail();
    assert!(row.close(w, id(0)));
    row.offer_tail(id(0));
    row.release(w, id(2), patience, 0);
    assert!(row.close(w, id(0)));
}
