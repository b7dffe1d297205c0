//! The tail of a hot row's list, on which an update builds or for which it waits: taking its
//! version, letting its transaction end.

use super::deadlock;
use super::definitions;
use super::edge;
use super::errors;
use super::later_check;
use super::predecessors;
use super::prepared;
use super::session::{SESSION, membership_slot, memory};
use super::ticket;
use super::waiting::{self, Reason, Wait};
use crate::pg::{process, raw, tuple, xact};
use crate::shared::{stop, wait};
use hotrow::{Membership, Slot, Tail, backend_of};
use pgrx::pg_sys;

/// From here on we have seen uncommitted data: whatever becomes of it, we commit only after its
/// writer. 40001 if the writer of what we have locked before has rolled back, and the list now ends
/// with another.
pub fn offer(n: usize, tail: &Tail) {
    let lender = SESSION.get(n).and_then(|m| m.predecessor());
    if lender.is_some_and(|xid| xid != tail.xid && !xact::has_committed(xid)) {
        refuse_if_shown(n);
    }
    let own = &memory().backends[process::me() as usize];
    let slot = membership_slot(n);
    if deadlock::closes_by_following(|| own.depend(n, backend_of(tail.member), tail.xid)) {
        own.forget(n);
        ticket::refuse_cycle(Some(slot));
    }
    // SAFETY: reads backend state.
    let command = unsafe { raw::GetCurrentCommandId(false) };
    SESSION.dependencies.set(SESSION.dependencies.get() + 1);
    definitions::follow();
    SESSION.step(n, |m| m.offered(tail.tid, tail.xid, command));
    stop::at(stop::Point::Offered);
}

/// Lets the tail's transaction end, in the lock manager. If it has been offered, we still depend on
/// it. It may run even so: somebody who waits for our ticket had to come first.
pub fn await_tail(n: usize, tail: &Tail) {
    await_end(n, tail, |wait, end| wait.in_lock_manager(end));
}

/// Lets all end that run in the row's list, of which we have the ticket: one after the other,
/// because those behind one that rolls back leave the list then.
pub fn await_list(slot: Slot) {
    let head = || memory().with_row(slot, |row, members| row.head(members));
    while let Some((_, xid, _)) = head() {
        if let Some((n, _)) = SESSION.in_row(slot)
            && must_give_way(n, xid)
        {
            ticket::give_way(n);
            continue;
        }
        let has_ended = await_transaction(slot, xid, |wait, end| wait.in_lock_manager(end));
        while has_ended && head().is_some_and(|(_, now, _)| now == xid) {
            prepared::settle_in(slot);
            wait::sleep(1, pg_sys::PG_WAIT_EXTENSION);
        }
    }
}

/// Waits for the tail's transaction as `await_tail` does, but behind the ordinary waiters, in the
/// order in which they came (heapam.c: heap_acquire_tuplock). An ordinary waiter holds the lock of
/// the version at which it waits: the one with which the executor came, or a later one. (One that
/// others may wait for does not, see `blocker.rs`: both are woken, and one is first.) If we have
/// locked the row already, these waiters wait for us, and we do not queue behind them.
///
/// # Safety
/// `rel` is open, and `version` is one that a scan of it has found.
pub unsafe fn await_in_turn(rel: pg_sys::Relation, version: u64, n: usize, tail: &Tail) {
    const MODE: pg_sys::LOCKMODE = pg_sys::ExclusiveLock as pg_sys::LOCKMODE;
    if SESSION
        .get(n)
        .is_some_and(|m| m.has_locked() || SESSION.has_locked_row_of(&m))
    {
        return await_tail(n, tail);
    }
    let versions = [version, tail.tid].map(tuple::unpack);
    await_end(n, tail, |wait, end| {
        // Each wait has what is left of the time.
        // SAFETY: the caller's relation is open. After an ERROR in a wait the abort releases the
        // locks.
        unsafe {
            for tid in &versions {
                wait.in_lock_manager(|| raw::LockTuple(rel, tid, MODE));
            }
            wait.in_lock_manager(end);
            versions
                .iter()
                .for_each(|tid| raw::UnlockTuple(rel, tid, MODE));
        }
    });
}

fn await_end(n: usize, tail: &Tail, lock_manager: impl FnOnce(&Wait, &dyn Fn())) {
    let slot = membership_slot(n);
    if must_give_way(n, tail.xid) {
        return ticket::give_way(n);
    }
    if await_transaction(slot, tail.xid, lock_manager) {
        settle(slot, tail);
    }
}

/// Whether a wait for that transaction with nothing but tickets would close a cycle. One that waits
/// for a ticket of ours is in it, and finds it when it has come to the row.
fn must_give_way(n: usize, xid: u32) -> bool {
    SESSION.get(n).is_some_and(|m| m.may_queue_again())
        && SESSION.has_only_tickets()
        && ticket::is_to_give_way(edge::wait_for(xid))
}

/// Lets a (sub)transaction of the row's list end. Whether it has. `lock_manager` is given the wait
/// in the lock manager, which is to be done under the wait's limits.
fn await_transaction(slot: Slot, xid: u32, lock_manager: impl FnOnce(&Wait, &dyn Fn())) -> bool {
    memory().totals.fallbacks.add(1);
    take_back_offer(slot);
    let own = &memory().backends[process::me() as usize];
    let awaited = edge::wait_for(xid);
    if deadlock::closes(|| own.wait(Some(awaited))) {
        ticket::refuse_cycle(Some(slot));
    }
    let wait = Wait::begin(Reason::Fallback, slot);
    let end = || edge::sleep(awaited, || xact::wait_for_end(xid));
    later_check::with_ticket(|| lock_manager(&wait, &end));
    wait.finish();
    waiting::check_doomed();
    !xact::is_running(xid)
}

/// The writer of the version that we were to look at may change it again.
pub fn take_back_offer(slot: Slot) {
    memory().with_row(slot, |row, _| row.take_back_tail());
}

/// Nothing has come of an offer, and nobody has seen it. What was locked before has been seen, and
/// stays a dependency.
pub fn forget_offer(n: usize) {
    take_back_offer(membership_slot(n));
    SESSION.step(n, Membership::offer_forgotten);
    if SESSION.get(n).is_some_and(|m| !m.has_locked()) {
        memory().backends[process::me() as usize].forget(n);
    }
}

/// The offered version was rolled back: 40001 if the transaction had locked it, because then its
/// client has seen it.
pub fn refuse_if_shown(n: usize) {
    if SESSION.get(n).is_some_and(|m| m.has_locked()) {
        errors::DOOMED.raise();
    }
}

/// The tail's transaction has ended; its session takes it off the list a moment after PostgreSQL's
/// own record says so.
fn settle(slot: Slot, tail: &Tail) {
    while memory().with_row(slot, |row, members| {
        row.tail(members)
            .is_some_and(|now| now.member == tail.member && now.xid == tail.xid)
    }) {
        prepared::settle_in(slot);
        wait::sleep(1, pg_sys::PG_WAIT_EXTENSION);
    }
}

/// Lets the transaction end whose version we have handed out. 40001 if it has rolled back.
pub fn await_lender(n: usize) {
    let slot = membership_slot(n);
    while let Some(tail) = memory().with_row(slot, |row, members| row.tail(members)) {
        await_tail(n, &tail);
    }
    // Prepared, it may have left the list, and runs.
    if let Some(membership) = SESSION.get(n).filter(Membership::depends) {
        predecessors::wait_on_row(n, &membership, Reason::Fallback);
    }
    // Others may update the version now: the executor is to be shown the last one, and not this
    // again.
    SESSION.step(n, Membership::hands_emptied);
}
