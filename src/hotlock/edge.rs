//! Waits for row locks, declared in the waits-for graph.

use super::deadlock;
use super::later_check;
use super::session::{SESSION, memory};
use super::ticket;
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

/// Declares that we are going to wait for that (sub)transaction's row lock. Returns what for.
///
/// # Errors
/// As of `declare`.
pub fn await_end(xid: u32) -> Wait {
    let wait = wait_for(xid);
    declare(wait);
    wait
}

/// Waits for that (sub)transaction's row lock; `body` does so in the lock manager. The row is to be
/// looked at again.
///
/// # Errors
/// As of `declare`.
pub fn await_holder(xid: u32, body: impl FnOnce(Wait)) {
    let wait = await_end(xid);
    later_check::with_ticket(|| body(wait));
    stop::at(stop::Point::HolderEnded);
    end_wait();
}

/// Does that wait in the lock manager; `end` waits for a transaction's end. Where a subtransaction
/// has been released, its parent is to be awaited: that is another wait, to be declared before.
pub fn sleep(wait: Wait, end: impl FnOnce()) {
    match wait {
        Wait::Subtransaction { xid, .. } => xact::wait_for_release(xid),
        _ => end(),
    }
}

/// The wait is over.
pub fn end_wait() {
    if SESSION.published.get() {
        memory().backends[process::me() as usize].wait(None);
    }
}

/// The wait for that (sub)transaction's row lock. One that has rolled back is awaited as itself, so
/// that `deadlock` knows it. It is not running before its lock is free.
pub fn wait_for(xid: u32) -> Wait {
    if hotrow::is_top(memory().backends, xid) {
        return Wait::Xid(xid);
    }
    let of = xact::top_of(xid);
    let is_for_top = of == xid || !xact::has_own_lock(xid);
    if is_for_top && xact::is_running(xid) {
        Wait::Xid(of)
    } else {
        Wait::Subtransaction { xid, of }
    }
}
