//! Transactions of REPEATABLE READ and SERIALIZABLE on a hot row.
//!
//! Such a transaction reads with one snapshot, and fails with 40001 when it comes to a row that
//! somebody has changed since. But if its first statement comes to a hot row by its key, nothing
//! has been read yet.
//!
//! - A simple UPDATE at REPEATABLE READ follows and is followed as at READ COMMITTED, and the
//!   snapshot is taken after it (`late_snapshot.rs`, `recheck.rs`). The transaction's next command
//!   lets the predecessors end first, and has the snapshot that it needs (`snapshot_due.rs`).
//! - All others queue: with the ticket, and once all that run in the row's list have ended, they
//!   take their snapshot again. The row is then their own, and as the snapshot shows it, until they
//!   end. SSI is among them: it orders transactions by their snapshots.
//!
//! Like any other on a hot row they become visible before the flush.
//!
//! Later statements take the ticket only if nobody is there, for those who come next. Otherwise
//! they come to the row in stock PostgreSQL's way, which refuses at once what would be refused
//! after the queue.

use super::handover;
use super::late_snapshot;
use super::prepared;
use super::quietness;
use super::session::{SESSION, memory, statement_of};
use super::settings;
use super::tail;
use super::ticket;
use crate::pg::plan::{self, Target};
use crate::pg::relation::key_of;
use crate::pg::{evaluate, pre_lock_effects, snapshot, triggers, xact};
use crate::shared::guc;
use crate::tam::swap;
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

/// Before the first statement of such a transaction starts, on the hot row of that slot: queues, if
/// the snapshot can be taken again. A plan that may have become old meanwhile keeps the snapshot
/// that it was made with.
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn queue(query: *mut pg_sys::QueryDesc, slot: Slot, identity: &Identity) {
    // SAFETY: by the contract; nothing here has a destructor.
    unsafe {
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

/// Whether the transaction's first statement may build on the last version of its row, with the
/// transaction's snapshot taken after it. It is noted then, and queues when it is about to run.
///
/// # Safety
/// `query` is about to be started and `target` is its target.
pub unsafe fn allow_late(query: *mut pg_sys::QueryDesc, target: &Target) -> bool {
    // SAFETY: by the contract; the query has a plan and a snapshot.
    unsafe {
        let is_allowed = (*query).operation == pg_sys::CmdType::CMD_UPDATE
            && !(*(*query).plannedstmt).hasReturning
            && !xact::is_serializable()
            && !xact::is_read_only()
            && xact::nest_level() == 1
            && !guc::is_on(&guc::RANGE_OCC)
            && !SESSION.is_member()
            && settings::of(pg_sys::Oid::from(target.identity.relation)).groups()
            && target.is_alone()
            && pre_lock_effects::starts_quietly((*query).plannedstmt)
            && snapshot::is_retakeable(query);
        if is_allowed {
            late_snapshot::allow(query as usize);
        }
        is_allowed
    }
}

/// Before such a statement runs: whether it may be late is asked once more, as it has started.
///
/// # Safety
/// `query` has started.
pub unsafe fn before_run(query: *mut pg_sys::QueryDesc) {
    // SAFETY: by the contract.
    if late_snapshot::is_allowed() && !unsafe { is_simple(query) } {
        late_snapshot::disallow();
    }
}

/// With the ticket of its row: takes the snapshot again. A late one is taken so that the scan finds
/// a version which is not much older than the last. Definitions are to be as they were before the
/// wait.
///
/// # Safety
/// `query` is the transaction's first statement, and has started.
pub unsafe fn queued(query: *mut pg_sys::QueryDesc, slot: Slot, definitions: u64) {
    if !late_snapshot::is_allowed() {
        tail::await_list(slot);
    }
    // SAFETY: by the contract and the checks.
    unsafe {
        if snapshot::definitions_now() == definitions
            && snapshot::is_retakeable(query)
            && let Some(retake) = RETAKE.get()
        {
            retake(query);
        }
    }
}

/// Whether `recheck.rs` can do for that statement what the executor does, and nothing of it reads
/// with the snapshot but the scan for the row: no function of users, and no trigger.
///
/// # Safety
/// `query` has started.
pub unsafe fn is_simple(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: by the contract; the statement's relation is open.
    unsafe {
        evaluate::Update::of_query(query).is_some_and(|update| {
            let rel = update.relation();
            key_of(rel).is_some_and(|key| key.is_plain())
                && !triggers::has_statement_triggers((*rel).trigdesc)
                && swap::usage(rel).is_some_and(|usage| usage.may_follow)
                && quietness::is_quiet(query)
        })
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
