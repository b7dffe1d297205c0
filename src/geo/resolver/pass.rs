//! One look of the resolver at all nodes. What it does with what it finds is in `crates/geo`
//! (`recovery.rs`), with the reason why the sets have to be read in just this order.

use super::in_transaction;
use super::link::{self, Link, Mark};
use super::meanwhile;
use super::rows::{self, Decided};
use crate::geo::coordinator::{Identity, memory};
use crate::geo::decision;
use crate::geo::exchange::{Command, Exchange, Request, Role, Rows};
use crate::geo::failure::log;
use crate::geo::server::Server;
use crate::geo::single::status_of;
use crate::pg::libpq::Answer;
use crate::pg::{process, raw};
use crate::shared::stop;
use geo::{Action, Asked, Gid, History, Judged, Pass, Phase, Scope};
use pgrx::pg_sys;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The names that a node has given.
#[derive(Default)]
struct Names(RefCell<Vec<Gid>>);

impl Rows for Names {
    fn take(&self, answer: Answer) {
        let gid = |n| Gid::parse(&answer.value(n, 0)?.to_string_lossy());
        self.0
            .borrow_mut()
            .extend((0..answer.rows()).filter_map(gid));
    }
}

const PREPARED: &str = "SELECT gid FROM pg_catalog.pg_prepared_xacts \
     WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database() \
     AND pg_catalog.starts_with(gid, $1)";

/// What a node says of a transaction that is gone.
const STATUS: &str = "SELECT pg_catalog.pg_xact_status($1::pg_catalog.xid8)";

/// A commit that waits for the same standbys as theirs have.
const BARRIER: &str = "SELECT pg_catalog.pg_logical_emit_message(true, 'txn', '')";

/// The lines of the node's timeline history, if the mapping's user may read it.
const HISTORY: &str = "SELECT CASE WHEN pg_catalog.has_function_privilege(\
     'pg_catalog.pg_read_file(text,boolean)', 'execute') THEN \
     pg_catalog.pg_read_file('pg_wal/' OPERATOR(pg_catalog.||) $1, true) END";

/// Tells sessions who we are. Before the first time: what is decided is unapplied until it was
/// looked at.
pub fn announce(database: u32, identity: &Identity) {
    let known = memory().with_geo(|board| board.known(database));
    if known.is_some_and(|known| known.phase == Phase::Ready) {
        return;
    }
    // Counted first: what a session leaves from then on it has told of, and must not be forgotten.
    let changes = memory().with_geo(|board| board.changes());
    let active = active(database);
    let decided = in_transaction(rows::decided);
    let is_over = |one: &&Decided| !is_active(one, identity, &active);
    tell_unapplied(database, decided.iter().filter(is_over), changes);
    memory().with_geo(|board| {
        let (coordinator, incarnation) = (identity.coordinator, identity.incarnation);
        board.identified(database, coordinator, incarnation, Phase::Ready);
    });
}

/// The transactions that are not for a pass to end: sessions work on them, or have handed them
/// over, which they do before they close their slots.
fn active(database: u32) -> geo::Active {
    let active = geo::active(memory().geo_slots);
    let handed = memory().with_geo(|board| board.handed(database));
    active.and(handed.into_iter().map(|one| one.sequence))
}

/// Whether a session works on the transaction. Numbers begin again with each incarnation.
fn is_active(one: &Decided, identity: &Identity, active: &geo::Active) -> bool {
    one.gid.incarnation == identity.incarnation && active.contains(one.gid.sequence)
}

fn tell_unapplied<'a>(database: u32, decided: impl Iterator<Item = &'a Decided>, changes: u64) {
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for one in decided.filter(|one| !one.is_lost) {
        *counts.entry(one.server.into()).or_default() += 1;
    }
    let counts: Vec<(u32, u64)> = counts.into_iter().collect();
    memory().with_geo(|board| board.set_unapplied(database, &counts, changes));
}

/// Whether the rows that were read are durable wherever a failover may look for them: visible ones
/// may be neither on disk nor at a standby yet.
fn is_confirmed(links: &mut [Link]) -> bool {
    const PATIENCE_US: u64 = 1_000_000;
    // SAFETY: a record of WAL of our own, after all that has been read; it is made durable.
    let lsn = unsafe {
        let lsn = raw::LogLogicalMessage(c"txn".as_ptr(), c"".as_ptr(), 0, false);
        pg_sys::XLogFlush(lsn);
        lsn
    };
    let until = process::now() + PATIENCE_US;
    while !decision::is_confirmed(lsn) {
        if process::now() >= until {
            return false;
        }
        meanwhile::go_on(links);
        let sockets: Vec<_> = links.iter().filter_map(Link::busy_socket).collect();
        super::sleep(&sockets, process::now() + 10_000);
    }
    true
}

