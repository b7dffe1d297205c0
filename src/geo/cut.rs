//! A snapshot of all nodes (`txn.geo_snapshot = global`). The first statement of a transaction of
//! REPEATABLE READ takes it: at the nodes and here, while no commit is inside the gate.
//!
//! A node that cannot be reached then is left out. To use it later is an error.

use super::coordinator;
use super::failure::{Failure, NOT_IN_STATE, NOT_SUPPORTED, Outcome, guarded};
use super::first;
use super::gate::{self, Reader};
use super::named::Named;
use super::node::{Node, Use};
use super::nodes::{self, NodeId};
use super::planner;
use super::schedule::Sent;
use super::server::Server;
use super::settle;
use super::socket::wait_for_any;
use crate::pg::local::Local;
use crate::pg::of_transaction;
use crate::pg::{inherits, nesting, process, rights, snapshot};
use crate::range_occ::{ordered, session};
use pgrx::pg_sys::{self, Oid, QueryDesc};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// SQLSTATE 40001: another attempt may succeed.
const TRY_AGAIN: [u8; 5] = *b"40001";

/// For how long a node that could not be reached is left out at once, if the statement does not
/// name it: in microseconds.
const AWAY_US: u64 = 30_000_000;

/// What has become of the transaction's snapshot.
enum Cut {
    /// It was taken, but not with these mappings, and why.
    Taken(Vec<(Oid, Failure)>),
    Missed(Failure),
}

/// A node that could not be reached lately.
struct Away {
    mapping: Oid,
    until: u64,
    failure: Failure,
}

/// None: nothing of the transaction has asked for a snapshot yet.
static CUT: Local<RefCell<Option<Cut>>> = Local::new(RefCell::new(None));

static AWAY: Local<RefCell<Vec<Away>>> = Local::new(RefCell::new(Vec::new()));

/// Says what `nodes` asks before a node is used. Once, from `_PG_init`.
pub fn init() {
    nodes::init(check);
}

/// A statement of the transaction has started, or a command that may read has run. The planner's
/// statements only make estimates.
static STARTED: Local<Cell<bool>> = Local::new(Cell::new(false));

/// The transaction has ended.
#[inline]
pub fn forget_start() {
    STARTED.set(false);
}

/// A transaction has ended that may have asked for a global snapshot.
pub fn forget() {
    snapshot::unpin();
    if let Ok(mut cut) = CUT.try_borrow_mut() {
        *cut = None;
    }
}

/// Whether the transaction may use the node, where it has a transaction already if that `is_open`.
fn check(server: &Server, is_open: bool) -> Outcome<()> {
    match &*CUT.borrow() {
        // For estimates: what STABLE functions read is not part of the answer.
        None if nesting::is_planning() && !STARTED.get() => Ok(()),
        None => Err(late()),
        Some(Cut::Missed(failure)) => Err(failure.clone()),
        Some(Cut::Taken(_)) if is_open => Ok(()),
        Some(Cut::Taken(left_out)) => {
            let why = left_out.iter().find(|one| one.0 == server.mapping);
            Err(why.map_or_else(|| not_part(server), |one| one.1.clone()))
        }
    }
}

fn missed(detail: &str) -> Failure {
    Failure::new(NOT_IN_STATE, "the transaction has no global snapshot").detail(detail)
}

fn late() -> Failure {
    missed("It had another snapshot before, or its first statement cannot take one.").hint(
        "Set txn.geo_snapshot before the transaction's first statement, and let that be a query \
         or a CALL of the client's.",
    )
}

fn not_part(server: &Server) -> Failure {
    Failure::new(
        NOT_IN_STATE,
        format!(
            "server \"{}\" is not part of the global snapshot",
            server.name
        ),
    )
    .detail("It is reached by another user mapping than those of the first statement, or is new.")
    .hint("Use it in the first statement of the transaction.")
}

