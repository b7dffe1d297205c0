//! Snapshots in the order of CSNs.
//!
//! A transaction takes its CSN, flushes its commit, and leaves the running list; another with a
//! larger CSN may be quicker. A snapshot from between sees the second and not the first. A
//! transaction that only reads, and meets both, then has no place in the order. So a reader with
//! such a snapshot waits, before it has read anything, until the first is visible. Then it takes
//! its snapshot again, unless a definition has changed between the two: plans have been made with
//! what was there before.

use super::definition;
use super::session;
use super::uses;
use super::view::{self, View};
use crate::hotlock::memory;
use crate::pg::{snapshot, xact};
use pgrx::pg_sys;
use std::time::Instant;

/// Snapshots that a transaction takes at most.
const MOST: u32 = 16;

/// From which cost on (in the planner's units) a statement of a transaction that may still write is
/// worth a wait: some hundred rows. Who reads a few meets such a pair hardly ever.
const WORTH: f64 = 50.0;

/// Takes the snapshot of a transaction again that has waited for others before its first statement,
/// if definitions are as it saw them.
///
/// # Safety
/// `snapshot::is_retakeable(query)`, and nothing has been read with the transaction's snapshot.
pub unsafe fn retake(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the caller's `is_retakeable` holds, and nothing was read with the snapshot.
    retake_by(true, |is_fit| unsafe { snapshot::retake(query, is_fit) });
}

/// `retake` for a utility command, which has no plan: definitions may have changed.
///
/// # Safety
/// `snapshot::is_utility_retakeable()`, and nothing has been read with the transaction's snapshot.
pub unsafe fn retake_for_utility() {
    // SAFETY: the caller's `is_utility_retakeable` holds, and nothing was read with the snapshot.
    retake_by(false, |is_fit| unsafe {
        snapshot::retake_for_utility(is_fit)
    });
}

/// `retake` for the transaction's own snapshot only, from within a statement that reads nothing:
/// definitions may have changed.
///
/// # Safety
/// `snapshot::is_transactions_retakeable()`, and nothing has been read with the transaction's
/// snapshot.
pub unsafe fn retake_transactions() {
    // SAFETY: the caller's `is_transactions_retakeable` holds, and nothing was read with the
    // snapshot.
    retake_by(false, |is_fit| unsafe {
        snapshot::retake_transactions(is_fit)
    });
}

fn retake_by(is_planned: bool, retake: impl FnOnce(&dyn Fn() -> bool) -> Option<u32>) {
    if !session::is_validated() {
        retake(&|| true);
    } else if !xact::is_serializable() {
        // SSI takes another snapshot than the one that is compared.
        let view = View::of_transaction();
        if let Some(xmin) = retake(&|| !is_planned || definition::all_are_seen(&view)) {
            retaken(xmin);
        }
    }
}

/// Before the first statement of a validated transaction starts.
///
/// # Safety
/// `query` is about to be started; nothing with a destructor is alive in the callers.
pub unsafe fn before_first(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the caller's query is about to be started, so it has a plan and a snapshot.
    unsafe {
        if !is_worthwhile((*query).plannedstmt) || !snapshot::is_retakeable(query) {
            return;
        }
        let committers = memory().rings.committers;
        let since = Instant::now();
        for _ in 1..MOST {
            let view = View::of_transaction();
            let missed = keyrange::overtaken(committers, &view, xact::is_in_this_database, can_end);
            let can_follow =
                |fxid: u64| definition::all_are_seen(&view) && is_over(fxid as u32, since);
            if !missed.is_some_and(can_follow) {
                return;
            }
            match snapshot::retake(query, || definition::all_are_seen(&view)) {
                Some(xmin) => retaken(xmin),
                None => return,
            }
        }
    }
}

/// Whether the transaction of that process is not a prepared one, of which nobody knows when it
/// ends.
fn can_end(process: usize, fxid: u64) -> bool {
    let xid = fxid as u32;
    xact::is_run_by(process, xid) || !xact::is_running(xid)
}

/// # Safety
/// `planned` is a valid plan.
unsafe fn is_worthwhile(planned: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: by the contract, and plain reads.
    unsafe {
        (*planned).commandType == pg_sys::CmdType::CMD_SELECT
            && !(*planned).hasModifyingCTE
            && (*planned).rowMarks.is_null()
            // Functions that are not built in: some may have become part of the plan.
            && (*planned).invalItems.is_null()
            && (session::is_read_only()
                || uses::is_any_ours(planned)
                    && (xact::is_read_only() || (*(*planned).planTree).total_cost >= WORTH))
    }
}

/// Whether that transaction, which is about to commit, has ended. It is waited for until almost
/// `deadlock_timeout` after `since`, so that no detector is called for; if that is too short (a
/// synchronous standby does not answer), this session waits for nobody until it has ended.
fn is_over(xid: u32, since: Instant) -> bool {
    if !xact::is_running(xid) {
        return true;
    }
    let given_up = session::given_up();
    if given_up != 0 && xact::is_running(given_up) {
        return false;
    }
    // SAFETY: a plain read of a setting.
    let patience = i64::from(unsafe { pg_sys::DeadlockTimeout }) * 9 / 10;
    let rest = patience - since.elapsed().as_millis() as i64;
    let has_ended = rest > 0 && xact::wait_for_end_within(xid, rest as i32);
    if !has_ended {
        session::give_up(xid);
    }
    has_ended
}

/// The transaction has taken its snapshot again, with this xmin, and has read nothing.
fn retaken(xmin: u32) {
    view::retaken(xmin);
    session::retaken();
}
