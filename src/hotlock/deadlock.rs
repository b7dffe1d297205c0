//! Refusing a wait that would close a cycle (docs/design/group-locking.md, "opposite orders").

use super::session::{SESSION, memory};
use crate::pg::{process, xact};
use hotrow::{BackendId, Slot, is_in_circle, subtransactions_awaited};

/// Declares a wait of this transaction, or that it commits after another one. True when that closes
/// a cycle: of two that close one, the second sees the first one's declaration. Whoever gets a
/// ticket later finds what was declared when it waits itself. Only transactions that have to do
/// with hot rows are known; for others the deadlock detector is there.
pub fn closes(declare: impl FnOnce()) -> bool {
    SESSION.published.set(true);
    if SESSION.is_fresh() {
        declare();
        return false;
    }
    search(declare)
}

/// `closes`, for a transaction that comes to commit after the one on whose version it builds. Where
/// it has the row's ticket and nothing else, it gives that on with this very statement.
pub fn closes_by_following(declare: impl FnOnce()) -> bool {
    if SESSION.is_new() {
        SESSION.published.set(true);
        declare();
        return false;
    }
    closes(declare)
}

/// `closes_by_following`, for a transaction that keeps the ticket of that row, which is all that it
/// has. What it commits after is declared.
pub fn closes_by_keeping(slot: Slot) -> bool {
    SESSION.is_new()
        && memory().directory.rows[slot as usize].has_holders_waiting()
        && search(|| ())
}

/// Declares a wait of a transaction that has only tickets. True when that closes a cycle, which is
/// none of its making: it has to give way to those who wait for its ticket.
pub fn closes_with_ticket(declare: impl FnOnce()) -> bool {
    SESSION.published.set(true);
    search(declare)
}

/// Declares that this transaction is the first of that queue; its wait is declared. False if the
/// transaction awaited is in a cycle then: those in the queue could be in it, too, so that this
/// transaction is not their first.
pub fn may_lead(queue: u64) -> bool {
    let memory = memory();
    let own = &memory.backends[process::me() as usize];
    memory.with_graph(|| {
        own.leads(queue);
        let awaited = own.awaited(memory.backends);
        let may = awaited.is_none_or(|at| !is_in_cycle(&[], at));
        if !may {
            own.leads(0);
        }
        may
    })
}

/// The declaration stands between the two looks. So two that close one cycle may both be refused,
/// if the first look of one of them has found another cycle, which was none. And a wait for the
/// parent of a released savepoint counts from its declaration. It may not begin, because a
/// savepoint outside is rolled back just then.
fn search(declare: impl FnOnce()) -> bool {
    let closes = memory().with_graph(|| {
        declare();
        is_in_cycle(&[], process::me())
    });
    closes && {
        let ended = ended_subtransactions();
        ended.is_empty() || memory().with_graph(|| is_in_cycle(&ended, process::me()))
    }
}

/// The awaited subtransactions that have rolled back. Who has waited for one says so when it runs
/// again.
fn ended_subtransactions() -> Vec<u32> {
    subtransactions_awaited(memory().backends)
        .filter(|&xid| !xact::is_running(xid))
        .collect()
}

fn is_in_cycle(ended: &[u32], at: BackendId) -> bool {
    let memory = memory();
    is_in_circle(memory.backends, memory.directory.rows, ended, at)
}
