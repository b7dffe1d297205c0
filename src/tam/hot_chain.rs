//! An index scan's fetch that goes on in the middle of a HOT chain.
//!
//! Heap looks for the version that a snapshot sees from the chain's root on (heapam.c:
//! heap_hot_search_buffer). The chain of a hot row has as many versions as there were updates since
//! the oldest snapshot was taken: a transaction that waits in a function keeps one.
//!
//! What makes it right to begin later: of a chain a snapshot sees one version at most. Where it
//! knows the writer of a version as committed, it knows the earlier versions as deleted.

use super::call::Fetch;
use crate::pg::buffer::Page;
use crate::pg::{raw, tuple};
use pgrx::pg_sys::*;
use std::ptr;

/// Whether a fetch begins a chain, and nobody has to know of the versions that are passed over, as
/// SSI does.
///
/// # Safety
/// The executor's arguments.
#[inline]
pub unsafe fn may_go_on(call: &Fetch) -> bool {
    // SAFETY: by the contract; reads backend state.
    unsafe {
        !*call.call_again
            && (*call.snapshot).snapshot_type == SnapshotType::SNAPSHOT_MVCC
            && XactIsoLevel != XACT_SERIALIZABLE as i32
    }
}

/// Fetches the row from `version` on, in the chain whose root `call` has. Whether it was found.
/// None if the fetch has to begin at the root: that version is gone, or the chain may be dead to
/// all, which heap tells the index.
///
/// # Safety
/// The executor's arguments; `may_go_on(call)`. The transaction `xid` had written `version` into
/// that chain, in the file that the table has, and the snapshot shows that it has committed.
pub unsafe fn go_on(call: Fetch, version: u64, xid: TransactionId) -> Option<bool> {
    // SAFETY: the scan is heap's or begins as heap's does, and the slot is one for heap's rows. The
    // scan keeps the page pinned.
    unsafe {
        let scan = call.scan.cast::<IndexFetchHeapData>();
        let rel = (*scan).xs_base.rel;
        let page = turn_to(scan, tuple::block_of(version));
        page.share();
        let found = page
            .heap_tuple(rel, version)
            .filter(|at| tuple::is_heap_only(at.t_data) && tuple::raw_xmin(at.t_data) == xid)
            .and_then(|at| look(&call, rel, page, at));
        page.unlock();
        if found == Some(true) {
            let stored = tupdata(&call);
            *call.tid = (*stored).t_self;
            (*call.slot).tts_tableOid = (*rel).rd_id;
            raw::ExecStoreBufferHeapTuple(stored, call.slot, page.buffer);
        }
        if found.is_some() && !call.all_dead.is_null() {
            *call.all_dead = false;
        }
        found
    }
}

/// Pins the page as heap does, and prunes it; heapam_handler.c: heapam_index_fetch_tuple.
unsafe fn turn_to(scan: *mut IndexFetchHeapData, block: BlockNumber) -> Page {
    // SAFETY: the scan's table is open, and what it has pinned is its own.
    unsafe {
        let (rel, before) = ((*scan).xs_base.rel, (*scan).xs_cbuf);
        let buffer = raw::ReleaseAndReadBuffer(before, rel, block);
        (*scan).xs_cbuf = buffer;
        if buffer != before {
            raw::heap_page_prune_opt(rel, buffer);
        }
        Page { buffer }
    }
}

/// Looks at one version, and at those that come after it. What is seen stands in the slot's tuple.
/// None if the last one is dead to all.
unsafe fn look(call: &Fetch, rel: Relation, page: Page, first: HeapTupleData) -> Option<bool> {
    // SAFETY: the page is pinned and locked, and `first` is on it.
    unsafe {
        let stored = tupdata(call);
        *stored = first;
        if raw::HeapTupleSatisfiesVisibility(stored, call.snapshot, page.buffer) {
            return Some(true);
        }
        let mut tid = first.t_self;
        let found = raw::heap_hot_search_buffer(
            &raw mut tid,
            rel,
            page.buffer,
            call.snapshot,
            stored,
            ptr::null_mut(),
            false,
        );
        if found {
            (*stored).t_self = tid;
        } else if raw::HeapTupleIsSurelyDead(stored, raw::GlobalVisTestFor(rel)) {
            return None;
        }
        Some(found)
    }
}

/// Where heap's slot keeps a tuple of a page.
unsafe fn tupdata(call: &Fetch) -> HeapTuple {
    // SAFETY: the executor's slot is one for heap's rows.
    unsafe { &raw mut (*call.slot.cast::<BufferHeapTupleTableSlot>()).base.tupdata }
}

/// The version that a fetch has found, and its writer, if a later one may begin with it: it is not
/// the chain's root, and its writer has committed.
///
/// # Safety
/// `call`'s slot holds the version.
pub unsafe fn seen(call: &Fetch) -> Option<(u64, TransactionId)> {
    // SAFETY: by the contract; its page is pinned.
    unsafe {
        let header = (*tupdata(call)).t_data;
        let xid = tuple::raw_xmin(header);
        let may_begin = tuple::is_heap_only(header)
            && !tuple::is_frozen(header)
            && !raw::TransactionIdIsCurrentTransactionId(xid);
        may_begin.then(|| (tuple::pack(&*call.tid), xid))
    }
}
