//! UPDATE of a row: ordinary, hot, following.
//!
//! The executor calls `tuple_update` with the version that its scan found. Where the statement
//! comes by key alone, that is the last version already (`latest.rs`). Else, for a hot row whose
//! last version is a running predecessor's, we answer `TM_Updated` and name that version (an
//! *offer*). The executor asks `tuple_lock` for it, which hands it out as it is. Then the executor
//! checks the quals against that version, and calls `tuple_update` again, now on it. That call is
//! the group update. We have the ticket from the offer to the group update, so no other transaction
//! can update the row in between.

use super::access::{Heat, heat, note_unseen, ticket_for, version_of};
use super::blocker::in_heaps_way;
use super::check;
use super::cold::{self, Place, Turn};
use super::combine;
use super::dependency;
use super::detect;
use super::late_snapshot;
use super::leader::pass_ticket;
use super::order;
use super::row_locker;
use super::running;
use super::session::{SESSION, member_id, membership_slot, memory, patience, statement_of};
use super::settings;
use super::step::{Step, close_own, end_group_for_others, name_version, next_step};
use super::tail::{
    await_in_turn, await_lender, await_tail, offer, refuse_if_shown, take_back_offer,
};
use super::waiting;
use crate::pg::evaluate::{self, Applied};
use crate::pg::relation::{Key, identity_of, key_of};
use crate::pg::{process, raw, tuple, xact};
use crate::shared::stop;
use crate::shared::wait;
use crate::tam::call::Update;
use crate::tam::{group, swap};
use hotrow::{Base, Contention, Identity, MEMBERS, Membership, Obstacle, Slot, Tail, backend_of};
use pgrx::pg_sys::{self, LockTupleMode, TM_Result, TU_UpdateIndexes};

/// `tuple_update` of our routine.
///
/// # Safety
/// `call` has the executor's arguments, which are valid until this returns.
pub unsafe fn tuple_update(call: Update) -> TM_Result::Type {
    // SAFETY: the executor's relation is open, and its slot and address are valid.
    unsafe {
        let version = tuple::pack(&*call.otid);
        let result = updated(call);
        check::note_result(call.rel, version, result);
        result
    }
}

unsafe fn updated(call: Update) -> TM_Result::Type {
    // SAFETY: as in `tuple_update`; the address points to a valid item pointer.
    unsafe {
        if check::has_deferred() && may_change_keys(call.rel) {
            check::take_in((*call.rel).rd_id);
        }
        let version = tuple::pack(&*call.otid);
        let mut in_hand = None;
        if SESSION.is_member() {
            if let Some((n, _)) = SESSION.with_version((*call.rel).rd_id, version) {
                return own_row(call, n);
            }
            in_hand = SESSION.with_in_hand((*call.rel).rd_id, version);
        }
        // A transaction that does not follow what was handed out must let its writer end first.
        let let_end = || {
            if let Some((n, _)) = in_hand {
                await_lender(n);
            }
        };
        let usage = swap::usage(call.rel).filter(|_| settings::uses((*call.rel).rd_id));
        let (Some(usage), Some(key)) = (usage, key_of(call.rel)) else {
            let_end();
            note_unseen(call.rel);
            order::let_pass_in((*call.rel).rd_id, Contention::Row);
            return ordinary(call);
        };
        if !usage.may_follow {
            let_end();
            return with_another_key(call, key, version);
        }
        let identity = key.of_slot(call.slot);
        let is_same = |m: &Membership| {
            let row = &memory().directory.rows[m.slot() as usize];
            identity.as_ref().is_some_and(|identity| row.is(identity))
        };
        // A BEFORE trigger may have changed the key.
        if in_hand.is_some_and(|(_, m)| !is_same(&m)) {
            let_end();
            SESSION.note_locked_in((*call.rel).rd_id);
            return ordinary(call);
        }
        let Some(identity) = identity else {
            return ordinary(call);
        };
        if let Some(slot) = detect::find(&identity) {
            return hot(call, slot, &identity, usage.query);
        }
        not_hot(call, key, &identity, version, usage.query)
    }
}

