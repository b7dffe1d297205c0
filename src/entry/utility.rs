//! The hook of utility commands: transaction commands, COPY, CALL, DDL and all else that is not
//! planned.
//!
//! No frame here has anything to drop when the next hook or PostgreSQL's own function raises an
//! ERROR: it passes us by, and keeps its context and the names of constraint, table and column.

use super::idle::is_idle;
use super::part::{as_usual, at_same_depth, watched};
use super::previous::previous;
use super::transaction;
use crate::geo;
use crate::hotlock::{
    self, check, commit, definitions, dependent, error_visibility, prepared, read_wait, readguard,
    snapshot_due, statement, whole,
};
use crate::lane::{call, reschedule};
use crate::pg::error::guarded;
use crate::pg::{nesting, raw, utility, xact};
use crate::range_occ;
use crate::shared::stop;
use pgrx::pg_sys::*;
use std::cell::Cell;
use std::ffi::c_char;

pub unsafe extern "C-unwind" fn process_utility(
    statement: *mut PlannedStmt,
    source: *const c_char,
    read_only: bool,
    context: ProcessUtilityContext::Type,
    params: ParamListInfo,
    environment: *mut QueryEnvironment,
    destination: *mut DestReceiver,
    completion: *mut QueryCompletion,
) {
    let own = Cell::new(None);
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let execute = || unsafe {
        previous()
            .process_utility
            .unwrap_or(raw::standard_ProcessUtility)(
            own.get().unwrap_or(statement),
            source,
            read_only && own.get().is_none(),
            context,
            params,
            environment,
            destination,
            completion,
        )
    };
    nesting::note_start();
    // SAFETY: the hook's argument.
    let command = unsafe { Command::of(statement, context) };
    if command.transaction.is_some() && is_idle() {
        return nesting::within(|| command.run_when_idle(execute));
    }
    if command.is_code() {
        whole::note_start();
    }
    let run = || {
        let part = dependent::Part::begin(source);
        // SAFETY: the hook's argument.
        guarded(|| unsafe {
            statement::forget_queueing();
            if command.computes {
                snapshot_due::before_utility(command.node);
            }
            own.set(before_utility(statement, params, command.is_top_level));
        });
        command.run(part, execute);
    };
    // SAFETY: a utility statement's node; nothing here has a destructor.
    unsafe {
        if !is_clients_own(command.node, context) {
            as_usual(run);
        } else if (*command.node).type_ == NodeTag::T_FetchStmt {
            at_same_depth(|| nesting::while_fetching(run));
        } else {
            at_same_depth(run);
        }
    }
    nesting::note_start();
}

/// What is asked of a utility command before it runs: afterwards its node may be gone.
struct Command {
    node: *mut Node,
    is_top_level: bool,
    /// Of a message of several statements.
    is_first: bool,
    transaction: Option<TransactionStmtKind::Type>,
    /// It is one with AND CHAIN.
    chains: bool,
    computes: bool,
    /// A copy of rows, which may be kept without the end of the transaction: a dump.
    copies_out: bool,
}

impl Command {
    /// # Safety
    /// `statement` is what the hook is given.
    #[inline]
    unsafe fn of(statement: *const PlannedStmt, context: ProcessUtilityContext::Type) -> Self {
        // SAFETY: the hook's statement is a utility statement, so it has a node.
        unsafe {
            let node = (*statement).utilityStmt;
            Command {
                node,
                is_top_level: context == ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL,
                is_first: (*statement).stmt_location <= 0,
                transaction: transaction_command(node),
                chains: (*node).type_ == NodeTag::T_TransactionStmt
                    && (*node.cast::<TransactionStmt>()).chain,
                computes: computes(node),
                copies_out: (*node).type_ == NodeTag::T_CopyStmt
                    && !(*node.cast::<CopyStmt>()).is_from,
            }
        }
    }

    /// Whether it is a CALL or DO of the client's own.
    fn is_code(&self) -> bool {
        // SAFETY: a utility statement's node.
        let tag = unsafe { (*self.node).type_ };
        self.is_top_level && matches!(tag, NodeTag::T_CallStmt | NodeTag::T_DoStmt)
    }

    /// A transaction command of a session for which there is nothing else to do.
    #[inline]
    fn run_when_idle(&self, execute: impl FnOnce()) {
        let kind = self.transaction;
        range_occ::session::rolls_back_to(
            kind == Some(TransactionStmtKind::TRANS_STMT_ROLLBACK_TO),
        );
        if let Some(kind) = kind {
            guarded(|| before_transaction_command(kind));
        }
        execute();
        self.has_run();
    }

