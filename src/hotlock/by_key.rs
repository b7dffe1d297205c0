//! A follower's statement that comes to one row by its key runs beside the predecessors: what it finds it locks, and so it
//! builds on the row's last version. What it does not find may be what a predecessor has made of the row, which its snapshot
//! does not show: stock PostgreSQL's would. So a statement that has come to no row lets the predecessors end, and its scan is
//! asked once more with a snapshot from after that. Should the scan find a row now, the transaction is refused (40001).

use super::dependent;
use super::errors;
use super::session::SESSION;
use super::statement;
use super::ticket;
use crate::fault::{Fault, planted};
use crate::pg::plan;
use hotrow::Trouble;
use pgrx::pg_sys::{self, ScanDirection};
use std::cell::Cell;

/// The statement that runs so, as the address of its QueryDesc.
struct Ahead(Cell<usize>);
// SAFETY: a backend has one thread.
unsafe impl Sync for Ahead {}
static AHEAD: Ahead = Ahead(Cell::new(0));

/// The statement is going to run beside predecessors.
pub fn note(query: *const pg_sys::QueryDesc) {
    AHEAD.0.set(query as usize);
}

/// At the end of a statement, and before another one begins at the same place.
pub fn forget(query: *const pg_sys::QueryDesc) {
    if AHEAD.0.get() == query as usize {
        AHEAD.0.set(0);
    }
}

/// After a part of a statement has run: 40001 if it has missed a row.
///
/// # Safety
/// ExecutorRun's arguments; the statement has run.
pub unsafe fn after_run(query: *const pg_sys::QueryDesc, direction: ScanDirection::Type) {
    let is_asked =
        AHEAD.0.get() == query as usize && direction == ScanDirection::ForwardScanDirection;
    if !is_asked || planted(Fault::MissedRowsForgotten) {
        return;
    }
    // SAFETY: by the contract.
    unsafe {
        if (*(*query).estate).es_total_processed > 0 {
            return;
        }
        forget(query);
        statement::drop_unused(query as usize);
        dependent::let_predecessors_end();
        if plan::finds_a_row(query) {
            if let Some((_, membership)) = SESSION.all().find(|(_, m)| m.seen().is_some()) {
                ticket::note_trouble(membership.slot(), Trouble::OwnRow);
            }
            errors::STALE_SNAPSHOT.raise();
        }
    }
}
