//! Sleeping in PostgreSQL's lock manager behind somebody in the lane: until that one's transaction
//! ends, or for a while. A grant is not heard there.

use crate::hotlock::memory;
use crate::hotlock::waiting::{self, Wait};
use crate::pg::local::Local;
use crate::pg::process;
use ::lane::{Lane, SeatId};
use std::cell::Cell;

/// How often a transaction looks whether others still wait for an end that is not to come, in
/// milliseconds.
const LOOK_MS: u64 = 5;

/// This process sleeps so.
static IS_ASLEEP: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Sleeps once until it is woken, or for a while in the lock manager: until the transaction ends
/// for which it waits.
pub fn doze(lane: Lane<'static>, wait: &Wait) {
    let me = process::me();
    // It stays in the lane, so its transaction runs, or ends.
    let asleep = |lane: Lane<'static>| {
        let other = lane.falls_asleep(me, number_of)?;
        Some(process::transaction_of(other))
    };
    if wait.doze() {
        return;
    }
    if let Some(transaction) = memory().with_lane(lane, asleep) {
        IS_ASLEEP.set(true);
        wait.slice_in_lock_manager(|| waiting::await_end_of(transaction));
        wakes_up();
    } else {
        wait.hear_for_a_moment();
    }
}

/// The process does not sleep in the lock manager any more.
#[inline]
pub fn wakes_up() {
    if IS_ASLEEP.take()
        && let Some(lane) = memory().lane
    {
        lane.wakes_up(process::me());
    }
}

/// Whether others still sleep until this transaction ends, though it has left the lane. Until they
/// have noticed it waits for nobody, who might be one of them.
pub fn has_sleepers(lane: Lane<'static>) -> bool {
    let me = process::me();
    lane.has_sleepers(me, number_of(me))
}

/// Waits until they have noticed: at most a slice of a wait in the lock manager.
///
/// # Errors
/// 57014, if the user cancels it; 55P03 after `txn.hot_wait_timeout` or `lock_timeout`.
pub fn await_sleepers(lane: Lane<'static>) {
    if has_sleepers(lane) {
        let wait = Wait::begin_in_lane();
        while has_sleepers(lane) {
            wait.pause(LOOK_MS);
        }
        wait.finish();
    }
}

/// The number of that process's present transaction, among those of the process.
fn number_of(process: SeatId) -> u64 {
    u64::from(process::transaction_of(process).localTransactionId)
}
