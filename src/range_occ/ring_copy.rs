//! When a transaction that only reads copies what of the rings it may need (`keyrange::RingCopy`):
//! before it looks at all of them anyhow, or, in a session that was refused for want of history,
//! before it reads anything.

use super::session;
use super::validation::{against, is_patient, nanoseconds, ranges_of};
use super::view::{self, View};
use super::work::{Copied, Work};
use crate::hotlock::memory;
use crate::pg::raw;
use keyrange::{Conflict, Count, Csn, Predicates, Refusal, RingCopy, Validation};
use pgrx::pg_sys;
use std::ops::ControlFlow;
use std::time::Instant;

/// A statement is about to be planned or started. Where nobody was refused, this costs a look at a
/// cell.
pub fn before_reads() {
    // SAFETY: a plain read of backend state.
    if session::wants_ring_copy() && unsafe { pg_sys::FirstSnapshotSet } {
        copy_early();
    }
}

/// The transaction has its snapshot: copies what it may need before it knows what it reads.
pub fn copy_early() {
    // SAFETY: reads shared state.
    if !session::is_validated() || unsafe { raw::RecoveryInProgress() } {
        return;
    }
    session::start_clock();
    let (view, before) = session::reading_point();
    session::survey(&view);
    if view::own_fxid() != 0 {
        return;
    }
    // SAFETY: nothing below changes it; what is copied has cells of its own.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    if work.history.has_tried.get() || work.refused.is_some() {
        return;
    }
    let since = Instant::now();
    session::ring_copy_tried();
    let ranges = |relation| ranges_of(work, relation);
    let wait = || is_patient(since);
    let validation = against(&view, before, &ranges, &wait);
    copy(work, &validation);
    memory()
        .counters()
        .add(Count::ValidationTime, nanoseconds(since));
}

/// Whether the transaction reads a whole table for the first time: the rings are copied then, even
/// if nobody has written there, as it may read others later.
pub fn is_due(work: &Work, validation: &Validation<View>) -> bool {
    !work.history.has_tried.get() && validation.looks_everywhere(&work.fresh)
}

/// Before the validation of what is fresh, of a transaction that only reads.
pub fn before_validation(work: &Work, validation: &Validation<View>) {
    if is_due(work, validation) {
        copy(work, validation);
    }
}

fn copy(work: &Work, validation: &Validation<View>) {
    let Copied {
        has_tried,
        entries,
        ring_copy,
    } = &work.history;
    has_tried.set(true);
    let (extent, done) = validation.copy(&mut |entry| entries.borrow_mut().push(entry));
    let entries = entries.take();
    if let Some(extent) = extent {
        ring_copy.get_or_init(|| RingCopy::new(entries, extent));
    }
    memory().counters().looked(&done);
}

/// `Validation::conflicts`, by the ring copy if there is one.
pub fn conflicts(
    work: &Work,
    validation: &Validation<View>,
    found: &mut dyn FnMut(Conflict) -> ControlFlow<()>,
) -> (Result<(), Refusal>, keyrange::Work) {
    match work.history.ring_copy.get() {
        Some(ring_copy) => {
            let result = ring_copy.conflicts(validation, &work.fresh, found);
            (result, keyrange::Work::default())
        }
        None => validation.conflicts(&work.fresh, found),
    }
}

/// `Validation::can_stand_before`, by the ring copy if there is one.
pub fn can_stand_before(
    work: &Work,
    validation: &Validation<View>,
    from: Csn,
    predicates: &Predicates,
) -> Result<(), Refusal> {
    match work.history.ring_copy.get() {
        Some(ring_copy) => ring_copy.can_stand_before(validation, from, predicates),
        None => validation.can_stand_before(from, predicates),
    }
}
