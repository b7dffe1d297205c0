//! The functions below `txn.stats`: totals of hotlock and range OCC.

use crate::hotlock::memory;
use crate::pg::process;
use crate::range_occ;
use pgrx::iter::TableIterator;
use pgrx::{name, pg_extern};

/// The totals, and when they were set to zero.
#[pg_extern(sql = false)]
fn stats() -> TableIterator<'static, (name!(totals, Vec<i64>), name!(reset, i64))> {
    let memory = memory();
    let rows = memory.directory.rows.iter();
    let hot = rows.filter(|row| row.is_used() && !row.is_gate()).count() as i64;
    let values = [hot]
        .into_iter()
        .chain(memory.totals.all().into_iter().map(|c| c.get() as i64))
        .chain(range_occ::views::totals())
        .chain(memory.totals.later().into_iter().map(|c| c.get() as i64))
        .collect();
    TableIterator::once((values, memory.totals.reset_at.get() as i64))
}

/// Sets the totals to zero.
#[pg_extern(sql = false)]
fn stats_reset() {
    memory().totals.reset(process::now());
    memory().ranges.iter().for_each(keyrange::Counters::reset);
}
