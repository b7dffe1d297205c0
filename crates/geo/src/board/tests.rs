use super::*;
use crate::handed::HANDED;
use crate::linked::Linked;

fn board() -> Box<Board> {
    let zero = || AtomicU64::new(0);
    Box::new(Board {
        sequence: zero(),
        changes: zero(),
        lost_at: zero(),
        databases: std::array::from_fn(|_| Database {
            oid: zero(),
            phase: zero(),
            high: zero(),
            low: zero(),
            incarnation: zero(),
            process: zero(),
            passes: zero(),
            leaves: zero(),
            claimed_at: zero(),
            wants_pass: zero(),
            wants_look: zero(),
            looks: zero(),
            learned: zero(),
        }),
        unapplied: std::array::from_fn(|_| Unapplied {
            database: zero(),
            server: zero(),
            count: zero(),
            left_at: zero(),
        }),
        acknowledged: std::array::from_fn(|_| Acknowledged {
            database: zero(),
            sequence: zero(),
        }),
        handed: HandOvers::default(),
        linked: Linked::default(),
    })
}

fn claims(board: &Board, database: u32, now: u64) -> bool {
    board.claim(database, now) == Claim::Granted
}

#[test]
fn a_database_has_one_resolver() {
    let board = board();
    assert!(board.known(5).is_none());
    assert!(claims(&board, 5, 1));
    assert!(!claims(&board, 5, 1));
    assert!(claims(&board, 6, 1));
    board.started(5, 0);
    board.identified(5, 7 << 64 | 9, 3, Phase::Ready);
    let known = board.known(5).unwrap();
    assert_eq!(known.phase, Phase::Ready);
    assert_eq!(known.coordinator, 7 << 64 | 9);
    assert_eq!((known.incarnation, known.process), (3, Some(0)));
    assert_eq!(board.known(6).unwrap().phase, Phase::Starting);
}

#[test]
fn a_resolver_that_does_not_come_is_asked_for_again() {
    let board = board();
    assert!(claims(&board, 5, 1));
    assert!(!claims(&board, 5, 1 + PATIENCE_US));
    assert!(claims(&board, 5, 2 + PATIENCE_US));
    board.started(5, 3);
    assert!(!claims(&board, 5, 3 * PATIENCE_US));
}

#[test]
fn the_incarnation_outlives_the_resolver() {
    let board = board();
    assert!(claims(&board, 5, 1));
    board.identified(5, 1, 3, Phase::Ready);
    assert!(board.ask_to_leave(5));
    assert!(board.known(5).unwrap().leaves);
    board.left(5);
    assert!(!board.ask_to_leave(5));
    assert_eq!(board.known(5).unwrap().incarnation, 3);
    board.left(5);
    assert!(claims(&board, 5, 1));
}

#[test]
fn what_sessions_want_is_taken_once() {
    let board = board();
    let (pass, look) = (true, true);
    board.want(5, Wants { pass, look });
    assert!(!board.take_pass(5) && !board.take_look(5));
    assert!(claims(&board, 5, 1) && claims(&board, 6, 1));
    board.want(5, Wants { pass: false, look });
    board.want(5, Wants { pass, look: false });
    assert!(!board.take_pass(6) && !board.take_look(6));
    assert!(board.take_pass(5) && board.take_look(5));
    assert!(!board.take_pass(5) && !board.take_look(5));
    // It has to leave, however often it asks.
    board.ask_to_leave(5);
    assert!(board.take_pass(5) && board.take_pass(5) && !board.take_look(5));
    let interval = Interval::new(1_000_000, 0);
    board.looked(5, &interval, true);
    assert_eq!(interval.now(board.known(5).unwrap().learned), 200_000);
    assert_eq!(board.known(5).unwrap().looks, 1);
}

#[test]
fn there_is_room_for_so_many_databases() {
    let board = board();
    assert!((1..=DATABASES as u32).all(|oid| claims(&board, oid, 1)));
    assert_eq!(board.claim(DATABASES as u32 + 1, 1), Claim::NoRoom);
    assert_eq!(board.claim(1, 1), Claim::Taken);
    assert!(board.known(DATABASES as u32 + 1).is_none());
}

#[test]
fn acknowledged_transactions_are_taken_once_and_by_their_database() {
    let board = board();
    board.acknowledge(5, 1);
    board.acknowledge(6, 2);
    board.acknowledge(5, 3);
    assert_eq!(board.take_acknowledged(5), [1, 3]);
    assert!(board.take_acknowledged(5).is_empty());
    assert_eq!(board.take_acknowledged(6), [2]);
    (1..=ACKNOWLEDGED as u64 + 1).for_each(|n| board.acknowledge(7, n));
    assert_eq!(board.take_acknowledged(7).len(), ACKNOWLEDGED);
}

#[test]
fn a_server_with_unapplied_transactions_is_known() {
    let board = board();
    board.leave_unapplied(5, 1);
    assert!(board.has_unapplied(5, 1));
    assert!(!board.has_unapplied(5, 2) && !board.has_unapplied(6, 1));
    board.set_unapplied(5, &[(2, 4)], 0);
    assert!(board.has_unapplied(5, 1));
    board.set_unapplied(5, &[(2, 4)], board.changes());
    assert!(board.has_unapplied(5, 2) && !board.has_unapplied(5, 1));
    board.set_unapplied(5, &[], board.changes());
    assert!(!board.has_unapplied(5, 2));
}

