//! Row locks and DELETE on hot rows.

use super::access::{
    Heat, hand_out, heat, keep_ticket, lend_offered, lock_in_heaps_way, note_unseen, relation_of,
    ticket_for, version_of,
};
use super::blocker::in_heaps_way;
use super::check;
use super::cold::{self, Place, Turn};
use super::conflict;
use super::dependency;
use super::detect;
use super::latest;
use super::order;
use super::predecessors;
use super::session::{self, SESSION, memory, statement_of};
use super::settings;
use super::step::{Step, close_own, end_group_for_others, next_step};
use super::tail::{await_in_turn, await_tail, forget_offer, refuse_if_shown};
use super::waiting::Reason;
use crate::pg::buffer::{self, Page};
use crate::pg::plan::OnConflict;
use crate::pg::relation::{Key, identity_of, key_of};
use crate::pg::tuple;
use crate::tam::call::{Delete, Lock};
use crate::tam::swap;
use hotrow::{Contention, Identity, Membership, Slot};
use pgrx::pg_sys::{self, LockTupleMode, LockWaitPolicy, TM_Result};

/// `tuple_lock` of our routine.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
pub unsafe fn tuple_lock(call: Lock) -> TM_Result::Type {
    // SAFETY: the executor's relation is open, and its slot and address are valid.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let result = locked(call);
        check::note_result(call.rel, version, result);
        result
    }
}

unsafe fn locked(call: Lock) -> TM_Result::Type {
    // SAFETY: by the contract; the address points to a valid item pointer.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let relation = (*call.rel).rd_id;
        if let Some(result) = latest::is_locked(&call) {
            return result;
        }
        if let Some((n, membership)) = SESSION.with_version(relation, version) {
            return own_row(call, n, membership);
        }
        if let Some((n, membership)) = SESSION.with_offer(relation, version) {
            return offered(call, n, membership);
        }
        let exclusive = matches!(
            call.mode,
            LockTupleMode::LockTupleNoKeyExclusive | LockTupleMode::LockTupleExclusive
        );
        let Some((key, identity)) = key_of(call.rel)
            .filter(|_| settings::uses(relation))
            .and_then(|key| Some((key, identity_of(call.rel, key, version)?)))
        else {
            note_unseen(call.rel);
            return lock_in_heaps_way(call);
        };
        if !exclusive || call.policy != LockWaitPolicy::LockWaitBlock {
            return without_queue(&call, key, &identity, version);
        }
        let slot = match find_hot(&call, key, &identity, version) {
            Ok(slot) => slot,
            Err(place) => {
                let result = lock_in_heaps_way(call);
                place.into_iter().for_each(Place::done);
                detect::uncount_waiter();
                SESSION.note_locked(&identity);
                if result == TM_Result::TM_Ok {
                    note_if_other(&call, key, |found| *found == identity);
                }
                return result;
            }
        };
        let usage = swap::usage(call.rel);
        if let Some(usage) = usage
            && usage.on_conflict == OnConflict::Update
            && usage.may_follow
            && settings::of(relation).follow()
            && key.has_plain_unique_indexes()
        {
            return conflict::lock(call, slot, &identity, usage);
        }
        let may_follow = usage.is_some_and(|usage| usage.may_follow || usage.only_locks);
        hot(&call, slot, key, &identity, may_follow)
    }
}

/// A lock that others may share, or that does not wait.
unsafe fn without_queue(
    call: &Lock,
    key: &Key,
    identity: &Identity,
    version: u64,
) -> TM_Result::Type {
    // SAFETY: as in `locked`.
    unsafe {
        if check::defer(call, version, identity) {
            return TM_Result::TM_Ok;
        }
        let result = lock_in_heaps_way(*call);
        if result == TM_Result::TM_Ok {
            SESSION.note_locked(identity);
            if call.mode == LockTupleMode::LockTupleKeyShare {
                check::note_checked(identity);
            }
            note_if_other(call, key, |found| found == identity);
        }
        result
    }
}

