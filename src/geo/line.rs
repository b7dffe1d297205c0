//! Standing in line before contended records (`txn.geo_schedule = admission`).

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
        let (stands, left) = memory().with_records(|all| {
            let before = all.line().stands_before(me);
            let crowded = all.crowded(wanted, me, now).filter(|_| now < until);
            let stands = crowded.is_some_and(|hash| all.line().stand(me, hash));
            if !stands {
                enter(all);
                all.line().leave(me);
            }
            (stands, before.filter(|before| crowded != Some(*before)))
        });
        // The next one there may look.
        wake_next(left.as_slice());
        if !stands {
            break;
        }
        place.get_or_insert_with(InLine::begin);
        let left = until.saturating_sub(now).div_ceil(1000);
        wait_for_any(&[], left.min(LOOK_AGAIN_MS));
    }
    if place.take().is_some() {
        // There may be room for another one.
        let hashes: Vec<u64> = wanted.iter().map(|one| one.hash).collect();
        wake_next(&hashes);
    }
    Ok(())
}

/// The process stands in line no more. Raises nothing.
pub fn leave() {
    if STANDS.take() {
        let left = memory().with_records(|all| all.line().leave(process::me()));
        wake_next(left.as_slice());
    }
}

/// Wakes those that stand first before these records: they look again.
pub fn wake_next(hashes: &[u64]) {
    if hashes.is_empty() {
        return;
    }
    let first = |all: &Records| -> Vec<u32> {
        let first = hashes.iter().filter_map(|&hash| all.line().first(hash));
        first.collect()
    };
    memory()
        .with_records(first)
        .into_iter()
        .for_each(wait::wake);
}
