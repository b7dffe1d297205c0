//! `INSERT ... ON CONFLICT`, the usual counter (rule "upsert").
//!
//! The executor looks for a conflicting row with SnapshotDirty and waits for whoever is changing
//! it, before it asks for the row's lock (executor/execIndexing.c:
//! check_exclusion_or_unique_constraint). An update that leaves the keys alone changes nothing
//! about the conflict, whether it commits or not: for a hot row we say that there is no need to
//! wait. Then the executor locks the row: there we take the ticket and hand out the last version,
//! which its update follows. (DO NOTHING waits as ever: it takes no lock, so nothing would keep the
//! row from being deleted by the same transaction.)

use super::access::{Heat, hand_out, heat, keep_ticket, lend, ticket_for, version_of};
use super::blocker::in_heaps_way;
use super::dependency;
use super::detect;
use super::order;
use super::predecessors;
use super::session::{SESSION, statement_of};
use super::settings;
use super::step::{Step, end_group_for_others, name_version, next_step};
use super::tail::{await_in_turn, await_tail, forget_offer, offer, refuse_if_shown};
use super::twice;
use super::waiting::Reason;
use crate::pg::plan::OnConflict;
use crate::pg::relation::key_of;
use crate::pg::tuple;
use crate::shared::stop;
use crate::tam::call::Lock;
use crate::tam::group;
use crate::tam::swap::{self, Use};
use hotrow::{Contention, Identity, Slot};
use pgrx::pg_sys::{self, LockTupleMode, TM_Result};

/// A look with SnapshotDirty has found a version: the executor needs not wait for those that update
/// a hot row. Before it waits for others, it gives back a ticket that it has not used: they may
/// want it.
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
        twice::note(rel, slot);
        let waits = (*snapshot).xmin != pg_sys::TransactionId::INVALID
            || (*snapshot).xmax != pg_sys::TransactionId::INVALID;
        if waits && SESSION.is_member() {
            order::note_wait((*rel).rd_id, Contention::Value);
        }
        // Within a check of the index itself (nbtinsert.c: _bt_check_unique) its page is locked.
        if !waits || pg_sys::InterruptHoldoffCount > 0 || !settings::uses((*rel).rd_id) {
            return;
        }
        let Some(usage) = swap::usage(rel) else {
            return;
        };
        if usage.on_conflict == OnConflict::Update
            && usage.may_follow
            && settings::of((*rel).rd_id).follow()
            && is_of_hot_row(rel, snapshot, slot)
        {
            (*snapshot).xmax = pg_sys::TransactionId::INVALID;
        } else {
            dependency::drop_unused(usage.query);
        }
    }
}

/// Whether the version is one of a hot row that is being updated, and its keys are not.
unsafe fn is_of_hot_row(
    rel: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    slot: *mut pg_sys::TupleTableSlot,
) -> bool {
    // SAFETY: as in `found`.
    unsafe {
        let header = (*(*slot.cast::<pg_sys::HeapTupleTableSlot>()).tuple).t_data;
        if (*snapshot).xmin != pg_sys::TransactionId::INVALID
            || u32::from((*header).t_infomask2) & pg_sys::HEAP_KEYS_UPDATED != 0
        {
            return false;
        }
        let Some(key) = key_of(rel).filter(|key| key.has_plain_unique_indexes()) else {
            return false;
        };
        let Some(identity) = key.of_slot(slot) else {
            return false;
        };
        let version = tuple::pack(&(*slot).tts_tid);
        detect::find(&identity).is_some() || {
            let mode = LockTupleMode::LockTupleNoKeyExclusive;
            matches!(heat(rel, key, &identity, version, mode), Heat::Hot(_))
        }
    }
}

/// Locks the conflicting hot row for the update to come: the version that it gets is the last one,
/// perhaps of a running predecessor.
///
/// # Safety
/// The executor's arguments, of a statement that `usage` says may follow.
pub unsafe fn lock(call: Lock, slot: Slot, identity: &Identity, usage: Use) -> TM_Result::Type {
    // SAFETY: by the contract; the slot is a buffer heap slot.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let Some(n) = ticket_for(call.rel, slot, identity, version) else {
            if SESSION.in_row(slot).is_some() {
                predecessors::wait(Reason::Read);
            }
            SESSION.note_locked(identity);
            return in_heaps_way(call);
        };
        SESSION.step(n, |m| m.taken_over_by(statement_of(usage.query)));
        stop::at(stop::Point::TicketTaken);
        loop {
            let others_wait = end_group_for_others(slot);
            match next_step(n, version, false, usage.query) {
                Step::Offer(tail) => {
                    offer(n, &tail);
                    if let Some((mut found, page)) = version_of(call.rel, tail.tid, tail.xid) {
                        if !group::has_keys_of(call.rel, version, &mut found) {
                            // It may not conflict any more: the executor looks again.
                            page.unpin();
                            forget_offer(n);
                            name_version(call.failure, tail.tid, tail.xid);
                            await_tail(n, &tail);
                            return TM_Result::TM_Updated;
                        }
                        if lend(call.rel, n, &tail, false) {
                            (*call.failure).traversed = false;
                            hand_out(&call, found, page);
                            return TM_Result::TM_Ok;
                        }
                        page.unpin();
                    } else {
                        refuse_if_shown(n);
                    }
                    forget_offer(n);
                    await_tail(n, &tail);
                }
                Step::Await(tail) if others_wait => await_in_turn(call.rel, version, n, &tail),
                Step::Await(tail) | Step::Follow(tail) => await_tail(n, &tail),
                Step::Ordinary => {
                    let result = in_heaps_way(call);
                    keep_ticket(n, result);
                    return result;
                }
            }
        }
    }
}
