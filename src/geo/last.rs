//! Whether the statement that runs is the last one of its transaction.

use crate::hotlock::error_visibility;
use crate::pg::local::Local;
use crate::pg::{frontend, nesting, raw, xact};
use crate::shared::guc::{self, GeoPrepare, is_on};
use pgrx::pg_sys::{EState, PlanState, QueryDesc};
use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::{null, null_mut};

/// The statement that runs, innermost: its state, and what the hook was given.
static RUNS: Local<Cell<(*const EState, *const QueryDesc)>> =
    Local::new(Cell::new((null(), null())));

/// Whether all of its rows are asked for.
static TO_ITS_END: Local<Cell<bool>> = Local::new(Cell::new(false));

/// A statement runs, for so many rows; 0: for all.
///
/// # Safety
/// `query` is what the hook is given.
#[inline]
pub unsafe fn note(query: *const QueryDesc, count: u64) {
    // SAFETY: the executor's query runs, so it has an executor state.
    RUNS.set((unsafe { (*query).estate }, query));
    TO_ITS_END.set(count == 0);
}

/// The state of that statement's plan, if it is the one that runs; null otherwise.
pub fn plan_state(estate: *const EState) -> *mut PlanState {
    let (runs, query) = RUNS.get();
    if runs != estate {
        return null_mut();
    }
    // SAFETY: the statement runs, so its description is there.
    unsafe { (*query).planstate }
}

/// Whether the statement of that state runs, and gives all of its rows.
pub fn runs_to_its_end(estate: *const EState) -> bool {
    RUNS.get().0 == estate && TO_ITS_END.get()
}

/// By which a statement's text says that it is the last one.
const MARK: &[u8] = b"/*+ txn.last */";

/// Whether the statement's text begins with the mark.
///
/// # Safety
/// The description of a statement that runs.
unsafe fn is_marked(query: *const QueryDesc) -> bool {
    // SAFETY: by the contract; the parser has told where in the text the statement is.
    unsafe {
        let (text, own) = ((*query).sourceText, (*query).plannedstmt);
        if text.is_null() || own.is_null() {
            return false;
        }
        let text = CStr::from_ptr(text).to_bytes();
        let own = text.get((*own).stmt_location.max(0) as usize..);
        own.is_some_and(|own| own.trim_ascii_start().starts_with(MARK))
    }
}

/// Whether nodes may prepare with this statement. It may be wrong: then the next statement at a
/// node is refused. Triggers that are left to the commit run after it, and may use nodes.
pub fn is_last(estate: *const EState) -> bool {
    let (runs, query) = RUNS.get();
    if guc::GEO_PREPARE.get() != GeoPrepare::Early
        || runs != estate
        || !nesting::is_outermost()
        || xact::nest_level() != 1
        || error_visibility::has_deferred()
    {
        return false;
    }
    // SAFETY: the statement of that state runs, so its description is there.
    unsafe {
        let is_in_block = raw::IsTransactionBlock();
        is_on(&guc::GEO_LAST)
            || is_marked(query)
            || !is_in_block && frontend::commits_next(query)
            || is_in_block && frontend::is_before_commit(query)
    }
}