/// A node of a pass: a server with all its mappings.
struct Place {
    server: pg_sys::Oid,
    mappings: Vec<u32>,
}

/// Keeps the links to what the catalogs say, and lets new ones come.
fn renew(links: &mut Vec<Link>, uuid: u128) -> Vec<Place> {
    let nodes = in_transaction(rows::nodes);
    let is_same = |one: &Rc<Server>, other: &Server| {
        one.mapping == other.mapping && one.parameters == other.parameters
    };
    links.retain(|link| {
        link.coordinator == uuid && nodes.iter().any(|node| is_same(node, &link.server))
    });
    let mut places: Vec<Place> = Vec::new();
    for node in nodes {
        let mapping = node.mapping.into();
        match places.iter_mut().find(|place| place.server == node.server) {
            Some(place) => place.mappings.push(mapping),
            None => places.push(Place {
                server: node.server,
                mappings: vec![mapping],
            }),
        }
        if !links.iter().any(|link| is_same(&node, &link.server)) {
            links.push(Link::new(node, uuid));
        }
    }
    places
}

/// What was found at one node.
struct Look {
    server: pg_sys::Oid,
    /// The link that lists.
    link: usize,
}

/// The names at the nodes of these links, in their order. None: it has not told.
fn list(links: &mut [Link], places: &[usize], uuid: u128) -> Vec<Option<Vec<Gid>>> {
    let prefix = Gid::prefix(uuid);
    let sent: Vec<Option<(Rc<Names>, Rc<Exchange>)>> = places
        .iter()
        .map(|&link| {
            let names = Rc::new(Names::default());
            let request = Request::of(Command::new(Role::Statement, PREPARED).with(&prefix));
            let exchange = link::send(&mut links[link], &request, Some(names.clone()))?;
            Some((names, exchange))
        })
        .collect();
    meanwhile::collect(links);
    let read = |sent: Option<(Rc<Names>, Rc<Exchange>)>| {
        let (names, exchange) = sent?;
        (exchange.is_done() && !exchange.has_failed()).then(|| names.0.take())
    };
    sent.into_iter().map(read).collect()
}

/// Looks at all nodes, and does what is to be done. Whether all have been reached.
pub fn run(
    database: u32,
    identity: &Identity,
    links: &mut Vec<Link>,
    acknowledged: &mut BTreeSet<Gid>,
) -> bool {
    let changes = memory().with_geo(|board| board.changes());
    let places = renew(links, identity.coordinator);
    open_some(links, &places);
    let known: BTreeSet<u32> = places
        .iter()
        .flat_map(|place| place.mappings.clone())
        .collect();
    let (listing, mut is_complete) = up(links, places);
    let at: Vec<usize> = listing.iter().map(|one| one.0).collect();
    let first = list(links, &at, identity.coordinator);
    stop::at(stop::Point::GeoListed);
    let active = active(database);
    let decided = in_transaction(rows::decided);
    acknowledged.extend(meanwhile::take_applied());
    take_acknowledged(database, identity, &decided, acknowledged);
    // A node that has lost a transaction may show it again.
    let is_back = |one: &Decided| first.iter().flatten().flatten().any(|gid| *gid == one.gid);
    let is_waiting =
        |one: &Decided| !is_active(one, identity, &active) && (!one.is_lost || is_back(one));
    let confirmed = decided.iter().any(is_waiting) && is_confirmed(links);
    let rows: Vec<geo::Decision> = decided
        .iter()
        .map(|one| one.for_pass(acknowledged.contains(&one.gid), confirmed))
        .collect();
    let second = list(links, &at, identity.coordinator);
    let mut erased = match known.is_empty() {
        true => of_nobody(&decided, &active, acknowledged),
        false => Vec::new(),
    };
    for (((link, place), first), second) in listing.into_iter().zip(first).zip(second) {
        let (Some(first), Some(second)) = (first, second) else {
            is_complete = false;
            continue;
        };
        let names = first.iter().chain(decided.iter().map(|row| &row.gid));
        let scope = scope(identity, &place, names, &known);
        let look = Look {
            server: place.server,
            link,
        };
        let actions = Pass::of(scope)
            .prepared(first)
            .active(active.clone())
            .decided(rows.clone())
            .prepared_again(second);
        erased.extend(act(links, &look, &actions, &decided));
    }
    let left = Left {
        decided: &decided,
        erased: &erased,
        active: &active,
        changes,
    };
    finish(database, identity, &left, acknowledged);
    is_complete
}

