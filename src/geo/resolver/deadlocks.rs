//! Looking for deadlocks over several servers, when a session asks for it. Nothing here waits for a
//! node: what the resolver does else goes on meanwhile.

use super::in_transaction;
use super::link::{self, Link};
use super::rows;
use crate::geo::coordinator::{database, memory};
use crate::geo::exchange::{Command, Exchange, Request, Role, Texts};
use crate::geo::facts;
use crate::geo::failure::log;
use crate::geo::running;
use crate::pg::process;
use crate::shared::wait;
use geo::{Deadlock, HERE, Id, Look, Own, Session, Waits};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How long a look waits for a node, in microseconds. One that does not answer is left out.
const ANSWER_US: u64 = 2_000_000;

/// A look that takes long at a node fails, rather than hold up a pass, which closes links that do
/// not answer.
const LIMIT: &str = "SELECT pg_catalog.set_config('statement_timeout', '1s', true)";

/// The sessions of this server that use nodes, with their places in shared memory.
type Sessions = Vec<(usize, Session)>;

fn sessions() -> Sessions {
    memory().with_running(|all| {
        let read = |(place, one): (usize, &geo::Running)| Some((place, one.read()?));
        all.iter().enumerate().filter_map(read).collect()
    })
}

/// This server: `facts::cluster`.
fn here() -> u64 {
    const HERE_IS: &str = "SELECT system_identifier::pg_catalog.text, \
         EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text \
         FROM pg_catalog.pg_control_system()";
    let rows = in_transaction(|| rows::texts(HERE_IS));
    let mut texts = rows.into_iter().flatten().flatten();
    let mut next = || texts.next().unwrap_or_default();
    facts::cluster(&next(), &next())
}

/// The number of this coordinator.
fn own_coordinator() -> Option<u128> {
    let known = memory().with_geo(|board| board.known(database()))?;
    Some(known.coordinator).filter(|&coordinator| coordinator != 0)
}

/// A node that was asked.
struct Asked {
    place: u32,
    cluster: u64,
    texts: Rc<Texts>,
    sent: Rc<Exchange>,
}

/// A look that has begun.
struct Begun {
    /// Read before all waits: a transaction that two looks name has had its process between them.
    sessions: Sessions,
    /// The number of the latest transaction then.
    latest: u64,
    asked: Vec<Asked>,
    here: u64,
    until: u64,
    /// What the look before has shown.
    first: Option<Look>,
}

/// The looks for deadlocks.
#[derive(Default)]
pub struct Looking {
    /// The look that is under way, if one is.
    begun: Option<Begun>,
    /// Another one is wanted.
    is_wanted: bool,
    /// It does not begin before.
    rests_until: u64,
    /// Victims that could not be told by the last look.
    untold: BTreeSet<Id>,
    /// Servers at which more wait than are looked at, of which the log has been told.
    left_out: BTreeSet<u32>,
}

impl Looking {
    /// Somebody wants a look that begins from now on.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// When it goes on by itself: it waits for answers until then at most.
    pub fn next(&self) -> Option<u64> {
        let until = self.begun.as_ref().map(|begun| begun.until);
        until.or(self.is_wanted.then_some(self.rests_until))
    }

    /// Begins if it is time, and goes on as far as it can without waiting.
    pub fn go_on(&mut self, links: &mut [Link]) {
        let now = process::now();
        if self.begun.is_none() && self.is_wanted && now >= self.rests_until {
            self.is_wanted = false;
            // Many may wait, and each asks.
            self.rests_until = now + running::patience() / 2;
            self.begun = Some(Begun::ask(links, None));
        }
        let Some(begun) = &self.begun else { return };
        links.iter_mut().for_each(Link::catch_up);
        let is_waiting = begun.asked.iter().any(|one| !one.sent.is_done());
        if is_waiting && process::now() < begun.until {
            return;
        }
        let Some(begun) = self.begun.take() else {
            return;
        };
        let look = begun.look();
        self.tell_left_out(&look, links);
        let untold = &self.untold;
        let hears = |id, is_seen_by_all| begun.hears(id, is_seen_by_all, untold);
        let mut has_found = false;
        match &begun.first {
            None if geo::deadlocks(&look, &look, |_, _| true).is_empty() => {}
            None => self.begun = Some(Begun::ask(links, Some(look))),
            Some(first) => {
                let found = geo::deadlocks(first, &look, hears);
                let server = |place| name_of(links, place);
                let untold = found
                    .iter()
                    .filter(|one| !refuse(one, &begun.sessions, server));
                self.untold = untold.map(|one| one.victim).collect();
                has_found = self.untold.len() < found.len();
            }
        }
        if self.begun.is_none() {
            let interval = running::interval();
            memory().with_geo(|board| board.looked(database(), &interval, has_found));
        }
    }

