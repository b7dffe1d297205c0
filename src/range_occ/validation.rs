//! The one place where a validation of the present transaction is put together.

use super::key;
use super::session;
use super::view::View;
use super::work::Work;
use crate::hotlock::memory;
use crate::pg::process;
use keyrange::{Csn, RangeMap, Relation, Validation};
use std::time::{Duration, Instant};

/// How long a validator waits for another process to write down its CSN.
const PATIENCE: Duration = Duration::from_secs(1);

/// Validates against transactions with CSNs below `before`, as the snapshot sees them. `ranges` and
/// `wait` are `Validation`'s.
pub fn against<'a>(
    view: &'a View,
    before: Csn,
    ranges: &'a dyn Fn(Relation) -> RangeMap<'a>,
    wait: &'a dyn Fn() -> bool,
) -> Validation<'a, View> {
    Validation {
        space: memory().rings,
        snapshot: view,
        before,
        prefix: session::prefix(),
        ranges,
        wait,
    }
}

/// Validates definitions only, which have no ranges, and waits for nobody.
pub fn of_definitions(view: &View, before: Csn) -> Validation<'_, View> {
    against(view, before, &|_| RangeMap::WHOLE, &|| false)
}

/// The ranges of a table, as the transaction knows it.
pub fn ranges_of(work: &'static Work, relation: Relation) -> RangeMap<'static> {
    let table = work.table(key::oid_of(relation));
    table.map_or(RangeMap::WHOLE, |table| table.ranges())
}

/// Whether to wait on for another process to write down its CSN, after a short pause.
pub fn is_patient(since: Instant) -> bool {
    process::give_way();
    since.elapsed() < PATIENCE
}

/// The time since then.
pub fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}
