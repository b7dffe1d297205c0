//! `INSERT ... ON CONFLICT`, the usual counter (trap 8).
//!
//! The executor looks for a conflicting row with SnapshotDirty and waits for whoever is changing it, before it asks for
//! the row's lock (executor/execIndexing.c: check_exclusion_or_unique_constraint). An update that leaves the keys alone
//! changes nothing about the conflict, whether it commits or not: for a hot row we say that there is no need to wait. Then
//! the executor locks the row: there we take the ticket and hand out the last version, which its update follows.

use super::detect;
use super::lock::{self, end_wait, version_of, wait_for_lockers};
use super::session::{SESSION, is_enabled};
use super::statement;
use super::stop;
use super::ticket;
use super::update::{
    Step, await_tail, end_group_for_others, forget_offer, next_step, offer, refuse_if_shown,
};
use super::{commit, errors, waiting::Reason};
use crate::guc;
use crate::pg::relation::key_of;
use crate::pg::tuple;
use crate::tam::callbacks::Lock;
use crate::tam::swap::{self, OnConflict, Use};
use hotrow::{Identity, Slot};
use pgrx::pg_sys::{self, TM_Result};

/// Whether that statement's conflicts are ours to handle.
fn is_handled(usage: &Use) -> bool {
    match usage.on_conflict {
        OnConflict::Fail => false,
        OnConflict::Nothing => true,
        OnConflict::Update => usage.may_follow,
    }
}

/// A look with SnapshotDirty has found a version: the executor needs not wait for those that update a hot row.
///
/// # Safety
/// `slot` holds a version of a row of `rel`, found with `snapshot`, a SnapshotDirty.
pub unsafe fn found(
    rel: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    slot: *mut pg_sys::TupleTableSlot,
) {
    detect::uncount_waiter();
    // SAFETY: by the contract; the slot keeps the version's page pinned.
    unsafe {
        let is_updated = (*snapshot).xmin == pg_sys::TransactionId::INVALID
            && (*snapshot).xmax != pg_sys::TransactionId::INVALID;
        if !is_updated || !is_enabled() || !guc::GROUP_LOCK.get() {
            return;
        }
        let header = (*(*slot.cast::<pg_sys::HeapTupleTableSlot>()).tuple).t_data;
        if u32::from((*header).t_infomask2) & pg_sys::HEAP_KEYS_UPDATED != 0
            || !swap::usage(rel).is_some_and(|usage| is_handled(&usage))
        {
            return;
        }
        let Some(key) = key_of(rel).filter(|key| key.has_plain_unique_indexes()) else {
            return;
        };
        let Some(identity) = key.of_slot(slot) else {
            return;
        };
        let version = tuple::pack(&(*slot).tts_tid);
        if detect::find(&identity)
            .or_else(|| lock::heat(rel, &key, &identity, version))
            .is_some()
        {
            (*snapshot).xmax = pg_sys::TransactionId::INVALID;
        }
    }
}

/// Locks the conflicting hot row for the update to come: the version that it gets is the last one, perhaps of a running
/// predecessor.
///
/// # Safety
/// The executor's arguments, of a statement that `usage` says may follow.
pub unsafe fn lock(call: Lock, slot: Slot, identity: &Identity, usage: Use) -> TM_Result::Type {
    // SAFETY: by the contract; the slot is a buffer heap slot.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let n = match SESSION.in_row(slot) {
            Some((n, m)) if m.ticket => n,
            Some(_) => {
                commit::wait_for_predecessors(Reason::Read);
                return call.heap();
            }
            None if detect::grip(call.rel, version) == detect::Grip::Own => return call.heap(),
            None => {
                statement::drop_unused(usage.query);
                match ticket::acquire(slot, identity) {
                    Some(n) => n,
                    None => return call.heap(),
                }
            }
        };
        SESSION.update(n, |m| {
            if m.version == 0 && !m.locked {
                m.unused_by = usage.query;
            }
        });
        stop::at(stop::Point::TicketTaken);
        loop {
            end_group_for_others(slot);
            match next_step(n, version, false) {
                Step::Offer(tail) => {
                    offer(n, &tail);
                    if let Some((found, page)) = version_of(call.rel, tail.tid, tail.xid) {
                        *call.tid = found.t_self;
                        SESSION.update(n, |m| m.handed = tail.tid);
                        (*call.failure).traversed = false;
                        tuple::store(call.rel, call.slot, found, page);
                        return TM_Result::TM_Ok;
                    }
                    refuse_if_shown(n);
                    forget_offer(n);
                }
                Step::Await(tail) | Step::Follow(tail) => await_tail(n, &tail),
                Step::Ordinary => {
                    wait_for_lockers(call.rel, version);
                    let result = call.heap();
                    end_wait();
                    if result == TM_Result::TM_Ok {
                        SESSION.update(n, |m| {
                            m.locked = true;
                            m.unused_by = 0;
                        });
                    }
                    return result;
                }
            }
        }
    }
}

/// The update of a row that `lock` has handed out. The executor does not expect that anybody was faster, and cannot start
/// again: that is 40001.
pub fn check_updated(usage: &Use, result: TM_Result::Type) {
    if usage.on_conflict == OnConflict::Update
        && matches!(result, TM_Result::TM_Updated | TM_Result::TM_Deleted)
    {
        let rolled_back = SESSION.all().any(|(_, m)| m.restart);
        if rolled_back {
            errors::DOOMED.raise();
        }
        errors::OVERTAKEN.raise();
    }
}
