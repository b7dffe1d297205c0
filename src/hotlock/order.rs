//! Nobody overtakes: a follower lets its predecessors go first to the next row.
//!
//! In PostgreSQL, transactions that update rows in the same order never deadlock. A follower goes
//! on while its predecessor still runs, and could be at the next row first: the predecessor would
//! wait there for the follower, and the follower in its commit for the predecessor. So before a
//! follower goes on with the ticket of another hot row, each of its predecessors has come to that
//! row, or has ended. A predecessor that had the ticket may give it back (a savepoint, a statement
//! that changes nothing). So the follower looks at this again once it has the ticket. A transaction
//! that has updated the row wakes its followers. A row that is not hot has no list of those that
//! have been there. So in a table whose rows have been waited for lately, all predecessors end
//! first.

use super::predecessors;
use super::session::{SESSION, database, member_id, memory};
use super::waiting::{self, Reason};
use crate::pg::process;
use crate::shared::wait::Wakes;
use hotrow::{BackendId, Contention, Members, Membership, Row, Slot, backend_of};
use pgrx::pg_sys::{LockTupleMode, Oid};

/// Whether a predecessor has not come to that hot row yet, and may.
pub fn may_overtake_at(slot: Slot) -> bool {
    not_ahead(slot).next().is_some()
}

/// Waits until each predecessor has updated that hot row, or has ended. Of one in a savepoint that
/// is not known yet.
pub fn let_pass_at(slot: Slot) {
    for (n, membership) in not_ahead(slot) {
        let has_updated = || {
            of_predecessor(n, &membership, |backend, xid| {
                memory().with_row(slot, |row, members| {
                    row.has_updated(members, slot, backend, xid)
                })
            })
        };
        predecessors::wait_on_row_unless(n, &membership, Reason::Order, has_updated);
    }
}

fn not_ahead(slot: Slot) -> impl Iterator<Item = (usize, Membership)> {
    SESSION
        .all()
        .filter(move |(n, m)| m.depends() && m.slot() != slot && !is_ahead(*n, m, slot))
}

/// Whether the predecessor in the list of that membership has come to the other row.
fn is_ahead(n: usize, membership: &Membership, slot: Slot) -> bool {
    of_predecessor(n, membership, |backend, xid| {
        memory().with_row(slot, |row, members| {
            row.has_before(members, slot, backend, xid)
        })
    })
}

/// Whether that is so of the predecessor in the list of that membership, with its transaction's id;
/// not if there is none. Of one that is prepared anything is: it comes to no row any more.
fn of_predecessor(
    n: usize,
    membership: &Membership,
    test: impl FnOnce(BackendId, u32) -> bool,
) -> bool {
    predecessor(n, membership).is_some_and(|backend| {
        process::is_prepared(backend)
            || test(backend, memory().backends[backend as usize].xid.get())
    })
}

/// The predecessor in the list of that membership.
fn predecessor(n: usize, membership: &Membership) -> Option<BackendId> {
    let predecessor = |row: &Row, members: Members| row.predecessor(members, member_id(n));
    memory()
        .with_row(membership.slot(), predecessor)
        .map(backend_of)
}

/// Those that depend on a predecessor which may come to other rows.
fn behind_active() -> impl Iterator<Item = (usize, Membership)> {
    SESSION
        .all()
        .filter(|(n, m)| m.depends() && !predecessor(*n, m).is_some_and(process::is_prepared))
}

/// The transaction has updated that hot row: those behind it who let it pass may come, too.
pub fn has_come_to(slot: Slot) {
    let others = |m: &Membership| m.is_listed() && m.slot() != slot;
    for (n, membership) in SESSION.all().filter(|(_, m)| others(m)) {
        let mut wakes = Wakes::new();
        memory().with_row(membership.slot(), |row, members| {
            row.wake_those_behind(members, member_id(n), |backend| {
                if waiting::waits_for(backend, Reason::Order) {
                    wakes.push(backend);
                }
            });
        });
        wakes.deliver();
    }
}

/// Whether a predecessor may come later to what this transaction is going to take in that table.
pub fn may_overtake_in(relation: Oid, what: Contention) -> bool {
    SESSION.is_dependent()
        && memory()
            .contended
            .has(what, database(), u32::from(relation), process::now())
        && behind_active().next().is_some()
}

/// Before something is taken in that table that is not a hot row: waits for the predecessors that
/// may come to it to end, where that matters.
pub fn let_pass_in(relation: Oid, what: Contention) {
    if may_overtake_in(relation, what) {
        let_pass();
    }
}

/// Waits for all predecessors to end, or to be prepared.
pub fn let_pass() {
    for (n, membership) in behind_active() {
        let is_prepared = || predecessor(n, &membership).is_some_and(process::is_prepared);
        predecessors::wait_on_row_unless(n, &membership, Reason::Order, is_prepared);
    }
}

/// Somebody waits in that table.
pub fn note_wait(relation: Oid, what: Contention) {
    memory()
        .contended
        .note(what, database(), u32::from(relation), process::now());
}

/// Somebody waits for a row of that table, to lock it so.
pub fn note_wait_to_lock(relation: Oid, mode: LockTupleMode::Type) {
    note_wait(relation, Contention::Row);
    if mode == LockTupleMode::LockTupleExclusive {
        note_wait(relation, Contention::Key);
    }
}
