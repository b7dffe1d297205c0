//! `txn`: transactions that fight over the same rows, without the fall. See README.md.

use pgrx::prelude::*;

mod entry;
mod geo;
mod hotlock;
mod lane;
mod pg;
mod range_occ;
mod shared;
mod tam;

::pgrx::pg_module_magic!(name, version);

extension_sql_file!("../sql/install/txn--0.5.0.sql", name = "install", finalize);

/// Called when the library is loaded: at server start, or it refuses.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // SAFETY: a plain read of a variable of the server.
    if !unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
        pg::error::NOT_PRELOADED.raise();
    }
    shared::guc_table::init();
    pg::relation::init();
    pg::quiet::init();
    pg::column_triggers::init();
    pg::plpgsql::init(hotlock::dependent::HOOKS);
    pg::release::init(pg::release::Done {
        committed: entry::transaction::after_locks,
        rolled_back: hotlock::read_wait::after_rollback,
    });
    hotlock::provider::init();
    hotlock::repeatable::init(range_occ::ordered::retake);
    pg::functions::init(pg::functions::Before {
        any: hotlock::readguard::before_function,
        outside: hotlock::snapshot_due::before_function,
        is_planning: pg::nesting::is_planning,
    });
    range_occ::init();
    lane::init();
    geo::resolver::init();
    geo::cut::init();
    entry::access_method::init();
    entry::hooks::init();
    entry::transaction::init();
}
