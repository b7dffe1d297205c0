//! Random schedules of whole transactions on one hot row. shuttle finds deadlocks (a lost wake-up
//! is one) by itself. The invariants of docs/design/group-locking.md are asserted where they must
//! hold.

use super::server::{Fate, Server};
use super::{check_pct, check_random};
use crate::{Acquired, BackendId, MEMBERS, MemberId, Patience, backend_of};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

const ROUNDS: usize = 3;

#[derive(Clone, Copy)]
struct Plan {
    /// Transactions are prepared, and ended by another session.
    prepares: bool,
    rollbacks: bool,
    /// Updates in subtransactions, which roll back where whole transactions do.
    nested: bool,
    cancels: bool,
    enters_lock_manager: bool,
    fair_every: u32,
    competitors: u32,
}

pub(super) struct Transaction<'a> {
    pub server: &'a Server,
    plan: Plan,
    backend: BackendId,
    pub me: MemberId,
    xid: u32,
    others: &'a Mutex<Vec<u32>>,
}

impl Transaction<'_> {
    fn patience(&self) -> Patience {
        Patience {
            fair_every: self.plan.fair_every,
            longest_wait: u64::MAX,
            newest_first: u64::from(thread_rng().gen_bool(0.5)),
            holds: thread_rng().gen_bool(0.2),
            competitors: self.plan.competitors,
        }
    }

    fn wake(&self, backend: Option<BackendId>) {
        if let Some(backend) = backend {
            self.server.wake(backend);
        }
    }

    /// Gets the ticket, for the first time or once more, or is cancelled on the way.
    fn ticket(&self, is_first: bool) -> bool {
        let server = self.server;
        match server.with_row(|row, w| {
            if is_first {
                row.acquire(w, self.me, self.patience(), 0)
            } else {
                row.enqueue(w, self.me, self.patience(), 0)
            }
        }) {
            Acquired::Granted => return true,
            Acquired::Competing if server.with_row(|row, w| row.compete(w, self.me)) => {
                return true;
            }
            Acquired::Competing | Acquired::Queued => {}
        }
        loop {
            if server.with_row(|row, w| row.retry(w, self.me)) == Acquired::Granted {
                return true;
            }
            if self.plan.enters_lock_manager && thread_rng().gen_bool(0.3) {
                let holder = server.with_row(|row, w| {
                    if row.enter_lock_manager(w, self.me) {
                        row.holder().map(backend_of)
                    } else {
                        None
                    }
                });
                if let Some(holder) = holder {
                    let xid = self.others.lock().unwrap()[holder as usize];
                    server.wait_for_end(xid);
                }
            } else {
                server.latches[self.backend as usize].wait();
            }
            if self.plan.cancels && thread_rng().gen_bool(0.3) {
                let woken = server.with_row(|row, w| row.leave(w, self.me, self.patience(), 0));
                self.wake(woken);
                return false;
            }
        }
    }

    fn run(&self) {
        let server = self.server;
        let mut is_first = true;
        loop {
            let writer = if self.plan.nested {
                server.begin()
            } else {
                self.xid
            };
            let Some((predecessor, base)) = self.update(writer, is_first) else {
                return self.roll_back(writer);
            };
            is_first = false;
            if self.plan.nested && self.wants_rollback() {
                self.roll_back_to_savepoint(writer);
                // What was seen stays seen, and the predecessor ends before the next statement.
                if let Some(predecessor) = predecessor {
                    server.wait_for_end(predecessor);
                    if server.members[self.me as usize].is_doomed()
                        || server.fate(predecessor) != Fate::Committed
                    {
                        return self.leave(&[self.xid]);
                    }
                }
                continue;
            }
            return if self.wants_rollback() || !self.may_commit(predecessor) {
                self.roll_back(writer)
            } else {
                self.commit(writer, base)
            };
        }
    }

    fn wants_rollback(&self) -> bool {
        self.plan.rollbacks && thread_rng().gen_bool(0.3)
    }

    /// Writes a version in the name of `writer`: what it depends on, and on which version it
    /// stands. None: cancelled.
    fn update(&self, writer: u32, is_first: bool) -> Option<(Option<u32>, u64)> {
        let server = self.server;
        if !self.ticket(is_first) {
            return None;
        }
        let before = server.updating.lock().unwrap().replace(self.backend);
        assert_eq!(before, None, "two tickets for one row");
        server.settle_tail();
        let (predecessor, base) = server.with_row(|row, w| match row.tail(w) {
            Some(tail) => {
                row.link_writer(w, self.me, writer, 0);
                (Some(tail.xid), Some(tail.tid))
            }
            None => (None, None),
        });
        let base = base.unwrap_or_else(|| server.last_committed_version());
        let version = {
            let mut versions = server.versions.lock().unwrap();
            versions.push((writer, base));
            versions.len() as u64
        };
        *server.updating.lock().unwrap() = None;
        if thread_rng().gen_bool(0.3) {
            server.with_row(|row, _| row.go_away(self.me));
            self.wake(server.with_row(|row, w| row.come_back(w, self.me, self.patience(), 0)));
        }
        let woken = server.with_row(|row, w| {
            match predecessor {
                Some(_) => row.publish(w, self.me, version),
                None => row.link_writer(w, self.me, writer, version),
            }
            row.release(w, self.me, self.patience(), 0)
        });
        self.wake(woken);
        Some((predecessor, base))
    }

    /// Ends the transaction's subtransaction: those behind it are doomed, and the transaction goes
    /// on.
    fn roll_back_to_savepoint(&self, writer: u32) {
        let server = self.server;
        server.end(&[writer], Fate::RolledBack);
        let mut woken = Vec::new();
        server.with_row(|row, w| {
            row.roll_back(w, self.me, |backend| woken.push(backend));
        });
        woken
            .into_iter()
            .for_each(|backend| self.wake(Some(backend)));
    }

    /// PRE_COMMIT: waits for the predecessor; PostgreSQL's record gives the permission.
    fn may_commit(&self, predecessor: Option<u32>) -> bool {
        let server = self.server;
        let Some(predecessor) = predecessor else {
            return true;
        };
        while !server.members[self.me as usize].is_doomed()
            && server.with_row(|row, w| row.await_predecessor(w, self.me))
        {
            if self.plan.enters_lock_manager && thread_rng().gen_bool(0.3) {
                server.wait_for_end(predecessor);
            } else {
                server.latches[self.backend as usize].wait();
            }
        }
        if server.members[self.me as usize].is_doomed() {
            return false;
        }
        server.fate(predecessor) == Fate::Committed
    }

    fn commit(&self, writer: u32, base: u64) {
        let server = self.server;
        if let Some(below) = base.checked_sub(1) {
            let writer = server.versions.lock().unwrap()[below as usize].0;
            assert_eq!(
                server.fate(writer),
                Fate::Committed,
                "a follower commits before its predecessor"
            );
        }
        assert!(
            !server.members[self.me as usize].is_doomed(),
            "a doomed transaction commits"
        );
        if self.plan.prepares && thread_rng().gen_bool(0.5) && self.prepare(writer) {
            return;
        }
        server.end(&self.ids(writer), Fate::Committed);
        let mut woken = Vec::new();
        server.with_row(|row, w| {
            row.depart(w, self.me, |backend| woken.push(backend));
            w.forgive(self.me);
            row.part();
        });
        woken
            .into_iter()
            .for_each(|backend| self.wake(Some(backend)));
    }

    fn roll_back(&self, writer: u32) {
        self.leave(&self.ids(writer));
    }

    /// Rolls the transaction back, with what of it still runs.
    fn leave(&self, xids: &[u32]) {
        let server = self.server;
        server.end(xids, Fate::RolledBack);
        let mut woken = Vec::new();
        server.with_row(|row, w| {
            row.roll_back(w, self.me, |backend| woken.push(backend));
            w.forgive(self.me);
            row.part();
        });
        woken
            .into_iter()
            .for_each(|backend| self.wake(Some(backend)));
    }

    pub fn ids(&self, writer: u32) -> Vec<u32> {
        let mut ids = vec![self.xid, writer];
        ids.dedup();
        ids
    }
}

