//! Taking a late snapshot (`late_snapshot.rs`). All that may read comes here first:
//!
//! - the transaction's second statement, when it is planned or starts;
//! - any command that reads;
//! - a function that the client calls outside of a statement.
//!
//! COMMIT does not.
//!
//! The predecessors end first. 40001 if one has rolled back, or if somebody has the old snapshot
//! and the new one would not be theirs.

use super::definitions;
use super::dependent;
use super::errors;
use super::late_snapshot;
use super::session::SESSION;
use crate::pg::snapshot;
use crate::shared::fault::{Fault, planted};
use pgrx::pg_sys;
use std::ptr;

/// Before a statement starts.
///
/// # Safety
/// `query` is what ExecutorStart is given.
#[inline]
pub unsafe fn before_start(query: *const pg_sys::QueryDesc) {
    if late_snapshot::is_wanted() {
        // SAFETY: the executor's query is about to be started, so its snapshot is null or valid.
        unsafe { take((*query).snapshot, true) }
    }
}

/// Before a statement is planned.
#[inline]
pub fn before_planning() {
    if late_snapshot::is_wanted() {
        // SAFETY: none is named.
        unsafe { take(ptr::null_mut(), true) }
    }
}

/// Before a command that may read.
///
/// # Safety
/// A utility statement's node.
#[inline]
pub unsafe fn before_utility(node: *const pg_sys::Node) {
    if late_snapshot::is_wanted() {
        // SAFETY: none is named; by the contract.
        unsafe { take(ptr::null_mut(), dependent::is_analyzed(node)) }
    }
}

/// Before a function that the client calls outside of a statement.
pub fn before_function() {
    if late_snapshot::is_wanted() {
        // SAFETY: none is named.
        unsafe { take(ptr::null_mut(), false) }
    }
}

/// `is_analyzed` says that the names in what comes next have been looked up already: with
/// definitions that the new snapshot must not know to have changed.
///
/// # Safety
/// That of the statement that is about to start, or null.
#[cold]
unsafe fn take(of_statement: pg_sys::Snapshot, is_analyzed: bool) {
    // What runs within the first statement would read with the old one. (A statement that may build
    // on a later version calls nothing that reads.)
    let Some(definitions) = late_snapshot::due_since() else {
        SESSION.refuse(&errors::STALE_SNAPSHOT);
    };
    let has_followed = SESSION.has_followed();
    if is_analyzed {
        definitions::note_analyzed();
    }
    // Refuses if definitions have changed meanwhile, for who has followed.
    dependent::let_predecessors_end();
    let may_be_old = is_analyzed && !has_followed && snapshot::definitions_now() != definitions;
    // SAFETY: the first statement has read one row, and has built on that row's last version.
    let is_taken = || unsafe { snapshot::retake_late(of_statement) };
    if may_be_old || !planted(Fault::EarlySnapshotKept) && !is_taken() {
        SESSION.refuse(&errors::STALE_SNAPSHOT);
    }
    late_snapshot::forget();
}
