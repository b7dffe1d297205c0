//! One transaction: what `src/hotlock` does with the memberships of one session.

mod ends;

use super::server::{Fate, ROWS, Server};
use super::{Fault, Plan};
use crate::{
    Acquired, BackendId, Base, MEMBERS, MemberId, Members, Membership, Patience, Row, Slot, State,
    Tail, Wait, backend_of, is_in_circle,
};
use shuttle::rand::{Rng, thread_rng};
use std::cell::{Cell, RefCell};

const PATIENCE: Patience = Patience {
    fair_every: 2,
    longest_wait: u64::MAX,
    newest_first: 1,
    holds: false,
    competitors: 1,
};

/// An ERROR: the transaction rolls back.
pub struct Failed;

type Done = Result<(), Failed>;

pub struct Session<'a> {
    server: &'a Server,
    plan: Plan,
    backend: BackendId,
    xid: u32,
    /// By row.
    memberships: [Cell<Option<Membership>>; ROWS],
    /// The uncommitted versions that the client has been shown something of: row, writer, version.
    seen: RefCell<Vec<(usize, u32, u64)>>,
}

impl<'a> Session<'a> {
    pub fn begin(server: &'a Server, backend: BackendId, plan: Plan) -> Self {
        let xid = server.begin();
        server.backends[backend as usize].xid.publish(xid);
        Session {
            server,
            plan,
            backend,
            xid,
            memberships: std::array::from_fn(|_| Cell::new(None)),
            seen: RefCell::default(),
        }
    }

    pub fn run(self) {
        let (row, both) = (thread_rng().gen_range(0..ROWS), self.chance(self.plan.both));
        if self.chance(0.15) {
            self.only_read(row);
        } else {
            let worked = self.work(row, both);
            if worked.is_err() || self.chance(self.plan.rollbacks) || self.commit().is_err() {
                self.roll_back();
            }
        }
    }

    fn chance(&self, share: f64) -> bool {
        share > 0.0 && thread_rng().gen_bool(share)
    }

    fn has(&self, fault: Fault) -> bool {
        self.plan.fault == Some(fault)
    }

    fn me(&self, n: usize) -> MemberId {
        self.backend * MEMBERS as u32 + n as u32
    }

    fn get(&self, n: usize) -> Membership {
        self.memberships[n].get().expect("a member")
    }

    fn with_row<R>(&self, n: usize, body: impl FnOnce(&Row, Members) -> R) -> R {
        self.server.with_row(n as Slot, body)
    }

    fn wake(&self, backend: Option<BackendId>) {
        if let Some(backend) = backend {
            self.server.latches[backend as usize].set();
        }
    }

    fn step(&self, n: usize, transition: impl FnOnce(Membership) -> Membership) {
        self.memberships[n].set(Some(transition(self.get(n))));
    }

    /// The state machine says what the shared words say.
    fn agree(&self, n: usize) {
        let (me, membership) = (self.me(n), self.get(n));
        let (has_ticket, is_listed) = self.with_row(n, |row, members| {
            (row.holder() == Some(me), row.is_linked(members, me))
        });
        assert!(
            membership.has_ticket() == has_ticket || membership.state() == &State::Queued,
            "ticket: {membership:?}"
        );
        let is_doomed = self.server.members[me as usize].is_doomed();
        assert!(
            membership.is_listed() == is_listed || is_doomed && !is_listed,
            "list: {membership:?}"
        );
    }

    /// Declares a wait or a dependency. An ERROR if that closes a cycle.
    fn declare(&self, declare: impl FnOnce()) -> Done {
        let _held = self.server.graph.lock().unwrap();
        declare();
        let (backends, rows) = (&self.server.backends, &self.server.rows);
        if is_in_circle(backends, rows, &[], self.backend) && !self.has(Fault::CircleClosed) {
            return Err(Failed);
        }
        Ok(())
    }

    fn work(&self, first: usize, both: bool) -> Done {
        self.visit(first, !both)?;
        if both {
            // A follower lets its predecessors go first to the next row.
            self.wait_for_predecessors()?;
            self.visit(1 - first, false)?;
        }
        Ok(())
    }

    fn visit(&self, n: usize, alone: bool) -> Done {
        self.memberships[n].set(Some(Membership::begin(n as Slot, 0, 1)));
        self.server.members[self.me(n) as usize].begin(n as Slot);
        self.ticket(n)?;
        self.step(n, |m| m.claimed_by(Some(1)).came_with(1 << 32));
        self.agree(n);
        match thread_rng().gen_range(0..10) {
            0..6 => self.update(n, alone)?,
            6..8 => self.look(n)?,
            _ => {
                self.lock(n)?;
                self.agree(n);
                if self.chance(0.7) {
                    self.update(n, alone)?;
                }
            }
        }
        if self.memberships[n].get().is_some() {
            self.agree(n);
        }
        Ok(())
    }

