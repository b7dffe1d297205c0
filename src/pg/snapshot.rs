//! The snapshot of a statement that has not started: letting it go while the statement waits, taking a fresh one after.

use super::raw;
use pgrx::pg_sys;

/// Whether the query's snapshot is the active one, pushed for this statement, and so may be replaced.
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn is_replaceable(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: reads the stack of active snapshots.
    unsafe {
        !(*query).snapshot.is_null()
            && raw::ActiveSnapshotSet()
            && raw::GetActiveSnapshot() == (*query).snapshot
    }
}

/// Lets the snapshot go, so that a long wait does not hold back pruning. An ERROR before `take` is fine: the abort of the
/// (sub)transaction cleans up the stack.
///
/// # Safety
/// `is_replaceable(query)`.
pub unsafe fn let_go(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the query holds one registration and the stack one reference, as CreateQueryDesc and the portal made them.
    unsafe {
        raw::PopActiveSnapshot();
        raw::UnregisterSnapshot((*query).snapshot);
        (*query).snapshot = std::ptr::null_mut();
    }
}

/// Takes a fresh snapshot in place of the one let go.
///
/// # Safety
/// After `let_go(query)`.
pub unsafe fn take(query: *mut pg_sys::QueryDesc) {
    // SAFETY: restores what `let_go` undid: an active snapshot, and the query's registration of it.
    unsafe {
        raw::PushCopiedSnapshot(raw::GetTransactionSnapshot());
        (*query).snapshot = raw::RegisterSnapshot(raw::GetActiveSnapshot());
    }
}

/// Whether the snapshot cannot see what that transaction did.
///
/// # Safety
/// `query` has a snapshot.
pub unsafe fn misses(query: *const pg_sys::QueryDesc, xid: u32) -> bool {
    // SAFETY: an MVCC snapshot and a normal transaction id.
    unsafe { raw::XidInMVCCSnapshot(pg_sys::TransactionId::from(xid), (*query).snapshot) }
}