/// The places whose nodes are up, each with the link that lists, and whether those are all.
fn up(links: &mut [Link], places: Vec<Place>) -> (Vec<(usize, Place)>, bool) {
    let mut is_complete = true;
    let mut listing = Vec::new();
    for place in places {
        let up = (0..links.len())
            .find(|&n| links[n].server.server == place.server && links[n].node().is_some());
        match up {
            Some(link) => listing.push((link, place)),
            None => is_complete = false,
        }
    }
    (listing, is_complete)
}

/// What the pass at that place is for.
fn scope<'a>(
    identity: &Identity,
    place: &Place,
    names: impl Iterator<Item = &'a Gid>,
    known: &BTreeSet<u32>,
) -> Scope {
    // A mapping that was dropped meanwhile belongs to none: whoever finds it ends it. All
    // decisions are looked at, so it does not matter which server that is.
    let orphans = names
        .map(|gid| gid.mapping)
        .filter(|mapping| !known.contains(mapping));
    Scope {
        coordinator: identity.coordinator,
        incarnation: identity.incarnation,
        mappings: place.mappings.iter().copied().chain(orphans).collect(),
    }
}

/// All servers and mappings have been dropped, and nobody can be asked. What all nodes have
/// acknowledged may go.
fn of_nobody(decided: &[Decided], active: &geo::Active, acknowledged: &BTreeSet<Gid>) -> Vec<Gid> {
    let names = decided.iter().map(|row| row.gid);
    names
        .filter(|gid| !active.contains(gid.sequence) && acknowledged.contains(gid))
        .collect()
}

/// Opens one link for each server that has none: the first, but for those that have failed.
fn open_some(links: &mut [Link], places: &[Place]) {
    for place in places {
        let of_server = |link: &&mut Link| link.server.server == place.server;
        let mut of_server: Vec<&mut Link> = links.iter_mut().filter(of_server).collect();
        let is_there = |link: &mut &mut Link| link.is_coming() || link.node().is_some();
        if !of_server.iter_mut().any(is_there) {
            of_server.sort_by_key(|link| link.has_failed());
            if let Some(first) = of_server.into_iter().next() {
                first.go_on();
            }
        }
    }
}

/// The transactions of which the sessions have said that all nodes have acknowledged them.
fn take_acknowledged(
    database: u32,
    identity: &Identity,
    decided: &[Decided],
    acknowledged: &mut BTreeSet<Gid>,
) {
    let new: BTreeSet<u64> = memory()
        .with_geo(|board| board.take_acknowledged(database))
        .into_iter()
        .collect();
    let is_new = |gid: &Gid| gid.incarnation == identity.incarnation && new.contains(&gid.sequence);
    acknowledged.extend(decided.iter().map(|one| one.gid).filter(is_new));
}

/// Does what a pass says about a node. The rows that may go.
fn act(links: &mut [Link], look: &Look, actions: &[Action], decided: &[Decided]) -> Vec<Gid> {
    let before: Vec<Mark> = links.iter_mut().map(Link::mark).collect();
    let mut erased = Vec::new();
    let mut ending = Vec::new();
    let mut asked = Vec::new();
    for action in actions {
        match *action {
            Action::RollBack(gid) => {
                end(links, look, gid, "ROLLBACK");
            }
            Action::Commit(gid) => ending.extend(end(links, look, gid, "COMMIT")),
            Action::Erase(gid) => erased.push(gid),
            Action::AskStatus(gid) => {
                let is_it = |row: &&Decided| row.gid == gid && row.server == look.server;
                asked.extend(decided.iter().find(is_it));
            }
        }
    }
    meanwhile::collect(links);
    // A warning does not say to which of a link's commits it belongs.
    let is_other =
        |(link, before): (&mut Link, &Mark)| link.mark() != *before || link.node().is_none();
    let warned: Vec<bool> = links.iter_mut().zip(&before).map(is_other).collect();
    for (gid, link, exchange) in ending {
        let tag = exchange.tag();
        let answer = geo::Answer {
            tag: tag.as_deref(),
            standby_wait_cancelled: warned[link],
        };
        if geo::applied(&answer, true) {
            erased.push(gid);
        }
    }
    ask(links, look, &asked, &mut erased);
    erased
}

/// Sends COMMIT or ROLLBACK PREPARED, as the user who has prepared. One that is not connected is
/// let come: a later pass does it.
fn end(links: &mut [Link], look: &Look, gid: Gid, how: &str) -> Option<(Gid, usize, Rc<Exchange>)> {
    let own = links
        .iter()
        .position(|link| u32::from(link.server.mapping) == gid.mapping);
    let at = own.unwrap_or(look.link);
    if links[at].node().is_none() {
        links[at].go_on();
        return None;
    }
    let request = Request::of(Command::new(
        Role::Ending,
        &format!("{how} PREPARED '{gid}'"),
    ));
    let exchange = link::send(&mut links[at], &request, None)?;
    Some((gid, at, exchange))
}

