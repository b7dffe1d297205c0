//! What a statement may lock before it comes to the row that it updates or locks by its key. Also
//! whether its start calls anything at all.
//!
//! PostgreSQL evaluates SET lists and fires BEFORE triggers before it locks the row. A function in
//! them may update another row, or take an advisory lock. A backend that has taken the row's ticket
//! by then comes to the two in another order than the statement says. So it could be in a deadlock
//! with backends that come in the statement's order.

use super::nodes::{self, nodes, relation_of, tag};
use super::relation::key_of_locked;
use super::triggers::has_before_statement_triggers;
use super::{quiet, raw};
use pgrx::pg_sys::{self, CmdType, NodeTag, Oid};

/// Whether a statement with a target (`plan::target`) may lock anything else before it comes to
/// that row.
///
/// # Safety
/// `query` is about to be started, and has a target; its relations are locked.
pub unsafe fn locks_first(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: plan trees are read as the executor reads them.
    unsafe {
        let plan = (*query).plannedstmt;
        (*plan).hasModifyingCTE
            || opens_cursor()
            || !(*plan).subplans.is_null() && !(*plan).rowMarks.is_null()
            || calls_what_may_lock(query)
            || fires_triggers(plan)
    }
}

/// Whether this is the start of a cursor, which may come to the row much later. (DECLARE and
/// PL/pgSQL's OPEN ask for a fast plan, and nothing else that has a portal does.)
unsafe fn opens_cursor() -> bool {
    // SAFETY: pquery.c: PortalStart makes the portal the active one while it starts its query.
    unsafe {
        let portal = pg_sys::ActivePortal.as_ref();
        portal.is_some_and(|portal| {
            portal.status == pg_sys::PortalStatus::PORTAL_DEFINED
                && portal.cursorOptions as u32 & pg_sys::CURSOR_OPT_FAST_PLAN != 0
        })
    }
}

/// Volatile functions that are not quiet: those of users, and those for advisory locks.
unsafe fn calls_what_may_lock(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: as in `locks_first`; a target's plan is one scan, or one row of VALUES, below the
    // top.
    unsafe {
        let plan = (*query).plannedstmt;
        let top = (*plan).planTree;
        let source = (*top).lefttree;
        let may_lock = |list: *mut pg_sys::List| {
            !quiet::is_quiet(list.cast()) && raw::contain_volatile_functions(list.cast())
        };
        !(*plan).subplans.is_null() && !(*plan).invalItems.is_null()
            || may_lock((*source).targetlist)
            || may_lock((*source).qual)
            || tag(top) == NodeTag::T_ModifyTable
                && nodes((*top.cast::<pg_sys::ModifyTable>()).withCheckOptionLists)
                    .any(|options| raw::contain_volatile_functions(options))
    }
}

/// Whether it fires BEFORE triggers that come before the row's lock: of the statement, and of rows
/// to insert.
unsafe fn fires_triggers(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `locks_first`.
    unsafe {
        let top = (*plan).planTree;
        if tag(top) != NodeTag::T_ModifyTable {
            return false;
        }
        let root = (*top.cast::<pg_sys::ModifyTable>()).rootRelation;
        let inserts = (*plan).commandType == CmdType::CMD_INSERT;
        nodes::numbers((*plan).resultRelations)
            .chain((root != 0).then_some(root))
            .any(|index| has_triggers(relation_of(plan, index), inserts))
    }
}

unsafe fn has_triggers(relation: Oid, inserts: bool) -> bool {
    // SAFETY: as in `locks_first`; its relations are locked.
    unsafe {
        if !inserts && let Some(key) = key_of_locked(relation) {
            return key.has_before_statement_triggers();
        }
        let rel = raw::RelationIdGetRelation(relation);
        if rel.is_null() {
            return false;
        }
        let triggers = (*rel).trigdesc;
        let found = has_before_statement_triggers(triggers)
            || inserts
                && !triggers.is_null()
                && ((*triggers).trig_insert_before_statement || (*triggers).trig_insert_before_row);
        raw::RelationClose(rel);
        found
    }
}

/// Whether the executor starts the plan without calling anything of others: it leaves no partitions
/// out (execPartition.c: ExecInitPartitionPruning), and nothing in it is foreign or an extension's.
/// (Expressions that it simplifies call only what says that it is immutable.)
///
/// # Safety
/// `plan` is a valid plan.
#[inline]
pub unsafe fn starts_quietly(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: the nodes are read as what their tags say; `lefttree` is null at the end of a plan.
    unsafe {
        if !(*plan).subplans.is_null() {
            return false;
        }
        let mut node = (*plan).planTree;
        loop {
            match tag(node) {
                NodeTag::T_IndexScan | NodeTag::T_IndexOnlyScan | NodeTag::T_SeqScan => {
                    return true;
                }
                // A row of VALUES.
                NodeTag::T_Result if (*node).lefttree.is_null() => return true,
                NodeTag::T_LockRows | NodeTag::T_Limit | NodeTag::T_Sort => {}
                NodeTag::T_ModifyTable if writes_quietly(plan, node.cast()) => {}
                _ => return false,
            }
            node = (*node).lefttree;
        }
    }
}

/// Whether it is an UPDATE or DELETE (of a foreign table the scan below is foreign, too), or an
/// INSERT into tables.
unsafe fn writes_quietly(
    plan: *const pg_sys::PlannedStmt,
    node: *const pg_sys::ModifyTable,
) -> bool {
    // SAFETY: as in `starts_quietly`.
    unsafe {
        match (*node).operation {
            CmdType::CMD_UPDATE | CmdType::CMD_DELETE => true,
            CmdType::CMD_INSERT => nodes::numbers((*node).resultRelations).all(|index| {
                let entry = nodes::nth::<pg_sys::RangeTblEntry>((*plan).rtable, index as usize - 1);
                (*entry).relkind as u8 == pg_sys::RELKIND_RELATION
            }),
            _ => false,
        }
    }
}
