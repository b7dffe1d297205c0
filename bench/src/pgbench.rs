//! Runs PostgreSQL's own load generator and reads what it reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use pgserver::Server;

use super::latency::Latency;
use super::pgbench_report::Report;
use super::running::Running;
use super::scratch::Scratch;
use super::script::{Script, Source};
use super::transactions::{self, Event, Transactions};

/// How pgbench sends its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Prepared,
    /// Each statement is parsed anew.
    Extended,
    Simple,
}

impl Protocol {
    /// As pgbench's option has it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Prepared => "prepared",
            Protocol::Extended => "extended",
            Protocol::Simple => "simple",
        }
    }
}

/// The database of TPC-C that is worked on.
pub const TPCC_DATABASE: &str = "tpcc";

/// Transactions that arrive by the clock, on average so many per second, whether or not the last
/// ones are done.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Arrivals {
    pub per_second: u64,
    /// A transaction that no client was free to begin within so many milliseconds is left out. It
    /// is not tried again after that time either.
    pub limit_ms: u64,
}

/// One run of a load generator.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    pub scripts: &'a [Script<'a>],
    pub clients: usize,
    pub seconds: u64,
    pub protocol: Protocol,
    /// Each client updates a row of its own.
    pub spread: bool,
    /// TPC-C's: the load goes to its database.
    pub warehouses: Option<usize>,
    /// Settings of the sessions.
    pub settings: &'a [(&'a str, &'a str)],
    /// How often a transaction that ends in a serialization failure or deadlock is tried, at least
    /// once.
    pub max_tries: u32,
    /// None: each client begins as soon as its last transaction is done.
    pub arrivals: Option<Arrivals>,
    /// Another session holds a snapshot open all the time (PostgreSQL only).
    pub old_snapshot: bool,
    /// pgbench has a thread for each client.
    pub a_thread_each: bool,
}

impl<'a> Load<'a> {
    /// Where every transaction is to succeed, and there is nothing else to say.
    pub fn new(
        scripts: &'a [Script<'a>],
        clients: usize,
        seconds: u64,
        protocol: Protocol,
    ) -> Self {
        Self {
            scripts,
            clients,
            seconds,
            protocol,
            spread: false,
            warehouses: None,
            settings: &[],
            max_tries: MAX_TRIES,
            arrivals: None,
            old_snapshot: false,
            a_thread_each: false,
        }
    }

    /// The settings as PostgreSQL's clients take them.
    pub fn options(&self) -> String {
        options(self.settings)
    }

    /// The database that it goes to.
    pub fn database(&self) -> &'static str {
        match self.warehouses {
            Some(_) => TPCC_DATABASE,
            None => "postgres",
        }
    }
}

/// Settings of sessions as PostgreSQL's clients take them.
pub fn options(settings: &[(&str, &str)]) -> String {
    let options: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("-c {name}={value}"))
        .collect();
    options.join(" ")
}

/// What the clients of a run were told.
#[derive(Debug)]
pub struct Outcome {
    /// Transactions of each script that ended as they meant to.
    pub scripts: Vec<u64>,
    /// Transactions given up after too many tries. One of each client may also fail because the
    /// time is over before it can be tried again: those do not count.
    pub failed: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// Seconds under load, connecting not included.
    pub seconds: f64,
    pub latency: Latency,
    pub output: String,
}

impl Outcome {
    /// Transactions of the first script, whose effect is looked for.
    pub fn acknowledged(&self) -> u64 {
        self.scripts.first().copied().unwrap_or(0)
    }

    /// Those of the second, which roll back as they mean to.
    pub fn rolled_back(&self) -> u64 {
        self.scripts.get(1).copied().unwrap_or(0)
    }
}

/// Called some ten times a second while a load runs.
pub type Tick<'a> = dyn FnMut() -> anyhow::Result<()> + 'a;

/// How long the generator may take beyond its time before it counts as hung. Where all clients are
/// in deadlocks with each other, stock ends about one of them a second (`deadlock_timeout`).
pub const GRACE: Duration = Duration::from_secs(400);

/// How often a transaction is tried where every one is to succeed.
pub const MAX_TRIES: u32 = 1000;

/// A run that has ended well.
pub struct Ended {
    pub report: Report,
    /// All that was printed.
    pub output: String,
    scratch: Scratch,
}

impl Ended {
    /// What became of the transactions of each script, by the log.
    /// Fails when the report says something else.
    pub fn transactions(&self) -> anyhow::Result<Vec<Transactions>> {
        let logs = log_files(self.scratch.path())?;
        let scripts = transactions::read(&logs, self.report.scripts.len())?;
        let committed: Vec<u64> = scripts.iter().map(|script| script.committed).collect();
        let failed: u64 = scripts.iter().map(|one| one.refused + one.deadlocks).sum();
        let skipped: u64 = scripts.iter().map(|one| one.skipped).sum();
        let Report {
            scripts: reported,
            failed: reported_failed,
            skipped: reported_skipped,
            ..
        } = &self.report;
        ensure!(
            committed == *reported && failed == *reported_failed && skipped == *reported_skipped,
            "pgbench's log ({committed:?} committed, {failed} failed, {skipped} skipped) and its \
             report ({reported:?}, {reported_failed}, {reported_skipped}) differ"
        );
        Ok(scripts)
    }

