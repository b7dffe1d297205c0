//! The launcher starts the resolvers of the databases that use nodes, after a start of the server
//! and whenever one is missing. It gives back what dropped databases had in shared memory.
//!
//! A database that uses nodes has a security label of ours in the shared catalog `pg_shseclabel`:
//! the launcher is connected to no database.

use super::{attach_signals, in_transaction, sleep};
use crate::geo::coordinator::{forget_dropped, start_resolver};
use crate::geo::exchange::in_c;
use crate::hotlock::provider::DATABASE_LABEL;
use crate::pg::process;
use crate::pg::tuple::attribute;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::CStr;
use std::time::Duration;

/// How often the launcher looks, in microseconds.
const INTERVAL_US: u64 = 2_000_000;

const PROVIDER: &CStr = c"txn";

/// catalog/pg_shseclabel.h: its columns are objoid, classoid, provider, label.
const SHARED_LABELS: Oid = Oid::from_u32(3592);

/// Registers the launcher. Once, from `_PG_init`.
pub fn register() {
    BackgroundWorkerBuilder::new("txn launcher")
        .set_type("txn launcher")
        .set_library("txn")
        .set_function("txn_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(5)))
        .load();
}

/// The worker's start.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn txn_launcher_main(_argument: Datum) {
    attach_signals();
    // SAFETY: shared catalogs only.
    unsafe {
        let none = std::ptr::null();
        pg_sys::BackgroundWorkerInitializeConnection(none, none, 0);
    }
    loop {
        in_transaction(|| {
            forget_dropped();
            for database in databases() {
                start_resolver(database);
            }
        });
        sleep(&[], process::now() + INTERVAL_US);
    }
}

/// The databases with our label that are still there.
fn databases() -> Vec<u32> {
    const SHARED: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    let mut found = Vec::new();
    // SAFETY: a scan of a shared catalog; its columns are not null.
    unsafe {
        let catalog = pg_sys::table_open(SHARED_LABELS, SHARED);
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(catalog, Oid::INVALID, false, none, 0, none.cast());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let field = |number| attribute(tuple, number, (*catalog).rd_att);
            let (Some(object), Some(class), Some(provider)) = (field(1), field(2), field(3)) else {
                continue;
            };
            let provider = pg_sys::text_to_cstring(provider.cast_mut_ptr());
            if class.value() as u32 == u32::from(pg_sys::DatabaseRelationId)
                && CStr::from_ptr(provider) == PROVIDER
            {
                found.push(object.value() as u32);
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, SHARED);
        found.retain(|&oid: &u32| !pg_sys::get_database_name(oid.into()).is_null());
    }
    found
}

/// Notes that this database uses nodes, or that it does not any more. In a transaction.
pub fn mark(uses_nodes: bool) {
    let database = pg_sys::ObjectAddress {
        classId: pg_sys::DatabaseRelationId,
        // SAFETY: a global of this backend, which has one thread.
        objectId: unsafe { pg_sys::MyDatabaseId },
        objectSubId: 0,
    };
    let label = in_c(DATABASE_LABEL);
    let label = if uses_nodes {
        label.as_ptr()
    } else {
        std::ptr::null()
    };
    // SAFETY: commands/seclabel.c, for an object that is there.
    unsafe {
        let before = pg_sys::GetSecurityLabel(&database, PROVIDER.as_ptr());
        if before.is_null() == uses_nodes {
            pg_sys::SetSecurityLabel(&database, PROVIDER.as_ptr(), label);
        }
    }
}
