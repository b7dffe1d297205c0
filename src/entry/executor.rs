//! The hooks of the planner and of the executor: a statement starts, runs, finishes and ends.
//!
//! No frame here has anything to drop when the next hook or PostgreSQL's own function raises an
//! ERROR: it passes us by, and keeps its context and the names of constraint, table and column.

use super::idle::is_idle;
use super::part::{out_of_heap, watched};
use super::previous::previous;
use crate::geo;
use crate::hotlock::{
    by_key, dependency, dependent, error_visibility, readguard, snapshot_due, statement,
};
use crate::pg::error::{guarded, guarded_around};
use crate::pg::{nesting, of_transaction, plan, pre_lock_effects, raw};
use crate::range_occ;
use crate::tam::swap;
use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int};

pub unsafe extern "C-unwind" fn executor_start(query: *mut QueryDesc, eflags: c_int) {
    // SAFETY: the hook's arguments, of a query that has a plan; nothing here has a destructor.
    unsafe {
        if swap::heaps_own().is_some() {
            return out_of_heap(|| executor_start(query, eflags));
        }
        nesting::note_start();
        let runs = eflags & EXEC_FLAG_EXPLAIN_ONLY as c_int == 0;
        if runs {
            geo::others::note((*query).plannedstmt);
        }
        within(|| {
            if !runs || !is_idle() || !start_idle(query, eflags) {
                start_query(query, eflags, runs);
            }
        });
    }
}

/// Starts a statement of an idle transaction. False if it may come to a hot row.
#[inline]
unsafe fn start_idle(query: *mut QueryDesc, eflags: c_int) -> bool {
    // SAFETY: the hook's arguments.
    unsafe {
        let Some(concerned) = statement::before_idle_start(query) else {
            return false;
        };
        range_occ::session::uses_snapshot();
        geo::cut::before_start(query);
        start_plan(query, eflags);
        if concerned {
            statement::after_idle_start(query);
        } else if of_transaction::is_any_set() {
            // What the start has called has come to a hot row.
            statement::after_start(query, false);
        }
    }
    true
}

/// Starts the plan, and watches what it calls.
///
/// # Safety
/// The hook's arguments.
#[inline]
unsafe fn start_plan(query: *mut QueryDesc, eflags: c_int) {
    let next = previous().executor_start;
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let start = || unsafe { next.unwrap_or(raw::standard_ExecutorStart)(query, eflags) };
    // SAFETY: the hook's argument.
    let is_quiet = || unsafe { pre_lock_effects::starts_quietly((*query).plannedstmt) };
    // A right that is missing may be one that a predecessor has granted.
    if next.is_none() && !statement::is_watched() && is_quiet() {
        start();
    } else {
        watched(std::ptr::null(), start);
    }
}

#[inline]
unsafe fn start_query(query: *mut QueryDesc, eflags: c_int, runs: bool) {
    // SAFETY: the hook's arguments.
    unsafe {
        if !runs {
            return start_plan(query, eflags);
        }
        let is_first = range_occ::session::uses_snapshot();
        range_occ::guard::before_start(query, is_first);
        let certain = statement::before_start(query, is_first);
        geo::cut::before_start(query);
        start_plan(query, eflags);
        statement::after_start(query, certain);
    }
}

/// Planning calls functions, too, to make estimates.
pub unsafe extern "C-unwind" fn planner(
    parse: *mut Query,
    source: *const c_char,
    options: c_int,
    params: ParamListInfo,
) -> *mut PlannedStmt {
    let mut planned = std::ptr::null_mut();
    let options = guarded(|| range_occ::guard::planner_options(options));
    // SAFETY: the hook's argument.
    guarded(|| unsafe {
        snapshot_due::before_planning();
        dependent::before_planning(parse);
    });
    geo::cut::before_planning();
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let plan = || unsafe {
        planned =
            previous().planner.unwrap_or(raw::standard_planner)(parse, source, options, params)
    };
    watched(std::ptr::null(), || nesting::while_planning(plan));
    planned
}

pub unsafe extern "C-unwind" fn executor_run(
    query: *mut QueryDesc,
    direction: ScanDirection::Type,
    count: u64,
    once: bool,
) {
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let run = || unsafe {
        previous().executor_run.unwrap_or(raw::standard_ExecutorRun)(query, direction, count, once)
    };
    // SAFETY: the hook's arguments; nothing here has a destructor.
    unsafe {
        if swap::heaps_own().is_some() {
            return out_of_heap(|| executor_run(query, direction, count, once));
        }
        geo::last::note(query, count);
        within(|| run_query(query, direction, run));
    }
}

