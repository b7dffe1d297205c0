//! What a validated transaction may not do.

use super::definition;
use super::ordered;
use super::parents;
use super::redefined;
use super::ring_copy;
use super::session;
use super::tables;
use super::used;
use super::uses;
use crate::pg::{catch, nodes, raw, xact};
use pgrx::pg_sys::{self, NodeTag, Oid};
use std::ffi::{CStr, c_int};
use std::ptr;

/// Runs a statement of the executor, and notes which definitions its rows have met on their way to
/// partitions. In a subtransaction the statement may fail for a row that has come to a partition,
/// or to none, and is not written. The savepoint before it survives that, so these definitions
/// count as read and stay noted. So do those on the way of rows that a trigger has left out.
///
/// # Safety
/// `query` is started; nothing with a destructor is alive in the callers.
#[inline]
pub unsafe fn routed(query: *const pg_sys::QueryDesc, run: impl FnOnce()) {
    // SAFETY: the caller's query has started, so it has an executor state; nothing here has a
    // destructor.
    unsafe {
        if !session::is_validated() || (*(*query).plannedstmt).resultRelations.is_null() {
            run();
        } else {
            noting_routes(query, run);
        }
    }
}

/// # Safety
/// As for `routed`.
unsafe fn noting_routes(query: *const pg_sys::QueryDesc, run: impl FnOnce()) {
    // SAFETY: as in `routed`.
    unsafe {
        keeping_routed(run);
        for node in nodes::nodes((*(*query).estate).es_tuple_routing_result_relations) {
            let rel = (*node.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc;
            used::check_table((*rel).rd_id, pg_sys::RowExclusiveLock);
            parents::note_route(rel);
        }
    }
}

/// Runs a utility statement, which may be COPY, as `routed` runs a statement of the executor. Which
/// of its rows a trigger has left out is not known afterwards: all partitions to which rows may
/// have come are taken for used.
///
/// # Safety
/// A utility statement's node; nothing with a destructor is alive in the callers.
pub unsafe fn copied(node: *const pg_sys::Node, run: impl FnOnce()) {
    // SAFETY: the caller's node is read as its tag says; nothing here has a destructor.
    unsafe {
        let copies = (*node).type_ == NodeTag::T_CopyStmt;
        let copy = node.cast::<pg_sys::CopyStmt>();
        let target = if copies && (*copy).is_from && session::is_validated() {
            named((*copy).relation, pg_sys::NoLock)
        } else {
            Oid::INVALID
        };
        if copies {
            keeping_routed(run);
        } else {
            run();
        }
        if target != Oid::INVALID {
            parents::settle_target(target, |oid| {
                used::check_table(oid, pg_sys::RowExclusiveLock);
            });
        }
    }
}

/// The relation of that name, locked in that mode; invalid if there is none, which is left to the
/// statement to report.
///
/// # Safety
/// Null, or a name in a statement.
unsafe fn named(name: *const pg_sys::RangeVar, mode: u32) -> Oid {
    if name.is_null() {
        return Oid::INVALID;
    }
    // SAFETY: the caller's name is null or comes from a parsed statement.
    unsafe {
        raw::RangeVarGetRelidExtended(
            name,
            mode as pg_sys::LOCKMODE,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            ptr::null_mut(),
        )
    }
}

/// # Safety
/// Nothing with a destructor is alive in the callers.
unsafe fn keeping_routed(run: impl FnOnce()) {
    if xact::nest_level() < 2 || !session::is_validated() {
        return run();
    }
    // SAFETY: no frame above, up to the caller's, has a destructor that an ERROR would skip.
    unsafe {
        catch::catching(run, |_| {
            tables::keep_all_routed();
            false
        });
    }
}

/// Before a statement starts: the tables of its plan, and whether it may run in parallel, which it
/// may not, as what the workers read is not captured. `is_first` says that the transaction has not
/// used its snapshot before.
///
/// # Safety
/// `query` is about to be started.
#[inline]
pub unsafe fn before_start(query: *mut pg_sys::QueryDesc, is_first: bool) {
    if session::is_validated() {
        // SAFETY: by the contract.
        unsafe { before_validated(query, is_first) };
    }
}

/// # Safety
/// As for `before_start`.
unsafe fn before_validated(query: *mut pg_sys::QueryDesc, is_first: bool) {
    if is_first {
        // SAFETY: by the contract; nothing with a destructor is alive in the callers.
        unsafe { ordered::before_first(query) };
    }
    ring_copy::before_reads();
    // SAFETY: a plan. A session that looks around first, as pg_dump does, may take long until it
    // comes to a table.
    if is_first && session::is_read_only() && unsafe { !uses::is_any_ours((*query).plannedstmt) } {
        ring_copy::copy_early();
    }
    // SAFETY: a plan, its range table, and a copy of its head for this execution.
    unsafe {
        let planned = (*query).plannedstmt;
        for node in nodes::nodes((*planned).rtable) {
            let entry = &*node.cast::<pg_sys::RangeTblEntry>();
            if entry.rtekind == pg_sys::RTEKind::RTE_RELATION {
                definition::refuse_recovery();
                let mode = (entry.rellockmode as u32).max(pg_sys::AccessShareLock);
                if mode == pg_sys::RowExclusiveLock {
                    used::check_target(entry.relid, mode);
                } else {
                    used::check_table(entry.relid, mode);
                }
            }
        }
        if (*planned).parallelModeNeeded {
            let copy = raw::palloc(size_of::<pg_sys::PlannedStmt>()).cast::<pg_sys::PlannedStmt>();
            ptr::copy_nonoverlapping(planned, copy, 1);
            (*copy).parallelModeNeeded = false;
            (*query).plannedstmt = copy;
        }
    }
}

/// A statement of the present transaction is about to be planned: the planner's options for it.
pub fn planner_options(options: c_int) -> c_int {
    ring_copy::before_reads();
    if session::is_validated() {
        options & !(pg_sys::CURSOR_OPT_PARALLEL_OK as c_int)
    } else {
        options
    }
}

/// A snapshot that is not the transaction's own, and COPY to and from a table, which does not come
/// by the executor.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn before_utility(node: *const pg_sys::Node, is_top_level: bool) {
    // SAFETY: by the contract; a name that cannot be resolved is left to COPY to report.
    unsafe {
        if (*node).type_ == NodeTag::T_TransactionStmt {
            let kind = (*node.cast::<pg_sys::TransactionStmt>()).kind;
            session::rolls_back_to(kind == pg_sys::TransactionStmtKind::TRANS_STMT_ROLLBACK_TO);
            return;
        }
        redefined::note_utility(node, is_top_level);
        if (*node).type_ == NodeTag::T_VariableSetStmt {
            let set = node.cast::<pg_sys::VariableSetStmt>();
            if (*set).kind == pg_sys::VariableSetKind::VAR_SET_MULTI
                && CStr::from_ptr((*set).name) == c"TRANSACTION SNAPSHOT"
            {
                session::uses_snapshot();
            }
            return;
        }
        if (*node).type_ != NodeTag::T_VariableShowStmt {
            session::uses_snapshot();
        }
        if (*node).type_ != NodeTag::T_CopyStmt || !session::is_validated() {
            return;
        }
        let copy = &*node.cast::<pg_sys::CopyStmt>();
        let mode = if copy.is_from {
            pg_sys::RowExclusiveLock
        } else {
            pg_sys::AccessShareLock
        };
        // The lock that COPY itself is about to take.
        let oid = named(copy.relation, mode);
        if oid == Oid::INVALID {
            return;
        }
        used::check_target(oid, mode);
    }
}

/// A command of its own that tells the client nothing of rows, and reads others' as it comes to
/// them: an index that is built beside them, a constraint made sure of. What it reads is not
/// validated until `session::end_exempt`. Whether it is one.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn begin_exempt(node: *const pg_sys::Node, is_top_level: bool) -> bool {
    // SAFETY: by the contract; nodes are read as what their tags say.
    unsafe {
        let is_one = match (*node).type_ {
            NodeTag::T_IndexStmt => (*node.cast::<pg_sys::IndexStmt>()).concurrent,
            NodeTag::T_ReindexStmt => true,
            NodeTag::T_AlterTableStmt => {
                use pg_sys::AlterTableType as Kind;
                nodes::nodes((*node.cast::<pg_sys::AlterTableStmt>()).cmds).all(|command| {
                    matches!(
                        (*command.cast::<pg_sys::AlterTableCmd>()).subtype,
                        Kind::AT_ValidateConstraint
                            | Kind::AT_DetachPartition
                            | Kind::AT_DetachPartitionFinalize
                    )
                })
            }
            _ => false,
        };
        let begins = is_one && is_top_level && !raw::IsInTransactionBlock(true);
        if begins {
            session::begin_exempt();
        }
        begins
    }
}
