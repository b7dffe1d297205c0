//! Foreign tables of other wrappers: what is written there commits before we decide.

use super::failure::{Failure, NOT_SUPPORTED, guarded, raised};
use super::nodes;
use super::scan;
use crate::pg::local::Local;
use crate::pg::nodes::{nodes as nodes_of, nth, numbers};
use pgrx::pg_sys::{self, NodeTag, PlannedStmt, RangeTblEntry};
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
            let entry: *mut RangeTblEntry = nth((*plan).rtable, number as usize - 1);
            if (*entry).relkind as u8 != pg_sys::RELKIND_FOREIGN_TABLE {
                continue;
            }
            note_foreign((*entry).relid);
        }
    });
}

/// A foreign table is going to be written to.
fn note_foreign(table: pg_sys::Oid) {
    // SAFETY: a foreign table; its wrapper's callbacks.
    let is_ours = unsafe {
        let routine = pg_sys::GetFdwRoutineByRelId(table);
        let ours: unsafe extern "C-unwind" fn(_, _) = scan::begin;
        (*routine)
            .BeginForeignScan
            .is_some_and(|one| one as usize == ours as usize)
    };
    WRITTEN.set(WRITTEN.get() || !is_ours);
    if WRITTEN.get() && (is_ours || nodes::are_written()) {
        raised(Err(mixed()))
    }
}

/// COPY and TRUNCATE write, too.
///
/// # Safety
/// A utility statement's node.
pub unsafe fn note_utility(node: *mut pg_sys::Node) {
    // SAFETY: by the contract.
    guarded(|| unsafe {
        match (*node).type_ {
            NodeTag::T_CopyStmt => {
                let copy = node.cast::<pg_sys::CopyStmt>();
                if (*copy).is_from {
                    note_table((*copy).relation);
                }
            }
            NodeTag::T_TruncateStmt => {
                let truncate = node.cast::<pg_sys::TruncateStmt>();
                nodes_of((*truncate).relations).for_each(|one| note_table(one.cast()));
            }
            _ => {}
        }
    });
}

/// # Safety
/// The name of a table, or null.
unsafe fn note_table(name: *mut pg_sys::RangeVar) {
    // SAFETY: by the contract; catalog look-ups.
    unsafe {
        if name.is_null() {
            return;
        }
        let none = pg_sys::NoLock as i32;
        let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
        let table =
            pg_sys::RangeVarGetRelidExtended(name, none, missing_ok, None, std::ptr::null_mut());
        let kind = pg_sys::get_rel_relkind(table) as u8;
        if table != pg_sys::Oid::INVALID && kind == pg_sys::RELKIND_FOREIGN_TABLE {
            note_foreign(table);
        }
    }
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