/// An update that may change the row's key: nobody can follow it.
unsafe fn with_another_key(call: Update, key: &Key, version: u64) -> TM_Result::Type {
    // SAFETY: as in `updated`.
    unsafe {
        order::let_pass_in((*call.rel).rd_id, Contention::Row);
        let before = identity_of(call.rel, key, version);
        if let Some(slot) = before.as_ref().and_then(detect::find) {
            memory().directory.rows[slot as usize].note_obstacle(Obstacle::Key);
        }
        let (slot, result) = (call.slot, ordinary(call));
        if result == TM_Result::TM_Ok {
            let rows = before.into_iter().chain(key.of_slot(slot));
            rows.for_each(|row| SESSION.note_locked(&row));
        }
        result
    }
}

/// An update of a row that is not hot, and may become so.
unsafe fn not_hot(
    call: Update,
    key: &Key,
    identity: &Identity,
    version: u64,
    query: usize,
) -> TM_Result::Type {
    let mode = LockTupleMode::LockTupleNoKeyExclusive;
    // SAFETY: as in `updated`.
    unsafe {
        if is_calm(call.rel, identity, version) {
            let result = call.heap();
            if result == TM_Result::TM_Ok {
                SESSION.note_locked(identity);
            }
            return result;
        }
        let heat = heat(call.rel, key, identity, version, mode);
        if let Heat::Hot(slot) = heat {
            return hot(call, slot, identity, query);
        }
        order::let_pass_in((*call.rel).rd_id, Contention::Row);
        // If we have locked the row we do not use heap's queue: others in it may wait for us.
        if matches!(heat, Heat::Calm) || SESSION.has_locked(identity) {
            return without_ticket(call, identity);
        }
        match cold::await_turn(call.rel, || version, mode, identity) {
            Turn::Hot(slot) => {
                detect::uncount_waiter();
                hot(call, slot, identity, query)
            }
            Turn::Ours(place) => {
                let result = without_ticket(call, identity);
                place.into_iter().for_each(Place::done);
                result
            }
        }
    }
}

/// Whether the row is the transaction's first one, and nobody has it: there is nothing to declare
/// and nobody to let pass.
///
/// # Safety
/// As in `tuple_update`.
#[inline]
unsafe fn is_calm(rel: pg_sys::Relation, identity: &Identity, version: u64) -> bool {
    // SAFETY: by the contract.
    unsafe {
        !SESSION.is_waited_for()
            && SESSION.counted.get() == 0
            && !detect::is_ripe(identity)
            && settings::of((*rel).rd_id).hot_threshold() > 0
            && row_locker::is_free_at_a_glance(rel, version)
    }
}

/// Whether an update of that table may change a row's key: its columns are set, or triggers may set
/// them.
fn may_change_keys(rel: pg_sys::Relation) -> bool {
    let keeps_keys = swap::usage(rel).is_some_and(|usage| usage.may_follow);
    !keeps_keys || key_of(rel).is_none_or(|key| key.has_row_triggers())
}

/// Heap's own update of a row for whose ticket we do not ask, neither now nor later.
unsafe fn without_ticket(call: Update, identity: &Identity) -> TM_Result::Type {
    // SAFETY: as in `tuple_update`.
    let result = unsafe { ordinary(call) };
    if result == TM_Result::TM_Ok {
        SESSION.note_locked(identity);
    }
    result
}

/// Heap's own update.
unsafe fn ordinary(call: Update) -> TM_Result::Type {
    // SAFETY: as in `tuple_update`.
    unsafe {
        let result = in_heaps_way(call);
        detect::uncount_waiter();
        result
    }
}

/// The transaction updates its own version again (rule "own row again").
unsafe fn own_row(call: Update, n: usize) -> TM_Result::Type {
    close_own(n);
    // SAFETY: as in `tuple_update`.
    unsafe {
        let result = call.heap();
        if result == TM_Result::TM_Ok {
            let version = tuple::pack(&(*call.slot).tts_tid);
            let level = xact::nest_level();
            let other_key = *call.lockmode == LockTupleMode::LockTupleExclusive;
            SESSION.step(n, |m| m.writes_again(version, level, other_key));
        }
        result
    }
}

/// Update of a hot row.
unsafe fn hot(call: Update, slot: Slot, identity: &Identity, query: usize) -> TM_Result::Type {
    // SAFETY: as in `tuple_update`.
    unsafe {
        let version = tuple::pack(&*call.otid);
        while let Some(n) = ticket_for(call.rel, slot, identity, version) {
            SESSION.step(n, |m| m.claimed_by(statement_of(query)).came_with(version));
            stop::at(stop::Point::TicketTaken);
            if let Some(result) = advance(call, n, query) {
                return result;
            }
        }
        if let Some((n, _)) = SESSION.with_in_hand((*call.rel).rd_id, version) {
            await_lender(n);
        }
        check::note_updated(identity);
        note_no_ticket(slot);
        without_ticket(call, identity)
    }
}

