//! The end of a transaction: in update order, early for the next one, late enough for the client.

use super::{Done, Failed, PATIENCE, Session};
use crate::model::memberships::Fault;
use crate::model::memberships::server::{Fate, ROWS};
use crate::{BackendId, Level, MemberId, Members, Membership, Row, Verdict};

impl Session<'_> {
    pub(super) fn check_doomed(&self) -> Done {
        let is_doomed = self
            .all()
            .any(|(n, m)| m.is_listed() && self.server.members[self.me(n) as usize].is_doomed());
        if is_doomed && !self.has(Fault::DoomedCommits) {
            return Err(Failed);
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = (usize, Membership)> {
        (0..ROWS).filter_map(|n| Some((n, self.memberships[n].get()?)))
    }

    pub(super) fn wait_for_predecessors(&self) -> Done {
        self.all()
            .filter(|(_, m)| m.depends())
            .try_for_each(|(n, _)| self.wait_for_predecessor(n))
    }

    pub(super) fn wait_for_predecessor(&self, n: usize) -> Done {
        let Some(predecessor) = self.get(n).predecessor() else {
            return Ok(());
        };
        let me = self.me(n);
        self.check_doomed()?;
        while self.with_row(n, |row, w| row.await_predecessor(w, me)) {
            self.server.latches[self.backend as usize].wait();
            self.check_doomed()?;
        }
        self.check_doomed()?;
        self.server.members[me as usize].patient.publish(1);
        self.server.wait_for_end(predecessor);
        self.server.members[me as usize].patient.publish(0);
        let has_committed = matches!(self.server.fate(predecessor), Fate::Committed(_));
        if !has_committed && !self.has(Fault::DoomedCommits) {
            return Err(Failed);
        }
        self.step(n, Membership::predecessor_committed);
        self.server.backends[self.backend as usize].forget(n);
        Ok(())
    }

    pub(super) fn commit(&self) -> Done {
        self.wait_for_predecessors()?;
        self.check_doomed()?;
        let written = || self.all().filter(|(_, m)| m.has_version());
        let has_written = written().next().is_some();
        let announces = !self.has(Fault::VisibleUnannounced);
        if announces {
            let guard = &self.server.guard;
            guard.begin(Level::Local);
            written().for_each(|(n, _)| guard.announce(Level::Local, 0, n as u32));
        }
        let end = self.server.log();
        self.check_commit(end);
        self.server.end(self.xid, Fate::Committed(end));
        if announces {
            let guard = &self.server.guard;
            written().for_each(|(n, _)| guard.settle(Level::Local, 0, n as u32, end));
            guard.end(Level::Local, end);
        }
        self.finish(|row, w, me, wake| row.depart(w, me, wake));
        let until = match has_written {
            true => end,
            false => self.server.end_of_wal(),
        };
        self.server.flush(self.backend, until);
        self.acknowledge(end);
        Ok(())
    }

    /// The invariants "commit order" and "doomed".
    fn check_commit(&self, end: u64) {
        let bases = self.all().filter_map(|(_, m)| Some(m.base()?.xid));
        let seen = self.seen.borrow();
        for &(row, writer, version) in seen.iter() {
            assert!(
                !self.server.has_changed(row, writer, version),
                "what was looked at has been changed by its writer"
            );
        }
        for writer in bases.chain(seen.iter().map(|&(_, writer, _)| writer)) {
            match self.server.fate(writer) {
                Fate::Committed(before) => assert!(before < end, "WAL has them in another order"),
                Fate::RolledBack => panic!("what was built on is rolled back"),
                Fate::Running => panic!("what was looked at is not committed"),
            }
        }
    }

    /// The client hears COMMIT.
    fn acknowledge(&self, end: u64) {
        assert!(self.server.flushed() >= end, "a commit is not durable");
    }

    pub(super) fn roll_back(&self) {
        self.server.end(self.xid, Fate::RolledBack);
        self.finish(|row, w, me, wake| {
            row.roll_back(w, me, wake);
        });
    }

    fn finish(&self, leave: impl Fn(&Row, Members, MemberId, &mut dyn FnMut(BackendId))) {
        for (n, membership) in self.all() {
            let me = self.me(n);
            let mut woken = Vec::new();
            let ticket = self.with_row(n, |row, w| {
                leave(row, w, me, &mut |backend| woken.push(backend));
                let keeps = self.has(Fault::TicketKept) && membership.has_ticket();
                let ticket = match keeps {
                    true => None,
                    false => row.leave(w, me, PATIENCE, 0),
                };
                w.forgive(me);
                row.part();
                ticket
            });
            if !self.has(Fault::WakeLost) {
                woken
                    .into_iter()
                    .for_each(|backend| self.wake(Some(backend)));
            }
            self.wake(ticket);
        }
        self.server.backends[self.backend as usize].clear();
    }

    /// Ends a membership that has come to nothing.
    pub(super) fn leave(&self, n: usize) {
        let me = self.me(n);
        let woken = self.with_row(n, |row, w| {
            let woken = row.leave(w, me, PATIENCE, 0);
            w.forgive(me);
            row.part();
            woken
        });
        self.wake(woken);
        self.server.backends[self.backend as usize].forget(n);
        self.memberships[n].set(None);
    }

    /// A transaction that has nothing to do with the row but that it reads it.
    pub(super) fn only_read(&self, row: usize) {
        let (_, writer) = self.server.committed_version(row);
        if !self.has(Fault::GuardNotAsked) {
            match self.server.guard.check(Level::Local, 0, row as u32) {
                Verdict::Durable => {}
                Verdict::Until(until) => self.server.flush(self.backend, until),
                Verdict::Everything => self.server.flush(self.backend, self.server.end_of_wal()),
            }
        }
        if writer != 0 {
            let Fate::Committed(end) = self.server.fate(writer) else {
                panic!("a snapshot has shown what is not committed");
            };
            assert!(self.server.flushed() >= end, "what was read is not durable");
        }
        self.server.end(self.xid, Fate::Committed(0));
        self.server.backends[self.backend as usize].clear();
    }
}