/// A resolver's word about one server, or of one database, is void by nothing but what a
/// session has left just there.
#[test]
fn what_is_left_elsewhere_voids_nothing() {
    let board = board();
    board.leave_unapplied(6, 2);
    board.leave_unapplied(5, 3);
    let changes = board.changes();
    board.leave_unapplied(5, 1);
    board.set_unapplied(5, &[(1, 7), (3, 2)], changes);
    assert!(board.has_unapplied(5, 1) && board.has_unapplied(5, 3));
    board.set_unapplied(6, &[], changes);
    assert!(!board.has_unapplied(6, 2));
    board.set_unapplied(5, &[], changes);
    assert!(board.has_unapplied(5, 1) && !board.has_unapplied(5, 3));
    board.set_unapplied(5, &[], board.changes());
    assert!(!board.has_unapplied(5, 1));
}

#[test]
fn without_room_every_server_counts_as_unapplied() {
    let board = board();
    (1..=SERVERS as u32).for_each(|server| board.leave_unapplied(5, server));
    let changes = board.changes();
    board.leave_unapplied(5, 9999);
    board.set_unapplied(5, &[], changes);
    assert!(board.has_unapplied(5, 9999) && board.has_unapplied(6, 1));
    board.set_unapplied(5, &[], board.changes());
    assert!(!board.has_unapplied(5, 9999) && !board.has_unapplied(6, 1));
}

#[test]
fn what_is_handed_over_is_applied_or_unapplied() {
    let board = board();
    let nodes = [(1, 11), (2, 12)];
    assert_eq!(board.hand_over(5, 3, 70, &nodes), HandOver::NotLinked);
    board.set_linked(5, &[11, 12]);
    assert_eq!(board.hand_over(5, 3, 70, &nodes), HandOver::Taken);
    let before = board.changes();
    assert_eq!(board.hand_over(5, 3, 71, &nodes), HandOver::Taken);
    let handed = board.handed(5);
    let names: Vec<_> = handed
        .iter()
        .map(|one| (one.sequence, one.mapping))
        .collect();
    assert_eq!(names, [(70, 11), (70, 12), (71, 11), (71, 12)]);
    assert!(handed.iter().all(|one| one.incarnation == 3));
    board.applied(&handed[0]);
    // A session that has come before the second one does not wait for it.
    assert!(!board.is_handed(5, 1, before) && board.is_handed(5, 1, board.changes()));
    assert!(board.is_handed(5, 2, before) && !board.has_unapplied(5, 2));
    board.hand_back(5, &handed[1]);
    assert!(!board.is_handed(5, 2, before) && board.has_unapplied(5, 2));
    // A pass that began before knows nothing of it.
    board.set_unapplied(5, &[], before);
    assert!(board.has_unapplied(5, 2));
}

#[test]
fn a_transaction_is_handed_over_as_a_whole() {
    let board = board();
    let many: Vec<(u32, u32)> = (0..HANDED as u32 - 1).map(|n| (n, n % 100)).collect();
    let mappings: Vec<u32> = (0..110).collect();
    board.set_linked(5, &mappings);
    assert_eq!(board.hand_over(5, 3, 70, &many), HandOver::Taken);
    let more = [(1, 101), (2, 102)];
    assert_eq!(board.hand_over(5, 3, 71, &more), HandOver::Busy);
    assert!(board.handed(5).iter().all(|one| one.sequence == 70));
}

/// One connection gets one commit after the other: sessions do not queue up behind many.
#[test]
fn so_many_wait_for_one_connection() {
    let board = board();
    board.set_linked(5, &[11, 12]);
    let hand_over = |sequence, nodes: &[_]| board.hand_over(5, 3, sequence, nodes);
    let mut sequences = 0..QUEUE as u64;
    assert!(sequences.all(|n| hand_over(n, &[(1, 11)]) == HandOver::Taken));
    assert_eq!(hand_over(70, &[(2, 12), (1, 11)]), HandOver::Busy);
    assert_eq!(hand_over(71, &[(2, 12)]), HandOver::Taken);
    board.applied(&board.handed(5)[0]);
    assert_eq!(hand_over(72, &[(2, 12), (1, 11)]), HandOver::Taken);
}

#[test]
fn places_of_databases_are_given_back() {
    let board = board();
    assert!((1..=DATABASES as u32).all(|oid| claims(&board, oid, 1)));
    board.identified(5, 1 << 64, 3, Phase::Ready);
    board.leave_unapplied(5, 1);
    board.acknowledge(5, 7);
    board.set_linked(5, &[11]);
    assert_eq!(board.hand_over(5, 3, 70, &[(1, 11)]), HandOver::Taken);
    // Its resolver is there.
    board.forget(5, 2);
    assert_eq!(board.databases().len(), DATABASES);
    board.left(5);
    board.forget(5, 2);
    assert!(board.known(5).is_none() && !board.databases().contains(&5));
    assert!(!board.has_unapplied(5, 1) && board.handed(5).is_empty());
    assert!(board.take_acknowledged(5).is_empty());
    assert!(claims(&board, 99, 2));
    assert_eq!(board.known(99).unwrap().incarnation, 0);
    // The resolver of another one has never come.
    board.forget(6, 1 + PATIENCE_US);
    assert!(board.known(6).is_some());
    board.forget(6, 2 + PATIENCE_US);
    assert!(board.known(6).is_none());
}