/// Runs a part of a statement. A function in it may come to hot rows.
#[inline]
unsafe fn run_query(query: *mut QueryDesc, direction: ScanDirection::Type, run: impl FnOnce()) {
    // SAFETY: the hook's arguments, started; nothing here has a destructor.
    unsafe {
        let part = dependent::Part::begin((*query).sourceText);
        let mut is_done = false;
        if is_idle() {
            swap::while_running(query as usize, || watched(query, run));
        } else if statement::before_run(query) {
            is_done = true;
        } else {
            let before = range_occ::existence::enter(query);
            range_occ::guard::routed(query, || {
                swap::while_running(query as usize, || watched(query, run));
            });
            range_occ::existence::leave(before);
        }
        if of_transaction::is_any_set() {
            has_run(query, direction, part);
        }
        if !is_done {
            readguard::note_read_by(query);
        }
    }
}

/// After a part of a statement has run.
unsafe fn has_run(query: *mut QueryDesc, direction: ScanDirection::Type, part: dependent::Part) {
    // SAFETY: the hook's arguments, of a query that has run.
    unsafe {
        if by_key::may_have_missed(query, direction) {
            watched(query, || guarded(|| by_key::look_again(query)));
        }
        // What comes next (triggers, the client) comes to other rows. A cursor that comes to the
        // row later takes its ticket then.
        dependency::drop_unused(query as usize);
        error_visibility::before_deferred();
        part.end();
        statement::has_run();
    }
}

pub unsafe extern "C-unwind" fn executor_finish(query: *mut QueryDesc) {
    // SAFETY: the hook's argument, started; nothing here has a destructor.
    unsafe {
        // If there is nothing to fire, nothing runs.
        if previous().executor_finish.is_none() && is_over((*query).estate) {
            nesting::within(|| raw::standard_ExecutorFinish(query));
        } else if swap::heaps_own().is_some() {
            out_of_heap(|| executor_finish(query));
        } else {
            within(|| finish_query(query));
        }
    }
}

/// Fires the statement's triggers, watches them, and takes note of those that are left to the
/// commit.
///
/// # Safety
/// The hook's argument. Nothing with a destructor is alive in the callers.
#[inline]
unsafe fn finish_plan(query: *mut QueryDesc) {
    let next = previous().executor_finish;
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let run = || unsafe { next.unwrap_or(raw::standard_ExecutorFinish)(query) };
    // SAFETY: the hook's argument, started.
    let (is_over, skips) = unsafe { (is_over((*query).estate), skips_triggers((*query).estate)) };
    if next.is_none() && skips {
        run();
    } else {
        // SAFETY: the hook's query has started; nothing here has a destructor.
        unsafe { range_occ::guard::routed(query, || watched(query, run)) };
    }
    if !is_over {
        // SAFETY: the hook's argument, finished.
        guarded(|| unsafe { error_visibility::note_deferred(query) });
    }
}

/// Whether the statement has no triggers to fire and no WITH to run to its end (execMain.c:
/// standard_ExecutorFinish). Triggers of tables that it does not write are only queued by its own.
#[inline]
unsafe fn is_over(estate: *const EState) -> bool {
    // SAFETY: that of a started query.
    unsafe { (*estate).es_auxmodifytables.is_null() && !plan::writes_with_triggers(estate) }
}

/// Whether the executor only leaves triggers to somebody else.
#[inline]
unsafe fn skips_triggers(estate: *const EState) -> bool {
    // SAFETY: that of a started query.
    unsafe {
        (*estate).es_auxmodifytables.is_null()
            && (*estate).es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS as c_int != 0
    }
}

#[inline]
unsafe fn finish_query(query: *mut QueryDesc) {
    // SAFETY: the hook's argument; nothing here has a destructor.
    unsafe {
        let part = dependent::Part::begin((*query).sourceText);
        finish_plan(query);
        if !(*(*query).estate).es_auxmodifytables.is_null() {
            // A WITH that nobody has read has come to its end just now.
            readguard::note_read_by(query);
        }
        if of_transaction::is_any_set() {
            error_visibility::before_deferred();
            part.end();
        }
    }
}

pub unsafe extern "C-unwind" fn executor_end(query: *mut QueryDesc) {
    // SAFETY: the hook's argument, started; the next hook in the chain, or PostgreSQL's own
    // function; nothing here has a destructor.
    unsafe {
        if swap::heaps_own().is_some() {
            return out_of_heap(|| executor_end(query));
        }
        geo::others::note_routed(query);
        within(|| {
            statement::end(query);
            if geo::others::are_written() {
                dependent::note_elsewhere();
            }
            previous().executor_end.unwrap_or(raw::standard_ExecutorEnd)(query)
        });
    }
}

/// Runs the body of a hook, a part of a statement. A panic in it becomes an ERROR.
#[inline]
fn within(body: impl FnOnce()) {
    nesting::within(|| guarded_around(body));
}
