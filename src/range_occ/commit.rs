//! The end of a transaction: registration, CSN, validation.

use super::errors;
use super::reads::{knows_nothing_from, refuse_again, validate_fresh};
use super::redefined;
use super::session;
use super::used;
use super::validation::{against, is_patient, nanoseconds, of_definitions, ranges_of};
use super::view;
use super::work::Work;
use crate::hotlock::memory;
use crate::pg::process;
use crate::shared::stop::{self, Point};
use keyrange::{Conflict, Count, Refusal, Written};
use std::mem::ManuallyDrop;
use std::time::Instant;

/// Intervals of written keys of a relation that are compared with what others have read; more are
/// joined.
const MOST_WRITTEN: usize = 1024;

/// The one with the next id.
fn next_missed(work: &Work, after: u64) -> Option<(u64, Conflict)> {
    let missed = work.missed.borrow();
    let mut others = missed.range(after + 1..);
    others.next().map(|(&fxid, &conflict)| (fxid, conflict))
}

/// XACT_EVENT_PRE_COMMIT and XACT_EVENT_PRE_PREPARE, when the transaction reads and writes no more
/// and those it built on have ended: registers what it wrote, takes its CSN, and validates what it
/// read if it is to be validated. 40001 if that fails.
#[inline]
pub fn before_end() {
    redefined::settle();
    if session::has_work() {
        used::settle_routed();
    }
    session::seal();
    if session::has_work() {
        end_of_work();
    }
}

fn end_of_work() {
    let Some(saw_beyond) = session::with_present(Work::finish) else {
        return;
    };
    let validated = session::is_validated();
    refuse_again();
    // A transaction with an id may have locked rows, so that it does not stand where it first read,
    // either.
    let takes_csn = session::with_present(|work| !work.writes.is_empty()) == Some(true)
        || validated && (saw_beyond || view::own_fxid() != 0);
    if takes_csn {
        register_and_validate();
    } else if validated {
        validate_fresh();
        settle_definitions();
        settle_doubts();
    }
}

/// What the transaction wrote, should it want to move before others.
fn written(work: &Work) -> Written {
    let keys = work.writes.keys(MOST_WRITTEN);
    let mut learned = keys.clone();
    for (relation, _) in keys.iter() {
        // Other unique indexes have told whether others' rows were in the way.
        let other_keys = work.any_definition(relation, |table| table.has_other_keys);
        if other_keys != Some(false) {
            learned.read_all(relation);
        }
    }
    Written {
        keys,
        learned,
        definitions: work.definitions(),
    }
}

/// Under which id reads are registered: the transaction's, if it has one.
fn reader_id(fxid: u64) -> u64 {
    if fxid == 0 {
        view::READER + u64::from(process::me())
    } else {
        fxid
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
    let validated = session::is_validated();
    let ranges = |relation| ranges_of(work, relation);
    let (me, is_running) = (process::me(), &view::is_running);
    let space = &shared.rings;
    let mut registered = space.register(me, fxid, &work.writes, &ranges, is_running);
    if shared.rings.reads.is_some() {
        let (id, reads) = (reader_id(fxid), work.registered_reads());
        registered.add_reads(id, &reads, &ranges, &view::is_running);
    }
    let totals = shared.counters();
    totals.add(Count::Registered, registered.placed());
    totals.add(Count::Unplaced, registered.unplaced());
    stop::at(Point::Registered);
    let numbered = registered.take_csn();
    stop::at(Point::Numbered);
    totals.add(Count::RegistrationTime, nanoseconds(since));
    if validated {
        let since = Instant::now();
        let (view, _) = session::reading_point();
        // An ERROR in the look at versions leaves its memory behind.
        let numbered = ManuallyDrop::new(numbered);
        let wait = || is_patient(since);
        let validation = against(&view, numbered.csn, &ranges, &wait);
        let written = || written(work);
        let written: Option<&dyn Fn() -> Written> = (!work.saw_beyond).then_some(&written);
        let (placed, done) = validation.place(&numbered, &work.predicates, written);
        drop(ManuallyDrop::into_inner(numbered));
        totals.add(Count::ValidationTime, nanoseconds(since));
        totals.validated(&placed.map(drop), &done);
        match placed {
            Ok(placed) => totals.add(Count::Moved, u64::from(placed.moved)),
            Err(refusal) => errors::refuse(&refusal),
        }
    }
    stop::at(Point::Validated);
}

/// The end of a validated transaction that wrote nothing: tables may have become known after the
/// last that it read.
fn settle_definitions() {
    // SAFETY: nothing changes it any more.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    if work.first_missed.get().is_none() {
        return;
    }
    let (view, before) = session::reading_point();
    let validation = of_definitions(&view, before);
    let is_between = !knows_nothing_from(work, &validation);
    session::with(|work| work.is_between |= is_between);
}

/// The end of a validated transaction that wrote nothing: if it stands nowhere, all that it missed
/// have rolled back.
fn settle_doubts() {
    // SAFETY: nothing changes it any more.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    let totals = memory().counters();
    let nothing = keyrange::Work::default();
    let mut after = 0;
    while work.is_between
        && let Some((fxid, conflict)) = next_missed(work, after)
    {
        if !view::did_abort(fxid) {
            let refusal = Refusal::Conflict(conflict);
            totals.validated(&Err(refusal), &nothing);
            errors::refuse(&refusal);
        }
        after = fxid;
    }
    if !work.predicates.is_empty() {
        if memory().rings.reads.is_some() {
            register_reader(work);
        }
        totals.validated(&Ok(()), &nothing);
    }
}

/// With an exclusion window: tells those that may still move where a transaction without a CSN
/// stands, and looks for those that have. 40001 if one has moved before it that it did not see.
fn register_reader(work: &'static Work) {
    let space = memory().rings;
    let (view, before) = session::reading_point();
    // If it is between, all that it missed have rolled back.
    let missed = work.first_missed.get().filter(|_| !work.is_between);
    let position = missed.map_or(before, |first| first.csn);
    let ranges = |relation| ranges_of(work, relation);
    space.register_reader(
        process::me(),
        reader_id(0),
        position,
        &work.predicates,
        &ranges,
        &view::is_running,
    );
    let validation = against(&view, before, &ranges, &|| false);
    // Which does not look at `prefix`.
    if !validation.nobody_moved(position, &work.predicates) {
        memory().counters().add(Count::Overlap, 1);
        errors::MOVED.raise();
    }
}
