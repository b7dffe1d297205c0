//! The functions behind the views `txn.geo_nodes`, `txn.geo_records` and `txn.geo_transactions`,
//! geo's part of `txn.waits`, and what a superuser may do by hand.

use super::coordinator::{self, memory};
use super::failure::{Failure, NOT_IN_STATE, raised};
use super::{by_hand, nodes};
use crate::pg::process;
use geo::{Gid, KnownRecord, Phase, with_ahead};
use pgrx::prelude::*;

/// The connections of this session: server, mapping, what for, whether in a transaction.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn geo_connections() -> TableIterator<
    'static,
    (
        name!(server, pg_sys::Oid),
        name!(mapping, pg_sys::Oid),
        name!(reads, bool),
        name!(in_transaction, bool),
        name!(usable, bool),
    ),
> {
    let mut found = Vec::new();
    nodes::for_each(|_, node| {
        found.push((
            node.server.server,
            node.server.mapping,
            node.for_use != super::node::Use::Work,
            node.is_in_transaction(),
            node.is_usable() && !node.is_stale,
        ));
    });
    TableIterator::new(found)
}

/// The round trips to the nodes of this database, as far as they are known: in microseconds.
#[pg_extern(sql = false)]
fn geo_round_trip(server: pg_sys::Oid) -> Option<i64> {
    coordinator::round_trip(server).map(|trip| trip as i64)
}

/// What is known of records at the nodes of this database; times are in microseconds.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn geo_records() -> TableIterator<
    'static,
    (
        name!(server, pg_sys::Oid),
        name!(relation, pg_sys::Oid),
        name!(record, i64),
        name!(local_us, i64),
        name!(in_flight, i64),
        name!(tries, i64),
        name!(commits, i64),
        name!(queue, i64),
        name!(turn_us, i64),
        name!(at_once, Option<i64>),
        name!(in_line, i64),
    ),
> {
    let now = process::now();
    let all = memory().with_turns(|all| {
        let known = all.records().all(coordinator::database(), now).into_iter();
        let in_line = |one: KnownRecord| (one, all.in_line(one.hash));
        known.map(in_line).collect::<Vec<_>>()
    });
    TableIterator::new(all.into_iter().map(|(one, in_line)| {
        (
            pg_sys::Oid::from(one.server),
            pg_sys::Oid::from(one.relation),
            one.hash as i64,
            one.local as i64,
            one.in_flight as i64,
            one.tries as i64,
            one.commits as i64,
            one.queue as i64,
            one.turn as i64,
            one.at_once.map(|count| count as i64),
            in_line as i64,
        )
    }))
}

/// One line per session of this database that stands in line before a row of a node. `blocked_by`
/// is the session just before it; none: it is the next, and waits for those that have a turn.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn geo_waits() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(blocked_by, Option<i32>),
        name!(relation, pg_sys::Oid),
        name!(since, i64),
    ),
> {
    let mut all = memory().with_turns(|all| all.standing());
    all.retain(|one| one.database == coordinator::database());
    TableIterator::new(with_ahead(all).into_iter().filter_map(|(one, ahead)| {
        Some((
            process::pid_of(one.backend)?,
            ahead.and_then(process::pid_of),
            pg_sys::Oid::from(one.relation),
            one.since as i64,
        ))
    }))
}

/// What the resolver of this database does.
#[pg_extern(sql = false)]
fn geo_resolver() -> TableIterator<
    'static,
    (
        name!(phase, &'static str),
        name!(pid, Option<i32>),
        name!(passes, i64),
        name!(incarnation, i64),
        name!(looks, i64),
    ),
> {
    let known = memory().with_geo(|board| board.known(coordinator::database()));
    TableIterator::new(known.map(|known| {
        let phase = match known.phase {
            Phase::Absent => "absent",
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Paused => "paused",
        };
        let pid = known
            .process
            .and_then(|number| process::pid_of(number as hotrow::BackendId));
        let (passes, looks) = (known.passes as i64, known.looks as i64);
        (phase, pid, passes, known.incarnation as i64, looks)
    }))
}

/// Whether a session votes on the transaction with that name, or applies it.
#[pg_extern(sql = false)]
fn geo_is_active(gid: &str) -> bool {
    let Some(gid) = Gid::parse(gid) else {
        return false;
    };
    let known = memory().with_geo(|board| board.known(coordinator::database()));
    known.is_some_and(|known| {
        known.coordinator == gid.coordinator
            && known.incarnation == gid.incarnation
            && coordinator::is_active(gid.sequence)
    })
}

/// The resolver looks now, rather than at its next turn.
#[pg_extern(sql = false)]
fn geo_wake() {
    coordinator::wake();
}

/// `txn.geo_take_over()`: this server goes on as the coordinator that it may be a copy of.
#[pg_extern(sql = false)]
fn geo_take_over() {
    // SAFETY: asks for the rights of the current user, in a transaction.
    if !unsafe { pg_sys::superuser() } {
        raised(Err(Failure::new(
            *b"42501",
            "permission denied for function geo_take_over",
        )
        .detail("Only superusers may take a coordinator over.")))
    }
    if super::decision::table(c"geo_coordinator").is_err() {
        raised(Err(Failure::new(
            NOT_IN_STATE,
            "this database has not been a coordinator",
        )))
    }
    super::resolver::take_over();
    coordinator::wake();
}

/// The transactions of this coordinator that are prepared at nodes which the user can reach. A node
/// that does not answer is left out, with a warning.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn geo_prepared() -> TableIterator<
    'static,
    (
        name!(gid, String),
        name!(server, pg_sys::Oid),
        name!(owner, Option<String>),
        name!(prepared, Option<TimestampWithTimeZone>),
    ),
> {
    TableIterator::new(by_hand::prepared())
}

/// `txn.geo_resolve(gid, commit)`: ends by hand what the resolver cannot.
#[pg_extern(sql = false)]
fn geo_resolve(gid: &str, commit: bool) {
    // SAFETY: asks for the rights of the current user, in a transaction.
    if !unsafe { pg_sys::superuser() } {
        raised(Err(Failure::new(
            *b"42501",
            "permission denied for function geo_resolve",
        )
        .detail("Only superusers may end transactions of others.")))
    }
    raised(by_hand::resolve(gid, commit));
}
