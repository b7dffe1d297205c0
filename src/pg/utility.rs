//! What utility commands do, as far as it can be told from their nodes.

use super::nodes;
use super::raw;
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
            NodeTag::T_DropStmt => {
                let kind = (*node.cast::<pg_sys::DropStmt>()).removeType;
                kind == OBJECT_INDEX
                    || kind == OBJECT_STATISTIC_EXT
                    || drops(node.cast(), |relation| {
                        relation == Oid::INVALID || super::lookup::is_temporary(relation)
                    })
            }
            NodeTag::T_AlterTableStmt => {
                alters_storage(node.cast())
                    || is_temporary((*node.cast::<pg_sys::AlterTableStmt>()).relation)
            }
            NodeTag::T_RenameStmt => {
                let renamed = (*node.cast::<pg_sys::RenameStmt>()).relation;
                !renamed.is_null() && is_temporary(renamed)
            }
            NodeTag::T_ViewStmt => is_made_temporary((*node.cast::<pg_sys::ViewStmt>()).view),
            // The settings of a table.
            NodeTag::T_SecLabelStmt => {
                let provider = (*node.cast::<pg_sys::SecLabelStmt>()).provider;
                !provider.is_null() && CStr::from_ptr(provider) == c"txn"
            }
            NodeTag::T_CreateStatsStmt
            | NodeTag::T_AlterStatsStmt
            | NodeTag::T_AlterSeqStmt
            | NodeTag::T_AlterSystemStmt
            | NodeTag::T_ClusterStmt
            | NodeTag::T_LoadStmt
            | NodeTag::T_IndexStmt
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

/// Whether an ALTER TABLE that others can run beside changes nothing but statistics and storage.
///
/// # Safety
/// A parsed ALTER TABLE.
pub unsafe fn alters_storage(alter: *const pg_sys::AlterTableStmt) -> bool {
    use pg_sys::AlterTableType as Kind;
    // SAFETY: by the contract; its list of commands.
    unsafe {
        nodes::nodes((*alter).cmds).all(|command| {
            matches!(
                (*command.cast::<pg_sys::AlterTableCmd>()).subtype,
                Kind::AT_SetStatistics
                    | Kind::AT_SetOptions
                    | Kind::AT_ResetOptions
                    | Kind::AT_SetRelOptions
                    | Kind::AT_ResetRelOptions
                    | Kind::AT_ClusterOn
                    | Kind::AT_DropCluster
            )
        })
    }
}

/// Whether a command concerns roles, which all databases share.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn concerns_roles(node: *const Node) -> bool {
    // SAFETY: the node is read as what its tag says.
    unsafe {
        match (*node).type_ {
            NodeTag::T_CreateRoleStmt
            | NodeTag::T_AlterRoleStmt
            | NodeTag::T_DropRoleStmt
            | NodeTag::T_GrantRoleStmt
            | NodeTag::T_DropOwnedStmt
            | NodeTag::T_ReassignOwnedStmt => true,
            NodeTag::T_RenameStmt => (*node.cast::<pg_sys::RenameStmt>()).renameType == OBJECT_ROLE,
            _ => false,
        }
    }
}

/// Whether it drops temporary tables and the like only.
///
/// # Safety
/// `drop` is a parsed DROP.
pub unsafe fn drops_temporary(drop: *const pg_sys::DropStmt) -> bool {
    // SAFETY: the caller's node is a parsed DROP.
    unsafe {
        drops(drop, |relation| {
            relation != Oid::INVALID && super::lookup::is_temporary(relation)
        })
    }
}

/// Whether it drops only tables and the like of which that is so. A name that nothing has is an
/// invalid one.
unsafe fn drops(drop: *const pg_sys::DropStmt, is_so: impl Fn(Oid) -> bool) -> bool {
    // SAFETY: by the caller's contract; lists of names.
    unsafe {
        matches!(
            (*drop).removeType,
            OBJECT_TABLE | OBJECT_INDEX | OBJECT_VIEW | OBJECT_SEQUENCE
        ) && nodes::nodes((*drop).objects)
            .all(|name| is_so(relation_named(raw::makeRangeVarFromNameList(name.cast()))))
    }
}

/// Whether that is the name of a temporary table or the like to be made.
///
/// # Safety
/// `name` is a name in a parsed statement.
pub unsafe fn is_made_temporary(name: *const RangeVar) -> bool {
    // SAFETY: the caller's name comes from a parsed statement; its schema is null or a C string.
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
    // SAFETY: the caller's name comes from a parsed statement.
    let relation = unsafe { relation_named(name) };
    relation != Oid::INVALID && super::lookup::is_temporary(relation)
}

/// The relation of that name, not locked; invalid if nothing has it.
unsafe fn relation_named(name: *const RangeVar) -> Oid {
    // SAFETY: the name in a statement.
    unsafe {
        raw::RangeVarGetRelidExtended(
            name,
            pg_sys::NoLock as pg_sys::LOCKMODE,
            pg_sys::RVROption::RVR_MISSING_OK,
            None,
            std::ptr::null_mut(),
        )
    }
}

/// Whether an EXPLAIN is of a CREATE TABLE AS, which it executes with ANALYZE, without a command of
/// its own.
///
/// # Safety
/// An analyzed EXPLAIN.
pub unsafe fn explains_creation(explain: *const pg_sys::ExplainStmt) -> bool {
    // SAFETY: by the contract; its query has been analyzed.
    unsafe {
        let query = (*explain).query.cast::<pg_sys::Query>();
        (*query).type_ == NodeTag::T_Query
            && !(*query).utilityStmt.is_null()
            && (*(*query).utilityStmt).type_ == NodeTag::T_CreateTableAsStmt
    }
}
