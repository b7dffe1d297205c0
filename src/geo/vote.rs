//! Asking a node to prepare, and what it answers.

use super::coordinator::Identity;
use super::decision::Participant;
use super::exchange::{Command, DURABLE, Exchange, Request, Role};
use super::failure::{Failure, Outcome, ROLLED_BACK};
use super::nodes::{self, NodeId};
use geo::{Answer, Gid, Vote};
use std::rc::Rc;

/// A node that was asked to prepare.
#[derive(Clone)]
pub struct Asked {
    pub id: NodeId,
    pub gid: Gid,
    pub sent: Rc<Exchange>,
}

const FACTS: &str = "SELECT \
     pg_catalog.pg_current_wal_flush_lsn() OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn, \
     pg_catalog.substr(\
     pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()), 1, 8)";

/// The commands by which a node prepares, and tells where. No code of others runs there from then
/// on to COMMIT PREPARED, so both are durable.
pub fn prepare(gid: Gid) -> Vec<Command> {
    vec![
        Command::new(Role::Prologue, DURABLE),
        Command::new(Role::Ending, &format!("PREPARE TRANSACTION '{gid}'")),
        Command::new(Role::Facts, FACTS),
    ]
}

/// Asks the node to prepare: with the writes that were put off, if there are any.
pub fn ask(id: NodeId, gid: Gid) -> Rc<Exchange> {
    let commands = prepare(gid);
    let has_deferred = nodes::with(id, |node| {
        node.session().take_standby_warning();
        node.prepared = Some(gid.to_string());
        node.has_deferred()
    });
    if has_deferred {
        return nodes::send_deferred(id, &commands);
    }
    let request = Request { commands };
    nodes::with(id, |node| node.send(&request, None))
}

/// The transaction's name at that node.
pub fn gid(id: NodeId, identity: &Identity, sequence: u64) -> Gid {
    Gid {
        coordinator: identity.coordinator,
        incarnation: identity.incarnation,
        sequence,
        mapping: nodes::with(id, |node| node.server.mapping).into(),
    }
}

/// The node's vote, and what it has told with it.
pub fn participant(asked: &Asked) -> Outcome<Participant> {
    let tag = asked.sent.tag();
    nodes::with(asked.id, |node| {
        let answer = Answer {
            tag: tag.as_deref(),
            standby_wait_cancelled: node.session().take_standby_warning(),
        };
        let mut facts = asked
            .sent
            .facts()
            .into_iter()
            .map(Option::unwrap_or_default);
        let lsn = facts.next().and_then(|lsn| lsn.parse().ok());
        let timeline = facts
            .next()
            .and_then(|line| u32::from_str_radix(&line, 16).ok());
        match (geo::vote(&answer), lsn, timeline, node.transaction()) {
            (Vote::Yes, Some(lsn), Some(timeline), Some(transaction)) => Ok(Participant {
                gid: asked.gid,
                server: node.server.server,
                system: node.facts.system.clone(),
                transaction,
                prepared: geo::Prepared { timeline, lsn },
            }),
            _ => Err(Failure::new(
                ROLLED_BACK,
                format!(
                    "server \"{}\" did not prepare the transaction",
                    node.server.name
                ),
            )
            .detail(match answer.standby_wait_cancelled {
                true => "Its wait for a synchronous standby was cancelled.".to_owned(),
                false => format!("It answered {}.", tag.as_deref().unwrap_or("nothing")),
            })),
        }
    })
}
