//! What updates and locks of hot rows share: which row it is, whether it becomes hot, its ticket,
//! its versions.

use super::blocker::in_heaps_way;
use super::deadlock;
use super::dependency;
use super::detect;
use super::late_snapshot;
use super::order;
use super::repeatable;
use super::row_locker;
use super::session::{SESSION, membership_slot};
use super::settings;
use super::tail::{forget_offer, offer};
use super::ticket;
use crate::pg::buffer::{self, Page};
use crate::pg::relation::Key;
use crate::pg::{raw, tuple};
use crate::tam::call::Lock;
use crate::tam::group;
use crate::tam::swap;
use hotrow::{Base, Contention, Identity, Membership, Slot, Tail};
use pgrx::pg_sys::{self, LockTupleMode, TM_Result};

/// The table's OID.
pub fn relation_of(rel: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: an open relation.
    unsafe { (*rel).rd_id }
}

/// A row of that table is locked or changed while its settings are off: those of a statement that
/// began with them on, or a cursor's.
pub fn note_unseen(rel: pg_sys::Relation) {
    if !settings::uses(relation_of(rel)) {
        SESSION.note_locked_in(relation_of(rel));
    }
}

/// What a lock finds at a row that is not hot.
pub enum Heat {
    /// It makes the row hot.
    Hot(Slot),
    /// Others have it.
    Contended,
    Calm,
}

/// A row that is not hot: does this lock make it so?
pub unsafe fn heat(
    rel: pg_sys::Relation,
    key: &Key,
    identity: &Identity,
    version: u64,
    mode: LockTupleMode::Type,
) -> Heat {
    // SAFETY: the caller's relation is open, and a scan has found the version.
    unsafe {
        let contended = row_locker::is_contended(rel, version, mode);
        if settings::of((*rel).rd_id).hot_threshold() > 0 && !detect::is_ripe(identity) {
            if !contended {
                return Heat::Calm;
            }
            order::note_wait_to_lock((*rel).rd_id, mode);
            if !detect::count_waiter(identity) {
                return Heat::Contended;
            }
            detect::uncount_waiter();
        }
        match detect::promote(rel, key, identity, version) {
            Some(slot) => Heat::Hot(slot),
            None if contended => Heat::Contended,
            None => Heat::Calm,
        }
    }
}

/// Takes the row's ticket, and returns the membership. None in three cases:
/// - This transaction has written or locked the row in another way, be it in a later version. If it
///   goes on in heap's way, its predecessors have gone first.
/// - The row is not hot any more.
/// - The statement works on what its snapshot shows, and would have to wait for the ticket: it
///   could not use the version for which it would wait (repeatable.rs).
///
/// # Safety
/// `rel` is open, and the version is one that a scan has found.
pub unsafe fn ticket_for(
    rel: pg_sys::Relation,
    slot: Slot,
    identity: &Identity,
    version: u64,
) -> Option<usize> {
    match SESSION.in_row(slot) {
        Some((n, m)) if m.has_ticket() => Some(n),
        Some((_, m)) if m.has_version() => None,
        found => {
            // SAFETY: a version that a scan has found.
            let is_own = || unsafe { row_locker::is_own(rel, version) };
            if found.is_some() || SESSION.has_locked(identity) || is_own() {
                // Heap's way has no second look: a predecessor that has only the ticket may come
                // after us.
                order::let_pass();
                return None;
            }
            dependency::drop_unused(swap::usage(rel).map_or(0, |usage| usage.query));
            if late_snapshot::builds_on_last() {
                ticket::acquire(slot, identity)
            } else {
                repeatable::take_free(slot, identity)
            }
        }
    }
}

/// The version at that address, if it is that transaction's, with its page pinned.
pub unsafe fn version_of(
    rel: pg_sys::Relation,
    version: u64,
    xid: u32,
) -> Option<(pg_sys::HeapTupleData, Page)> {
    // SAFETY: `rel` is open; the header is read under the page's lock.
    unsafe {
        let page = Page::pin(rel, version);
        page.share();
        let found = page
            .heap_tuple(rel, version)
            .filter(|found| u32::from(tuple::raw_xmin(found.t_data)) == xid);
        page.unlock();
        if found.is_none() {
            page.unpin();
        }
        found.map(|found| (found, page))
    }
}

/// After heap has locked the row of membership `n`: the transaction keeps the ticket. If the row
/// has been deleted, the ticket goes on at once: another transaction may insert the row again, and
/// this one may come to wait for it.
pub fn keep_ticket(n: usize, result: TM_Result::Type) {
    match result {
        TM_Result::TM_Ok => SESSION.step(n, Membership::locked),
        TM_Result::TM_Deleted => dependency::drop_ticket(n),
        _ => (),
    }
}

/// Locks the offered version for our update to come: whoever comes upon it after its writer's
/// commit has to wait for us. From here on its writer is our predecessor. False if it has closed
/// its version meanwhile, that cannot be locked, or it waits for somebody who waits for our ticket.
///
/// # Safety
/// The executor's arguments; we have the ticket.
pub unsafe fn lend(rel: pg_sys::Relation, n: usize, tail: &Tail, with_key: bool) -> bool {
    let base = Base {
        version: tail.tid,
        xid: tail.xid,
    };
    // SAFETY: the executor's relation is open, and we have the ticket. We stand in the list before
    // our lock shows: the writer must not come to wait for us in the lock manager, to change its
    // version again.
    unsafe {
        if deadlock::closes_by_keeping(membership_slot(n)) {
            return false;
        }
        raw::GetCurrentTransactionId();
        SESSION.publish();
        if !dependency::depend_on_open(n) {
            return false;
        }
        if !group::lock(rel, &base, with_key) {
            dependency::depend_no_more(n);
            return false;
        }
    }
    SESSION.step(n, |m| m.lends(tail.tid));
    true
}

/// Offers the tail's version and lends it: the version, with its page pinned. None, and no offer,
/// if it cannot be lent.
///
/// # Safety
/// As for `lend`.
pub unsafe fn lend_offered(
    rel: pg_sys::Relation,
    n: usize,
    tail: &Tail,
    with_key: bool,
) -> Option<(pg_sys::HeapTupleData, Page)> {
    offer(n, tail);
    // SAFETY: by the contract.
    unsafe {
        if let Some((found, page)) = version_of(rel, tail.tid, tail.xid) {
            if lend(rel, n, tail, with_key) {
                return Some((found, page));
            }
            page.unpin();
        }
    }
    forget_offer(n);
    None
}

/// Gives the executor a version in place of the one with which it came.
///
/// # Safety
/// The executor's arguments; the slot is a buffer heap slot, and `page`, that of `found`, is
/// pinned.
pub unsafe fn hand_out(call: &Lock, found: pg_sys::HeapTupleData, page: Page) {
    // SAFETY: the executor's slot is a buffer heap slot, and the page of `found` is pinned.
    unsafe {
        *call.tid = found.t_self;
        buffer::store(call.rel, call.slot, found, page);
    }
}

/// Heap's own row lock. Predecessors go first.
///
/// # Safety
/// As for `tuple_lock`.
pub unsafe fn lock_in_heaps_way(call: Lock) -> TM_Result::Type {
    // SAFETY: as in `tuple_lock`.
    unsafe {
        let what = match call.mode {
            LockTupleMode::LockTupleKeyShare => Contention::Key,
            _ => Contention::Row,
        };
        order::let_pass_in(relation_of(call.rel), what);
        in_heaps_way(call)
    }
}