/// Whether the transaction has to take a snapshot of all nodes, and has not tried to.
fn is_due() -> bool {
    nodes::read_globally()
        // SAFETY: a global of this backend, which has one thread.
        && unsafe { pg_sys::ParallelWorkerNumber } < 0
        && CUT.borrow().is_none()
}

/// A statement is about to start.
///
/// # Safety
/// `query` is what the executor's hook is given.
#[inline]
pub unsafe fn before_start(query: *mut QueryDesc) {
    if nesting::is_planning() {
        return;
    }
    let is_first = !STARTED.replace(true);
    if !is_due() {
        return;
    }
    // SAFETY: the executor's query is about to be started, so it has a plan and a snapshot.
    guarded(|| unsafe {
        let is_fit = is_first && rights::unwinding(|| snapshot::is_retakeable(query));
        let is_plan_whole = {
            let plan = (*query).plannedstmt;
            let heirs = || inherits::heirs(plan, (*query).snapshot);
            let before = is_fit.then(heirs);
            conclude(is_fit, &Named::by(plan), || ordered::retake(query));
            before.is_none_or(|before| before == heirs())
        };
        if !is_plan_whole {
            divided_anew().raise();
        }
    });
}

/// The plan is older than the snapshot, and does not read all partitions that this shows.
fn divided_anew() -> Failure {
    Failure::new(TRY_AGAIN, "could not take a global snapshot")
        .detail("A partition or child table was attached or detached concurrently.")
        .hint("The transaction might succeed if retried.")
}

/// A utility command that may read is about to run.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn before_utility(node: *const pg_sys::Node) {
    // SAFETY: the caller's node is that of a utility statement.
    if unsafe { first::only_starts_others(node) } {
        return;
    }
    let is_first = !STARTED.replace(true);
    // SAFETY: the caller's node is that of a utility statement.
    if !is_due() || !unsafe { first::may_take(node) } {
        return;
    }
    // SAFETY: the snapshot is retaken only if `is_fit`; nothing has been read with it then.
    guarded(|| unsafe {
        let is_fit = is_first && rights::unwinding(snapshot::is_utility_retakeable);
        let named = Named::by(std::ptr::null());
        conclude(is_fit, &named, || ordered::retake_for_utility());
    });
    // Its plans are made after this, of tables that may be locked already.
    snapshot::definitions_now();
}

/// Before a statement is planned that may take the snapshot: tables that were locked before may
/// have got partitions since.
pub fn before_planning() {
    if is_due() && !nesting::is_planning() {
        snapshot::definitions_now();
    }
}

/// Whether the command only plans, before the snapshot is taken.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn only_plans(node: *const pg_sys::Node) -> bool {
    // SAFETY: the caller's node is that of a utility statement.
    is_due() && unsafe { first::only_plans(node) }
}

/// A utility command that reads nothing has been sent. A snapshot that comes from another session
/// stays: the transaction has no global one.
///
/// # Safety
/// `node` is the node of a utility statement, and valid.
pub unsafe fn note_import(node: *const pg_sys::Node) {
    // SAFETY: the caller's node is that of a utility statement.
    if unsafe { first::imports_snapshot(node) } {
        STARTED.set(true);
    }
}

/// Takes the snapshot if it can be taken, and notes what has become of it.
fn conclude(is_fit: bool, named: &Named, retake: impl FnOnce()) {
    // So it stays if a cancel is caught in a savepoint.
    of_transaction::note();
    CUT.replace(Some(Cut::Missed(missed("Taking it was interrupted."))));
    let cut = match obstacle(is_fit) {
        Some(failure) => Cut::Missed(failure),
        None => take(named, retake),
    };
    CUT.replace(Some(cut));
}

fn obstacle(is_fit: bool) -> Option<Failure> {
    let refused = |message: &str| Some(Failure::new(NOT_SUPPORTED, message));
    // SAFETY: reads a flag of shared memory, which is valid in every backend.
    if unsafe { pg_sys::RecoveryInProgress() } {
        refused("cannot take a global snapshot during recovery")
    } else if session::is_validated() {
        refused("cannot take a global snapshot for a validated transaction")
    } else {
        (!is_fit || nodes::are_used() && !nodes::are_only_planned()).then(late)
    }
}

