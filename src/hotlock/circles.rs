//! Refusing a wait that would close a circle (design, traps 3 and 4).

use super::session::{SESSION, memory};
use crate::pg::wait;
use crate::pg::xact;
use hotrow::{ActorId, Slot, Wait, actor_of, has_path, owner_of};

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

/// Declares that this transaction commits after the transaction `xid` of process `target`, or waits for it to end. True when
/// that closes a circle. A process goes on to other transactions: whether it is still at that one is looked up under the
/// graph's lock.
pub fn closes_on(target: ActorId, xid: u32, declare: impl FnOnce()) -> bool {
    SESSION.published.set(true);
    if is_fresh() {
        declare();
        return false;
    }
    memory().with_graph(|| {
        declare();
        memory().actors[target as usize].xid.get() == xid && reaches_us(target)
    })
}

/// Declares that this transaction waits for the ticket of that row. True when that closes a circle. Whoever gets the ticket
/// later finds the declaration when it waits itself.
pub fn closes_on_ticket(slot: Slot) -> bool {
    SESSION.published.set(true);
    let declare = || memory().actors[wait::me() as usize].wait(Some(Wait::Ticket(slot)));
    if is_fresh() {
        declare();
        return false;
    }
    memory().with_graph(|| {
        declare();
        let holder = memory().directory.rows[slot as usize].holder();
        // It may have been granted to us meanwhile.
        holder
            .map(actor_of)
            .is_some_and(|holder| holder != wait::me() && reaches_us(holder))
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
