//! The routines of our table access methods: the copy of heap's that stands in front of heap
//! tables, and that of `txn_heap`.

use super::{heap, txn_heap};
use crate::pg::error::guarded;
use crate::range_occ::capture;
use crate::tam::swap;
use pgrx::pg_sys::*;
use pgrx::{Internal, pg_extern};
use std::ffi::c_void;

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
            front.tuple_update = Some(heap::tuple_update);
            front.tuple_lock = Some(heap::tuple_lock);
            front.tuple_delete = Some(heap::tuple_delete);
            front.index_fetch_tuple = Some(heap::index_fetch_tuple::<heap::InFrontOfHeap>);
            build_as_heap(front);
        },
        |txn_heap| {
            txn_heap.relation_toast_am = Some(relation_toast_am);
            build_as_heap(txn_heap);
            txn_heap::track(txn_heap);
        },
        txn_heap::track_in_front,
    );
}
