//! A transaction that depends on a running predecessor runs only what cannot show, use or let out
//! what may still roll back.
//!
//! Everything else waits: the predecessors end first, and the statement gets a snapshot from after
//! their end. The rule is an allowlist. It has these entries, and a statement is on it only if all
//! that it evaluates is quiet (`pg/quiet/`):
//!
//! - `INSERT ... VALUES`: it reads nothing.
//! - `UPDATE` or a row lock by key of another row: it builds on that row's last version. For one
//!   that finds none see `by_key.rs`.
//! - A foreign key's check (`fk_check.rs`).
//! - With `follower_reads = validated`: a SELECT of tables that nobody writes (`reads.rs`).
//! - With `follower_reads = immediate`: any statement on tables that the transaction has not
//!   followed in. It sees those tables as they were before the predecessors' commits.
//!
//! The rule is asked wherever code is about to run: at the start of a statement and when a cursor
//! goes on; before a utility command; before planning. It is also asked before a PL/pgSQL statement
//! that comes by no executor hook. A function in another language comes by no hook between its
//! statements. So a nested statement that has followed lets its predecessors end before it returns.
//! It need not do so in a PL/pgSQL function, for whose next statement the rule is asked.
//!
//! A nested statement may have to read with a snapshot that its caller took before the predecessors
//! ended, and after this transaction had followed. It would see a row twice: the version before the
//! predecessor's, and its own. That is 40001.
//!
//! Effects outside the server happen in PRE_COMMIT callbacks of others (postgres_fdw commits its
//! remote transactions). The list of callbacks runs from the last registered to the first, so
//! `come_first` registers a wait anew after each part of a statement. A statement that one of them
//! runs itself, or a deferred trigger, counts as nested.

use super::check;
use super::commit;
use super::definitions;
use super::errors;
use super::handover;
use super::predecessors;
use super::quietness;
use super::read_wait;
use super::reads;
use super::session::{SESSION, memory, relation_of};
use super::settings;
use super::waiting::{self, Reason};
use crate::pg::local::Local;
use crate::pg::{nesting, plan, plpgsql, quiet, raw, snapshot, xact};
use crate::shared::guc::FollowerReads;
use hotrow::{MEMBERS, Trouble};
use pgrx::pg_sys::{self, Node, NodeTag, Oid, XactEvent};
use std::cell::Cell;
use std::ffi::{c_char, c_void};

/// Lets the predecessors end, if there are any. 40001 if one has rolled back.
pub fn let_predecessors_end() {
    if SESSION.is_dependent() {
        // Within an index's operation a page may be locked: the predecessor may want it, and nobody
        // could cancel the wait.
        // SAFETY: a global of this backend, which has one thread.
        if unsafe { pg_sys::InterruptHoldoffCount } > 0 {
            errors::CANNOT_WAIT.raise();
        }
        memory().totals.snapshot_waits.add(1);
        predecessors::wait(Reason::Read);
    }
    waiting::check_doomed();
}

/// After a statement of the client's: validates what was read beside the predecessors if they have
/// ended, before the commit does.
#[inline]
pub fn settle() {
    if reads::noted() > 0 && predecessors::have_ended() {
        let_predecessors_end();
    }
}

/// Before a statement of the client's, now and then in a long transaction: whether to let the
/// predecessors end because they have, so that definitions that anybody changes later refuse
/// nobody. (After a statement it would be too early for an error: a follower hears at its next
/// one.)
#[inline]
pub fn is_to_settle() -> bool {
    if !nesting::is_outermost() || !definitions::is_to_ask() {
        return false;
    }
    if !SESSION.is_dependent() {
        definitions::drop_dependency();
        return false;
    }
    predecessors::have_ended()
}

/// Whether a quiet statement may run beside the predecessors. `by_key` says that it comes to one
/// row only, by its key, and that it is not one of ours.
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn may_go_on(query: *const pg_sys::QueryDesc, by_key: bool) -> bool {
    // SAFETY: the caller's query is about to be started, so its plan's relations are locked.
    unsafe {
        quietness::is_quiet(query)
            && (by_key || plan::reads_nothing((*query).plannedstmt) || reads_other_tables(query))
    }
}

/// Whether `follower_reads = immediate` allows the statement: it touches no table that we have
/// followed in.
unsafe fn reads_other_tables(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: as in `may_go_on`.
    SESSION.all().all(|(_, m)| unsafe {
        m.seen().is_none()
            || settings::of(relation_of(&m)).follower_reads() == FollowerReads::Immediate
                && !touches(query, relation_of(&m))
    })
}

