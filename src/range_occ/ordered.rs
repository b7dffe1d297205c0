//! Snapshots in the order of CSNs.
//!
//! A transaction takes its CSN, flushes its commit, and leaves the running list; another with a larger CSN may be quicker. A
//! snapshot from between sees the second and not the first. A transaction that only reads, and meets both, then stands
//! nowhere. So a reader whose snapshot is such a one waits, before it has read anything, until the first is visible, and takes
//! its snapshot again.

use super::session;
use super::view::View;
use crate::hotlock::memory;
use crate::pg::{snapshot, xact};
use pgrx::pg_sys;

/// Snapshots that a transaction takes at most.
const MOST: u32 = 16;

/// From which cost on (in the planner's units) a statement of a transaction that may still write is worth a wait: some hundred rows.
/// Who reads a few meets such a pair hardly ever.
const WORTH: f64 = 50.0;

/// Before a statement of a validated transaction starts.
///
/// # Safety
/// `query` is about to be started; nothing with a destructor is alive in the callers.
pub unsafe fn before_start(query: *mut pg_sys::QueryDesc) {
    if !session::uses_snapshot() {
        return;
    }
    // SAFETY: by the contract; this is the first statement of the transaction.
    unsafe {
        if !is_worthwhile((*query).plannedstmt) || !snapshot::is_retakeable(query) {
            return;
        }
        let committers = memory().board.committers;
        for _ in 1..MOST {
            let missed = keyrange::overtaken(committers, &View::of_transaction());
            let Some((process, fxid)) = missed else {
                return;
            };
            if !is_over(process, fxid) {
                return;
            }
            snapshot::retake(query);
            session::forget_reading_point();
        }
    }
}

/// # Safety
/// A plan.
unsafe fn is_worthwhile(planned: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: by the contract, and plain reads.
    unsafe {
        (*planned).commandType == pg_sys::CmdType::CMD_SELECT
            && !(*planned).hasModifyingCTE
            && (*planned).rowMarks.is_null()
            && (pg_sys::XactReadOnly || (*(*planned).planTree).total_cost >= WORTH)
    }
}

/// Whether that transaction, which is about to commit, has ended; it is waited for, but only once by a session if that takes longer than
/// `deadlock_timeout` (a synchronous standby that does not answer), and not at all if it has been prepared.
fn is_over(process: usize, fxid: u64) -> bool {
    let xid = fxid as u32;
    if !xact::is_running(xid) {
        return true;
    }
    // SAFETY: a plain read of a setting.
    let patience = unsafe { pg_sys::DeadlockTimeout };
    if session::has_given_up(fxid) || !xact::is_run_by(process, xid) {
        return false;
    }
    let has_ended = xact::wait_for_end_within(xid, patience);
    if !has_ended {
        session::give_up(fxid);
    }
    has_ended
}
