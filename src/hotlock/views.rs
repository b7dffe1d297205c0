//! The functions behind the views `txn.hotspots`, `txn.stats` and `txn.waits`, and a node's report.
//! Times are microseconds since PostgreSQL's epoch; the views turn them into timestamps.

use super::detect;
use super::explain::{cause_of, obstacles};
use super::prepared;
use super::session::memory;
use super::text::may_see_key;
use super::waiting::Reason;
use crate::pg::process::{self, pid_of};
use crate::pg::{rights, xact};
use crate::shared::memory::shared;
use hotrow::{BackendId, LABEL_BYTES, Row, backend_of, owner_of};
use pgrx::prelude::*;
use std::ffi::CStr;

/// The key of a row as text, for those who may know it.
fn key(row: &Row) -> Option<String> {
    let (text, length) = row.label();
    rights::unwinding(|| may_see_key(row))
        .then(|| String::from_utf8_lossy(&text[..length]).into_owned())
}

fn is_here(row: &Row) -> bool {
    // SAFETY: a global of this backend, which has one thread.
    let database = u32::from(unsafe { pg_sys::MyDatabaseId });
    row.is_used() && !row.is_gate() && row.database() == database
}

/// One line per hot row of this database.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn hot_rows() -> TableIterator<
    'static,
    (
        name!(relation, pg_sys::Oid),
        name!(key, Option<String>),
        name!(mode, String),
        name!(since, i64),
        name!(waiting, i32),
        name!(running, i32),
        name!(updates, i64),
        name!(followed, i64),
        name!(combined, i64),
        name!(groups, i64),
        name!(cascades, i64),
        name!(handover_us, Option<f64>),
        name!(obstacles, Option<String>),
    ),
> {
    let line = |row: &Row, now| {
        let (a, b, c, d, e, f, g, h, i, j, k, l) = line(row, now);
        (a, b, c, d, e, f, g, h, i, j, k, l, obstacles(row))
    };
    TableIterator::new(lines(line))
}

/// `txn.geo_report()`, by which a coordinator of transactions over several servers forecasts: a
/// line for each hot row that more than one transaction waits for or is at work on. The fields are
/// separated by tabs: table; key; the number of these transactions; the microseconds from one
/// release of the ticket to the next; whether transactions follow each other on the row. Those with
/// the longest queues, if there are many.
#[pg_extern(sql = false)]
fn geo_report() -> String {
    /// Rows of a report, at most.
    const MOST: usize = 16;
    let Some(memory) = shared() else {
        return String::new();
    };
    let rows = memory.directory.rows.iter().filter(|row| is_here(row));
    let queue = |row: &Row| row.waiting() + row.running();
    let mut rows: Vec<(u32, &Row)> = rows.map(|row| (queue(row), row)).collect();
    rows.retain(|one| one.0 >= 2);
    rows.sort_by_key(|one| std::cmp::Reverse(one.0));
    let lines = rows
        .into_iter()
        .filter_map(|(queue, row)| report(row, queue));
    lines.take(MOST).collect::<Vec<String>>().join("\n")
}

fn report(row: &Row, queue: u32) -> Option<String> {
    let turn = row.counters.turn_us.get();
    if turn == 0 || row.label().1 == LABEL_BYTES {
        return None;
    }
    let relation = pg_sys::Oid::from(row.relation());
    let text = |name: *mut std::ffi::c_char| {
        // SAFETY: null or a name from the catalogs.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        name.map(|name| name.to_string_lossy().into_owned())
    };
    // SAFETY: catalog look-ups; an ERROR unwinds.
    let (schema, table) = unsafe {
        let namespace = pg_sys::get_rel_namespace(relation);
        (
            text(pg_sys::get_namespace_name(namespace))?,
            text(pg_sys::get_rel_name(relation))?,
        )
    };
    let key = key(row)?;
    let is_plain = [&schema, &table, &key]
        .iter()
        .all(|name| !name.contains(char::is_control));
    let follows = row.grouped.get() != 0 && row.backoff(process::now()).is_none();
    is_plain.then(|| format!("{schema}.{table}\t{key}\t{queue}\t{turn}\t{follows}"))
}