/// Locks a hot row: with its ticket, a version that a running predecessor has written if the
/// statement may follow it.
unsafe fn hot(
    call: &Lock,
    slot: Slot,
    key: &Key,
    identity: &Identity,
    may_follow: bool,
) -> TM_Result::Type {
    // SAFETY: as in `locked`.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let held = ticket_for(call.rel, slot, identity, version);
        match held {
            Some(n) => {
                note_unused(n, call.rel);
                if !may_follow {
                    await_list(n, slot);
                } else if let Some(found) = follow(*call, n, version) {
                    return found;
                }
            }
            None => SESSION.note_locked(identity),
        }
        let result = in_heaps_way(*call);
        let is_other =
            result == TM_Result::TM_Ok && note_if_other(call, key, |found| found == identity);
        match held {
            Some(n) if is_other => pass_on(n),
            Some(n) => keep_ticket(n, result),
            None => (),
        }
        result
    }
}

/// Behind a change of the key the row that has been locked is another than the one asked for, whose
/// ticket we have: remembers it, and says so.
unsafe fn note_if_other(call: &Lock, key: &Key, is_same: impl Fn(&Identity) -> bool) -> bool {
    // SAFETY: as in `tuple_lock`; the slot holds the version that has been locked.
    let found = unsafe {
        if !(*call.failure).traversed {
            return false;
        }
        key.of_slot(call.slot)
    };
    let other = found.filter(|found| !is_same(found));
    other.iter().for_each(|row| SESSION.note_locked(row));
    other.is_some()
}

/// Gives the ticket of the row's old key back, and remembers that row as locked. A transaction that
/// finds the row by the old key waits for us while it holds that ticket; asking for it again would
/// deadlock.
fn pass_on(n: usize) {
    if let Some(membership) = SESSION.get(n) {
        SESSION.note_locked_by(&membership);
    }
    dependency::drop_ticket(n);
}

/// The ticket is the statement's until the row is locked.
fn note_unused(n: usize, rel: pg_sys::Relation) {
    let query = swap::usage(rel).map_or(0, |usage| usage.query);
    SESSION.step(n, |m| m.claimed_by(statement_of(query)));
}

/// The version that a lock is about: the last one of the row if the caller wants that.
///
/// # Safety
/// As for `tuple_lock`; `version` is one of the row `identity`, and a snapshot of this transaction
/// keeps it.
unsafe fn current_version(call: &Lock, version: u64, identity: &Identity) -> u64 {
    // SAFETY: the executor's relation is open, and the transaction's snapshot keeps the version.
    unsafe {
        if !finds_last(call) {
            return version;
        }
        let last = detect::last_version(call.rel, version);
        let is_same = || {
            let found = key_of(call.rel).and_then(|key| identity_of(call.rel, key, last));
            found.as_ref() == Some(identity)
        };
        if last == version || is_same() {
            last
        } else {
            version
        }
    }
}

/// Whether the caller wants the last version of the row, and not that one only.
fn finds_last(call: &Lock) -> bool {
    u32::from(call.flags) & pg_sys::TUPLE_LOCK_FLAG_FIND_LAST_VERSION != 0
}

/// The hot row with that identity, which this lock may make hot, or which may become hot while it
/// is awaited. None: heap locks it, with our place in its queue.
unsafe fn find_hot(
    call: &Lock,
    key: &Key,
    identity: &Identity,
    version: u64,
) -> Result<Slot, Option<Place>> {
    if let Some(slot) = detect::find(identity) {
        return Ok(slot);
    }
    // SAFETY: as in `tuple_lock`.
    unsafe {
        let current = || current_version(call, version, identity);
        match heat(call.rel, key, identity, current(), call.mode) {
            Heat::Hot(slot) => Ok(slot),
            Heat::Calm => Err(None),
            // Others in heap's queue may wait for us.
            Heat::Contended if SESSION.has_locked(identity) => Err(None),
            Heat::Contended => {
                order::let_pass_in(relation_of(call.rel), Contention::Row);
                match cold::await_turn(call.rel, current, call.mode, identity) {
                    Turn::Hot(slot) => {
                        detect::uncount_waiter();
                        Ok(slot)
                    }
                    Turn::Ours(place) => Err(place),
                }
            }
        }
    }
}

