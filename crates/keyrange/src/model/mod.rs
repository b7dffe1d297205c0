//! The model check: random schedules of transactions against a simulated server. Whatever commits
//! must have read what a replay in CSN order gives, and every planted fault must be found out.

mod history;
mod rings;
mod server;
mod transaction;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use shuttle::{
    Config, FailurePersistence, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use crate::{
    Refusal,
    fault::{Fault, plant},
};
use server::{Server, Shape};
use transaction::Session;

/// What is run in one schedule.
#[derive(Clone, Copy)]
pub struct Plan {
    shape: Shape,
    /// Transactions of each session.
    rounds: usize,
    /// Most keys that a transaction writes.
    writes: usize,
    /// Shares of transactions, scans or writes.
    readers: f64,
    blind: f64,
    whole: f64,
    prepares: f64,
    deaths: f64,
    /// Share of a reader's scans before which it makes a ring copy if it has none.
    copies: f64,
    /// Share of transactions that look at versions where the rings do not tell.
    versions: f64,
    /// A prepared transaction is left from before the start.
    recovered: bool,
    /// Ranges have pieces.
    in_pieces: bool,
}

const PLAN: Plan = Plan {
    shape: Shape {
        processes: 3,
        buckets: 2,
        depth: 8,
        window: false,
    },
    rounds: 2,
    writes: 2,
    readers: 0.3,
    blind: 0.3,
    whole: 0.05,
    prepares: 0.1,
    deaths: 0.0,
    copies: 0.0,
    versions: 0.0,
    recovered: false,
    in_pieces: true,
};

/// What became of the transactions in all schedules.
#[derive(Default)]
pub struct Outcomes {
    passed: AtomicU64,
    conflict: AtomicU64,
    history_lost: AtomicU64,
    restarted: AtomicU64,
    at_once: AtomicU64,
    /// Of these, those by a ring copy.
    copied: AtomicU64,
    /// Transactions that stand before some that had their CSNs.
    moved: AtomicU64,
    violation: Mutex<Option<String>>,
}

impl Outcomes {
    fn count(&self, result: &Result<(), Refusal>) {
        let counter = match result {
            Ok(()) => &self.passed,
            Err(Refusal::Conflict(_)) => &self.conflict,
            Err(Refusal::HistoryLost { .. }) => &self.history_lost,
            Err(Refusal::Restarted) => &self.restarted,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn at_once(&self, passed: bool, moved: bool, copied: bool) {
        self.at_once.fetch_add(u64::from(passed), Relaxed);
        self.copied.fetch_add(u64::from(passed && copied), Relaxed);
        self.moved.fetch_add(u64::from(passed && moved), Relaxed);
    }

    fn moved(&self, moved: bool) {
        self.moved.fetch_add(u64::from(moved), Relaxed);
    }

    fn found(&self) -> Option<String> {
        self.violation.lock().unwrap().clone()
    }
}

fn play(plan: Plan, outcomes: &Arc<Outcomes>) {
    if outcomes.found().is_some() {
        return;
    }
    let server = shuttle::sync::Arc::new(Server::new(plan.shape, plan.recovered));
    let sessions: Vec<_> = (0..plan.shape.processes)
        .map(|process| {
            let (server, outcomes) = (server.clone(), outcomes.clone());
            shuttle::thread::spawn(move || {
                let session = Session {
                    server: &server,
                    process: process as u32,
                    plan,
                    outcomes: &outcomes,
                };
                (0..plan.rounds).for_each(|_| session.run());
                session.end_prepared();
            })
        })
        .collect();
    sessions
        .into_iter()
        .for_each(|session| session.join().unwrap());
    let state = server.state.lock().unwrap();
    if let Some(violation) = history::violation(&state.history) {
        *outcomes.violation.lock().unwrap() = Some(violation);
    }
}

fn check(plan: Plan, scheduler: impl Scheduler + 'static) -> Arc<Outcomes> {
    let outcomes = Arc::new(Outcomes::default());
    let played = outcomes.clone();
    run(scheduler, move || play(plan, &played));
    outcomes
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(body);
}

/// Whether the fault shows in any of the schedules: those that change at random, and those that let
/// some session wait for long.
fn finds(fault: Fault, plan: Plan) -> bool {
    plant(Some(fault));
    let mut outcomes = check(plan, RandomScheduler::new_from_seed(1, 5000));
    if outcomes.found().is_none() {
        outcomes = check(plan, PctScheduler::new_from_seed(1, 3, 30_000));
    }
    plant(None);
    eprintln!("{fault:?}: {:?}", outcomes.found());
    outcomes.found().is_some()
}

fn assert_serializable(plan: Plan) -> Arc<Outcomes> {
    let random = check(plan, RandomScheduler::new_from_seed(7, 4000));
    assert_eq!(random.found(), None);
    let prioritized = check(plan, PctScheduler::new_from_seed(7, 4, 2000));
    assert_eq!(prioritized.found(), None);
    eprintln!(
        "passed {:?} conflict {:?} lost {:?} at once {:?} copied {:?} moved {:?}",
        random.passed,
        random.conflict,
        random.history_lost,
        random.at_once,
        random.copied,
        random.moved
    );
    random
}

const TINY: Shape = Shape {
    depth: 1,
    ..PLAN.shape
};

const OVERFLOWING: Plan = Plan {
    shape: TINY,
    ..PLAN
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

/// Where rings overflow, and versions are looked at.
const LOOKING: Plan = Plan {
    versions: 1.0,
    writes: 3,
    ..OVERFLOWING
};

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
fn a_writer_that_has_its_csn_and_is_taken_for_new_is_found_out() {
    assert!(finds(Fault::NumberedTakenForNew, LOOKING));
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

const RECOVERED: Plan = Plan {
    recovered: true,
    ..PLAN
};

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
fn a_csn_before_publication_is_found_out() {
    assert!(finds(Fault::CsnBeforePublication, PLAN));
}

#[test]
fn an_ignored_eviction_is_found_out() {
    assert!(finds(Fault::EvictionIgnored, OVERFLOWING));
}

#[test]
fn an_eviction_marked_too_late_is_found_out() {
    assert!(finds(Fault::EvictionMarkedLate, OVERFLOWING));
}

#[test]
fn a_write_without_a_place_that_is_not_marked_is_found_out() {
    assert!(finds(Fault::UnplacedNotMarked, OVERFLOWING));
}

#[test]
fn a_mark_that_is_not_raised_is_found_out() {
    assert!(finds(Fault::MarkNotRaised, PLAN));
}

#[test]
fn a_mark_that_is_not_told_of_an_eviction_is_found_out() {
    assert!(finds(Fault::MarkForgotten, OVERFLOWING));
}

#[test]
fn a_key_that_is_looked_for_in_another_piece_is_found_out() {
    assert!(finds(Fault::PieceMissed, PIECES));
}

#[test]
fn keys_in_one_entry_that_are_looked_for_in_pieces_only_are_found_out() {
    assert!(finds(Fault::RangeMissed, PIECES));
}

#[test]
fn one_that_is_taken_for_idle_because_nothing_is_known_of_it_is_found_out() {
    let plan = Plan {
        rounds: 4,
        ..OVERFLOWING
    };
    assert!(finds(Fault::UnknownTakenForIdle, plan));
}

/// With so many rings that a scan looks for pieces, not everywhere.
const PIECES: Plan = Plan {
    shape: Shape {
        buckets: 32,
        ..PLAN.shape
    },
    ..PLAN
};

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
fn a_narrow_predicate_is_found_out() {
    assert!(finds(Fault::PredicateNarrowed, PLAN));
}

#[test]
fn a_skipped_registration_is_found_out() {
    assert!(finds(Fault::NotRegistered, PLAN));
}

#[test]
fn a_key_that_is_not_among_the_parts_of_its_entry_is_found_out() {
    assert!(finds(Fault::PartForgotten, PLAN));
    assert!(finds(Fault::PartForgotten, PIECES));
}

#[test]
fn a_csn_being_taken_that_counts_as_larger_is_found_out() {
    assert!(finds(Fault::TakingIsLarger, PLAN));
}

#[test]
fn a_csn_taken_without_notice_is_found_out() {
    assert!(finds(Fault::TakenSilently, PLAN));
}

#[test]
fn a_reading_point_before_the_snapshot_is_found_out() {
    assert!(finds(Fault::ReadingPointBeforeSnapshot, PLAN));
}

#[test]
fn visibility_before_the_csn_is_found_out() {
    assert!(finds(Fault::VisibleBeforeCsn, PLAN));
}

#[test]
fn an_eviction_mark_read_before_the_slots_is_found_out() {
    assert!(finds(Fault::MarkReadFirst, OVERFLOWING));
}

#[test]
fn a_walk_that_ends_too_soon_is_found_out() {
    let shape = Shape {
        buckets: 1,
        depth: 3,
        ..PLAN.shape
    };
    let plan = Plan {
        shape,
        rounds: 4,
        writes: 1,
        deaths: 0.5,
        readers: 0.0,
        whole: 0.0,
        prepares: 0.0,
        ..PLAN
    };
    assert!(finds(Fault::OldEntryEndsWalk, plan));
}

#[test]
fn a_ring_that_looks_quiet_too_long_is_found_out() {
    let depth = 3;
    let shape = Shape { depth, ..TINY };
    assert!(finds(Fault::MaxRaisedLate, Plan { shape, ..PLAN }));
    assert!(finds(Fault::EarlierForgotten, Plan { shape, ..PLAN }));
}

#[test]
fn a_restart_that_is_ignored_is_found_out() {
    assert!(finds(Fault::RestartIgnored, RECOVERED));
}

#[test]
fn a_reader_that_ignores_what_it_saw_of_later_ones_is_found_out() {
    assert!(finds(Fault::NewerIgnored, PLAN));
}

#[test]
fn a_csn_that_is_forgotten_with_its_entry_is_found_out() {
    let shape = Shape {
        processes: 4,
        buckets: 1,
        ..TINY
    };
    let plan = Plan {
        shape,
        writes: 1,
        readers: 0.4,
        rounds: 3,
        prepares: 0.0,
        deaths: 0.0,
        in_pieces: false,
        ..PLAN
    };
    assert!(finds(Fault::OverwrittenCsnForgotten, plan));
    let shape = Shape { buckets: 1, ..TINY };
    let plan = Plan {
        shape,
        readers: 0.3,
        rounds: 4,
        blind: 0.9,
        ..plan
    };
    assert!(finds(Fault::LostCsnForgotten, plan));
}

const WINDOW: Plan = Plan {
    shape: Shape {
        window: true,
        ..PLAN.shape
    },
    blind: 0.2,
    writes: 1,
    ..PLAN
};

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
fn reads_that_are_not_registered_are_found_out() {
    assert!(finds(Fault::ReadsNotRegistered, WINDOW));
}

#[test]
fn one_that_moves_whatever_it_saw_of_later_ones_is_found_out() {
    assert!(finds(
        Fault::NewerIgnored,
        Plan {
            readers: 0.0,
            ..WINDOW
        }
    ));
}

#[test]
fn one_that_moves_before_who_deleted_what_it_inserts_is_found_out() {
    assert!(finds(Fault::LaterWritesIgnored, WINDOW));
}

#[test]
fn one_that_moves_silently_is_found_out() {
    assert!(finds(Fault::MovedSilently, WINDOW));
}

#[test]
fn a_reader_that_ignores_who_moved_is_found_out() {
    assert!(finds(
        Fault::MovedIgnored,
        Plan {
            readers: 0.6,
            ..WINDOW
        }
    ));
}

const COPYING: Plan = Plan {
    copies: 0.6,
    readers: 0.5,
    ..PLAN
};

#[test]
fn who_reads_by_an_excerpt_is_serializable() {
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

#[test]
fn an_excerpt_that_is_made_though_something_is_lost_is_found_out() {
    let plan = Plan {
        shape: TINY,
        ..COPYING
    };
    assert!(finds(Fault::ExcerptIncomplete, plan));
}

#[test]
fn an_excerpt_without_entries_whose_csn_is_elsewhere_is_found_out() {
    assert!(finds(Fault::PendingNotCopied, COPYING));
}

#[test]
fn an_excerpt_without_what_was_seen_of_later_ones_is_found_out() {
    assert!(finds(Fault::NewerNotCopied, COPYING));
}
