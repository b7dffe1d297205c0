//! How many of everything shared memory has room for.

use super::guc;
use crate::pg::process;
use pgrx::pg_sys;
use std::sync::OnceLock;

/// Rings of writes that may be anywhere in a relation.
pub const RELATION_BUCKETS: usize = 64;
/// Rings of changed definitions, and their slots, which only DDL fills.
pub const DEFINITION_BUCKETS: usize = 64;
pub const DEFINITION_SLOTS: usize = 32;
/// Marks of relations and ranges of a pair of rings, at least.
pub const LEAST_MARKS: usize = 1024;

pub fn rows() -> usize {
    guc::MAX_HOT_ROWS.get().max(1) as usize
}

pub fn backends() -> usize {
    // SAFETY: set by the postmaster before shared memory is requested.
    unsafe { pg_sys::MaxBackends }.max(1) as usize
}

/// Processes, and what stands for prepared transactions behind them.
pub fn all_backends() -> usize {
    process::of_prepared().end as usize
}

/// Processors of which it is noted who was seen there. It is asked once: their number may change.
pub fn processors() -> usize {
    const MOST: usize = 1024;
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| process::processors().min(MOST))
}

pub fn buckets() -> usize {
    (rows() * 4).next_power_of_two()
}

pub fn range_buckets() -> usize {
    guc::RANGE_BUCKETS.get().max(1) as usize
}

pub fn range_slots() -> usize {
    guc::RANGE_SLOTS.get().max(1) as usize
}

/// Marks of relations and ranges, of each pair of rings.
pub fn range_marks() -> usize {
    range_buckets().max(LEAST_MARKS)
}

/// Stripes of the lane, a power of two; 0 without a lane.
pub fn lane_stripes() -> usize {
    match guc::LANE_STRIPES.get() {
        0 => 0,
        stripes => (stripes as usize).next_power_of_two(),
    }
}

/// Requests of the lane: as many for each process as a transaction may declare.
pub fn lane_requests() -> usize {
    if lane_stripes() == 0 {
        return 0;
    }
    backends() * guc::LANE_KEYS.get().max(1) as usize
}

/// Pairs of rings: of writes, and of reads if there is an exclusion window.
pub fn ring_pairs() -> usize {
    1 + usize::from(guc::RANGE_WINDOW.get())
}

/// Rings of all pairs of rings.
pub fn rings_of_pairs() -> usize {
    ring_pairs() * (range_buckets() + RELATION_BUCKETS)
}

/// Heads and slots of all pairs of rings, and then of definitions.
pub fn all_rings() -> (usize, usize) {
    let slots = rings_of_pairs() * range_slots() + DEFINITION_BUCKETS * DEFINITION_SLOTS;
    (rings_of_pairs() + DEFINITION_BUCKETS, slots)
}