/// With the ticket: locks the last version, and hands it out although its writer still runs (rule
/// "FOR UPDATE, then UPDATE"). Our update will follow it; until then we are a reader. None once
/// nobody runs in the list: heap locks then.
unsafe fn follow(call: Lock, n: usize, version: u64) -> Option<TM_Result::Type> {
    // SAFETY: as in `tuple_lock`; the slot is a buffer heap slot.
    unsafe {
        let slot = SESSION.get(n)?.slot();
        let query = swap::usage(call.rel).map_or(0, |usage| usage.query);
        let with_key = call.mode == LockTupleMode::LockTupleExclusive;
        loop {
            let others_wait = end_group_for_others(slot);
            let tail = match next_step(n, version, false, query) {
                Step::Offer(tail) if finds_last(&call) => tail,
                Step::Await(tail) if others_wait => {
                    await_in_turn(call.rel, version, n, &tail);
                    continue;
                }
                Step::Offer(tail) | Step::Await(tail) | Step::Follow(tail) => {
                    await_tail(n, &tail);
                    continue;
                }
                Step::Ordinary => return None,
            };
            if let Some((found, page)) = lend_offered(call.rel, n, &tail, with_key) {
                (*call.failure).traversed = true;
                hand_out(&call, found, page);
                return Some(TM_Result::TM_Ok);
            }
            await_tail(n, &tail);
        }
    }
}

/// Takes the ticket and lets everybody in the list end. Returns the membership.
unsafe fn hold(
    rel: pg_sys::Relation,
    slot: Slot,
    identity: &Identity,
    version: u64,
) -> Option<usize> {
    // SAFETY: a version that a scan has found.
    let n = unsafe { ticket_for(rel, slot, identity, version)? };
    await_list(n, slot);
    Some(n)
}

fn await_list(n: usize, slot: Slot) {
    while let Some(tail) = memory().with_row(slot, |row, members| row.tail(members)) {
        await_tail(n, &tail);
    }
}

/// Hands out the uncommitted version that `tuple_update` has offered. If its writer has rolled back
/// meanwhile and it is gone, heap finds the right one, from where the executor came.
unsafe fn offered(call: Lock, n: usize, membership: Membership) -> TM_Result::Type {
    // SAFETY: as in `tuple_lock`; the slot is a buffer heap slot, as heapam's own callback wants
    // it.
    unsafe {
        if !membership.is_restarting() {
            let found = membership
                .offer()
                .and_then(|offer| version_of(call.rel, offer.version, offer.xid));
            if let Some((found, page)) = found {
                *call.tid = found.t_self;
                SESSION.step(n, Membership::handed_out);
                (*call.failure).traversed = true;
                buffer::store(call.rel, call.slot, found, page);
                return TM_Result::TM_Ok;
            }
            refuse_if_shown(n);
        }
        forget_offer(n);
        from_origin(call, n, membership)
    }
}

/// Of a row whose uncommitted version the executor has got: lets its writers end, and locks the
/// last version in heap's way. None if it has got none, or it is locked.
///
/// # Safety
/// As for `tuple_lock`; the address is that of the version.
pub unsafe fn lock_when_ended(call: Lock) -> Option<TM_Result::Type> {
    // SAFETY: as in `tuple_lock`.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let in_hand = SESSION.with_in_hand((*call.rel).rd_id, version);
        let (n, membership) = in_hand.filter(|(_, m)| !m.has_locked())?;
        forget_offer(n);
        await_list(n, membership.slot());
        Some(from_origin(call, n, membership))
    }
}

