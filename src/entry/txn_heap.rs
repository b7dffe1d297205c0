//! The callbacks of `txn_heap` by which range OCC learns what is read and written. Each does what
//! the next one does, heap's or hotlock's, and tells `range_occ`.

use super::heap::{self, FetchBy, index_fetch_tuple};
use crate::hotlock::found;
use crate::lane::respect;
use crate::pg::error::guarded;
use crate::pg::{tuple, xact};
use crate::range_occ::{capture, session, write};
use crate::tam::call::Fetch;
use crate::tam::{fetch as rows, prune, swap};
use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int};

unsafe extern "C-unwind" fn scan_begin(
    rel: Relation,
    snapshot: Snapshot,
    nkeys: c_int,
    key: *mut ScanKeyData,
    parallel: ParallelTableScanDesc,
    flags: uint32,
) -> TableScanDesc {
    // SAFETY: PostgreSQL's arguments; heap's routine has every callback.
    unsafe {
        guarded(|| capture::table_scan(rel, snapshot, flags));
        (swap::heap().scan_begin.unwrap_unchecked())(rel, snapshot, nkeys, key, parallel, flags)
    }
}

unsafe extern "C-unwind" fn index_fetch_begin(rel: Relation) -> *mut IndexFetchTableData {
    // SAFETY: tableam passes an open relation.
    unsafe {
        let fetch = rows::begin(rel);
        guarded(|| capture::begin_fetch(rel, fetch));
        fetch
    }
}

/// A row is about to be fetched, or the scan about to end, with a null snapshot.
#[inline]
unsafe fn check_fetch(fetch: *mut IndexFetchTableData, snapshot: Snapshot) {
    if session::is_expecting() {
        // SAFETY: the caller's descriptor is one of an index scan; the snapshot is null or valid.
        guarded(|| unsafe { capture::check_fetch(fetch, snapshot) });
    }
}

unsafe extern "C-unwind" fn index_fetch_end(fetch: *mut IndexFetchTableData) {
    // SAFETY: tableam passes a descriptor of an index scan, and does not use it again.
    unsafe {
        check_fetch(fetch, std::ptr::null_mut());
        rows::end(fetch);
    }
}

unsafe extern "C-unwind" fn index_fetch_reset(fetch: *mut IndexFetchTableData) {
    // SAFETY: tableam passes a descriptor of an index scan.
    unsafe { rows::reset(fetch) }
}

/// Of `txn_heap`.
struct Tracked;

impl FetchBy for Tracked {
    #[inline]
    unsafe fn fetch(call: Fetch) -> bool {
        // SAFETY: the caller's call has tableam's arguments, which are valid until it returns.
        unsafe {
            if session::is_expecting() {
                return index_fetch_first_tuple(call);
            }
            rows::tuple(call, |call| call.heap())
        }
    }
}

/// Apart, so that the usual way, which is gone for every row, is short.
#[cold]
#[inline(never)]
unsafe fn index_fetch_first_tuple(call: Fetch) -> bool {
    // SAFETY: the caller's call has tableam's arguments, which are valid until it returns.
    unsafe {
        check_fetch(call.scan, call.snapshot);
        rows::tuple(call, |call| call.heap())
    }
}

/// Of what stands in front of `txn_heap`.
struct TrackedInFront;

impl FetchBy for TrackedInFront {
    unsafe fn fetch(call: Fetch) -> bool {
        // SAFETY: the caller's call has tableam's arguments, which are valid until it returns.
        unsafe {
            check_fetch(call.scan, call.snapshot);
            let found = rows::tuple(call, |call| found::fetch(call));
            heap::fetched(call, found, |version, mode, lock| {
                let wait = LockWaitPolicy::LockWaitBlock;
                respect::before_lock((*call.scan).rel, version, mode, wait);
                respect::trying(lock);
            });
            found
        }
    }
}

