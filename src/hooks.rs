//! The hooks and callbacks by which PostgreSQL calls us. Each is registered once, at load (but for one in `pg/release.rs`).
//!
//! No frame here has anything to drop when the next hook or PostgreSQL's own function raises an ERROR: it passes us by,
//! and keeps its context and the names of constraint, table and column.

use crate::hotlock::{
    self, by_key, check, commit, definitions, dependency, dependent, error_visibility, readguard,
    repeatable, statement,
};
use crate::idle::is_idle;
use crate::pg::error::{guarded, infallible};
use crate::pg::{
    catch, fastpath, nesting, plan, pre_lock_effects, raw, relation, shmem, snapshot, utility, xact,
};
use crate::range_occ;
use crate::tam::swap;
use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// The hooks that were there before us.
struct Previous {
    shmem_request: shmem_request_hook_type,
    shmem_startup: shmem_startup_hook_type,
    executor_start: ExecutorStart_hook_type,
    executor_run: ExecutorRun_hook_type,
    executor_finish: ExecutorFinish_hook_type,
    executor_end: ExecutorEnd_hook_type,
    process_utility: ProcessUtility_hook_type,
    planner: planner_hook_type,
    client_authentication: Option<unsafe extern "C-unwind" fn(*mut Port, c_int)>,
}

static PREVIOUS: OnceLock<Previous> = OnceLock::new();

fn previous() -> &'static Previous {
    match PREVIOUS.get() {
        Some(previous) => previous,
        None => std::process::abort(),
    }
}

unsafe extern "C-unwind" fn shmem_request() {
    // SAFETY: the next hook in the chain.
    unsafe {
        if let Some(next) = previous().shmem_request {
            next();
        }
    }
    guarded(shmem::request);
}

unsafe extern "C-unwind" fn shmem_startup() {
    // SAFETY: the next hook in the chain.
    unsafe {
        if let Some(next) = previous().shmem_startup {
            next();
        }
    }
    guarded(shmem::startup);
}

/// The first thing that every session does.
unsafe extern "C-unwind" fn client_authentication(port: *mut Port, status: c_int) {
    // SAFETY: the next hook in the chain.
    unsafe {
        if let Some(next) = previous().client_authentication {
            next(port, status);
        }
    }
    guarded(range_occ::session::start_clock);
}

/// Runs a part of a statement with the table's own routine in place. A function of an index's expression may run it, and have rewound its cursor before, which
/// calls no hook: the plan has then read with heap's routine.
///
/// # Safety
/// Nothing with a destructor is alive in `run` or its callers.
#[inline]
unsafe fn as_usual(run: impl FnOnce()) {
    // SAFETY: by the contract.
    nesting::within(|| unsafe { at_same_depth(run) })
}

/// The same, for a command that only runs another part of a client's own statement.
///
/// # Safety
/// As for `as_usual`.
#[inline]
unsafe fn at_same_depth(run: impl FnOnce()) {
    if swap::heaps_own().is_none() {
        return run();
    }
    note_untracked();
    // SAFETY: by the contract.
    unsafe { swap::as_usual(run) }
}

/// Within heap's callback anything may have been read of its relation.
fn note_untracked() {
    if let Some(rel) = swap::heaps_own() {
        // SAFETY: open as long as the callback is at work.
        unsafe { range_occ::session::note_untracked(rel) };
    }
}

