//! Many clients at once, each with a fixed number of transactions, so that nothing depends on
//! speed. A load that has to move a counter goes on until it has.
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use pgserver::Server;
use postgres::error::{DbError, SqlState};
use postgres::{Client, Config, Error, NoTls};

use crate::tally::LOST;
use crate::{Done, Tally, Watchdog, Worker, int};

/// How often a load is repeated at most until its counter has moved. Whether anybody follows in one
/// repetition is left to the scheduler: with 2 of 1000 transactions it may be nobody.
const REPETITIONS: usize = 50;

/// How often somebody who waits looks again.
const TICK: Duration = Duration::from_millis(10);

/// A load of `clients`, each of which tries `attempts` transactions. It outlives its server's
/// death: a client whose connection broke comes back as soon as there is a server again.
pub struct Load {
    config: Config,
    data_dir: PathBuf,
    clients: usize,
    attempts: usize,
    /// It ends when whoever disturbs it has done so.
    is_endless: bool,
    session: Box<dyn Fn(usize) -> String + Sync>,
    /// The counter of `txn.stats` that has to have grown in the end.
    moves: Option<&'static str>,
}

/// The load as seen by who disturbs it.
pub struct Running<'a> {
    done: &'a AtomicUsize,
    over: &'a AtomicBool,
}

impl Running<'_> {
    /// Waits until `transactions` have ended one way or another; false if the load ends before.
    pub fn wait_for(&self, transactions: usize) -> bool {
        while self.done.load(Ordering::Relaxed) < transactions {
            if self.over() {
                return false;
            }
            sleep(TICK);
        }
        true
    }

    /// Transactions that have ended so far.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Every client has made its last attempt.
    pub fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

impl Load {
    pub fn new(server: &Server, clients: usize, attempts: usize) -> Self {
        Load {
            config: server.config("postgres", "postgres"),
            data_dir: server.data_dir().to_owned(),
            clients,
            attempts,
            is_endless: false,
            session: Box::new(|_| String::new()),
            moves: None,
        }
    }

    /// A load that goes on for as long as it is disturbed (`run_disturbed`).
    pub fn endless(server: &Server, clients: usize) -> Self {
        Load {
            is_endless: true,
            ..Load::new(server, clients, usize::MAX)
        }
    }

    /// What client `number` runs at the start of each of its sessions.
    pub fn session(mut self, sql: impl Fn(usize) -> String + Sync + 'static) -> Self {
        self.session = Box::new(sql);
        self
    }

    /// All sessions with group locking of every row that is fought over; somebody has to follow.
    pub fn grouped(self) -> Self {
        self.session(|_| "SET txn.group_lock = on; SET txn.hot_threshold = 1".to_owned())
            .moves("followed + combined")
    }

    /// The load goes on until this counter of `txn.stats` has grown, and fails if it does not:
    /// without what it counts, the test has tested nothing of what it is about.
    pub fn moves(mut self, counter: &'static str) -> Self {
        self.moves = Some(counter);
        self
    }

    /// How many transactions the load makes in all, if it is not endless.
    pub fn transactions(&self) -> usize {
        self.clients * self.attempts
    }

    /// Runs `transaction` again and again in every client; fails if that hangs.
    pub fn run<F>(&self, transaction: F) -> Result<Tally>
    where
        F: Fn(&mut Worker) -> Result<Done, Error> + Sync,
    {
        self.run_disturbed(transaction, |_| Ok(()))
    }

    /// As `run`, with `disturb` beside it. The load ends even if `disturb` fails.
    pub fn run_disturbed<F, D>(&self, transaction: F, disturb: D) -> Result<Tally>
    where
        F: Fn(&mut Worker) -> Result<Done, Error> + Sync,
        D: FnOnce(&Running) -> Result<()>,
    {
        let before = self.moved()?;
        let dog = Watchdog::watch(self.config.clone(), self.data_dir.clone());
        let done = AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        let busy = AtomicUsize::new(self.clients);
        let give_up = AtomicBool::new(false);
        let client = |number| {
            let tally = self.client(number, before, &dog, &transaction, &done, &give_up);
            if tally.is_err() {
                give_up.store(true, Ordering::Relaxed);
            }
            if busy.fetch_sub(1, Ordering::Relaxed) == 1 {
                over.store(true, Ordering::Relaxed);
            }
            tally
        };
        let client = &client;
        let result = scope(|threads| {
            let running: Vec<_> = (0..self.clients)
                .map(|number| threads.spawn(move || client(number)))
                .collect();
            let disturbed = disturb(&Running {
                done: &done,
                over: &over,
            });
            if disturbed.is_err() || self.is_endless {
                give_up.store(true, Ordering::Relaxed);
            }
            let mut total = Tally::default();
            for thread in running {
                total.add(thread.join().map_err(|_| anyhow!("a client panicked"))??);
            }
            disturbed?;
            Ok(total)
        });
        let tally = dog.finish(result)?;
        let after = self.moved()?;
        if let (Some(counter), false) = (self.moves, has_moved(before, after)) {
            bail!("txn.stats.{counter} has not moved from {after}: {tally:?}");
        }
        Ok(tally)
    }

