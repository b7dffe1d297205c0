//! What runs without the notice of anybody: a *quiet* expression reads no table, calls no code of
//! users, and does nothing that a rollback would not undo.
//!
//! A transaction that depends on a running predecessor may run only what is quiet, or what it can
//! be seen to do from a hook (`hotlock/dependent.rs`). Everything here is an allowlist: kinds of
//! nodes, functions, types. What is not on it is not quiet, and the statement waits.
//!
//! - Functions: PostgreSQL's own, written in C, immutable, of plain types; and those of
//!   `SESSION_ONLY`, which are not immutable, but look at nothing other than the session's clock,
//!   settings and sequences.
//! - Types: PostgreSQL's own base types, arrays of them, and enums. Of others it is not known which
//!   functions a comparison or a cast calls. A value that is only copied may be of any type.
//! - Plans: scans, joins, sorts, groups and aggregates by PostgreSQL's operators and functions,
//!   subqueries in FROM, rows of VALUES, INSERT, UPDATE, DELETE and MERGE, row locks, LIMIT. No
//!   subplans.
//! - Tables that are written: their CHECK constraints, generated columns, index expressions and
//!   WHEN conditions are quiet. Their triggers are foreign keys' or PL/pgSQL functions, whose
//!   statements come by a hook (`plpgsql.rs`).

use super::builtin::{self, Known, is_builtin};
use super::nodes::{nodes, numbers, oids, relation_of, tag};
use super::per_table::PerTable;
use super::{language, raw};
use pgrx::pg_sys::{self, Datum, Node, NodeTag, Oid, Plan};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

/// Functions of PostgreSQL's own that are not immutable, by name, and touch nothing but the
/// session, the clock and sequences.
const SESSION_ONLY: [&[u8]; 31] = [
    b"now",
    b"transaction_timestamp",
    b"statement_timestamp",
    b"clock_timestamp",
    b"random",
    b"gen_random_uuid",
    b"nextval",
    b"current_setting",
    b"current_database",
    b"pg_backend_pid",
    b"pg_sleep",
    b"version",
    b"to_char",
    b"timestamptz_pl_interval",
    b"timestamptz_mi_interval",
    b"date_trunc",
    b"date_part",
    b"extract",
    b"age",
    b"date",
    b"timestamp",
    b"timestamptz",
    b"timezone",
    b"time",
    b"timetz",
    b"textanycat",
    b"anytextcat",
    b"concat",
    b"concat_ws",
    b"format",
    b"array_to_string",
];

/// Whether the statement as it is planned is quiet, its target tables included.
///
/// # Safety
/// `plan` is a valid plan whose relations are locked.
pub unsafe fn is_statement_quiet(plan: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: plan trees are read as the executor reads them; every node is checked by its tag.
    unsafe {
        (*plan).utilityStmt.is_null()
            && (*plan).subplans.is_null()
            && !(*plan).hasModifyingCTE
            && is_plan_quiet((*plan).planTree)
            && numbers((*plan).resultRelations)
                .all(|index| is_table_quiet(relation_of(plan, index)))
            && is_root_quiet(plan)
            && !inserts_into_partitions(plan)
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
            NodeTag::T_IndexScan => {
                let scan = &*plan.cast::<pg_sys::IndexScan>();
                is_quiet(scan.indexqualorig.cast()) && is_quiet(scan.indexorderbyorig.cast())
            }
            NodeTag::T_IndexOnlyScan => {
                let scan = &*plan.cast::<pg_sys::IndexOnlyScan>();
                is_quiet(scan.indexqual.cast())
                    && is_quiet(scan.recheckqual.cast())
                    && is_quiet(scan.indexorderby.cast())
            }
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

/// Whether the statement names no partitioned table as its target, or one whose rows it does not
/// route to partitions that the plan does not name. (An UPDATE does that when it changes the
/// partition key, which is in every key that rows are known by.)
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
        ) && super::plan::is_partitioned(plan)
    }
}

/// Whether there is nothing in a list but nulls.
unsafe fn has_no_elements(list: *const pg_sys::List) -> bool {
    // SAFETY: null or a list of pointers.
    unsafe { nodes(list).all(|node| node.is_null()) }
}

