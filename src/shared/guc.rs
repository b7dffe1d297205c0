//! Every setting, alphabetical, each with unit, range and default.

pub use super::guc_values::{
    FollowerReads, GeoAnswer, GeoPrepare, GeoSchedule, GeoSnapshot, LaneBeyond, LaneMode,
};
use crate::pg::fastpath;
use pgrx::GucEnum;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::RangeInclusive;

/// What is valid for `txn.group_size` and `txn.hot_threshold`.
pub const GROUP_SIZES: RangeInclusive<i32> = 1..=1_000_000;
pub const HOT_THRESHOLDS: RangeInclusive<i32> = 0..=10_000;

/// What this library was built from (build.rs).
pub static BUILD_ID: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(
    match CStr::from_bytes_with_nul(concat!(env!("TXN_BUILD_ID"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    },
));
pub static COMBINE_UPDATES: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static EARLY_VISIBILITY: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static FAIR_EVERY: GucSetting<i32> = GucSetting::<i32>::new(32);
pub static FOLLOWER_READS: GucSetting<FollowerReads> =
    GucSetting::<FollowerReads>::new(FollowerReads::Validated);
pub static FOLLOWER_READS_BACKOFF: GucSetting<i32> = GucSetting::<i32>::new(60_000);
pub static GEO_ANSWER: GucSetting<GeoAnswer> = GucSetting::<GeoAnswer>::new(GeoAnswer::Applied);
pub static GEO_APPLY_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(10_000);
pub static GEO_CONNECT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(5000);
pub static GEO_DEFER: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static GEO_LAST: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static GEO_LOCK_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(5000);
pub static GEO_MAX_DELAY: GucSetting<i32> = GucSetting::<i32>::new(1000);
pub static GEO_PREPARE: GucSetting<GeoPrepare> = GucSetting::<GeoPrepare>::new(GeoPrepare::Early);
pub static GEO_RESOLVER_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(1000);
pub static GEO_SCHEDULE: GucSetting<GeoSchedule> =
    GucSetting::<GeoSchedule>::new(GeoSchedule::Latency);
pub static GEO_SNAPSHOT: GucSetting<GeoSnapshot> =
    GucSetting::<GeoSnapshot>::new(GeoSnapshot::Node);
pub static GEO_SNAPSHOT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(1000);
pub static GROUP_LOCK: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static GROUP_SIZE: GucSetting<i32> = GucSetting::<i32>::new(256);
pub static HOT_THRESHOLD: GucSetting<i32> = GucSetting::<i32>::new(4);
pub static HOT_WAIT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(0);
pub static LANE: GucSetting<LaneMode> = GucSetting::<LaneMode>::new(LaneMode::On);
pub static LANE_BEYOND: GucSetting<LaneBeyond> =
    GucSetting::<LaneBeyond>::new(LaneBeyond::Validate);
pub static LANE_KEYS: GucSetting<i32> = GucSetting::<i32>::new(64);
pub static LANE_STRIPES: GucSetting<i32> = GucSetting::<i32>::new(32_768);
pub static LANE_THRESHOLD: GucSetting<i32> = GucSetting::<i32>::new(8);
pub static LOG_HOTSPOTS: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static LONGEST_WAIT: GucSetting<i32> = GucSetting::<i32>::new(5000);
pub static MAX_HOT_ROWS: GucSetting<i32> = GucSetting::<i32>::new(1024);
pub static QUEUE_LOCK: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static RANGE_BUCKETS: GucSetting<i32> = GucSetting::<i32>::new(4096);
pub static RANGE_OCC: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static RANGE_SLOTS: GucSetting<i32> = GucSetting::<i32>::new(32);
pub static RANGE_WINDOW: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static RESCHEDULE: GucSetting<bool> = GucSetting::<bool>::new(false);
#[cfg(feature = "stop_events")]
pub static STOP_AT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// Whether a setting is on, for what every statement asks. (`GucSetting::get` looks at the thread
/// first.)
#[inline]
pub fn is_on(setting: &GucSetting<bool>) -> bool {
    // SAFETY: a backend has one thread, and the setting's place is there as long as it runs.
    unsafe { *setting.as_ptr() }
}

/// The transaction's snapshot is going to be taken again: what may have used it has to be watched
/// from before the first transaction with the setting.
unsafe extern "C-unwind" fn assign_geo_snapshot(new: c_int, _extra: *mut c_void) {
    if GeoSnapshot::from_ordinal(new) == GeoSnapshot::Global {
        fastpath::watch();
    }
}

/// Defines the settings. Called once, from `_PG_init`, before shared memory is sized.
pub fn init() {
    let none = GucFlags::default();
    GucRegistry::define_string_guc(
        c"txn.build_id",
        c"Shows what the loaded library was built from.",
        c"Version, commit (\"+changes\" if the sources differed from it), hash of the sources, and what sets a test build apart.",
        &BUILD_ID,
        GucContext::Internal,
        GucFlags::DISALLOW_IN_FILE,
    );
    GucRegistry::define_bool_guc(
        c"txn.combine_updates",
        c"Lets one transaction do the waiting updates of others that execute the same statement, and commit them with its own.",
        c"Applies to single-statement transactions with txn.group_lock.",
        &COMBINE_UPDATES,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_bool_guc(
        c"txn.early_visibility",
        c"Lets the next transaction have a hot row before the commit is flushed and replicated.",
        c"The client still hears COMMIT only afterwards, and so does everybody who may have seen the row.",
        &EARLY_VISIBILITY,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.fair_every",
        c"Every n-th time, the ticket of a hot row goes directly to its longest waiter.",
        c"1 is strictly first come, first served; larger values cost fewer context switches.",
        &FAIR_EVERY,
        1,
        1_000_000,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_enum_guc(
        c"txn.follower_reads",
        c"What a statement sees that reads while a predecessor on a hot row still runs.",
        c"\"validated\" reads tables that nobody writes and fails if somebody has written them before its predecessors end, \"wait\" lets the predecessors end first, \"immediate\" does not see what they wrote.",
        &FOLLOWER_READS,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.follower_reads_backoff",
        c"How long a table is not read beside predecessors on a hot row after it was written.",
        c"Applies to txn.follower_reads = validated. Readers let the predecessors end meanwhile. Before it is read so for the first time, a table is watched for as long, but at most a second.",
        &FOLLOWER_READS_BACKOFF,
        0,
        i32::MAX / 1000,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_enum_guc(
        c"txn.geo_answer",
        c"When the COMMIT of a transaction over several nodes returns.",
        c"\"applied\": when all nodes have committed; \"decided\": when the decision is durable.",
        &GEO_ANSWER,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.geo_apply_timeout",
        c"How long COMMIT waits until the nodes have committed what is decided.",
        c"Then the client hears COMMIT with a warning. 0: it does not wait.",
        &GEO_APPLY_TIMEOUT,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"txn.geo_connect_timeout",
        c"How long connecting to a node may take.",
        c"The server's option connect_timeout goes first.",
        &GEO_CONNECT_TIMEOUT,
        1,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_bool_guc(
        c"txn.geo_defer",
        c"Writes of one row travel with the next statement at their node, or with COMMIT.",
        c"The client is told at once that they are done. If not, the transaction fails.",
        &GEO_DEFER,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_bool_guc(
        c"txn.geo_last",
        c"The next statement is the last one of its transaction.",
        c"Nodes prepare with it. If it is not the last one, the transaction fails.",
        &GEO_LAST,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.geo_lock_timeout",
        c"How long a statement waits for a lock at a node.",
        c"It ends deadlocks over several nodes that are not found. 0: the wait has no limit.",
        &GEO_LOCK_TIMEOUT,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"txn.geo_max_delay",
        c"For how long a part of a statement may be put off, with txn.geo_schedule.",
        c"0: for no time.",
        &GEO_MAX_DELAY,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_enum_guc(
        c"txn.geo_prepare",
        c"When nodes are asked to prepare a transaction.",
        c"\"early\": with its last statement, where that is known.",
        &GEO_PREPARE,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.geo_resolver_interval",
        c"How often the resolver looks for transactions that were left at nodes.",
        c"It looks at once when a session tells it to.",
        &GEO_RESOLVER_INTERVAL,
        10,
        3_600_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_enum_guc(
        c"txn.geo_schedule",
        c"When the parts of a statement that writes at several nodes leave for them.",
        c"\"latency\": so that all are done at about one time; \"forecast\": with the time that \
            they will take there; \"admission\": and what is likely to fail waits before it \
            begins; \"off\": at once.",
        &GEO_SCHEDULE,
        GucContext::Userset,
        none,
    );
    // SAFETY: the hook raises nothing and does not panic.
    unsafe {
        GucRegistry::define_enum_guc_with_hooks(
            c"txn.geo_snapshot",
            c"What a transaction of REPEATABLE READ or above sees of several nodes.",
            c"\"node\": each node has its own snapshot; \"global\": all nodes are read at one cut.",
            &GEO_SNAPSHOT,
            GucContext::Userset,
            none,
            None,
            Some(assign_geo_snapshot),
            None,
        );
    }
    GucRegistry::define_int_guc(
        c"txn.geo_snapshot_timeout",
        c"How long taking a global snapshot may keep commits at nodes waiting.",
        c"Once while those that have begun come to their end, and once while the nodes answer.",
        &GEO_SNAPSHOT_TIMEOUT,
        1,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_bool_guc(
        c"txn.group_lock",
        c"Updates of hot rows follow each other without waiting for commits.",
        c"Applies to READ COMMITTED transactions.",
        &GROUP_LOCK,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.group_size",
        c"Transactions that may follow each other on a hot row before the group ends.",
        c"The next one waits for all of them, so that ordinary waiters get their turn.",
        &GROUP_SIZE,
        *GROUP_SIZES.start(),
        *GROUP_SIZES.end(),
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.hot_threshold",
        c"Transactions that wait to update a row before it becomes a hot row.",
        c"0 makes every row hot that is updated by its key, for the role that has logged in; it is hot for others when as many transactions wait as they want.",
        &HOT_THRESHOLD,
        *HOT_THRESHOLDS.start(),
        *HOT_THRESHOLDS.end(),
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.hot_wait_timeout",
        c"Longest wait for a hot row or for a predecessor on one.",
        c"0 turns the timeout off.",
        &HOT_WAIT_TIMEOUT,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_enum_guc(
        c"txn.lane",
        c"Whether transactions that declare their keys are put in order before they start.",
        c"\"auto\": where others have waited or were refused of late; \"off\": never.",
        &LANE,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_enum_guc(
        c"txn.lane_beyond",
        c"What becomes of a declared transaction that uses keys it has not declared.",
        c"\"validate\" treats these as without a declaration, \"error\" has the transaction fail.",
        &LANE_BEYOND,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.lane_keys",
        c"Keys that a transaction may declare one by one.",
        c"Of more, neighbours are joined. Each takes 72 bytes of shared memory per process.",
        &LANE_KEYS,
        1,
        1024,
        GucContext::Postmaster,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.lane_stripes",
        c"Stripes by which declared transactions learn of others that write to their keys.",
        c"A power of two; each takes 64 bytes of shared memory. 0: the server has no lane.",
        &LANE_STRIPES,
        0,
        1 << 24,
        GucContext::Postmaster,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.lane_threshold",
        c"Heat of declared keys from which on txn.lane = auto puts a transaction in order.",
        c"A wait for a key adds 1, a refusal because of it 4; it halves each second.",
        &LANE_THRESHOLD,
        0,
        1000,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_bool_guc(
        c"txn.log_hotspots",
        c"Logs rows that become hot, and rows that cool down.",
        c"The message names the table and the row's key.",
        &LOG_HOTSPOTS,
        GucContext::Suset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.longest_wait",
        c"A waiter that waited longer gets the ticket of a hot row directly.",
        c"Bounds what waiters lose to transactions that come later.",
        &LONGEST_WAIT,
        0,
        i32::MAX / 1000,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"txn.max_hot_rows",
        c"Hot rows that shared memory has room for.",
        c"Rows that are not used make room for others. A role that is not superuser has half of it at most. Further rows are locked the ordinary way and counted in txn.stats.table_full.",
        &MAX_HOT_ROWS,
        1,
        1_000_000,
        GucContext::Postmaster,
        none,
    );
    GucRegistry::define_bool_guc(
        c"txn.queue_lock",
        c"Updates of hot rows queue up before they cost anything, one transaction at a time.",
        c"Nobody builds on an uncommitted version. txn.group_lock includes it.",
        &QUEUE_LOCK,
        GucContext::Userset,
        none,
    );
    GucRegistry::define_int_guc(
        c"txn.range_buckets",
        c"Rings of writes to tables of txn_heap, into which key ranges are hashed.",
        c"Each takes 64 bytes of shared memory, and 96 for each of its slots (txn.range_slots).",
        &RANGE_BUCKETS,
        1,
        1 << 20,
        GucContext::Postmaster,
        none,
    );
    // SAFETY: the hook raises nothing and does not panic.
    unsafe {
        GucRegistry::define_bool_guc_with_hooks(
            c"txn.range_occ",
            c"Validates transactions at commit, by the key ranges that they have read, so that they are serializable.",
            c"Applies to transactions of level REPEATABLE READ and SERIALIZABLE on tables of the access method txn_heap.",
            &RANGE_OCC,
            GucContext::Userset,
            none,
            Some(check_range_occ),
            None,
            None,
        );
    }
    GucRegistry::define_int_guc(
        c"txn.range_slots",
        c"Writes that each ring of writes to tables of txn_heap holds.",
        c"A transaction fails that runs while more than these go through the ring of a range it has read.",
        &RANGE_SLOTS,
        1,
        4096,
        GucContext::Postmaster,
        none,
    );
    GucRegistry::define_bool_guc(
        c"txn.range_window",
        c"Lets a validated transaction stand before those whose writes it missed, if nobody who comes before it stands after them.",
        c"All validated transactions then register what they have read, in rings of the size of those of writes.",
        &RANGE_WINDOW,
        GucContext::Postmaster,
        none,
    );
    GucRegistry::define_bool_guc(
        c"txn.reschedule",
        c"A block begun within a second after a refused one takes the keys that that has used.",
        c"Needs no change of the client, if it retries what fails with 40001 or 40P01.",
        &RESCHEDULE,
        GucContext::Userset,
        none,
    );
    #[cfg(feature = "planted_faults")]
    crate::shared::fault::setting::init();
    #[cfg(feature = "stop_events")]
    GucRegistry::define_string_guc(
        c"txn.stop_at",
        c"Names of the points at which this session stops while a test holds their advisory lock.",
        c"Test builds only.",
        &STOP_AT,
        GucContext::Userset,
        none,
    );
    // SAFETY: a static string; refuses settings under our prefix that do not exist.
    unsafe { pgrx::pg_sys::MarkGUCPrefixReserved(c"txn".as_ptr()) };
}

/// A transaction is validated from its snapshot on, or not at all.
unsafe extern "C-unwind" fn check_range_occ(
    new: *mut bool,
    _extra: *mut *mut c_void,
    source: pgrx::pg_sys::GucSource::Type,
) -> bool {
    use crate::pg::{error, raw, xact};
    use pgrx::pg_sys::{self, GucSource};
    // SAFETY: guc.c's arguments; plain reads of backend state, and the variables by which a check
    // hook says what is wrong.
    unsafe {
        let is_set = source >= GucSource::PGC_S_INTERACTIVE && source != GucSource::PGC_S_TEST;
        if !is_set
            || *new == RANGE_OCC.get()
            || pg_sys::InitializingParallelWorker
            || xact::is_read_committed()
            || !(pg_sys::FirstSnapshotSet || raw::IsSubTransaction())
        {
            return true;
        }
        raw::GUC_check_errcode(error::sqlstate(*b"25001"));
        pg_sys::GUC_check_errmsg_string =
            c"txn.range_occ must be set before any query and savepoint of the transaction"
                .as_ptr()
                .cast_mut();
        false
    }
}
