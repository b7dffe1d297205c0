//! Records what clients of a real server see, for the checker in `crates/history`.
mod declare;
mod schema;
mod scribe;
mod sql;

use std::env::temp_dir;
use std::fs::File;
use std::io::BufWriter;
use std::sync::Mutex;
use std::time::Instant;
use std::{process, thread};

use anyhow::{Result, bail, ensure};
use history::{Client, History, Level, Outcome, Promise, Weights, Workload, check};
use pgserver::Server;

use crate::{Load, Tally, Worker};

pub use schema::{TABLES, create};
pub use scribe::Scribe;

/// How a recording is made.
pub struct Recording {
    pub workload: Workload,
    pub level: Level,
    pub clients: u32,
    /// So many more clients, at READ COMMITTED, only write what needs no reading.
    pub blind: u32,
    /// Percent of the transactions that declare keys, some of them wrong ones.
    pub declares: u32,
    /// Of each client.
    pub transactions: u32,
    /// What is done to the tables before.
    pub tables: &'static str,
    /// What each session runs first, such as `SET txn.group_lock = on`.
    pub settings: &'static str,
}

/// One client: where its transactions come from, and what came of them.
struct Recorded<'a> {
    level: Level,
    plans: Client<'a>,
    scribe: Scribe,
}

impl Recording {
    /// Creates the tables in `server`, runs the clients, and reads everything at the end.
    pub fn run(&self, server: &Server) -> Result<(History, Tally)> {
        let mut admin = server.connect()?;
        create(&mut admin, &self.workload, self.transactions)?;
        admin.batch_execute(self.tables)?;
        let began = Instant::now();
        let blind = blind(&self.workload);
        let clients: Vec<Mutex<Recorded>> = (0..self.clients + self.blind)
            .map(|number| {
                let (level, workload) = match number < self.clients {
                    true => (self.level, &self.workload),
                    false => (Level::ReadCommitted, &blind),
                };
                Mutex::new(Recorded {
                    level,
                    plans: workload.client(number),
                    scribe: Scribe::new(number, began),
                })
            })
            .collect();
        let settings = self.settings;
        let load = Load::new(server, clients.len(), self.transactions as usize);
        let tally = load.session(move |_| settings.to_owned()).run(|worker| {
            let mut client = clients[worker.number]
                .lock()
                .expect("a client does not panic");
            let plan = client.plans.next().expect("a client has no end");
            let level = client.level;
            client.scribe.run(worker, level, self.declares, &plan)
        })?;
        let mut history = History {
            initial: self.workload.initial(),
            transactions: Vec::new(),
        };
        for client in clients {
            let Recorded { scribe, .. } = client.into_inner().expect("a client does not panic");
            history.transactions.extend(scribe.into_transactions());
        }
        let last = self.workload.last_reads(self.transactions);
        let number = self.clients + self.blind;
        let mut scribe = Scribe::new(number, began);
        let mut worker = Worker::new(number as usize, admin);
        scribe.run(&mut worker, Level::RepeatableRead, 0, &last)?;
        history.transactions.extend(scribe.into_transactions());
        Ok((history, tally))
    }
}

/// The workload with no other statements than writes that need no read before.
fn blind(workload: &Workload) -> Workload {
    let mut blind = workload.clone();
    blind.read_only = 0;
    blind.weights = Weights {
        read_list: 0,
        read: 0,
        scan: 0,
        update: 0,
        delete: 0,
        rekey: 0,
        ..blind.weights
    };
    blind
}

/// Fails if `history` does not keep `promise`, and keeps it in a file then.
pub fn expect(history: &History, promise: Promise) -> Result<()> {
    let verdict = check(history, promise)?;
    if verdict.holds() {
        return Ok(());
    }
    let name = format!(
        "history-{}-{:?}.jsonl",
        process::id(),
        thread::current().id()
    );
    let path = temp_dir().join(name);
    history.save(BufWriter::new(File::create(&path)?))?;
    bail!(
        "{promise:?}: {verdict}\n(the history is in {})",
        path.display()
    )
}

/// Fails unless so many transactions have committed that the history tells something.
pub fn expect_committed(history: &History, at_least: usize) -> Result<()> {
    let committed = history.transactions.iter();
    let committed = committed
        .filter(|one| one.outcome == Outcome::Committed)
        .count();
    ensure!(
        committed >= at_least,
        "only {committed} of {} transactions committed",
        history.transactions.len()
    );
    Ok(())
}
