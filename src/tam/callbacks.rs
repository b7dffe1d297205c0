//! The callbacks of our copy of heap's routine. Thin: each hands its arguments to hotlock.

use super::{swap, tracked};
use crate::hotlock;
use crate::pg::buffer;
use crate::pg::error::guarded;
use crate::range_occ::capture;
use pgrx::pg_sys::*;
use pgrx::{Internal, pg_extern};
use std::ffi::c_void;

/// The arguments of `tuple_update` (access/tableam.h), so that they travel as one.
#[derive(Clone, Copy)]
pub struct Update {
    pub rel: Relation,
    pub otid: ItemPointer,
    pub slot: *mut TupleTableSlot,
    pub cid: CommandId,
    pub snapshot: Snapshot,
    pub crosscheck: Snapshot,
    pub wait: bool,
    pub failure: *mut TM_FailureData,
    pub lockmode: *mut LockTupleMode::Type,
    pub indexes: *mut TU_UpdateIndexes::Type,
}

/// The arguments of `tuple_lock`.
#[derive(Clone, Copy)]
pub struct Lock {
    pub rel: Relation,
    pub tid: ItemPointer,
    pub snapshot: Snapshot,
    pub slot: *mut TupleTableSlot,
    pub cid: CommandId,
    pub mode: LockTupleMode::Type,
    pub policy: LockWaitPolicy::Type,
    pub flags: uint8,
    pub failure: *mut TM_FailureData,
}

/// The arguments of `tuple_delete`.
#[derive(Clone, Copy)]
pub struct Delete {
    pub rel: Relation,
    pub tid: ItemPointer,
    pub cid: CommandId,
    pub snapshot: Snapshot,
    pub crosscheck: Snapshot,
    pub wait: bool,
    pub failure: *mut TM_FailureData,
    pub changing_part: bool,
}

/// The arguments of `index_fetch_tuple`.
#[derive(Clone, Copy)]
pub struct Fetch {
    pub scan: *mut IndexFetchTableData,
    pub tid: ItemPointer,
    pub snapshot: Snapshot,
    pub slot: *mut TupleTableSlot,
    pub call_again: *mut bool,
    pub all_dead: *mut bool,
}

impl Fetch {
    /// Heap's own fetch.
    ///
    /// # Safety
    /// The arguments are those that the executor gave.
    #[inline]
    pub unsafe fn heap(self) -> bool {
        // SAFETY: heap's routine has every callback.
        unsafe {
            (swap::heap().index_fetch_tuple.unwrap_unchecked())(
                self.scan,
                self.tid,
                self.snapshot,
                self.slot,
                self.call_again,
                self.all_dead,
            )
        }
    }
}

impl Update {
    /// Heap's own update.
    ///
    /// # Safety
    /// The arguments are those that the executor gave, the address perhaps changed to another version of the row.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // SAFETY: heap's routine has every callback.
        unsafe {
            (swap::heap().tuple_update.unwrap_unchecked())(
                self.rel,
                self.otid,
                self.slot,
                self.cid,
                self.snapshot,
                self.crosscheck,
                self.wait,
                self.failure,
                self.lockmode,
                self.indexes,
            )
        }
    }
}

impl Lock {
    /// Heap's own row lock.
    ///
    /// # Safety
    /// As for `Update::heap`.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // SAFETY: heap's routine has every callback.
        unsafe {
            (swap::heap().tuple_lock.unwrap_unchecked())(
                self.rel,
                self.tid,
                self.snapshot,
                self.slot,
                self.cid,
                self.mode,
                self.policy,
                self.flags,
                self.failure,
            )
        }
    }
}

impl Delete {
    /// Heap's own delete.
    ///
    /// # Safety
    /// As for `Update::heap`.
    pub unsafe fn heap(self) -> TM_Result::Type {
        // SAFETY: heap's routine has every callback.
        unsafe {
            (swap::heap().tuple_delete.unwrap_unchecked())(
                self.rel,
                self.tid,
                self.cid,
                self.snapshot,
                self.crosscheck,
                self.wait,
                self.failure,
                self.changing_part,
            )
        }
    }
}

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
    guarded(|| unsafe { hotlock::update::tuple_update(call) })
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

