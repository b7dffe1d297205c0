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

/// Before a statement starts.
///
/// # Safety
/// `query` is what ExecutorStart is given.
#[inline]
pub unsafe fn before_start(query: *mut pg_sys::QueryDesc) {
    if late_snapshot::is_due() {
        // SAFETY: by the contract. The first statement has read one row, and has built on that
        // row's last version.
        take(|| unsafe { snapshot::retake_late(query) });
    }
}

/// Before all else that may read.
pub fn before_command() {
    if late_snapshot::is_due() {
        // SAFETY: the first statement has read one row, and has built on that row's last version.
        take(|| unsafe { snapshot::retake_late_for_command() });
    }
}

#[cold]
fn take(retake: impl FnOnce() -> bool) {
    dependent::let_predecessors_end();
    if !planted(Fault::EarlySnapshotKept) && !retake() {
        errors::STALE_SNAPSHOT.raise();
    }
    late_snapshot::forget();
}
