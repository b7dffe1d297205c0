//! Which expressions are quiet, and which functions and types they may use.

use crate::pg::builtin::{self, Known, is_builtin};
use crate::pg::nodes::{oids, tag};
use crate::pg::raw;
use pgrx::pg_sys::{self, Node, NodeTag, Oid};
use std::ffi::{CStr, c_void};
use std::ptr;

/// Functions of PostgreSQL's own that are not immutable, by name, and touch nothing but the
/// session, its transaction's id, the clock and sequences.
const SESSION_ONLY: [&[u8]; 33] = [
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
    b"pg_current_xact_id",
    b"pg_current_xact_id_if_assigned",
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

/// Whether a query that has not been planned is quiet: so is then what planning evaluates of it.
///
/// # Safety
/// A query as the rewriter leaves it.
pub unsafe fn is_query_quiet(query: *mut pg_sys::Query) -> bool {
    // SAFETY: the caller's query comes from the rewriter, so the walker knows all of its nodes.
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
    // SAFETY: the caller's tree is null or valid, and does not change meanwhile.
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
pub(super) unsafe fn is_copied(node: *mut Node) -> bool {
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
