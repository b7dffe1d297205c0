//! The connections of this session, and a statement's way to a node and back.

use super::connect;
use super::coordinator;
use super::exchange::{Command, Exchange, Request, Role, Rows};
use super::failure::{Failure, NOT_IN_STATE, NOT_SUPPORTED, Outcome};
use super::gate;
use super::node::{Level, Next, Node, Use};
use super::planner;
use super::running::{self, Waiting};
use super::server::{self, Server};
use super::socket::{For, wait_for_any};
use crate::pg::local::Local;
use crate::pg::of_transaction;
use crate::pg::{nesting, process, release, xact};
use crate::shared::guc::{self, GeoSnapshot};
use geo::RecordId;
use pgrx::pg_sys::{self, Oid};
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::rc::Rc;
use std::sync::OnceLock;

/// A place in the session's list of connections.
pub type NodeId = usize;

static NODES: Local<RefCell<Vec<Option<Node>>>> = Local::new(RefCell::new(Vec::new()));

/// Whether this transaction has used a node.
static USED: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Whether only the planner has, to make estimates.
static ONLY_PLANNED: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Changes of servers and mappings that this session has heard of.
static CHANGES: Local<Cell<u64>> = Local::new(Cell::new(0));

/// Whether the callbacks are registered.
static LISTENS: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Says whether the transaction may use a node, at which it has a transaction already or not.
pub type Check = fn(&Server, bool) -> Outcome<()>;

/// Asked at REPEATABLE READ with `txn.geo_snapshot = global`.
static CHECK: OnceLock<Check> = OnceLock::new();

/// Says what is asked. Once, from `_PG_init`.
pub fn init(check: Check) {
    let _ = CHECK.set(check);
}

/// Whether the transaction reads all nodes with one snapshot.
#[inline]
pub fn read_globally() -> bool {
    !xact::is_read_committed() && guc::GEO_SNAPSHOT.get() == GeoSnapshot::Global
}

/// Works on a connection. `body` neither waits nor raises.
pub fn with<R>(id: NodeId, body: impl FnOnce(&mut Node) -> R) -> R {
    let mut nodes = NODES.borrow_mut();
    body(
        nodes[id]
            .as_mut()
            .expect("a connection in use stays in the list"),
    )
}

/// Works on every connection; not at all if the process is ending in the middle of such work.
pub fn for_each(mut body: impl FnMut(NodeId, &mut Node)) {
    if let Ok(mut nodes) = NODES.try_borrow_mut() {
        for (id, node) in nodes.iter_mut().enumerate() {
            if let Some(node) = node {
                body(id, node);
            }
        }
    }
}

/// The connections for which that holds.
pub fn all(mut is_one: impl FnMut(&Node) -> bool) -> Vec<NodeId> {
    let mut found = Vec::new();
    for_each(|id, node| {
        if is_one(node) {
            found.push(id);
        }
    });
    found
}

/// What the writes that wait for that server are about.
pub fn deferred_records(server: Oid) -> Vec<RecordId> {
    let mut found = Vec::new();
    for_each(|_, node| {
        if node.server.server == server {
            found.extend(node.deferred_records());
        }
    });
    found
}

/// Whether the transaction has used a node.
pub fn are_used() -> bool {
    USED.get()
}

/// Whether only the planner has used nodes, and has written nothing there.
pub fn are_only_planned() -> bool {
    are_used() && ONLY_PLANNED.get() && !are_written()
}

/// Whether the transaction has written at a node.
pub fn are_written() -> bool {
    are_used() && !all(Node::has_written).is_empty()
}

unsafe extern "C-unwind" fn on_change(_arg: pg_sys::Datum, _cache: i32, hash: u32) {
    CHANGES.set(CHANGES.get() + 1);
    // 0: anything may have changed.
    for_each(|_, node| node.is_stale |= hash == 0 || node.server.hashes.contains(&hash));
}

