//! The commit of a transaction that has written at one node only: one phase, no decision row.

use super::connect;
use super::coordinator;
use super::exchange::{Command, Exchange, Request, Role};
use super::facts::Facts;
use super::failure::{Failure, Outcome, ROLLED_BACK, UNKNOWN_OUTCOME};
use super::node::{Node, Use};
use super::nodes::{self, NodeId};
use super::running;
use super::schedule;
use super::server::Server;
use super::settle;
use crate::pg::process;
use geo::NodeStatus;
use std::rc::Rc;

/// Commits at the node. Raises if it has not; SQLSTATE 08007 if nobody knows.
pub fn commit(id: NodeId) -> Outcome<()> {
    running::protect();
    nodes::with(id, |node| node.session().take_standby_warning());
    let exchange = settle::send_ending(id, "COMMIT");
    schedule::give_turns_back();
    let is_late = !settle::settle(&[id], coordinator::apply_limit(), settle::Heeds::Cancel);
    if is_late {
        settle::cancel_commit(id);
    }
    // A wait for a standby that we have cancelled confirms nothing.
    let is_confirmed = !is_late || !nodes::with(id, |node| node.session().take_standby_warning());
    if exchange.tag().as_deref() == Some("COMMIT") && is_confirmed {
        nodes::with(id, Node::end_transaction);
        return Ok(());
    }
    let (is_usable, server, facts, transaction) = nodes::with(id, |node| {
        let facts = node.facts.clone();
        (
            node.is_usable(),
            Rc::clone(&node.server),
            facts,
            node.transaction(),
        )
    });
    if is_usable && is_confirmed {
        // The node has answered: it has rolled back.
        nodes::with(id, Node::end_transaction);
        return Err(refusal(&exchange, &server.name, is_late));
    }
    nodes::with(id, Node::end_transaction);
    find_out(&server, &facts, transaction)
}

/// Why the node has rolled back.
fn refusal(exchange: &Exchange, server: &str, is_late: bool) -> Failure {
    const CANCELED: [u8; 5] = *b"57014";
    match exchange.outcome() {
        Err(failure) if is_late && failure.code == CANCELED && !process::is_to_fail() => {
            Failure::new(
                ROLLED_BACK,
                format!("server \"{server}\" did not commit the transaction in time"),
            )
            .detail("Its COMMIT was cancelled there, and has rolled back.")
            .hint("See txn.geo_apply_timeout and txn.geo_lock_timeout.")
        }
        Err(failure) => failure,
        Ok(_) => Failure::new(
            ROLLED_BACK,
            format!("server \"{server}\" did not commit the transaction"),
        )
        .detail(format!(
            "It answered {}.",
            exchange.tag().as_deref().unwrap_or("nothing")
        )),
    }
}

/// The connection was lost between COMMIT and its answer: asks on a new one.
fn find_out(server: &Rc<Server>, before: &Facts, transaction: Option<u64>) -> Outcome<()> {
    let until = coordinator::apply_limit();
    let unknown = |why: &str| {
        Failure::new(
            UNKNOWN_OUTCOME,
            format!(
                "it is not known whether the transaction has committed at server \"{}\"",
                server.name
            ),
        )
        .detail(why)
    };
    let Some(transaction) = transaction else {
        return Err(unknown("It has no transaction id."));
    };
    loop {
        if process::is_to_fail() {
            return Err(unknown("The wait for its answer was cancelled."));
        }
        match process::without_cancel(|| ask(server, before, transaction, until)) {
            Ok(geo::Outcome::Committed) => return Ok(()),
            Ok(geo::Outcome::RolledBack) => {
                let name = &server.name;
                return Err(Failure::lost(
                    name,
                    "The transaction has been rolled back there.",
                ));
            }
            Ok(geo::Outcome::Unknown) => {
                return Err(unknown(
                    "The server has restarted or failed over meanwhile.",
                ));
            }
            Ok(geo::Outcome::AskAgain) => {}
            Err(failure) if process::now() >= until => {
                return Err(unknown(
                    failure.detail.as_deref().unwrap_or(&failure.message),
                ));
            }
            Err(_) => {}
        }
        if process::now() >= until {
            return Err(unknown(
                "The connection was lost, and there has been no answer since.",
            ));
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The status of the transaction, and a commit that waits for the same standbys as its own would.
const STATUS: &str = "SELECT pg_catalog.pg_xact_status($1::pg_catalog.xid8), \
     pg_catalog.pg_logical_emit_message(true, 'txn', '')";

fn ask(server: &Rc<Server>, before: &Facts, transaction: u64, until: u64) -> Outcome<geo::Outcome> {
    let mut node = connect::connect(server, Use::Work)?;
    let command = Command::new(Role::Facts, STATUS).with(&transaction.to_string());
    let exchange = node.send(&Request::of(command), None);
    if !connect::wait_until(&mut node, until) {
        return Err(Failure::lost(&server.name, "It does not answer."));
    }
    exchange.outcome()?;
    let server = geo::Server {
        same_system: node.facts.system == before.system,
        same_timeline: node.facts.timeline == before.timeline,
        same_start: node.facts.started == before.started,
    };
    let status = status_of(exchange.facts().first().cloned().flatten().as_deref());
    let is_confirmed = !node.session().take_standby_warning();
    Ok(geo::outcome(server, status, is_confirmed))
}

/// What `pg_xact_status` says.
pub fn status_of(text: Option<&str>) -> NodeStatus {
    match text {
        Some("committed") => NodeStatus::Committed,
        Some("aborted") => NodeStatus::Aborted,
        Some("in progress") => NodeStatus::InProgress,
        _ => NodeStatus::Unknown,
    }
}
