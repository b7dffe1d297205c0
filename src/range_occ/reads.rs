//! What is validated while the transaction runs, as it reads.

use super::errors;
use super::ring_copy;
use super::session;
use super::validation::{against, is_patient, nanoseconds, ranges_of};
use super::view::{self, View};
use super::work::{Refused, Work};
use crate::hotlock::memory;
use crate::pg::xact;
use keyrange::{Conflict, Count, Refusal, Validation};
use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::time::Instant;

/// The transaction has read something, which is validated unless all is at the end: what decides on
/// it is in the rings now.
pub fn note_read() {
    refuse_again();
    let has_id = view::own_fxid() != 0;
    session::with(|work| work.has_id = has_id);
    if !has_id {
        validate_fresh();
    }
}

/// Fails if the transaction has been refused, and survived it by a savepoint.
pub fn refuse_again() {
    match session::with_present(|work| work.refused).flatten() {
        Some(Refused::ByValidation(refusal)) => errors::refuse(&refusal),
        Some(Refused::Redefined(oid)) => errors::redefined(oid),
        None => {}
    }
}

/// Validates what is fresh against transactions that took their CSNs before the first capture:
/// their writes are all in the rings by then, and may be overwritten later. A transaction that only
/// reads stands before the first of them that it missed, unless it has seen something of a later
/// one; then it fails with 40001, here or, if those that it missed may yet roll back, at the end.
pub fn validate_fresh() {
    if session::with_present(|work| work.fresh.is_empty()) != Some(false) {
        return;
    }
    let (view, before) = session::reading_point();
    // SAFETY: nothing below changes it; what was missed has a cell of its own.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    let started = OnceCell::new();
    let since = || *started.get_or_init(Instant::now);
    let ranges = |relation| ranges_of(work, relation);
    let wait = || is_patient(since());
    let validation = against(&view, before, &ranges, &wait);
    // Fast path: no ring copy, no conflict so far, none new.
    if work.first_missed.get().is_none()
        && !ring_copy::is_due(work, &validation)
        && let Some(done) = validation.quiet(&work.fresh)
    {
        session::with(|work| work.fresh.clear());
        return memory().counters().looked(&done);
    }
    let since = since();
    ring_copy::before_validation(work, &validation);
    let (result, done) = ring_copy::conflicts(work, &validation, &mut |conflict| {
        note_missed(work, conflict);
        ControlFlow::Continue(())
    });
    let first = work.first_missed.get();
    let placed = first.map_or(Ok(()), |first| {
        let stands_there = work.stands_before == Some(first.csn);
        let read = if stands_there {
            &work.fresh
        } else {
            &work.predicates
        };
        ring_copy::can_stand_before(work, &validation, first.csn, read)
    });
    if [&result, &placed]
        .iter()
        .any(|one| matches!(one, Err(Refusal::HistoryLost { .. })))
    {
        session::note_lost();
    }
    let is_between = placed.is_err() || !knows_nothing_from(work, &validation);
    let certain = first.filter(|first| is_between && xact::has_committed(first.fxid as u32));
    let result = match certain {
        Some(missed) => result.and(Err(Refusal::Conflict(missed))),
        None => result,
    };
    session::with(|work| {
        work.fresh.clear();
        work.is_between |= is_between;
        work.stands_before = first.map(|first| first.csn);
        // A savepoint may survive the error, the transaction must not.
        work.refused = work.refused.or(result.err().map(Refused::ByValidation));
    });
    let totals = memory().counters();
    totals.add(Count::ValidationTime, nanoseconds(since));
    if let Err(refusal) = result {
        totals.validated(&result, &done);
        errors::refuse(&refusal);
    }
    totals.looked(&done);
}

/// Whether the transaction uses no definition that comes from one after the first of those that it
/// missed.
pub fn knows_nothing_from(work: &Work, validation: &Validation<View>) -> bool {
    work.first_missed.get().is_none_or(|first| {
        let definitions = work.definitions();
        validation.can_stand_before(first.csn, &definitions).is_ok()
    })
}

fn note_missed(work: &Work, conflict: Conflict) {
    let mut missed = work.missed.borrow_mut();
    let conflict = *missed.entry(conflict.fxid).or_insert(conflict);
    let first = work.first_missed.get();
    if first.is_none_or(|first| conflict.csn < first.csn) {
        work.first_missed.set(Some(conflict));
    }
}