fn play(backends: usize, plan: Plan) {
    let server = Arc::new(Server::new(backends));
    let current = Arc::new(Mutex::new(vec![0; backends]));
    let threads: Vec<_> = (0..backends)
        .map(|backend| {
            let (server, current) = (server.clone(), current.clone());
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    let xid = server.begin();
                    current.lock().unwrap()[backend] = xid;
                    let me = (backend * MEMBERS) as MemberId;
                    let backend = backend as BackendId;
                    Transaction {
                        server: &server,
                        plan,
                        backend,
                        me,
                        xid,
                        others: &current,
                    }
                    .run();
                }
            })
        })
        .collect();
    let finisher = {
        let server = server.clone();
        thread::spawn(move || server.finish_prepared(plan.rollbacks))
    };
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    server.prepared.close();
    finisher.join().unwrap();
    assert!(
        server.row.is_idle(),
        "a membership outlives its transaction"
    );
    let row = &server.row;
    assert_eq!((row.waiting(), row.holding.get(), row.running()), (0, 0, 0));
    let versions = server.versions.lock().unwrap();
    let fates = server.fates.lock().unwrap();
    let committed = |writer: u32| fates[writer as usize - 1] == Fate::Committed;
    for (n, &(writer, base)) in versions.iter().enumerate() {
        if committed(writer) {
            let rivals = versions
                .iter()
                .enumerate()
                .filter(|&(m, &(w, b))| m != n && b == base && committed(w));
            assert_eq!(rivals.count(), 0, "two committed versions on top of one");
        }
    }
}

