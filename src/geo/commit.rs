//! The end of a transaction at its nodes: two-phase commit with presumed abort.
//!
//! PRE_COMMIT: the nodes that have written prepare, and vote; decision rows are written. The local
//! commit record is the decision. After the locks are released, and the record is durable, the
//! nodes are told.

use super::coordinator::{self, Identity};
use super::decision;
use super::defer;
use super::exchange::{Command, Exchange, Role, Rows};
use super::failure::{Failure, NOT_SUPPORTED, Outcome, ROLLED_BACK, guarded, not_applied, raised};
use super::gate;
use super::node::{ID, Node, Use};
use super::nodes::{self, NodeId};
use super::others;
use super::running;
use super::schedule::{self, Part, Round};
use super::server;
use super::settle::{self, Heeds};
use super::single;
use super::vote::{self, Asked};
use crate::pg::local::Local;
use crate::pg::of_transaction::{self, OfTransaction};
use crate::pg::{process, xact};
use crate::shared::guc::{self, GeoAnswer, GeoPrepare};
use crate::shared::stop;
use geo::{Answer, Ending, Gid, HandOver, Wrote};
use pgrx::pg_sys::{EState, Oid};
use std::cell::RefCell;
use std::ffi::CString;
use std::rc::Rc;

/// The transaction that this session is voting on or applying.
struct Voting {
    identity: Identity,
    sequence: u64,
    asked: Vec<Asked>,
    is_decided: bool,
    /// The state of the statement with which nodes prepare; 0: they do at COMMIT.
    early: usize,
}

static VOTING: Local<RefCell<Option<Voting>>> = Local::new(RefCell::new(None));

/// The only node that has written, which commits in one phase.
static SINGLE: Local<OfTransaction<Option<NodeId>>> = Local::new(OfTransaction::new(None));

/// PRE_COMMIT: what was sent has been answered, all writers have voted, decision rows are written.
/// `may_still_fail`: something local has still to be validated. Raises if any node says no.
#[inline]
pub fn vote(may_still_fail: bool) {
    defer::close();
    if nodes::are_used() {
        guarded(|| raised(prepare_all(may_still_fail)));
    }
}

fn prepare_all(may_still_fail: bool) -> Outcome<()> {
    let all = nodes::all(Node::is_in_transaction);
    finish_all(&all)?;
    let wrote = |&id: &NodeId| match nodes::with(id, |node| node.has_written()) {
        true => Wrote::Something,
        false => Wrote::Nothing,
    };
    let participants: Vec<Wrote> = all.iter().map(wrote).collect();
    let local = geo::Local {
        has_xid: xact::own_xid() != 0,
        may_still_fail: may_still_fail || xact::is_serializable() || xact::may_fail_at_end(),
    };
    if participants.contains(&Wrote::Something) && others::are_written() {
        return Err(others::mixed());
    }
    match geo::ending(&participants, local) {
        Ending::Nothing if !is_voting() => {}
        Ending::OnePhase(index) if !is_voting() => {
            send_deferred()?;
            SINGLE.set(Some(all[index]));
        }
        _ => {
            if guc::GEO_PREPARE.get() == GeoPrepare::AtCommit {
                send_deferred()?;
            }
            two_phases()?;
        }
    }
    end_readers()?;
    // Those that have written: from now on somebody may see that.
    let open = nodes::all(Node::is_in_transaction);
    gate::enter_to_commit(
        open.iter()
            .map(|&id| nodes::with(id, |node| node.server.server)),
    );
    Ok(())
}

/// Waits for what nobody has waited for. A node that has lost its transaction ends ours.
fn finish_all(all: &[NodeId]) -> Outcome<()> {
    for &id in all {
        while nodes::step(id, true)? {}
        let lost = nodes::with(id, |node| {
            (!node.is_usable()).then(|| Failure::lost(&node.server.name, &node.session().message()))
        });
        if let Some(failure) = lost {
            return Err(failure);
        }
        if nodes::with(id, |node| node.has_broken_promise()) {
            return Err(
                Failure::new(ROLLED_BACK, "a deferred write has failed").detail(
                    "With txn.geo_defer the client is told of a write before the write is sent.",
                ),
            );
        }
    }
    Ok(())
}

/// Sends the writes that were put off, and waits for their answers.
fn send_deferred() -> Outcome<()> {
    let parts = parts(&nodes::all(Node::has_deferred));
    let send = |id| Ok(Some((id, nodes::send_deferred(id, &[]))));
    schedule::send_each(parts, true, send)?.finish()
}

