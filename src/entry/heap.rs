//! The callbacks of our copy of heap's routine. Thin: each hands its arguments to hotlock.

use crate::hotlock::{self, latest};
use crate::pg::buffer;
use crate::pg::error::guarded;
use crate::tam::call::{Delete, Fetch, Lock, Update};
use pgrx::pg_sys::*;

/// Hotlock's.
///
/// # Safety
/// PostgreSQL's arguments.
pub unsafe extern "C-unwind" fn tuple_update(
    rel: Relation,
    otid: ItemPointer,
    slot: *mut TupleTableSlot,
    cid: CommandId,
    snapshot: Snapshot,
    crosscheck: Snapshot,
    wait: bool,
    failure: *mut TM_FailureData,
    lockmode: *mut LockTupleMode::Type,
    indexes: *mut TU_UpdateIndexes::Type,
) -> TM_Result::Type {
    let call = Update {
        rel,
        otid,
        slot,
        cid,
        snapshot,
        crosscheck,
        wait,
        failure,
        lockmode,
        indexes,
    };
    // SAFETY: the executor's arguments.
    guarded(|| unsafe { hotlock::recheck::tuple_update(call) })
}

/// Hotlock's.
///
/// # Safety
/// PostgreSQL's arguments.
pub unsafe extern "C-unwind" fn tuple_lock(
    rel: Relation,
    tid: ItemPointer,
    snapshot: Snapshot,
    slot: *mut TupleTableSlot,
    cid: CommandId,
    mode: LockTupleMode::Type,
    policy: LockWaitPolicy::Type,
    flags: uint8,
    failure: *mut TM_FailureData,
) -> TM_Result::Type {
    let call = Lock {
        rel,
        tid,
        snapshot,
        slot,
        cid,
        mode,
        policy,
        flags,
        failure,
    };
    // SAFETY: the executor's arguments.
    guarded(|| unsafe { hotlock::lock::tuple_lock(call) })
}

/// Hotlock's.
///
/// # Safety
/// PostgreSQL's arguments.
pub unsafe extern "C-unwind" fn tuple_delete(
    rel: Relation,
    tid: ItemPointer,
    cid: CommandId,
    snapshot: Snapshot,
    crosscheck: Snapshot,
    wait: bool,
    failure: *mut TM_FailureData,
    changing_part: bool,
) -> TM_Result::Type {
    let call = Delete {
        rel,
        tid,
        cid,
        snapshot,
        crosscheck,
        wait,
        failure,
        changing_part,
    };
    // SAFETY: the executor's arguments.
    guarded(|| unsafe { hotlock::lock::tuple_delete(call) })
}

/// A row has been fetched, or none: hotlock looks at those of another's that an index must not have
/// twice. And it may turn to the row's last version (`around_lock`: see `latest::turn_to`).
///
/// # Safety
/// What `index_fetch_tuple` was given and has returned.
#[inline]
pub unsafe fn fetched(
    call: Fetch,
    found: bool,
    around_lock: impl FnOnce(u64, LockTupleMode::Type, &mut dyn FnMut() -> bool),
) {
    if !found {
        return;
    }
    // SAFETY: by the contract; heap's slot.
    unsafe {
        if latest::is_expected() {
            guarded(|| latest::turn_to(call, around_lock));
        }
        buffer::note_recent(call.slot);
        if (*call.snapshot).snapshot_type == SnapshotType::SNAPSHOT_DIRTY {
            guarded(|| hotlock::conflict::found((*call.scan).rel, call.snapshot, call.slot));
        }
    }
}

/// How a routine fetches the rows of index scans.
pub trait FetchBy {
    /// # Safety
    /// `call` has the executor's arguments, which are valid until this returns.
    unsafe fn fetch(call: Fetch) -> bool;
}

/// `index_fetch_tuple` of a routine.
pub unsafe extern "C-unwind" fn index_fetch_tuple<By: FetchBy>(
    scan: *mut IndexFetchTableData,
    tid: ItemPointer,
    snapshot: Snapshot,
    slot: *mut TupleTableSlot,
    call_again: *mut bool,
    all_dead: *mut bool,
) -> bool {
    // SAFETY: the executor's arguments.
    unsafe {
        By::fetch(Fetch {
            scan,
            tid,
            snapshot,
            slot,
            call_again,
            all_dead,
        })
    }
}

/// What stands in front of a heap table.
pub struct InFrontOfHeap;

impl FetchBy for InFrontOfHeap {
    #[inline]
    unsafe fn fetch(call: Fetch) -> bool {
        // SAFETY: the caller's call has tableam's arguments, which are valid until it returns.
        unsafe {
            let found = hotlock::found::fetch(call);
            fetched(call, found, |_, _, lock| {
                lock();
            });
            found
        }
    }
}