unsafe extern "C-unwind" fn tuple_tid_valid(scan: TableScanDesc, tid: ItemPointer) -> bool {
    // SAFETY: tableam passes a scan of an open relation; heap's routine has every callback.
    unsafe {
        let valid = (swap::heap().tuple_tid_valid.unwrap_unchecked())(scan, tid);
        if !valid {
            guarded(|| capture::any_row(scan));
        }
        valid
    }
}

unsafe extern "C-unwind" fn tuple_get_latest_tid(scan: TableScanDesc, tid: ItemPointer) {
    // SAFETY: tableam passes a scan of an open relation; heap's routine has every callback.
    unsafe {
        (swap::heap().tuple_get_latest_tid.unwrap_unchecked())(scan, tid);
        guarded(|| capture::latest_version(scan, tid));
    }
}

unsafe extern "C-unwind" fn relation_set_new_filelocator(
    rel: Relation,
    locator: *const RelFileLocator,
    persistence: c_char,
    freeze_xid: *mut TransactionId,
    min_multi: *mut MultiXactId,
) {
    // SAFETY: tableam passes an open relation; heap's routine has every callback.
    unsafe {
        (swap::heap().relation_set_new_filelocator.unwrap_unchecked())(
            rel,
            locator,
            persistence,
            freeze_xid,
            min_multi,
        );
    }
    guarded(|| session::note_truncated(rel));
}

unsafe extern "C-unwind" fn relation_nontransactional_truncate(rel: Relation) {
    // SAFETY: tableam passes an open relation; heap's routine has every callback.
    unsafe {
        (swap::heap()
            .relation_nontransactional_truncate
            .unwrap_unchecked())(rel)
    };
    guarded(|| session::note_truncated(rel));
}

unsafe extern "C-unwind" fn tuple_fetch_row_version(
    rel: Relation,
    tid: ItemPointer,
    snapshot: Snapshot,
    slot: *mut TupleTableSlot,
) -> bool {
    // SAFETY: tableam passes an open relation and a valid slot; heap's routine has every callback.
    unsafe {
        let found =
            (swap::heap().tuple_fetch_row_version.unwrap_unchecked())(rel, tid, snapshot, slot);
        let row = found.then_some(slot);
        guarded(|| capture::row_version(rel, snapshot, row, tid));
        found
    }
}

/// What a row lock or a write was told. All but these two tell of somebody else, who has changed
/// the row or is about to: a savepoint, SKIP LOCKED or an error that is caught let the transaction
/// live with that.
fn note_answer(answer: TM_Result::Type) {
    if answer == TM_Result::TM_Ok {
        respect::written();
    }
    if !matches!(answer, TM_Result::TM_Ok | TM_Result::TM_SelfModified) {
        guarded(session::told_of_others);
        let is_changed = matches!(answer, TM_Result::TM_Updated | TM_Result::TM_Deleted);
        if is_changed && !xact::is_read_committed() {
            respect::refused();
        }
    }
}

/// A row lock by `lock`: heap's or hotlock's.
unsafe fn locked(
    rel: Relation,
    tid: ItemPointer,
    mode: LockTupleMode::Type,
    policy: LockWaitPolicy::Type,
    lock: impl FnOnce() -> TM_Result::Type,
) -> TM_Result::Type {
    // SAFETY: the caller's relation is open and locked, and `tid` is of a version that it sees.
    let may_lock = guarded(|| unsafe {
        let packed = tuple::pack(&*tid);
        respect::before_lock(rel, packed, mode, policy)
    });
    let result = if may_lock {
        respect::asking(lock)
    } else {
        TM_Result::TM_WouldBlock
    };
    note_answer(result);
    if result == TM_Result::TM_Ok {
        // SAFETY: the caller's relation is open and locked.
        guarded(|| unsafe { capture::locked(rel) });
    }
    result
}

unsafe extern "C-unwind" fn tuple_lock(
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
    // SAFETY: tableam passes an open relation and a valid slot; heap's routine has every callback.
    unsafe {
        locked(rel, tid, mode, policy, || {
            (swap::heap().tuple_lock.unwrap_unchecked())(
                rel, tid, snapshot, slot, cid, mode, policy, flags, failure,
            )
        })
    }
}

