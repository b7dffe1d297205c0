//! The graph of waits, and the check that no new wait closes a cycle.
//!
//! Edges: a follower commits after its predecessors; a waiter for a ticket waits for its holder; a
//! waiter for an ordinary row lock waits for the transaction that has it. In a queue for a row lock
//! all wait for the transaction for which the first of the queue waits. A backend that adds an edge
//! which others could close into a cycle does so under one global lock: the edge first, then the
//! search; removing an edge needs no lock. Edges of ended transactions are recognised by their
//! transaction id, which is never used again while it matters.

use crate::{BackendId, MEMBERS, Row, Word32, Word64, backend_of};

/// A process's edges. All words are lock-free.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Backend {
    /// The top transaction id of the present transaction, once it is a member of a hot row.
    pub xid: Word32,
    /// Transactions of the process that have ended after they had edges.
    generation: Word32,
    /// Row (index + 1) whose ticket it waits for.
    waits_row: Word32,
    /// The row of the present wait, index + 1.
    pub wait_row: Word32,
    /// The transaction whose row lock it waits for, and in the upper half the subtransaction that
    /// has locked the row, or 0.
    waits_xid: Word64,
    /// The queue for a row lock in which it waits, or 0.
    waits_queue: Word64,
    /// The queue for a row lock of which it is the first, and waits, or 0.
    leads_queue: Word64,
    /// When the present wait began, microseconds, 0 when it does not wait; and why.
    pub wait_since: Word64,
    pub wait_reason: Word32,
    /// The process sleeps on its latch's flag and must be woken by more than setting it.
    pub sleeping: Word32,
    /// The processor on which it was seen last, number + 1; 0: none (processors.rs).
    pub(crate) processor: Word32,
    /// Its place in the flush queue (flush.rs).
    pub(crate) flush_next: Word32,
    pub(crate) flush_duty: Word32,
    pub(crate) flush_until: Word64,
    /// Predecessors, one per membership: (process << 32) | xid, or 0.
    predecessors: [Word64; MEMBERS],
    /// The subtransactions that have written its versions of hot rows, one per membership, or 0.
    writers: [Word32; MEMBERS],
}

/// Something a process may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// For the ticket of that row.
    Ticket(u32),
    /// For the end of that transaction, which has a row lock.
    Xid(u32),
    /// For that subtransaction, which has a row lock, to roll back or to be released.
    Subtransaction { xid: u32, of: u32 },
    /// In that queue for a row lock. Not 0.
    Queue(u64),
}

impl Wait {
    /// The transaction awaited, and in the upper half its subtransaction.
    fn awaited(self) -> u64 {
        match self {
            Wait::Xid(xid) => u64::from(xid),
            Wait::Subtransaction { xid, of } => u64::from(xid) << 32 | u64::from(of),
            Wait::Ticket(_) | Wait::Queue(_) => 0,
        }
    }
}

impl Backend {
    /// From now on that subtransaction has written the version of a membership; 0 for none: those
    /// that depend on the one before will not commit.
    pub fn writes_as(&self, slot: usize, xid: u32) {
        if let Some(word) = self.writers.get(slot) {
            word.publish(xid);
        }
    }

    /// The prepared transaction of that id, which the process stood for, has ended. It may stand
    /// for another one by now.
    pub fn prepared_ended(&self, xid: u32) {
        let _ = self.xid.exchange(xid, 0);
    }

    /// Whether its transaction, or a subtransaction that has written a version and not rolled back,
    /// has that id.
    fn is_known_as(&self, xid: u32) -> bool {
        self.xid.get() == xid || self.writers.iter().any(|word| word.get() == xid)
    }

    /// From now on (until `forget`) this process commits after the (sub)transaction `xid` of
    /// process `backend`.
    pub fn depend(&self, slot: usize, backend: BackendId, xid: u32) {
        if let Some(word) = self.predecessors.get(slot) {
            word.publish((u64::from(backend) << 32) | u64::from(xid));
        }
    }

    /// The dependency of that membership is over.
    pub fn forget(&self, slot: usize) {
        if let Some(word) = self.predecessors.get(slot) {
            word.publish(0);
        }
    }

    /// The (sub)transaction id of a predecessor, if there is any.
    pub fn first_predecessor(&self) -> Option<u32> {
        self.predecessors
            .iter()
            .map(|word| word.get() as u32)
            .find(|&xid| xid != 0)
    }

