//! Tests of planted faults: each shows as a violation in some schedule.

use super::{
    plan::{COPYING, LOOKING, OVERFLOWING, PIECES, PLAN, Plan, RECOVERED, TINY, WINDOW},
    play::finds,
    server::Shape,
};
use crate::fault::Fault;

#[test]
fn a_writer_that_has_its_csn_and_is_taken_for_new_is_found_out() {
    assert!(finds(Fault::NumberedTakenForNew, LOOKING));
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

#[test]
fn a_ring_copy_that_is_made_though_something_is_lost_is_found_out() {
    let plan = Plan {
        shape: TINY,
        ..COPYING
    };
    assert!(finds(Fault::RingCopyIncomplete, plan));
}

#[test]
fn a_ring_copy_without_entries_whose_csn_is_elsewhere_is_found_out() {
    assert!(finds(Fault::PendingNotCopied, COPYING));
}

#[test]
fn a_ring_copy_without_what_was_seen_of_later_ones_is_found_out() {
    assert!(finds(Fault::NewerNotCopied, COPYING));
}
