//! Functions that write without the executor, as those for large objects do: their transaction does
//! not become visible before it is durable. And functions that tell of transactions without reading
//! a table: what they tell must be durable (`readguard.rs`).
//!
//! An immutable or stable function writes nothing. A volatile one in SQL, or in a language that
//! runs its statements by SPI, writes by the executor. Of PostgreSQL's own in C the harmless ones
//! are named here. Any other volatile one in C is taken to write.

use crate::pg::builtin::{ask_function, is_builtin};
use crate::pg::local::Local;
use pgrx::pg_sys::{self, FormData_pg_proc, Oid};
use std::cell::Cell;
use std::ffi::CStr;

/// What a function does besides what the executor does for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Unknown,
    Harmless,
    Writes,
    /// It tells whether transactions have committed.
    Tells,
}

/// catalog/pg_proc.dat: txid_status, pg_xact_status, pg_xact_commit_timestamp,
/// pg_xact_commit_timestamp_origin, pg_last_committed_xact.
const TELLING: [u32; 5] = [3360, 5066, 3581, 6168, 3583];

/// PostgreSQL's own volatile functions (catalog/pg_proc.dat) that write no rows, or by the executor
/// only.
const HARMLESS: &[std::ops::RangeInclusive<u32>] = &[
    // timeofday, pg_jit_available, amvalidate, current_query
    274..=274,
    315..=315,
    338..=338,
    817..=817,
    // lo_open, lo_close, loread, lo_lseek, lo_tell, lo_lseek64, lo_tell64, lo_get
    952..=954,
    956..=956,
    958..=958,
    3170..=3171,
    3458..=3459,
    // unique_key_recheck, suppress_redundant_updates_trigger, currtid2, pg_lock_status
    1250..=1250,
    1291..=1291,
    1294..=1294,
    1371..=1371,
    // nextval, currval, setval, lastval, pg_sequence_last_value
    1574..=1576,
    1765..=1765,
    2559..=2559,
    4032..=4032,
    // random, setseed, random_normal, array_shuffle, array_sample, gen_random_uuid
    1598..=1599,
    6212..=6212,
    6215..=6216,
    3432..=3432,
    // Foreign keys' triggers, tsvector_update_trigger
    1644..=1655,
    3752..=3753,
    // set_config, pg_terminate_backend, pg_cancel_backend, pg_blocking_pids
    2078..=2078,
    2096..=2096,
    2171..=2171,
    2561..=2561,
    // pg_database_size, pg_total_relation_size, pg_tablespace_size, pg_relation_size,
    // pg_table_size, pg_indexes_size
    2168..=2168,
    2286..=2286,
    2322..=2325,
    2332..=2332,
    2997..=2998,
    // pg_sleep, pg_sleep_for, pg_sleep_until, clock_timestamp
    2626..=2626,
    3935..=3936,
    2649..=2649,
    // pg_current_wal_lsn, pg_current_wal_insert_lsn, pg_current_wal_flush_lsn, pg_is_in_recovery
    2849..=2849,
    2852..=2852,
    3330..=3330,
    3810..=3810,
    // Advisory locks
    2880..=2892,
    3089..=3096,
    // query_to_xml and its kind, ts_rewrite, ts_stat
    2924..=2925,
    2927..=2928,
    2930..=2930,
    3685..=3685,
    3689..=3690,
    // pg_notify, which is asked about at the end
    3036..=3036,
    // pg_stat_get_xact_*, pg_stat_clear_snapshot
    3037..=3048,
    6218..=6218,
    2230..=2230,
    // bernoulli, system, pg_partition_tree, pg_partition_ancestors
    3313..=3314,
    3423..=3423,
    3425..=3425,
];

/// PostgreSQL's own functions.
const BUILTIN: usize = 10_000;

/// What is known of those: they do not change.
static KNOWN: Local<[Cell<Kind>; BUILTIN]> =
    Local::new([const { Cell::new(Kind::Unknown) }; BUILTIN]);

/// Whether it is known to be harmless: nobody need look.
#[inline]
pub fn is_known_harmless(function: Oid) -> bool {
    let known = KNOWN.get(u32::from(function) as usize);
    known.is_some_and(|known| known.get() == Kind::Harmless)
}

/// What a function does. A transaction runs.
pub fn kind_of(function: Oid) -> Kind {
    if !is_builtin(function) {
        return find_out(function);
    }
    let known = &KNOWN[u32::from(function) as usize];
    if known.get() == Kind::Unknown {
        known.set(find_out(function));
    }
    known.get()
}

fn find_out(function: Oid) -> Kind {
    let number = u32::from(function);
    if TELLING.contains(&number) {
        return Kind::Tells;
    }
    let is_harmless = || HARMLESS.iter().any(|numbers| numbers.contains(&number));
    if is_builtin(function) && is_harmless() {
        return Kind::Harmless;
    }
    // SAFETY: a function is about to be executed, so a transaction runs; the closure raises
    // nothing.
    let asked = unsafe { ask_function(function, |row| (is_volatile_in_c(row), row.pronamespace)) };
    match asked {
        Some((true, schema)) if !is_ours(schema) => Kind::Writes,
        _ => Kind::Harmless,
    }
}

fn is_volatile_in_c(function: &FormData_pg_proc) -> bool {
    /// catalog/pg_language.dat: internal, c.
    const INTERNAL: u32 = 12;
    const C: u32 = 13;
    [INTERNAL, C].contains(&u32::from(function.prolang))
        && function.provolatile as u8 == pg_sys::PROVOLATILE_VOLATILE
}

/// Whether the schema is that of this extension: its functions write by SPI.
fn is_ours(schema: Oid) -> bool {
    // SAFETY: a catalog look-up; null or a C string.
    unsafe {
        let name = pg_sys::get_namespace_name(schema);
        !name.is_null() && CStr::from_ptr(name) == c"txn"
    }
}
