//! Getting the ticket of a hot row.

use super::awake;
use super::deadlock;
use super::errors;
use super::gate;
use super::handover;
use super::order;
use super::running;
use super::session::{SESSION, member_id, memory, patience, waiters_patience};
use super::waiting::{self, Nap, Reason, Wait};
use crate::pg::process;
use crate::shared::stop;
use crate::shared::wait;
use hotrow::{Acquired, Identity, Member, Membership, Outcome, Slot, Trouble, backend_of};
use pgrx::pg_sys::{self, Oid};

/// How long a competitor stays awake, in microseconds: several single-statement transactions have
/// the ticket meanwhile.
const COMPETE_US: u64 = 500;

/// For how long a waiter looks again whether it closes a cycle with such a holder, before it is
/// refused, in microseconds.
const LOOK_AGAIN_US: u64 = 10_000;

/// Takes the ticket if it is free, without waiting. Returns the membership's number. If it is not
/// free, the row's gate may be ours even so, for `acquire`.
pub fn try_acquire(slot: Slot, identity: &Identity) -> Option<usize> {
    match request(slot, identity, Manner::AtOnce)? {
        Turn::Own(n) => Some(n),
        Turn::Done { .. } => None,
    }
}

/// Takes the ticket, waiting for it as long as need be. None when the row is not hot any more, or
/// this transaction is a member of too many: the caller goes PostgreSQL's ordinary way.
pub fn acquire(slot: Slot, identity: &Identity) -> Option<usize> {
    match acquire_turn(slot, identity)? {
        Turn::Own(n) => Some(n),
        Turn::Done { .. } => None,
    }
}

/// Takes the ticket as `acquire` does, and returns how the request ended.
pub fn acquire_turn(slot: Slot, identity: &Identity) -> Option<Turn> {
    request(slot, identity, Manner::Wait)
}

/// Takes the ticket, waiting for it as long as need be; others may do the packed update meanwhile
/// (combine.rs).
pub fn acquire_or_combine(slot: Slot, identity: &Identity) -> Option<Turn> {
    request(slot, identity, Manner::Combine)
}

