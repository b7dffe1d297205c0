//! The clients of a cycle, and their account.
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use postgres::{Client, Config, Error, NoTls};
use rand::Rng;

use super::plan::Plan;
use super::transaction::{Entry, Transaction, is_broken};
use crate::Watchdog;
use crate::faults::rng;
use crate::tally::LOST;

/// What the sessions of the load are called.
pub const NAME: &str = "load";

const TICK: Duration = Duration::from_millis(10);

/// How often errors of a SQLSTATE came, with the first message.
pub type Errors = BTreeMap<String, (u64, String)>;

/// What the clients share with the one who disturbs them.
pub struct Load<'a> {
    pub plan: &'a Plan,
    pub dog: &'a Watchdog,
    pub config: Config,
    /// Transactions that have ended, in one way or another.
    pub done: AtomicUsize,
    pub stop: AtomicBool,
    pub errors: Mutex<Errors>,
}

impl<'a> Load<'a> {
    pub fn new(plan: &'a Plan, dog: &'a Watchdog, mut config: Config) -> Self {
        config.application_name(NAME);
        Load {
            plan,
            dog,
            config,
            done: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            errors: Mutex::default(),
        }
    }

    /// Runs client `number` until it is to stop; its account.
    pub fn client(&self, number: usize) -> Vec<Entry> {
        let mut rng = rng(self.plan.seed, self.plan.cycle, number as u64);
        let prepare = match rng.random_range(0..100) < self.plan.early {
            true => "early",
            false => "at_commit",
        };
        let defers = rng.random_range(0..100) < self.plan.defer;
        let session = format!("SET txn.geo_prepare = {prepare}; SET txn.geo_defer = {defers}");
        let mut book = Vec::new();
        let mut client = None;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(connected) = client.as_mut() else {
                client = self.connect(&session);
                continue;
            };
            let id = number as i64 * 1_000_000 + book.len() as i64 + 1;
            let transaction = Transaction::draw(&mut rng, self.plan.nodes, id);
            let (entry, error) = transaction.run(connected);
            book.push(entry);
            if let Some(error) = error {
                self.note(&error);
                if is_broken(&error) || connected.batch_execute("ROLLBACK").is_err() {
                    client = None;
                }
            }
            self.done.fetch_add(1, Ordering::Relaxed);
            self.dog.progress();
        }
        book
    }

    fn connect(&self, session: &str) -> Option<Client> {
        let connected = self.config.connect(NoTls).and_then(|mut client| {
            client.batch_execute(session)?;
            Ok(client)
        });
        if connected.is_err() {
            sleep(TICK);
        }
        connected.ok()
    }

    fn note(&self, error: &Error) {
        let (code, message) = match error.as_db_error() {
            Some(told) => (told.code().code(), told.message().to_owned()),
            None => (LOST, error.to_string()),
        };
        let mut errors = self.errors.lock().expect("no client panics with it");
        errors.entry(code.to_owned()).or_insert((0, message)).0 += 1;
    }
}

/// Whether a fault may cause an error with that SQLSTATE.
pub fn is_expected(code: &str) -> bool {
    // Lost connections, conflicts and deadlocks, cancel and shutdown; lock timeouts, and what
    // comes in an aborted block.
    let classes = ["08", "40", "57"];
    [LOST, "55P03", "25P02"].contains(&code) || classes.iter().any(|class| code.starts_with(class))
}
