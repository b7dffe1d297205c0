//! The security label provider `txn`: `SECURITY LABEL FOR txn ON TABLE account IS 'mode=group'`.
//!
//! A table's settings are kept in a label. PostgreSQL dumps a label with its table, drops it with
//! the table, lets only the owner change it, and rolls the change back. (Heap knows its own storage
//! parameters and refuses others.)

use super::settings::{self, Fault, Settings};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use pgrx::{PgLogLevel, PgSqlErrorCode};
use std::ffi::{CStr, c_char};

/// Registers the provider. Once, from `_PG_init`.
pub fn init() {
    settings::init();
    // SAFETY: a static name and a function of the type that is wanted.
    unsafe { pg_sys::register_label_provider(settings::PROVIDER.as_ptr(), Some(relabel)) };
}

/// Before a label is set or, with null, removed: refuses what is not one, and has everybody read it
/// anew when it has been committed (this session with its next command).
#[pg_guard]
unsafe extern "C-unwind" fn relabel(object: *const pg_sys::ObjectAddress, label: *const c_char) {
    // SAFETY: the hook's arguments; the object is locked against other changes of its label.
    unsafe {
        let object = *object;
        if !label.is_null() {
            let label = CStr::from_ptr(label).to_string_lossy();
            if object.classId == pg_sys::ProcedureRelationId {
                check_procedure(object.objectId, &label);
            } else {
                check_object(object, &label);
                if object.classId == pg_sys::RelationRelationId
                    && let Err(fault) = Settings::parse(&label)
                {
                    refuse_text(fault);
                }
            }
        }
        if matches!(
            object.classId,
            pg_sys::RelationRelationId | pg_sys::ProcedureRelationId
        ) {
            // All that sessions remember of labels is forgotten (partitions take their settings
            // from their parents), and nothing else.
            pg_sys::CacheInvalidateRelcacheByRelid(pg_sys::SecLabelRelationId);
        }
    }
}

/// A procedure's label says which keys it writes to and reads (`crates/lane`, `text.rs`).
unsafe fn check_procedure(function: pg_sys::Oid, label: &str) {
    // SAFETY: a catalog look-up of a function that is locked.
    let kind = unsafe { pg_sys::get_func_prokind(function) } as u8;
    if kind != pg_sys::PROKIND_PROCEDURE {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
            "cannot set a security label for txn on a function",
            function_name!(),
        )
        .set_detail("Keys are declared for a CALL.")
        .report(PgLogLevel::ERROR);
    }
    let has_schema = |table: &str| {
        let name = std::ffi::CString::new(table).unwrap_or_default();
        // SAFETY: raises an ERROR if it is no name of a table.
        unsafe {
            let names = pg_sys::stringToQualifiedNameList(name.as_ptr(), std::ptr::null_mut());
            !(*pg_sys::makeRangeVarFromNameList(names))
                .schemaname
                .is_null()
        }
    };
    let detail = match ::lane::parse_declaration(label) {
        Err(malformed) => Some(malformed.text()),
        Ok(declaration) => {
            let mut forms = declaration.writes.iter().chain(&declaration.reads);
            // Callers have search paths of their own.
            (!forms.all(|form| has_schema(&form.table)))
                .then_some("Tables must be named with their schemas.")
        }
    };
    if let Some(detail) = detail {
        refuse_text(Fault {
            message: format!("invalid security label for txn: \"{label}\""),
            detail: Some(detail.to_owned()),
        });
    }
}

fn kind(relation: pg_sys::Oid) -> u8 {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::get_rel_relkind(relation) as u8 }
}

/// The label of a database that uses nodes (`geo/resolver/launcher.rs`): dumps contain it.
pub const DATABASE_LABEL: &str = "geo";

/// Settings are those of ordinary and partitioned tables.
unsafe fn check_object(object: pg_sys::ObjectAddress, label: &str) {
    let wrong = PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE;
    if object.classId == pg_sys::DatabaseRelationId && label == DATABASE_LABEL {
        return;
    }
    if object.classId != pg_sys::RelationRelationId || object.objectSubId != 0 {
        ErrorReport::new(
            wrong,
            "cannot set a security label for txn on this object",
            function_name!(),
        )
        .set_hint("Use SECURITY LABEL FOR txn ON TABLE, or txn.set_table().")
        .report(PgLogLevel::ERROR);
    }
    // SAFETY: catalog look-ups of a relation that is locked.
    let (name, persistence) = unsafe {
        (
            CStr::from_ptr(pg_sys::get_rel_name(object.objectId)).to_string_lossy(),
            pg_sys::get_rel_persistence(object.objectId) as u8,
        )
    };
    if u32::from(object.objectId) < pg_sys::FirstNormalObjectId {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied: \"{name}\" is a system catalog"),
            function_name!(),
        )
        .set_detail("Rows of system catalogs are never hot rows.")
        .report(PgLogLevel::ERROR);
    }
    if ![pg_sys::RELKIND_RELATION, pg_sys::RELKIND_PARTITIONED_TABLE]
        .contains(&kind(object.objectId))
    {
        ErrorReport::new(
            wrong,
            format!("\"{name}\" is not a table"),
            function_name!(),
        )
        .set_detail("Hot rows are rows of ordinary tables.")
        .report(PgLogLevel::ERROR);
    }
    if persistence == pg_sys::RELPERSISTENCE_TEMP {
        ErrorReport::new(
            wrong,
            format!("\"{name}\" is a temporary table"),
            function_name!(),
        )
        .set_detail("A temporary table is used by one session only: its rows are never hot rows.")
        .report(PgLogLevel::ERROR);
    }
}

fn refuse_text(fault: Fault) {
    let report = ErrorReport::new(
        PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
        fault.message,
        function_name!(),
    );
    match fault.detail {
        Some(detail) => report.set_detail(detail),
        None => report,
    }
    .report(PgLogLevel::ERROR);
}