const CALM: Plan = Plan {
    prepares: false,
    rollbacks: false,
    nested: false,
    cancels: false,
    enters_lock_manager: false,
    fair_every: 2,
    competitors: 1,
};

#[test]
fn every_transaction_commits_in_order_and_none_sleeps_for_ever() {
    check_random(|| play(4, CALM), 3000);
}

#[test]
fn barging_without_direct_grants_starves_nobody_to_death() {
    check_random(
        || {
            play(
                4,
                Plan {
                    fair_every: 1000,
                    ..CALM
                },
            )
        },
        3000,
    );
}

#[test]
fn rollbacks_doom_all_followers_and_only_them() {
    check_random(
        || {
            play(
                4,
                Plan {
                    rollbacks: true,
                    ..CALM
                },
            )
        },
        4000,
    );
}

#[test]
fn subtransactions_roll_back_with_those_behind_them() {
    let plan = Plan {
        rollbacks: true,
        nested: true,
        ..CALM
    };
    check_random(move || play(4, plan), 4000);
}

#[test]
fn cancelled_waiters_pass_their_turn_on() {
    check_random(
        || {
            play(
                4,
                Plan {
                    cancels: true,
                    ..CALM
                },
            )
        },
        4000,
    );
}

#[test]
fn waiters_in_the_lock_manager_come_back() {
    check_random(
        || {
            play(
                4,
                Plan {
                    enters_lock_manager: true,
                    ..CALM
                },
            )
        },
        4000,
    );
}

#[test]
fn prepared_transactions_are_followed_and_fall_with_all_behind() {
    for rollbacks in [false, true] {
        let plan = Plan {
            prepares: true,
            rollbacks,
            ..CALM
        };
        check_random(move || play(4, plan), 4000);
    }
}

#[test]
fn everything_at_once() {
    for nested in [false, true] {
        let plan = Plan {
            prepares: true,
            rollbacks: true,
            nested,
            cancels: true,
            enters_lock_manager: true,
            fair_every: 3,
            competitors: 2,
        };
        check_random(move || play(4, plan), 6000);
        check_pct(move || play(3, plan), 3000, 4);
    }
}