    /// What became of every transaction, by the log.
    pub fn events(&self) -> anyhow::Result<Vec<Event>> {
        transactions::events(&log_files(self.scratch.path())?)
    }

    /// Seconds under load, connecting not included.
    pub fn seconds(&self) -> f64 {
        self.report.scripts.iter().sum::<u64>() as f64 / self.report.tps
    }
}

/// Puts `load` on the server and counts. Calls `tick` now and then.
pub fn run(server: &Server, load: &Load, tick: &mut Tick) -> anyhow::Result<Outcome> {
    let ended = drive(server, load, tick)?;
    let transactions = ended.transactions()?;
    Ok(Outcome {
        scripts: ended.report.scripts.clone(),
        failed: ended.report.failed.saturating_sub(load.clients as u64),
        retries: ended.report.retries,
        seconds: ended.seconds(),
        latency: Latency::from(&transactions[0].microseconds),
        output: ended.output,
    })
}

/// Puts `load` on the server. Calls `tick` now and then. Fails when nothing was committed.
pub fn drive(server: &Server, load: &Load, tick: &mut Tick) -> anyhow::Result<Ended> {
    let scratch = Scratch::new(server.user())?;
    let mut pgbench = server.command("pgbench");
    add_scripts(&mut pgbench, &scratch, load.scripts)?;
    pgbench
        .env("PGOPTIONS", load.options())
        .args(["--no-vacuum", "--log", "--failures-detailed"])
        .args(["--max-tries", &load.max_tries.to_string()])
        .arg("--log-prefix")
        .arg(scratch.path().join(LOG_PREFIX))
        .arg("--protocol")
        .arg(load.protocol.name())
        .args(["--client", &load.clients.to_string()])
        .args(["--jobs", &jobs(load).to_string()])
        .args(["--time", &time_with_connecting(load).to_string()])
        .args(["--define", &format!("spread={}", u8::from(load.spread))])
        .env("PGDATABASE", load.database());
    if let Some(warehouses) = load.warehouses {
        pgbench.args(["--define", &format!("warehouses={warehouses}")]);
    }
    if let Some(arrivals) = load.arrivals {
        pgbench
            .args(["--rate", &arrivals.per_second.to_string()])
            .args(["--latency-limit", &arrivals.limit_ms.to_string()]);
    }
    let (status, output) = run_watched(pgbench, &scratch, time_with_connecting(load), tick)?;
    let report = Report::parse(&output)
        .and_then(|report| {
            ensure!(status.success(), "pgbench ended with {status}");
            Ok(report)
        })
        .with_context(|| Failure {
            output: output.clone(),
        })?;
    ensure!(report.tps > 0.0, Failure { output });
    Ok(Ended {
        report,
        output,
        scratch,
    })
}

/// Makes `pgbench` draw its transactions from `scripts`, which it reads from `scratch`.
pub fn add_scripts(
    pgbench: &mut Command,
    scratch: &Scratch,
    scripts: &[Script],
) -> anyhow::Result<()> {
    for script in scripts {
        let (option, source) = match script.source {
            Source::Builtin => ("--builtin", script.name.to_owned()),
            Source::Sysbench(_) => bail!("{} is a script of sysbench", script.name),
            Source::Text(text) => {
                let path = scratch.path().join(script.name);
                fs::write(&path, text)?;
                ("--file", path.display().to_string())
            }
        };
        pgbench
            .arg(option)
            .arg(format!("{source}@{}", script.weight));
    }
    Ok(())
}

/// pgbench's threads count the transactions of each script without a lock, so several scripts want
/// one thread. A thread looks at the sockets of all its clients at each turn, so many clients want
/// more threads.
fn jobs(load: &Load) -> usize {
    match load.scripts.len() {
        1 if load.a_thread_each => load.clients,
        1 => load.clients.div_ceil(128).max(2).min(load.clients),
        _ => 1,
    }
}

const LOG_PREFIX: &str = "latency";

/// A load generator failed; what it printed.
#[derive(Debug)]
pub struct Failure {
    pub output: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said = self
            .output
            .lines()
            .filter(|line| line.contains("error") || line.contains("FATAL"))
            .take(3);
        let said: Vec<&str> = said.collect();
        write!(f, "the load generator failed: {}", said.join("; "))
    }
}

impl std::error::Error for Failure {}

/// pgbench's clock runs while it connects, which takes about a second for 256 clients here.
fn time_with_connecting(load: &Load) -> u64 {
    load.seconds + (load.clients / 256) as u64
}

/// Runs a load generator, which takes so many seconds, to its end or, when it hangs, until it is
/// long overdue.
pub fn run_watched(
    mut command: Command,
    scratch: &Scratch,
    seconds: u64,
    tick: &mut Tick,
) -> anyhow::Result<(ExitStatus, String)> {
    let output_path = scratch.path().join("output");
    let mut child = Running::start(&mut command, &output_path)?;
    let overdue = Instant::now() + Duration::from_secs(seconds) + GRACE;
    let Some(status) = child.wait(overdue, tick)? else {
        bail!(
            "{}, which was to take {seconds} s, was still running {} s after that: sessions hang",
            command.get_program().to_string_lossy(),
            GRACE.as_secs()
        );
    };
    Ok((status, fs::read_to_string(output_path)?))
}

fn log_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(LOG_PREFIX) {
            files.push(entry.path());
        }
    }
    Ok(files)
}
