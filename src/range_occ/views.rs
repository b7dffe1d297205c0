//! The functions behind `txn.ranges` and `txn.my_predicates`, and what `txn.stats` has of range
//! OCC.

use super::key;
use super::session;
use super::text;
use crate::hotlock::memory;
use crate::pg::rights;
use keyrange::{Count, Counters, DEFINITION, Interval};
use pgrx::prelude::*;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the rings have of a range.
#[derive(Default)]
struct InRings {
    writes: i64,
    last: u64,
    totals: [u64; 3],
}

/// What is known of a table whose keys the user may see and that nobody has locked exclusively.
pub fn table_of(oid: pg_sys::Oid) -> Option<Rc<key::Table>> {
    const SHARED: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: the lock is tried for; the relation may be gone.
    unsafe {
        if !pg_sys::ConditionalLockRelationOid(oid, SHARED) {
            return None;
        }
        let rel = pg_sys::try_relation_open(oid, pg_sys::NoLock as pg_sys::LOCKMODE);
        let table = (!rel.is_null()).then(|| {
            let table = key::of(rel);
            pg_sys::relation_close(rel, pg_sys::NoLock as pg_sys::LOCKMODE);
            table
        });
        let table = table.filter(|table| rights::unwinding(|| table.may_be_seen()));
        pg_sys::UnlockRelationOid(oid, SHARED);
        table
    }
}

/// One line per range of this database with writes in the rings.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn ranges() -> TableIterator<
    'static,
    (
        name!(relation, pg_sys::Oid),
        name!(range, Option<i64>),
        name!(low, Option<String>),
        name!(high, Option<String>),
        name!(writes, i64),
        name!(last_transaction, i64),
        name!(registrations, i64),
        name!(conflicts, i64),
        name!(covered, i64),
    ),
> {
    let space = &memory().rings;
    let mut found: BTreeMap<(u64, Option<u64>), InRings> = BTreeMap::new();
    for (rings, is_range) in [
        (&space.writes.ranges, true),
        (&space.writes.relations, false),
    ] {
        for entry in rings.entries() {
            if key::relation_of(key::oid_of(entry.relation)) == entry.relation {
                let range = is_range.then_some(entry.range);
                let line = found.entry((entry.relation, range)).or_default();
                line.writes += 1;
                line.last = line.last.max(entry.fxid);
                line.totals = rings.totals(entry.relation, range);
            }
        }
    }
    let mut tables: BTreeMap<u64, Option<Rc<key::Table>>> = BTreeMap::new();
    let mut lines = Vec::new();
    for ((relation, range), line) in found {
        let oid = key::oid_of(relation);
        let table = tables.entry(relation).or_insert_with(|| table_of(oid));
        // The number of a range tells of its keys as its bounds do.
        let range = range.filter(|_| table.is_some());
        let (low, high) = match (table, range) {
            (Some(table), Some(range)) => text::bounds(table, &table.ranges().bounds(range)),
            _ => (None, None),
        };
        let [registrations, conflicts, covered] = line.totals.map(|total| total as i64);
        lines.push((
            oid,
            range.map(|range| i64::try_from(range).unwrap_or(-1)),
            low,
            high,
            line.writes,
            line.last as i64,
            registrations,
            conflicts,
            covered,
        ));
    }
    TableIterator::new(lines)
}

/// What the present transaction has read, if it is validated.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn my_predicates() -> TableIterator<
    'static,
    (
        name!(relation, pg_sys::Oid),
        name!(low, Option<String>),
        name!(high, Option<String>),
        name!(whole, bool),
        name!(reason, Option<&'static str>),
    ),
> {
    // SAFETY: nobody changes it while this looks: catalogs are no tables of txn_heap.
    let work = unsafe { session::look() };
    let mut lines = Vec::new();
    for (relation, set) in work.iter().flat_map(|work| work.predicates.iter()) {
        let oid = key::oid_of(relation);
        let reason = work.and_then(|work| work.whole.get(&relation));
        let reason = reason.map(|whole| whole.text());
        let is_list = relation & DEFINITION != 0;
        let table = work.and_then(|work| work.table(oid)).filter(|_| !is_list);
        let shown = table.filter(|table| rights::unwinding(|| table.may_be_seen()));
        for interval in set.iter() {
            let whole = interval == Interval::ALL;
            let reason = reason.filter(|_| whole);
            let (low, high) = match shown {
                Some(table) => text::bounds(table, &interval),
                None => (None, None),
            };
            let reason = match table {
                Some(_) => reason,
                None => reason.or(Some("its partitions")),
            };
            lines.push((oid, low, high, whole, reason));
        }
    }
    TableIterator::new(lines)
}

/// The totals for `txn.stats`: those of `keyrange::Count`, in its order, then evictions and bytes
/// of shared memory.
pub fn totals() -> impl Iterator<Item = i64> {
    let shared = memory();
    let space = &shared.rings;
    let evictions = space.writes.ranges.evictions() + space.writes.relations.evictions();
    Count::all()
        .map(|count| Counters::sum(shared.ranges, count))
        .chain([evictions, shared.range_bytes() as u64])
        .map(|total| total as i64)
}