/// Whether a query that has not been planned is quiet: so is then what planning evaluates of it.
///
/// # Safety
/// A query as the rewriter leaves it.
pub unsafe fn is_query_quiet(query: *mut pg_sys::Query) -> bool {
    // SAFETY: by the contract.
    unsafe {
        (*query).utilityStmt.is_null()
            && (*query).cteList.is_null()
            && !raw::query_tree_walker_impl(query, Some(is_loud), ptr::null_mut(), 0)
    }
}

/// Whether an expression, or each of a list, is quiet.
///
/// # Safety
/// Null, or an expression tree that is valid and not changed meanwhile.
pub unsafe fn is_quiet(node: *mut Node) -> bool {
    // SAFETY: by the contract.
    unsafe { !is_loud(node, ptr::null_mut()) }
}

/// The walker: true ends the walk.
unsafe extern "C-unwind" fn is_loud(node: *mut Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: every node is read as what its tag says.
    unsafe {
        match tag(node) {
            // A subquery in FROM, or a view.
            NodeTag::T_Query => !is_query_quiet(node.cast()),
            NodeTag::T_TargetEntry => {
                let value = (*node.cast::<pg_sys::TargetEntry>()).expr.cast::<Node>();
                !is_copied(value) && is_loud(value, context)
            }
            _ => !is_known(node) || raw::expression_tree_walker_impl(node, Some(is_loud), context),
        }
    }
}

/// Whether the value is only passed on: then its type does not matter.
unsafe fn is_copied(node: *mut Node) -> bool {
    // SAFETY: as in `is_loud`.
    unsafe {
        matches!(
            tag(node),
            NodeTag::T_Var | NodeTag::T_Const | NodeTag::T_Param
        )
    }
}

/// Whether the node itself, apart from those below it, is quiet.
unsafe fn is_known(node: *mut Node) -> bool {
    // SAFETY: as in `is_loud`.
    unsafe {
        match tag(node) {
            NodeTag::T_List
            | NodeTag::T_FromExpr
            | NodeTag::T_RangeTblRef
            | NodeTag::T_JoinExpr
            | NodeTag::T_OnConflictExpr
            | NodeTag::T_WithCheckOption
            | NodeTag::T_MergeAction
            | NodeTag::T_BoolExpr
            | NodeTag::T_BooleanTest
            | NodeTag::T_CaseWhen
            | NodeTag::T_SQLValueFunction
            | NodeTag::T_NextValueExpr => true,
            NodeTag::T_NullTest => !(*node.cast::<pg_sys::NullTest>()).argisrow,
            NodeTag::T_Var => is_plain((*node.cast::<pg_sys::Var>()).vartype),
            NodeTag::T_Const => is_plain((*node.cast::<pg_sys::Const>()).consttype),
            NodeTag::T_Param => is_plain((*node.cast::<pg_sys::Param>()).paramtype),
            NodeTag::T_CaseTestExpr => is_plain((*node.cast::<pg_sys::CaseTestExpr>()).typeId),
            NodeTag::T_Aggref => {
                let aggregate = &*node.cast::<pg_sys::Aggref>();
                is_plain(aggregate.aggtype)
                    && oids(aggregate.aggargtypes).all(is_plain)
                    && is_function_quiet(aggregate.aggfnoid)
            }
            NodeTag::T_FuncExpr => {
                let call = &*node.cast::<pg_sys::FuncExpr>();
                is_plain(call.funcresulttype) && is_function_quiet(call.funcid)
            }
            NodeTag::T_OpExpr | NodeTag::T_DistinctExpr | NodeTag::T_NullIfExpr => {
                let op = &*node.cast::<pg_sys::OpExpr>();
                is_plain(op.opresulttype) && is_operator_quiet(op.opno, op.opfuncid)
            }
            NodeTag::T_ScalarArrayOpExpr => {
                let op = &*node.cast::<pg_sys::ScalarArrayOpExpr>();
                is_operator_quiet(op.opno, op.opfuncid)
            }
            NodeTag::T_RelabelType => is_plain((*node.cast::<pg_sys::RelabelType>()).resulttype),
            NodeTag::T_CoerceViaIO => is_plain((*node.cast::<pg_sys::CoerceViaIO>()).resulttype),
            NodeTag::T_CaseExpr => is_plain((*node.cast::<pg_sys::CaseExpr>()).casetype),
            NodeTag::T_CoalesceExpr => {
                is_plain((*node.cast::<pg_sys::CoalesceExpr>()).coalescetype)
            }
            NodeTag::T_MinMaxExpr => is_plain((*node.cast::<pg_sys::MinMaxExpr>()).minmaxtype),
            NodeTag::T_ArrayExpr => is_plain((*node.cast::<pg_sys::ArrayExpr>()).array_typeid),
            NodeTag::T_SubscriptingRef => {
                let subscript = &*node.cast::<pg_sys::SubscriptingRef>();
                is_plain(subscript.refcontainertype) && is_plain(subscript.refrestype)
            }
            _ => false,
        }
    }
}

