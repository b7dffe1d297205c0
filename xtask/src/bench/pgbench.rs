//! Runs PostgreSQL's own load generator and reads what it reports.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use pgserver::Server;

use super::interrupt;
use super::latency::{self, Latency};
use super::scratch::Scratch;
use super::workload::Script;

/// How pgbench sends its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Prepared,
    Simple,
}

/// One run of a load generator.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub scripts: &'static [Script],
    pub clients: usize,
    pub seconds: u64,
    pub protocol: Protocol,
    /// Each client updates a row of its own.
    pub spread: bool,
    /// Settings of the sessions.
    pub settings: &'static [(&'static str, &'static str)],
}

impl Load {
    /// The settings as PostgreSQL's clients take them.
    pub fn options(&self) -> String {
        let options: Vec<String> = self
            .settings
            .iter()
            .map(|(name, value)| format!("-c {name}={value}"))
            .collect();
        options.join(" ")
    }
}

/// What the clients of a run were told.
#[derive(Debug)]
pub struct Outcome {
    /// Transactions of the first script that were acknowledged.
    pub acknowledged: u64,
    /// Transactions of the other scripts: they rolled back as they meant to.
    pub rolled_back: u64,
    /// Transactions given up after too many tries. One of each client may also fail because the time is over before it can
    /// be tried again: those do not count.
    pub failed: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// Seconds under load, connecting not included.
    pub seconds: f64,
    pub latency: Latency,
    pub output: String,
}

/// Called some ten times a second while a load runs.
pub type Tick<'a> = dyn FnMut() -> anyhow::Result<()> + 'a;

/// How long the generator may take beyond its time before it counts as hung.
const GRACE: Duration = Duration::from_secs(60);

/// How often a transaction that ends in a serialization failure or deadlock is tried.
const MAX_TRIES: &str = "1000";

/// Puts `load` on the server. Calls `tick` now and then.
pub fn run(server: &Server, load: &Load, tick: &mut Tick) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new(server.user())?;
    let mut pgbench = server.command("pgbench");
    for script in load.scripts {
        let path = scratch.path().join(script.name);
        fs::write(&path, script.text)?;
        pgbench
            .arg("--file")
            .arg(format!("{}@{}", path.display(), script.weight));
    }
    pgbench
        .env("PGOPTIONS", load.options())
        .args(["--no-vacuum", "--log", "--max-tries", MAX_TRIES])
        .arg("--log-prefix")
        .arg(scratch.path().join(LOG_PREFIX))
        .arg("--protocol")
        .arg(match load.protocol {
            Protocol::Prepared => "prepared",
            Protocol::Simple => "simple",
        })
        .args(["--client", &load.clients.to_string()])
        .args(["--jobs", &jobs(load).to_string()])
        .args(["--time", &time_with_connecting(load).to_string()])
        .args(["--define", &format!("spread={}", u8::from(load.spread))]);
    let (status, output) = run_watched(pgbench, &scratch, load, tick)?;
    let report = Report::parse(&output)
        .and_then(|report| {
            ensure!(status.success(), "pgbench ended with {status}");
            Ok(report)
        })
        .with_context(|| Failure {
            output: output.clone(),
        })?;
    let [first, others @ ..] = report.scripts.as_slice() else {
        bail!("pgbench ran no script")
    };
    ensure!(report.tps > 0.0, Failure { output });
    Ok(Outcome {
        acknowledged: *first,
        rolled_back: others.iter().sum(),
        failed: report.failed.saturating_sub(load.clients as u64),
        retries: report.retries,
        seconds: report.scripts.iter().sum::<u64>() as f64 / report.tps,
        latency: latency::from_pgbench(&log_files(scratch.path())?)?,
        output,
    })
}