    /// Whether it has declared that it commits after another transaction, which may have ended.
    pub fn has_predecessor(&self) -> bool {
        self.predecessors.iter().any(|word| word.get() != 0)
    }

    /// The process that has the ticket for which this one waits.
    pub fn holder_awaited(&self, rows: &[Row]) -> Option<BackendId> {
        holder_of(rows, self.waits_row.get().checked_sub(1)?)
    }

    /// The process whose row lock is awaited, if it is a member of a hot row.
    pub fn awaited(&self, backends: &[Backend]) -> Option<BackendId> {
        match self.waits_xid.get() as u32 {
            0 => None,
            xid => owner_of(backends, xid),
        }
    }

    /// The transaction has ended.
    pub fn clear(&self) {
        self.wait_since.set(0);
        self.wait(None);
        self.generation.add(1);
        self.xid.publish(0);
        self.predecessors.iter().for_each(|word| word.set(0));
        self.writers.iter().for_each(|word| word.set(0));
    }

    /// Declares a wait, or its end with `None`.
    pub fn wait(&self, wait: Option<Wait>) {
        match wait {
            Some(Wait::Ticket(row)) => self.waits_row.publish(row + 1),
            Some(Wait::Queue(queue)) => self.waits_queue.publish(queue),
            Some(wait) => self.waits_xid.publish(wait.awaited()),
            None => {
                self.waits_row.publish(0);
                self.waits_xid.publish(0);
                self.waits_queue.publish(0);
                self.leads_queue.publish(0);
            }
        }
    }

    /// From now on, until its wait ends or with 0, the process is the first of that queue for a row
    /// lock: those in the queue wait for the transaction for which it waits.
    pub fn leads(&self, queue: u64) {
        self.leads_queue.publish(queue);
    }

    /// The transaction for which those in the queue wait in which this process waits, as in
    /// `waits_xid`; 0 for none.
    fn awaited_in_queue(&self, backends: &[Backend]) -> u64 {
        let queue = self.waits_queue.get();
        let is_first = |other: &&Backend| queue != 0 && other.leads_queue.get() == queue;
        let awaited = backends.iter().find(is_first).map(|first| {
            let xid = first.waits_xid.get();
            // It may have gone on to another wait in between.
            if is_first(&first) { xid } else { 0 }
        });
        awaited.unwrap_or(0)
    }
}

/// Why a process is waited for, and that it still is the same transaction of that process.
#[derive(Clone, Copy, Debug)]
enum Edge {
    /// For the transaction of that id.
    Transaction(BackendId, u32),
    /// For whoever has the ticket of that row.
    Holder(BackendId, u32),
}

impl Edge {
    fn target(self) -> BackendId {
        match self {
            Edge::Transaction(backend, _) | Edge::Holder(backend, _) => backend,
        }
    }

    fn holds(self, backends: &[Backend], rows: &[Row]) -> bool {
        match self {
            Edge::Transaction(backend, xid) => backends
                .get(backend as usize)
                .is_some_and(|backend| backend.is_known_as(xid)),
            Edge::Holder(backend, row) => holder_of(rows, row) == Some(backend),
        }
    }
}

fn holder_of(rows: &[Row], row: u32) -> Option<BackendId> {
    rows.get(row as usize)?.holder().map(backend_of)
}

impl Backend {
    /// What it waits for at present. Of the subtransactions awaited, those have ended.
    fn edges(
        &self,
        backends: &[Backend],
        rows: &[Row],
        ended: &[u32],
    ) -> [Option<Edge>; MEMBERS + 3] {
        let mut edges = [None; MEMBERS + 3];
        let (first, last) = edges.split_at_mut(MEMBERS);
        for (edge, word) in first.iter_mut().zip(&self.predecessors) {
            let word = word.get();
            *edge = (word != 0).then_some(Edge::Transaction((word >> 32) as u32, word as u32));
        }
        last[0] = self.waits_row.get().checked_sub(1).and_then(|row| {
            let holder = holder_of(rows, row)?;
            Some(Edge::Holder(holder, row))
        });
        let transaction = |word: u64| {
            let (of, subtransaction) = (word as u32, (word >> 32) as u32);
            let waits = of != 0 && !ended.contains(&subtransaction);
            let backend = waits.then(|| owner_of(backends, of)).flatten()?;
            Some(Edge::Transaction(backend, of))
        };
        last[1] = transaction(self.waits_xid.get());
        last[2] = transaction(self.awaited_in_queue(backends));
        edges
    }
}