fn listen() {
    if LISTENS.replace(true) {
        return;
    }
    release::ask();
    coordinator::close_at_exit();
    gate::leave_at_exit();
    for cache in [
        pg_sys::SysCacheIdentifier::FOREIGNSERVEROID,
        pg_sys::SysCacheIdentifier::USERMAPPINGOID,
    ] {
        // SAFETY: inval.c; the callback raises nothing.
        unsafe { pg_sys::CacheRegisterSyscacheCallback(cache as i32, Some(on_change), 0.into()) };
    }
}

/// The transaction has ended: closes connections that are not to be used again.
#[inline]
pub fn transaction_ended() {
    running::ended();
    if USED.take() {
        drop_useless();
    }
}

/// Closes the connections that are of no use to another transaction.
fn drop_useless() {
    if let Ok(mut nodes) = NODES.try_borrow_mut() {
        for place in nodes.iter_mut() {
            let stays = |node: &Node| node.is_usable() && !node.is_stale && node.server.is_kept;
            if place.as_ref().is_some_and(|node| !stays(node)) {
                *place = None;
            }
        }
    }
}

/// The connection for that user and use; made if there is none. Raises on a cancel.
pub fn find(server: Oid, user: Oid, for_use: Use) -> Outcome<NodeId> {
    planner::require_libpq()?;
    reach(&server::find(server, user), for_use)
}

/// The connection to a server for that use; made if there is none. Raises on a cancel.
pub fn reach(server: &Rc<Server>, for_use: Use) -> Outcome<NodeId> {
    if read_globally()
        && let Some(check) = CHECK.get()
    {
        let is_open = |node: &Node| {
            node.server.mapping == server.mapping
                && node.for_use == for_use
                && node.is_in_transaction()
        };
        check(server, !all(is_open).is_empty())?;
    }
    open(server, for_use, coordinator::apply_limit())
}

/// `reach`, whatever snapshot the transaction has. Waits until then for what is decided.
pub fn open(server: &Rc<Server>, for_use: Use, until: u64) -> Outcome<NodeId> {
    listen();
    of_transaction::note();
    let is_unused = !USED.replace(true);
    ONLY_PLANNED.set(nesting::is_planning() && (is_unused || ONLY_PLANNED.get()));
    if let Some(id) = look_up(server, for_use) {
        if with(id, |node| node.prepared.is_some()) {
            return Err(Failure::new(
                NOT_IN_STATE,
                format!(
                    "the transaction is already prepared at server \"{}\"",
                    server.name
                ),
            )
            .detail("The statement before was said to be the last one of the transaction.")
            .hint("See the settings txn.geo_last and txn.geo_prepare."));
        }
        if !with(id, |node| node.is_open()) {
            before_first_use(server, until)?;
        }
        return Ok(id);
    }
    let is_other = |node: &Node| {
        for_use == Use::Work
            && node.for_use == Use::Work
            && node.is_in_transaction()
            && node.server.mapping == server.mapping
    };
    if !all(is_other).is_empty() {
        return Err(Failure::new(
            NOT_SUPPORTED,
            format!(
                "the transaction uses server \"{}\" as another user already",
                server.name
            ),
        )
        .detail("One of them is a superuser, and the user mapping is the same."));
    }
    before_first_use(server, until)?;
    Ok(insert(make(server, for_use)?))
}

fn make(server: &Rc<Server>, for_use: Use) -> Outcome<Node> {
    let changes = CHANGES.get();
    let mut node = connect::connect(server, for_use)?;
    node.is_stale = changes != CHANGES.get();
    Ok(node)
}

/// Before the transaction sends anything to the server.
fn before_first_use(server: &Server, until: u64) -> Outcome<()> {
    coordinator::note_used(server.server);
    coordinator::wait_until_applied(server.server, &server.name, until)
}

