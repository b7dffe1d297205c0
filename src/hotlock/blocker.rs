//! Waiting for a row lock in heap's way: the wait is declared in the waits-for graph first, and a
//! cycle is refused. A wait that is missed here, because the row has looked free, is one in the
//! lock manager, whose deadlock detector finds the cycle later.

use super::deadlock;
use super::order;
use super::row_locker::{self, RowLocker};
use super::session::{SESSION, memory};
use super::ticket;
use crate::pg::{process, xact};
use pgrx::pg_sys::{self, LockTupleMode};

/// Declares a wait for whoever has that version locked, to lock it as well.
///
/// # Safety
/// The version is one that a scan of `rel` has found.
pub unsafe fn wait_for_lockers(rel: pg_sys::Relation, version: u64, mode: LockTupleMode::Type) {
    // SAFETY: the caller's relation is open, as a scan of it has found the version.
    unsafe {
        if row_locker::is_free_at_a_glance(rel, version) {
            return;
        }
        if let RowLocker::Other(xid) = row_locker::row_locker(rel, version, mode) {
            order::note_wait_to_lock((*rel).rd_id, mode);
            await_edge(xid);
        }
    }
}

/// The wait is over.
pub fn end_wait() {
    if SESSION.published.get() {
        memory().backends[process::me() as usize].wait(None);
    }
}

/// Declares that we are going to wait for that transaction's row lock.
pub fn await_edge(xid: u32) {
    let own = &memory().backends[process::me() as usize];
    // The writer of a version in a row's list is known as such, and its rollback with it.
    let awaited = match hotrow::owner_of(memory().backends, xid) {
        Some(_) => xid,
        None => xact::top_of(xid),
    };
    if deadlock::closes(|| own.wait(Some(hotrow::Wait::Xid(awaited)))) {
        ticket::refuse_cycle(SESSION.all().next().map(|(_, m)| m.slot()));
    }
}