/// Whether process `me` waits, directly or not, for itself. Who waits for one of the
/// subtransactions `ended` waits no longer, and has only not said so yet. A process may go on to
/// other transactions during the search. So what leads to it and what it waits for are looked at
/// within one of its generations.
pub fn is_in_circle(backends: &[Backend], rows: &[Row], ended: &[u32], me: BackendId) -> bool {
    let mut seen = vec![false; backends.len()];
    let mut stack = Vec::new();
    if let Some(own) = backends.get(me as usize) {
        // A ticket that has been granted to us meanwhile is no wait.
        let edges = own.edges(backends, rows, ended).into_iter().flatten();
        stack.extend(edges.filter(|edge| edge.target() != me));
    }
    while let Some(edge) = stack.pop() {
        let at = edge.target();
        let Some(backend) = backends.get(at as usize) else {
            continue;
        };
        let generation = backend.generation.get();
        if seen[at as usize] || !edge.holds(backends, rows) {
            continue;
        }
        if at == me {
            return true;
        }
        let edges = backend.edges(backends, rows, ended);
        if backend.generation.get() == generation {
            seen[at as usize] = true;
            stack.extend(edges.into_iter().flatten());
        }
    }
    false
}

/// The subtransactions whose row locks are awaited.
pub fn subtransactions_awaited(backends: &[Backend]) -> impl Iterator<Item = u32> {
    let words = backends.iter().map(|backend| backend.waits_xid.get());
    words
        .map(|word| (word >> 32) as u32)
        .filter(|&xid| xid != 0)
}

/// How many processes wait for the lock of that (sub)transaction's id as the first of a queue for a
/// row lock.
pub fn leaders(backends: &[Backend], xid: u32) -> usize {
    let leads = |backend: &&Backend| {
        let awaited = backend.waits_xid.get();
        let lock = match (awaited >> 32) as u32 {
            0 => awaited as u32,
            subtransaction => subtransaction,
        };
        backend.leads_queue.get() != 0 && lock == xid
    };
    backends.iter().filter(leads).count()
}

/// Whether that is the top transaction of a process which has edges.
pub fn is_top(backends: &[Backend], xid: u32) -> bool {
    backends.iter().any(|backend| backend.xid.get() == xid)
}

