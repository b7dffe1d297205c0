//! Random schedules of combining: holders that do the updates of waiters and commit or roll back,
//! waiters that are cancelled or enter the lock manager. A lost wake-up is a deadlock, which
//! shuttle finds; the value must be what was told.

use super::latch::Latch;
use super::{check_pct, check_random};
use crate::{Acquired, BackendId, MEMBERS, Member, MemberId, Members, Outcome, Patience, Row};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

const ROUNDS: usize = 3;

struct Server {
    lock: Mutex<()>,
    row: Row,
    members: Vec<Member>,
    latches: Vec<Latch>,
    /// What the committed transactions have added.
    value: Mutex<u64>,
}

#[derive(Clone, Copy)]
struct Plan {
    rollbacks: bool,
    cancels: bool,
    enters_lock_manager: bool,
    fair_every: u32,
    competitors: u32,
    /// Every n-th backend does not offer its update; 0 for none.
    aloof: usize,
    most: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Done,
    RolledBack,
    Cancelled,
}

struct Session<'a> {
    server: &'a Server,
    plan: Plan,
    backend: BackendId,
    me: MemberId,
    offers: bool,
}

impl Session<'_> {
    fn with_row<R>(&self, body: impl FnOnce(&Row, Members) -> R) -> R {
        let _held = self.server.lock.lock().unwrap();
        let members = &self.server.members;
        body(&self.server.row, Members { all: members })
    }

    fn patience(&self) -> Patience {
        Patience {
            fair_every: self.plan.fair_every,
            longest_wait: u64::MAX,
            newest_first: u64::from(thread_rng().gen_bool(0.5)),
            holds: thread_rng().gen_bool(0.2),
            competitors: self.plan.competitors,
        }
    }

    fn chance(&self, wanted: bool) -> bool {
        wanted && thread_rng().gen_bool(0.3)
    }

    fn own(&self) -> &Member {
        &self.server.members[self.me as usize]
    }

    fn sleep(&self) {
        self.server.latches[self.backend as usize].wait();
    }

    fn wake(&self, backend: BackendId) {
        self.server.latches[backend as usize].set();
    }

    /// One update by a transaction of its own, as `ticket.rs` and `combine.rs` of the extension do
    /// it.
    fn run(&self) -> End {
        let mut offers = self.offers;
        let mut acquired = self.with_row(|row, w| {
            let acquired = row.acquire(w, self.me, self.patience(), 0);
            if offers {
                row.offer(w, self.me);
            }
            acquired
        });
        while acquired != Acquired::Granted {
            match self.own().outcome() {
                Outcome::Adopted => {
                    if self.chance(self.plan.cancels) && self.own().abandon() {
                        self.with_row(|row, _| row.part());
                        return End::Cancelled;
                    }
                    self.sleep();
                    continue;
                }
                Outcome::Fulfilled { rows, durable_at } => {
                    assert_eq!((rows, durable_at), (1, 7));
                    self.with_row(|row, _| row.part());
                    return End::Done;
                }
                Outcome::Refused => {
                    offers = false;
                    acquired = self.with_row(|row, w| row.enqueue(w, self.me, self.patience(), 0));
                    continue;
                }
                Outcome::Open => {}
            }
            acquired = self.with_row(|row, w| row.retry(w, self.me));
            if acquired == Acquired::Granted || self.own().outcome() != Outcome::Open {
                continue;
            }
            if self.chance(self.plan.enters_lock_manager) {
                self.with_row(|row, w| {
                    row.withdraw_offer(w, self.me) && row.enter_lock_manager(w, self.me)
                });
                thread::yield_now();
                if offers {
                    self.with_row(|row, w| row.offer(w, self.me));
                }
                continue;
            }
            self.sleep();
            if self.chance(self.plan.cancels) && self.cancel() {
                return End::Cancelled;
            }
        }
        self.lead()
    }

    /// Leaves the queue, unless the update is another's business already.
    fn cancel(&self) -> bool {
        if !self.with_row(|row, w| row.withdraw_offer(w, self.me)) {
            return false;
        }
        let woken = self.with_row(|row, w| {
            let woken = row.leave(w, self.me, self.patience(), 0);
            row.part();
            woken
        });
        woken.into_iter().for_each(|backend| self.wake(backend));
        true
    }

    fn lead(&self) -> End {
        let mut adopted = Vec::new();
        if self.offers {
            self.with_row(|row, w| {
                row.adopt(w, self.plan.most, |_| true, |one| adopted.push(one));
            });
        }
        let members = Members {
            all: &self.server.members,
        };
        thread::yield_now();
        let sealed = adopted.iter().all(|&one| members.seal(one));
        let end = if !sealed || self.chance(self.plan.rollbacks) {
            adopted.retain(|&one| members.refuse(one));
            End::RolledBack
        } else {
            *self.server.value.lock().unwrap() += 1 + adopted.len() as u64;
            adopted.iter().for_each(|&one| members.fulfil(one, 1, 7));
            End::Done
        };
        let woken = self.with_row(|row, w| {
            let woken = row.release(w, self.me, self.patience(), 0);
            row.part();
            woken
        });
        woken.into_iter().for_each(|backend| self.wake(backend));
        adopted
            .into_iter()
            .for_each(|one| self.wake(crate::backend_of(one.member)));
        end
    }
}

fn play(backends: usize, plan: Plan) {
    let server = Arc::new(Server {
        lock: Mutex::new(()),
        row: Row::default(),
        members: (0..backends * MEMBERS).map(|_| Member::default()).collect(),
        latches: (0..backends).map(|_| Latch::default()).collect(),
        value: Mutex::new(0),
    });
    let threads: Vec<_> = (0..backends)
        .map(|backend| {
            let server = server.clone();
            thread::spawn(move || {
                let session = Session {
                    server: &server,
                    plan,
                    backend: backend as BackendId,
                    me: (backend * MEMBERS) as MemberId,
                    offers: plan.aloof == 0 || backend % plan.aloof != 0,
                };
                (0..ROUNDS).filter(|_| session.run() == End::Done).count() as u64
            })
        })
        .collect();
    let told: u64 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(*server.value.lock().unwrap(), told);
    assert!(
        server.row.is_idle(),
        "a membership outlives its transaction"
    );
    let row = &server.row;
    assert_eq!((row.waiting(), row.holding.get()), (0, 0));
}

const CALM: Plan = Plan {
    rollbacks: false,
    cancels: false,
    enters_lock_manager: false,
    fair_every: 1000,
    competitors: 0,
    aloof: 0,
    most: 8,
};

#[test]
fn everybody_is_done_once() {
    check_random(|| play(4, CALM), 4000);
}

#[test]
fn the_refused_go_on_alone() {
    let plan = Plan {
        rollbacks: true,
        ..CALM
    };
    check_random(move || play(4, plan), 4000);
}

#[test]
fn everything_at_once() {
    let plan = Plan {
        rollbacks: true,
        cancels: true,
        enters_lock_manager: true,
        fair_every: 3,
        competitors: 1,
        aloof: 3,
        most: 2,
    };
    check_random(move || play(4, plan), 6000);
    check_pct(move || play(3, plan), 3000, 4);
}
