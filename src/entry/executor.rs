//! The hooks of the planner and of the executor: a statement starts, runs, finishes and ends.
//!
//! No frame here has anything to drop when the next hook or PostgreSQL's own function raises an
//! ERROR: it passes us by, and keeps its context and the names of constraint, table and column.

use super::idle::is_idle;
use super::part::{as_usual, watched};
use super::previous::previous;
use crate::geo;
use crate::hotlock::{
    self, by_key, dependency, dependent, error_visibility, snapshot_due, statement,
};
use crate::pg::error::guarded;
use crate::pg::{nesting, plan, pre_lock_effects, raw};
use crate::range_occ;
use crate::tam::swap;
use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int};

pub unsafe extern "C-unwind" fn executor_start(query: *mut QueryDesc, eflags: c_int) {
    let runs = eflags & EXEC_FLAG_EXPLAIN_ONLY as c_int == 0;
    // SAFETY: the hook's argument.
    let writes = runs && unsafe { !(*(*query).plannedstmt).resultRelations.is_null() };
    if writes {
        // SAFETY: the hook's query has a plan.
        unsafe { geo::others::note((*query).plannedstmt) };
    }
    if runs && is_idle() {
        // SAFETY: the hook's arguments.
        nesting::within(|| unsafe {
            range_occ::session::uses_snapshot();
            statement::before_idle_start(query);
            geo::cut::before_start(query);
            start_plan(query, eflags);
        });
    } else {
        // SAFETY: the hook's arguments; nothing here has a destructor.
        unsafe { as_usual(|| start_query(query, eflags, runs)) }
    }
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
    if next.is_none() && unsafe { pre_lock_effects::starts_quietly((*query).plannedstmt) } {
        start();
    } else {
        watched(std::ptr::null(), start);
    }
}

unsafe fn start_query(query: *mut QueryDesc, eflags: c_int, runs: bool) {
    let is_first = runs && range_occ::session::uses_snapshot();
    if runs {
        // SAFETY: the hook's argument.
        guarded(|| unsafe { range_occ::guard::before_start(query, is_first) });
    }
    // SAFETY: the hook's argument.
    let certain = runs && guarded(|| unsafe { statement::before_start(query, is_first) });
    if runs {
        // SAFETY: the hook's argument.
        unsafe { geo::cut::before_start(query) };
    }
    // SAFETY: the hook's arguments.
    unsafe { start_plan(query, eflags) };
    if runs {
        // SAFETY: the hook's argument, started.
        guarded(|| unsafe { statement::after_start(query, certain) });
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
    // SAFETY: the hook's argument.
    unsafe { geo::last::note(query, count) };
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let run = || unsafe {
        previous().executor_run.unwrap_or(raw::standard_ExecutorRun)(query, direction, count, once)
    };
    if is_idle() {
        in_idle_session(|| watched(query, run));
    } else {
        // SAFETY: the hook's arguments; nothing here has a destructor.
        unsafe { as_usual(|| run_query(query, direction, run)) }
    }
}

/// Runs a part of a statement of an idle session. A function in it may come to hot rows.
#[inline]
fn in_idle_session(run: impl FnOnce()) {
    nesting::within(|| {
        let part = dependent::Part::begin_idle();
        run();
        if hotlock::is_in_hot_transaction() {
            guarded(|| {
                error_visibility::before_deferred();
                part.end();
            });
        }
    });
}

unsafe fn run_query(query: *mut QueryDesc, direction: ScanDirection::Type, run: impl FnOnce()) {
    // SAFETY: the hook's argument.
    let part = dependent::Part::begin(unsafe { (*query).sourceText });
    // SAFETY: the hook's argument.
    if !guarded(|| unsafe { statement::before_run(query) }) {
        // SAFETY: the hook's argument.
        let before = guarded(|| unsafe { range_occ::existence::enter(query) });
        // SAFETY: the hook's argument, started; nothing here has a destructor.
        unsafe {
            range_occ::guard::routed(query, || {
                swap::while_running(query as usize, || watched(query, run));
            });
        }
        range_occ::existence::leave(before);
    }
    // SAFETY: the hook's arguments.
    if guarded(|| unsafe { by_key::may_have_missed(query, direction) }) {
        // SAFETY: `may_have_missed` holds for this query, which has run.
        watched(query, || guarded(|| unsafe { by_key::look_again(query) }));
    }
    // What comes next (triggers, the client) comes to other rows. A cursor that comes to the row
    // later takes its ticket then.
    guarded(|| {
        dependency::drop_unused(query as usize);
        error_visibility::before_deferred();
        part.end();
        statement::has_run();
    });
}

pub unsafe extern "C-unwind" fn executor_finish(query: *mut QueryDesc) {
    if is_idle() {
        // SAFETY: the hook's argument.
        in_idle_session(|| unsafe { finish_plan(query) });
    } else {
        // SAFETY: the hook's arguments; nothing here has a destructor.
        unsafe { as_usual(|| finish_query(query)) }
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
    if next.is_none() && (is_over || skips) {
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

unsafe fn finish_query(query: *mut QueryDesc) {
    // SAFETY: the hook's argument.
    let part = dependent::Part::begin(unsafe { (*query).sourceText });
    // SAFETY: the hook's argument; nothing here has a destructor.
    unsafe { finish_plan(query) };
    guarded(|| {
        error_visibility::before_deferred();
        part.end();
    });
}

pub unsafe extern "C-unwind" fn executor_end(query: *mut QueryDesc) {
    // SAFETY: the hook's argument, started.
    unsafe { geo::others::note_routed(query) };
    let end = || {
        // SAFETY: the hook's argument.
        guarded(|| unsafe { statement::end(query) });
        // SAFETY: the next hook in the chain, or PostgreSQL's own function.
        unsafe { previous().executor_end.unwrap_or(raw::standard_ExecutorEnd)(query) }
    };
    // SAFETY: nothing here has a destructor.
    unsafe { as_usual(end) }
}
