//! Every setting, alphabetical, each with unit and range, and what is asked before it changes.

use super::guc::*;
use crate::pg::{error, raw, xact};
use pgrx::GucEnum;
use pgrx::guc::GucContext::{self, Internal, Postmaster, Sighup, Suset, Userset};
use pgrx::guc::{GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys::{self, GucSource};
use std::ffi::{CStr, CString, c_void};
use std::ops::RangeInclusive;

/// A setting, as SHOW and pg_settings have it.
struct Entry {
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    context: GucContext,
    define: Define,
}

/// Where the value is, and what it may be.
enum Define {
    Switch(&'static GucSetting<bool>),
    Count(&'static GucSetting<i32>, RangeInclusive<i32>),
    /// In milliseconds.
    Time(&'static GucSetting<i32>, RangeInclusive<i32>),
    Text(&'static GucSetting<Option<CString>>, GucFlags),
    /// One of several words, or with a hook of its own.
    By(fn(Texts, GucContext)),
}

/// What the functions of `Define::By` need of an entry.
struct Texts {
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
}

const ENTRIES: [Entry; 38] = [
    Entry {
        name: c"txn.brief_turn",
        short:
            c"A function that ends so many microseconds after its update keeps the hot row until \
            then.",
        long:
            c"It is asked of functions and procedures that are transactions of their own. Waiters \
            stay awake where such a function runs on another processor. 0: every function lets \
            others follow.",
        context: Userset,
        define: Define::Count(&BRIEF_TURN, 0..=10_000),
    },
    Entry {
        name: c"txn.build_id",
        short: c"Shows what the loaded library was built from.",
        long: c"Version, commit (\"+changes\" if the sources differed from it), hash of the \
            sources, and what sets a test build apart.",
        context: Internal,
        define: Define::Text(&BUILD_ID, GucFlags::DISALLOW_IN_FILE),
    },
    Entry {
        name: c"txn.combine_updates",
        short: c"Lets one transaction do the waiting updates of others that execute the same \
            statement, and commit them with its own.",
        long: c"Applies to single-statement transactions with txn.group_lock.",
        context: Userset,
        define: Define::Switch(&COMBINE_UPDATES),
    },
    Entry {
        name: c"txn.early_visibility",
        short: c"Lets the next transaction have a hot row before the commit is flushed and \
            replicated.",
        long: c"The client still hears COMMIT only afterwards, and so does everybody who may \
            have seen the row.",
        context: Userset,
        define: Define::Switch(&EARLY_VISIBILITY),
    },
    Entry {
        name: c"txn.fair_every",
        short: c"Every n-th time, the ticket of a hot row goes directly to its longest waiter.",
        long: c"1 is strictly first come, first served; larger values cost fewer context switches.",
        context: Userset,
        define: Define::Count(&FAIR_EVERY, 1..=1_000_000),
    },
    Entry {
        name: c"txn.follower_reads",
        short: c"What a statement sees that reads while a predecessor on a hot row still runs.",
        long: c"\"validated\" reads tables that nobody writes and fails if somebody has written \
            them before its predecessors end, \"wait\" lets the predecessors end first, \
            \"immediate\" does not see what they wrote.",
        context: Userset,
        define: Define::By(|texts, context| choice(texts, context, &FOLLOWER_READS)),
    },
    Entry {
        name: c"txn.follower_reads_backoff",
        short: c"How long a table is not read beside predecessors on a hot row after it was \
            written.",
        long: c"Applies to txn.follower_reads = validated. Readers let the predecessors end \
            meanwhile. Before it is read so for the first time, a table is watched for as long, \
            but at most a second.",
        context: Userset,
        define: Define::Time(&FOLLOWER_READS_BACKOFF, 0..=i32::MAX / 1000),
    },
    Entry {
        name: c"txn.geo_answer",
        short: c"When the COMMIT of a transaction over several nodes returns.",
        long: c"\"applied\": when all nodes have committed; \"decided\": when the decision is \
            durable.",
        context: Userset,
        define: Define::By(|texts, context| choice(texts, context, &GEO_ANSWER)),
    },
    Entry {
        name: c"txn.geo_apply_timeout",
        short: c"How long COMMIT waits until the nodes have committed what is decided.",
        long: c"Then the client hears COMMIT with a warning. 0: it does not wait.",
        context: Userset,
        define: Define::Time(&GEO_APPLY_TIMEOUT, 0..=i32::MAX),
    },
    Entry {
        name: c"txn.geo_connect_timeout",
        short: c"How long connecting to a node may take.",
        long: c"The server's option connect_timeout goes first.",
        context: Userset,
        define: Define::Time(&GEO_CONNECT_TIMEOUT, 1..=i32::MAX),
    },
    Entry {
        name: c"txn.geo_defer",
        short: c"Writes of one row travel with the next statement at their node, or with COMMIT.",
        long: c"The client is told at once that they are done. If not, the transaction fails.",
        context: Userset,
        define: Define::Switch(&GEO_DEFER),
    },
    Entry {
        name: c"txn.geo_last",
        short: c"The next statement is the last one of its transaction.",
        long: c"Nodes prepare with it. If it is not the last one, the transaction fails.",
        context: Userset,
        define: Define::Switch(&GEO_LAST),
    },
    Entry {
        name: c"txn.geo_lock_timeout",
        short: c"How long a statement waits for a lock at a node.",
        long: c"It ends deadlocks over several nodes that are not found. 0: the wait has no limit.",
        context: Userset,
        define: Define::Time(&GEO_LOCK_TIMEOUT, 0..=i32::MAX),
    },
    Entry {
        name: c"txn.geo_max_delay",
        short: c"For how long a part of a statement may be put off, with txn.geo_schedule.",
        long: c"0: for no time.",
        context: Userset,
        define: Define::Time(&GEO_MAX_DELAY, 0..=i32::MAX),
    },
    Entry {
        name: c"txn.geo_prepare",
        short: c"When nodes are asked to prepare a transaction.",
        long: c"\"early\": with its last statement, where that is known.",
        context: Userset,
        define: Define::By(|texts, context| choice(texts, context, &GEO_PREPARE)),
    },
    Entry {
        name: c"txn.geo_resolver_interval",
        short: c"How often the resolver looks for transactions that were left at nodes.",
        long: c"It looks at once when a session tells it to.",
        context: Sighup,
        define: Define::Time(&GEO_RESOLVER_INTERVAL, 10..=3_600_000),
    },
    Entry {
        name: c"txn.geo_schedule",
        short: c"When the parts of a statement that writes at several nodes leave for them.",
        long: c"\"latency\": so that all are done at about one time; \"forecast\": with the time \
            that they will take there, and before contended rows transactions stand in line; \
            \"admission\": and what is likely to fail waits before it begins; \"off\": at once.",
        context: Userset,
        define: Define::By(|texts, context| choice(texts, context, &GEO_SCHEDULE)),
    },
    Entry {
        name: c"txn.geo_snapshot",
        short: c"What a transaction of REPEATABLE READ or above sees of several nodes.",
        long: c"\"node\": each node has its own snapshot; \"global\": all nodes are read at one \
            cut.",
        context: Userset,
        define: Define::By(|texts, context| choice(texts, context, &GEO_SNAPSHOT)),
    },
    Entry {
        name: c"txn.geo_snapshot_timeout",
        short: c"How long taking a global snapshot may keep commits at nodes waiting.",
        long: c"Once while those that have begun come to their end, and once while the nodes \
            answer.",
        context: Userset,
        define: Define::Time(&GEO_SNAPSHOT_TIMEOUT, 1..=i32::MAX),
    },
    Entry {
        name: c"txn.group_lock",
        short: c"Updates of hot rows follow each other without waiting for commits.",
        long: c"Applies to READ COMMITTED transactions.",
        context: Userset,
        define: Define::Switch(&GROUP_LOCK),
    },
    Entry {
        name: c"txn.group_size",
        short: c"Transactions that may follow each other on a hot row before the group ends.",
        long: c"The next one waits for all of them, so that ordinary waiters get their turn.",
        context: Userset,
        define: Define::Count(&GROUP_SIZE, GROUP_SIZES),
    },
    Entry {
        name: c"txn.hot_threshold",
        short: c"Transactions that wait to update a row before it becomes a hot row.",
        long: c"0 makes every row hot that is updated by its key, for the role that has logged \
            in; it is hot for others when as many transactions wait as they want.",
        context: Userset,
        define: Define::Count(&HOT_THRESHOLD, HOT_THRESHOLDS),
    },
    Entry {
        name: c"txn.hot_wait_timeout",
        short: c"Longest wait for a hot row or for a predecessor on one.",
        long: c"0 turns the timeout off.",
        context: Userset,
        define: Define::Time(&HOT_WAIT_TIMEOUT, 0..=i32::MAX),
    },
    Entry {
        name: c"txn.lane",
        short: c"Whether transactions that declare their keys are put in order before they start.",
        long: c"\"auto\": where others have waited or were refused of late; \"off\": never.",
        context: Userset,
        define: Define::By(|texts, context| choice(texts, context, &LANE)),
    },
    Entry {
        name: c"txn.lane_beyond",
        short: c"What becomes of a declared transaction that uses keys it has not declared.",
        long: c"\"validate\" treats these as without a declaration, \"error\" has the \
            transaction fail.",
        context: Userset,
        define: Define::By(|texts, context| choice(texts, context, &LANE_BEYOND)),
    },
    Entry {
        name: c"txn.lane_keys",
        short: c"Keys that a transaction may declare one by one.",
        long: c"Of more, neighbours are joined. Each takes 72 bytes of shared memory per process.",
        context: Postmaster,
        define: Define::Count(&LANE_KEYS, 1..=1024),
    },
    Entry {
        name: c"txn.lane_stripes",
        short: c"Stripes by which declared transactions learn of others that write to their keys.",
        long: c"A power of two; each takes 64 bytes of shared memory. 0: the server has no lane.",
        context: Postmaster,
        define: Define::Count(&LANE_STRIPES, 0..=1 << 24),
    },
    Entry {
        name: c"txn.lane_threshold",
        short: c"Heat of declared keys from which on txn.lane = auto puts a transaction in order.",
        long: c"A wait for a key adds 1, a refusal because of it 4; it halves each second.",
        context: Userset,
        define: Define::Count(&LANE_THRESHOLD, 0..=1000),
    },
    Entry {
        name: c"txn.log_hotspots",
        short: c"Logs rows that become hot, and rows that cool down.",
        long: c"The message names the table and the row's key.",
        context: Suset,
        define: Define::Switch(&LOG_HOTSPOTS),
    },
    Entry {
        name: c"txn.longest_wait",
        short: c"A waiter that waited longer gets the ticket of a hot row directly.",
        long: c"Bounds what waiters lose to transactions that come later.",
        context: Userset,
        define: Define::Time(&LONGEST_WAIT, 0..=i32::MAX / 1000),
    },
    Entry {
        name: c"txn.max_hot_rows",
        short: c"Hot rows that shared memory has room for.",
        long: c"Rows that are not used make room for others. A role that is not superuser has \
            half of it at most. Further rows are locked the ordinary way and counted in \
            txn.stats.table_full.",
        context: Postmaster,
        define: Define::Count(&MAX_HOT_ROWS, 1..=1_000_000),
    },
    Entry {
        name: c"txn.newest_first",
        short: c"The newest waiter for a hot row is woken, until the oldest has waited so long.",
        long: c"A few sessions then do most of the work, with what they need in the processors' \
            caches. 0: the oldest first.",
        context: Userset,
        define: Define::Time(&NEWEST_FIRST, 0..=1000),
    },
    Entry {
        name: c"txn.queue_lock",
        short: c"Updates of hot rows queue up before they cost anything, one transaction at a \
            time.",
        long: c"Nobody builds on an uncommitted version. txn.group_lock includes it.",
        context: Userset,
        define: Define::Switch(&QUEUE_LOCK),
    },
    Entry {
        name: c"txn.range_buckets",
        short: c"Rings of writes to tables of txn_heap, into which key ranges are hashed.",
        long: c"Each takes 128 bytes of shared memory, and 96 for each of its slots \
            (txn.range_slots).",
        context: Postmaster,
        define: Define::Count(&RANGE_BUCKETS, 1..=1 << 20),
    },
    Entry {
        name: c"txn.range_occ",
        short: c"Validates transactions at commit, by the key ranges that they have read, so \
            that they are serializable.",
        long: c"Applies to transactions of level REPEATABLE READ and SERIALIZABLE on tables of \
            the access method txn_heap.",
        context: Userset,
        define: Define::By(range_occ),
    },
    Entry {
        name: c"txn.range_slots",
        short: c"Writes that each ring of writes to tables of txn_heap holds.",
        long: c"A transaction fails that runs while more than these go through the ring of a \
            range it has read.",
        context: Postmaster,
        define: Define::Count(&RANGE_SLOTS, 1..=4096),
    },
    Entry {
        name: c"txn.range_window",
        short: c"Lets a validated transaction stand before those whose writes it missed, if \
            nobody who comes before it stands after them.",
        long: c"All validated transactions then register what they have read, in rings of the \
            size of those of writes.",
        context: Postmaster,
        define: Define::Switch(&RANGE_WINDOW),
    },
    Entry {
        name: c"txn.reschedule",
        short: c"A block begun within a second after a refused one takes the keys that that has \
            used.",
        long: c"Needs no change of the client, if it retries what fails with 40001 or 40P01.",
        context: Userset,
        define: Define::Switch(&RESCHEDULE),
    },
];

#[cfg(feature = "stop_events")]
const STOP_POINTS: Entry = Entry {
    name: c"txn.stop_at",
    short:
        c"Names of the points at which this session stops while a test holds their advisory lock.",
    long: c"Test builds only.",
    context: Userset,
    define: Define::Text(&STOP_AT, GucFlags::empty()),
};

/// Defines the settings. Called once, from `_PG_init`, before shared memory is sized.
pub fn init() {
    for entry in ENTRIES {
        define(entry);
    }
    #[cfg(feature = "planted_faults")]
    super::fault::setting::init();
    #[cfg(feature = "stop_events")]
    define(STOP_POINTS);
    // SAFETY: a static string; refuses settings under our prefix that do not exist.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"txn".as_ptr()) };
}

fn define(entry: Entry) {
    let (name, short, long, context) = (entry.name, entry.short, entry.long, entry.context);
    let none = GucFlags::default();
    match entry.define {
        Define::Switch(setting) => {
            GucRegistry::define_bool_guc(name, short, long, setting, context, none);
        }
        Define::Count(setting, range) => {
            let (least, most) = range.into_inner();
            GucRegistry::define_int_guc(name, short, long, setting, least, most, context, none);
        }
        Define::Time(setting, range) => {
            let (least, most) = range.into_inner();
            let unit = GucFlags::UNIT_MS;
            GucRegistry::define_int_guc(name, short, long, setting, least, most, context, unit);
        }
        Define::Text(setting, flags) => {
            GucRegistry::define_string_guc(name, short, long, setting, context, flags);
        }
        Define::By(how) => how(Texts { name, short, long }, context),
    }
}

/// Defines a setting whose value is one of several words.
fn choice<T: GucEnum>(texts: Texts, context: GucContext, setting: &'static GucSetting<T>) {
    let Texts { name, short, long } = texts;
    GucRegistry::define_enum_guc(name, short, long, setting, context, GucFlags::default());
}

fn range_occ(texts: Texts, context: GucContext) {
    let Texts { name, short, long } = texts;
    let (none, check) = (GucFlags::default(), Some(check_range_occ as _));
    // SAFETY: the hook raises nothing and does not panic.
    unsafe {
        GucRegistry::define_bool_guc_with_hooks(
            name, short, long, &RANGE_OCC, context, none, check, None, None,
        );
    }
}

/// A transaction is validated from its snapshot on, or not at all.
unsafe extern "C-unwind" fn check_range_occ(
    new: *mut bool,
    _extra: *mut *mut c_void,
    source: GucSource::Type,
) -> bool {
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