/// Whether the statement names that table, or may come to it without naming it.
unsafe fn touches(query: *const pg_sys::QueryDesc, relation: Oid) -> bool {
    // SAFETY: the plan's lists.
    unsafe {
        let plan = (*query).plannedstmt;
        raw::list_member_oid((*plan).relationOids, relation) || plan::is_partitioned(plan)
    }
}

/// 40001 if the snapshot shows our version of a row and not that the predecessor has ended.
///
/// # Safety
/// A snapshot, or null.
unsafe fn refuse_stale(snapshot: pg_sys::Snapshot) {
    // SAFETY: the caller's snapshot is null or valid.
    if let Some(membership) = unsafe { predecessors::finds_stale(snapshot) } {
        handover::note_trouble(membership.slot(), Trouble::OwnRow);
        SESSION.refuse(&errors::STALE_SNAPSHOT);
    }
}

/// Before a member's statement that must not run beside the predecessors reads with a snapshot that
/// could not be replaced.
///
/// # Safety
/// `query` is about to be started, and its predecessors have ended.
pub unsafe fn before_reading(query: *const pg_sys::QueryDesc) {
    // SAFETY: the caller's query is about to be started, so its snapshot is null or valid.
    unsafe { refuse_stale((*query).snapshot) }
}

/// Before a started statement runs, or a cursor goes on: other statements may have followed since
/// its start.
///
/// # Safety
/// `query` has started.
pub unsafe fn before_run(query: *const pg_sys::QueryDesc) {
    // SAFETY: the caller's query has started, so its plan's relations are locked.
    if SESSION.is_dependent() && !unsafe { quietness::is_quiet(query) } {
        let_predecessors_end();
    }
}

/// Before a procedure rolls back: its variables, which it keeps, must not have a value that was
/// never committed. A transaction that is refused for another reason may begin anew.
fn before_rollback() {
    if SESSION.is_dependent() {
        let_predecessors_end();
    }
    waiting::check_member();
}

/// What PL/pgSQL's plugin calls.
pub const HOOKS: plpgsql::Hooks = plpgsql::Hooks {
    let_predecessors_end,
    before_rollback,
    is_bound: || SESSION.is_dependent() || waiting::is_to_fail(),
    dependencies: || SESSION.dependencies.get(),
};

/// What is noted before a part of a statement.
#[derive(Clone, Copy)]
pub struct Part {
    dependencies: u64,
    /// The statement stands, word for word, in a PL/pgSQL function, whose next statement is asked
    /// for.
    is_direct: bool,
}

impl Part {
    #[inline]
    /// Before a part of a statement of that text, SPI's own copy if SPI runs it.
    pub fn begin(text: *const c_char) -> Self {
        Part {
            dependencies: SESSION.dependencies.get(),
            is_direct: !nesting::is_outermost() && plpgsql::runs_statement(text),
        }
    }

    /// After it: if it has followed, and goes back to code that is asked for nothing, its
    /// predecessors end first.
    #[inline]
    pub fn end(self) {
        // SAFETY: plain reads. Within an index's operation a page may be locked, and after an error
        // (ROLLBACK TO) nothing is read.
        let is_calm = || unsafe { pg_sys::InterruptHoldoffCount == 0 && raw::IsTransactionState() };
        if SESSION.is_member() && is_calm() {
            predecessors::restore_own();
        }
        if SESSION.is_dependent() {
            let has_followed = SESSION.dependencies.get() != self.dependencies;
            if has_followed && !nesting::is_outermost() && !self.is_direct {
                let_predecessors_end();
            }
        }
        if SESSION.is_dependent() || check::has_deferred() {
            come_first();
        }
    }
}

/// Before a query is planned: planning evaluates functions, for estimates and for good.
///
/// # Safety
/// `query` is what the planner is given.
pub unsafe fn before_planning(query: *mut pg_sys::Query) {
    definitions::note_analyzed();
    // SAFETY: the planner's query comes from the rewriter.
    if SESSION.is_dependent() && !unsafe { quiet::is_query_quiet(query) } {
        renew_snapshot();
    }
}

/// Lets the predecessors end, and takes the active snapshot anew if that is allowed.
fn renew_snapshot() {
    if !SESSION.is_dependent() {
        return;
    }
    let_predecessors_end();
    if snapshot::is_utility_replaceable() {
        // SAFETY: checked above.
        unsafe { snapshot::renew_for_utility() };
    }
}

/// Before a utility command that reads or calls something: predecessors end, and it gets a fresh
/// snapshot.
fn before_reading_utility() {
    renew_snapshot();
    // SAFETY: reads the stack of active snapshots.
    unsafe {
        if raw::ActiveSnapshotSet() {
            refuse_stale(raw::GetActiveSnapshot());
        }
    }
}

