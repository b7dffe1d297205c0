//! The end of a transaction: registration, CSN, validation.

use super::errors;
use super::key;
use super::session::{self, Work};
use super::view;
use crate::hotlock::memory;
use crate::hotlock::stop::{self, Point};
use crate::pg::{wait, xact};
use keyrange::{Conflict, Count, RangeMap, Refusal, Relation, Validation};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long a validator waits for another process to write down its CSN.
const PATIENCE: Duration = Duration::from_secs(1);

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

fn ranges_of(work: &'static Work, relation: Relation) -> RangeMap<'static> {
    let table = work.table(key::oid_of(relation));
    table.map_or(RangeMap::WHOLE, |table| table.ranges())
}

/// Validates what was captured last, against transactions that took their CSNs before the first capture: their writes are all
/// in the rings now, and may be overwritten later. 40001 if one of them has committed; those in doubt are looked at again at
/// the end.
pub fn validate_fresh() {
    if session::with_present(|work| work.fresh.is_empty()) != Some(false) {
        return;
    }
    let (view, before) = session::reading_point();
    // SAFETY: nothing below changes it; what is in doubt has a cell of its own.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    let since = Instant::now();
    let mut refused = None;
    let validation = Validation {
        board: memory().board,
        snapshot: &view,
        before,
        ranges: &|relation| ranges_of(work, relation),
        wait: &|| is_patient(since),
    };
    let (result, done) = validation.conflicts(&work.fresh, &mut |conflict| {
        if xact::has_committed(conflict.fxid as u32) {
            refused = Some(conflict);
            return ControlFlow::Break(());
        }
        note_doubt(work, conflict);
        ControlFlow::Continue(())
    });
    session::with(|work| work.fresh.clear());
    let result = refused.map_or(result, |conflict| Err(Refusal::Conflict(conflict)));
    let totals = memory().ranges;
    totals.add(Count::ValidationTime, nanoseconds(since));
    if let Err(refusal) = result {
        totals.validated(&result, &done);
        errors::refuse(&refusal);
    }
    totals.looked(&done);
}

fn note_doubt(work: &Work, conflict: Conflict) {
    let mut doubtful = work.doubtful.borrow_mut();
    if doubtful.iter().all(|known| known.fxid != conflict.fxid) {
        doubtful.push(conflict);
    }
}

fn is_patient(since: Instant) -> bool {
    wait::give_way();
    since.elapsed() < PATIENCE
}

/// XACT_EVENT_PRE_COMMIT and XACT_EVENT_PRE_PREPARE, when the transaction reads and writes no more and those it built on have
/// ended: registers what it wrote, takes its CSN, and validates what it read if it is to be validated. 40001 if that fails.
pub fn before_end() {
    let Some(writes) = session::with_present(|work| {
        work.sealed = true;
        work.read_looked_for();
        !work.writes.is_empty()
    }) else {
        return;
    };
    if writes {
        register_and_validate();
    } else if session::is_validated() {
        validate_fresh();
        settle_doubts();
    }
}

fn register_and_validate() {
    // SAFETY: nothing changes it any more.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    let shared = memory();
    let since = Instant::now();
    let fxid = view::own_fxid();
    let registered = shared
        .board
        .register(wait::me(), fxid, &work.writes, &view::is_running);
    shared.ranges.add(Count::Registered, registered.placed());
    shared.ranges.add(Count::Unplaced, registered.unplaced());
    stop::at(Point::Registered);
    let csn = registered.take_csn();
    stop::at(Point::Numbered);
    shared
        .ranges
        .add(Count::RegistrationTime, nanoseconds(since));
    if session::is_validated() {
        let since = Instant::now();
        let (view, _) = session::reading_point();
        let validation = Validation {
            board: shared.board,
            snapshot: &view,
            before: csn,
            ranges: &|relation| ranges_of(work, relation),
            wait: &|| is_patient(since),
        };
        let (result, done) = validation.run(&work.predicates);
        shared.ranges.add(Count::ValidationTime, nanoseconds(since));
        shared.ranges.validated(&result, &done);
        if let Err(refusal) = result {
            errors::refuse(&refusal);
        }
    }
    stop::at(Point::Validated);
}

/// The end of a validated transaction that wrote nothing: it has missed no transaction that comes before it, unless one of
/// those in doubt has not rolled back.
fn settle_doubts() {
    // SAFETY: nothing changes it any more.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    let count = work.doubtful.borrow().len();
    for n in 0..count {
        let conflict = work.doubtful.borrow()[n];
        if !view::did_abort(conflict.fxid) {
            let refusal = Refusal::Conflict(conflict);
            memory()
                .ranges
                .validated(&Err(refusal), &keyrange::Work::default());
            errors::refuse(&refusal);
        }
    }
    if !work.predicates.is_empty() {
        memory()
            .ranges
            .validated(&Ok(()), &keyrange::Work::default());
    }
}
