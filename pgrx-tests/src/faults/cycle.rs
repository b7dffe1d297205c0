//! One cycle: a load, its faults, and everything that has to hold afterwards.
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pgserver::{PgInstall, Server, ServerOptions, StopMode};
use postgres::Client;
use rand::Rng;
use serde::Serialize;
use tokio::runtime;
use tokio::task::JoinHandle;

use super::book::{self, Entry, Fate};
use super::client::{INITIAL, Load};
use super::disk::Disk;
use super::plan::{Fault, Hit, Plan, rng};
use super::replica::{Replica, look};
use super::strike::{connect, finish_prepared, settle, strike};
use super::{disk, log, transaction};
use crate::{Watchdog, int, physical_health, text};

const TICK: Duration = Duration::from_millis(5);
/// Transactions after the last fault.
const TAIL: usize = 200;
/// Findings that are told of a cycle.
const MOST_WRONG: usize = 20;
/// The number, for the random numbers, of the client that ends the prepared transactions.
const FINISHER: u64 = u64::MAX - 1;

/// What is kept of a cycle.
#[derive(Debug, Default, Serialize)]
pub struct Cycle {
    pub cycle: u64,
    /// In the report, once for all cycles.
    #[serde(skip)]
    pub build: String,
    pub settings: String,
    pub hits: Vec<Hit>,
    pub seconds: f64,
    pub acknowledged: usize,
    /// Failed, or rolled back on purpose.
    pub failed: usize,
    pub in_doubt: usize,
    /// Of those in doubt, the ones that are there.
    pub present_in_doubt: usize,
    /// Readers.
    pub reads: usize,
    /// By SQLSTATE.
    pub errors: BTreeMap<String, u64>,
    pub ledger_rows: usize,
    pub ledger_sum: i64,
    /// Single updates, which leave no row.
    pub updates: i64,
    pub balance: i64,
    /// The longest transaction.
    pub longest_ms: u64,
    /// `txn.stats` since the last restart.
    pub stats: BTreeMap<String, i64>,
    /// Empty if all is well.
    pub wrong: Vec<String>,
}

/// Runs the cycle in the folder `home`, with the server's data in it, from a cycle before or new.
pub fn run(install: &PgInstall, home: &Path, server: ServerOptions, plan: &Plan) -> Cycle {
    let mut cycle = Cycle {
        cycle: plan.cycle,
        settings: plan.settings(),
        ..Cycle::default()
    };
    let began = Instant::now();
    if let Err(error) = attempt(install, home, server, plan, &mut cycle) {
        cycle.wrong.push(format!("{error:#}"));
    }
    cycle.wrong.truncate(MOST_WRONG);
    cycle.seconds = began.elapsed().as_secs_f64();
    cycle
}

fn attempt(
    install: &PgInstall,
    home: &Path,
    options: ServerOptions,
    plan: &Plan,
    cycle: &mut Cycle,
) -> Result<()> {
    // The log of the cycle before.
    let _ = std::fs::remove_file(home.join("data.log"));
    let mut server = Server::start(install, settings(options, plan))?;
    let mut control = connect(&server)?;
    cycle.build = text(&mut control, "SELECT current_setting('txn.build_id')")?;
    control.batch_execute(&format!(
        "SET default_table_access_method = '{}'; {}; INSERT INTO account SELECT id, {INITIAL}, 0, 0 FROM generate_series(1, {}) id",
        plan.access_method,
        transaction::SCHEMA,
        plan.accounts
    ))?;
    if plan.foreign_key {
        control.batch_execute("ALTER TABLE ledger ADD FOREIGN KEY (account) REFERENCES account")?;
    }
    drop(control);
    let disk = match plan.has(Fault::DiskFull) {
        true => {
            server.stop(StopMode::Fast)?;
            let disk = Disk::mount(server.data_dir(), home.join("disk"))?;
            server.start_again()?;
            Some(disk)
        }
        false => None,
    };
    let result =
        loaded(&mut server, disk.as_ref(), plan, cycle).and_then(|()| server.stop(StopMode::Fast));
    let log = server.log();
    // Stopped, whatever happened.
    drop(server);
    drop(disk);
    cycle.wrong.extend(log::problems(&log?, plan));
    result
}

fn settings(options: ServerOptions, plan: &Plan) -> ServerOptions {
    let options = options
        .set("max_connections", 3 * plan.clients + 30)
        .set("max_prepared_transactions", 2 * plan.clients)
        .set("shared_buffers", "32MB")
        .set("checkpoint_timeout", "30s")
        .set("log_line_prefix", log::PREFIX);
    let small: &[_] = match plan.has(Fault::DiskFull) {
        true => &disk::SETTINGS,
        false => &[],
    };
    let settings = plan.server.iter().chain(small);
    settings.fold(options, |options, (name, value)| options.set(*name, value))
}

