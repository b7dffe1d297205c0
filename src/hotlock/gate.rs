//! Rows that have been met in cycles of waits: transactions queue for a gate before they take the
//! first of these rows (`crates/hotrow/src/gate.rs`).
//!
//! Only a transaction that has nothing yet queues: no other one waits for it, so that the wait
//! closes no cycle. It queues for a limited time only, as the transaction that has the gate may be
//! idle, or may wait for something else. The gate spares cycles, and nothing depends on it.

use super::errors;
use super::handover;
use super::session::{SESSION, member_id, memory, waiters_patience};
use super::waiting::{Reason, Wait};
use super::whole;
use crate::pg::{process, xact};
use crate::shared::wait;
use hotrow::{Acquired, Identity, Membership, Slot};
use pgrx::pg_sys::{self, Oid};

/// The longest wait for a gate, in microseconds.
const LONGEST_WAIT: u64 = 1_000_000;

/// A wait for the row of that slot would have closed a cycle: it gets a gate together with the
/// rows that the transaction has. False if there is no other row, or no room for a gate.
pub fn note_circle(slot: Slot) -> bool {
    let rows = memory().directory.rows;
    let is_row = |slot: Slot| rows.get(slot as usize).filter(|row| !row.is_gate());
    let others = || SESSION.all().map(|(_, m)| m.slot()).filter(|&s| s != slot);
    let met = || [slot].into_iter().chain(others()).filter_map(is_row);
    if met().nth(1).is_none() {
        return false;
    }
    let known = met().map(|row| row.gate()).find(|&number| number != 0);
    let Some(number) = known.or_else(|| met().map(|row| row.mark()).next()) else {
        return false;
    };
    let Some(gate) = super::detect::place_of_gate(&identity_of(number)) else {
        return false;
    };
    rows[gate as usize].need(process::now());
    met().for_each(|row| row.put_behind(number));
    true
}

fn identity_of(number: u64) -> Identity {
    // SAFETY: a plain read; set once per process.
    Identity::gate(u32::from(unsafe { pg_sys::MyDatabaseId }), number)
}

/// Before the transaction takes the ticket of that row: takes its gate, if it has one and the
/// transaction has nothing yet. With `at_once` it does not wait. False if it would have had to.
pub fn enter(slot: Slot, at_once: bool) -> bool {
    let number = memory().directory.rows[slot as usize].gate();
    if number == 0
        || SESSION.is_member()
        || !SESSION.has_locked_nothing()
        || whole::is_running()
        || !xact::is_read_committed()
    {
        return true;
    }
    let identity = identity_of(number);
    let now = process::now();
    let gate = memory()
        .directory
        .find(&identity)
        .filter(|&gate| memory().directory.rows[gate as usize].is_needed(now));
    match gate {
        Some(gate) => take(gate, &identity, slot, at_once),
        None => {
            memory().directory.rows[slot as usize].put_behind(0);
            true
        }
    }
}

/// Takes the gate for the sake of that row.
fn take(gate: Slot, identity: &Identity, slot: Slot, at_once: bool) -> bool {
    let Some(n) = SESSION.begin(gate, Oid::from(identity.relation)) else {
        return true;
    };
    let (me, patience, now) = (member_id(n), waiters_patience(), process::now());
    let acquired = memory().with_row(gate, |row, members| {
        if !row.is(identity) {
            None
        } else if at_once {
            Some(row.acquire_now(me).then_some(Acquired::Granted))
        } else {
            Some(Some(row.acquire(members, me, patience, now)))
        }
    });
    match acquired {
        // It has gone away meanwhile.
        None => {
            SESSION.end(n);
            true
        }
        Some(None) => {
            SESSION.end(n);
            false
        }
        Some(Some(Acquired::Granted)) => {
            SESSION.step(n, Membership::granted);
            true
        }
        Some(Some(_)) => {
            SESSION.step(n, Membership::queued);
            if queue(n, gate, slot) {
                SESSION.step(n, Membership::granted);
            } else {
                handover::leave(n);
            }
            true
        }
    }
}

/// Sleeps in the gate's queue until the gate is ours; false after the longest wait.
fn queue(n: usize, gate: Slot, slot: Slot) -> bool {
    let me = member_id(n);
    let own = &memory().backends[process::me() as usize];
    memory().totals.ticket_waits.add(1);
    let wait = Wait::begin(Reason::Gate, slot);
    own.wait(Some(hotrow::Wait::Ticket(gate)));
    let until = process::now() + LONGEST_WAIT;
    let is_ours = loop {
        let acquired = memory().with_row(gate, |row, members| row.retry(members, me));
        let now = process::now();
        if acquired == Acquired::Granted || now >= until {
            break acquired == Acquired::Granted;
        }
        if wait.is_late() {
            errors::WAIT_TIMEOUT.raise();
        }
        let rest = (until - now).div_ceil(1000);
        wait::doze(wait.rest_or(rest), pg_sys::PG_WAIT_EXTENSION);
        process::check_for_interrupts();
    };
    own.wait(None);
    wait.finish();
    is_ours
}

/// Gives the gate back if the transaction has come to none of its rows.
pub fn leave_if_alone() {
    let mut all = SESSION.all();
    if let (Some((n, gate)), None) = (all.next(), all.next())
        && memory().directory.rows[gate.slot() as usize].is_gate()
    {
        handover::leave(n);
    }
}

/// The transaction has the ticket of that row. If it is the second one of its gate, the next
/// transaction may come.
pub fn pass(slot: Slot) {
    let rows = memory().directory.rows;
    let is_gate = |m: &Membership| rows[m.slot() as usize].is_gate();
    let Some((n, gate)) = SESSION.all().find(|(_, m)| is_gate(m)) else {
        return;
    };
    let number = rows[slot as usize].gate();
    let first = SESSION
        .all()
        .map(|(_, m)| m.slot())
        .find(|&first| first != slot && rows[first as usize].gate() == number);
    if let Some(first) = first.filter(|_| number != 0) {
        rows[gate.slot() as usize].pass(first, slot, process::now());
        handover::leave(n);
    }
}
