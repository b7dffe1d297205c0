//! Transactions of REPEATABLE READ and SERIALIZABLE on a hot row.
//!
//! Such a transaction reads with one snapshot, and fails with 40001 when it comes to a row that
//! somebody has changed since. So it neither follows nor is followed. But if its first statement
//! updates or locks a hot row by its key, it queues before anything has been read: with the ticket,
//! and once all that run in the row's list have ended, it takes its snapshot again. The row is then
//! its own, and as the snapshot shows it, until it ends. Like any other on a hot row it becomes
//! visible before the flush.
//!
//! Later statements take the ticket only if nobody is there, for those who come next. Otherwise
//! they come to the row in stock PostgreSQL's way, which refuses at once what would be refused
//! after the queue.

use super::handover;
use super::prepared;
use super::session::{SESSION, memory, statement_of};
use super::settings::{self, TableMode, session_mode};
use super::tail;
use super::ticket;
use crate::pg::{fastpath, plan, snapshot, xact};
use crate::shared::guc;
use hotrow::{Identity, Slot};
use pgrx::pg_sys;
use std::sync::OnceLock;

/// Takes the snapshot of a statement that is about to start again.
pub type Retake = unsafe fn(*mut pg_sys::QueryDesc);

static RETAKE: OnceLock<Retake> = OnceLock::new();

/// Says how. Once, from `_PG_init`.
pub fn init(retake: Retake) {
    let _ = RETAKE.set(retake);
}

/// After a utility command: such a transaction may have begun, or have become one, that will want
/// to know what its snapshot has been used for.
pub fn after_utility() {
    let may_use = memory().lane.is_some()
        || session_mode() != TableMode::Off
        || !settings::is_known_to_have_none()
        || guc::is_on(&guc::RANGE_OCC);
    if may_use && (!xact::is_read_committed() || xact::is_strict_by_default()) {
        fastpath::watch();
    }
}

/// Before the first statement of such a transaction starts, on the hot row of that slot: queues, if
/// the snapshot can be taken again. A plan that may have become old meanwhile keeps the snapshot
/// that it was made with.
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn queue(query: *mut pg_sys::QueryDesc, slot: Slot, identity: &Identity) {
    // SAFETY: by the contract; nothing here has a destructor.
    unsafe {
        fastpath::watch();
        if xact::is_read_only() || !snapshot::is_retakeable(query) || !plan::is_allowed(query) {
            return;
        }
        let definitions = snapshot::definitions();
        let Some(n) = ticket::acquire(slot, identity) else {
            return;
        };
        SESSION.step(n, |m| m.claimed_by(statement_of(query as usize)));
        tail::await_list(slot);
        if snapshot::definitions_now() == definitions
            && let Some(retake) = RETAKE.get()
        {
            retake(query);
        }
    }
}

/// Takes the ticket if it is free and nobody runs in the row's list.
pub fn take_free(slot: Slot, identity: &Identity) -> Option<usize> {
    let is_empty = || {
        prepared::settle_in(slot);
        memory().directory.rows[slot as usize].listed() == 0
    };
    if !is_empty() {
        return None;
    }
    let n = ticket::try_acquire(slot, identity)?;
    // The ticket's last holder may be in the list by now.
    if !is_empty() {
        handover::leave(n);
        return None;
    }
    Some(n)
}