fn insert(node: Node) -> NodeId {
    let mut nodes = NODES.borrow_mut();
    let free = nodes.iter().position(Option::is_none);
    let id = free.unwrap_or_else(|| {
        nodes.push(None);
        nodes.len() - 1
    });
    nodes[id] = Some(node);
    id
}

/// A connection that can be used. One that is not in a transaction is closed if it is out of date
/// or lost.
fn look_up(server: &Server, for_use: Use) -> Option<NodeId> {
    // A connection for which no password was asked is not one for a user who needs it.
    let is_it = |node: &Node| {
        node.server.mapping == server.mapping
            && node.server.wants_password == server.wants_password
            && node.for_use == for_use
    };
    let id = *all(is_it).first()?;
    let is_over = with(id, |node| {
        let is_idle = !node.is_in_transaction();
        if is_idle {
            node.catch_up();
        }
        is_idle && (node.is_stale || !node.is_usable())
    });
    if is_over {
        let old = NODES.borrow_mut()[id].take();
        drop(old);
        return None;
    }
    Some(id)
}

/// The level of the transaction at a node for that use.
fn level(for_use: Use) -> Level {
    // SAFETY: plain reads.
    let (isolation, is_read_only) = unsafe { (pg_sys::XactIsoLevel, pg_sys::XactReadOnly) };
    if for_use != Use::Work {
        return Level {
            isolation: "REPEATABLE READ",
            is_read_only: true,
        };
    }
    Level {
        isolation: match isolation as u32 {
            pg_sys::XACT_SERIALIZABLE => "SERIALIZABLE",
            pg_sys::XACT_REPEATABLE_READ => "REPEATABLE READ",
            _ => "READ COMMITTED",
        },
        is_read_only,
    }
}

/// Sends a statement, in the transaction at the node, which is opened if there is none.
pub fn send(
    id: NodeId,
    text: &str,
    parameters: Vec<Option<CString>>,
    rows: Option<Rc<dyn Rows>>,
) -> Rc<Exchange> {
    send_with(id, text, parameters, rows, &[])
}

/// Sends a statement, and more commands behind it.
pub fn send_with(
    id: NodeId,
    text: &str,
    parameters: Vec<Option<CString>>,
    rows: Option<Rc<dyn Rows>>,
    behind: &[Command],
) -> Rc<Exchange> {
    let mut command = Command::new(Role::Statement, text);
    command.parameters = parameters;
    let name = running::name();
    with(id, |node| {
        let mut request = opening(node, &name);
        request.push(command);
        if behind.is_empty() && node.for_use == Use::Work && !node.has_written() {
            request.push(Command::new(
                Role::TransactionId,
                "SELECT pg_catalog.pg_current_xact_id_if_assigned()",
            ));
        }
        send_request(node, request, rows, behind)
    })
}

/// Only statements may be sent once more if the connection turns out to be dead.
fn send_request(
    node: &mut Node,
    mut request: Request,
    rows: Option<Rc<dyn Rows>>,
    behind: &[Command],
) -> Rc<Exchange> {
    if behind.is_empty() {
        return node.send_statement(request, rows);
    }
    request.commands.extend_from_slice(behind);
    node.send(&request, rows)
}

/// What goes before a statement: writes that were put off, BEGIN, savepoints.
fn opening(node: &mut Node, name: &str) -> Request {
    let nest_level = match node.for_use {
        Use::Work => xact::nest_level(),
        Use::Reads(_) => 1,
    };
    let level = level(node.for_use);
    node.opening(&level, nest_level, name, guc::GEO_LOCK_TIMEOUT.get())
}

/// Sends the writes that were put off, and more commands behind them.
pub fn send_deferred(id: NodeId, behind: &[Command]) -> Rc<Exchange> {
    let name = running::name();
    with(id, |node| {
        let request = opening(node, &name);
        send_request(node, request, None, behind)
    })
}

