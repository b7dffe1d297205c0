use super::*;

const CLUSTER: u64 = 1 << 40;

fn id(sequence: u64) -> Id {
    Id {
        coordinator: 5,
        incarnation: 1,
        sequence,
    }
}

fn name(sequence: u64) -> Name {
    let begun = 100 + sequence;
    Name {
        id: id(sequence),
        begun,
    }
}

/// One process waits for another one; these processes act for transactions.
fn waits(pid: i32, holder: i32, names: &[(i32, u64)]) -> Waits {
    Waits {
        waits: vec![Wait {
            pid,
            since: "then".to_owned(),
            holders: vec![holder],
        }],
        names: names
            .iter()
            .map(|&(pid, sequence)| (pid, name(sequence)))
            .collect(),
        ..Waits::default()
    }
}

fn session(sequence: u64, pid: i32) -> Session {
    Session {
        name: name(sequence),
        pid,
        wait: 0,
        is_protected: false,
        is_told: false,
        lost: [(0, 0); crate::running::LOST],
        has_lost_more: false,
    }
}

fn seen(place: u32, waits: &Waits, sessions: &[Session]) -> Look {
    let mut look = Look::default();
    let own = Own::new(None, 0, sessions);
    look.add(place, CLUSTER + u64::from(place), waits, &own);
    look
}

fn only(look: &Look) -> Edge {
    assert_eq!(look.edges.len(), 1, "{look:?}");
    look.edges.iter().next().unwrap().clone()
}

#[test]
fn modes_conflict_both_ways() {
    for (one, _) in CONFLICTS {
        for (other, _) in CONFLICTS {
            assert_eq!(conflict(one, other), conflict(other, one), "{one} {other}");
        }
    }
    assert!(!conflict("ShareLock", "RowShareLock"));
    assert!(conflict("ShareLock", "RowExclusiveLock"));
    assert!(conflict("ExclusiveLock", "none of these"));
}

#[test]
fn rows_are_read() {
    let rows = [
        ["wait", "10", "then", "11 12 0", "", ""],
        ["name", "11", &name(4).to_string(), "", "", ""],
        ["name", "12", "psql", "", "", ""],
        [
            "prepared",
            "10",
            "then",
            "a gid",
            "ShareLock",
            "ExclusiveLock",
        ],
        ["wait", "none", "then", "", "", ""],
        ["something", "10", "", "", "", ""],
        ["all", "3", "", "", "", ""],
    ];
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let rows = rows
        .iter()
        .map(|row| row.iter().copied().map(text).collect());
    let read = Waits::of_rows(rows.collect());
    let prepared = Prepared {
        pid: 10,
        since: "then".to_owned(),
        gid: "a gid".to_owned(),
        wanted: "ShareLock".to_owned(),
        held: "ExclusiveLock".to_owned(),
    };
    assert_eq!(read.waits[0].holders, [11, 12, 0]);
    assert_eq!((read.waits.len(), read.waits[0].pid), (1, 10));
    assert_eq!(read.prepared, [prepared]);
    assert_eq!(read.names.into_iter().collect::<Vec<_>>(), [(11, name(4))]);
    assert_eq!(read.left_out, 2);
    assert_eq!(Waits::of_rows(vec![Vec::new()]), Waits::default());
}

#[test]
fn the_query_has_its_limits() {
    let asked = waits_here([7, 8].into_iter());
    assert_eq!(asked.matches(&format!("LIMIT {MOST}")).count(), 2);
    assert!(asked.contains("= ANY ('{7,8}')) DESC"), "{asked}");
}

#[test]
fn processes_at_nodes_are_known_by_their_names() {
    let look = seen(7, &waits(10, 11, &[(10, 1)]), &[]);
    let edge = only(&look);
    assert_eq!(edge.waiter, Party::Transaction(id(1)));
    assert_eq!(edge.holder, Party::Process { place: 7, pid: 11 });
    assert!(edge.may_fail);
    assert_eq!(look.begun.get(&id(1)), Some(&101));
}

#[test]
fn sessions_are_known_by_their_processes_and_only_here() {
    for (place, is_known) in [(HERE, true), (7, false)] {
        let edge = only(&seen(place, &waits(10, 11, &[]), &[session(1, 10)]));
        assert_eq!(edge.waiter == Party::Transaction(id(1)), is_known);
        // Nobody can end its wait in the lock manager.
        assert!(!edge.may_fail);
    }
}