/// Whether a command has a statement in it that has been analyzed with it (analyze.c:
/// transformStmt).
///
/// # Safety
/// A utility statement's node.
pub unsafe fn is_analyzed(node: *const Node) -> bool {
    // SAFETY: by the contract.
    let tag = unsafe { (*node).type_ };
    matches!(
        tag,
        NodeTag::T_CreateTableAsStmt
            | NodeTag::T_DeclareCursorStmt
            | NodeTag::T_ExplainStmt
            | NodeTag::T_CallStmt
    )
}

/// Before a utility command: all wait but those that evaluate nothing, or run statements that are
/// asked for by themselves.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn before_utility(node: *const Node) {
    if !SESSION.has_followed() {
        return;
    }
    // SAFETY: the node is read as what its tag says.
    unsafe {
        if is_analyzed(node) {
            definitions::note_analyzed();
        }
        let goes_on = match (*node).type_ {
            // COMMIT and PREPARE TRANSACTION wait by themselves. (ROLLBACK needs not.)
            NodeTag::T_TransactionStmt
            | NodeTag::T_VariableSetStmt
            | NodeTag::T_VariableShowStmt
            | NodeTag::T_DeallocateStmt
            | NodeTag::T_FetchStmt
            | NodeTag::T_ClosePortalStmt
            | NodeTag::T_ListenStmt
            | NodeTag::T_NotifyStmt
            | NodeTag::T_UnlistenStmt => true,
            NodeTag::T_LockStmt => {
                if (*node.cast::<pg_sys::LockStmt>()).nowait {
                    let_locks_go();
                }
                true
            }
            NodeTag::T_CallStmt => quiet::is_call_quiet(node.cast()),
            NodeTag::T_DoStmt => quiet::is_block_watched(node.cast()),
            _ => false,
        };
        if !goes_on {
            before_reading_utility();
        }
    }
}

/// Before a lock is asked for that must be there at once: lets the predecessors end, and let go
/// what they have locked, which they do last.
fn let_locks_go() {
    let mut awaited = [0; MEMBERS];
    let predecessors = SESSION.all().filter_map(|(_, m)| m.predecessor());
    awaited
        .iter_mut()
        .zip(predecessors)
        .for_each(|(place, xid)| *place = xid);
    let_predecessors_end();
    awaited
        .into_iter()
        .filter(|&xid| xid != 0)
        .for_each(xact::wait_for_end);
}

/// The place of `before_others` in PostgreSQL's list of callbacks.
struct Callback {
    is_listed: Cell<bool>,
    /// The callbacks of a commit are being called, as far as is known: the list must stay as it is.
    is_called: Cell<bool>,
}
static CALLBACK: Local<Callback> = Local::new(Callback {
    is_listed: Cell::new(false),
    is_called: Cell::new(false),
});

/// PRE_COMMIT and PRE_PREPARE, ahead of everybody's else: see the top of the file. It leaves the
/// list at the end of the transaction.
unsafe extern "C-unwind" fn before_others(event: XactEvent::Type, _arg: *mut c_void) {
    if matches!(
        event,
        XactEvent::XACT_EVENT_PRE_COMMIT | XactEvent::XACT_EVENT_PRE_PREPARE
    ) {
        CALLBACK.is_called.set(true);
        crate::pg::error::guarded(commit::before_others);
    } else {
        CALLBACK.is_called.set(false);
        unlist();
    }
}

/// Takes `before_others` off the list.
fn unlist() {
    if CALLBACK.is_listed.replace(false) {
        // SAFETY: xact.c: a callback may take itself off while it is called; nobody else's is being
        // called otherwise.
        unsafe { raw::UnregisterXactCallback(Some(before_others), std::ptr::null_mut()) };
    }
}

/// The transaction has written to a foreign table that is told at the commit, before its own end.
pub fn note_elsewhere() {
    read_wait::note_elsewhere();
    if !come_first() {
        check::take();
        commit::wait_before_triggers();
        read_wait::before_elsewhere();
    }
}

/// Makes `before_others` the first callback that a commit calls. Others register theirs when they
/// are first used. False at the commit itself, which has no portal: callbacks may be being called,
/// and statements that follow there are nested ones.
fn come_first() -> bool {
    // SAFETY: a global of this backend, which has one thread.
    if CALLBACK.is_called.get() || unsafe { pg_sys::ActivePortal }.is_null() {
        return false;
    }
    unlist();
    // SAFETY: no callback is being called: a statement of the client's, or of a function, has just
    // run.
    unsafe { raw::RegisterXactCallback(Some(before_others), std::ptr::null_mut()) };
    CALLBACK.is_listed.set(true);
    true
}
