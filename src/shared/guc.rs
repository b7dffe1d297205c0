//! The values of all settings, with their defaults. `guc_table.rs` has their names and ranges.

pub use super::guc_values::{
    FollowerReads, GeoAnswer, GeoPrepare, GeoSchedule, GeoSnapshot, LaneBeyond, LaneMode,
};
use pgrx::guc::{GucSetting, GucValue};
use std::ffi::{CStr, CString};
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
pub static BRIEF_TURN: GucSetting<i32> = GucSetting::<i32>::new(50);
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
    GucSetting::<GeoSchedule>::new(GeoSchedule::Forecast);
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
pub static NEWEST_FIRST: GucSetting<i32> = GucSetting::<i32>::new(50);
pub static QUEUE_LOCK: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static RANGE_BUCKETS: GucSetting<i32> = GucSetting::<i32>::new(4096);
pub static RANGE_OCC: GucSetting<bool> = GucSetting::<bool>::new(false);
pub static RANGE_SLOTS: GucSetting<i32> = GucSetting::<i32>::new(32);
pub static RANGE_WINDOW: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static RESCHEDULE: GucSetting<bool> = GucSetting::<bool>::new(false);
#[cfg(feature = "stop_events")]
pub static STOP_AT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// A setting's value, for what every statement asks. (`GucSetting::get` looks at the thread first.)
#[inline]
pub fn value<T: GucValue>(setting: &GucSetting<T>) -> T {
    // SAFETY: a backend has one thread, and the setting's place is there as long as it runs.
    unsafe { T::from_raw(*setting.as_ptr()) }
}

/// Whether a setting is on, as `value` says.
#[inline]
pub fn is_on(setting: &GucSetting<bool>) -> bool {
    value(setting)
}