/// A server of the coordinator's own cluster: its processes act for sessions of the same server.
#[test]
fn a_node_may_be_here() {
    let edge = only(&seen(
        HERE,
        &waits(20, 21, &[(20, 1), (21, 2)]),
        &[session(1, 10)],
    ));
    assert_eq!(edge.waiter, Party::Transaction(id(1)));
    assert_eq!(edge.holder, Party::Transaction(id(2)));
    assert!(edge.may_fail);
}

#[test]
fn a_protected_transaction_may_not_fail() {
    let mut one = session(1, 99);
    one.is_protected = true;
    assert!(!only(&seen(7, &waits(10, 11, &[(10, 1)]), &[one])).may_fail);
}

/// The old process of a connection that was lost holds locks for a moment: nobody is in a deadlock
/// by that, not the transaction with itself, and no other one with it.
#[test]
fn lost_processes_act_for_nobody() {
    let mut one = session(1, 99);
    one.lost[0] = (CLUSTER + 7, 11);
    let itself = waits(10, 11, &[(10, 1), (11, 1)]);
    let another = waits(12, 11, &[(11, 1), (12, 2)]);
    let waiting = waits(11, 12, &[(11, 1), (12, 2)]);
    for waits in [&itself, &another, &waiting] {
        assert!(seen(7, waits, &[one]).edges.is_empty());
        // Elsewhere the number is another process's.
        assert_eq!(seen(8, waits, &[one]).edges.len(), 1);
    }
    // The number is another transaction's by now.
    assert_eq!(
        seen(7, &waits(10, 11, &[(10, 1), (11, 2)]), &[one])
            .edges
            .len(),
        1
    );
    one.has_lost_more = true;
    assert!(seen(8, &itself, &[one]).edges.is_empty());
}

/// A transaction that has been told to fail rolls back: no second one has to, however long that
/// takes.
#[test]
fn a_transaction_that_gives_way_is_as_gone() {
    let mut one = session(1, 10);
    one.is_told = true;
    let waits = waits(10, 11, &[(10, 1), (11, 2)]);
    assert!(seen(7, &waits, &[one]).edges.is_empty());
    assert!(seen(HERE, &waits, &[one]).edges.is_empty());
    one.is_told = false;
    assert_eq!(seen(7, &waits, &[one]).edges.len(), 1);
}

/// Its process at a node does not know yet that its connection is lost, and holds locks.
#[test]
fn a_transaction_that_has_ended_is_in_no_deadlock() {
    let waits = waits(10, 11, &[(10, 1), (11, 2)]);
    let seen = |coordinator, latest| {
        let mut look = Look::default();
        let own = Own::new(Some(coordinator), latest, &[session(1, 99)]);
        look.add(7, CLUSTER, &waits, &own);
        look
    };
    assert!(seen(5, 2).edges.is_empty());
    // Another coordinator's, whose sessions are not known here; and one that has begun since.
    for look in [seen(6, 2), seen(5, 1)] {
        assert_eq!(only(&look).holder, Party::Transaction(id(2)));
    }
}

#[test]
fn prepared_holders_are_known_by_their_gids() {
    let gid = Gid {
        coordinator: 5,
        incarnation: 1,
        sequence: 3,
        mapping: 4,
    };
    let prepared = |gid: &str, wanted: &str, held: &str| Prepared {
        pid: 10,
        since: "then".to_owned(),
        gid: gid.to_owned(),
        wanted: wanted.to_owned(),
        held: held.to_owned(),
    };
    let mut waits = waits(10, 0, &[]);
    waits.prepared = vec![prepared(&gid.to_string(), "ShareLock", "ExclusiveLock")];
    assert_eq!(
        only(&seen(7, &waits, &[])).holder,
        Party::Transaction(id(3))
    );
    // Another one that it does not wait for, and one of others.
    waits.prepared = vec![
        prepared(&gid.to_string(), "ShareLock", "RowShareLock"),
        prepared("theirs", "ShareLock", "ExclusiveLock"),
    ];
    assert!(seen(7, &waits, &[]).edges.is_empty());
}

#[test]
fn what_is_left_out_is_said() {
    let mut some = waits(10, 11, &[]);
    assert!(seen(7, &some, &[]).left_out.is_empty());
    some.left_out = 5;
    assert_eq!(seen(7, &some, &[]).left_out.get(&7), Some(&5));
}
