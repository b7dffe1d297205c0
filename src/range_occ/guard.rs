//! What a validated transaction may not do.

use super::errors;
use super::excerpt;
use super::ordered;
use super::parents;
use super::redefined;
use super::session;
use super::view::View;
use crate::hotlock::memory;
use crate::pg::per_table::PerTable;
use crate::pg::{plan, raw, tuple};
use keyrange::Count;
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};
use std::ffi::c_int;
use std::ptr;

/// 0A000 on a standby: the rings are the primary's.
pub fn refuse_recovery() {
    // SAFETY: reads shared state.
    if unsafe { raw::RecoveryInProgress() } {
        errors::IN_RECOVERY.raise();
    }
}

/// 40001 if the transaction's snapshot does not see the table's definition, or that of the index of its range key: the
/// table may have been truncated, rewritten or divided anew, and its writers registered by another key.
pub fn check_definition(table: Oid, index: Oid) {
    use pg_sys::SysCacheIdentifier::{INDEXRELID, RELOID};
    let view = View::of_transaction();
    // SAFETY: catalog look-ups; a tuple of the catalog cache is good until it is released.
    unsafe {
        for (cache, oid) in [(RELOID, table), (INDEXRELID, index)] {
            let row = raw::SearchSysCache1(cache as c_int, Datum::from(oid));
            if row.is_null() {
                continue;
            }
            let header = (*row).t_data;
            let frozen = (*header).t_infomask & pg_sys::HEAP_XMIN_FROZEN as u16
                == pg_sys::HEAP_XMIN_FROZEN as u16;
            let xmin = tuple::raw_xmin(header);
            raw::ReleaseSysCache(row);
            if !frozen
                && u32::from(xmin) >= pg_sys::FirstNormalTransactionId.into()
                && view.misses(xmin)
            {
                memory().ranges.add(Count::FirstTouch, 1);
                errors::redefined(table);
            }
        }
    }
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
    let is_other = class.schema != own_schema && class.method != method;
    if is_stored && is_other {
        Use::Refused(class.method)
    } else {
        Use::Free
    }
}

fn known_use(oid: Oid) -> Use {
    if u32::from(oid) < pg_sys::FirstNormalObjectId {
        return Use::Free;
    }
    USES.get(oid, || use_of(oid))
}

/// A validated transaction is about to use the table. 0A000 if it cannot, 40001 if it does not see which partitions the table has.
fn check_table(oid: Oid) {
    match known_use(oid) {
        Use::Free => {}
        Use::Partitioned => parents::note(oid),
        Use::Refused(method) => errors::other_method(oid, method),
    }
}

/// The same for a table that is written to, and all that its rows may be routed to.
fn check_target(oid: Oid) {
    check_table(oid);
    if matches!(known_use(oid), Use::Partitioned) {
        // SAFETY: a partitioned table that is locked, and a list that stays in the current memory context.
        unsafe {
            let none = pg_sys::NoLock as pg_sys::LOCKMODE;
            let all = raw::find_all_inheritors(oid, none, ptr::null_mut());
            plan::oids(all).for_each(check_table);
        }
    }
}

/// Before a statement starts: the tables of its plan, and whether it may run in parallel, which it may not, as what the
/// workers read is not captured.
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn before_start(query: *mut pg_sys::QueryDesc) {
    if !session::is_validated() {
        return;
    }
    // SAFETY: by the contract.
    unsafe { ordered::before_start(query) };
    excerpt::before_reads();
    // SAFETY: a plan, its range table, and a copy of its head for this execution.
    unsafe {
        let planned = (*query).plannedstmt;
        for node in plan::nodes((*planned).rtable) {
            let entry = &*node.cast::<pg_sys::RangeTblEntry>();
            if entry.rtekind == pg_sys::RTEKind::RTE_RELATION {
                refuse_recovery();
                if (*planned).resultRelations.is_null() {
                    check_table(entry.relid);
                } else {
                    check_target(entry.relid);
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
    excerpt::before_reads();
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
pub unsafe fn before_utility(node: *const pg_sys::Node) {
    // SAFETY: by the contract; a name that cannot be resolved is left to COPY to report.
    unsafe {
        if (*node).type_ == NodeTag::T_TransactionStmt {
            return;
        }
        redefined::note_utility((*node).type_ == NodeTag::T_VacuumStmt);
        if (*node).type_ == NodeTag::T_VariableSetStmt {
            // SET TRANSACTION SNAPSHOT; the other commands of this kind begin no transaction either.
            let set = node.cast::<pg_sys::VariableSetStmt>();
            if (*set).kind == pg_sys::VariableSetKind::VAR_SET_MULTI {
                session::forget_prefix();
                session::uses_snapshot();
            }
            return;
        }
        session::uses_snapshot();
        if (*node).type_ != NodeTag::T_CopyStmt || !session::is_validated() {
            return;
        }
        let copy = node.cast::<pg_sys::CopyStmt>();
        if !(*copy).relation.is_null() {
            let oid = raw::RangeVarGetRelidExtended(
                (*copy).relation,
                pg_sys::NoLock as pg_sys::LOCKMODE,
                pg_sys::RVROption::RVR_MISSING_OK,
                None,
                ptr::null_mut(),
            );
            if oid != Oid::INVALID {
                check_target(oid);
            }
        }
    }
}
