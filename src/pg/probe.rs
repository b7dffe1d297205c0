//! Executes a plan once, to see whether it finds a row.

use super::raw;
use pgrx::pg_sys::{self, PlannedStmt, QueryDesc, ScanDirection, Snapshot};

/// Whether `plan` finds a row with `snapshot`; it runs with the parameters of `query`. `started` is
/// called after its start, and `finished` before its end.
///
/// # Safety
/// `query` has not ended, and its relations are locked. `plan` is its plan or a part of it.
pub unsafe fn finds_a_row(
    query: *const QueryDesc,
    plan: *mut PlannedStmt,
    snapshot: Snapshot,
    started: impl FnOnce(*mut QueryDesc),
    finished: impl FnOnce(*mut QueryDesc),
) -> bool {
    // SAFETY: as SPI executes a plan; an ERROR in it ends the transaction or a subtransaction,
    // which cleans up. The plan is only read.
    unsafe {
        let probe = raw::CreateQueryDesc(
            plan,
            (*query).sourceText,
            snapshot,
            (*query).crosscheck_snapshot,
            pg_sys::None_Receiver,
            (*query).params,
            (*query).queryEnv,
            0,
        );
        raw::standard_ExecutorStart(probe, 0);
        started(probe);
        raw::standard_ExecutorRun(probe, ScanDirection::ForwardScanDirection, 1, true);
        let found = (*(*probe).estate).es_processed > 0;
        raw::standard_ExecutorFinish(probe);
        finished(probe);
        raw::standard_ExecutorEnd(probe);
        raw::FreeQueryDesc(probe);
        found
    }
}
