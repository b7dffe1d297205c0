//! What surrounds every part of a statement that PostgreSQL runs for a hook.

use crate::hotlock::{error_visibility, statement};
use crate::lane::reschedule;
use crate::pg::error::guarded;
use crate::pg::{catch, nesting};
use crate::range_occ;
use crate::tam::swap;
use pgrx::pg_sys::QueryDesc;

/// Runs a part of a statement with the table's own routine in place. A function of an index's
/// expression may run it, and have rewound its cursor before, which calls no hook: the plan has
/// then read with heap's routine.
///
/// # Safety
/// Nothing with a destructor is alive in `run` or its callers.
#[inline]
pub unsafe fn as_usual(run: impl FnOnce()) {
    // SAFETY: no frame above, up to the caller's, has a destructor that an ERROR would skip.
    nesting::within(|| unsafe { at_same_depth(run) })
}

/// Does that for a command that only runs another part of a client's own statement.
///
/// # Safety
/// As for `as_usual`.
#[inline]
pub unsafe fn at_same_depth(run: impl FnOnce()) {
    if swap::heaps_own().is_none() {
        return run();
    }
    // SAFETY: by the contract.
    unsafe { out_of_heap(run) }
}

/// Does that for what heap's own callback has called.
///
/// # Safety
/// As for `as_usual`; within heap's callback.
#[cold]
pub unsafe fn out_of_heap(run: impl FnOnce()) {
    note_untracked();
    // SAFETY: no frame above, up to the caller's, has a destructor that an ERROR would skip.
    unsafe { swap::as_usual(run) }
}

/// Within heap's callback anything may have been read of its relation.
pub fn note_untracked() {
    if let Some(rel) = swap::heaps_own() {
        // SAFETY: open as long as the callback is at work.
        unsafe { range_occ::session::note_untracked(rel) };
    }
}

/// Runs a part of a statement, with its `query` if it has one. An error in it that may come of
/// uncommitted data waits for the data's writers. One that may come of data that is not durable yet
/// waits until the data is durable.
pub fn watched(query: *const QueryDesc, run: impl FnOnce()) {
    // SAFETY: nothing here has a destructor; the query has been started and not ended.
    let waited_for = || unsafe {
        if statement::is_watched() {
            let failed = |code| error_visibility::failed(code, query);
            catch::catching(run, |code| guarded(|| failed(code)));
        } else {
            run();
        }
    };
    if reschedule::is_watching() {
        // An error may have become 40001 while it waited.
        // SAFETY: nothing here has a destructor.
        unsafe { catch::catching(waited_for, |code| guarded(|| reschedule::failed(code))) };
    } else {
        waited_for();
    }
}