/// Takes the next answer on the connection, whose ever it is, waiting for it if told to. False:
/// nothing has come, or nothing is under way. Raises on a cancel, and what taking rows raises;
/// fails if the wait is part of a deadlock.
pub fn step(id: NodeId, waits: bool) -> Outcome<bool> {
    Ok(match with(id, Node::next) {
        Next::Answer(exchange, answer) => {
            exchange.take(answer);
            if exchange.is_done() {
                with(id, |node| node.note(&exchange));
            }
            true
        }
        Next::Again => true,
        Next::Nothing => false,
        Next::Wait if waits => {
            let (socket, what) = with(id, |node| (node.session().socket(), node.waits_for()));
            running::wait_for_answer(socket, what)?;
            with(id, Node::consume);
            true
        }
        Next::Wait => false,
    })
}

/// Waits until everything that belongs to the exchange has come. Raises on a cancel.
pub fn finish(id: NodeId, exchange: &Rc<Exchange>) -> Outcome<()> {
    loop {
        while !exchange.is_done() {
            step(id, true)?;
        }
        if !repeat(id)? {
            break;
        }
    }
    exchange.deliver();
    exchange.outcome()
}

/// A connection that was kept from an earlier transaction turns out to be dead: nothing has come
/// back for what this one has sent. That cannot commit, as it was not asked to; it is sent once
/// more, on a new connection. False: it is not so. Raises on a cancel.
fn repeat(id: NodeId) -> Outcome<bool> {
    let (sent, server, for_use) = with(id, |node| {
        (
            node.take_unanswered(),
            Rc::clone(&node.server),
            node.for_use,
        )
    });
    let Some(sent) = sent else { return Ok(false) };
    before_first_use(&server, coordinator::apply_limit())?;
    let mut node = make(&server, for_use)?;
    let (cluster, process) = with(id, |lost| (lost.facts.cluster(), lost.process()));
    running::lose(cluster, process);
    with(id, |lost| {
        node.go_on_for(lost, sent);
        *lost = node;
    });
    Ok(true)
}

/// Waits until then, in microseconds. Takes what comes on these connections meanwhile, and ends as
/// soon as one of the exchanges has failed. Raises on a cancel.
pub fn pause(until: u64, sent: &[(NodeId, Rc<Exchange>)]) -> Outcome<()> {
    loop {
        let sockets = take_what_has_come(sent)?;
        let left = until.saturating_sub(process::now());
        match left / 1000 {
            0 if left == 0 => return Ok(()),
            0 => std::thread::sleep(std::time::Duration::from_micros(left)),
            ms => drop(wait_for_any(&sockets, ms)),
        }
    }
}

/// Waits until all of them have been answered; ends as soon as one has failed. Raises on a cancel;
/// fails if the transaction has to give way to others in a deadlock.
pub fn finish_all(sent: &[(NodeId, Rc<Exchange>)]) -> Outcome<()> {
    let mut sockets = take_what_has_come(sent)?;
    let mut waiting = Waiting::begin();
    while !sockets.is_empty() {
        wait_for_any(&sockets, waiting.nap_ms());
        let left = take_what_has_come(sent)?;
        if left.len() < sockets.len() {
            waiting = Waiting::begin();
        } else {
            waiting.go_on()?;
        }
        sockets = left;
    }
    Ok(())
}

/// Takes what has come for these, without waiting. The sockets of those that are not done, for
/// `wait_for_any`. An error if one has failed.
fn take_what_has_come(sent: &[(NodeId, Rc<Exchange>)]) -> Outcome<Vec<(i32, bool)>> {
    let mut sockets = Vec::new();
    for (id, exchange) in sent {
        with(*id, Node::consume);
        while step(*id, false)? {}
        if exchange.has_failed() {
            finish(*id, exchange)?;
        }
        if !exchange.is_done() {
            sockets.push(with(*id, |node| {
                (node.session().socket(), node.waits_for() != For::Reading)
            }));
        }
    }
    sockets.sort_unstable();
    sockets.dedup_by_key(|(socket, _)| *socket);
    Ok(sockets)
}
