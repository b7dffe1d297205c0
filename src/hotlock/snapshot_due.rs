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

use super::dependent;
use super::errors;
use super::late_snapshot;
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
        unsafe { take((*query).snapshot) }
    }
}

/// Before all else that may read.
#[inline]
pub fn before_command() {
    if late_snapshot::is_wanted() {
        // SAFETY: none is named.
        unsafe { take(ptr::null_mut()) }
    }
}

/// # Safety
/// That of the statement that is about to start, or null.
#[cold]
unsafe fn take(of_statement: pg_sys::Snapshot) {
    // What runs within the first statement would read with the old one. (A statement that may build
    // on a later version calls nothing that reads.)
    if !late_snapshot::is_due() {
        errors::STALE_SNAPSHOT.raise();
    }
    dependent::let_predecessors_end();
    // SAFETY: the first statement has read one row, and has built on that row's last version.
    if !planted(Fault::EarlySnapshotKept) && !unsafe { snapshot::retake_late(of_statement) } {
        errors::STALE_SNAPSHOT.raise();
    }
    late_snapshot::forget();
}