    fn run(&self, part: dependent::Part, execute: impl FnOnce()) {
        let node = self.node;
        // SAFETY: a utility statement's node.
        unsafe {
            geo::resolver::aside::before_utility(node);
            geo::others::note_utility(node);
            if self.computes {
                geo::cut::before_utility(node);
            } else {
                geo::cut::note_import(node);
            }
        }
        // SAFETY: a utility statement's node.
        let only_plans = unsafe { geo::cut::only_plans(node) };
        let execute = || match only_plans {
            true => nesting::while_planning(execute),
            false => execute(),
        };
        // SAFETY: a utility statement's node.
        let leaves_triggers = self.computes && !unsafe { runs_statements(node) };
        // SAFETY: as above; nothing here has a destructor.
        let run = || unsafe { range_occ::guard::copied(node, execute) };
        let is_top_level = self.is_top_level;
        // SAFETY: a utility statement's node.
        let exempt = guarded(|| unsafe { range_occ::guard::begin_exempt(node, is_top_level) });
        if self.computes {
            watched(std::ptr::null(), run);
        } else {
            run();
        }
        range_occ::redefined::end_utility();
        if exempt {
            range_occ::session::end_exempt();
        }
        guarded(|| {
            part.end();
            if geo::others::are_written() {
                dependent::note_elsewhere();
            }
            if self.copies_out {
                read_wait::before_answer();
            }
            if leaves_triggers {
                error_visibility::note_any_deferred();
            }
            if self.computes {
                error_visibility::before_deferred();
            }
        });
        self.has_run();
    }

    #[inline]
    fn has_run(&self) {
        if let Some(kind) = self.transaction {
            after_transaction_command(kind, self.is_first, self.chains);
        }
    }
}

/// Whether the command is the client's EXECUTE or FETCH, which runs a statement of the client's.
unsafe fn is_clients_own(node: *const Node, context: ProcessUtilityContext::Type) -> bool {
    // SAFETY: a utility statement's node.
    let tag = unsafe { (*node).type_ };
    context == ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL
        && matches!(tag, NodeTag::T_ExecuteStmt | NodeTag::T_FetchStmt)
}

/// Whether the command reads data or runs code of the user's, perhaps outside the executor.
unsafe fn computes(node: *const Node) -> bool {
    // SAFETY: a utility statement's node.
    let tag = unsafe { (*node).type_ };
    !matches!(
        tag,
        NodeTag::T_TransactionStmt
            | NodeTag::T_VariableSetStmt
            | NodeTag::T_VariableShowStmt
            | NodeTag::T_DeallocateStmt
            | NodeTag::T_ClosePortalStmt
            | NodeTag::T_LockStmt
            | NodeTag::T_ListenStmt
            | NodeTag::T_NotifyStmt
            | NodeTag::T_UnlistenStmt
            | NodeTag::T_DiscardStmt
    )
}

/// Whether it only runs statements that come by the executor's hooks.
unsafe fn runs_statements(node: *const Node) -> bool {
    // SAFETY: a utility statement's node.
    let tag = unsafe { (*node).type_ };
    matches!(
        tag,
        NodeTag::T_ExecuteStmt
            | NodeTag::T_FetchStmt
            | NodeTag::T_CallStmt
            | NodeTag::T_DoStmt
            | NodeTag::T_DeclareCursorStmt
            | NodeTag::T_ExplainStmt
            | NodeTag::T_PrepareStmt
            | NodeTag::T_ConstraintsSetStmt
    )
}

/// A transaction that is rolled back has told what it has read. So has one that has failed.
#[inline]
fn before_transaction_command(kind: TransactionStmtKind::Type) {
    use TransactionStmtKind::*;
    let is_rolled_back = match kind {
        TRANS_STMT_ROLLBACK => true,
        TRANS_STMT_COMMIT | TRANS_STMT_PREPARE => !xact::is_valid(),
        _ => false,
    };
    if is_rolled_back {
        // A failed one has no locks any more, if not only a savepoint has failed.
        let is_over = !xact::is_valid() && xact::nest_level() == 1;
        read_wait::before_rollback(is_over);
    }
}

