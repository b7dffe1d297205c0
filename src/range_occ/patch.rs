//! Getting in front of the indexes of a table: each relcache entry of an index has its own copy of
//! the access method's routine (`rd_indam`), in which `amrescan` and `amgetbitmap` are replaced by
//! ours. They stay replaced as long as the entry lives, and do nothing outside of validated
//! transactions.

use super::key;
use crate::pg::error::guarded;
use crate::pg::local::Local;
use crate::pg::per_table::PerTable;
use crate::pg::{nodes, raw};
use pgrx::pg_sys::{self, IndexScanDesc, Oid, ScanKey, TIDBitmap};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::OnceLock;

/// Index access methods that can be told apart.
const METHODS: usize = 32;

/// An index access method's own functions.
#[derive(Clone, Copy)]
struct Original {
    method: Oid,
    rescan: pg_sys::amrescan_function,
    bitmap: pg_sys::amgetbitmap_function,
}

/// What is to be done when the keys of a scan have become known.
pub type Seen = unsafe fn(IndexScanDesc);

static SEEN: OnceLock<Seen> = OnceLock::new();

/// Says what. Once, from `_PG_init`.
pub fn init(seen: Seen) {
    let _ = SEEN.set(seen);
}

/// # Safety
/// An index scan of the executor, with its keys.
unsafe fn seen(scan: IndexScanDesc) {
    match SEEN.get() {
        // SAFETY: the caller's scan is the executor's, and has its keys.
        Some(seen) => unsafe { seen(scan) },
        None => std::process::abort(),
    }
}

struct Originals([Cell<Option<Original>>; METHODS]);
static ORIGINALS: Local<Originals> = Local::new(Originals([const { Cell::new(None) }; METHODS]));

/// As of which invalidation the indexes of a table were patched.
static PATCHED: PerTable<u64, 256> = PerTable::new();

/// See `super::forget`.
pub fn forget(relation: Oid) {
    PATCHED.forget(relation);
}

fn original(method: Oid) -> Option<Original> {
    let mut all = ORIGINALS.0.iter().map_while(Cell::get);
    all.find(|original| original.method == method)
}

/// Patches all indexes of an open table. False if one of them cannot be.
///
/// # Safety
/// `rel` is open and locked; nothing with a destructor is alive in the callers.
pub unsafe fn indexes(rel: pg_sys::Relation) -> bool {
    // SAFETY: the caller's relation is open and locked, so its indexes stay.
    unsafe {
        let oid = (*rel).rd_id;
        let before = key::invalidations();
        if PATCHED.get(oid, || u64::MAX) == before {
            return true;
        }
        let mut all = true;
        let list = raw::RelationGetIndexList(rel);
        for oid in nodes::oids(list) {
            let index = raw::RelationIdGetRelation(oid);
            if !index.is_null() {
                all &= patch(index);
                raw::RelationClose(index);
            }
        }
        raw::list_free(list);
        // An entry that is built anew comes with an invalidation.
        if all && key::invalidations() == before {
            PATCHED.forget(oid);
            PATCHED.get(oid, || before);
        }
        all
    }
}

/// # Safety
/// `index` is open.
unsafe fn patch(index: pg_sys::Relation) -> bool {
    // SAFETY: rd_indam is this entry's own copy, in its own memory.
    unsafe {
        let routine = (*index).rd_indam;
        let method = (*(*index).rd_rel).relam;
        if routine.is_null() {
            return false;
        }
        let ours: pg_sys::amrescan_function = Some(rescan);
        if let (Some(now), Some(ours)) = ((*routine).amrescan, ours)
            && std::ptr::fn_addr_eq(now, ours)
        {
            return true;
        }
        if original(method).is_none() {
            let Some(place) = ORIGINALS.0.iter().find(|place| place.get().is_none()) else {
                return false;
            };
            place.set(Some(Original {
                method,
                rescan: (*routine).amrescan,
                bitmap: (*routine).amgetbitmap,
            }));
        }
        (*routine).amrescan = ours;
        if (*routine).amgetbitmap.is_some() {
            (*routine).amgetbitmap = Some(get_bitmap);
        }
        true
    }
}

/// The access method's own functions behind a patched index.
unsafe fn behind(scan: IndexScanDesc) -> Original {
    // SAFETY: the executor's scan, of an open index; `patch` has noted the method.
    match unsafe { original((*(*(*scan).indexRelation).rd_rel).relam) } {
        Some(original) => original,
        None => std::process::abort(),
    }
}

unsafe extern "C-unwind" fn rescan(
    scan: IndexScanDesc,
    keys: ScanKey,
    count: c_int,
    order_bys: ScanKey,
    order_by_count: c_int,
) {
    // SAFETY: the executor's arguments.
    unsafe {
        if let Some(own) = behind(scan).rescan {
            own(scan, keys, count, order_bys, order_by_count);
        }
        // Bitmap scans have no table here; see `get_bitmap`.
        if !(*scan).heapRelation.is_null() {
            guarded(|| seen(scan));
        }
    }
}

unsafe extern "C-unwind" fn get_bitmap(scan: IndexScanDesc, bitmap: *mut TIDBitmap) -> i64 {
    // SAFETY: the executor's arguments.
    unsafe {
        guarded(|| seen(scan));
        match behind(scan).bitmap {
            Some(own) => own(scan, bitmap),
            None => 0,
        }
    }
}
