//! What a statement does as a whole, as its plan says: what it reads, writes, locks and calls.

use crate::pg::nodes::{nodes, tag};
use crate::pg::raw;
use pgrx::pg_sys::{self, NodeTag, Oid};

/// Whether the statement has no subplans and calls no function that is not PostgreSQL's own: such a
/// function could look at anything.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn calls_nothing(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: plan trees are read as the executor reads them; every node is checked by its tag.
    unsafe { (*plan).subplans.is_null() && (*plan).invalItems.is_null() }
}

/// Whether the statement reads no table: a plain `INSERT ... VALUES`.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn reads_nothing(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `calls_nothing`.
    unsafe {
        let top = (*plan).planTree;
        if !calls_nothing(plan) {
            return false;
        }
        match tag(top) {
            NodeTag::T_Result | NodeTag::T_ValuesScan => (*top).lefttree.is_null(),
            NodeTag::T_ModifyTable => {
                let modify = top.cast::<pg_sys::ModifyTable>();
                (*modify).operation == pg_sys::CmdType::CMD_INSERT
                    && (*modify).onConflictAction == pg_sys::OnConflictAction::ONCONFLICT_NONE
                    && matches!(
                        tag((*top).lefttree),
                        NodeTag::T_Result | NodeTag::T_ValuesScan
                    )
                    && (*(*top).lefttree).lefttree.is_null()
            }
            _ => false,
        }
    }
}

/// Whether the statement is a SELECT that locks no rows, and reads nothing but tables of users, and
/// what it computes.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn only_reads_tables(plan: *const pg_sys::PlannedStmt) -> bool {
    use pg_sys::RTEKind::*;
    // SAFETY: as in `calls_nothing`.
    unsafe {
        (*plan).commandType == pg_sys::CmdType::CMD_SELECT
            && (*plan).rowMarks.is_null()
            && !(*plan).hasModifyingCTE
            && nodes((*plan).rtable)
                .map(|entry| &*entry.cast::<pg_sys::RangeTblEntry>())
                .all(|entry| match entry.rtekind {
                    RTE_RELATION => {
                        entry.relkind as u8 == pg_sys::RELKIND_RELATION
                            && u32::from(entry.relid) >= pg_sys::FirstNormalObjectId
                    }
                    RTE_SUBQUERY | RTE_JOIN | RTE_FUNCTION | RTE_VALUES | RTE_CTE | RTE_RESULT => {
                        true
                    }
                    _ => false,
                })
    }
}

/// The tables that the statement names.
///
/// # Safety
/// As for `only_reads_tables`, which holds.
pub unsafe fn tables(plan: *const pg_sys::PlannedStmt) -> impl Iterator<Item = Oid> {
    // SAFETY: the caller's plan is valid, and its range table is a list of such entries.
    unsafe {
        nodes((*plan).rtable)
            .map(|entry| &*entry.cast::<pg_sys::RangeTblEntry>())
            .filter(|entry| entry.rtekind == pg_sys::RTEKind::RTE_RELATION)
            .map(|entry| entry.relid)
    }
}

/// Whether the statement's tables include a partitioned one, whose partitions the plan may not
/// name.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn is_partitioned(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `calls_nothing`.
    unsafe {
        nodes((*plan).rtable).any(|entry| {
            (*entry.cast::<pg_sys::RangeTblEntry>()).relkind as u8
                == pg_sys::RELKIND_PARTITIONED_TABLE
        })
    }
}

/// What an INSERT does with rows that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    Fail,
    Update,
}

/// What the statement does with rows that are there already.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn on_conflict(plan: *const pg_sys::PlannedStmt) -> OnConflict {
    // SAFETY: as in `calls_nothing`.
    unsafe {
        let top = (*plan).planTree;
        if tag(top) != NodeTag::T_ModifyTable || (*plan).hasModifyingCTE {
            return OnConflict::Fail;
        }
        match (*top.cast::<pg_sys::ModifyTable>()).onConflictAction {
            pg_sys::OnConflictAction::ONCONFLICT_UPDATE => OnConflict::Update,
            _ => OnConflict::Fail,
        }
    }
}

/// Whether the statement may insert rows into partitions, and update those that are there already.
///
/// # Safety
/// `plan` is a valid plan.
pub unsafe fn may_route_upserts(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: the caller's plan is valid.
    unsafe {
        ((*plan).hasModifyingCTE || on_conflict(plan) == OnConflict::Update) && is_partitioned(plan)
    }
}

/// Whether an INSERT has one row of VALUES.
///
/// # Safety
/// `plan` is a valid plan of an INSERT.
pub unsafe fn has_one_source_row(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `calls_nothing`.
    unsafe {
        let source = (*(*plan).planTree).lefttree;
        tag(source) == NodeTag::T_Result && (*source).lefttree.is_null()
    }
}

/// Whether the statement may lock rows.
///
/// # Safety
/// `query` is about to be started.
#[inline]
pub unsafe fn may_lock(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: as in `calls_nothing`.
    unsafe {
        let plan = (*query).plannedstmt;
        (*query).operation != pg_sys::CmdType::CMD_SELECT
            || (*plan).hasModifyingCTE
            || !(*plan).rowMarks.is_null()
    }
}

/// Whether a table that the statement writes has any trigger.
///
/// # Safety
/// The executor's state of a started statement.
#[inline]
pub unsafe fn writes_with_triggers(estate: *const pg_sys::EState) -> bool {
    // SAFETY: by the contract; its lists of open tables.
    unsafe {
        let written = [
            (*estate).es_opened_result_relations,
            (*estate).es_tuple_routing_result_relations,
        ];
        written.iter().any(|list| {
            nodes(*list).any(|result| {
                let rel = (*result.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc;
                !(*rel).trigdesc.is_null()
            })
        })
    }
}

/// Whether the session's role may do what the statement does with its tables (execMain.c: InitPlan
/// asks first, too).
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn is_allowed(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: by the contract; the plan's lists.
    unsafe {
        let plan = (*query).plannedstmt;
        raw::ExecCheckPermissions((*plan).rtable, (*plan).permInfos, false)
    }
}
