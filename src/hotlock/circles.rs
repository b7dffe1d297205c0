//! Refusing a wait that would close a circle (design, traps 3 and 4).

use super::session::{SESSION, memory};
use crate::pg::wait;
use crate::pg::xact;
use hotrow::{ActorId, has_path, owner_of};

/// Nobody can be waiting for this transaction yet: it has written nothing and is in no other row.
fn is_fresh() -> bool {
    SESSION.all().count() <= 1 && xact::own_xid() == 0
}

/// Whether somebody is reached from `from` by waiting and commit order, and that somebody is us.
fn reaches_us(from: ActorId) -> bool {
    let memory = memory();
    let mut seen = vec![0; memory.actors.len()];
    let mut stack = Vec::new();
    has_path(
        memory.actors,
        memory.directory.rows,
        from,
        wait::me(),
        &mut seen,
        1,
        &mut stack,
    )
}

/// Declares an edge from this transaction to what process `target` now does. True when that closes a circle. `is_so` tells,
/// under the graph's lock, whether the target is still at it: a process goes on to other transactions.
pub fn closes(target: ActorId, declare: impl FnOnce(), is_so: impl FnOnce() -> bool) -> bool {
    SESSION.published.set(true);
    // A ticket may have been granted to us since we looked who has it.
    if target == wait::me() || is_fresh() {
        declare();
        return false;
    }
    memory().with_graph(|| {
        declare();
        is_so() && reaches_us(target)
    })
}

/// The same for what the transaction `xid` of process `target` does.
pub fn closes_on(target: ActorId, xid: u32, declare: impl FnOnce()) -> bool {
    closes(target, declare, || {
        memory().actors[target as usize].xid.get() == xid
    })
}

/// The same for a row lock that the transaction `xid` has. Only hot rows' members are known; for others the deadlock
/// detector is there.
pub fn closes_with_transaction(xid: u32, declare: impl FnOnce()) -> bool {
    SESSION.published.set(true);
    memory().with_graph(|| {
        declare();
        owner_of(memory().actors, xid).is_some_and(reaches_us)
    })
}