/// So many transactions are asked about in one pass; a later one asks about the rest.
const MOST_ASKED: usize = 1000;

/// Asks the node about transactions that it does not show as prepared any more. Those whose rows
/// may go are added to `erased`.
fn ask(links: &mut [Link], look: &Look, rows: &[&Decided], erased: &mut Vec<Gid>) {
    let Some(node) = links[look.link].node() else {
        return;
    };
    let (timeline, system) = (node.facts.timeline, node.facts.system.clone());
    // Of another server that answers at the same address nothing can be learned.
    let is_its = |row: &&&Decided| row.system == system;
    let rows: Vec<&Decided> = rows
        .iter()
        .filter(is_its)
        .take(MOST_ASKED)
        .copied()
        .collect();
    if rows.is_empty() {
        return;
    }
    let file = format!("{timeline:08X}.history");
    let mut requests: Vec<Request> = rows
        .iter()
        .map(|row| Command::new(Role::Facts, STATUS).with(&row.transaction.to_string()))
        .map(Request::of)
        .collect();
    requests.push(Request::of(Command::new(Role::Facts, BARRIER)));
    requests.push(Request::of(Command::new(Role::Facts, HISTORY).with(&file)));
    let before = links[look.link].mark();
    let send = |request: &Request| link::send(&mut links[look.link], request, None);
    let sent: Option<Vec<Rc<Exchange>>> = requests.iter().map(send).collect();
    meanwhile::collect(links);
    let Some(sent) = sent.filter(|all| all.iter().all(|one| one.is_done())) else {
        return;
    };
    let is_as_before = links[look.link].mark() == before && links[look.link].node().is_some();
    let (statuses, others) = sent.split_at(rows.len());
    let is_confirmed = !others[0].has_failed() && is_as_before;
    let lines = others[1].facts().first().cloned().flatten();
    let history = History {
        timeline,
        switches: lines.map(|lines| switches(&lines)),
    };
    for (row, status) in rows.iter().zip(statuses) {
        // An error tells nothing: a later pass asks again.
        if status.has_failed() {
            continue;
        }
        let text = status.facts().first().cloned().flatten();
        let asked = Asked {
            status: status_of(text.as_deref()),
            confirmed: is_confirmed,
            prepared: row.prepared,
            history: history.clone(),
        };
        match geo::judge(&asked) {
            Judged::Erase => erased.push(row.gid),
            Judged::Wait => {}
            Judged::Lost => note_lost(&links[look.link].server.name, row.gid),
        }
    }
}

/// The node has lost what it had prepared: somebody has to be told.
fn note_lost(server: &str, gid: Gid) {
    log(&format!(
        "txn: server \"{server}\" has lost the committed transaction {gid}; see \
         txn.geo_transactions"
    ));
    in_transaction(|| rows::note_lost(&[gid]));
}

/// The lines of a history file: a timeline, and where it was left (timeline.c).
fn switches(lines: &str) -> Vec<(u32, u64)> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let timeline = words.next()?.parse().ok()?;
        let (high, low) = words.next()?.split_once('/')?;
        let part = |text| u64::from_str_radix(text, 16).ok();
        Some((timeline, (part(high)? << 32) | part(low)?))
    };
    lines.lines().filter_map(read).collect()
}

/// What a pass has found and done.
struct Left<'a> {
    decided: &'a [Decided],
    erased: &'a [Gid],
    active: &'a geo::Active,
    changes: u64,
}

/// Deletes the rows that may go, and tells sessions what is still to be applied.
fn finish(database: u32, identity: &Identity, left: &Left, acknowledged: &mut BTreeSet<Gid>) {
    let (decided, erased) = (left.decided, left.erased);
    if !erased.is_empty() {
        in_transaction(|| rows::erase(erased));
    }
    // Those that have begun or ended since are their sessions' to tell of.
    let now = active(database);
    let is_left = |one: &&Decided| {
        !erased.contains(&one.gid)
            && !acknowledged.contains(&one.gid)
            && !is_active(one, identity, &now)
            && !is_active(one, identity, left.active)
    };
    tell_unapplied(database, decided.iter().filter(is_left), left.changes);
    acknowledged.retain(|gid| !erased.contains(gid) && decided.iter().any(|one| one.gid == *gid));
}
