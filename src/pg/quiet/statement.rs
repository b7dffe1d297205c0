//! Which statements are quiet: plans, node by node, and calls of procedures.

use super::expression::{is_copied, is_quiet};
use super::table::is_table_quiet;
use crate::pg::builtin::is_builtin;
use crate::pg::nodes::{nodes, numbers, relation_of, tag};
use crate::pg::plan::{has_one_source_row, is_partitioned};
use crate::pg::{language, raw};
use pgrx::pg_sys::{self, NodeTag, Oid, Plan};
use std::ffi::{CStr, c_int};

/// Whether the statement as it is planned is quiet, its target tables included.
///
/// # Safety
/// `plan` is a valid plan whose relations are locked.
pub unsafe fn is_statement_quiet(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: the caller's plan is valid, and its relations are locked.
    unsafe { !inserts_into_partitions(plan) && are_parts_quiet(plan) }
}

/// Whether the statement is an INSERT of one row that has been routed to the partition `relation`,
/// and quiet from there on.
///
/// # Safety
/// As for `is_statement_quiet`; the partition is locked, too.
pub unsafe fn is_routed_quiet(plan: *const pg_sys::PlannedStmt, relation: Oid) -> bool {
    // SAFETY: the caller's plan is valid, and its relations and the partition are locked.
    unsafe {
        (*plan).commandType == pg_sys::CmdType::CMD_INSERT
            && inserts_into_partitions(plan)
            && are_parts_quiet(plan)
            && has_one_source_row(plan)
            && is_table_quiet(relation)
    }
}

/// Whether all is quiet that the plan names.
unsafe fn are_parts_quiet(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: plan trees are read as the executor reads them; every node is checked by its tag.
    unsafe {
        (*plan).utilityStmt.is_null()
            && (*plan).subplans.is_null()
            && !(*plan).hasModifyingCTE
            && is_plan_quiet((*plan).planTree)
            && numbers((*plan).resultRelations)
                .all(|index| is_table_quiet(relation_of(plan, index)))
            && is_root_quiet(plan)
    }
}

unsafe fn is_plan_quiet(plan: *const Plan) -> bool {
    if plan.is_null() {
        return true;
    }
    // SAFETY: as in `is_statement_quiet`.
    unsafe {
        (*plan).initPlan.is_null()
            && is_quiet((*plan).targetlist.cast())
            && is_quiet((*plan).qual.cast())
            && has_quiet_parts(plan)
            && is_plan_quiet((*plan).lefttree)
            && is_plan_quiet((*plan).righttree)
    }
}

/// The expressions that a node has beside those of every plan, and its children in lists. False for
/// kinds of nodes that are not known here.
unsafe fn has_quiet_parts(plan: *const Plan) -> bool {
    // SAFETY: as in `is_statement_quiet`.
    unsafe {
        match tag(plan) {
            NodeTag::T_Result => is_quiet((*plan.cast::<pg_sys::Result>()).resconstantqual),
            NodeTag::T_ValuesScan => {
                is_quiet((*plan.cast::<pg_sys::ValuesScan>()).values_lists.cast())
            }
            NodeTag::T_SeqScan | NodeTag::T_LockRows | NodeTag::T_Material => true,
            NodeTag::T_IndexScan => is_index_scan_quiet(&*plan.cast()),
            NodeTag::T_IndexOnlyScan => is_index_only_scan_quiet(&*plan.cast()),
            NodeTag::T_BitmapHeapScan => is_quiet(
                (*plan.cast::<pg_sys::BitmapHeapScan>())
                    .bitmapqualorig
                    .cast(),
            ),
            NodeTag::T_BitmapIndexScan => is_quiet(
                (*plan.cast::<pg_sys::BitmapIndexScan>())
                    .indexqualorig
                    .cast(),
            ),
            NodeTag::T_TidScan => is_quiet((*plan.cast::<pg_sys::TidScan>()).tidquals.cast()),
            NodeTag::T_NestLoop => {
                is_quiet((*plan.cast::<pg_sys::NestLoop>()).join.joinqual.cast())
            }
            NodeTag::T_HashJoin => {
                let join = &*plan.cast::<pg_sys::HashJoin>();
                is_quiet(join.join.joinqual.cast()) && is_quiet(join.hashclauses.cast())
            }
            NodeTag::T_Hash => is_quiet((*plan.cast::<pg_sys::Hash>()).hashkeys.cast()),
            NodeTag::T_MergeJoin => {
                let join = &*plan.cast::<pg_sys::MergeJoin>();
                is_quiet(join.join.joinqual.cast()) && is_quiet(join.mergeclauses.cast())
            }
            NodeTag::T_Sort => is_sort_quiet(&*plan.cast()),
            NodeTag::T_IncrementalSort => {
                is_sort_quiet(&(*plan.cast::<pg_sys::IncrementalSort>()).sort)
            }
            NodeTag::T_Agg => {
                let agg = &*plan.cast::<pg_sys::Agg>();
                has_no_elements(agg.groupingSets) && are_builtin(agg.grpOperators, agg.numCols)
            }
            NodeTag::T_Group => {
                let group = &*plan.cast::<pg_sys::Group>();
                are_builtin(group.grpOperators, group.numCols)
            }
            NodeTag::T_Unique => {
                let unique = &*plan.cast::<pg_sys::Unique>();
                are_builtin(unique.uniqOperators, unique.numCols)
            }
            NodeTag::T_SubqueryScan => {
                is_plan_quiet((*plan.cast::<pg_sys::SubqueryScan>()).subplan)
            }
            NodeTag::T_Limit => {
                let limit = &*plan.cast::<pg_sys::Limit>();
                is_quiet(limit.limitOffset) && is_quiet(limit.limitCount)
            }
            NodeTag::T_Append => nodes((*plan.cast::<pg_sys::Append>()).appendplans)
                .all(|child| is_plan_quiet(child.cast())),
            NodeTag::T_ModifyTable => is_modification_quiet(&*plan.cast()),
            _ => false,
        }
    }
}