unsafe extern "C-unwind" fn tuple_lock_in_front(
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
    // SAFETY: tableam passes an open relation and a valid slot.
    unsafe {
        locked(rel, tid, mode, policy, || {
            heap::tuple_lock(rel, tid, snapshot, slot, cid, mode, policy, flags, failure)
        })
    }
}

/// Before the row in the slot is written.
///
/// # Safety
/// As for `write::before` and `respect::before_row`.
unsafe fn before_row(rel: Relation, slot: *mut TupleTableSlot) {
    // SAFETY: the caller's relation is open and locked, and its slot holds the row to write.
    unsafe {
        write::before(rel);
        respect::before_row(rel, slot);
    }
}

unsafe extern "C-unwind" fn tuple_insert(
    rel: Relation,
    slot: *mut TupleTableSlot,
    cid: CommandId,
    options: c_int,
    bulk: *mut BulkInsertStateData,
) {
    // SAFETY: tableam passes an open relation and a slot with the row; heap's routine has every
    // callback.
    unsafe {
        guarded(|| before_row(rel, slot));
        (swap::heap().tuple_insert.unwrap_unchecked())(rel, slot, cid, options, bulk);
        guarded(|| write::row(rel, slot));
    }
}

unsafe extern "C-unwind" fn tuple_insert_speculative(
    rel: Relation,
    slot: *mut TupleTableSlot,
    cid: CommandId,
    options: c_int,
    bulk: *mut BulkInsertStateData,
    token: uint32,
) {
    // SAFETY: tableam passes an open relation and a slot with the row; heap's routine has every
    // callback.
    unsafe {
        guarded(|| before_row(rel, slot));
        (swap::heap().tuple_insert_speculative.unwrap_unchecked())(
            rel, slot, cid, options, bulk, token,
        );
        guarded(|| write::row(rel, slot));
    }
}

unsafe extern "C-unwind" fn multi_insert(
    rel: Relation,
    slots: *mut *mut TupleTableSlot,
    count: c_int,
    cid: CommandId,
    options: c_int,
    bulk: *mut BulkInsertStateData,
) {
    // SAFETY: tableam passes an open relation and `count` slots with rows; heap's routine has every
    // callback.
    unsafe {
        guarded(|| {
            write::before(rel);
            (0..count.max(0) as usize).for_each(|n| respect::before_row(rel, *slots.add(n)));
        });
        (swap::heap().multi_insert.unwrap_unchecked())(rel, slots, count, cid, options, bulk);
        guarded(|| (0..count.max(0) as usize).for_each(|n| write::row(rel, *slots.add(n))));
    }
}

/// An update by `update`: heap's or hotlock's.
unsafe fn updated(
    rel: Relation,
    otid: ItemPointer,
    slot: *mut TupleTableSlot,
    lockmode: *mut LockTupleMode::Type,
    update: impl FnOnce() -> TM_Result::Type,
) -> TM_Result::Type {
    // SAFETY: the caller passes tableam's arguments: an open relation and a slot with the new row.
    unsafe {
        guarded(|| {
            before_row(rel, slot);
            respect::before_change(rel, tuple::pack(&*otid));
        });
        let result = respect::asking(update);
        note_answer(result);
        if result == TM_Result::TM_Ok {
            prune::updated((*rel).rd_id, &*otid, slot);
            guarded(|| {
                write::row(rel, slot);
                // The mode says whether columns of unique indexes have changed (heapam.c:
                // HeapDetermineColumnsInfo).
                if *lockmode == LockTupleMode::LockTupleExclusive {
                    write::version(rel, tuple::pack(&*otid));
                }
            });
        }
        result
    }
}

unsafe extern "C-unwind" fn tuple_update(
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
    // SAFETY: tableam passes an open relation and a slot with the row; heap's routine has every
    // callback.
    unsafe {
        updated(rel, otid, slot, lockmode, || {
            (swap::heap().tuple_update.unwrap_unchecked())(
                rel, otid, slot, cid, snapshot, crosscheck, wait, failure, lockmode, indexes,
            )
        })
    }
}

