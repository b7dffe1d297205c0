//! Waits for row locks, declared in the waits-for graph.

use super::deadlock;
use super::session::{SESSION, memory};
use super::ticket;
use super::waiting;
use crate::pg::{process, xact};
use crate::shared::stop;
use hotrow::Wait;

/// Declares what we are going to wait for.
///
/// # Errors
/// 40P01 if the wait closes a cycle of transactions that have to do with hot rows, or have locked
/// others.
pub fn declare(wait: Wait) {
    let own = &memory().backends[process::me() as usize];
    if deadlock::closes(|| own.wait(Some(wait))) {
        ticket::refuse_cycle(SESSION.all().next().map(|(_, m)| m.slot()));
    }
}

/// Declares that we are going to wait for that transaction's row lock.
///
/// # Errors
/// As of `declare`.
pub fn await_end(xid: u32) {
    declare(wait_for(xid));
}

/// Waits for that transaction's row lock, by `wait` in the lock manager.
///
/// # Errors
/// As of `declare`.
pub fn await_holder(xid: u32, wait: impl FnOnce()) {
    await_end(xid);
    waiting::with_ticket(wait);
    stop::at(stop::Point::HolderEnded);
    end_wait();
}

/// The wait is over.
pub fn end_wait() {
    if SESSION.published.get() {
        memory().backends[process::me() as usize].wait(None);
    }
}

/// The wait for that (sub)transaction's row lock.
pub fn wait_for(xid: u32) -> Wait {
    match known_as(xid) {
        of if of == xid => Wait::Xid(xid),
        of => Wait::Subtransaction { xid, of },
    }
}

/// The id by which the waits-for graph knows that (sub)transaction. The writer of a version in a
/// row's list is known as such, and its rollback with it.
pub fn known_as(xid: u32) -> u32 {
    match hotrow::owner_of(memory().backends, xid) {
        Some(_) => xid,
        None => xact::top_of(xid),
    }
}
