//! Whole transactions as the extension makes them: each session's state machine beside the ticket
//! queue, the dependency list, the cycle check, the group flush and the read guard that all share.
//!
//! Asserted, by the names of docs/design/group-locking.md:
//! - commit order: a follower commits after its predecessor, with a later record in WAL;
//! - one ticket: a row has one ticket;
//! - doomed: no committed transaction has built on, or looked at, what was rolled back;
//! - no lost wake-up: no session sleeps for ever (shuttle finds the deadlock).
//!
//! Also: a transaction is acknowledged when all that it wrote and read is durable. And the state
//! machine says of ticket and list what the shared words say.

mod server;
mod session;

use super::{check_pct, check_random, violation};
use server::Server;
use session::Session;
use shuttle::sync::Arc;
use shuttle::thread;

/// A mistake made on purpose, which the model has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A follower commits whatever has become of its predecessor.
    DoomedCommits,
    /// The end of a transaction leaves its tickets with nobody.
    TicketKept,
    /// A commit wakes none of those that wait for it.
    WakeLost,
    /// What has only been looked at is no dependency.
    ReaderForgotten,
    /// A wait that closes a cycle is not refused.
    CircleClosed,
    /// The read guard is not asked.
    GuardNotAsked,
    /// A commit becomes visible before its flush without saying so.
    VisibleUnannounced,
    /// A second updater takes a ticket that it has not been given.
    TicketTaken,
    /// A writer may change the version that another transaction looks at.
    OfferNotProtected,
}

#[derive(Clone, Copy)]
pub struct Plan {
    backends: usize,
    rounds: usize,
    /// Share of transactions that roll back, and of waiters that are cancelled.
    rollbacks: f64,
    cancels: f64,
    /// Share of group updates for which the page has no room, and of versions that cannot be
    /// locked.
    failures: f64,
    /// Share of transactions that go to both rows.
    both: f64,
    fault: Option<Fault>,
}

const PLAN: Plan = Plan {
    backends: 3,
    rounds: 2,
    rollbacks: 0.2,
    cancels: 0.1,
    failures: 0.1,
    both: 0.3,
    fault: None,
};

fn play(plan: Plan) {
    let server = Arc::new(Server::new(plan.backends));
    let threads: Vec<_> = (0..plan.backends)
        .map(|backend| {
            let server = server.clone();
            thread::spawn(move || {
                for _ in 0..plan.rounds {
                    Session::begin(&server, backend as u32, plan).run();
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    server.check_end();
}

#[test]
fn transactions_on_one_row_keep_the_invariants() {
    let plan = Plan { both: 0.0, ..PLAN };
    check_random(move || play(plan), 8000);
    let calm = Plan {
        rollbacks: 0.0,
        cancels: 0.0,
        ..plan
    };
    check_random(
        move || {
            play(Plan {
                backends: 4,
                ..calm
            })
        },
        3000,
    );
}

#[test]
fn transactions_on_two_rows_keep_the_invariants() {
    let plan = Plan { both: 0.8, ..PLAN };
    check_random(move || play(plan), 8000);
    check_pct(move || play(plan), 4000, 4);
}

#[test]
fn every_planted_fault_is_found() {
    use Fault::*;
    // What is found first is one of these.
    let faults: [(Fault, &[&str]); 9] = [
        (DoomedCommits, &["rolled back"]),
        (TicketKept, &["deadlock", "ticket: ", "outlives"]),
        (WakeLost, &["deadlock"]),
        (ReaderForgotten, &["not committed", "rolled back"]),
        (CircleClosed, &["deadlock"]),
        (GuardNotAsked, &["not durable"]),
        (VisibleUnannounced, &["not durable"]),
        (TicketTaken, &["two tickets", "ticket: "]),
        (OfferNotProtected, &["changed by its writer"]),
    ];
    let mut missed = Vec::new();
    for (fault, expected) in faults {
        let plan = Plan {
            both: if fault == CircleClosed {
                1.0
            } else {
                PLAN.both
            },
            fault: Some(fault),
            ..PLAN
        };
        let found = violation(|| check_random(move || play(plan), 1_000_000));
        let is_it = |found: &String| expected.iter().any(|text| found.contains(text));
        if !found.as_ref().is_some_and(is_it) {
            missed.push((fault, found));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
