//! Security labels of tables (commands/seclabel.h), read from the catalog.

use super::raw;
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::CStr;

/// Whether any table of this database has a label of that provider. Reads the whole of pg_seclabel.
/// In a transaction.
pub fn exist(provider: &CStr) -> bool {
    const SHARED: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: a scan of a catalog with the catalog snapshot; an ERROR in it leaves nothing that its
    // abort does not free.
    unsafe {
        let wanted = raw::cstring_to_text(provider.as_ptr());
        let mut keys = [pg_sys::ScanKeyData::default(); 2];
        raw::ScanKeyInit(
            &mut keys[0],
            pg_sys::Anum_pg_seclabel_provider as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_TEXTEQ.into(),
            Datum::from(wanted),
        );
        raw::ScanKeyInit(
            &mut keys[1],
            pg_sys::Anum_pg_seclabel_classoid as pg_sys::AttrNumber,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_OIDEQ.into(),
            Datum::from(pg_sys::RelationRelationId),
        );
        let catalog = raw::table_open(pg_sys::SecLabelRelationId, SHARED);
        let scan = raw::systable_beginscan(
            catalog,
            Oid::INVALID,
            false,
            std::ptr::null_mut(),
            2,
            keys.as_mut_ptr(),
        );
        let found = !raw::systable_getnext(scan).is_null();
        raw::systable_endscan(scan);
        raw::table_close(catalog, SHARED);
        raw::pfree(wanted.cast());
        found
    }
}

/// Calls `each` with the procedure's label of that provider, if it has one. In a transaction;
/// `each` raises nothing.
pub fn of_procedure(function: Oid, provider: &CStr, each: impl FnOnce(&CStr)) {
    let procedure = pg_sys::ObjectAddress {
        classId: pg_sys::ProcedureRelationId,
        objectId: function,
        objectSubId: 0,
    };
    // SAFETY: a catalog look-up.
    unsafe {
        let label = raw::GetSecurityLabel(&procedure, provider.as_ptr());
        if !label.is_null() {
            each(CStr::from_ptr(label));
            raw::pfree(label.cast());
        }
    }
}

/// Calls `each` with the table's label of that provider, then with those of the partitioned tables
/// of which it is a partition, nearest first. Tables without a label are left out. In a
/// transaction; `each` raises nothing.
pub fn for_each(relation: Oid, provider: &CStr, mut each: impl FnMut(&CStr)) {
    // SAFETY: catalog look-ups for a table that is locked or open.
    unsafe {
        let mut read = |relation| {
            let table = pg_sys::ObjectAddress {
                classId: pg_sys::RelationRelationId,
                objectId: relation,
                objectSubId: 0,
            };
            let label = raw::GetSecurityLabel(&table, provider.as_ptr());
            if !label.is_null() {
                each(CStr::from_ptr(label));
                raw::pfree(label.cast());
            }
        };
        read(relation);
        if raw::get_rel_relispartition(relation) {
            let ancestors = raw::get_partition_ancestors(relation);
            super::nodes::oids(ancestors).for_each(read);
            raw::list_free(ancestors);
        }
    }
}
