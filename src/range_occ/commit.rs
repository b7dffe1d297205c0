//! The end of a transaction: registration, CSN, validation.

use super::errors;
use super::key;
use super::redefined;
use super::ring_copy;
use super::session;
use super::view::{self, View};
use super::work::{Refused, Work};
use crate::hotlock::memory;
use crate::hotlock::stop::{self, Point};
use crate::pg::{wait, xact};
use keyrange::{Conflict, Count, RangeMap, Refusal, Relation, Validation, Written};
use std::cell::OnceCell;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Intervals of written keys of a relation that are compared with what others have read; more are joined.
const MOST_WRITTEN: usize = 1024;
/// How long a validator waits for another process to write down its CSN.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// The ranges of a table, as the transaction knows it.
pub fn ranges_of(work: &'static Work, relation: Relation) -> RangeMap<'static> {
    let table = work.table(key::oid_of(relation));
    table.map_or(RangeMap::WHOLE, |table| table.ranges())
}

/// The transaction has read something, which is validated unless all is at the end: what decides on it is in the rings now.
pub fn note_read() {
    refuse_again();
    let has_id = view::own_fxid() != 0;
    session::with(|work| work.has_id = has_id);
    if !has_id {
        validate_fresh();
    }
}

/// Fails if the transaction has been refused, and survived it by a savepoint.
fn refuse_again() {
    match session::with_present(|work| work.refused).flatten() {
        Some(Refused::ByValidation(refusal)) => errors::refuse(&refusal),
        Some(Refused::Redefined(oid)) => errors::redefined(oid),
        None => {}
    }
}

/// Validates what is fresh against transactions that took their CSNs before the first capture: their writes are all
/// in the rings by then, and may be overwritten later. A transaction that only reads stands before the first of them that it missed,
/// unless it has seen something of a later one; then it fails with 40001, here or, if those that it missed may yet roll back, at the
/// end.
fn validate_fresh() {
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
    let validation = Validation {
        board: memory().board,
        snapshot: &view,
        before,
        prefix: session::prefix(),
        ranges: &|relation| ranges_of(work, relation),
        wait: &|| is_patient(since()),
    };
    // Nothing is to be copied, nothing was missed, and nothing is: the way of most.
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

/// Whether the transaction uses no definition that comes from one after the first of those that it missed.
fn knows_nothing_from(work: &Work, validation: &Validation<View>) -> bool {
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

/// The one with the next id.
fn next_missed(work: &Work, after: u64) -> Option<(u64, Conflict)> {
    let missed = work.missed.borrow();
    let mut others = missed.range(after + 1..);
    others.next().map(|(&fxid, &conflict)| (fxid, conflict))
}

/// Whether to wait on for another process to write down its CSN, after a short pause.
pub fn is_patient(since: Instant) -> bool {
    wait::give_way();
    since.elapsed() < PATIENCE
}

/// XACT_EVENT_PRE_COMMIT and XACT_EVENT_PRE_PREPARE, when the transaction reads and writes no more and those it built on have
/// ended: registers what it wrote, takes its CSN, and validates what it read if it is to be validated. 40001 if that fails.
#[inline]
pub fn before_end() {
    redefined::settle();
    if session::has_work() {
        session::settle_routed();
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
    // Who has an id may have locked rows, so that it does not stand where it first read, either.
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
        view::READER + u64::from(wait::me())
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
    let (me, is_running) = (wait::me(), &view::is_running);
    let board = &shared.board;
    let mut registered = board.register(me, fxid, &work.writes, &ranges, is_running);
    if shared.board.reads.is_some() {
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
        let validation = Validation {
            board: shared.board,
            snapshot: &view,
            before: numbered.csn,
            prefix: session::prefix(),
            ranges: &ranges,
            wait: &|| is_patient(since),
        };
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

/// The end of a validated transaction that wrote nothing: tables may have become known after the last that it read.
fn settle_definitions() {
    // SAFETY: nothing changes it any more.
    let Some(work) = (unsafe { session::look() }) else {
        return;
    };
    if work.first_missed.get().is_none() {
        return;
    }
    let (view, before) = session::reading_point();
    let validation = Validation {
        board: memory().board,
        snapshot: &view,
        before,
        prefix: session::prefix(),
        ranges: &|_| RangeMap::WHOLE,
        wait: &|| false,
    };
    let is_between = !knows_nothing_from(work, &validation);
    session::with(|work| work.is_between |= is_between);
}

/// The end of a validated transaction that wrote nothing: if it stands nowhere, all that it missed have rolled back.
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
        if memory().board.reads.is_some() {
            register_reader(work);
        }
        totals.validated(&Ok(()), &nothing);
    }
}

/// With an exclusion window: tells those that may still move where a transaction without a CSN stands, and looks for those that have. 40001
/// if one has moved before it that it did not see.
fn register_reader(work: &'static Work) {
    let board = memory().board;
    let (view, before) = session::reading_point();
    // If it is between, all that it missed have rolled back.
    let missed = work.first_missed.get().filter(|_| !work.is_between);
    let position = missed.map_or(before, |first| first.csn);
    let ranges = |relation| ranges_of(work, relation);
    board.register_reader(
        wait::me(),
        reader_id(0),
        position,
        &work.predicates,
        &ranges,
        &view::is_running,
    );
    let validation = Validation {
        board,
        snapshot: &view,
        before,
        prefix: 0,
        ranges: &ranges,
        wait: &|| false,
    };
    if !validation.nobody_moved(position, &work.predicates) {
        memory().counters().add(Count::Overlap, 1);
        errors::MOVED.raise();
    }
}