/// Counts why the transaction has no ticket of a hot row.
fn note_no_ticket(slot: Slot) {
    let obstacle = if !late_snapshot::builds_on_last() {
        Obstacle::Isolation
    } else if SESSION.all().count() == MEMBERS {
        Obstacle::ManyRows
    } else {
        Obstacle::LockedBefore
    };
    memory().directory.rows[slot as usize].note_obstacle(obstacle);
}

/// Goes on with the update of the row of membership `n`, whose ticket we have. None: a predecessor
/// has rolled back to before its own update of the row and may come again, so that the ticket has
/// gone back.
unsafe fn advance(call: Update, n: usize, query: usize) -> Option<TM_Result::Type> {
    // SAFETY: as in `tuple_update`.
    unsafe {
        let version = tuple::pack(&*call.otid);
        loop {
            let Some(membership) = SESSION.get(n) else {
                return Some(ordinary(call));
            };
            let looked_at = membership.has_looked_at(version);
            if looked_at {
                raw::GetCurrentTransactionId();
            }
            let others_wait = !looked_at && end_group_for_others(membership.slot());
            match next_step(n, version, looked_at, query) {
                Step::Offer(tail) => {
                    offer(n, &tail);
                    let followed = follow_at_once(call, n, query, &tail);
                    return Some(
                        followed.unwrap_or_else(|| answer_updated(call, tail.tid, tail.xid)),
                    );
                }
                Step::Follow(tail) => {
                    if let Some(result) = follow(call, n, &tail) {
                        return Some(result);
                    }
                }
                Step::Await(tail) => {
                    if others_wait {
                        await_in_turn(call.rel, version, n, &tail);
                    } else {
                        await_tail(n, &tail);
                    }
                    if may_let_pass(&membership) && order::may_overtake_at(membership.slot()) {
                        dependency::drop_ticket(n);
                        return None;
                    }
                }
                Step::Ordinary => {
                    let looked_at = membership.offer().filter(|_| looked_at);
                    if membership.lent().is_some() {
                        await_lender(n);
                    } else if looked_at.is_some_and(|offer| !xact::has_committed(offer.xid)) {
                        return Some(start_again(call, n));
                    } else if looked_at.is_some() {
                        await_lender(n);
                    }
                    if may_let_pass(&membership) && order::may_overtake_at(membership.slot()) {
                        dependency::drop_ticket(n);
                        return None;
                    }
                    SESSION.step(n, Membership::goes_heaps_way);
                    return Some(ordinary_hot(call, n, query));
                }
            }
        }
    }
}

/// Whether the ticket can go back: the executor has nobody's version in its hands, and the row is
/// not locked.
fn may_let_pass(membership: &Membership) -> bool {
    !membership.is_pending() && !membership.has_locked()
}

/// Does with the offered version what the executor would do with it, and follows. This is only done
/// for a statement and a table so simple that we know what the executor would do. It saves the
/// executor a second copy of its plan (execMain.c: EvalPlanQualStart), while we have the ticket.
/// None: the executor is to look at the version by itself.
unsafe fn follow_at_once(
    call: Update,
    n: usize,
    query: usize,
    tail: &Tail,
) -> Option<TM_Result::Type> {
    // SAFETY: as in `tuple_update`; the statement runs.
    unsafe {
        if !key_of(call.rel)?.is_plain() {
            return None;
        }
        let update = evaluate::Update::of_query(query as *mut pg_sys::QueryDesc)?;
        if !update.has_new_row_in(call.slot) {
            return None;
        }
        let (mut found, page) = version_of(call.rel, tail.tid, tail.xid)?;
        // The triggers of foreign keys compare with the version with which the executor came.
        if !group::has_keys_of(call.rel, tuple::pack(&*call.otid), &mut found) {
            page.unpin();
            return None;
        }
        update.keep_version(found, page);
        if update.apply() != Applied::Changed {
            return None;
        }
        raw::GetCurrentTransactionId();
        match next_step(n, tail.tid, true, query) {
            Step::Follow(tail) => follow(call, n, &tail),
            // It is not to be followed any more, and may be changed again: let it end first.
            Step::Await(tail) => {
                await_tail(n, &tail);
                None
            }
            Step::Offer(_) | Step::Ordinary => None,
        }
    }
}

