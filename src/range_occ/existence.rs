//! Statements that ask whether a row is there, and lock it: `SELECT 1 FROM t WHERE key = $1 FOR KEY
//! SHARE`, the query of foreign keys (ri_triggers.c: RI_FKey_check). What they find is there as
//! long as the lock is, so they read nothing that could change.

use super::session;
use crate::pg::local::Local;
use crate::pg::nodes;
use crate::pg::of_transaction::OfTransaction;
use pgrx::pg_sys::{self, NodeTag};

/// Whether the innermost statement that runs is one.
static RUNNING: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));

/// A statement begins to run. Returns what was so before, for `leave`.
///
/// # Safety
/// `query` has started.
#[inline]
pub unsafe fn enter(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: the caller's query has started, so it has a plan.
    let is_one = session::is_validated() && unsafe { asks_for_existence((*query).plannedstmt) };
    let before = RUNNING.get();
    leave(is_one);
    before
}

/// The statement has stopped running.
#[inline]
pub fn leave(before: bool) {
    if before {
        RUNNING.set(true);
    } else {
        reset();
    }
}

/// After an error: nothing is known of the statement that goes on.
#[inline]
pub fn reset() {
    RUNNING.clear();
}

pub fn is_running() -> bool {
    RUNNING.get()
}

/// Whether the plan is an index scan without further conditions whose rows are locked FOR KEY
/// SHARE, and returns constants.
unsafe fn asks_for_existence(planned: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: a plan; nodes are read as what their tags say.
    unsafe {
        let top = (*planned).planTree;
        if nodes::tag(top) != NodeTag::T_LockRows
            || nodes::length((*planned).rtable) != 1
            || nodes::length((*planned).rowMarks) != 1
            || !(*planned).subplans.is_null()
        {
            return false;
        }
        let mark = nodes::nth::<pg_sys::PlanRowMark>((*planned).rowMarks, 0);
        let scan = (*top).lefttree;
        let is_scan = matches!(
            nodes::tag(scan),
            NodeTag::T_IndexScan | NodeTag::T_IndexOnlyScan
        );
        (*mark).markType == pg_sys::RowMarkType::ROW_MARK_KEYSHARE
            && is_scan
            && (*scan).qual.is_null()
            && nodes::nodes((*top).targetlist).all(|node| {
                let entry = node.cast::<pg_sys::TargetEntry>();
                (*entry).resjunk || nodes::tag((*entry).expr) == NodeTag::T_Const
            })
    }
}