/// Ends what the planner's reads have begun at the nodes: nothing of it is under way any more.
fn end_planned() {
    if !nodes::are_only_planned() {
        return;
    }
    let open = nodes::all(Node::is_in_transaction);
    let until = settle::stop(&open, 0);
    for &id in &open {
        settle::send_ending(id, "ROLLBACK");
    }
    settle::settle_or_give_up(&open, until);
    for &id in &open {
        nodes::with(id, Node::end_transaction);
    }
}

/// A node that is to be read.
struct Member {
    id: NodeId,
    server: Rc<Server>,
    /// It is waited for even if it could not be reached lately.
    is_named: bool,
}

/// Takes the snapshot, at the nodes and here. Raises on a cancel.
fn take(named: &Named, retake: impl FnOnce()) -> Cut {
    end_planned();
    let nodes = named.nodes();
    if nodes.is_empty() {
        return Cut::Taken(Vec::new());
    }
    if let Err(failure) = planner::require_libpq().and_then(|()| coordinator::ready().map(drop)) {
        return Cut::Missed(failure);
    }
    let until = coordinator::apply_limit();
    let mut left_out = Vec::new();
    let mut members = Vec::new();
    for server in nodes {
        let is_named = named.has(server.server);
        match reach(&server, is_named, at_least(until)) {
            Ok(id) => members.push(Member {
                id,
                server,
                is_named,
            }),
            Err(failure) => left_out.push((server.mapping, failure)),
        }
    }
    match enter(&mut members, &mut left_out, until) {
        Ok(Some(reader)) => open(&members, reader, retake, &mut left_out),
        Ok(None) => {}
        Err(failure) => return Cut::Missed(failure),
    }
    Cut::Taken(left_out)
}

/// The connection to a node. One that could not be reached lately is not tried, unless it is named.
fn reach(server: &Rc<Server>, is_named: bool, until: u64) -> Outcome<NodeId> {
    match lately(server.mapping) {
        Some(failure) if !is_named => Err(failure),
        _ => {
            nodes::open(server, Use::Work, until).inspect_err(|failure| note_away(server, failure))
        }
    }
}

/// Why the node could not be reached lately.
fn lately(mapping: Oid) -> Option<Failure> {
    let now = process::now();
    let mut away = AWAY.borrow_mut();
    away.retain(|one| one.until > now);
    let found = away.iter().find(|one| one.mapping == mapping);
    found.map(|one| one.failure.clone())
}

fn note_away(server: &Server, failure: &Failure) {
    let mut away = AWAY.borrow_mut();
    away.retain(|one| one.mapping != server.mapping);
    away.push(Away {
        mapping: server.mapping,
        until: process::now() + AWAY_US,
        failure: failure.clone(),
    });
}

/// Comes to the gate, with all that is decided applied at the nodes. Those at which it is not in
/// time are left out. None: no node is left.
fn enter(
    members: &mut Vec<Member>,
    left_out: &mut Vec<(Oid, Failure)>,
    until: u64,
) -> Outcome<Option<Reader>> {
    let mut limit = at_least(until);
    let mut waited = false;
    while !members.is_empty() {
        if std::mem::replace(&mut waited, true) && process::now() >= limit {
            return Err(not_in_time());
        }
        let servers = members.iter().map(|one| one.server.server);
        let Some(reader) = gate::enter_to_read(servers, limit) else {
            return Err(not_in_time());
        };
        wait_for_handed(members);
        // Asked inside: whoever leaves something unapplied says so before it leaves the gate.
        let is_behind = |one: &Member| {
            let server = one.server.server;
            coordinator::is_left(server) || coordinator::is_handed(server)
        };
        let Some(at) = members.iter().position(is_behind) else {
            return Ok(Some(reader));
        };
        drop(reader);
        let member = members.swap_remove(at);
        match wait_until_applied(&member, at_least(limit)) {
            Ok(()) => members.push(member),
            Err(failure) => {
                note_away(&member.server, &failure);
                left_out.push((member.server.mapping, failure));
                waited = false;
                limit = at_least(until);
            }
        }
    }
    Ok(None)
}