/// `TM_Updated`, and where the newer version is.
unsafe fn answer_updated(call: Update, version: u64, xid: u32) -> TM_Result::Type {
    // SAFETY: the executor's result arguments.
    unsafe {
        name_version(call.failure, version, xid);
        *call.lockmode = LockTupleMode::LockTupleNoKeyExclusive;
        *call.indexes = TU_UpdateIndexes::TU_None;
    }
    TM_Result::TM_Updated
}

/// The version that the executor looked at was rolled back. Nothing has been shown to anybody:
/// forget it, and let the executor start from the version with which it came first.
unsafe fn start_again(call: Update, n: usize) -> TM_Result::Type {
    refuse_if_shown(n);
    take_back_offer(membership_slot(n));
    SESSION.step(n, Membership::starts_again);
    memory().backends[process::me() as usize].forget(n);
    let origin = SESSION.get(n).and_then(|m| m.origin()).unwrap_or(0);
    // SAFETY: as in `tuple_update`.
    unsafe { answer_updated(call, origin, 0) }
}

/// The group update. None when the page does not allow it: the tail is awaited then.
unsafe fn follow(call: Update, n: usize, tail: &Tail) -> Option<TM_Result::Type> {
    let (me, slot) = (member_id(n), membership_slot(n));
    let xid = xact::writing_xid();
    SESSION.publish();
    let base = Base {
        version: tail.tid,
        xid: tail.xid,
    };
    SESSION.step(n, |m| m.reserves(base));
    stop::at(stop::Point::Reserved);
    // SAFETY: as in `tuple_update`; we have the ticket and the reservation.
    match unsafe { group::update(call.rel, call.slot, call.cid, &base) } {
        group::Outcome::Done(version, indexes) => {
            // SAFETY: the executor's result arguments.
            unsafe {
                *call.lockmode = LockTupleMode::LockTupleNoKeyExclusive;
                *call.indexes = indexes;
            }
            stop::at(stop::Point::PassingTicket);
            let (patience, now) = (patience(), process::now());
            let woken = memory().with_row(slot, |row, members| {
                row.publish(members, me, version);
                row.last_xid.set(xid);
                row.counters.updates.add(1);
                row.counters.followed.add(1);
                row.release(members, me, patience, now)
            });
            memory().totals.followed.add(1);
            if process::is_prepared(backend_of(tail.member)) {
                memory().totals.followed_prepared.add(1);
            }
            SESSION.step(n, |m| m.follows(version, xact::nest_level(), call.cid));
            if let Some(backend) = woken {
                wait::wake(backend);
            }
            order::has_come_to(slot);
            late_snapshot::note_built();
            stop::at(stop::Point::Updated);
            Some(TM_Result::TM_Ok)
        }
        group::Outcome::NotPossible => {
            if SESSION.get(n).is_some_and(|m| m.lent().is_some()) {
                // Our lock stays on the version: so does our place, or its writer could come to
                // wait for us.
                memory().with_row(slot, |row, members| row.step_back(members, me));
            } else {
                memory().with_row(slot, |row, members| row.withdraw(members, me));
            }
            SESSION.step(n, Membership::steps_back);
            memory().directory.rows[slot as usize].note_obstacle(Obstacle::Page);
            waiting::check_doomed();
            await_tail(n, tail);
            None
        }
    }
}

/// Heap's own update of a hot row. Then the ticket goes on, unless this transaction ends right
/// after.
unsafe fn ordinary_hot(call: Update, n: usize, query: usize) -> TM_Result::Type {
    // SAFETY: as in `tuple_update`.
    unsafe {
        let result = match combine::lead(call, membership_slot(n), query) {
            Some(result) => result,
            None => ordinary(call),
        };
        if result == TM_Result::TM_Ok {
            let version = tuple::pack(&(*call.slot).tts_tid);
            running::note_update();
            SESSION.step(n, |m| m.writes(version, xact::nest_level()));
            let keeps_keys = *call.lockmode != LockTupleMode::LockTupleExclusive;
            pass_ticket(call.rel, n, version, keeps_keys);
        } else if result == TM_Result::TM_Deleted {
            dependency::drop_ticket(n);
        }
        result
    }
}
