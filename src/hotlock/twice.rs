//! The row because of which a unique index refuses another: whether it is still there when the
//! predecessors have ended.

use super::session::SESSION;
use crate::pg::buffer::Page;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{lookup, raw, tuple};
use pgrx::pg_sys::{self, Oid};

/// A version that an index's check for uniqueness has found.
#[derive(Clone, Copy)]
struct Found {
    relation: Oid,
    version: u64,
    command: u32,
}

/// The last one.
static FOUND: Local<OfTransaction<Option<Found>>> = Local::new(OfTransaction::new(None));

/// Takes note of a version that was found with SnapshotDirty.
///
/// # Safety
/// `rel` is open, and `slot` holds a version of it.
#[inline]
pub unsafe fn note(rel: pg_sys::Relation, slot: *const pg_sys::TupleTableSlot) {
    if SESSION.has_followed() {
        // SAFETY: by the contract; reads backend state.
        let found = unsafe {
            Found {
                relation: (*rel).rd_id,
                version: tuple::pack(&(*slot).tts_tid),
                command: raw::GetCurrentCommandId(false),
            }
        };
        FOUND.set(Some(found));
    }
}

/// The transaction has ended.
#[inline]
pub fn forget() {
    FOUND.clear();
}

/// Whether the row that an index has found twice is still there.
pub fn is_there_still() -> bool {
    // SAFETY: reads backend state.
    let command = unsafe { raw::GetCurrentCommandId(false) };
    let Some(found) = FOUND.get().filter(|found| found.command == command) else {
        return false;
    };
    // SAFETY: the statement has locked the table.
    unsafe {
        let rel = raw::RelationIdGetRelation(found.relation);
        if rel.is_null() {
            return false;
        }
        let is_live = is_live(rel, found.version, true);
        raw::RelationClose(rel);
        is_live
    }
}

/// Whether a version is there for whoever looks now, or was until this transaction has changed it;
/// or, with `or_newer`, one that came after it with the same keys.
///
/// # Safety
/// `rel` is open and locked.
pub unsafe fn is_live(rel: pg_sys::Relation, version: u64, or_newer: bool) -> bool {
    // SAFETY: by the contract; the page is pinned and locked meanwhile.
    unsafe {
        if lookup::is_temporary((*rel).rd_id) {
            return true;
        }
        let now = &raw mut pg_sys::SnapshotSelfData;
        let page = Page::pin(rel, version);
        page.share();
        let is_live = page.heap_tuple(rel, version).is_some_and(|mut found| {
            raw::HeapTupleSatisfiesVisibility(&raw mut found, now, page.buffer)
                || is_ours(found.t_data)
                || or_newer && {
                    let mut tid = tuple::unpack(version);
                    raw::heap_hot_search_buffer(
                        &raw mut tid,
                        rel,
                        page.buffer,
                        now,
                        &raw mut found,
                        std::ptr::null_mut(),
                        false,
                    )
                }
        });
        page.release();
        is_live
    }
}

/// Whether this transaction has updated or deleted the version.
///
/// # Safety
/// A version on a page that is locked.
unsafe fn is_ours(version: pg_sys::HeapTupleHeader) -> bool {
    // SAFETY: by the contract; reads backend state.
    unsafe {
        tuple::remover(version).is_some_and(|xid| raw::TransactionIdIsCurrentTransactionId(xid))
    }
}
