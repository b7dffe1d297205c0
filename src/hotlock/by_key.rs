//! A follower's statement by key that has come to no row.
//!
//! It runs beside the predecessors: what it finds it locks, and so it builds on the row's last
//! version. What it does not find may be what a predecessor has made of the row. Its snapshot does
//! not show that; stock PostgreSQL's would. So it lets the predecessors end, and its scan is asked
//! once more with a snapshot from after that. If the scan finds a row then, the transaction is
//! refused (40001).

use super::dependency;
use super::dependent;
use super::predecessors;
use super::session::SESSION;
use crate::pg::{plan, probe, raw};
use crate::shared::fault::{Fault, planted};
use pgrx::pg_sys::{self, ScanDirection};

/// Whether a statement that has run may have missed a row.
///
/// # Safety
/// ExecutorRun's arguments; the statement has run.
#[inline]
pub unsafe fn may_have_missed(
    query: *const pg_sys::QueryDesc,
    direction: ScanDirection::Type,
) -> bool {
    // SAFETY: by the contract.
    SESSION.has_followed() && unsafe { has_found_none(query, direction) }
}

/// # Safety
/// As for `may_have_missed`.
unsafe fn has_found_none(query: *const pg_sys::QueryDesc, direction: ScanDirection::Type) -> bool {
    // SAFETY: the executor's query has run, so it has an executor state and a snapshot.
    unsafe {
        direction == ScanDirection::ForwardScanDirection
            && (*(*query).estate).es_total_processed == 0
            && predecessors::finds_stale((*query).snapshot).is_some()
            && plan::target(query).is_some_and(|target| target.is_alone())
            && !planted(Fault::MissedRowsForgotten)
    }
}

/// Lets the predecessors end, and asks again: 40001 if the statement has missed a row.
///
/// # Safety
/// `may_have_missed(query)`.
pub unsafe fn look_again(query: *const pg_sys::QueryDesc) {
    // A predecessor may want the ticket that this statement has not used.
    dependency::drop_unused(query as usize);
    dependent::let_predecessors_end();
    // SAFETY: the caller's `may_have_missed` holds: the query finds one row by its key. The copy of
    // the plan's top outlives its execution. UPDATE and LockRows stand on top of the scan.
    unsafe {
        let mut scan = *(*query).plannedstmt;
        scan.commandType = pg_sys::CmdType::CMD_SELECT;
        scan.planTree = (*scan.planTree).lefttree;
        scan.hasReturning = false;
        scan.resultRelations = std::ptr::null_mut();
        scan.rowMarks = std::ptr::null_mut();
        if probe::finds_a_row(
            query,
            &raw mut scan,
            raw::GetLatestSnapshot(),
            |_| (),
            |_| (),
        ) {
            dependent::before_reading(query);
        }
    }
}