/// What was put off, as the parts of a round.
fn parts(deferred: &[NodeId]) -> Vec<Part<NodeId>> {
    let part = |&id: &NodeId| {
        nodes::with(id, |node| {
            Part::new(node.server.server, node.deferred_records(), id)
        })
    };
    deferred.iter().map(part).collect()
}

/// Those that have written nothing commit at once. A serializable one may be refused.
fn end_readers() -> Outcome<()> {
    let is_reader = |node: &Node| {
        node.is_in_transaction() && node.prepared.is_none() && node.transaction().is_none()
    };
    let readers = nodes::all(is_reader);
    let sent: Vec<Rc<Exchange>> = readers
        .iter()
        .map(|&id| settle::send_ending(id, "COMMIT"))
        .collect();
    for (&id, exchange) in readers.iter().zip(&sent) {
        if xact::is_serializable() {
            nodes::finish(id, exchange)?;
        }
        nodes::with(id, Node::end_transaction);
    }
    Ok(())
}

/// All that have written are asked to prepare, if they were not before; and say yes.
fn two_phases() -> Outcome<()> {
    begin_voting(0)?;
    ask_others(&[])?.finish()?;
    let asked = VOTING
        .borrow()
        .as_ref()
        .map(|voting| voting.asked.clone())
        .unwrap_or_default();
    let sent: Vec<_> = asked
        .iter()
        .map(|one| (one.id, Rc::clone(&one.sent)))
        .collect();
    nodes::finish_all(&sent)?;
    let participants = asked.iter().map(vote::participant);
    let participants = participants.collect::<Outcome<Vec<_>>>()?;
    stop::at(stop::Point::GeoPrepared);
    decision::write(&participants)?;
    decision::be_durable();
    Ok(())
}

/// Whether the transaction has begun to vote.
pub fn is_voting() -> bool {
    VOTING.borrow().is_some()
}

/// From now on the transaction has a name, and the resolver leaves it alone.
fn begin_voting(early: usize) -> Outcome<()> {
    if is_voting() {
        return Ok(());
    }
    let identity = coordinator::ready()?;
    let sequence = running::number();
    coordinator::open(sequence);
    of_transaction::note();
    *VOTING.borrow_mut() = Some(Voting {
        identity,
        sequence,
        asked: Vec::new(),
        is_decided: false,
        early,
    });
    Ok(())
}

/// Asks the nodes that have written, but for these mappings, to prepare.
fn ask_others(but: &[Oid]) -> Outcome<Round> {
    let writes = |node: &Node| {
        node.for_use == Use::Work
            && node.has_written()
            && node.prepared.is_none()
            && !but.contains(&node.server.mapping)
    };
    let is_deferred = |id: &NodeId| nodes::with(*id, |node| node.has_deferred());
    let (deferred, others): (Vec<_>, Vec<_>) =
        nodes::all(writes).into_iter().partition(is_deferred);
    let ask = |id| {
        let gid = name(id)?;
        let sent = vote::ask(id, gid);
        note_asked(id, gid, &sent);
        Ok(Some((id, sent)))
    };
    // Those hold locks already.
    for id in others {
        ask(id)?;
    }
    schedule::send_each(parts(&deferred), true, ask)
}

fn note_asked(id: NodeId, gid: Gid, sent: &Rc<Exchange>) {
    if let Some(voting) = VOTING.borrow_mut().as_mut() {
        voting.asked.push(Asked {
            id,
            gid,
            sent: Rc::clone(sent),
        });
    }
}

/// The statement of that state is the last one, and writes at these servers, as these users: nodes
/// prepare with it, if the transaction has to be prepared at all.
pub fn begin_early(estate: *const EState, servers: &[(Oid, Oid)]) -> Outcome<()> {
    let mappings: Vec<Oid> = servers
        .iter()
        .map(|&(server, user)| server::find(server, user).mapping)
        .collect();
    let others = nodes::all(|node| {
        node.for_use == Use::Work && node.has_written() && !mappings.contains(&node.server.mapping)
    });
    let is_shared = xact::own_xid() != 0 || others.len() + mappings.len() > 1;
    if !is_shared || others::are_written() {
        return Ok(());
    }
    begin_voting(estate as usize)?;
    // The statement does not wait for their answers.
    ask_others(&mappings).map(drop)
}

/// Whether nodes prepare with the statement of that state.
pub fn is_early(estate: *const EState) -> bool {
    VOTING
        .borrow()
        .as_ref()
        .is_some_and(|voting| voting.early == estate as usize)
}

