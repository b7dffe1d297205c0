//! Statement hooks: before ExecutorStart, after it, before ExecutorRun, at ExecutorEnd.

pub use super::start::forget_queueing;

use super::awake;
use super::check;
use super::combine;
use super::definitions;
use super::dependency;
use super::dependent;
use super::detect;
use super::fk_check;
use super::front;
use super::handover;
use super::late_snapshot;
use super::predecessors;
use super::quietness;
use super::readguard;
use super::repeatable;
use super::session::{SESSION, is_enabled, memory};
use super::settings;
use super::snapshot_due;
use super::start::{self, Replaced};
use super::streaming;
use super::ticket::{self, Turn};
use super::waiting::{self, Reason};
use super::whole;
use crate::pg::plan;
use crate::pg::{nesting, nodes, of_transaction, plpgsql, process, raw, routing, snapshot, xact};
use crate::tam::swap;
use pgrx::pg_sys::{self, CmdType};

/// Before a statement of an idle transaction starts: whether it concerns us. None if it may come to
/// a hot row.
///
/// # Safety
/// `query` is what ExecutorStart is given.
#[inline]
pub unsafe fn before_idle_start(query: *mut pg_sys::QueryDesc) -> Option<bool> {
    // SAFETY: the executor's query is about to be started, so it has a plan.
    unsafe {
        if !settings::concern(query) {
            before_unconcerned(query);
            return Some(false);
        }
        if has_hot_rows() {
            return None;
        }
        plpgsql::watch();
        whole::note(query);
    }
    Some(true)
}

/// After a statement of an idle transaction has started that concerns us.
///
/// # Safety
/// ExecutorStart's argument, started.
pub unsafe fn after_idle_start(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the executor's query has started, so its relations are open.
    unsafe { front::put(query) }
}

/// Whether any row of the server is hot.
fn has_hot_rows() -> bool {
    memory().directory.used.get() > 0
}

/// Before a statement starts. Doomed transactions end here; members that read let their
/// predecessors end; an update of a hot row queues up. All of it is done with the snapshot let go.
/// Returns whether the statement is certain (fk_check.rs).
///
/// `is_first` says that the transaction has not used its snapshot before.
///
/// # Safety
/// `query` is what ExecutorStart is given.
pub unsafe fn before_start(query: *mut pg_sys::QueryDesc, is_first: bool) -> bool {
    check::forget_asking();
    fk_check::end(query);
    quietness::forget(query as usize);
    forget_queueing();
    // SAFETY: the executor's query is about to be started, so it has a plan and a snapshot.
    unsafe { snapshot_due::before_start(query) };
    let member = SESSION.is_member();
    let enabled = match member {
        true => is_enabled(),
        // SAFETY: the executor's query is about to be started, so it has a plan.
        false => unsafe { settings::concern(query) },
    };
    if enabled {
        plpgsql::watch();
    }
    // SAFETY: the executor's query is about to be started, so it has a plan and a snapshot.
    unsafe {
        if !member && !enabled {
            waiting::check_refused();
            before_unconcerned(query);
            return false;
        }
        waiting::check_doomed();
        if (*query).operation == CmdType::CMD_UPDATE && SESSION.is_to_update() {
            handover::come_back();
        }
        definitions::note_analyzed();
        if check::has_deferred() {
            check::before_inserts(query);
        }
        if (member || enabled && has_hot_rows()) && is_certain(query, member) {
            return true;
        }
        whole::note(query);
        awake::note();
        let target = match member || has_hot_rows() {
            true => start::target(query),
            false => None,
        };
        let mut replaced = Replaced::of(query);
        start::let_predecessors_end(&mut replaced, target.as_ref());
        if member && streaming::must_wait(query, target.as_ref()) {
            replaced.let_go();
            predecessors::wait(Reason::Stream);
        }
        if enabled && let Some(target) = target {
            start::queue(&mut replaced, target, is_first);
        }
        if member {
            start::let_inserts_go_first(&mut replaced);
        }
        replaced.finish();
        false
    }
}

/// Whether it is a foreign key's check whose answer is certain without a look (fk_check.rs).
///
/// # Safety
/// As for `before_start`.
unsafe fn is_certain(query: *mut pg_sys::QueryDesc, member: bool) -> bool {
    // SAFETY: the executor's query is about to be started, so it has a plan.
    unsafe {
        let Some(asked) = plan::existence(query) else {
            return false;
        };
        check::consider(query, &asked);
        let is_certain =
            member && fk_check::is_certain(query, &asked, |probe| after_start(probe, false));
        if is_certain {
            check::forget_asking();
        }
        is_certain
    }
}

/// Before a statement that has nothing to do with hot rows.
///
/// # Safety
/// As for `before_start`.
unsafe fn before_unconcerned(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the executor's query is about to be started, so it has a plan.
    unsafe {
        if plan::may_lock(query) {
            check::take_for(query);
            note_unconcerned(query);
        }
    }
}