    /// What `moves` asks for has counted so far.
    fn moved(&self) -> Result<i64> {
        let Some(counter) = self.moves else {
            return Ok(0);
        };
        let mut client = self.config.connect(NoTls)?;
        int(&mut client, &format!("SELECT {counter} FROM txn.stats"))
    }

    /// Whether a client that has made all its attempts is to make them again: the load's counter
    /// has not moved since it was `before`. Not while the server is away.
    fn is_wanted_again(&self, before: i64) -> bool {
        self.moves.is_some() && self.moved().is_ok_and(|now| !has_moved(before, now))
    }

    fn client<F>(
        &self,
        number: usize,
        before: i64,
        dog: &Watchdog,
        transaction: &F,
        done: &AtomicUsize,
        give_up: &AtomicBool,
    ) -> Result<Tally>
    where
        F: Fn(&mut Worker) -> Result<Done, Error>,
    {
        let mut tally = Tally::default();
        let client = match self.connect(number) {
            // The disturbance may hit a client before its first transaction.
            Err(error) if broken(&error) => match self.reconnect(number, dog, give_up) {
                Some(client) => client,
                None => return Ok(tally),
            },
            first => first.context("a client could not begin")?,
        };
        let mut worker = Worker::new(number, client);
        let most = self.attempts.saturating_mul(REPETITIONS);
        for attempt in 0..most {
            if attempt > 0 && attempt % self.attempts == 0 && !self.is_wanted_again(before) {
                break;
            }
            worker.attempt = attempt;
            match transaction(&mut worker) {
                Ok(Done::Committed(effects)) => tally.acknowledged += effects,
                Ok(Done::RolledBack) => tally.rolled_back += 1,
                Err(error) => {
                    let stake = worker.take_stake();
                    if broken(&error) {
                        tally.in_doubt += stake;
                    }
                    match error.as_db_error() {
                        Some(error) => tally.error(error.code().code(), &told(error)),
                        None => tally.error(LOST, &error.to_string()),
                    }
                    // The state of the transaction is unknown; ending none is only a warning.
                    if broken(&error) || worker.simple("ROLLBACK").is_err() {
                        match self.reconnect(number, dog, give_up) {
                            Some(client) => worker.reconnected(client),
                            None => return Ok(tally),
                        }
                    }
                }
            }
            done.fetch_add(1, Ordering::Relaxed);
            dog.progress();
            if give_up.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(tally)
    }

    fn connect(&self, number: usize) -> Result<Client, Error> {
        let mut client = self.config.connect(NoTls)?;
        client.batch_execute(&(self.session)(number))?;
        Ok(client)
    }

    /// Tries until there is a server; `None` when the test has been given up meanwhile.
    fn reconnect(&self, number: usize, dog: &Watchdog, give_up: &AtomicBool) -> Option<Client> {
        loop {
            if let Ok(client) = self.connect(number) {
                return Some(client);
            }
            if give_up.load(Ordering::Relaxed) || dog.has_bitten() {
                return None;
            }
            sleep(TICK);
        }
    }
}

/// A restart of the server begins to count anew.
fn has_moved(before: i64, after: i64) -> bool {
    after != 0 && after != before
}

/// The connection is gone, or about to be: what was being committed may or may not be there.
pub(crate) fn broken(error: &Error) -> bool {
    let Some(code) = error.code() else {
        return true;
    };
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
    ]
    .contains(code)
}

/// The message, and the details that tell two errors of one message apart.
fn told(error: &DbError) -> String {
    let parts = [Some(error.message()), error.detail(), error.where_()];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
