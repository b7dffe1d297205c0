//! Transactions at nodes, as an administrator sees and ends them.

use super::connect;
use super::coordinator::{self, memory};
use super::exchange::{Command, Request, Role, Texts};
use super::failure::{Failure, NOT_IN_STATE, Outcome, raised};
use super::node::Use;
use super::planner;
use super::resolver::rows;
use super::server::Server;
use crate::pg::xact;
use geo::Gid;
use pgrx::prelude::*;
use std::rc::Rc;
use std::str::FromStr;

/// A transaction at a node: its name, server, owner, and when it was prepared.
type Prepared = (
    String,
    pg_sys::Oid,
    Option<String>,
    Option<TimestampWithTimeZone>,
);

/// The rows of an answer, as texts.
type Lines = Vec<Vec<Option<String>>>;

/// Sends one command on a connection of its own, and waits for what comes: rows, and whether the
/// node's standbys have confirmed it as the node is set to have them.
fn run(server: &Rc<Server>, command: Command) -> Outcome<(Lines, bool)> {
    let mut node = connect::connect(server, Use::Work)?;
    let texts = Rc::new(Texts::default());
    let exchange = node.send(&Request::of(command), Some(texts.clone()));
    connect::wait(&mut node)?;
    exchange.outcome()?;
    let is_confirmed = !node.session().take_standby_warning();
    Ok((texts.take_all(), is_confirmed))
}

const PREPARED: &str = "SELECT gid, owner, prepared FROM pg_catalog.pg_prepared_xacts \
     WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database() \
     AND pg_catalog.starts_with(gid, $1)";

/// What is prepared at the nodes that this user can reach.
pub fn prepared() -> Vec<Prepared> {
    let known = memory().with_geo(|board| board.known(coordinator::database()));
    let Some(known) = known.filter(|known| known.coordinator != 0) else {
        return Vec::new();
    };
    raised(planner::require_libpq());
    let prefix = Gid::prefix(known.coordinator);
    let mut found = Vec::new();
    for server in rows::own_nodes() {
        let command = Command::new(Role::Statement, PREPARED).with(&prefix);
        match run(&server, command) {
            Ok((lines, _)) => found.extend(lines.into_iter().filter_map(|line| {
                let mut fields = line.into_iter();
                let gid = fields.next()??;
                let owner = fields.next()?;
                let since = fields.next()??;
                let since = TimestampWithTimeZone::from_str(&since).ok();
                Some((gid, server.server, owner, since))
            })),
            Err(failure) => failure.warn(),
        }
    }
    found
}

/// Ends the transaction at its node as told, unless its outcome is known to be another one. What a
/// node has lost is forgotten.
pub fn resolve(text: &str, commit: bool) -> Outcome<()> {
    let unknown = || {
        Failure::new(
            *b"42704",
            format!("there is no transaction \"{text}\" of this coordinator"),
        )
    };
    let gid = Gid::parse(text).ok_or_else(unknown)?;
    let known = memory().with_geo(|board| board.known(coordinator::database()));
    let known = known
        .filter(|known| known.coordinator == gid.coordinator)
        .ok_or_else(unknown)?;
    if !xact::is_read_committed() {
        return Err(Failure::new(
            NOT_IN_STATE,
            "txn.geo_resolve() must be called at READ COMMITTED",
        )
        .detail("Another snapshot may be older than the transaction's decision."));
    }
    if known.incarnation == gid.incarnation && coordinator::is_active(gid.sequence) {
        return Err(Failure::new(
            *b"55006",
            "a session still votes on the transaction, or applies it",
        )
        .detail("Its outcome is the session's to decide."));
    }
    // Read after that: with a transaction id SPI takes a new snapshot.
    // SAFETY: in a transaction that may write.
    unsafe { pg_sys::GetCurrentTransactionId() };
    let row = rows::decided().into_iter().find(|row| row.gid == gid);
    match &row {
        Some(row) if row.is_lost => {
            rows::erase(&[gid]);
            return Ok(());
        }
        Some(_) if !commit => {
            return Err(Failure::new(NOT_IN_STATE, "the transaction is committed")
                .detail("Its decision row is durable, and other nodes may have applied it."));
        }
        None if commit => {
            return Err(
                Failure::new(NOT_IN_STATE, "the transaction is not committed")
                    .detail("It has no decision row, so it has been rolled back everywhere else."),
            );
        }
        _ => {}
    }
    planner::require_libpq()?;
    let server = rows::of_mapping(gid.mapping).ok_or_else(|| {
        Failure::new(
            NOT_IN_STATE,
            "the user mapping of the transaction has been dropped",
        )
        .hint("End it at the node, as its owner or as a superuser.")
    })?;
    let how = if commit { "COMMIT" } else { "ROLLBACK" };
    let command = Command::new(Role::Ending, &format!("{how} PREPARED '{gid}'"));
    let (_, is_confirmed) = run(&server, command)?;
    // A failover of the node may bring it back, if its standby has not confirmed: a pass asks.
    if row.is_some() && is_confirmed {
        rows::erase(&[gid]);
    }
    Ok(())
}