/// A row has been fetched, or none: hotlock looks at those of another's that an index must not have twice.
///
/// # Safety
/// What `index_fetch_tuple` was given and has returned.
#[inline]
pub unsafe fn fetched(call: Fetch, found: bool) {
    if !found {
        return;
    }
    // SAFETY: by the contract; heap's slot.
    unsafe {
        buffer::note_recent(call.slot);
        if (*call.snapshot).snapshot_type == SnapshotType::SNAPSHOT_DIRTY {
            guarded(|| hotlock::conflict::found((*call.scan).rel, call.snapshot, call.slot));
        }
    }
}

/// How a routine fetches the rows of index scans.
pub trait FetchBy {
    /// # Safety
    /// The executor's arguments.
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
struct InFrontOfHeap;

impl FetchBy for InFrontOfHeap {
    unsafe fn fetch(call: Fetch) -> bool {
        // SAFETY: by the contract.
        unsafe {
            let found = call.heap();
            fetched(call, found);
            found
        }
    }
}

unsafe extern "C-unwind" fn index_build_range_scan(
    table: Relation,
    index: Relation,
    info: *mut IndexInfo,
    allow_sync: bool,
    anyvisible: bool,
    progress: bool,
    start: BlockNumber,
    count: BlockNumber,
    callback: IndexBuildCallback,
    state: *mut c_void,
    scan: TableScanDesc,
) -> f64 {
    // SAFETY: PostgreSQL's arguments; heap's routine has every callback.
    unsafe {
        guarded(|| capture::index_build(table));
        swap::with_heap(table, || {
            (swap::heap().index_build_range_scan.unwrap_unchecked())(
                table, index, info, allow_sync, anyvisible, progress, start, count, callback,
                state, scan,
            )
        })
        .unwrap_or_default()
    }
}

unsafe extern "C-unwind" fn index_validate_scan(
    table: Relation,
    index: Relation,
    info: *mut IndexInfo,
    snapshot: Snapshot,
    state: *mut ValidateIndexState,
) {
    // SAFETY: PostgreSQL's arguments; heap's routine has every callback.
    unsafe {
        swap::with_heap(table, || {
            (swap::heap().index_validate_scan.unwrap_unchecked())(
                table, index, info, snapshot, state,
            );
        });
    }
}

/// TOAST tables of `txn_heap` are heap's: heapam_handler.c would say that they are the table's.
unsafe extern "C-unwind" fn relation_toast_am(_: Relation) -> Oid {
    HEAP_TABLE_AM_OID
}

/// The handler function of the access method `txn_heap`: its routine, which PostgreSQL only reads.
#[pg_extern(sql = false)]
fn heap_handler() -> Internal {
    Some(Datum::from(std::ptr::from_ref(swap::txn_heap()))).into()
}

/// What heap's callbacks want that look at `rd_tableam`.
fn build_as_heap(routine: &mut TableAmRoutine) {
    routine.index_build_range_scan = Some(index_build_range_scan);
    routine.index_validate_scan = Some(index_validate_scan);
}

/// Makes our routines. Once, from `_PG_init`.
pub fn init() {
    swap::init(
        |front| {
            front.tuple_update = Some(tuple_update);
            front.tuple_lock = Some(tuple_lock);
            front.tuple_delete = Some(tuple_delete);
            front.index_fetch_tuple = Some(index_fetch_tuple::<InFrontOfHeap>);
            build_as_heap(front);
        },
        |txn_heap| {
            txn_heap.relation_toast_am = Some(relation_toast_am);
            build_as_heap(txn_heap);
            tracked::track(txn_heap);
        },
        tracked::track_in_front,
    );
}
