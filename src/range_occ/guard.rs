//! What a validated transaction may not do.

use super::errors;
use super::key;
use super::ordered;
use super::parents;
use super::redefined;
use super::ring_copy;
use super::session;
use super::view::View;
use super::work::Change;
use crate::hotlock::memory;
use crate::pg::per_table::PerTable;
use crate::pg::{catch, plan, raw, xact};
use keyrange::{Count, Csn, RangeMap, Validation};
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};
use std::ffi::{CStr, c_int};
use std::ptr;

/// 0A000 on a standby: the rings are the primary's.
pub fn refuse_recovery() {
    // SAFETY: reads shared state.
    if unsafe { raw::RecoveryInProgress() } {
        errors::IN_RECOVERY.raise();
    }
}

/// The transaction uses the table by a definition of which its snapshot may be too old: then it stands where that definition was there, at its
/// CSN, whatever it reads. The table is locked.
///
/// # Errors
/// 40001 if others could not use the table when it was redefined: it may have been truncated, rewritten or divided anew, and its writers registered by
/// another key. They would be found at the end, too.
pub fn check_definition(oid: Oid) {
    let view = View::of_transaction();
    let validation = Validation {
        board: memory().board,
        snapshot: &view,
        before: Csn::MAX,
        prefix: session::prefix(),
        ranges: &|_| RangeMap::WHOLE,
        wait: &|| false,
    };
    let (mut is_newer, mut is_redefined) = (false, false);
    let is_known = validation.definition_is_seen(key::relation_of(oid), &mut |change| {
        is_newer = true;
        is_redefined |= Change::is_whole(change);
    });
    if is_redefined {
        memory().counters().add(Count::FirstTouch, 1);
        errors::redefined(oid);
    }
    if is_newer || !is_known {
        session::with(|work| work.saw_beyond = true);
    }
}

/// Whether the snapshot sees all changes of the table's definition, and these are known.
pub fn sees_definition(view: &View, oid: Oid) -> bool {
    let validation = Validation {
        board: memory().board,
        snapshot: view,
        before: Csn::MAX,
        prefix: session::prefix(),
        ranges: &|_| RangeMap::WHOLE,
        wait: &|| false,
    };
    let mut is_newer = false;
    validation.definition_is_seen(key::relation_of(oid), &mut |_| is_newer = true) && !is_newer
}

/// What a relation is, from pg_class.
struct Class {
    kind: u8,
    method: Oid,
    is_temporary: bool,
    schema: Oid,
}

fn class_of(oid: Oid) -> Option<Class> {
    // SAFETY: as above.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::RELOID as c_int;
        let row = raw::SearchSysCache1(cache, Datum::from(oid));
        if row.is_null() {
            return None;
        }
        let header = (*row).t_data;
        let form = header
            .cast::<u8>()
            .add((*header).t_hoff as usize)
            .cast::<pg_sys::FormData_pg_class>();
        let class = Class {
            kind: (*form).relkind as u8,
            method: (*form).relam,
            is_temporary: (*form).relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP,
            schema: (*form).relnamespace,
        };
        raw::ReleaseSysCache(row);
        Some(class)
    }
}

/// What a table is to a validated transaction.
#[derive(Clone, Copy)]
enum Use {
    Free,
    /// Of `txn_heap`.
    Ours,
    Partitioned,
    /// Others' writes to it are not registered: it has that access method.
    Refused(Oid),
}

static USES: PerTable<Use, 256> = PerTable::new();

/// See `super::forget`.
pub fn forget(relation: Oid) {
    USES.forget(relation);
}

/// Catalogs, temporary tables and the extension's own are left alone.
fn use_of(oid: Oid) -> Use {
    let Some(class) = class_of(oid).filter(|class| !class.is_temporary) else {
        return Use::Free;
    };
    if class.kind == pg_sys::RELKIND_PARTITIONED_TABLE {
        return Use::Partitioned;
    }
    let is_stored = matches!(
        class.kind,
        pg_sys::RELKIND_RELATION | pg_sys::RELKIND_MATVIEW | pg_sys::RELKIND_FOREIGN_TABLE
    );
    // SAFETY: catalog look-ups.
    let (own_schema, method) = unsafe {
        (
            raw::get_namespace_oid(c"txn".as_ptr(), true),
            raw::get_am_oid(c"txn_heap".as_ptr(), true),
        )
    };
    match class.method {
        own if own == method && own != Oid::INVALID => Use::Ours,
        other if is_stored && other != method && class.schema != own_schema => Use::Refused(other),
        _ => Use::Free,
    }
}

fn known_use(oid: Oid) -> Use {
    if u32::from(oid) < pg_sys::FirstNormalObjectId {
        return Use::Free;
    }
    USES.get(oid, || use_of(oid))
}

/// Whether the plan reads what is validated.
///
/// # Safety
/// A plan.
pub unsafe fn is_any_ours(planned: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: by the contract.
    let mut uses = unsafe { plan::oids((*planned).relationOids) }.map(known_use);
    uses.any(|one| matches!(one, Use::Ours))
}

/// A validated transaction is about to use the table, which is locked in `mode`. 0A000 if it cannot, 40001 if it does not see its definition, or
/// which partitions it has.
pub fn check_table(oid: Oid, mode: u32) {
    match known_use(oid) {
        Use::Free => {}
        // SAFETY: by what was said, and nothing in the callers has a destructor.
        Use::Ours => unsafe { session::touch_locked(oid, mode) },
        Use::Partitioned => parents::note(oid),
        // Nothing is written by what is read there.
        Use::Refused(method) if session::is_read_only() => note_unvalidated(oid, method),
        Use::Refused(method) => errors::other_method(oid, method),
    }
}

