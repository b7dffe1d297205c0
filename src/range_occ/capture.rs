//! What a validated transaction reads: scans of tables and indexes become predicates.

use super::key::{self, Table};
use super::scan_key::convert;
use super::session;
use super::value::{self, allocate};
use super::work::Whole;
use super::{existence, parents, patch, reads, redefined, tables};
use crate::hotlock::memory;
use crate::pg::buffer::Page;
use crate::pg::{raw, tuple, xact};
use crate::tam::swap;
use keyrange::{Interval, Operator, ScanKey};
use pgrx::pg_sys::{self, SnapshotType};

/// Whether what is read with that snapshot is read by the transaction: with its own snapshot, or,
/// for ON CONFLICT, to see what others have not committed.
unsafe fn is_tracked(snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: null or a snapshot.
    !snapshot.is_null()
        && matches!(
            unsafe { (*snapshot).snapshot_type },
            SnapshotType::SNAPSHOT_MVCC | SnapshotType::SNAPSHOT_DIRTY
        )
}

/// `index_fetch_begin`: the table becomes known, and its indexes are patched, if the transaction is
/// validated. The keys of the scan to which `fetch` belongs are to be seen next.
///
/// # Safety
/// `fetch` is a new descriptor of index fetches in `rel`, an open table of `txn_heap`.
pub unsafe fn begin_fetch(rel: pg_sys::Relation, fetch: *mut pg_sys::IndexFetchTableData) {
    // SAFETY: the caller's relation is open, and its descriptor is new and of this relation.
    unsafe {
        // nbtree looks for duplicates with a page locked; what it is about is known by then.
        if !session::is_validated()
            || pg_sys::InterruptHoldoffCount > 0
            || tables::touch(rel, pg_sys::AccessShareLock).is_none()
        {
            return;
        }
        parents::note_route(rel); // ON CONFLICT looks before it writes
        if patch::indexes(rel) {
            session::expect(fetch as usize);
        } else {
            read_all(rel, Whole::Unseen);
        }
    }
}

/// `index_build_range_scan`: whether the index can be built may tell of rows that the snapshot does
/// not show.
///
/// # Safety
/// `rel` is open, and locked against writers as long as the index is being built.
pub unsafe fn index_build(rel: pg_sys::Relation) {
    // SAFETY: the caller's relation is open.
    let (oid, is_new) = unsafe { ((*rel).rd_id, (*rel).rd_createSubid != 0) };
    if session::is_validated() && !is_new && u32::from(oid) >= pg_sys::FirstNormalObjectId {
        session::with(|work| {
            work.saw_beyond = true;
            work.see_whole(key::relation_of(oid));
        });
    }
}

/// A row is about to be fetched, or the scan about to end: if its keys have not been seen, they may
/// have been any.
///
/// # Safety
/// `fetch` is a descriptor of the table; `snapshot` is null at the end.
pub unsafe fn check_fetch(fetch: *mut pg_sys::IndexFetchTableData, snapshot: pg_sys::Snapshot) {
    if !session::was_expected(fetch as usize) {
        return;
    }
    // SAFETY: the caller's descriptor is of an open table; the snapshot is null or valid.
    unsafe {
        // Without an MVCC snapshot it is a look for duplicates, whose answer is an error or none.
        let is_probe =
            !snapshot.is_null() && (*snapshot).snapshot_type != SnapshotType::SNAPSHOT_MVCC;
        if !is_probe {
            read_all((*fetch).rel, Whole::Unseen);
        }
    }
}

/// Whether a scan with that snapshot sees all that there is and will be until the transaction ends.
/// DDL that looks at rows has waited for their writers, and takes a new snapshot.
unsafe fn misses_nothing(table: &Table, snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: a snapshot that is tracked.
    let misses_nothing =
        unsafe { session::note_snapshot(snapshot) } && redefined::keeps_writers_out(table.oid);
    if misses_nothing {
        session::with(|work| work.see_whole(table.relation));
    }
    misses_nothing
}

