//! Tests of the correct code: what commits in any schedule is serializable.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    plan::{COPYING, LOOKING, PIECES, PLAN, Plan, RECOVERED, TINY, WINDOW},
    play::assert_serializable,
    server::Shape,
};

#[test]
fn what_commits_is_serializable() {
    let outcomes = assert_serializable(PLAN);
    for count in [
        &outcomes.passed,
        &outcomes.conflict,
        &outcomes.at_once,
        &outcomes.moved,
    ] {
        assert!(count.load(Relaxed) > 100, "the schedules show nothing");
    }
}

#[test]
fn what_commits_is_serializable_when_rings_overflow() {
    for depth in [1, 2] {
        let shape = Shape { depth, ..TINY };
        let outcomes = assert_serializable(Plan {
            shape,
            writes: 3,
            ..PLAN
        });
        assert!(outcomes.history_lost.load(Relaxed) > 100);
        assert!(outcomes.passed.load(Relaxed) > 100);
    }
}

#[test]
fn who_looks_at_versions_is_serializable() {
    for (depth, window, in_pieces) in [(1, false, true), (1, true, true), (2, true, false)] {
        let shape = Shape {
            depth,
            window,
            ..TINY
        };
        let plan = Plan {
            shape,
            in_pieces,
            copies: 0.3,
            deaths: 0.1,
            ..LOOKING
        };
        let without = Plan {
            versions: 0.0,
            ..plan
        };
        let lost = |plan| assert_serializable(plan).history_lost.load(Relaxed);
        let (lost, before) = (lost(plan), lost(without));
        // Schedules differ, so the numbers are no exact measure.
        assert!(
            lost * 4 < before * 3,
            "{lost} are refused, {before} without"
        );
    }
}

#[test]
fn writers_that_die_half_way_neither_stop_nor_hide_anybody() {
    for depth in [1, 3] {
        let shape = Shape { depth, ..TINY };
        assert_serializable(Plan {
            shape,
            deaths: 0.4,
            ..PLAN
        });
    }
}

#[test]
fn what_commits_is_serializable_when_rings_overflow_and_nothing_is_prepared() {
    for depth in [1, 2] {
        let shape = Shape { depth, ..TINY };
        let outcomes = assert_serializable(Plan {
            shape,
            prepares: 0.0,
            ..PLAN
        });
        assert!(outcomes.passed.load(Relaxed) > 100);
    }
}

#[test]
fn a_prepared_transaction_from_before_the_start_refuses_who_does_not_see_it() {
    let outcomes = assert_serializable(RECOVERED);
    assert!(outcomes.restarted.load(Relaxed) > 100);
    assert!(outcomes.passed.load(Relaxed) > 100);
}

#[test]
fn many_sessions_with_everything() {
    let shape = Shape {
        processes: 5,
        buckets: 3,
        depth: 4,
        window: false,
    };
    assert_serializable(Plan {
        shape,
        rounds: 3,
        deaths: 0.1,
        prepares: 0.2,
        ..PLAN
    });
}

#[test]
fn who_looks_for_pieces_is_serializable() {
    for (depth, window) in [(1, false), (2, true)] {
        let shape = Shape {
            depth,
            window,
            ..PIECES.shape
        };
        let outcomes = assert_serializable(Plan {
            shape,
            copies: 0.3,
            ..PIECES
        });
        assert!(outcomes.conflict.load(Relaxed) > 100);
    }
}

#[test]
fn ranges_without_pieces_are_serializable() {
    for (depth, window) in [(1, false), (8, true)] {
        let shape = Shape {
            depth,
            window,
            ..TINY
        };
        assert_serializable(Plan {
            shape,
            in_pieces: false,
            ..PLAN
        });
    }
}

#[test]
fn what_moves_is_serializable() {
    let outcomes = assert_serializable(WINDOW);
    assert!(outcomes.moved.load(Relaxed) > 100, "nothing moves");
}

#[test]
fn what_moves_is_serializable_when_rings_overflow() {
    for depth in [1, 2] {
        let shape = Shape {
            depth,
            window: true,
            ..TINY
        };
        assert_serializable(Plan {
            shape,
            writes: 2,
            ..WINDOW
        });
    }
}

#[test]
fn who_reads_a_ring_copy_is_serializable() {
    for depth in [1, 2, 8] {
        let shape = Shape { depth, ..TINY };
        let outcomes = assert_serializable(Plan { shape, ..COPYING });
        assert!(outcomes.copied.load(Relaxed) > 100);
        assert_serializable(Plan {
            shape: Shape {
                window: true,
                ..shape
            },
            ..COPYING
        });
    }
    assert_serializable(Plan {
        recovered: true,
        deaths: 0.1,
        ..COPYING
    });
}
