//! What a transaction writes.

use super::{key::Table, parents, session, tables};
use crate::pg::buffer::Page;
use crate::pg::xact;
use keyrange::Interval;
use pgrx::pg_sys;

fn note(table: &Table, key: Interval) {
    let nesting = session::nesting(xact::nest_level());
    session::with(|work| {
        if table.layout.is_some() {
            work.writes
                .write(nesting, table.relation, &table.ranges(), key);
        } else {
            work.writes.write_all(nesting, table.relation);
        }
    });
}

/// Before anything is written to the table: it becomes known, or 40001 and others as
/// `tables::touch` has it.
///
/// # Safety
/// `rel` is open and locked, of `txn_heap`; nothing with a destructor is alive in the callers.
pub unsafe fn before(rel: pg_sys::Relation) {
    // SAFETY: the caller's relation is open and locked, and of `txn_heap`.
    unsafe {
        if tables::touch(rel, pg_sys::RowExclusiveLock).is_some() && session::is_validated() {
            parents::note_route(rel);
        }
    }
}

/// The row in the slot was inserted, or an update left it so without a change of its key.
///
/// # Safety
/// After `before`; the slot holds a row of the table.
pub unsafe fn row(rel: pg_sys::Relation, slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: the caller's relation is open, and its slot holds a row of it.
    unsafe {
        if let Some(table) = session::known((*rel).rd_id) {
            note(table, table.image_of_slot(slot));
        }
    }
}

/// The version at that address is about to be deleted, or was updated with a change of its key.
///
/// # Safety
/// After `before`; the version is visible to the transaction, or was until now.
pub unsafe fn version(rel: pg_sys::Relation, packed_tid: u64) {
    // SAFETY: by the contract; a version that somebody can still come to stays where it is while
    // its page is pinned.
    unsafe {
        let Some(table) = session::known((*rel).rd_id) else {
            return;
        };
        let page = Page::pin(rel, packed_tid);
        page.share();
        let tuple = page.heap_tuple(rel, packed_tid);
        page.unlock();
        let image = match tuple {
            Some(mut tuple) => table.image_of_tuple(&raw mut tuple, (*rel).rd_att),
            None => Interval::ALL,
        };
        page.unpin();
        note(table, image);
    }
}