unsafe fn is_operator_quiet(operator: Oid, function: Oid) -> bool {
    // SAFETY: a catalog look-up. A tree that the planner has not seen names no function.
    let function = unsafe {
        if function == Oid::INVALID {
            raw::get_opcode(operator)
        } else {
            function
        }
    };
    is_function_quiet(function)
}

/// Whether a function is on the allowlist.
fn is_function_quiet(function: Oid) -> bool {
    static KNOWN: Known<128> = Known::new();
    // SAFETY: a catalog look-up.
    is_builtin(function) && KNOWN.get(function, || unsafe { is_harmless_builtin(function) })
}

unsafe fn is_harmless_builtin(function: Oid) -> bool {
    let is_harmless = |row: &pg_sys::FormData_pg_proc| {
        // SAFETY: a name ends with a zero.
        let name = unsafe { CStr::from_ptr(row.proname.data.as_ptr()) };
        builtin::is_immutable_internal(row)
            || builtin::is_internal(row) && SESSION_ONLY.contains(&name.to_bytes())
    };
    // SAFETY: a catalog look-up.
    unsafe { builtin::ask_function(function, is_harmless) == Some(true) }
}

/// Whether all operations on a type are PostgreSQL's own.
pub fn is_plain(typ: Oid) -> bool {
    match typ {
        pg_sys::RECORDOID | pg_sys::RECORDARRAYOID => false,
        _ if is_builtin(typ) => true,
        // SAFETY: a catalog look-up. Enums look at pg_enum, in a cache.
        _ => unsafe { raw::get_typtype(typ) as u8 == pg_sys::TYPTYPE_ENUM },
    }
}

/// What is known of a table that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Loud,
    /// It has triggers in PL/pgSQL, and is quiet otherwise.
    FiresPlpgsql,
    Quiet,
}

static TABLES: PerTable<Table, 256> = PerTable::new();

unsafe extern "C-unwind" fn forget(_arg: Datum, relation: Oid) {
    TABLES.forget(relation);
}

/// A function has changed: a trigger's, perhaps, into one of another language.
unsafe extern "C-unwind" fn forget_all(_arg: Datum, _cache: c_int, _hash: u32) {
    TABLES.forget(Oid::INVALID);
}

/// Registers the invalidation callbacks. Once, from `_PG_init`.
pub fn init() {
    let functions = pg_sys::SysCacheIdentifier::PROCOID as c_int;
    // SAFETY: the callbacks touch only process-local cells.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(forget), Datum::from(0));
        pg_sys::CacheRegisterSyscacheCallback(functions, Some(forget_all), Datum::from(0));
    }
}

/// Whether writing a row of the table runs nothing that is not quiet.
///
/// # Safety
/// The table is locked by the statement.
unsafe fn is_table_quiet(relation: Oid) -> bool {
    // SAFETY: by the contract.
    match TABLES.get(relation, || unsafe { build(relation) }) {
        Table::Loud => false,
        Table::FiresPlpgsql => language::is_watched(),
        Table::Quiet => true,
    }
}

unsafe fn build(relation: Oid) -> Table {
    // SAFETY: relcache entries are valid while open.
    unsafe {
        let rel = raw::RelationIdGetRelation(relation);
        if rel.is_null() {
            return Table::Loud;
        }
        let kind = (*(*rel).rd_rel).relkind as u8;
        let is_table = matches!(
            kind,
            pg_sys::RELKIND_RELATION | pg_sys::RELKIND_PARTITIONED_TABLE
        );
        let table = if is_table && has_quiet_columns(rel) && has_quiet_indexes(rel) {
            triggers((*rel).trigdesc)
        } else {
            Table::Loud
        };
        raw::RelationClose(rel);
        table
    }
}

