//! Letting connections come to rest where nothing may be raised: at the end of a transaction.

use super::exchange::{Command, Exchange, Request, Role};
use super::node::Node;
use super::nodes::{self, NodeId};
use crate::pg::libpq::{self, Canceller};
use crate::pg::process;
use std::rc::Rc;

/// How long the end of a transaction that has failed waits for its nodes, in microseconds. A node
/// that has not answered by then loses its connection, and rolls back by itself.
const PATIENCE_US: u64 = 5_000_000;
/// How long poll(2) sleeps at most, in milliseconds: a signal that comes just before is seen then.
const NAP_MS: u64 = 100;

/// Whether a wait ends early.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heeds {
    /// When the session is to be cancelled or terminated.
    Cancel,
    Nothing,
}

/// Takes what comes on these connections until nothing is under way on any of them, or the time
/// is over. Whether they have come to rest.
pub fn settle(ids: &[NodeId], until: u64, heeds: Heeds) -> bool {
    settle_if(ids, until, heeds, |node| !node.is_under_way())
}

/// Waits until that holds for all of these connections.
fn settle_if(
    ids: &[NodeId],
    until: u64,
    heeds: Heeds,
    mut rests: impl FnMut(&Node) -> bool,
) -> bool {
    loop {
        let mut is_busy = |&id: &NodeId| !take_all(id) && nodes::with(id, |node| !rests(node));
        let busy: Vec<NodeId> = ids.iter().copied().filter(&mut is_busy).collect();
        if busy.is_empty() {
            return true;
        }
        let now = process::now();
        if now >= until || heeds == Heeds::Cancel && process::is_to_fail() {
            return false;
        }
        let sockets: Vec<(i32, bool)> = busy
            .iter()
            .map(|&id| {
                nodes::with(id, |node| {
                    let session = node.session();
                    (session.socket(), session.flush() == Some(false))
                })
            })
            .collect();
        let nap = ((until - now) / 1000 + 1).min(NAP_MS);
        let ready = libpq::poll(&sockets, nap as i32);
        for (&id, _) in busy.iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
            nodes::with(id, Node::consume);
        }
    }
}

/// Takes all that has come. Whether nothing is under way any more.
fn take_all(id: NodeId) -> bool {
    nodes::with(id, |node| node.take_all(Exchange::keep))
}

/// Asks servers to cancel what runs on these connections, each from a thread of its own, because
/// libpq blocks meanwhile. Returns when all have, or the time is over; then the threads go on
/// alone, and may cancel what comes next on their connection. Whether all have.
fn cancel(ids: &[NodeId], until: u64) -> bool {
    let canceller = |&id: &NodeId| nodes::with(id, |node| node.session().canceller());
    let threads: Vec<_> = ids
        .iter()
        .filter_map(canceller)
        .filter_map(in_thread)
        .collect();
    let are_done = || threads.iter().all(|thread| thread.is_finished());
    while !are_done() && process::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    are_done()
}

/// Runs it in a thread that gets no signals: they are the backend's.
fn in_thread(canceller: Canceller) -> Option<std::thread::JoinHandle<()>> {
    // SAFETY: sigset_t is filled before it is used; the mask is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = std::thread::Builder::new().spawn(move || {
            canceller.cancel();
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        thread.ok()
    }
}

/// Stops what is under way on these connections and was sent at this nest level or below it; what
/// was sent above goes on to its end, as its rows are wanted. Connections on which that takes too
/// long are given up.
pub fn stop(ids: &[NodeId], level: i32) -> u64 {
    let until = process::now() + PATIENCE_US;
    let is_busy = |id: &NodeId| !take_all(*id);
    let busy: Vec<NodeId> = ids.iter().copied().filter(is_busy).collect();
    settle_if(&busy, until, Heeds::Nothing, |node| {
        !node.is_under_way_above(level)
    });
    let busy: Vec<NodeId> = busy.into_iter().filter(is_busy).collect();
    if !busy.is_empty() {
        let is_told = cancel(&busy, until);
        settle_or_give_up(&busy, until);
        if !is_told {
            busy.iter().for_each(|&id| nodes::with(id, Node::give_up));
        }
    }
    until
}

/// Has the node end the wait of a COMMIT in one phase, which others hold up: it rolls back if it
/// waits for a transaction, and has committed if it waits for a standby, which it warns of. Its
/// answer says which, if one comes.
pub fn cancel_commit(id: NodeId) {
    let is_told = cancel(&[id], process::now() + PATIENCE_US);
    settle_or_give_up(&[id], process::now() + PATIENCE_US);
    if !is_told {
        nodes::with(id, Node::give_up);
    }
}

/// Waits for these connections until then; those that are not at rest are given up.
pub fn settle_or_give_up(ids: &[NodeId], until: u64) {
    if !settle(ids, until, Heeds::Nothing) {
        for &id in ids {
            nodes::with(id, |node| {
                if node.is_under_way() {
                    node.give_up();
                }
            });
        }
    }
}

/// Sends a command that ends something.
pub fn send_ending(id: NodeId, text: &str) -> Rc<Exchange> {
    nodes::with(id, |node| {
        node.send(&Request::of(Command::new(Role::Ending, text)), None)
    })
}