/// The process whose present transaction, a member of a hot row, has that id, or has written a
/// version as that subtransaction.
pub fn owner_of(backends: &[Backend], xid: u32) -> Option<BackendId> {
    backends
        .iter()
        .position(|a| a.is_known_as(xid))
        .map(|n| n as BackendId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, Members, Patience};

    fn backends(n: u32) -> Vec<Backend> {
        (0..n)
            .map(|i| {
                let backend = Backend::default();
                backend.xid.set(100 + i);
                backend
            })
            .collect()
    }

    #[test]
    fn opposite_orders_on_two_rows_close_a_circle() {
        let backends = backends(3);
        backends[0].depend(0, 1, 101);
        backends[1].depend(1, 2, 102);
        assert!((0..3).all(|me| !is_in_circle(&backends, &[], &[], me)));
        backends[2].depend(0, 0, 100);
        assert!((0..3).all(|me| is_in_circle(&backends, &[], &[], me)));
    }

    #[test]
    fn a_circle_that_one_is_not_in_is_somebody_elses() {
        let backends = backends(3);
        backends[0].depend(0, 1, 101);
        backends[1].depend(0, 2, 102);
        backends[2].depend(0, 1, 101);
        assert!(!is_in_circle(&backends, &[], &[], 0));
        assert!(is_in_circle(&backends, &[], &[], 1));
    }

    #[test]
    fn an_edge_to_an_ended_transaction_is_no_edge() {
        let backends = backends(2);
        backends[0].depend(0, 1, 101);
        backends[1].depend(0, 0, 100);
        backends[1].clear();
        assert!(!is_in_circle(&backends, &[], &[], 0));
        backends[1].xid.set(205);
        backends[1].depend(0, 0, 100);
        assert!(!is_in_circle(&backends, &[], &[], 0));
    }

    #[test]
    fn an_edge_to_a_subtransaction_goes_with_it() {
        let backends = backends(2);
        backends[0].writes_as(1, 500);
        backends[1].depend(0, 0, 500);
        backends[0].depend(2, 1, 101);
        assert!((0..2).all(|me| is_in_circle(&backends, &[], &[], me)));
        backends[0].writes_as(1, 0);
        assert!((0..2).all(|me| !is_in_circle(&backends, &[], &[], me)));
        backends[0].writes_as(1, 501);
        backends[1].depend(0, 0, 501);
        assert!((0..2).all(|me| is_in_circle(&backends, &[], &[], me)));
        backends[0].clear();
        backends[0].xid.set(102);
        assert!((0..2).all(|me| !is_in_circle(&backends, &[], &[], me)));
    }

    #[test]
    fn an_edge_to_a_locking_subtransaction_goes_with_it() {
        let backends = backends(3);
        let ended: Vec<u32> = vec![500];
        let are_in_circle =
            |ended: &[u32]| [0, 1, 2].map(|me| is_in_circle(&backends, &[], ended, me));
        backends[0].wait(Some(Wait::Subtransaction { xid: 500, of: 101 }));
        backends[1].wait(Some(Wait::Xid(100)));
        assert!(subtransactions_awaited(&backends).eq([500]));
        assert_eq!(are_in_circle(&[]), [true, true, false]);
        assert_eq!(are_in_circle(&[501]), [true, true, false]);
        assert_eq!(are_in_circle(&ended), [false; 3]);
        // In a queue.
        backends[0].leads(7);
        backends[0].depend(0, 2, 102);
        backends[2].wait(Some(Wait::Queue(7)));
        assert_eq!(are_in_circle(&[]), [true; 3]);
        assert_eq!(are_in_circle(&ended), [false; 3]);
        backends[0].wait(None);
        assert_eq!(subtransactions_awaited(&backends).count(), 0);
    }

    #[test]
    fn the_first_of_queues_are_counted() {
        let backends = backends(4);
        for (at, wait) in [(0, 103), (1, 103), (2, 102)] {
            backends[at].wait(Some(Wait::Xid(wait)));
        }
        let leaders = |xid| leaders(&backends, xid);
        assert_eq!(leaders(103), 0);
        backends[0].leads(7);
        backends[1].leads(8);
        backends[2].leads(9);
        assert_eq!(leaders(103), 2);
        backends[1].wait(None);
        assert_eq!(leaders(103), 1);
        backends[1].wait(Some(Wait::Subtransaction { xid: 500, of: 103 }));
        backends[1].leads(8);
        assert_eq!((leaders(103), leaders(500)), (1, 1));
    }

    #[test]
    fn tickets_and_row_locks_are_edges() {
        let backends = backends(3);
        let members: Vec<Member> = (0..3 * MEMBERS).map(|_| Member::default()).collect();
        let rows = [Row::default()];
        let patience = Patience {
            fair_every: 1,
            longest_wait: u64::MAX,
            newest_first: 0,
            holds: false,
            competitors: 1,
        };
        rows[0].acquire(Members { all: &members }, 2 * MEMBERS as u32, patience, 0);
        backends[0].wait(Some(Wait::Ticket(0)));
        backends[2].wait(Some(Wait::Xid(101)));
        backends[1].depend(0, 0, 100);
        assert!(is_in_circle(&backends, &rows, &[], 0));
        backends[2].wait(None);
        assert!(!is_in_circle(&backends, &rows, &[], 0));
        // Its own ticket.
        backends[2].wait(Some(Wait::Ticket(0)));
        assert!(!is_in_circle(&backends, &rows, &[], 2));
    }

    #[test]
    fn a_queue_waits_for_whom_its_first_waits_for() {
        let backends = backends(4);
        let are_in_circle = || (0..4).map(|me| is_in_circle(&backends, &[], &[], me));
        backends[1].wait(Some(Wait::Queue(7)));
        backends[2].wait(Some(Wait::Xid(100)));
        backends[0].wait(Some(Wait::Xid(101)));
        // Nobody is the first.
        assert!(are_in_circle().eq([false; 4]));
        backends[2].leads(7);
        // The first waits for the circle, and is not in it.
        assert!(are_in_circle().eq([true, true, false, false]));
        backends[3].wait(Some(Wait::Xid(102)));
        backends[2].depend(0, 3, 103);
        assert!(are_in_circle().eq([true, true, true, true]));
        backends[2].forget(0);
        backends[2].wait(None);
        assert!(are_in_circle().eq([false; 4]));
        // Another queue.
        backends[2].wait(Some(Wait::Xid(100)));
        backends[2].leads(8);
        assert!(are_in_circle().eq([false; 4]));
    }
}