fn loaded(server: &mut Server, disk: Option<&Disk>, plan: &Plan, cycle: &mut Cycle) -> Result<()> {
    let load = Arc::new(Load::new(plan, server.host(), server.port()));
    let replica = Mutex::new(Replica::make(server, &mut connect(server)?, plan)?);
    let dog = Watchdog::new(server);
    let result = under_load(server, disk, plan, &load, &replica, &dog, &mut cycle.hits);
    let book = dog.finish(result)?;
    tell(&book, &load, cycle);

    let mut client = connect(server)?;
    settle(&mut client)?;
    let found = look(&mut client)?;
    let verdict = book::judge(&book, &found, INITIAL);
    cycle.present_in_doubt = verdict.present_in_doubt;
    cycle.wrong.extend(verdict.wrong);
    cycle.ledger_rows = found.ledger.len();
    cycle.ledger_sum = found.ledger.iter().map(|row| row.amount).sum();
    cycle.updates = found.accounts.iter().map(|account| account.autos).sum();
    cycle.balance = found.accounts.iter().map(|account| account.balance).sum();
    for (what, seen, there) in [
        ("single updates", &load.seen_updates, cycle.updates),
        ("ledger rows", &load.seen_rows, cycle.ledger_rows as i64),
    ] {
        let seen = seen.load(Ordering::SeqCst);
        if there < seen {
            let wrong = format!("a reader has seen {seen} {what}, of which {there} are left");
            cycle.wrong.push(wrong);
        }
    }
    for name in [
        "promotions",
        "followed",
        "combined",
        "cascades",
        "doomed",
        "cycles",
        "early_commits",
        "read_waits",
        "table_full",
        "range_validated",
        "range_overlap",
        "range_history_lost",
    ] {
        let value = int(&mut client, &format!("SELECT {name} FROM txn.stats"))?;
        cycle.stats.insert(name.to_owned(), value);
    }
    drop(client);
    for table in ["account", "ledger", "seat"] {
        physical_health(server, table, "id")?;
    }
    let replica = replica.into_inner().expect("nobody panics with it");
    replica.compare(server, &mut connect(server)?, &found)
}

/// The clients' side: sums, and errors that may not be.
fn tell(book: &[Entry], load: &Load, cycle: &mut Cycle) {
    let count = |fate| book.iter().filter(|entry| entry.fate == fate).count();
    cycle.acknowledged = count(Fate::Acknowledged);
    cycle.failed = count(Fate::Failed);
    cycle.in_doubt = count(Fate::InDoubt);
    cycle.reads = load.reads.load(Ordering::Relaxed);
    cycle.longest_ms = load.longest_ms.load(Ordering::Relaxed);
    let allowed = load.plan().allowed();
    let errors = load.errors.lock().expect("nobody panics with it");
    for (code, (count, message)) in errors.iter() {
        cycle.errors.insert(code.clone(), *count);
        let is_allowed = allowed.contains(&code.as_str());
        if !is_allowed && !log::is_postgresqls_own(message, load.plan()) {
            let wrong = format!("{count} unexpected errors {code}, the first: {message}");
            cycle.wrong.push(wrong);
        }
    }
    let wrong = load.wrong.lock().expect("nobody panics with it");
    cycle.wrong.extend(wrong.iter().cloned());
}

/// The load with its faults; the clients' account.
fn under_load(
    server: &mut Server,
    disk: Option<&Disk>,
    plan: &Plan,
    load: &Arc<Load>,
    replica: &Mutex<Replica>,
    dog: &Watchdog,
    hits: &mut Vec<Hit>,
) -> Result<Vec<Entry>> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let clients: Vec<_> = (0..plan.clients)
        .map(|number| runtime.spawn(Arc::clone(load).client(number)))
        .collect();
    let config = server.config("postgres", "postgres");
    let over = AtomicBool::new(false);
    scope(|threads| {
        threads.spawn(|| finisher(&config, plan, replica, &over));
        let struck = strikes(server, disk, plan, load, dog, hits);
        load.stop.store(true, Ordering::Relaxed);
        if struck.is_err() {
            // Perhaps there is no server any more.
            load.give_up.store(true, Ordering::Relaxed);
        }
        let ended = wait_for(load, dog, || clients.iter().all(JoinHandle::is_finished));
        over.store(true, Ordering::Relaxed);
        struck.and(ended)
    })?;
    let mut book = Vec::new();
    for client in clients {
        book.extend(runtime.block_on(client).context("a client panicked")?);
    }
    Ok(book)
}

fn strikes(
    server: &mut Server,
    disk: Option<&Disk>,
    plan: &Plan,
    load: &Load,
    dog: &Watchdog,
    hits: &mut Vec<Hit>,
) -> Result<()> {
    let pass = |transactions: usize| {
        let until = load.done.load(Ordering::Relaxed) + transactions;
        wait_for(load, dog, || load.done.load(Ordering::Relaxed) >= until)
    };
    for one in &plan.strikes {
        pass(one.after)?;
        hits.push(strike(server, disk, one, dog).with_context(|| format!("{one:?}"))?);
    }
    pass(TAIL)
}

/// Waits for `what`, and lets the watchdog know of what goes on in the meantime.
fn wait_for(load: &Load, dog: &Watchdog, what: impl Fn() -> bool) -> Result<()> {
    let mut seen = 0;
    while !what() {
        let done = load.done.load(Ordering::Relaxed);
        if done != seen {
            dog.progress();
            seen = done;
        }
        if dog.has_bitten() {
            load.give_up.store(true, Ordering::Relaxed);
            bail!("the load hangs");
        }
        sleep(TICK);
    }
    Ok(())
}

/// Ends prepared transactions of others, after a while, and asks the slot for what is new.
fn finisher(config: &postgres::Config, plan: &Plan, replica: &Mutex<Replica>, over: &AtomicBool) {
    let mut rng = rng(plan.seed, plan.cycle, FINISHER);
    let mut client: Option<Client> = None;
    while !over.load(Ordering::Relaxed) {
        let connected = match client.take() {
            Some(client) => Ok(client),
            None => config.connect(postgres::NoTls),
        };
        client = connected.ok().and_then(|mut client| {
            if let Ok(mut replica) = replica.lock() {
                replica.look(&mut client);
            }
            let done = finish_prepared(&mut client, |_| rng.random_bool(0.5));
            done.ok().map(|()| client)
        });
        sleep(TICK);
    }
}