/// Sends a statement with which the node prepares.
pub fn send_last(
    id: NodeId,
    text: &str,
    parameters: Vec<Option<CString>>,
    rows: Option<Rc<dyn Rows>>,
) -> Outcome<Rc<Exchange>> {
    let gid = name(id)?;
    let prepare = vote::prepare(gid);
    let transaction = Command::new(Role::TransactionId, ID);
    let behind: Vec<Command> = [transaction].into_iter().chain(prepare).collect();
    nodes::with(id, |node| node.session().take_standby_warning());
    let sent = nodes::send_with(id, text, parameters, rows, &behind);
    nodes::with(id, |node| node.prepared = Some(gid.to_string()));
    note_asked(id, gid, &sent);
    Ok(sent)
}

/// The transaction's name at that node.
fn name(id: NodeId) -> Outcome<Gid> {
    let voting = VOTING.borrow();
    match voting.as_ref() {
        Some(voting) => Ok(vote::gid(id, &voting.identity, voting.sequence)),
        None => Err(Failure::new(NOT_SUPPORTED, "the transaction is not voting")),
    }
}

/// PRE_COMMIT, last of all: the only node that has written commits.
#[inline]
pub fn commit_single() {
    if let Some(id) = SINGLE.take() {
        guarded(|| raised(single::commit(id)));
        gate::leave();
    }
}

/// PRE_PREPARE: PREPARE TRANSACTION at the coordinator would leave the nodes' transactions open.
pub fn refuse_prepare() {
    if nodes::are_used() {
        raised(Err(Failure::new(
            NOT_SUPPORTED,
            "cannot PREPARE a transaction that has operated on txn_fdw foreign tables",
        )))
    }
}

/// XACT_EVENT_COMMIT: the transaction is decided.
#[inline]
pub fn committed() {
    if let Some(voting) = VOTING.borrow_mut().as_mut() {
        voting.is_decided = true;
        // The nodes are told when the locks are released.
        return;
    }
    schedule::transaction_ended(true);
    nodes::transaction_ended();
}

/// After the locks are released and the commit is durable: tells the nodes. Raises nothing.
pub fn after_locks() {
    let Some(voting) = VOTING.borrow_mut().take() else {
        return;
    };
    // SAFETY: a plain read: the end of the commit record of this transaction.
    let decided_at = unsafe { pgrx::pg_sys::XactLastCommitEnd };
    let is_durable = voting.is_decided && decision::is_confirmed(decided_at);
    if is_durable {
        stop::at(stop::Point::GeoDecided);
    }
    let (is_handed_over, is_applied) = match is_durable {
        true => spread(&voting),
        false => (false, false),
    };
    if is_applied {
        coordinator::acknowledge(voting.sequence);
    }
    // A pass that has found the slot open leaves it to us to tell of the transaction.
    coordinator::close();
    for one in &voting.asked {
        if !is_applied && !is_handed_over {
            coordinator::leave_unapplied(nodes::with(one.id, |node| node.server.server));
        }
        nodes::with(one.id, Node::end_transaction);
    }
    schedule::transaction_ended(true);
    nodes::transaction_ended();
    gate::leave();
    if is_handed_over {
        coordinator::rouse();
    } else if !is_applied {
        coordinator::wake();
        if is_durable && guc::GEO_ANSWER.get() == GeoAnswer::Applied {
            not_applied().warn();
        }
    }
}

/// How long a COMMIT whose client does not ask for it waits for the nodes, in microseconds.
const BUSY_US: u64 = 1_000_000;

/// Has the nodes commit. Whether the resolver does it, as the client does not wait for it; and
/// whether all nodes have acknowledged the commit.
fn spread(voting: &Voting) -> (bool, bool) {
    let patience_us = guc::GEO_APPLY_TIMEOUT.get().max(0) as u64 * 1000;
    if guc::GEO_ANSWER.get() == GeoAnswer::Applied {
        return (false, apply(voting, patience_us));
    }
    let node = |one: &Asked| nodes::with(one.id, |node| (node.server.server, node.server.mapping));
    let nodes: Vec<(Oid, Oid)> = voting.asked.iter().map(node).collect();
    match coordinator::hand_over(voting.identity.incarnation, voting.sequence, &nodes) {
        HandOver::Taken => (true, false),
        HandOver::Busy => (false, apply(voting, patience_us.min(BUSY_US))),
        HandOver::NotLinked => (false, apply(voting, 0)),
    }
}

