//! Which commands may come first in a transaction with a global snapshot.

use super::failure::guarded;
use crate::pg::nodes::{nodes as elements, tag};
use pgrx::pg_sys::{self, NodeTag};
use std::ffi::CStr;

/// Whether the command is SET TRANSACTION SNAPSHOT.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn imports_snapshot(node: *const pg_sys::Node) -> bool {
    // SAFETY: by the contract, read as what its tag says.
    unsafe {
        (*node).type_ == NodeTag::T_VariableSetStmt && {
            let set = &*node.cast::<pg_sys::VariableSetStmt>();
            set.kind == pg_sys::VariableSetKind::VAR_SET_MULTI
                && CStr::from_ptr(set.name) == c"TRANSACTION SNAPSHOT"
        }
    }
}

/// Whether the command reads nothing but by statements that come to `before_start`, if it does.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn only_starts_others(node: *const pg_sys::Node) -> bool {
    // SAFETY: a utility statement's node.
    match unsafe { (*node).type_ } {
        NodeTag::T_PrepareStmt | NodeTag::T_ConstraintsSetStmt | NodeTag::T_CheckPointStmt => true,
        // SAFETY: the caller's node is that of a utility statement.
        _ => unsafe { only_explains(node) },
    }
}

/// Whether the command is an EXPLAIN that does not run its statement.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
unsafe fn only_explains(node: *const pg_sys::Node) -> bool {
    // SAFETY: by the contract, read as its tag says; an option's value that is none is the
    // command's own error.
    unsafe { (*node).type_ == NodeTag::T_ExplainStmt && guarded(|| !is_analyzed(node.cast())) }
}

/// Whether it is one of a statement that is planned: nothing runs but what the planner wants to
/// know. (EXECUTE evaluates its arguments.)
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn only_plans(node: *const pg_sys::Node) -> bool {
    // SAFETY: by the contract; the statement of an EXPLAIN is analyzed.
    unsafe {
        only_explains(node) && {
            let query = (*node.cast::<pg_sys::ExplainStmt>()).query;
            tag(query) == NodeTag::T_Query
                && (*query.cast::<pg_sys::Query>()).commandType != pg_sys::CmdType::CMD_UTILITY
        }
    }
}

/// Whether the EXPLAIN runs its statement.
unsafe fn is_analyzed(explain: *const pg_sys::ExplainStmt) -> bool {
    // SAFETY: a utility statement's node.
    unsafe {
        let mut options = elements((*explain).options);
        options.any(|option| {
            let option = option.cast::<pg_sys::DefElem>();
            CStr::from_ptr((*option).defname) == c"analyze" && pg_sys::defGetBoolean(option)
        })
    }
}

/// Whether the command reads rows for its client, or is a change of tables, which may come first in
/// a transaction that reads. Others take no snapshot of the nodes: CREATE DATABASE, which wants the
/// resolver to leave, and what cannot be in a transaction block.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn may_take(node: *const pg_sys::Node) -> bool {
    // SAFETY: a utility statement's node.
    let tag = unsafe { (*node).type_ };
    matches!(
        tag,
        NodeTag::T_AlterTableStmt
            | NodeTag::T_CallStmt
            | NodeTag::T_CopyStmt
            | NodeTag::T_CreateStmt
            | NodeTag::T_CreateTableAsStmt
            | NodeTag::T_DeclareCursorStmt
            | NodeTag::T_DoStmt
            | NodeTag::T_DropStmt
            | NodeTag::T_ExecuteStmt
            | NodeTag::T_ExplainStmt
            | NodeTag::T_FetchStmt
            | NodeTag::T_IndexStmt
            | NodeTag::T_RefreshMatViewStmt
            | NodeTag::T_TruncateStmt
            | NodeTag::T_ViewStmt
    )
}
