//! `txn.reschedule`: a transaction that was refused is put in order when its client begins it
//! again (HDCC's re-scheduling). What it is to use is not known before, so it is what the refused
//! ones have used.

use super::admit;
use super::respect;
use super::used::{BY_RANGE, Used, is_refused};
use crate::hotlock::memory;
use crate::pg::catch::{Code, catching};
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{process, xact};
use crate::range_occ::session;
use crate::shared::guc::{self, LaneMode};
use pgrx::pg_sys;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// For how long what was refused is remembered, in microseconds.
const MEMORY_US: u64 = 1_000_000;

struct Session {
    used: Used,
    /// When a transaction was refused last; 0 if none was.
    refused_at: Cell<u64>,
    /// So many times in a row.
    times: Cell<i32>,
    /// The present transaction has taken its keys here.
    is_in: OfTransaction<bool>,
    /// It was refused. It may have survived that.
    is_refused: OfTransaction<bool>,
}

static SESSION: Local<Session> = Local::new(Session {
    used: Used::new(),
    refused_at: Cell::new(0),
    times: Cell::new(0),
    is_in: OfTransaction::new(false),
    is_refused: OfTransaction::new(false),
});

/// Whether errors of statements are to be told to `failed`.
#[inline]
pub fn is_watching() -> bool {
    guc::is_on(&guc::RESCHEDULE) || guc::value(&guc::LANE) == LaneMode::Auto
}

/// A part of a statement, or the commit, fails with that SQLSTATE. Returns false: the error stands.
pub fn failed(code: Code) -> bool {
    if !is_refused(code) {
        return false;
    }
    // An error passes by the statements around the one that fails, too.
    let is_first = !SESSION.is_refused.get();
    SESSION.is_refused.set(true);
    if is_first && code == *b"40P01" {
        respect::refused();
    }
    if guc::is_on(&guc::RESCHEDULE) {
        if is_first && !is_fresh() && !SESSION.is_in.get() {
            SESSION.used.forget();
            SESSION.times.set(0);
        }
        let times = SESSION.times.get() + i32::from(is_first);
        SESSION.times.set(times);
        SESSION.used.note(times >= BY_RANGE);
    }
    false
}

fn is_fresh() -> bool {
    let at = SESSION.refused_at.get();
    at != 0 && process::now().saturating_sub(at) <= MEMORY_US
}

/// A client has begun a transaction block, before anything else. Takes the keys that the refused
/// ones before it have used, unless others keep them for long: the wait makes a refusal less
/// likely, and is worth no error.
///
/// # Errors
/// 57014, if the user cancels it; what look-ups in catalogs raise.
pub fn at_begin() {
    if !guc::is_on(&guc::RESCHEDULE) || SESSION.refused_at.get() == 0 || !is_fresh() {
        return;
    }
    let is_clean = !admit::is_in()
        && xact::nest_level() == 1
        && xact::own_xid() == 0
        && !session::has_used_snapshot();
    if !is_clean || xact::is_read_only() {
        return;
    }
    let until = Instant::now() + patience();
    let take = |lane| without_lock_timeout(|| admit::enter_before(lane, until));
    if SESSION.used.declare(take) {
        SESSION.is_in.set(true);
        memory().totals.lane_rescheduled.add(1);
    }
}

/// How long BEGIN waits at most: so that no timeout comes first, nor the deadlock detector, and not
/// for longer than a refusal is remembered.
fn patience() -> Duration {
    // SAFETY: plain reads of settings.
    let (deadlock, lock, statement) = unsafe {
        (
            pg_sys::DeadlockTimeout,
            pg_sys::LockTimeout,
            pg_sys::StatementTimeout,
        )
    };
    let timeouts = [lock, statement, guc::HOT_WAIT_TIMEOUT.get()];
    let shortest = timeouts.into_iter().filter(|&ms| ms > 0).min();
    let ms = (deadlock / 4 * 3).min(shortest.map_or(i32::MAX, |ms| ms / 2));
    Duration::from_millis(ms.max(1) as u64).min(Duration::from_micros(MEMORY_US))
}

/// Runs it with `lock_timeout` off.
fn without_lock_timeout(body: impl FnOnce() -> bool) -> bool {
    let mut result = false;
    // SAFETY: the setting is put back on both ways out; nothing here has a destructor.
    unsafe {
        let configured = pg_sys::LockTimeout;
        pg_sys::LockTimeout = 0;
        catching(
            || result = body(),
            |_| {
                pg_sys::LockTimeout = configured;
                false
            },
        );
        pg_sys::LockTimeout = configured;
    }
    result
}

/// Whether the present transaction has taken its keys so.
pub fn is_in() -> bool {
    SESSION.is_in.get()
}

/// Lets go what was taken at the beginning of the transaction, if anything was, as it declares its
/// keys itself. It has written nothing.
pub fn give_back() {
    if SESSION.is_in.take() {
        admit::end();
    }
}

/// Whether a refusal is remembered that the end of a transaction may make good.
#[inline]
pub fn remembers() -> bool {
    SESSION.refused_at.get() != 0
}

/// The transaction has ended. Whoever has written something has got further than the one that was
/// refused.
#[inline]
pub fn end(is_committed: bool) {
    let (is_in, is_refused) = (SESSION.is_in.take(), SESSION.is_refused.take());
    if !is_committed {
        if is_refused {
            SESSION.refused_at.set(process::now());
        }
    } else if SESSION.refused_at.get() != 0 && (is_in || xact::own_xid() != 0) {
        SESSION.refused_at.set(0);
    }
}