    /// Says at which servers more wait than a look asks for; once, until it is not so any more.
    fn tell_left_out(&mut self, look: &Look, links: &[Link]) {
        for (&place, more) in &look.left_out {
            if !self.left_out.contains(&place) {
                let most = geo::MOST_WAITS;
                log(&format!(
                    "txn: {more} processes beside {most} others wait for locks at {}; a look for \
                     deadlocks does not see them",
                    name_of(links, place)
                ));
            }
        }
        self.left_out = look.left_out.keys().copied().collect();
    }
}

impl Begun {
    /// Asks each running server once, whatever names it has; but for this one.
    fn ask(links: &mut [Link], first: Option<Look>) -> Begun {
        let latest = memory().latest_geo_sequence();
        let (sessions, here) = (sessions(), here());
        let mut asked: Vec<Asked> = Vec::new();
        for link in links {
            let place = link.server.server.into();
            let Some(node) = link.node() else { continue };
            let cluster = node.facts.cluster();
            let is_known = |one: &Asked| one.place == place || one.cluster == cluster;
            if cluster == here || asked.iter().any(is_known) {
                continue;
            }
            let texts = Rc::new(Texts::default());
            let mut request = Request::of(Command::new(Role::Prologue, LIMIT));
            request.push(Command::new(Role::Statement, &geo::waits_at_node()));
            if let Some(sent) = link::send(link, &request, Some(texts.clone())) {
                asked.push(Asked {
                    place,
                    cluster,
                    texts,
                    sent,
                });
            }
        }
        Begun {
            sessions,
            latest,
            here,
            asked,
            until: process::now() + ANSWER_US,
            first,
        }
    }

    /// Whether the transaction can be told to fail. Other coordinators' are told by these, if they
    /// see all of the cycle. One of ours is told in a long wait, which it may be about to begin; if
    /// it was not so at the last look, or the session is gone, somebody else has to give way.
    fn hears(&self, id: Id, is_seen_by_all: bool, untold: &BTreeSet<Id>) -> bool {
        let own = self.sessions.iter().find(|(_, one)| one.name.id == id);
        match own {
            Some((_, session)) => {
                !session.is_protected && (session.wait != 0 || !untold.contains(&id))
            }
            None => is_seen_by_all && own_coordinator() != Some(id.coordinator),
        }
    }

    /// What those have said that have answered, and this server.
    fn look(&self) -> Look {
        let sessions: Vec<Session> = self.sessions.iter().map(|one| one.1).collect();
        let own = Own::new(own_coordinator(), self.latest, &sessions);
        let mut look = Look::default();
        for one in &self.asked {
            if one.sent.is_done() && !one.sent.has_failed() {
                let waits = Waits::of_rows(one.texts.take_all());
                look.add(one.place, one.cluster, &waits, &own);
            }
        }
        let asked = geo::waits_here(sessions.iter().map(|one| one.pid));
        let here = Waits::of_rows(in_transaction(|| rows::texts(&asked)));
        look.add(HERE, self.here, &here, &own);
        look
    }
}

/// For texts: the name of the server.
fn name_of(links: &[Link], place: u32) -> String {
    if place == HERE {
        return "the coordinator".to_owned();
    }
    let link = links
        .iter()
        .find(|link| u32::from(link.server.server) == place);
    link.map_or_else(|| place.to_string(), |link| link.server.name.clone())
}

/// Tells the victim, if it is a session of this server that waits where it hears that, and whether
/// it was told. Otherwise it is another coordinator's to tell, or asks for a look itself once it
/// has waited for as long.
fn refuse(deadlock: &Deadlock, sessions: &Sessions, server: impl Fn(u32) -> String) -> bool {
    let pids: BTreeMap<Id, i32> = sessions
        .iter()
        .map(|(_, session)| (session.name.id, session.pid))
        .collect();
    let victim = sessions
        .iter()
        .find(|(_, session)| session.name.id == deadlock.victim);
    let Some((place, session)) = victim else {
        return false;
    };
    let why = deadlock.told(server, |id| pids.get(&id).copied());
    let is_told = memory().with_running(|all| all[*place].refuse(session, &why));
    if is_told {
        wait::wake(*place as hotrow::BackendId);
    }
    is_told
}
