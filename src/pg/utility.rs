//! What utility commands do, as far as it can be told from their nodes.

use super::{plan, raw};
use pgrx::pg_sys::{self, Node, NodeTag, ObjectType::*, Oid, RangeVar};
use std::ffi::CStr;

/// Whether a command leaves all as it was that the analysis, the planning and the results of other
/// sessions' statements depend on.
///
/// # Safety
/// A utility statement's node, about to be executed.
pub unsafe fn keeps_definitions(node: *const Node) -> bool {
    // A new table hides others of that name behind it in the search path, a dropped one uncovers
    // them: for this session only, if it is temporary.
    // SAFETY: the node is read as what its tag says.
    unsafe {
        match (*node).type_ {
            NodeTag::T_CreateStmt => {
                is_made_temporary((*node.cast::<pg_sys::CreateStmt>()).relation)
            }
            NodeTag::T_CreateTableAsStmt => {
                let into = (*node.cast::<pg_sys::CreateTableAsStmt>()).into;
                is_made_temporary((*into).rel)
            }
            NodeTag::T_CreateSeqStmt => {
                is_made_temporary((*node.cast::<pg_sys::CreateSeqStmt>()).sequence)
            }
            NodeTag::T_DropStmt => drops_temporary(node.cast()),
            NodeTag::T_IndexStmt
            | NodeTag::T_ReindexStmt
            | NodeTag::T_TruncateStmt
            | NodeTag::T_VacuumStmt
            | NodeTag::T_RefreshMatViewStmt
            | NodeTag::T_CommentStmt
            | NodeTag::T_CheckPointStmt => true,
            _ => false,
        }
    }
}

/// Whether a command concerns roles, which all databases share.
///
/// # Safety
/// A utility statement's node.
pub unsafe fn concerns_roles(node: *const Node) -> bool {
    // SAFETY: the node is read as what its tag says.
    unsafe {
        match (*node).type_ {
            NodeTag::T_CreateRoleStmt
            | NodeTag::T_AlterRoleStmt
            | NodeTag::T_DropRoleStmt
            | NodeTag::T_GrantRoleStmt => true,
            NodeTag::T_RenameStmt => {
                (*node.cast::<pg_sys::RenameStmt>()).renameType == OBJECT_ROLE
            }
            _ => false,
        }
    }
}

/// Whether it drops temporary tables and the like only.
///
/// # Safety
/// A parsed DROP.
pub unsafe fn drops_temporary(drop: *const pg_sys::DropStmt) -> bool {
    // SAFETY: by the contract; lists of names.
    unsafe {
        matches!(
            (*drop).removeType,
            OBJECT_TABLE | OBJECT_INDEX | OBJECT_VIEW | OBJECT_SEQUENCE
        ) && plan::nodes((*drop).objects)
            .all(|name| is_temporary(raw::makeRangeVarFromNameList(name.cast())))
    }
}

/// Whether that is the name of a temporary table or the like to be made.
///
/// # Safety
/// The name in a statement.
pub unsafe fn is_made_temporary(name: *const RangeVar) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let schema = (*name).schemaname;
        (*name).relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP
            || !schema.is_null() && CStr::from_ptr(schema) == c"pg_temp"
    }
}

/// Whether that is the name of a temporary table or the like.
///
/// # Safety
/// The name in a statement, which is left to the statement to report if nothing has it.
pub unsafe fn is_temporary(name: *const RangeVar) -> bool {
    // SAFETY: by the contract.
    unsafe {
        let oid = raw::RangeVarGetRelidExtended(
            name,
            pg_sys::NoLock as pg_sys::LOCKMODE,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        );
        oid != Oid::INVALID && super::lookup::is_temporary(oid)
    }
}
