//! Foreign tables of other wrappers: what is written there commits before we decide.

use super::failure::{Failure, NOT_SUPPORTED, guarded, raised};
use super::nodes;
use super::scan;
use crate::pg::local::Local;
use crate::pg::nodes::{numbers, relation_of};
use pgrx::pg_sys::{self, PlannedStmt};
use std::cell::Cell;

/// Whether this transaction has written to such a table.
static WRITTEN: Local<Cell<bool>> = Local::new(Cell::new(false));

pub fn are_written() -> bool {
    WRITTEN.get()
}

/// The transaction has ended.
pub fn forget() {
    WRITTEN.set(false);
}

/// A statement starts: what it writes to must not be of both kinds, with what was written before.
/// (Rows that it routes to a partition of another wrapper are not seen.)
///
/// # Safety
/// Its plan.
pub unsafe fn note(plan: *const PlannedStmt) {
    // SAFETY: by the contract.
    guarded(|| unsafe {
        for number in numbers((*plan).resultRelations) {
            let table = relation_of(plan, number);
            if pg_sys::get_rel_relkind(table) as u8 != pg_sys::RELKIND_FOREIGN_TABLE {
                continue;
            }
            let routine = pg_sys::GetFdwRoutineByRelId(table);
            let ours: unsafe extern "C-unwind" fn(_, _) = scan::begin;
            let is_ours = (*routine)
                .BeginForeignScan
                .is_some_and(|one| one as usize == ours as usize);
            WRITTEN.set(WRITTEN.get() || !is_ours);
            if WRITTEN.get() && (is_ours || nodes::are_written()) {
                raised(Err(mixed()))
            }
        }
    });
}

/// Why a transaction must not go on that has written to both.
pub fn mixed() -> Failure {
    Failure::new(
        NOT_SUPPORTED,
        "cannot write to servers of txn_fdw and of another foreign data wrapper in one transaction",
    )
    .detail("The other ones commit before it is decided.")
    .hint("Give the other wrapper the handler txn.fdw_handler, or use two transactions.")
}
