//! The steps at the end of a transaction, in their order (xact.c).
//!
//! 1. COMMIT as a command: `commit::wait_before_triggers` (`utility.rs`). Predecessors end before
//!    deferred triggers fire.
//! 2. PRE_COMMIT, before the callbacks of others: `commit::before_others`. For a COMMIT without a
//!    command: others may commit elsewhere.
//! 3. PRE_COMMIT: `pre_commit`, below. The last place at which the transaction may fail.
//! 4. PostgreSQL writes the commit record and leaves the list of running transactions. An early
//!    commit has not been flushed yet.
//! 5. COMMIT: `committed`. Leaves the hot rows, so that the next transaction goes on.
//! 6. Locks are released: `after_locks`, below (`pg/release.rs`). Flush, synchronous standbys,
//!    results of combined updates; then nodes of a transaction over several servers are told.
//!
//! PREPARE goes the way of COMMIT, without an early end: PRE_PREPARE, the state file, PREPARE.

use super::part;
use crate::geo;
use crate::hotlock::commit::{self, End};
use crate::hotlock::{
    check, combine, definitions, error_visibility, fk_check, handover, is_in_hot_transaction,
    late_snapshot, quietness, read_wait, readguard, reads, statement, streaming, twice, whole,
};
use crate::lane::{admit, beyond, reschedule, respect, strict};
use crate::pg::catch::catching;
use crate::pg::error::{guarded, infallible};
use crate::pg::{functions, nesting, of_transaction, relation, routing, snapshot, xact};
use crate::range_occ;
use crate::shared::stop;
use crate::tam::swap;
use pgrx::pg_sys::*;
use std::ffi::c_void;

/// XACT_EVENT_PRE_COMMIT.
#[inline]
fn pre_commit() {
    if of_transaction::is_any_set() {
        return pre_commit_of_concerned();
    }
    check::close();
    geo::defer::close();
    read_wait::before_commit();
    range_occ::session::seal();
    reads::note_writes();
}

#[inline(never)]
fn pre_commit_of_concerned() {
    commit::take_deferred_locks();
    check::close();
    beyond::check_reads();
    let is_awaited = admit::about_to_end();
    let is_member = is_in_hot_transaction();
    let is_hot = is_member && commit::before_members_commit();
    if geo::has_written() {
        read_wait::note_elsewhere();
    }
    read_wait::before_commit();
    let early = (is_hot || is_awaited) && readguard::announce();
    geo::commit::vote(is_member || range_occ::session::is_validated());
    validate();
    handover::come_back();
    combine::seal(early);
    geo::commit::commit_single();
    if early {
        commit::make_asynchronous();
    }
}

/// XACT_EVENT_PRE_PREPARE.
#[inline(never)]
fn pre_prepare() {
    geo::commit::refuse_prepare();
    commit::take_deferred_locks();
    check::close();
    beyond::check_reads();
    if is_in_hot_transaction() {
        commit::before_members_prepare();
    }
    read_wait::before_prepare();
    validate();
}

/// The predecessors have ended. Fails with 40001 if what the transaction has read is not so any
/// more; then takes note of what it has written, for those who ask the same.
#[inline]
fn validate() {
    reads::validate();
    definitions::validate();
    // From here on nothing waits, and nothing is read or written.
    range_occ::commit::before_end();
    reads::note_writes();
    definitions::begin();
}

/// Runs a step that may fail. A refusal may be one that the client's next attempt is to know of.
#[inline]
pub fn watched(step: fn()) {
    if reschedule::is_watching() {
        // SAFETY: nothing here has a destructor.
        unsafe {
            catching(
                || guarded(step),
                |code| guarded(|| reschedule::failed(code)),
            )
        };
    } else {
        guarded(step);
    }
}

/// XACT_EVENT_COMMIT: the transaction is no longer running.
#[inline]
fn committed() {
    if of_transaction::is_any_set() || reschedule::remembers() {
        concerned_committed();
    } else {
        debug_assert!(has_nothing());
        read_wait::forget_reads();
        commit::end_ordinarily();
        any_ended(false);
    }
}

/// Whether the transaction has none of the state that is in other places than an `OfTransaction`.
fn has_nothing() -> bool {
    !is_in_hot_transaction()
        && !check::has_deferred()
        && reads::noted() == 0
        && !combine::is_adopting()
        && !admit::is_in()
        && !geo::is_used()
        && !range_occ::session::has_work()
        && !range_occ::session::is_expecting()
}

#[inline(never)]
fn concerned_committed() {
    stop::at(stop::Point::Committed);
    let end = commit::committed();
    readguard::settle(end);
    read_wait::forget_reads();
    combine::committed(end);
    geo::commit::committed();
    ended(End::Committed);
}