unsafe fn is_index_scan_quiet(scan: &pg_sys::IndexScan) -> bool {
    // SAFETY: as in `is_statement_quiet`.
    unsafe { is_quiet(scan.indexqualorig.cast()) && is_quiet(scan.indexorderbyorig.cast()) }
}

unsafe fn is_index_only_scan_quiet(scan: &pg_sys::IndexOnlyScan) -> bool {
    // SAFETY: as in `is_statement_quiet`.
    unsafe {
        is_quiet(scan.indexqual.cast())
            && is_quiet(scan.recheckqual.cast())
            && is_quiet(scan.indexorderby.cast())
    }
}

unsafe fn is_sort_quiet(sort: &pg_sys::Sort) -> bool {
    // SAFETY: a plan's array of operators.
    unsafe { are_builtin(sort.sortOperators, sort.numCols) }
}

/// Whether all of an array of operators are PostgreSQL's own, and call no others: those of rows,
/// arrays and ranges call what their parts' types have.
unsafe fn are_builtin(operators: *const Oid, count: c_int) -> bool {
    const OF_PARTS: [Oid; 4] = [
        pg_sys::RECORDOID,
        pg_sys::ANYARRAYOID,
        pg_sys::ANYRANGEOID,
        pg_sys::ANYMULTIRANGEOID,
    ];
    (0..count as usize).all(|n| {
        let (mut left, mut right) = (Oid::INVALID, Oid::INVALID);
        // SAFETY: `count` operators, by the caller; a catalog look-up.
        unsafe {
            let operator = *operators.add(n);
            raw::op_input_types(operator, &mut left, &mut right);
            is_builtin(operator) && !OF_PARTS.contains(&left)
        }
    })
}

unsafe fn is_modification_quiet(modify: &pg_sys::ModifyTable) -> bool {
    // SAFETY: as in `is_statement_quiet`.
    unsafe {
        has_no_elements(modify.fdwPrivLists)
            && nodes(modify.withCheckOptionLists)
                .flat_map(|list| nodes(list.cast()))
                .all(|option| is_quiet((*option.cast::<pg_sys::WithCheckOption>()).qual))
            && nodes(modify.mergeActionLists)
                .flat_map(|list| nodes(list.cast()))
                .map(|action| &*action.cast::<pg_sys::MergeAction>())
                .all(|action| is_quiet(action.qual) && is_quiet(action.targetList.cast()))
            && is_quiet(modify.returningLists.cast())
            && is_quiet(modify.onConflictSet.cast())
            && is_quiet(modify.onConflictWhere)
    }
}

/// Whether the statement's target is no partitioned table, or a quiet one and the plan names all
/// partitions in question. An INSERT routes rows to partitions that the plan does not name. (An
/// UPDATE does so only when it changes the partition key, which is in every key that rows are known
/// by.)
unsafe fn is_root_quiet(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `is_statement_quiet`.
    unsafe {
        let top = (*plan).planTree;
        if tag(top) != NodeTag::T_ModifyTable {
            return true;
        }
        let modify = &*top.cast::<pg_sys::ModifyTable>();
        modify.rootRelation == 0
            || modify.operation != pg_sys::CmdType::CMD_INSERT
                && is_table_quiet(relation_of(plan, modify.rootRelation))
    }
}

/// Whether rows are routed to partitions, which the plan does not name.
unsafe fn inserts_into_partitions(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: as in `is_statement_quiet`.
    unsafe {
        matches!(
            (*plan).commandType,
            pg_sys::CmdType::CMD_INSERT | pg_sys::CmdType::CMD_MERGE
        ) && is_partitioned(plan)
    }
}

/// Whether there is nothing in a list but nulls.
unsafe fn has_no_elements(list: *const pg_sys::List) -> bool {
    // SAFETY: null or a list of pointers.
    unsafe { nodes(list).all(|node| node.is_null()) }
}

/// Whether all arguments of a CALL are quiet, and the procedure is one whose statements come by a
/// hook.
///
/// # Safety
/// `call` is a parsed CALL.
pub unsafe fn is_call_quiet(call: *const pg_sys::CallStmt) -> bool {
    // SAFETY: the caller's node is a parsed CALL; its arguments are expressions.
    unsafe {
        let procedure = (*call).funcexpr;
        !procedure.is_null()
            && language::is_watched()
            && language::is_written_in_it((*procedure).funcid)
            && nodes((*procedure).args).all(|argument| is_copied(argument) || is_quiet(argument))
    }
}

/// Whether a DO block is in PL/pgSQL.
///
/// # Safety
/// `block` is a parsed DO.
pub unsafe fn is_block_watched(block: *const pg_sys::DoStmt) -> bool {
    // SAFETY: DefElems with strings (gram.y: DoStmt); without LANGUAGE it is PL/pgSQL
    // (functioncmds.c: ExecuteDoStmt).
    unsafe {
        let named = nodes((*block).args)
            .map(|node| node.cast::<pg_sys::DefElem>())
            .find(|&option| CStr::from_ptr((*option).defname).to_bytes() == b"language");
        let in_plpgsql = named.is_none_or(|option| {
            tag((*option).arg) == NodeTag::T_String
                && CStr::from_ptr((*(*option).arg.cast::<pg_sys::String>()).sval).to_bytes()
                    == b"plpgsql"
        });
        in_plpgsql && language::is_watched()
    }
}
