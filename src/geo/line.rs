//! Standing in line before contended records (`txn.geo_schedule = forecast`, `admission`).

use super::coordinator::memory;
use super::failure::Outcome;
use super::socket::wait_for_any;
use crate::pg::local::Local;
use crate::pg::process;
use crate::shared::wait;
use geo::{Records, Wanted};
use std::cell::Cell;

/// The longest time in line, in microseconds. Those at work on the record may wait for something
/// that who stands here has locked, at the coordinator or at a node (not a row), which nobody sees.
const LONGEST_US: u64 = 10_000_000;
/// A session looks again after this time though nobody has woken it, in milliseconds.
const LOOK_AGAIN_MS: u64 = 500;

/// Whether this process stands in line.
static STANDS: Local<Cell<bool>> = Local::new(Cell::new(false));

/// A place in line; left when dropped.
struct InLine(());

impl InLine {
    fn begin() -> InLine {
        STANDS.set(true);
        InLine(())
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        leave();
    }
}

/// Stands in line until few enough are at work on these records; under the same lock `enter` says
/// that one more is. Raises on a cancel.
pub fn stand(wanted: &[Wanted], enter: impl Fn(&Records)) -> Outcome<()> {
    let me = process::me();
    let until = process::now() + LONGEST_US;
    let mut place = None;
    loop {
        let now = process::now();
        let look = |all: &Records| all.take_turn(wanted, me, now, now < until, &enter);
        let turn = memory().with_records(look);
        wake(&turn.wake);
        if !turn.stands {
            STANDS.set(false);
            return Ok(());
        }
        place.get_or_insert_with(InLine::begin);
        let left = until.saturating_sub(now).div_ceil(1000);
        wait_for_any(&[], left.min(LOOK_AGAIN_MS));
    }
}

/// The process stands in line no more. Raises nothing.
pub fn leave() {
    if STANDS.take() {
        wake(&memory().with_records(|all| all.leave_line(process::me())));
    }
}

/// Wakes sessions that stand in line: they look again.
pub fn wake(all: &[u32]) {
    all.iter().copied().for_each(wait::wake);
}