/// `scan_begin`: a scan of the table itself, or one by bitmap, whose indexes are patched.
///
/// # Safety
/// The executor's arguments, a table of `txn_heap`.
pub unsafe fn table_scan(rel: pg_sys::Relation, snapshot: pg_sys::Snapshot, flags: u32) {
    // SAFETY: the executor's relation is open and locked, and its snapshot is null or valid.
    unsafe {
        if !is_tracked(snapshot) || !session::is_validated() {
            return;
        }
        let Some(table) = tables::touch(rel, pg_sys::AccessShareLock) else {
            return;
        };
        if misses_nothing(table, snapshot) {
            return;
        }
        let is = |kind| flags & kind != 0;
        if is(pg_sys::ScanOptions::SO_TYPE_BITMAPSCAN) {
            if !patch::indexes(rel) {
                read_all(rel, Whole::Unseen);
            }
        } else if is(pg_sys::ScanOptions::SO_TYPE_SAMPLESCAN) {
            read_all(rel, Whole::SampleScan);
        } else if is(pg_sys::ScanOptions::SO_TYPE_TIDRANGESCAN) {
            read_all(rel, Whole::TidScan);
        } else if !is(pg_sys::ScanOptions::SO_TYPE_TIDSCAN)
            && !is(pg_sys::ScanOptions::SO_TYPE_ANALYZE)
        {
            read_all(rel, Whole::SequentialScan);
        }
    }
}

/// `tuple_fetch_row_version`, of the version at that address: the row's key was read if there is
/// one. Anything may be elsewhere if there is none, unless the transaction itself has changed it.
///
/// # Safety
/// The executor's arguments, a table of `txn_heap`; `row` is a slot that holds the row, if it was
/// found.
pub unsafe fn row_version(
    rel: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    row: Option<*mut pg_sys::TupleTableSlot>,
    tid: pg_sys::ItemPointer,
) {
    // SAFETY: the executor's relation is open and locked; a slot that is given holds the row found.
    unsafe {
        if !is_tracked(snapshot) || !session::is_validated() {
            return;
        }
        let Some(table) = tables::touch(rel, pg_sys::AccessShareLock) else {
            return;
        };
        if misses_nothing(table, snapshot) {
            return;
        }
        let image = match row {
            _ if table.layout.is_none() => None,
            Some(slot) => Some(table.image_of_slot(slot)),
            None => own_past(table, rel, tuple::pack(&*tid)),
        };
        match image {
            Some(image) => {
                session::with(|work| work.read(table.relation, &[image]));
                reads::note_read();
            }
            None => read_all(rel, Whole::TidScan),
        }
    }
}

/// The key of the version at that address, if this transaction has changed or deleted it: nobody
/// else can have, so that only the transaction itself is told of.
unsafe fn own_past(table: &Table, rel: pg_sys::Relation, packed_tid: u64) -> Option<Interval> {
    // SAFETY: somebody has just looked for a version there, so that the block exists; the tuple
    // stays while its page is pinned.
    unsafe {
        let page = Page::pin(rel, packed_tid);
        page.share();
        let own = page.heap_tuple(rel, packed_tid).filter(|version| {
            tuple::remover(version.t_data)
                .is_some_and(|by| raw::TransactionIdIsCurrentTransactionId(by))
        });
        page.unlock();
        let image = own.map(|mut version| table.image_of_tuple(&raw mut version, (*rel).rd_att));
        page.unpin();
        image
    }
}

/// `tuple_get_latest_tid` has found the version of a row that the scan's snapshot sees, or has left
/// an address of which it sees none. For WHERE CURRENT OF it is fetched next, for `currtid2` it is
/// not.
///
/// # Safety
/// The executor's scan, of a table of `txn_heap`, and an address in it.
pub unsafe fn latest_version(scan: pg_sys::TableScanDesc, tid: pg_sys::ItemPointer) {
    // SAFETY: by the contract; heap's callbacks have been given the same snapshot and address.
    unsafe {
        let (rel, snapshot) = ((*scan).rs_rd, (*scan).rs_snapshot);
        if !is_tracked(snapshot) || !session::is_validated() {
            return;
        }
        let of_heap = &raw const pg_sys::TTSOpsBufferHeapTuple;
        let slot = raw::MakeSingleTupleTableSlot((*rel).rd_att, of_heap);
        let found =
            (swap::heap().tuple_fetch_row_version.unwrap_unchecked())(rel, tid, snapshot, slot);
        row_version(rel, snapshot, found.then_some(slot), tid);
        raw::ExecDropSingleTupleTableSlot(slot);
    }
}