unsafe extern "C-unwind" fn executor_start(query: *mut QueryDesc, eflags: c_int) {
    let runs = eflags & EXEC_FLAG_EXPLAIN_ONLY as c_int == 0;
    if runs && is_idle() {
        // SAFETY: the hook's arguments.
        nesting::within(|| unsafe {
            range_occ::session::uses_snapshot();
            statement::before_idle_start(query);
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
    // SAFETY: the hook's arguments.
    unsafe { start_plan(query, eflags) };
    if runs {
        // SAFETY: the hook's argument, started.
        guarded(|| unsafe { statement::after_start(query, certain) });
    }
}

/// Planning calls functions, too, to make estimates.
unsafe extern "C-unwind" fn planner(
    parse: *mut Query,
    source: *const c_char,
    options: c_int,
    params: ParamListInfo,
) -> *mut PlannedStmt {
    let mut planned = std::ptr::null_mut();
    let options = guarded(|| range_occ::guard::planner_options(options));
    // SAFETY: the hook's argument.
    guarded(|| unsafe { dependent::before_planning(parse) });
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let plan = || unsafe {
        planned =
            previous().planner.unwrap_or(raw::standard_planner)(parse, source, options, params)
    };
    watched(std::ptr::null(), || nesting::while_planning(plan));
    planned
}

/// Runs a part of a statement, whose query it is if it has one. An error in it that may come of uncommitted data waits for
/// its writers, and one that may come of data that is not durable yet until it is.
fn watched(query: *const QueryDesc, run: impl FnOnce()) {
    if statement::is_watched() {
        // SAFETY: nothing here has a destructor; the query has been started and not ended.
        unsafe {
            catch::catching(run, |code| {
                guarded(|| error_visibility::failed(code, query))
            })
        };
    } else {
        run();
    }
}

unsafe extern "C-unwind" fn executor_run(
    query: *mut QueryDesc,
    direction: ScanDirection::Type,
    count: u64,
    once: bool,
) {
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
        // SAFETY: as above.
        watched(query, || guarded(|| unsafe { by_key::look_again(query) }));
    }
    // What comes next (triggers, the client) comes to other rows. A cursor that comes to the row later takes its ticket then.
    guarded(|| {
        dependency::drop_unused(query as usize);
        error_visibility::before_deferred();
        part.end();
        statement::has_run();
    });
}

unsafe extern "C-unwind" fn executor_finish(query: *mut QueryDesc) {
    if is_idle() {
        // SAFETY: the hook's argument.
        in_idle_session(|| unsafe { finish_plan(query) });
    } else {
        // SAFETY: the hook's arguments; nothing here has a destructor.
        unsafe { as_usual(|| finish_query(query)) }
    }
}

/// Fires the statement's triggers, watches them, and takes note of those that are left to the commit.
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
        // SAFETY: by the contract.
        unsafe { range_occ::guard::routed(query, || watched(query, run)) };
    }
    if !is_over {
        // SAFETY: the hook's argument, finished.
        guarded(|| unsafe { error_visibility::note_deferred(query) });
    }
}

/// Whether the statement has no triggers to fire and no WITH to run to its end (execMain.c: standard_ExecutorFinish). Triggers of
/// tables that it does not write are only queued by its own.
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

unsafe extern "C-unwind" fn executor_end(query: *mut QueryDesc) {
    let end = || {
        // SAFETY: the hook's argument.
        guarded(|| unsafe { statement::end(query) });
        // SAFETY: the next hook in the chain, or PostgreSQL's own function.
        unsafe { previous().executor_end.unwrap_or(raw::standard_ExecutorEnd)(query) }
    };
    // SAFETY: nothing here has a destructor.
    unsafe { as_usual(end) }
}

