//! Who must wait for whom, and the check that no new wait closes a circle.
//!
//! Edges: a follower commits after its predecessors; a waiter for a ticket waits for its holder; a waiter for an ordinary
//! row lock waits for the transaction that has it. Whoever adds an edge that others could close into a circle does it
//! under one global lock, edge first, then the search; removing an edge needs no lock. Edges of ended transactions are
//! recognised by their transaction id, which is never used again while it matters.

use crate::{ActorId, MEMBERS, Row, Word32, Word64, actor_of};

/// A process's edges. All words are lock-free.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Actor {
    /// The top transaction id of the present transaction, once it is a member of a hot row.
    pub xid: Word32,
    /// Row (index + 1) whose ticket it waits for.
    waits_row: Word32,
    /// Transaction id whose row lock it waits for.
    waits_xid: Word32,
    /// When the present wait began, microseconds, 0 when it does not wait; and why.
    pub wait_since: Word64,
    pub wait_reason: Word32,
    /// The process sleeps on its latch's flag and must be woken by more than setting it.
    pub sleeping: Word32,
    /// The row of the present wait, index + 1.
    pub wait_row: Word32,
    /// Its place in the flush queue (flush.rs).
    pub(crate) flush_next: Word32,
    pub(crate) flush_duty: Word32,
    pub(crate) flush_until: Word64,
    /// Predecessors, one per membership: (process << 32) | xid, or 0.
    predecessors: [Word64; MEMBERS],
}

/// Something a process may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    Ticket(u32),
    Xid(u32),
}

impl Actor {
    /// From now on (until `forget`) this process commits after the transaction `xid` of process `actor`.
    pub fn depend(&self, slot: usize, actor: ActorId, xid: u32) {
        if let Some(word) = self.predecessors.get(slot) {
            word.publish((u64::from(actor) << 32) | u64::from(xid));
        }
    }

    /// The dependency of that membership is over.
    pub fn forget(&self, slot: usize) {
        if let Some(word) = self.predecessors.get(slot) {
            word.publish(0);
        }
    }

    /// The process of a predecessor, if there is any.
    pub fn first_predecessor(&self) -> Option<ActorId> {
        self.predecessors
            .iter()
            .map(Word64::get)
            .find(|&edge| edge != 0)
            .map(|edge| (edge >> 32) as u32)
    }

    /// The process whose row lock is awaited, if it is a member of a hot row.
    pub fn awaited(&self, actors: &[Actor]) -> Option<ActorId> {
        let xid = self.waits_xid.get();
        if xid == 0 {
            None
        } else {
            owner_of(actors, xid)
        }
    }

    /// The transaction has ended.
    pub fn clear(&self) {
        self.xid.publish(0);
        self.predecessors.iter().for_each(|word| word.set(0));
        self.wait(None);
        self.wait_since.set(0);
    }

    /// Declares a wait, or its end with `None`.
    pub fn wait(&self, wait: Option<Wait>) {
        match wait {
            Some(Wait::Ticket(row)) => self.waits_row.publish(row + 1),
            Some(Wait::Xid(xid)) => self.waits_xid.publish(xid),
            None => {
                self.waits_row.publish(0);
                self.waits_xid.publish(0);
            }
        }
    }
}

/// Whether process `from` (directly or not) waits for process `to`. Bounded work, no allocation: `seen` has one word per
/// process, all of them different from `mark` on entry; `stack` has room for every process.
pub fn has_path(
    actors: &[Actor],
    rows: &[Row],
    from: ActorId,
    to: ActorId,
    seen: &mut [u32],
    mark: u32,
    stack: &mut Vec<ActorId>,
) -> bool {
    stack.clear();
    stack.push(from);
    while let Some(at) = stack.pop() {
        if at == to {
            return true;
        }
        let (Some(actor), Some(seen)) = (actors.get(at as usize), seen.get_mut(at as usize)) else {
            continue;
        };
        if *seen == mark {
            continue;
        }
        *seen = mark;
        for word in &actor.predecessors {
            let edge = word.get();
            let (process, xid) = ((edge >> 32) as u32, edge as u32);
            if edge != 0
                && actors
                    .get(process as usize)
                    .is_some_and(|a| a.xid.get() == xid)
            {
                stack.push(process);
            }
        }
        if let Some(row) = actor
            .waits_row
            .get()
            .checked_sub(1)
            .and_then(|row| rows.get(row as usize))
            && let Some(holder) = row.holder()
        {
            stack.push(actor_of(holder));
        }
        let xid = actor.waits_xid.get();
        if xid != 0
            && let Some(owner) = owner_of(actors, xid)
        {
            stack.push(owner);
        }
    }
    false
}

/// The process whose present transaction, a member of a hot row, has that id.
pub fn owner_of(actors: &[Actor], xid: u32) -> Option<ActorId> {
    actors
        .iter()
        .position(|a| a.xid.get() == xid)
        .map(|n| n as ActorId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, Patience, World};

    fn path(actors: &[Actor], rows: &[Row], from: u32, to: u32) -> bool {
        let mut seen = vec![0; actors.len()];
        has_path(actors, rows, from, to, &mut seen, 1, &mut Vec::new())
    }

    fn actors(n: u32) -> Vec<Actor> {
        (0..n)
            .map(|i| {
                let actor = Actor::default();
                actor.xid.set(100 + i);
                actor
            })
            .collect()
    }

    #[test]
    fn opposite_orders_on_two_rows_close_a_circle() {
        let actors = actors(3);
        actors[0].depend(0, 1, 101);
        assert!(!path(&actors, &[], 1, 0));
        actors[1].depend(1, 2, 102);
        assert!(path(&actors, &[], 0, 2));
        assert!(!path(&actors, &[], 2, 0));
    }

    #[test]
    fn an_edge_to_an_ended_transaction_is_no_edge() {
        let actors = actors(2);
        actors[0].depend(0, 1, 101);
        actors[1].xid.set(205);
        assert!(!path(&actors, &[], 0, 1));
    }

    #[test]
    fn tickets_and_row_locks_are_edges() {
        let actors = actors(3);
        let members: Vec<Member> = (0..3 * MEMBERS).map(|_| Member::default()).collect();
        let rows = [Row::default()];
        let patience = Patience {
            fair_every: 1,
            longest_wait: u64::MAX,
            competitors: 1,
        };
        rows[0].acquire(World { members: &members }, 2 * MEMBERS as u32, patience, 0);
        actors[0].wait(Some(Wait::Ticket(0)));
        actors[2].wait(Some(Wait::Xid(101)));
        assert!(path(&actors, &rows, 0, 1));
        actors[2].wait(None);
        assert!(!path(&actors, &rows, 0, 1));
    }
}