unsafe extern "C-unwind" fn tuple_update_in_front(
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
    // SAFETY: tableam passes an open relation and a slot with the row.
    unsafe {
        updated(rel, otid, slot, lockmode, || {
            heap::tuple_update(
                rel, otid, slot, cid, snapshot, crosscheck, wait, failure, lockmode, indexes,
            )
        })
    }
}

/// A delete by `delete`: heap's or hotlock's.
unsafe fn deleted(
    rel: Relation,
    tid: ItemPointer,
    delete: impl FnOnce() -> TM_Result::Type,
) -> TM_Result::Type {
    // SAFETY: the caller passes tableam's arguments: an open relation and a version to delete.
    unsafe {
        guarded(|| {
            write::before(rel);
            respect::before_delete(rel, tuple::pack(&*tid));
        });
        let result = respect::asking(delete);
        note_answer(result);
        if result == TM_Result::TM_Ok {
            guarded(|| write::version(rel, tuple::pack(&*tid)));
        }
        result
    }
}

unsafe extern "C-unwind" fn tuple_delete(
    rel: Relation,
    tid: ItemPointer,
    cid: CommandId,
    snapshot: Snapshot,
    crosscheck: Snapshot,
    wait: bool,
    failure: *mut TM_FailureData,
    changing_part: bool,
) -> TM_Result::Type {
    // SAFETY: tableam passes an open relation and a version; heap's routine has every callback.
    unsafe {
        deleted(rel, tid, || {
            (swap::heap().tuple_delete.unwrap_unchecked())(
                rel,
                tid,
                cid,
                snapshot,
                crosscheck,
                wait,
                failure,
                changing_part,
            )
        })
    }
}

unsafe extern "C-unwind" fn tuple_delete_in_front(
    rel: Relation,
    tid: ItemPointer,
    cid: CommandId,
    snapshot: Snapshot,
    crosscheck: Snapshot,
    wait: bool,
    failure: *mut TM_FailureData,
    changing_part: bool,
) -> TM_Result::Type {
    // SAFETY: tableam passes an open relation and a version.
    unsafe {
        deleted(rel, tid, || {
            heap::tuple_delete(
                rel,
                tid,
                cid,
                snapshot,
                crosscheck,
                wait,
                failure,
                changing_part,
            )
        })
    }
}

/// The callbacks of the access method's own routine.
pub fn track(routine: &mut TableAmRoutine) {
    routine.scan_begin = Some(scan_begin);
    routine.index_fetch_begin = Some(index_fetch_begin);
    routine.index_fetch_reset = Some(index_fetch_reset);
    routine.index_fetch_end = Some(index_fetch_end);
    routine.index_fetch_tuple = Some(index_fetch_tuple::<Tracked>);
    routine.relation_set_new_filelocator = Some(relation_set_new_filelocator);
    routine.relation_nontransactional_truncate = Some(relation_nontransactional_truncate);
    routine.tuple_tid_valid = Some(tuple_tid_valid);
    routine.tuple_get_latest_tid = Some(tuple_get_latest_tid);
    routine.tuple_fetch_row_version = Some(tuple_fetch_row_version);
    routine.tuple_insert = Some(tuple_insert);
    routine.tuple_insert_speculative = Some(tuple_insert_speculative);
    routine.multi_insert = Some(multi_insert);
    routine.tuple_update = Some(tuple_update);
    routine.tuple_delete = Some(tuple_delete);
    routine.tuple_lock = Some(tuple_lock);
}

/// Those that hotlock replaces in front of the access method's routine.
pub fn track_in_front(routine: &mut TableAmRoutine) {
    routine.index_fetch_tuple = Some(index_fetch_tuple::<TrackedInFront>);
    routine.tuple_update = Some(tuple_update_in_front);
    routine.tuple_delete = Some(tuple_delete_in_front);
    routine.tuple_lock = Some(tuple_lock_in_front);
}
