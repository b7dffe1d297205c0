//! `txn.reschedule`: a transaction that was refused is put in order when its client begins it
//! again (HDCC's re-scheduling). What it is to use is not known before, so it is what the refused
//! ones have used.

use super::admit;
use super::respect;
use super::used::{BY_RANGE, Used, is_refused};
use crate::hotlock::memory;
use crate::pg::catch::Code;
use crate::pg::local::Local;
use crate::pg::{process, xact};
use crate::shared::guc::{self, LaneMode};
use std::cell::Cell;

/// For how long what was refused is remembered, in microseconds.
const MEMORY_US: u64 = 1_000_000;

struct Session {
    used: Used,
    /// When a transaction was refused last; 0 if none was.
    refused_at: Cell<u64>,
    /// So many times in a row.
    times: Cell<i32>,
    /// The present transaction has taken its keys here.
    is_in: Cell<bool>,
    /// It was refused. It may have survived that.
    is_refused: Cell<bool>,
}

static SESSION: Local<Session> = Local::new(Session {
    used: Used::new(),
    refused_at: Cell::new(0),
    times: Cell::new(0),
    is_in: Cell::new(false),
    is_refused: Cell::new(false),
});

/// Whether errors of statements are to be told to `failed`.
#[inline]
pub fn is_watching() -> bool {
    guc::is_on(&guc::RESCHEDULE) || guc::LANE.get() == LaneMode::Auto
}

/// A part of a statement, or the commit, fails with that SQLSTATE. Returns false: the error stands.
pub fn failed(code: Code) -> bool {
    if !is_refused(code) || SESSION.is_refused.replace(true) {
        return false;
    }
    if code == *b"40P01" {
        respect::refused();
    }
    if guc::is_on(&guc::RESCHEDULE) {
        if !is_fresh() && !SESSION.is_in.get() {
            SESSION.used.forget();
            SESSION.times.set(0);
        }
        SESSION.times.set(SESSION.times.get() + 1);
        SESSION.used.note(SESSION.times.get() >= BY_RANGE);
    }
    false
}

fn is_fresh() -> bool {
    let at = SESSION.refused_at.get();
    at != 0 && process::now().saturating_sub(at) <= MEMORY_US
}

/// A client has begun a transaction block. Takes the keys that the refused ones before it have
/// used.
///
/// # Errors
/// What a wait for a lock may raise.
pub fn at_begin() {
    if !guc::is_on(&guc::RESCHEDULE) || SESSION.refused_at.get() == 0 || !is_fresh() {
        return;
    }
    let may_enter = !admit::is_in() && xact::nest_level() == 1 && xact::own_xid() == 0;
    if may_enter && SESSION.used.declare() {
        SESSION.is_in.set(true);
        memory().totals.lane_rescheduled.add(1);
    }
}

/// Whether the present transaction has taken its keys so.
pub fn is_in() -> bool {
    SESSION.is_in.get()
}

/// Lets go what was taken at the beginning of the transaction, as it declares its keys itself.
/// Whether there was any.
pub fn give_back() -> bool {
    let is_in = SESSION.is_in.take();
    if is_in {
        admit::end();
    }
    is_in
}

/// The transaction has ended.
#[inline]
pub fn end(is_committed: bool) {
    let (is_in, is_refused) = (SESSION.is_in.take(), SESSION.is_refused.take());
    if is_refused && !is_committed {
        SESSION.refused_at.set(process::now());
    } else if is_in && is_committed {
        SESSION.refused_at.set(0);
    }
}
