//! Standing in line before contended records (`txn.geo_schedule = forecast`, `admission`).

use super::coordinator::memory;
use super::failure::{Failure, Outcome};
use super::socket::wait_for_any;
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::process;
use crate::shared::wait;
use geo::{RecordId, Records};
use pgrx::pg_sys;
use std::time::{Duration, Instant};

/// A session looks again after this time though nobody has woken it, in milliseconds: turns may
/// stand still.
const LOOK_AGAIN_MS: u64 = 500;

/// Whether this process stands in line.
static STANDS: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));

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

/// Stands in line until it has a turn at each of these records; under the same lock `enter` says
/// that it is at work on them. An error when it has stood for as long as `lock_timeout` allows.
/// Raises on a cancel.
pub fn stand(wanted: &[&RecordId], enter: impl Fn(&Records)) -> Outcome<()> {
    let me = process::me();
    let began = Instant::now();
    let limit = lock_timeout();
    let mut place = None;
    loop {
        let now = process::now();
        let turn = memory().with_turns(|all| all.take(wanted, me, now, &enter));
        wake(&turn.wake);
        if !turn.stands {
            STANDS.clear();
            return Ok(());
        }
        place.get_or_insert_with(InLine::begin);
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(
                Failure::new(*b"55P03", "canceling statement due to lock timeout")
                    .detail("The transaction stood in line before a contended row of a node.")
                    .hint("See txn.waits and txn.geo_records."),
            );
        }
        let left = left.map_or(u64::MAX, |left| left.as_millis() as u64 + 1);
        wait_for_any(&[], left.min(LOOK_AGAIN_MS));
    }
}

/// PostgreSQL's setting; None: there is no limit.
fn lock_timeout() -> Option<Duration> {
    // SAFETY: a plain read of a setting.
    let milliseconds = unsafe { pg_sys::LockTimeout };
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds as u64))
}

/// The process stands in line no more. Raises nothing.
#[inline]
pub fn leave() {
    if STANDS.take() {
        step_out();
    }
}

fn step_out() {
    wake(&memory().with_turns(|all| all.leave_line(process::me())));
}

/// Wakes sessions that stand in line: they look again.
pub fn wake(all: &[u32]) {
    all.iter().copied().for_each(wait::wake);
}