/// Inside the gate: waits for commits that the resolver is about to apply. No others are handed
/// over meanwhile. Raises on a cancel.
fn wait_for_handed(members: &[Member]) {
    let until = process::now() + gate::longest_hold();
    let any = |is_so: fn(Oid) -> bool| members.iter().any(|one| is_so(one.server.server));
    while !any(coordinator::is_left) && any(coordinator::is_handed) && process::now() < until {
        coordinator::nap();
    }
}

/// Until when the next one is waited for. Those before may have taken all of the time, which is not
/// its fault.
fn at_least(until: u64) -> u64 {
    until.max(coordinator::apply_limit().min(process::now() + gate::longest_hold()))
}

fn not_in_time() -> Failure {
    Failure::new(TRY_AGAIN, "could not take a global snapshot")
        .detail("Commits at the servers have not ended in time.")
}

fn wait_until_applied(member: &Member, until: u64) -> Outcome<()> {
    match lately(member.server.mapping) {
        Some(failure) if !member.is_named => Err(failure),
        _ => coordinator::wait_until_applied(member.server.server, &member.server.name, until),
    }
}

/// Nodes that have been asked, and are given up when this is dropped: a cancel may be caught by a
/// savepoint, and the transaction goes on without them.
struct Asked<'a>(&'a [Member]);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        for member in self.0 {
            leave_out(member);
        }
    }
}

fn leave_out(member: &Member) {
    nodes::with(member.id, |node| {
        node.give_up();
        node.end_transaction();
    });
}

/// Inside the gate: takes the snapshots. Nodes that do not answer in time are left out.
fn open(
    members: &[Member],
    reader: Reader,
    retake: impl FnOnce(),
    left_out: &mut Vec<(Oid, Failure)>,
) {
    let until = process::now() + gate::longest_hold();
    let asked = Asked(members);
    let send = |one: &Member| (one.id, nodes::send(one.id, "SELECT 1", Vec::new(), None));
    let sent: Vec<Sent> = members.iter().map(send).collect();
    rights::unwinding(retake);
    snapshot::pin();
    wait_for_all(&sent, until);
    std::mem::forget(asked);
    drop(reader);
    for (member, (_, exchange)) in members.iter().zip(sent) {
        let outcome = match exchange.is_done() {
            true => exchange.outcome(),
            false => Err(no_answer(&member.server)),
        };
        let mapping = member.server.mapping;
        let Err(failure) = outcome else {
            AWAY.borrow_mut().retain(|one| one.mapping != mapping);
            continue;
        };
        leave_out(member);
        note_away(&member.server, &failure);
        left_out.push((mapping, failure));
    }
}

fn no_answer(server: &Server) -> Failure {
    Failure::new(
        TRY_AGAIN,
        format!(
            "server \"{}\" has not taken part in the global snapshot",
            server.name
        ),
    )
    .detail("It did not answer within txn.geo_snapshot_timeout, and commits had to wait.")
}

/// Waits until all have answered, or the time is over. Raises on a cancel.
fn wait_for_all(sent: &[Sent], until: u64) {
    loop {
        let mut sockets = Vec::new();
        for (id, exchange) in sent {
            nodes::with(*id, Node::consume);
            while matches!(nodes::step(*id, false), Ok(true)) {}
            if !exchange.is_done() {
                sockets.push(nodes::with(*id, |node| {
                    let session = node.session();
                    (session.socket(), session.flush() == Some(false))
                }));
            }
        }
        let left = until.saturating_sub(process::now());
        if sockets.is_empty() || left == 0 {
            return;
        }
        wait_for_any(&sockets, left.div_ceil(1000));
    }
}