/// The hot rows for the SQL of version 0.1.0, which a database has until it is updated.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn hotspots() -> TableIterator<
    'static,
    (
        name!(relation, pg_sys::Oid),
        name!(key, Option<String>),
        name!(mode, String),
        name!(since, i64),
        name!(waiting, i32),
        name!(running, i32),
        name!(updates, i64),
        name!(followed, i64),
        name!(combined, i64),
        name!(groups, i64),
        name!(cascades, i64),
        name!(handover_us, Option<f64>),
    ),
> {
    TableIterator::new(lines(line))
}

fn lines<T>(line: impl Fn(&Row, u64) -> T) -> Vec<T> {
    prepared::settle_ended();
    detect::sweep();
    let now = process::now();
    let rows = memory().directory.rows.iter().filter(|row| is_here(row));
    rows.map(|row| line(row, now)).collect()
}

#[allow(clippy::type_complexity)]
fn line(
    row: &Row,
    now: u64,
) -> (
    pg_sys::Oid,
    Option<String>,
    String,
    i64,
    i32,
    i32,
    i64,
    i64,
    i64,
    i64,
    i64,
    Option<f64>,
) {
    let c = &row.counters;
    let mode = match row.backoff(now) {
        Some((_, cause)) => format!("backoff ({})", cause_of(cause)),
        None if row.grouped.get() != 0 => "group".to_owned(),
        None => "queue".to_owned(),
    };
    let handovers = c.handovers.get();
    (
        pg_sys::Oid::from(row.relation()),
        key(row),
        mode,
        row.since.get() as i64,
        row.waiting() as i32,
        row.running() as i32,
        c.updates.get() as i64,
        c.followed.get() as i64,
        c.combined.get() as i64,
        c.groups.get() as i64,
        c.cascades.get() as i64,
        (handovers > 0).then(|| c.handover_us.get() as f64 / handovers as f64),
    )
}

/// The process that runs that (sub)transaction, a member of a hot row, or what stands for it.
fn process_of(xid: u32) -> Option<BackendId> {
    let known = |xid| owner_of(memory().backends, xid);
    known(xid).or_else(|| known(xact::top_of(xid)))
}

/// The process id; 0 for a prepared transaction, as `pg_blocking_pids` has it.
fn pid_or_prepared(backend: BackendId) -> Option<i32> {
    match process::is_prepared(backend) {
        true => Some(0),
        false => pid_of(backend),
    }
}

/// One line per waiting session of this database.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn waits() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(blocked_by, Option<i32>),
        name!(relation, pg_sys::Oid),
        name!(key, Option<String>),
        name!(reason, &'static str),
        name!(since, i64),
    ),
> {
    let memory = memory();
    let mut lines = Vec::new();
    for (number, backend) in memory.backends.iter().enumerate() {
        let since = backend.wait_since.get();
        let Some(slot) = backend.wait_row.get().checked_sub(1) else {
            continue;
        };
        let Some(row) = memory.directory.rows.get(slot as usize) else {
            continue;
        };
        let Some(pid) = pid_of(number as u32) else {
            continue;
        };
        if since == 0 || !is_here(row) {
            continue;
        }
        let reason = backend.wait_reason.get();
        let blocker = if reason == Reason::Ticket as u32 {
            row.holder().map(backend_of)
        } else if reason == Reason::Gate as u32 {
            backend.holder_awaited(memory.directory.rows)
        } else {
            let predecessor = backend.first_predecessor().and_then(process_of);
            predecessor.or_else(|| backend.awaited(memory.backends))
        };
        let line = (
            pid,
            blocker.and_then(pid_or_prepared),
            pg_sys::Oid::from(row.relation()),
            key(row),
            Reason::name(reason),
            since as i64,
        );
        lines.push(line);
    }
    TableIterator::new(lines)
}
