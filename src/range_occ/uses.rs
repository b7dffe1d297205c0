//! What a table is to a validated transaction, by its access method.

use super::errors;
use crate::pg::per_table::PerTable;
use crate::pg::{nodes, raw};
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::c_int;

/// What a relation is, from pg_class.
struct Class {
    kind: u8,
    method: Oid,
    is_temporary: bool,
    schema: Oid,
}

fn class_of(oid: Oid) -> Option<Class> {
    // SAFETY: a row of the syscache stays in place until it is released; relkind and relam are not
    // null.
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
pub enum Use {
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

/// What the table is; remembered until its relcache entry becomes invalid.
pub fn known_use(oid: Oid) -> Use {
    if u32::from(oid) < pg_sys::FirstNormalObjectId {
        return Use::Free;
    }
    USES.get(oid, || use_of(oid))
}

/// Whether the plan reads what is validated.
///
/// # Safety
/// `planned` is a valid plan.
pub unsafe fn is_any_ours(planned: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: the caller's plan is valid, and `relationOids` is a list of oids.
    let mut uses = unsafe { nodes::oids((*planned).relationOids) }.map(known_use);
    uses.any(|one| matches!(one, Use::Ours))
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