/// A transaction command has been executed, which for COMMIT means: taken note of, so that an ERROR
/// ends the transaction. Deferred triggers run next, and what they say must not come from versions
/// that may still roll back. COMMIT PREPARED has ended one.
#[inline]
fn after_transaction_command(kind: TransactionStmtKind::Type, is_first: bool, chains: bool) {
    use TransactionStmtKind::*;
    if matches!(
        kind,
        TRANS_STMT_COMMIT | TRANS_STMT_PREPARE | TRANS_STMT_ROLLBACK
    ) {
        xact::note_end(kind != TRANS_STMT_ROLLBACK, chains);
        read_wait::at_end_of_block();
    }
    if matches!(kind, TRANS_STMT_BEGIN | TRANS_STMT_START) {
        let is_new = is_first && !xact::is_in_block();
        xact::note_begin();
        if is_new {
            guarded(reschedule::at_begin);
        }
    } else if matches!(kind, TRANS_STMT_COMMIT | TRANS_STMT_PREPARE) {
        transaction::watched(commit::wait_before_triggers);
        if error_visibility::has_deferred() && xact::may_fire_deferred() && statement::is_watched()
        {
            // SAFETY: what the commit itself does first (xact.c: CommitTransaction), as SET
            // CONSTRAINTS does in a command.
            watched(std::ptr::null(), || unsafe {
                raw::AfterTriggerFireDeferred()
            });
        }
    } else if matches!(
        kind,
        TRANS_STMT_COMMIT_PREPARED | TRANS_STMT_ROLLBACK_PREPARED
    ) {
        stop::at(stop::Point::PreparedEnded);
        guarded(prepared::settle_ended);
    }
}

/// The kind of a transaction command.
#[inline]
unsafe fn transaction_command(node: *const Node) -> Option<TransactionStmtKind::Type> {
    // SAFETY: a utility statement's node, read as what its tag says.
    unsafe {
        ((*node).type_ == NodeTag::T_TransactionStmt)
            .then(|| (*node.cast::<TransactionStmt>()).kind)
    }
}

/// Returns the command to run in place of this one, if it is another.
unsafe fn before_utility(
    command: *mut PlannedStmt,
    params: ParamListInfo,
    is_top_level: bool,
) -> Option<*mut PlannedStmt> {
    // SAFETY: a utility statement's node.
    unsafe {
        let node = (*command).utilityStmt;
        let is_call = is_top_level && (*node).type_ == NodeTag::T_CallStmt;
        let own = is_call.then(|| call::before(command, params)).flatten();
        before_any(node, is_top_level);
        own
    }
}

/// A utility command may do anything: it is taken to write untracked tables, unless it is one of
/// those that do not, or that run statements through the executor.
unsafe fn before_any(node: *mut Node, is_top_level: bool) {
    // SAFETY: a utility statement's node.
    unsafe {
        range_occ::guard::before_utility(node, is_top_level);
        dependent::before_utility(node);
        match (*node).type_ {
            NodeTag::T_TransactionStmt => {
                before_transaction_command((*node.cast::<TransactionStmt>()).kind);
                return;
            }
            NodeTag::T_ExecuteStmt
            | NodeTag::T_DeclareCursorStmt
            | NodeTag::T_VariableSetStmt
            | NodeTag::T_VariableShowStmt
            | NodeTag::T_PrepareStmt
            | NodeTag::T_DeallocateStmt
            | NodeTag::T_FetchStmt
            | NodeTag::T_ClosePortalStmt
            | NodeTag::T_CallStmt
            | NodeTag::T_DoStmt
            | NodeTag::T_ConstraintsSetStmt
            | NodeTag::T_LockStmt
            | NodeTag::T_ListenStmt
            | NodeTag::T_NotifyStmt
            | NodeTag::T_UnlistenStmt
            | NodeTag::T_DiscardStmt => {}
            NodeTag::T_ExplainStmt => {
                if utility::explains_creation(node.cast()) {
                    readguard::note_untracked();
                    definitions::note_change(false);
                }
            }
            NodeTag::T_CopyStmt => {
                let copy = node.cast::<CopyStmt>();
                if (*copy).is_from {
                    readguard::note_untracked();
                    check::take();
                } else {
                    note_copied(copy);
                }
            }
            _ => {
                readguard::note_untracked();
                check::take();
                if !utility::keeps_definitions(node) {
                    definitions::note_change(utility::concerns_roles(node));
                }
            }
        }
        hotlock::check_doomed();
    }
}

/// `COPY table TO` reads without the executor.
unsafe fn note_copied(copy: *const CopyStmt) {
    // SAFETY: a parsed COPY; a name that cannot be resolved is left to COPY to report.
    unsafe {
        if !(*copy).relation.is_null() {
            let missing_ok = RVROption::RVR_MISSING_OK;
            let relation = raw::RangeVarGetRelidExtended(
                (*copy).relation,
                NoLock as LOCKMODE,
                missing_ok,
                None,
                std::ptr::null_mut(),
            );
            if relation != Oid::INVALID {
                readguard::note_read(relation);
            }
        }
    }
}