/// How a request for the ticket ended.
#[derive(Clone, Copy)]
pub enum Turn {
    /// The ticket is ours: the membership's number.
    Own(usize),
    /// Another transaction has done our update, and committed it with a record that ends at
    /// `durable_at`.
    Done { rows: u32, durable_at: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    AtOnce,
    Wait,
    Combine,
}

/// Asks until the ticket is ours with all predecessors before us: one that had it may have given it
/// back meanwhile (by a savepoint, or because its statement changed nothing).
fn request(slot: Slot, identity: &Identity, manner: Manner) -> Option<Turn> {
    SESSION.idle_xid.set(0);
    if !gate::enter(slot, manner == Manner::AtOnce) {
        return None;
    }
    loop {
        order::let_pass_at(slot);
        match request_once(slot, identity, manner) {
            Some(Turn::Own(n)) if order::may_overtake_at(slot) => handover::leave(n),
            Some(turn) => {
                gate::pass(slot);
                return Some(turn);
            }
            None if manner == Manner::AtOnce => {}
            None => {
                gate::leave_if_alone();
                // The row is not what it was when the predecessors were let pass there.
                order::let_pass();
                return None;
            }
        }
        if manner == Manner::AtOnce {
            return None;
        }
    }
}

fn request_once(slot: Slot, identity: &Identity, manner: Manner) -> Option<Turn> {
    let Some(n) = SESSION.begin(slot, Oid::from(identity.relation)) else {
        memory().totals.fallbacks.add(1);
        return None;
    };
    let me = member_id(n);
    let has_waited = manner == Manner::Wait && running::await_brief_turn(slot);
    let (mut patience, now) = (waiters_patience(), process::now());
    if manner == Manner::Combine {
        // The longer it sleeps the likelier it is that somebody does its update.
        patience.competitors = 0;
    }
    let acquired = memory().with_row(slot, |row, members| {
        if !row.is(identity) {
            None
        } else if manner == Manner::AtOnce {
            row.acquire_now(me).then_some(Acquired::Granted)
        } else {
            let acquired = row.acquire(members, me, patience, now);
            if has_waited {
                row.contended_at.set(now);
            }
            if manner == Manner::Combine {
                row.offer(members, me);
            }
            Some(acquired)
        }
    });
    match acquired {
        None => {
            SESSION.end(n);
            return None;
        }
        Some(Acquired::Granted) => SESSION.step(n, Membership::granted),
        Some(waiting) => {
            SESSION.step(n, Membership::queued);
            let awake = waiting == Acquired::Competing;
            if let Some(done) = queue(n, slot, awake, manner == Manner::Combine) {
                SESSION.step(n, Membership::served);
                handover::leave(n);
                return Some(done);
            }
        }
    }
    memory().totals.tickets.add(1);
    awake::note();
    Some(Turn::Own(n))
}

/// Sleeps in the queue until the ticket is ours (None), or another transaction has done our update.
fn queue(n: usize, slot: Slot, mut awake: bool, mut offers: bool) -> Option<Turn> {
    let me = member_id(n);
    memory().totals.ticket_waits.add(1);
    let wait = Wait::begin(Reason::Ticket, slot);
    let own = &memory().members[me as usize];
    let declare =
        || memory().backends[process::me() as usize].wait(Some(hotrow::Wait::Ticket(slot)));
    let until = process::now() + LOOK_AGAIN_US;
    while !offers && deadlock::closes(declare) {
        if process::now() >= until || !may_be_given_back(slot) {
            refuse_cycle(Some(slot));
        }
        memory().backends[process::me() as usize].wait(None);
        wait::sleep(1, pg_sys::PG_WAIT_EXTENSION);
    }
    loop {
        if awake && compete(n, slot, offers) {
            break;
        }
        match await_outcome(own, &wait) {
            Outcome::Fulfilled { rows, durable_at } => {
                wait.finish_in_silence();
                return Some(Turn::Done { rows, durable_at });
            }
            Outcome::Refused => {
                offers = false;
                let (patience, now) = (waiters_patience(), process::now());
                match memory()
                    .with_row(slot, |row, members| row.enqueue(members, me, patience, now))
                {
                    Acquired::Granted => break,
                    acquired => awake = acquired == Acquired::Competing,
                }
                continue;
            }
            _ => {}
        }
        match memory().with_row(slot, |row, members| row.retry(members, me)) {
            Acquired::Granted => break,
            _ if own.outcome() != Outcome::Open => continue,
            _ => {}
        }
        awake = true;
        match wait.nap() {
            Nap::Over if offers && !process::is_interrupted() => {}
            Nap::Over => attend(n, slot, offers, waiting::check_doomed),
            Nap::Late => attend(n, slot, offers, || errors::WAIT_TIMEOUT.raise()),
            Nap::Long => attend(n, slot, offers, || enter_lock_manager(n, slot, &wait)),
        }
    }
    SESSION.step(n, Membership::granted);
    if own.was_granted() {
        memory().totals.direct_handovers.add(1);
    }
    let now = process::now();
    memory().with_row(slot, |row, _| row.note_handover(now));
    wait.finish();
    stop::at(stop::Point::TicketGiven);
    None
}

/// Whether the ticket is free, or its holder may see that it is ahead of a predecessor, and give it
/// back (order.rs).
fn may_be_given_back(slot: Slot) -> bool {
    let holder = memory().directory.rows[slot as usize].holder();
    holder.is_none_or(|holder| memory().backends[backend_of(holder) as usize].has_predecessor())
}

/// Does what may raise an ERROR, with our offer withdrawn: what has been adopted can only be waited
/// for.
fn attend(n: usize, slot: Slot, offers: bool, body: impl FnOnce()) {
    let me = member_id(n);
    if offers && !memory().with_row(slot, |row, members| row.withdraw_offer(members, me)) {
        return;
    }
    process::check_for_interrupts();
    body();
    if offers {
        memory().with_row(slot, |row, members| row.offer(members, me));
    }
}

/// Waits until an adopted update is done or refused. Abandons its adopter in two cases: there is a
/// reason to fail; the adopter waits for others, for so long that the deadlock detector should look
/// at it.
fn await_outcome(own: &Member, wait: &Wait) -> Outcome {
    // SAFETY: a plain read of a setting.
    let patience = unsafe { pg_sys::DeadlockTimeout }.max(1) as u64;
    let until = process::now() + patience * 1000;
    let adopter_waits = || {
        own.adopter()
            .is_some_and(|adopter| waiting::is_blocked(backend_of(adopter)))
    };
    while own.outcome() == Outcome::Adopted {
        let is_over = wait.is_late() || process::now() >= until && adopter_waits();
        if (process::is_to_fail() || is_over) && own.abandon() {
            process::check_for_interrupts();
            if wait.is_late() {
                errors::WAIT_TIMEOUT.raise();
            }
            return Outcome::Refused;
        }
        // Sealed, a session that is terminated stays until it knows the outcome, which comes at
        // once.
        if !process::is_to_fail() {
            process::absorb_interrupts();
        }
        wait::doze(wait.rest_or(patience.min(1000)), pg_sys::PG_WAIT_EXTENSION);
    }
    own.outcome()
}

/// Waits for the holder's transaction in the lock manager for a while.
fn enter_lock_manager(n: usize, slot: Slot, wait: &Wait) {
    let me = member_id(n);
    let holder = memory().with_row(slot, |row, members| {
        if row.enter_lock_manager(members, me) {
            row.holder().map(backend_of)
        } else {
            None
        }
    });
    if let Some(holder) = holder {
        wait.slice_in_lock_manager(|| waiting::await_process(holder));
    }
}

/// Stays awake for a moment to take the ticket when it is released, while the holder runs on
/// another processor. True when we have it.
fn compete(n: usize, slot: Slot, offers: bool) -> bool {
    let me = member_id(n);
    let (row, own) = (
        &memory().directory.rows[slot as usize],
        &memory().members[me as usize],
    );
    let until = process::now() + COMPETE_US;
    loop {
        if row.looks_takeable(me)
            && memory().with_row(slot, |row, members| row.compete(members, me))
        {
            return true;
        }
        if own.outcome() != Outcome::Open || row.is_away() {
            return false;
        }
        if row
            .holder()
            .is_some_and(|holder| !awake::runs_elsewhere(backend_of(holder)))
        {
            return false;
        }
        process::give_way();
        if process::now() >= until {
            return false;
        }
        if process::is_interrupted() {
            attend(n, slot, offers, || ());
        }
    }
}

/// Whether that wait of a transaction that has nothing but tickets would close a cycle. It is none
/// of its making: it should give way to those who wait for its ticket.
pub fn is_to_give_way(wait: hotrow::Wait) -> bool {
    let own = &memory().backends[process::me() as usize];
    let closes = deadlock::closes_with_ticket(|| own.wait(Some(wait)));
    if closes {
        own.wait(None);
    }
    closes
}

/// Gives the ticket of a membership that may queue again to those who wait for it, and queues.
pub fn give_way(n: usize) {
    let Some(held) = SESSION.get(n) else {
        return;
    };
    let (slot, me, patience, now) = (held.slot(), member_id(n), patience(), process::now());
    let woken = memory().with_row(slot, |row, members| row.release(members, me, patience, now));
    SESSION.step(n, Membership::queues_again);
    woken.into_iter().for_each(wait::wake);
    // Those who sleep in the lock manager are not woken.
    wait::sleep(1, pg_sys::PG_WAIT_EXTENSION);
    let patience = waiters_patience();
    let acquired = memory().with_row(slot, |row, members| row.enqueue(members, me, patience, now));
    if acquired != Acquired::Granted {
        queue(n, slot, acquired == Acquired::Competing, false);
    }
    SESSION.step(n, |_| held);
}

/// Refuses to close a cycle: 40P01, and the rows learn, if they are hot ones.
pub fn refuse_cycle(slot: Option<Slot>) -> ! {
    memory().totals.cycles.add(1);
    if let Some(slot) = slot
        && !gate::note_circle(slot)
    {
        handover::note_trouble(slot, Trouble::Cycle);
    }
    errors::CYCLE.raise()
}