    fn ticket(&self, n: usize) -> Done {
        let me = self.me(n);
        let mut acquired = self.with_row(n, |row, w| row.acquire(w, me, PATIENCE, 0));
        if acquired != Acquired::Granted {
            if self.has(Fault::TicketTaken) {
                // As if granted: the place in the queue stays.
                self.step(n, |m| m.queued().granted());
                return Ok(());
            }
            self.step(n, Membership::queued);
            let own = &self.server.backends[self.backend as usize];
            self.declare(|| own.wait(Some(Wait::Ticket(n as Slot))))?;
        }
        while acquired != Acquired::Granted {
            acquired = self.with_row(n, |row, w| row.retry(w, me));
            if acquired != Acquired::Granted {
                self.server.latches[self.backend as usize].wait();
                if self.chance(self.plan.cancels) {
                    return Err(Failed);
                }
            }
        }
        self.server.backends[self.backend as usize].wait(None);
        self.step(n, Membership::granted);
        Ok(())
    }

    /// An uncommitted version is about to be looked at. What has been locked before was shown to
    /// the client: an ERROR if its writer has rolled back, and the list now ends with another.
    fn offer(&self, n: usize, tail: &Tail) -> Done {
        let lender = self
            .get(n)
            .predecessor()
            .filter(|_| self.get(n).has_locked());
        if let Some(lender) = lender.filter(|&lender| lender != tail.xid)
            && !matches!(self.server.fate(lender), Fate::Committed(_))
        {
            return Err(Failed);
        }
        let own = &self.server.backends[self.backend as usize];
        self.declare(|| own.depend(n, backend_of(tail.member), tail.xid))?;
        self.step(n, |m| m.offered(tail.tid, tail.xid, 0));
        Ok(())
    }

    fn forget_offer(&self, n: usize) {
        self.with_row(n, |row, _| row.take_back_tail());
        self.step(n, Membership::offer_forgotten);
        if !self.get(n).has_locked() {
            self.server.backends[self.backend as usize].forget(n);
        }
    }

    fn tail(&self, n: usize) -> Option<Tail> {
        self.with_row(n, |row, w| row.tail(w))
    }

    fn protect(&self, row: &Row, tail: &Tail) {
        if !self.has(Fault::OfferNotProtected) {
            row.offer_tail(tail.member);
        }
    }

    /// The version of the list's tail, which is about to be looked at. None: nobody runs in the
    /// list.
    fn open_tail(&self, n: usize) -> Result<Option<Tail>, Failed> {
        loop {
            let tail = self.with_row(n, |row, w| {
                let tail = row.tail(w)?;
                if tail.open {
                    self.protect(row, &tail);
                }
                Some(tail)
            });
            match tail {
                Some(tail) if !tail.open => self.await_tail(n, &tail)?,
                tail => return Ok(tail),
            }
        }
    }

    fn update(&self, n: usize, alone: bool) -> Done {
        let me = self.me(n);
        loop {
            let membership = self.get(n);
            let followed = self.with_row(n, |row, w| {
                let tail = row.tail(w)?;
                let follows = tail.open && membership.has_looked_at(tail.tid);
                if follows {
                    row.link_writer(w, me, self.xid, 0);
                } else if tail.open {
                    self.protect(row, &tail);
                }
                Some((tail, follows))
            });
            match followed {
                None => return self.write(n, alone),
                Some((tail, true)) => {
                    if self.follow(n, &tail)? {
                        return Ok(());
                    }
                }
                Some((tail, false)) if tail.open => {
                    self.offer(n, &tail)?;
                    if self.chance(0.5) {
                        self.step(n, Membership::handed_out);
                    }
                }
                Some((tail, false)) => self.await_tail(n, &tail)?,
            }
        }
    }

    /// The group update. False if the page does not allow it.
    fn follow(&self, n: usize, tail: &Tail) -> Result<bool, Failed> {
        let me = self.me(n);
        let base = Base {
            version: tail.tid,
            xid: tail.xid,
        };
        self.step(n, |m| m.reserves(base));
        self.agree(n);
        if self.chance(self.plan.failures) {
            let lent = self.get(n).lent().is_some();
            self.with_row(n, |row, w| match lent {
                true => row.step_back(w, me),
                false => row.withdraw(w, me),
            });
            self.step(n, Membership::steps_back);
            self.await_tail(n, tail)?;
            return Ok(false);
        }
        let version = self.server.write(n, self.backend, self.xid, tail.tid);
        let woken = self.with_row(n, |row, w| {
            row.publish(w, me, version);
            row.release(w, me, PATIENCE, 0)
        });
        self.step(n, |m| m.follows(version, 1, 0));
        self.wake(woken);
        self.seen.borrow_mut().push((n, tail.xid, tail.tid));
        self.change_again(n)?;
        Ok(true)
    }

