//! Waiting for a row that is not hot yet.
//!
//! Heap waits inside one call for the owner of a row, and then for each next owner that gets the
//! row first. Meanwhile the row may have become hot. Its waiters would still come to it one after
//! the other in stock PostgreSQL's way. Where two rows are taken in opposite orders, each waiter
//! would close a cycle that is found only after `deadlock_timeout`. So we wait in front of heap's
//! call, with the same locks in the same order (heapam.c: heap_update, heap_acquire_tuplock). Each
//! time the row has another owner, the wait is declared anew, which refuses a cycle at once. A row
//! that has become hot is left to its queue.

use super::detect;
use super::edge;
use super::order;
use super::row_locker::{self, RowLocker};
use super::session::SESSION;
use crate::pg::{process, raw, tuple, xact};
use hotrow::{Identity, Slot};
use pgrx::pg_sys::{self, LockTupleMode};

/// What a wait for a row has ended with.
pub enum Turn {
    /// Nobody has the version any more, as far as we have seen. We may hold a place in heap's
    /// queue: `done` gives it up.
    Ours(Option<Place>),
    /// The row is hot now.
    Hot(Slot),
}

/// A place in heap's queue for a version.
pub struct Place {
    rel: pg_sys::Relation,
    version: u64,
    mode: pg_sys::LOCKMODE,
}

impl Place {
    /// Heap has been called.
    pub fn done(self) {
        let tid = tuple::unpack(self.version);
        // SAFETY: taken by `take`; the relation is open.
        unsafe { raw::UnlockTuple(self.rel, &tid, self.mode) }
    }

    /// Queues for it.
    unsafe fn take(rel: pg_sys::Relation, version: u64, mode: pg_sys::LOCKMODE) -> Self {
        // SAFETY: as for `await_turn`.
        unsafe { raw::LockTuple(rel, &tuple::unpack(version), mode) }
        Self { rel, version, mode }
    }
}

/// heapam.c: tupleLockExtraInfo.
fn heavyweight(mode: LockTupleMode::Type) -> pg_sys::LOCKMODE {
    let lock = match mode {
        LockTupleMode::LockTupleKeyShare => pg_sys::AccessShareLock,
        LockTupleMode::LockTupleShare => pg_sys::RowShareLock,
        LockTupleMode::LockTupleNoKeyExclusive => pg_sys::ExclusiveLock,
        _ => pg_sys::AccessExclusiveLock,
    };
    lock as pg_sys::LOCKMODE
}

/// Waits until nobody holds the row's current version against a lock of that mode, or the row has
/// become hot. `current` says which version that is; an update that commits may make it another
/// one.
///
/// # Errors
/// 40P01 if the wait closes a cycle of transactions that have to do with hot rows, or have locked
/// others.
///
/// # Safety
/// `rel` is open, and the versions are those of the row `identity`.
pub unsafe fn await_turn(
    rel: pg_sys::Relation,
    current: impl Fn() -> u64,
    mode: LockTupleMode::Type,
    identity: &Identity,
) -> Turn {
    let mut place: Option<Place> = None;
    // SAFETY: the caller's relation is open, and `current` gives versions of its row. After an
    // ERROR in a wait the abort releases the locks.
    unsafe {
        loop {
            let version = current();
            let RowLocker::Other(xid) = row_locker::row_locker(rel, version, mode) else {
                return Turn::Ours(place);
            };
            if let Some(old) = place.take_if(|place| place.version != version) {
                old.done();
            }
            order::note_wait_to_lock((*rel).rd_id, mode);
            edge::await_holder(xid, |wait| match &place {
                None if !SESSION.is_waited_for() => {
                    place = Some(Place::take(rel, version, heavyweight(mode)))
                }
                _ => edge::sleep(wait, || xact::wait_for_end(xid)),
            });
            // A `lock_timeout` of this wait's last moment: the next wait would forget whose
            // interrupt it is.
            process::check_for_interrupts();
            if let Some(slot) = detect::find(identity) {
                place.into_iter().for_each(Place::done);
                return Turn::Hot(slot);
            }
        }
    }
}