/// A READ ONLY transaction reads a table of another access method as its snapshot shows it. Its
/// client is told of the first.
fn note_unvalidated(oid: Oid, method: Oid) {
    if !session::with(|work| std::mem::replace(&mut work.reads_others, true)) {
        errors::not_validated(oid, method);
    }
}

/// The same for a table that is written to, whose rows may go to partitions.
fn check_target(oid: Oid, mode: u32) {
    check_table(oid, mode);
    if matches!(known_use(oid), Use::Partitioned) {
        parents::begin_routing(oid);
    }
}

/// 0A000 if a validated transaction cannot use the table.
pub fn check_method(oid: Oid) {
    if let Use::Refused(method) = known_use(oid) {
        errors::other_method(oid, method);
    }
}

/// Whether it is a partitioned table, as the catalog has it now.
pub fn is_partitioned_now(oid: Oid) -> bool {
    class_of(oid).is_some_and(|class| class.kind == pg_sys::RELKIND_PARTITIONED_TABLE)
}

/// Runs a statement of the executor. One that writes in a subtransaction may fail for a row that has come to a partition, or nowhere, and is not written, which a
/// savepoint survives: then the definitions on its way have been read, and stay. So have those on the way of rows that a trigger has left out.
///
/// # Safety
/// `query` is started; nothing with a destructor is alive in the callers.
pub unsafe fn routed(query: *const pg_sys::QueryDesc, run: impl FnOnce()) {
    // SAFETY: by the contract.
    unsafe {
        if !session::is_validated() || (*(*query).plannedstmt).resultRelations.is_null() {
            return run();
        }
        keeping_routed(run);
        for node in plan::nodes((*(*query).estate).es_tuple_routing_result_relations) {
            let rel = (*node.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc;
            check_table((*rel).rd_id, pg_sys::RowExclusiveLock);
            parents::note_route(rel);
        }
    }
}

/// The same for a utility statement, which may be COPY. Which of its rows a trigger has left out is not known afterwards: all partitions to which rows may
/// have come are taken for used.
///
/// # Safety
/// A utility statement's node; nothing with a destructor is alive in the callers.
pub unsafe fn copied(node: *const pg_sys::Node, run: impl FnOnce()) {
    // SAFETY: by the contract.
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
            parents::settle_target(target);
        }
    }
}

/// The relation of that name, locked in that mode; invalid if there is none, which is left to the statement to report.
///
/// # Safety
/// Null, or a name in a statement.
unsafe fn named(name: *const pg_sys::RangeVar, mode: u32) -> Oid {
    if name.is_null() {
        return Oid::INVALID;
    }
    // SAFETY: by the contract.
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
    // SAFETY: by the contract.
    unsafe {
        catch::catching(run, |_| {
            session::keep_all_routed();
            false
        });
    }
}

/// Before a statement starts: the tables of its plan, and whether it may run in parallel, which it may not, as what the
/// workers read is not captured. `is_first` says that the transaction has not used its snapshot before.
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn before_start(query: *mut pg_sys::QueryDesc, is_first: bool) {
    if !session::is_validated() {
        return;
    }
    if is_first {
        // SAFETY: by the contract; nothing with a destructor is alive in the callers.
        unsafe { ordered::before_first(query) };
    }
    ring_copy::before_reads();
    // SAFETY: a plan. A session that looks around first, as pg_dump does, may take long until it
    // comes to a table.
    if is_first && session::is_read_only() && unsafe { !is_any_ours((*query).plannedstmt) } {
        ring_copy::copy_early();
    }
    // SAFETY: a plan, its range table, and a copy of its head for this execution.
    unsafe {
        let planned = (*query).plannedstmt;
        for node in plan::nodes((*planned).rtable) {
            let entry = &*node.cast::<pg_sys::RangeTblEntry>();
            if entry.rtekind == pg_sys::RTEKind::RTE_RELATION {
                refuse_recovery();
                let mode = (entry.rellockmode as u32).max(pg_sys::AccessShareLock);
                if mode == pg_sys::RowExclusiveLock {
                    check_target(entry.relid, mode);
                } else {
                    check_table(entry.relid, mode);
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

/// A snapshot that is not the transaction's own, and COPY to and from a table, which does not come by the executor.
///
/// # Safety
/// A utility statement's node.
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
        check_target(oid, mode);
    }
}

/// A command of its own that tells the client nothing of rows, and reads others' as it comes to them: an index that is built beside them, a
/// constraint made sure of. What it reads is not validated until `session::end_exempt`. Whether it is one.
///
/// # Safety
/// A utility statement's node.
pub unsafe fn begin_exempt(node: *const pg_sys::Node, is_top_level: bool) -> bool {
    // SAFETY: by the contract; nodes are read as what their tags say.
    unsafe {
        let is_one = match (*node).type_ {
            NodeTag::T_IndexStmt => (*node.cast::<pg_sys::IndexStmt>()).concurrent,
            NodeTag::T_ReindexStmt => true,
            NodeTag::T_AlterTableStmt => {
                use pg_sys::AlterTableType as Kind;
                plan::nodes((*node.cast::<pg_sys::AlterTableStmt>()).cmds).all(|command| {
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