/// What a session does once the locks of a commit are released.
pub fn after_locks() {
    commit::after_locks();
    geo::commit::after_locks();
}

/// XACT_EVENT_PREPARE. Successors wait for the transaction id, which lives on.
#[inline(never)]
fn prepared() {
    admit::prepared();
    readguard::settle(0);
    read_wait::forget_reads();
    ended(End::Prepared);
}

/// XACT_EVENT_ABORT.
#[inline(never)]
fn rolled_back() {
    commit::restore_synchronous_commit();
    readguard::settle(0);
    read_wait::rolled_back();
    combine::rolled_back();
    range_occ::session::end_exempt();
    geo::commit::rolled_back();
    ended(End::RolledBack);
}

/// Leaves the hot rows, the lane, the running list of validated transactions, and whatever else
/// lasts for a transaction at most.
fn ended(end: End) {
    commit::end(end);
    admit::end();
    respect::end();
    strict::end();
    reschedule::end(end != End::RolledBack);
    routing::end_of_transaction();
    range_occ::transaction::end();
    check::forget();
    twice::forget();
    error_visibility::error_is_over();
    geo::cut::forget();
    geo::others::forget();
    handover::forget();
    late_snapshot::forget();
    statement::forget_queueing();
    fk_check::forget();
    quietness::forget_all();
    readguard::forget_untracked();
    read_wait::forget_elsewhere();
    reads::forget();
    combine::forget(end != End::RolledBack);
    error_visibility::forget_deferred();
    debug_assert!(of_transaction::are_all_clear() || commit::is_to_leave() || geo::is_used());
    of_transaction::forget();
    any_ended(end == End::RolledBack);
}

/// What all transactions leave behind.
#[inline]
fn any_ended(has_failed: bool) {
    check::open();
    swap::end_of_transaction();
    range_occ::session::end_any();
    geo::cut::forget_start();
    whole::transaction_ended();
    streaming::forget();
    readguard::forget();
    nesting::transaction_ended();
    relation::transaction_ended();
    functions::transaction_ended();
    xact::ended(has_failed);
}

unsafe extern "C-unwind" fn at_transaction_event(event: XactEvent::Type, _arg: *mut c_void) {
    match event {
        XactEvent::XACT_EVENT_PRE_COMMIT => watched(pre_commit),
        XactEvent::XACT_EVENT_COMMIT => infallible(committed),
        _ => at_rare_event(event),
    }
}

#[cold]
fn at_rare_event(event: XactEvent::Type) {
    match event {
        XactEvent::XACT_EVENT_PRE_PREPARE => watched(pre_prepare),
        XactEvent::XACT_EVENT_PREPARE => infallible(prepared),
        XactEvent::XACT_EVENT_ABORT => infallible(rolled_back),
        _ => {}
    }
}

unsafe extern "C-unwind" fn at_subtransaction_event(
    event: SubXactEvent::Type,
    own: SubTransactionId,
    parent: SubTransactionId,
    _arg: *mut c_void,
) {
    match event {
        SubXactEvent::SUBXACT_EVENT_START_SUB => {
            snapshot::note_subtransaction();
            nesting::note_subtransaction();
            range_occ::session::subtransaction_started();
        }
        SubXactEvent::SUBXACT_EVENT_ABORT_SUB => infallible(|| {
            nesting::subtransaction_rolled_back(xact::nest_level());
            respect::subtransaction_rolled_back();
            swap::abort_of_subtransaction(own);
            routing::abort_of_subtransaction(own);
            part::note_untracked();
            range_occ::transaction::subtransaction_rolled_back(xact::nest_level());
            commit::subtransaction_rolled_back(xact::nest_level());
            geo::commit::subtransaction_rolled_back(xact::nest_level());
        }),
        SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => infallible(|| {
            swap::commit_of_subtransaction(own, parent);
            routing::commit_of_subtransaction(own, parent);
            range_occ::session::subtransaction_committed(xact::nest_level());
            commit::subtransaction_committed(xact::nest_level());
            geo::commit::subtransaction_committed(xact::nest_level());
        }),
        _ => {}
    }
}

/// Registers the callbacks. Once, from `_PG_init`.
pub fn init() {
    // SAFETY: in the postmaster; the callbacks take what xact.c gives.
    unsafe {
        RegisterXactCallback(Some(at_transaction_event), std::ptr::null_mut());
        RegisterSubXactCallback(Some(at_subtransaction_event), std::ptr::null_mut());
    }
}
