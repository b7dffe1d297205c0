//! The functions behind the views `txn.lane` and `txn.my_declared`.

use super::beyond;
use crate::hotlock::memory;
use crate::pg::{process, rights, xact};
use crate::range_occ::{key, text, views};
use ::lane::{Item, Mode, SeatId, State, put_in_order};
use pgrx::prelude::*;

/// Lines of what a transaction has used; of more, neighbours are joined.
const MOST_BEYOND: usize = 1024;

fn name_of(state: State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Queued => "queued",
        State::Draining => "draining",
        State::Holding => "holding",
    }
}

fn mode_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "read",
        Mode::Write => "write",
    }
}

/// One declared item of a transaction.
struct Line {
    seat: SeatId,
    state: State,
    number: u64,
    item: Item,
    is_granted: bool,
}

/// What the transactions of these processes have declared.
fn lines(is_wanted: impl Fn(SeatId) -> bool) -> Vec<Line> {
    let Some(lane) = memory().lane else {
        return Vec::new();
    };
    let collect = |lane: ::lane::Lane<'static>| {
        let mut lines = Vec::new();
        for id in (0..lane.seats.len() as SeatId).filter(|&id| is_wanted(id)) {
            let seat = lane.seat(id);
            for (item, is_granted) in lane.declared(id) {
                lines.push(Line {
                    seat: id,
                    state: seat.state(),
                    number: seat.number(),
                    item,
                    is_granted,
                });
            }
        }
        lines
    };
    let mut lines = memory().with_lane(lane, collect);
    lines.retain(|line| key::relation_of(key::oid_of(line.item.relation)) == line.item.relation);
    lines.sort_by_key(|line| line.number);
    lines
}

/// The bounds of an item's keys as text, for those who may know them.
fn bounds(item: &Item) -> (Option<String>, Option<String>) {
    views::table_of(key::oid_of(item.relation))
        .map_or((None, None), |table| text::bounds(&table, &item.keys))
}

/// One line per declared item in this database.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn lane() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(number, i64),
        name!(state, &'static str),
        name!(relation, pg_sys::Oid),
        name!(low, Option<String>),
        name!(high, Option<String>),
        name!(mode, &'static str),
        name!(granted, bool),
    ),
> {
    let lines = lines(|_| true);
    TableIterator::new(lines.into_iter().filter_map(|line| {
        let (low, high) = bounds(&line.item);
        Some((
            process::pid_of(line.seat)?,
            line.number as i64,
            name_of(line.state),
            key::oid_of(line.item.relation),
            low,
            high,
            mode_of(line.item.mode),
            line.is_granted,
        ))
    }))
}

/// What the present transaction has declared, and what it has used without having declared it.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn my_declared() -> TableIterator<
    'static,
    (
        name!(relation, pg_sys::Oid),
        name!(low, Option<String>),
        name!(high, Option<String>),
        name!(mode, &'static str),
        name!(declared, bool),
    ),
> {
    let me = process::me();
    let declared = lines(|id| id == me).into_iter().map(|line| line.item);
    let mut beyond = rights::unwinding(beyond::accesses);
    let _ = put_in_order(&mut beyond, MOST_BEYOND);
    let declared: Vec<(Item, bool)> = declared.map(|item| (item, true)).collect();
    let lines = declared
        .into_iter()
        .chain(beyond.into_iter().map(|item| (item, false)));
    TableIterator::new(lines.map(|(item, is_declared)| {
        let (low, high) = bounds(&item);
        let relation = key::oid_of(item.relation);
        (relation, low, high, mode_of(item.mode), is_declared)
    }))
}

/// One line per session of this database that waits for declared keys: its own, or others'.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn lane_waits() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(blocked_by, Option<i32>),
        name!(relation, Option<pg_sys::Oid>),
        name!(key, Option<String>),
        name!(since, i64),
    ),
> {
    let Some(lane) = memory().lane else {
        return TableIterator::new(Vec::new());
    };
    let mut found = Vec::new();
    for (number, backend) in memory().backends.iter().enumerate() {
        let (number, since) = (number as SeatId, backend.wait_since.get());
        let is_here = since != 0
            && backend.wait_reason.get() == LANE
            && xact::is_in_this_database(number as usize);
        if is_here && let Some(pid) = process::pid_of(number) {
            let (blocker, item) = memory().with_lane(lane, |lane| {
                let blocker = lane.blocker(number).or(lane.seat(number).watched());
                let awaited = lane.declared(number).find(|(_, is_granted)| !is_granted);
                (blocker, awaited.map(|(item, _)| item))
            });
            found.push((pid, blocker, item, since));
        }
    }
    let line = |(pid, blocker, item, since): (i32, Option<SeatId>, Option<Item>, u64)| {
        (
            pid,
            blocker.and_then(process::pid_of),
            item.map(|item| key::oid_of(item.relation)),
            item.and_then(|item| bounds(&item).0),
            since as i64,
        )
    };
    TableIterator::new(found.into_iter().map(line).collect::<Vec<_>>())
}

/// The number of the reason in shared memory.
const LANE: u32 = crate::hotlock::waiting::Reason::Lane as u32;
