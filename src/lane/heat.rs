//! `txn.lane = auto`: keys are taken only where transactions have waited or were refused of late.

use super::admit;
use crate::hotlock::memory;
use crate::pg::process;
use crate::shared::guc::{self, LaneMode};
use ::lane::{Item, Lane};

/// Whether what was declared is to be taken. If not, the transaction goes on as if it had declared
/// nothing.
pub fn is_worth_it(lane: Lane<'static>) -> bool {
    if guc::LANE.get() == LaneMode::On {
        return true;
    }
    // Others announce what they write to, so that it is known what is refused.
    lane.use_it();
    let (threshold, second) = (guc::LANE_THRESHOLD.get().max(0) as u64, process::second());
    let items = admit::items();
    let is_hot = items
        .iter()
        .any(|item| lane.is_hot(item, threshold, second));
    if !is_hot {
        memory().totals.lane_cold.add(1);
    }
    is_hot
}

/// A transaction waits, or was refused, because of these keys.
pub fn warm(item: &Item, weight: u64) {
    if let Some(lane) = memory().lane {
        lane.warm(item, weight, process::second());
    }
}
