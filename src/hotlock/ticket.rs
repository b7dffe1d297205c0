//! Getting the ticket of a hot row, and giving it back.

use super::circles;
use super::errors;
use super::session::{SESSION, member_id, memory, patience};
use super::waiting::{self, Reason, Wait};
use crate::pg::{raw, wait};
use hotrow::{Acquired, Identity, Slot, Trouble, actor_of};
use pgrx::pg_sys::{self, Oid};

/// How long a competitor stays awake, in microseconds: several turns of a single-statement transaction.
const COMPETE_US: u64 = 500;

/// Takes the ticket if it is free, without waiting. Returns the membership's number.
pub fn try_acquire(slot: Slot, identity: &Identity) -> Option<usize> {
    request(slot, identity, false)
}

/// Takes the ticket, waiting for it as long as need be. None when the row is not hot any more, or this transaction is a
/// member of too many: the caller goes PostgreSQL's ordinary way.
pub fn acquire(slot: Slot, identity: &Identity) -> Option<usize> {
    request(slot, identity, true)
}

fn request(slot: Slot, identity: &Identity, may_wait: bool) -> Option<usize> {
    let Some(n) = SESSION.begin(slot, Oid::from(identity.relation)) else {
        memory().totals.fallbacks.add(1);
        return None;
    };
    let me = member_id(n);
    let (patience, now) = (patience(), wait::now());
    let acquired = memory().with_row(slot, |row, world| {
        if !row.is(identity) {
            None
        } else if may_wait {
            Some(row.acquire(world, me, patience, now))
        } else {
            row.acquire_now(me).then_some(Acquired::Granted)
        }
    });
    match acquired {
        None => {
            SESSION.end(n);
            return None;
        }
        Some(Acquired::Granted) => SESSION.update(n, |m| m.ticket = true),
        Some(waiting) => {
            SESSION.update(n, |m| m.queued = true);
            queue(n, slot, waiting == Acquired::Competing);
        }
    }
    memory().totals.tickets.add(1);
    Some(n)
}

/// Sleeps in the queue until the ticket is ours.
fn queue(n: usize, slot: Slot, mut awake: bool) {
    let me = member_id(n);
    memory().totals.ticket_waits.add(1);
    let wait = Wait::begin(Reason::Ticket, slot);
    let row = &memory().directory.rows[slot as usize];
    if let Some(holder) = row.holder() {
        let own = &memory().actors[wait::me() as usize];
        if circles::closes(
            actor_of(holder),
            || own.wait(Some(hotrow::Wait::Ticket(slot))),
            || row.holder() == Some(holder),
        ) {
            refuse_cycle(slot);
        }
    }
    loop {
        if awake && compete(n, slot) {
            break;
        }
        if memory().with_row(slot, |row, world| row.retry(world, me)) == Acquired::Granted {
            break;
        }
        waiting::check_doomed();
        awake = true;
        if !wait.doze() {
            let holder = memory().with_row(slot, |row, world| {
                if row.go_deaf(world, me) {
                    row.holder().map(actor_of)
                } else {
                    None
                }
            });
            if let Some(holder) = holder {
                wait.slice_in_lock_manager(|| await_process(holder));
            }
        }
    }
    SESSION.update(n, |m| {
        m.queued = false;
        m.ticket = true;
    });
    if memory().members[me as usize].was_granted() {
        memory().totals.direct_handovers.add(1);
    }
    let now = wait::now();
    memory().with_row(slot, |row, _| row.note_handover(now));
    wait.finish();
}

/// Stays awake for a moment to take the ticket when it is released, giving way to whoever else can run. True when we
/// have it.
fn compete(n: usize, slot: Slot) -> bool {
    let me = member_id(n);
    let row = &memory().directory.rows[slot as usize];
    let until = wait::now() + COMPETE_US;
    loop {
        if row.looks_takeable(me) && memory().with_row(slot, |row, world| row.compete(world, me)) {
            return true;
        }
        wait::give_way();
        if wait::now() >= until {
            return false;
        }
        wait::check_for_interrupts();
    }
}

/// Waits until the present transaction of that process ends. Its ticket may be free earlier, so this is done in slices.
fn await_process(actor: u32) {
    // SAFETY: allProcs is an array of all processes; their ids are single words. A stale one is a transaction that has
    // ended, for which VirtualXactLock returns at once.
    unsafe {
        let proc = (*pg_sys::ProcGlobal).allProcs.add(actor as usize);
        let vxid = pg_sys::VirtualTransactionId {
            backendId: (*proc).backendId,
            localTransactionId: (*proc).lxid,
        };
        if vxid.localTransactionId == 0 || vxid.backendId <= 0 {
            wait::sleep(1, pg_sys::PG_WAIT_EXTENSION);
        } else {
            raw::VirtualXactLock(vxid, true);
        }
    }
}

/// Refuses to close a circle: 40P01, and the row learns.
pub fn refuse_cycle(slot: Slot) -> ! {
    memory().totals.cycles.add(1);
    note_trouble(slot, Trouble::Cycle);
    errors::CYCLE.raise()
}

/// Lets the row learn from trouble.
pub fn note_trouble(slot: Slot, trouble: Trouble) {
    let now = wait::now();
    if memory().with_row(slot, |row, _| row.trouble(trouble, now)) {
        memory().totals.backoffs.add(1);
    }
}

/// Gives the ticket back, or leaves the queue.
pub fn release(n: usize) {
    let Some(membership) = SESSION.get(n) else {
        return;
    };
    if !membership.ticket && !membership.queued {
        return;
    }
    let (me, patience, now) = (member_id(n), patience(), wait::now());
    let woken = memory().with_row(membership.slot, |row, world| {
        row.leave(world, me, patience, now)
    });
    SESSION.update(n, |m| {
        m.ticket = false;
        m.queued = false;
        m.unused_by = 0;
    });
    if let Some(actor) = woken {
        wait::wake(actor);
    }
}

/// Ends a membership that has neither version nor dependency.
pub fn leave(n: usize) {
    release(n);
    if let Some(membership) = SESSION.get(n) {
        memory().with_row(membership.slot, |row, world| {
            world.forgive(member_id(n));
            row.part();
        });
        memory().actors[wait::me() as usize].forget(n);
        SESSION.end(n);
    }
}
