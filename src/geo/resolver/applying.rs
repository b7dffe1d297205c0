//! Commits that sessions have handed over: COMMIT PREPARED is sent to all nodes as soon as the
//! resolver hears of it, and the answers are taken as they come. Nothing here waits for a node.

use super::link::{self, ANSWER_US, Link, Mark};
use crate::geo::coordinator::{database, memory};
use crate::geo::exchange::{Command, Exchange, Request, Role};
use crate::pg::process;
use geo::{Answer, Gid, Handed, Wants};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A COMMIT PREPARED that is on its way.
struct Sent {
    handed: Handed,
    gid: Gid,
    exchange: Rc<Exchange>,
    /// As the link was when it was sent.
    mark: Mark,
    sent_at: u64,
}

/// What has been taken on.
#[derive(Default)]
pub struct Applying {
    /// By ticket.
    under_way: BTreeMap<u64, Sent>,
    /// What the nodes have acknowledged.
    applied: Vec<Gid>,
}

impl Applying {
    /// Sends what has been handed over since, and takes the answers that have come.
    pub fn go_on(&mut self, links: &mut [Link]) {
        self.take_answers(links);
        let handed = memory().with_geo(|board| board.handed(database()));
        for one in handed {
            if self.under_way.contains_key(&one.ticket) {
                continue;
            }
            match send(links, one) {
                Some(sent) => drop(self.under_way.insert(one.ticket, sent)),
                None => hand_back(&one),
            }
        }
    }

    /// When to look at the latest whether nodes still answer.
    pub fn next(&self) -> Option<u64> {
        let due = self.under_way.values().map(|sent| sent.sent_at + ANSWER_US);
        due.min().map(|due| due.max(process::now() + 10_000))
    }

    /// The rows of these may go.
    pub fn take_applied(&mut self) -> Vec<Gid> {
        std::mem::take(&mut self.applied)
    }

    fn take_answers(&mut self, links: &mut [Link]) {
        let now = process::now();
        let is_over = |sent: &Sent, links: &mut [Link]| {
            let is_silent = find(links, &sent.handed)
                .is_none_or(|link| link.is_silent_since(sent.sent_at, now));
            sent.exchange.is_done() || is_silent || !is_as_before(links, sent)
        };
        let over: Vec<u64> = self
            .under_way
            .iter()
            .filter(|(_, sent)| is_over(sent, links))
            .map(|(&ticket, _)| ticket)
            .collect();
        for sent in over
            .iter()
            .filter_map(|ticket| self.under_way.remove(ticket))
        {
            let tag = sent.exchange.tag();
            let answer = Answer {
                tag: tag.as_deref().filter(|_| sent.exchange.is_done()),
                // A warning does not say to which of a link's commits it belongs.
                standby_wait_cancelled: !is_as_before(links, &sent),
            };
            if geo::applied(&answer, true) {
                self.applied.push(sent.gid);
                memory().with_geo(|board| board.applied(&sent.handed));
            } else {
                hand_back(&sent.handed);
            }
        }
    }
}

/// Whether it is the same connection, without a warning since.
fn is_as_before(links: &mut [Link], sent: &Sent) -> bool {
    find(links, &sent.handed).is_some_and(|link| link.mark() == sent.mark && link.node().is_some())
}

/// The link of the user who has prepared.
fn find<'a>(links: &'a mut [Link], handed: &Handed) -> Option<&'a mut Link> {
    links
        .iter_mut()
        .find(|link| u32::from(link.server.mapping) == handed.mapping)
}

/// Sends one. None: there is no connection; if it can be made, the next one has it.
fn send(links: &mut [Link], handed: Handed) -> Option<Sent> {
    let link = find(links, &handed)?;
    if link.node().is_none() {
        link.go_on();
        return None;
    }
    let gid = Gid {
        coordinator: link.coordinator,
        incarnation: handed.incarnation,
        sequence: handed.sequence,
        mapping: handed.mapping,
    };
    let mark = link.mark();
    let command = Command::new(Role::Ending, &format!("COMMIT PREPARED '{gid}'"));
    Some(Sent {
        exchange: link::send(link, &Request::of(command), None)?,
        handed,
        gid,
        mark,
        sent_at: process::now(),
    })
}

/// A pass has to end it.
fn hand_back(handed: &Handed) {
    let wants = Wants {
        pass: true,
        look: false,
    };
    memory().with_geo(|board| {
        board.hand_back(database(), handed);
        board.want(database(), wants);
    });
}