/// Before a statement runs: one that may be combined with others queues up now. True when another
/// session has done it.
///
/// # Safety
/// `query` is what ExecutorRun is given, and has started.
pub unsafe fn before_run(query: *mut pg_sys::QueryDesc) -> bool {
    if fk_check::was_certain(query) {
        // SAFETY: by the contract; the query has started.
        unsafe { fk_check::answer(query) };
        return true;
    }
    // SAFETY: the executor's query has started.
    unsafe { dependent::before_run(query) };
    let queueing = start::takes_queueing(query as usize);
    // SAFETY: by the contract; the query has started.
    unsafe { repeatable::before_run(query) };
    let Some(identity) = queueing else {
        return false;
    };
    // SAFETY: by the contract; the query has started.
    unsafe {
        let Some(slot) = detect::find(&identity) else {
            let mut replaced = Replaced::of(query);
            start::let_pass(&mut replaced, &identity);
            replaced.finish();
            return false;
        };
        let watch = (*query).totaltime;
        if !watch.is_null() {
            raw::InstrStartNode(watch);
        }
        let mut replaced = Replaced::of(query);
        let definitions = snapshot::definitions();
        let how_to_queue = || match combine::pack(query) {
            true => ticket::acquire_or_combine,
            false => ticket::acquire_turn,
        };
        let turn = start::queue_early(&mut replaced, slot, &identity, how_to_queue);
        let done = match turn {
            Some(Turn::Done { rows, durable_at }) => {
                combine::report(query, rows);
                readguard::note_done(durable_at);
                replaced.finish_with_none();
                true
            }
            _ => {
                replaced.finish();
                combine::hear_of_changes();
                if turn.is_some() && !xact::is_read_committed() {
                    repeatable::queued(query, slot, definitions);
                }
                false
            }
        };
        if !watch.is_null() {
            raw::InstrStopNode(watch, 0.0);
        }
        done
    }
}

/// Whether a statement that now runs may come upon a version that is not committed, or not durable.
/// Which tables the functions will use that it calls, and with which settings, is not known before.
#[inline]
pub fn is_watched() -> bool {
    process::is_backend() && (late_snapshot::builds_on_last() || readguard::is_used())
}

/// After a statement has started: gets in front of the heap for the tables whose rows it changes or
/// locks.
///
/// # Safety
/// ExecutorStart's argument, started.
pub unsafe fn after_start(query: *mut pg_sys::QueryDesc, certain: bool) {
    if certain {
        return fk_check::note_certain(query);
    }
    // SAFETY: the executor's query has started, so its relations are open.
    unsafe {
        if SESSION.is_member() || check::has_deferred() || settings::concern(query) {
            front::put(query);
        }
    }
}

/// When a statement ends: what it read and wrote is noted, unused tickets go on, an offer that
/// ended in nothing makes this transaction a reader.
///
/// # Safety
/// ExecutorEnd's argument, before the executor's clean-up.
#[inline]
pub unsafe fn end(query: *mut pg_sys::QueryDesc) {
    if !combine::is_done() {
        // SAFETY: the executor's query has not been cleaned up yet.
        unsafe { readguard::note_statement(query) };
    }
    if of_transaction::is_any_set() {
        // SAFETY: by the contract.
        unsafe { end_of_any(query) };
    } else {
        swap::end_of_statement(query as usize);
        if whole::is(query) {
            whole::forget();
        }
    }
}

/// # Safety
/// As for `end`.
unsafe fn end_of_any(query: *mut pg_sys::QueryDesc) {
    forget_queueing();
    combine::end(query as usize);
    late_snapshot::end_of_statement(query as usize);
    fk_check::end(query);
    quietness::forget(query as usize);
    swap::end_of_statement(query as usize);
    routing::end_of_statement(query);
    dependency::drop_unused(query as usize);
    if whole::is(query) && !SESSION.is_member() {
        whole::forget();
    }
    // Last, because it may wait: the ticket that came to nothing has gone on.
    // SAFETY: the executor's query has not been cleaned up yet.
    unsafe { check::end_of_statement(query) };
}

/// A statement has run. The client's own settles what was read beside predecessors. If the client
/// has to send more, it keeps its tickets until then.
#[inline]
pub fn has_run() {
    if nesting::is_outermost() {
        dependent::settle();
    }
    if SESSION.is_member() && nesting::is_outermost() && xact::is_in_block() && !whole::is_running()
    {
        handover::go_away();
    }
}

/// Notes that a statement that does not concern us may lock rows of its tables.
///
/// # Safety
/// As for `settings::concern`.
unsafe fn note_unconcerned(query: *const pg_sys::QueryDesc) {
    if settings::exist() {
        // SAFETY: the caller's query has a plan, whose `relationOids` is a list of oids.
        unsafe { nodes::oids((*(*query).plannedstmt).relationOids) }
            .for_each(|relation| SESSION.note_locked_in(relation));
    } else {
        SESSION.note_locked_something();
    }
}