/// Locks the row in heap's way, from the version with which the executor came first.
unsafe fn from_origin(call: Lock, n: usize, membership: Membership) -> TM_Result::Type {
    // SAFETY: as in `tuple_lock`.
    unsafe {
        if let Some(origin) = membership.origin() {
            *call.tid = tuple::unpack(origin);
        }
        let result = in_heaps_way(call);
        let row = &memory().directory.rows[membership.slot() as usize];
        let is_other = result == TM_Result::TM_Ok
            && key_of(call.rel).is_some_and(|key| note_if_other(&call, key, |found| row.is(found)));
        if is_other {
            pass_on(n);
        } else {
            keep_ticket(n, result);
        }
        // The executor wants to hear that it has another version in its hands than before.
        (*call.failure).traversed = true;
        result
    }
}

/// The transaction locks its own version. It already holds a stronger lock than any share: no other
/// transaction can delete the row or change its key before it ends. So for a share there is nothing
/// to stamp (rule "foreign keys"). A stronger lock is a claim to change the row again.
unsafe fn own_row(call: Lock, n: usize, membership: Membership) -> TM_Result::Type {
    // SAFETY: as in `tuple_lock`.
    unsafe {
        let shared = matches!(
            call.mode,
            LockTupleMode::LockTupleKeyShare | LockTupleMode::LockTupleShare
        );
        if !shared {
            close_own(n);
            return call.heap();
        }
        let Some(version) = membership.version().filter(|_| membership.is_listed()) else {
            return call.heap();
        };
        let page = Page::pin(call.rel, version);
        page.share();
        let found = page.heap_tuple(call.rel, version);
        page.unlock();
        match found {
            Some(found) => {
                (*call.failure).traversed = false;
                buffer::store(call.rel, call.slot, found, page);
                TM_Result::TM_Ok
            }
            None => {
                page.unpin();
                call.heap()
            }
        }
    }
}

/// A MERGE may go on to delete the version that its update was offered. If the writer has rolled
/// back, that is 40001.
fn refuse_what_was_lent(relation: pg_sys::Oid, version: u64) {
    let lent = SESSION.all().filter(|(_, m)| {
        session::relation_of(m) == relation && m.has_in_hand(version) && m.depends()
    });
    for (n, membership) in lent {
        // It may have left the list and be prepared: then it runs.
        predecessors::wait_on_row(n, &membership, Reason::Fallback);
    }
}

/// `tuple_delete` of our routine.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
pub unsafe fn tuple_delete(call: Delete) -> TM_Result::Type {
    // SAFETY: by the contract; the address points to a valid item pointer.
    unsafe {
        let version = tuple::pack(&*call.tid);
        check::take_in((*call.rel).rd_id);
        if let Some((n, _)) = SESSION.with_version((*call.rel).rd_id, version) {
            close_own(n);
            SESSION.step(n, Membership::deletes);
            return call.heap();
        }
        order::let_pass_in(relation_of(call.rel), Contention::Row);
        let relation = relation_of(call.rel);
        let are_hot = memory().directory.used.get() > 0;
        let identity = key_of(call.rel)
            .filter(|_| settings::uses(relation))
            .filter(|_| are_hot || !SESSION.may_have_locked_any())
            .and_then(|key| identity_of(call.rel, key, version));
        let held = identity.as_ref().and_then(|identity| {
            let slot = detect::find(identity)?;
            hold(call.rel, slot, identity, version)
        });
        if let Some(n) = held {
            note_unused(n, call.rel);
        }
        refuse_what_was_lent(relation, version);
        let result = in_heaps_way(call);
        let is_done = result == TM_Result::TM_Ok;
        if let Some(n) = held {
            keep_ticket(n, result);
        } else if is_done && let Some(identity) = identity {
            SESSION.note_locked(&identity);
        }
        result
    }
}