/// Whether all nodes have acknowledged the commit, within so many microseconds.
fn apply(voting: &Voting, patience_us: u64) -> bool {
    let tell = |one: &Asked| {
        nodes::with(one.id, |node| node.session().take_standby_warning());
        settle::send_ending(one.id, &format!("COMMIT PREPARED '{}'", one.gid))
    };
    let mut sent = Vec::new();
    let until = process::now() + patience_us;
    for (n, one) in voting.asked.iter().enumerate() {
        sent.push(tell(one));
        if n == 0 && stop::is_wanted(stop::Point::GeoApplying) {
            settle::settle(&[one.id], until, Heeds::Cancel);
            stop::at(stop::Point::GeoApplying);
        }
    }
    schedule::give_turns_back();
    let ids: Vec<NodeId> = voting.asked.iter().map(|one| one.id).collect();
    settle::settle(&ids, until, Heeds::Cancel);
    ids.iter().zip(&sent).all(|(&id, exchange)| {
        let tag = exchange.tag().filter(|_| exchange.is_done());
        let answer = Answer {
            tag: tag.as_deref(),
            standby_wait_cancelled: nodes::with(id, |node| node.session().take_standby_warning()),
        };
        geo::applied(&answer, true)
    })
}

/// XACT_EVENT_ABORT: everything is taken back at the nodes. Raises nothing.
pub fn rolled_back() {
    gate::leave();
    roll_back_everywhere();
    // The locks at the nodes are released.
    schedule::transaction_ended(false);
}

fn roll_back_everywhere() {
    // Voting may have begun before the first node was used.
    let voting = match VOTING.try_borrow_mut() {
        Ok(mut voting) => voting.take(),
        Err(_) => return,
    };
    if voting.is_none() && !nodes::are_used() {
        return;
    }
    SINGLE.clear();
    let open = nodes::all(Node::is_in_transaction);
    // A node that runs nothing and has prepared nothing is told, and not waited for.
    let busy = nodes::all(|node| {
        node.is_in_transaction() && (node.is_under_way() || node.prepared.is_some())
    });
    let until = settle::stop(&busy, 0);
    for &id in &open {
        roll_back(id);
    }
    schedule::give_turns_back();
    settle::settle_or_give_up(&busy, until);
    for &id in &open {
        nodes::with(id, Node::end_transaction);
    }
    nodes::transaction_ended();
    if voting.is_some() {
        coordinator::close();
        coordinator::wake();
    }
}

/// Sends what ends the transaction at the node.
fn roll_back(id: NodeId) {
    let (is_there, prepared, for_use) = nodes::with(id, |node| {
        let is_there = node.is_usable() && node.is_open();
        (is_there, node.prepared.clone(), node.for_use)
    });
    if !is_there {
        return;
    }
    match prepared {
        // It is prepared, or has failed before: then this is an error of no account.
        Some(gid) if for_use == Use::Work => {
            settle::send_ending(id, "ROLLBACK");
            settle::send_ending(id, &format!("ROLLBACK PREPARED '{gid}'"));
        }
        _ => {
            settle::send_ending(id, "ROLLBACK");
        }
    }
}

/// A subtransaction at this level has committed into its parent.
pub fn subtransaction_committed(level: i32) {
    schedule::subtransaction_committed(level);
    if nodes::are_used() {
        nodes::for_each(|_, node| node.subtransaction_committed(level));
    }
}

/// A subtransaction at this level has rolled back: so it does at the nodes. Raises nothing. A node
/// at which that fails loses its connection, and the transaction cannot commit any more.
pub fn subtransaction_rolled_back(level: i32) {
    if !nodes::are_used() {
        schedule::subtransaction_rolled_back(level);
        return;
    }
    nodes::for_each(|_, node| node.forget_unanswered());
    let is_open =
        |node: &Node| node.for_use == Use::Work && node.is_in_transaction() && node.is_usable();
    let open = nodes::all(is_open);
    let until = settle::stop(&open, level);
    let mut sent = Vec::new();
    for &id in &open {
        nodes::with(id, |node| {
            if let Some(request) = node.roll_back_to(level) {
                sent.push((id, node.send(&request, None)));
            }
        });
    }
    settle::settle_or_give_up(&open, until);
    for (id, exchange) in sent {
        if exchange.has_failed() {
            nodes::with(id, Node::give_up);
        }
    }
    schedule::subtransaction_rolled_back(level);
    running::goes_on();
}
