//! Nobody overtakes: a follower lets its predecessors go first to the next row.
//!
//! In PostgreSQL, transactions that update rows in the same order never deadlock. A follower goes on while its predecessor
//! still runs, and could be at the next row first: the predecessor would wait there for the follower, and the follower
//! in its commit for the predecessor. So before a follower takes the ticket of another hot row, each of its predecessors has
//! come to that row, or has ended. Of a row that is not hot it is not known who has been there; in a table whose rows
//! somebody has waited for lately, all predecessors end first.

use super::commit;
use super::session::{Membership, SESSION, member_id, memory};
use super::waiting::Reason;
use crate::pg::wait;
use hotrow::{Row, Slot, World, actor_of};
use pgrx::pg_sys::{self, Oid};

/// Whether a predecessor has not come to that hot row yet, and may.
pub fn may_overtake_at(slot: Slot) -> bool {
    not_ahead(slot).next().is_some()
}

/// Waits for the predecessors that have not come to that hot row to end.
pub fn let_pass_at(slot: Slot) {
    for (n, membership) in not_ahead(slot) {
        commit::wait_for_predecessor(n, &membership, Reason::Order);
    }
}

fn not_ahead(slot: Slot) -> impl Iterator<Item = (usize, Membership)> {
    SESSION.all().filter(move |(n, m)| {
        let predecessor = |row: &Row, world: World| row.predecessor(world, member_id(*n));
        m.predecessor != 0
            && m.slot != slot
            && !memory()
                .with_row(m.slot, predecessor)
                .map(actor_of)
                .is_some_and(|actor| {
                    memory().with_row(slot, |row, world| row.has_before(world, slot, actor))
                })
    })
}

/// Whether a predecessor may come to other rows of that table.
pub fn may_overtake_in(relation: Oid) -> bool {
    SESSION.all().any(|(_, m)| m.predecessor != 0)
        && memory()
            .contended
            .has(database(), u32::from(relation), wait::now())
}

/// Before a row of that table, which is not hot, is changed or locked: waits for all predecessors to end, where that matters.
pub fn let_pass_in(relation: Oid) {
    if may_overtake_in(relation) {
        commit::wait_for_predecessors(Reason::Order);
    }
}

/// Somebody waits for a row of that table.
pub fn note_wait(relation: Oid) {
    memory()
        .contended
        .note(database(), u32::from(relation), wait::now());
}

fn database() -> u32 {
    // SAFETY: a plain read; set once per process.
    u32::from(unsafe { pg_sys::MyDatabaseId })
}