/// CHECK constraints and generated columns.
unsafe fn has_quiet_columns(rel: pg_sys::Relation) -> bool {
    // SAFETY: the relcache's description of the columns.
    unsafe {
        let descriptor = (*rel).rd_att;
        let constraints = (*descriptor).constr;
        if constraints.is_null() {
            return true;
        }
        let checks = (0..(*constraints).num_check as usize)
            .all(|n| is_text_quiet((*(*constraints).check.add(n)).ccbin));
        let attributes = (*descriptor).attrs.as_ptr();
        let generated = !(*constraints).has_generated_stored
            || (0..(*constraints).num_defval as usize).all(|n| {
                let value = &*(*constraints).defval.add(n);
                (*attributes.add(value.adnum as usize - 1)).attgenerated == 0
                    || is_text_quiet(value.adbin)
            });
        checks && generated
    }
}

/// An expression as the catalogs keep it.
unsafe fn is_text_quiet(text: *const std::ffi::c_char) -> bool {
    // SAFETY: by the caller; null is no expression.
    unsafe { text.is_null() || is_quiet(raw::stringToNode(text).cast()) }
}

/// Expressions and conditions of indexes.
unsafe fn has_quiet_indexes(rel: pg_sys::Relation) -> bool {
    // SAFETY: the relcache's list of indexes; they are locked with their table.
    unsafe {
        let indexes = raw::RelationGetIndexList(rel);
        let quiet = oids(indexes).all(|oid| {
            let index = raw::RelationIdGetRelation(oid);
            if index.is_null() {
                return false;
            }
            let quiet = has_builtin_operators(index)
                && is_quiet(raw::RelationGetIndexExpressions(index).cast())
                && is_quiet(raw::RelationGetIndexPredicate(index).cast());
            raw::RelationClose(index);
            quiet
        });
        raw::list_free(indexes);
        quiet
    }
}

/// Whether all that an index does with its keys is PostgreSQL's own: the operator classes, and the
/// types for which these call others' functions (of a range, its subtype's). Such functions are
/// called with a page locked.
unsafe fn has_builtin_operators(index: pg_sys::Relation) -> bool {
    /// access/transam.h: FirstUnpinnedObjectId.
    const FIRST_UNPINNED: u32 = 12000;
    // SAFETY: the relcache's description of an open index.
    unsafe {
        let columns = (*(*index).rd_index).indnkeyatts as usize;
        let descriptor = (*index).rd_att;
        let attributes = (*descriptor).attrs.as_ptr();
        (0..columns).all(|n| {
            u32::from(*(*index).rd_opfamily.add(n)) < FIRST_UNPINNED
                && is_plain((*attributes.add(n)).atttypid)
        })
    }
}

/// utils/fmgroids.h: the trigger functions of foreign keys, RI_FKey_check_ins to
/// RI_FKey_noaction_upd. Their statements come by a hook.
const FOREIGN_KEY: std::ops::RangeInclusive<u32> = 1644..=1655;

unsafe fn triggers(triggers: *const pg_sys::TriggerDesc) -> Table {
    // SAFETY: null, or the relcache's description of the triggers.
    unsafe {
        if triggers.is_null() {
            return Table::Quiet;
        }
        let all =
            std::slice::from_raw_parts((*triggers).triggers, (*triggers).numtriggers as usize);
        let mut users = all
            .iter()
            .filter(|trigger| !FOREIGN_KEY.contains(&u32::from(trigger.tgfoid)))
            .peekable();
        if users.peek().is_none() {
            return Table::Quiet;
        }
        let quiet = users.all(|trigger| {
            language::is_written_in_it(trigger.tgfoid) && is_text_quiet(trigger.tgqual)
        });
        if quiet {
            Table::FiresPlpgsql
        } else {
            Table::Loud
        }
    }
}

/// Whether all arguments of a CALL are quiet, and the procedure is one whose statements come by a
/// hook.
///
/// # Safety
/// `call` is a parsed CALL.
pub unsafe fn is_call_quiet(call: *const pg_sys::CallStmt) -> bool {
    // SAFETY: by the contract.
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