/// `tuple_tid_valid`: there is no such address in the table; there may be.
///
/// # Safety
/// The executor's scan, of a table of `txn_heap`.
pub unsafe fn any_row(scan: pg_sys::TableScanDesc) {
    // SAFETY: the executor's scan has an open relation, and a snapshot that is null or valid.
    unsafe {
        let (rel, snapshot) = ((*scan).rs_rd, (*scan).rs_snapshot);
        if is_tracked(snapshot)
            && session::is_validated()
            && let Some(table) = tables::touch(rel, pg_sys::AccessShareLock)
            && !misses_nothing(table, snapshot)
        {
            read_all(rel, Whole::TidScan);
        }
    }
}

unsafe fn read_all(rel: pg_sys::Relation, whole: Whole) {
    // SAFETY: the relation is open.
    if let Some(table) = session::known(unsafe { (*rel).rd_id }) {
        session::with(|work| work.read_all(table.relation, whole));
        reads::note_read();
    }
}

/// `amrescan` or `amgetbitmap` of an index: the scan's keys are final.
///
/// # Safety
/// `scan` is a scan of the executor, and valid.
pub unsafe fn index_scan(scan: pg_sys::IndexScanDesc) {
    // SAFETY: by the contract; the table is open and locked as long as its index is scanned.
    unsafe {
        if !session::is_validated() {
            return;
        }
        session::was_expected((*scan).xs_heapfetch as usize);
        let index = (*scan).indexRelation;
        let Some(table) = session::known((*(*index).rd_index).indrelid) else {
            return; // not of txn_heap, or of this session alone
        };
        if !is_tracked((*scan).xs_snapshot) {
            return;
        }
        if misses_nothing(table, (*scan).xs_snapshot) {
            return;
        }
        let is_lookup = existence::is_running() && !(*scan).heapRelation.is_null();
        let whole = value::with_scratch(|| {
            let count = (*scan).numberOfKeys.max(0) as usize;
            let given = (*scan).keyData;
            // Most scans have few.
            let mut few = [ScanKey::IsNull(usize::MAX); 4];
            let keys = match few.get_mut(..count) {
                Some(few) => few,
                None => allocate(count, ScanKey::IsNull(usize::MAX)),
            };
            for (n, key) in keys.iter_mut().enumerate() {
                if let Some(converted) = convert(table, index, given.add(n)) {
                    *key = converted;
                }
            }
            note(table, keys, is_lookup)
        });
        if let Some(whole) = whole {
            session::with(|work| work.read_all(table.relation, whole));
        }
        reads::note_read();
    }
}

/// Notes what a scan with these keys reads, or says why that may be anything. `is_lookup`: it asks
/// for existence.
fn note(table: &Table, keys: &[ScanKey], is_lookup: bool) -> Option<Whole> {
    let Some(layout) = &table.layout else {
        return Some(Whole::NoKey);
    };
    let intervals = layout.project(keys);
    if intervals.first().is_some_and(|first| first.low() == 0) && intervals == layout.project(&[]) {
        return Some(Whole::OtherIndex);
    }
    match intervals[..] {
        [key] if is_lookup && can_be_exempt(table, keys) => {
            session::with(|work| work.look_for(table.relation, key));
        }
        _ => session::with(|work| work.read(table.relation, &intervals)),
    }
    None
}

/// Whether a scan with these keys finds one row at most, whose lock stands for the read. Where
/// others may move, they must know of it.
fn can_be_exempt(table: &Table, keys: &[ScanKey]) -> bool {
    let is_given = |n| {
        keys.iter()
            .any(|key| matches!(key, ScanKey::Compare(at, Operator::Equal, _) if *at == n))
    };
    table.is_whole_key
        && keys.len() == table.columns.len()
        && (0..keys.len()).all(is_given)
        && memory().rings.reads.is_none()
}

/// `tuple_lock`: the row whose existence was asked for is locked.
///
/// # Safety
/// An open table of `txn_heap`.
pub unsafe fn locked(rel: pg_sys::Relation) {
    // SAFETY: by the contract; reads backend state.
    unsafe {
        if session::is_validated()
            && existence::is_running()
            && let Some(table) = session::known((*rel).rd_id)
        {
            let nesting = session::nesting(xact::nest_level());
            session::with(|work| work.found(nesting, table.relation));
        }
    }
}