/// pgbench's threads count the transactions of each script without a lock, so several scripts want one thread. A thread
/// looks at the sockets of all its clients at each turn, so many clients want more threads.
fn jobs(load: &Load) -> usize {
    if load.scripts.len() > 1 {
        1
    } else {
        load.clients.div_ceil(128).max(2).min(load.clients)
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
            .filter(|line| line.contains("error"))
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

/// Runs a load generator to its end or, when it hangs, until it is long overdue.
pub fn run_watched(
    mut command: Command,
    scratch: &Scratch,
    load: &Load,
    tick: &mut Tick,
) -> anyhow::Result<(ExitStatus, String)> {
    let output_path = scratch.path().join("output");
    let output = File::create(&output_path)?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = Running(
        command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?,
    );
    let overdue = Instant::now() + Duration::from_secs(time_with_connecting(load)) + GRACE;
    let status = loop {
        interrupt::check()?;
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        if Instant::now() > overdue {
            bail!(
                "{program} with {} clients for {} s was still running {} s after its time: \
                 sessions hang",
                load.clients,
                load.seconds,
                GRACE.as_secs()
            );
        }
        tick()?;
        sleep(Duration::from_millis(25));
    };
    Ok((status, fs::read_to_string(output_path)?))
}

/// A child that does not outlive an error.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.0.kill().and_then(|()| self.0.wait()).ok();
        }
    }
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

/// The figures of pgbench's report.
#[derive(Debug, PartialEq)]
struct Report {
    /// Transactions of each script.
    scripts: Vec<u64>,
    failed: u64,
    retries: u64,
    tps: f64,
}

impl Report {
    fn parse(output: &str) -> anyhow::Result<Self> {
        let after = |start: &str| {
            output
                .lines()
                .find_map(|line| line.strip_prefix(start))
                .and_then(|rest| rest.split_whitespace().next())
                .with_context(|| format!("no line \"{start}\" in pgbench's report"))
        };
        let processed = after("number of transactions actually processed: ")?.parse()?;
        let mut scripts = output
            .lines()
            .filter_map(|line| {
                let (count, rest) = line.strip_prefix(" - ")?.split_once(' ')?;
                rest.starts_with("transactions (").then(|| count.parse())
            })
            .collect::<Result<Vec<u64>, _>>()?;
        if scripts.is_empty() {
            scripts.push(processed);
        }
        ensure!(
            scripts.iter().sum::<u64>() == processed,
            "pgbench's counts do not add up"
        );
        Ok(Self {
            scripts,
            failed: after("number of failed transactions: ")?.parse()?,
            retries: after("total number of retries: ")?.parse()?,
            tps: after("tps = ")?.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_SCRIPT: &str = "\
pgbench (16.14)
transaction type: a.sql
number of transactions actually processed: 391
number of failed transactions: 2 (0.509%)
number of transactions retried: 5 (1.272%)
total number of retries: 7
latency average = 894.478 ms
initial connection time = 1211.178 ms
tps = 286.200314 (without initial connection time)
";

    #[test]
    fn a_report_of_one_script() {
        let report = Report::parse(ONE_SCRIPT).unwrap();
        let expected = Report {
            scripts: vec![391],
            failed: 2,
            retries: 7,
            tps: 286.200314,
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn a_report_of_two_scripts_counts_each() {
        let output = ONE_SCRIPT.to_owned()
            + "SQL script 1: a.sql
 - weight: 95 (targets 95.0% of total)
 - 371 transactions (95.3% of total, tps = 1058.460977)
 - number of failed transactions: 0 (0.000%)
 - number of transactions retried: 0 (0.000%)
SQL script 2: b.sql
 - weight: 5 (targets 5.0% of total)
 - 20 transactions (4.7% of total, tps = 52.163388)
";
        assert_eq!(Report::parse(&output).unwrap().scripts, [371, 20]);
    }

    #[test]
    fn a_report_cut_short_is_an_error_that_says_what_is_missing() {
        let error = Report::parse("pgbench: error: connection failed")
            .unwrap_err()
            .to_string();
        assert!(error.contains("actually processed"), "{error}");
    }

    #[test]
    fn counts_that_do_not_add_up_are_an_error() {
        let output = ONE_SCRIPT.to_owned() + " - 390 transactions (99.7% of total, tps = 1.0)\n";
        assert!(Report::parse(&output).is_err());
    }
}