unsafe extern "C-unwind" fn process_utility(
    statement: *mut PlannedStmt,
    source: *const c_char,
    read_only: bool,
    context: ProcessUtilityContext::Type,
    params: ParamListInfo,
    environment: *mut QueryEnvironment,
    destination: *mut DestReceiver,
    completion: *mut QueryCompletion,
) {
    // SAFETY: the next hook in the chain, or PostgreSQL's own function.
    let execute = || unsafe {
        previous()
            .process_utility
            .unwrap_or(raw::standard_ProcessUtility)(
            statement,
            source,
            read_only,
            context,
            params,
            environment,
            destination,
            completion,
        )
    };
    // SAFETY: the hook's argument.
    if let Some(kind) = unsafe { transaction_command((*statement).utilityStmt) }
        && is_idle()
    {
        return nesting::within(|| {
            range_occ::session::rolls_back_to(kind == TransactionStmtKind::TRANS_STMT_ROLLBACK_TO);
            execute();
            after_transaction_command(kind);
        });
    }
    let run = || {
        let part = dependent::Part::begin(source);
        // SAFETY: the hook's argument.
        let is_top_level = context == ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL;
        // SAFETY: the hook's argument.
        guarded(|| unsafe { before_utility(statement, is_top_level) });
        // Looked at before it runs: afterwards the statement may be gone.
        // SAFETY: the hook's argument.
        let node = unsafe { (*statement).utilityStmt };
        // SAFETY: a utility statement's node.
        let computes = unsafe { computes(node) };
        // SAFETY: as above.
        let command = unsafe { transaction_command(node) };
        // SAFETY: as above.
        let leaves_triggers = computes && !unsafe { runs_statements(node) };
        // SAFETY: as above; nothing here has a destructor.
        let run = || unsafe { range_occ::guard::copied(node, execute) };
        // SAFETY: as above.
        let exempt = guarded(|| unsafe { range_occ::guard::begin_exempt(node, is_top_level) });
        if computes {
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
            if leaves_triggers {
                error_visibility::note_any_deferred();
            }
            if computes {
                error_visibility::before_deferred();
            }
        });
        if let Some(kind) = command {
            after_transaction_command(kind);
        }
        repeatable::after_utility();
    };
    // SAFETY: a utility statement's node; nothing here has a destructor.
    unsafe {
        let node = (*statement).utilityStmt;
        if !is_clients_own(node, context) {
            as_usual(run);
        } else if (*node).type_ == NodeTag::T_FetchStmt {
            at_same_depth(|| nesting::while_fetching(run));
        } else {
            at_same_depth(run);
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

/// A transaction command has been executed, which for COMMIT means: taken note of, so that an ERROR ends the transaction. Deferred
/// triggers run next, and what they say must not come from versions that may still roll back.
#[inline]
fn after_transaction_command(kind: TransactionStmtKind::Type) {
    use TransactionStmtKind::*;
    if matches!(kind, TRANS_STMT_BEGIN | TRANS_STMT_START) {
        xact::note_block(true);
    } else if matches!(kind, TRANS_STMT_COMMIT | TRANS_STMT_PREPARE) {
        guarded(commit::wait_before_triggers);
        if error_visibility::has_deferred() && xact::may_fire_deferred() && statement::is_watched()
        {
            // SAFETY: what the commit itself does first (xact.c: CommitTransaction), as SET CONSTRAINTS does in a command.
            watched(std::ptr::null(), || unsafe {
                raw::AfterTriggerFireDeferred()
            });
        }
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

/// A utility command may do anything: it is taken to write untracked tables, unless it is one of those that do not, or that run
/// statements through the executor.
unsafe fn before_utility(command: *mut PlannedStmt, is_top_level: bool) {
    // SAFETY: a utility statement's node.
    unsafe {
        let node = (*command).utilityStmt;
        range_occ::guard::before_utility(node, is_top_level);
        dependent::before_utility(node);
        match (*node).type_ {
            NodeTag::T_TransactionStmt => return,
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

/// Whatever lasts for a transaction at most.
fn transaction_ended() {
    nesting::transaction_ended();
    relation::transaction_ended();
    fastpath::transaction_ended();
    xact::note_block(false);
    error_visibility::forget_deferred();
}

unsafe extern "C-unwind" fn at_transaction_event(event: XactEvent::Type, _arg: *mut c_void) {
    match event {
        XactEvent::XACT_EVENT_PRE_COMMIT => guarded(commit::before_commit),
        XactEvent::XACT_EVENT_PRE_PREPARE => guarded(commit::before_prepare),
        XactEvent::XACT_EVENT_COMMIT => infallible(|| {
            commit::committed();
            transaction_ended();
        }),
        XactEvent::XACT_EVENT_PREPARE => infallible(|| {
            commit::prepared();
            transaction_ended();
        }),
        XactEvent::XACT_EVENT_ABORT => infallible(|| {
            commit::rolled_back();
            transaction_ended();
        }),
        _ => {}
    }
}

unsafe extern "C-unwind" fn at_subtransaction_event(
    event: SubXactEvent::Type,
    own: SubTransactionId,
    parent: SubTransactionId,
    _arg: *mut c_void,
) {
    match event {
        SubXactEvent::SUBXACT_EVENT_START_SUB => {
            snapshot::note_subtransaction();
            nesting::note_subtransaction();
            range_occ::session::subtransaction_started();
        }
        SubXactEvent::SUBXACT_EVENT_ABORT_SUB => infallible(|| {
            nesting::subtransaction_rolled_back(xact::nest_level());
            swap::abort_of_subtransaction(own);
            note_untracked();
            range_occ::session::subtransaction_rolled_back(xact::nest_level());
            commit::subtransaction_rolled_back(xact::nest_level());
        }),
        SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => infallible(|| {
            swap::commit_of_subtransaction(own, parent);
            range_occ::session::subtransaction_committed(xact::nest_level());
            commit::subtransaction_committed(xact::nest_level());
        }),
        _ => {}
    }
}

/// Installs everything. Once, from `_PG_init`.
pub fn init() {
    // SAFETY: in the postmaster, single-threaded; the chains are extended as every extension does.
    unsafe {
        let _ = PREVIOUS.set(Previous {
            shmem_request: shmem_request_hook,
            shmem_startup: shmem_startup_hook,
            executor_start: ExecutorStart_hook,
            executor_run: ExecutorRun_hook,
            executor_finish: ExecutorFinish_hook,
            executor_end: ExecutorEnd_hook,
            process_utility: ProcessUtility_hook,
            planner: planner_hook,
            client_authentication: raw::ClientAuthentication_hook,
        });
        shmem_request_hook = Some(shmem_request);
        shmem_startup_hook = Some(shmem_startup);
        ExecutorStart_hook = Some(executor_start);
        ExecutorRun_hook = Some(executor_run);
        ExecutorFinish_hook = Some(executor_finish);
        ExecutorEnd_hook = Some(executor_end);
        ProcessUtility_hook = Some(process_utility);
        planner_hook = Some(planner);
        raw::ClientAuthentication_hook = Some(client_authentication);
        RegisterXactCallback(Some(at_transaction_event), std::ptr::null_mut());
        RegisterSubXactCallback(Some(at_subtransaction_event), std::ptr::null_mut());
    }
}
