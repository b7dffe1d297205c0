//! The foreign data wrapper `txn_fdw`: `postgres_fdw` plans, we run.

use super::exchange::in_c;
use super::failure::{Failure, Outcome, raised};
use super::planner;
use super::server::{is_yes, option_of, options};
use super::{direct, modify, scan, truncate};
use crate::pg::nodes::nth;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, FdwRoutine, FunctionCallInfo, Oid};

/// SQLSTATE HV00D, FDW_INVALID_OPTION_NAME.
const INVALID_OPTION: [u8; 5] = *b"HV00D";

/// The version-1 record of a function (fmgr.h).
macro_rules! callable {
    ($info:ident) => {
        #[unsafe(no_mangle)]
        #[doc(hidden)]
        pub extern "C" fn $info() -> &'static pg_sys::Pg_finfo_record {
            const INFO: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
            &INFO
        }
    };
}

callable!(pg_finfo_fdw_handler_wrapper);
callable!(pg_finfo_fdw_validator_wrapper);

/// `txn.fdw_handler()`: the callbacks.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn fdw_handler_wrapper(_call: FunctionCallInfo) -> Datum {
    let theirs = raised(planner::routine());
    // SAFETY: callbacks of postgres_fdw; a new node in the current memory context.
    unsafe {
        let routine = pg_sys::palloc0(size_of::<FdwRoutine>()).cast::<FdwRoutine>();
        *routine = *theirs;
        run_ours(&mut *routine);
        Datum::from(routine)
    }
}

/// Everything that runs at a node is ours. What plans, explains, imports and analyzes is theirs:
/// the latter two read on connections of postgres_fdw's own.
fn run_ours(routine: &mut FdwRoutine) {
    routine.GetForeignRelSize = Some(get_rel_size);
    routine.BeginForeignScan = Some(scan::begin);
    routine.IterateForeignScan = Some(scan::iterate);
    routine.ReScanForeignScan = Some(scan::rescan);
    routine.EndForeignScan = Some(scan::end);
    routine.BeginForeignModify = Some(modify::begin);
    routine.BeginForeignInsert = Some(modify::begin_insert);
    routine.ExecForeignInsert = Some(modify::insert);
    routine.ExecForeignBatchInsert = Some(modify::insert_batch);
    routine.GetForeignModifyBatchSize = Some(modify::batch);
    routine.ExecForeignUpdate = Some(modify::change);
    routine.ExecForeignDelete = Some(modify::change);
    routine.EndForeignModify = Some(modify::end);
    routine.EndForeignInsert = Some(modify::end);
    routine.BeginDirectModify = Some(direct::begin);
    routine.IterateDirectModify = Some(direct::iterate);
    routine.EndDirectModify = Some(direct::end);
    routine.ExecForeignTruncate = Some(truncate::truncate);
    routine.IsForeignPathAsyncCapable = Some(is_async_capable);
}

/// Planning a table begins: its options have to fit it.
#[pg_guard]
unsafe extern "C-unwind" fn get_rel_size(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
    table: Oid,
) {
    raised(check_table(table));
    let theirs = raised(planner::routine());
    // SAFETY: their callback with what the planner has given.
    unsafe {
        if let Some(theirs) = (*theirs).GetForeignRelSize {
            pg_sys::submodules::ffi::pg_guard_ffi_boundary(|| theirs(root, relation, table));
        }
    }
}

/// The columns that option `key` names have to be there.
fn check_table(table: Oid) -> Outcome<()> {
    // SAFETY: catalog look-ups of a table that is locked.
    let own = unsafe { options((*pg_sys::GetForeignTable(table)).options) };
    let Some(key) = option_of(&own, "key") else {
        return Ok(());
    };
    for name in key.split(',') {
        let name = in_c(name.trim());
        // SAFETY: a catalog look-up with a C string that lives until it returns.
        let number = unsafe { pg_sys::get_attnum(table, name.as_ptr()) };
        if number <= 0 {
            let name = name.to_string_lossy();
            return Err(Failure::new(
                *b"42703",
                format!("column \"{name}\" named in option \"key\" does not exist"),
            ));
        }
    }
    Ok(())
}

/// The parts of an Append leave together without it (`statement.rs`).
unsafe extern "C-unwind" fn is_async_capable(_path: *mut pg_sys::ForeignPath) -> bool {
    false
}

/// `txn.fdw_validator(options text[], catalog oid)`: postgres_fdw's options and our own.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn fdw_validator_wrapper(call: FunctionCallInfo) -> Datum {
    // SAFETY: called with text[] and oid, both not null (STRICT).
    unsafe {
        let arguments = (*call).args.as_slice(2);
        let (given, catalog) = (arguments[0].value, arguments[1].value);
        let catalog = Oid::from(catalog.value() as u32);
        raised(validate(given, catalog));
    }
    Datum::null()
}

unsafe fn validate(given: Datum, catalog: Oid) -> Outcome<()> {
    // SAFETY: an array of options; lists and arrays of the current memory context.
    unsafe {
        let list = pg_sys::untransformRelOptions(given);
        let mut theirs = std::ptr::null_mut();
        for (n, (name, value)) in options(list).into_iter().enumerate() {
            if name == "use_remote_estimate" && is_yes(&value) {
                return Err(Failure::new(
                    *b"0A000",
                    "use_remote_estimate is not supported by txn_fdw",
                )
                .detail("Plans are made without asking the nodes.")
                .hint("ANALYZE the foreign table."));
            }
            if name == "key" && catalog == pg_sys::ForeignTableRelationId {
                check_key(&value)?;
                continue;
            }
            theirs = pg_sys::lappend(theirs, nth::<std::ffi::c_void>(list, n));
        }
        // CREATE EXTENSION comes here without any, and must not need postgres_fdw.
        if theirs.is_null() {
            return Ok(());
        }
        let none = Datum::null();
        let rest = pg_sys::transformRelOptions(
            none,
            theirs,
            std::ptr::null(),
            std::ptr::null_mut(),
            false,
            false,
        );
        let validator = planner::function(c"postgres_fdw_validator")?;
        pg_sys::DirectFunctionCall2Coll(Some(validator), Oid::INVALID, rest, Datum::from(catalog));
    }
    Ok(())
}

/// Names of columns, separated by commas.
fn check_key(value: &str) -> Outcome<()> {
    if value.split(',').all(|name| !name.trim().is_empty()) {
        return Ok(());
    }
    Err(Failure::new(
        INVALID_OPTION,
        format!("invalid value for option \"key\": \"{value}\""),
    )
    .detail("It names the columns of the key, separated by commas."))
}