    /// Heap's own update: nobody runs in the list.
    fn write(&self, n: usize, alone: bool) -> Done {
        let me = self.me(n);
        if self.get(n).lent().is_some() {
            self.wait_for_predecessor(n)?;
            self.step(n, Membership::hands_emptied);
        } else if let Some(offer) = self.get(n).offer()
            && self.server.fate(offer.xid) == Fate::RolledBack
        {
            self.step(n, Membership::starts_again);
            self.forget_offer(n);
        }
        self.step(n, Membership::goes_heaps_way);
        let (base, _) = self.server.committed_version(n);
        let version = self.server.write(n, self.backend, self.xid, base);
        self.step(n, |m| m.writes(version, 1));
        self.agree(n);
        if !alone || self.chance(0.7) {
            let woken = self.with_row(n, |row, w| {
                row.link_writer(w, me, self.xid, version);
                row.release(w, me, PATIENCE, 0)
            });
            self.step(n, Membership::leads);
            self.wake(woken);
            self.change_again(n)?;
        }
        Ok(())
    }

    /// Some update their own version again, if nobody follows it.
    fn change_again(&self, n: usize) -> Done {
        let (me, Some(own)) = (self.me(n), self.get(n).version()) else {
            return Ok(());
        };
        if !self.chance(0.1) {
            return Ok(());
        }
        if !self.with_row(n, |row, w| !row.is_linked(w, me) || row.close(w, me)) {
            return Err(Failed);
        }
        let version = {
            let mut heap = self.server.heap.lock().unwrap();
            heap.versions[n].push((self.xid, own));
            heap.versions[n].len() as u64
        };
        self.step(n, |m| m.writes_again(version, 1, false));
        Ok(())
    }

    /// The statement looks at the last version, and changes nothing.
    fn look(&self, n: usize) -> Done {
        let me = self.me(n);
        if let Some(tail) = self.open_tail(n)? {
            self.offer(n, &tail)?;
            self.step(n, Membership::handed_out);
            self.seen.borrow_mut().push((n, tail.xid, tail.tid));
            if !self.has(Fault::ReaderForgotten) {
                let listed = self.link(n, |_| true);
                let woken = self.with_row(n, |row, w| row.leave(w, me, PATIENCE, 0));
                self.step(n, |m| m.reads(listed));
                self.wake(woken);
                return Ok(());
            }
        }
        self.leave(n);
        Ok(())
    }

    fn link(&self, n: usize, wanted: impl FnOnce(&Tail) -> bool) -> bool {
        let (me, predecessor) = (self.me(n), self.get(n).predecessor());
        self.with_row(n, |row, w| {
            let tail = row.tail(w);
            let still = tail.is_some_and(|tail| predecessor == Some(tail.xid) && wanted(&tail));
            if still {
                row.link_reader(w, me, self.xid);
            }
            still
        })
    }

    /// SELECT FOR UPDATE.
    fn lock(&self, n: usize) -> Done {
        while let Some(tail) = self.open_tail(n)? {
            self.offer(n, &tail)?;
            if self.link(n, |tail| tail.open) {
                if !self.chance(self.plan.failures) {
                    self.step(n, |m| m.lends(tail.tid));
                    self.seen.borrow_mut().push((n, tail.xid, tail.tid));
                    return Ok(());
                }
                self.with_row(n, |row, w| row.withdraw(w, self.me(n)));
            }
            self.forget_offer(n);
            self.await_tail(n, &tail)?;
        }
        self.step(n, Membership::locked);
        Ok(())
    }

    /// Waits for the tail's transaction in the lock manager, with the ticket.
    fn await_tail(&self, n: usize, tail: &Tail) -> Done {
        self.with_row(n, |row, _| row.take_back_tail());
        let own = &self.server.backends[self.backend as usize];
        self.declare(|| own.wait(Some(Wait::Xid(tail.xid))))?;
        self.server.wait_for_end(tail.xid);
        own.wait(None);
        self.check_doomed()?;
        while self.tail(n).is_some_and(|now| now.xid == tail.xid) {
            shuttle::thread::yield_now();
        }
        Ok(())
    }
}
