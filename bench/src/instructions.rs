//! Instructions per transaction: what a server's process executes for one client, counted by
//! valgrind. Where the clock's noise hides a few per cent, the count does not.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;
use serde::Serialize;
use serde_json::Value;

use super::catalog::{GROUP, GROUP_ON, STOCK, System};
use super::common::Common;
use super::pgbench::{self, Protocol};
use super::plan::{Bench, Entry, Extent, Kind, Lacking, Measured};
use super::postgres_site::{SETTINGS, describe};
use super::scratch::Scratch;
use super::site::Description;
use super::table::{Row, Sheet};
use super::variant::{Variant, variant};
use super::workload::{self, FOREIGN_KEY, HOT_LEDGER, HOT_ROW, Workload};
use tooling::machine::Machine;

const NAME: &str = "instructions";
const ABOUT: &str = "Instructions of a server's process per transaction of one client, by valgrind";

const WORKLOADS: [&Workload; 3] = [&HOT_ROW, &HOT_LEDGER, &FOREIGN_KEY];

/// In their order: what the last one has made hot may stay so for a while.
static VARIANTS: [Variant; 4] = [
    variant(STOCK, System::Stock, &[]),
    variant("library, settings off", System::Txn, &[]),
    variant(GROUP, System::Txn, GROUP_ON),
    variant("group lock, the row is hot", System::Txn, ALL_HOT),
];
/// Every row that is updated by its key is hot, though nobody waits for it.
const ALL_HOT: &[(&str, &str)] = &[("txn.group_lock", "on"), ("txn.hot_threshold", "0")];

/// A run has so many transactions, and another one so many more: the difference leaves out what a
/// session does once.
const FEW: u64 = 300;
const MORE: u64 = 2000;

/// How often valgrind's files are looked for, and for how long.
const TICK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(60);

/// About how long valgrind takes for the two runs of a count.
const SECONDS_OF_A_COUNT: Duration = Duration::from_secs(15);

/// What the record tells.
#[derive(Serialize)]
pub struct Record {
    benchmark: &'static str,
    machine: Machine,
    counted_by: String,
    transactions: u64,
    protocol: Protocol,
    systems: Vec<Description>,
    lines: Vec<Line>,
}

/// One variant of one workload.
#[derive(Serialize)]
struct Line {
    workload: &'static str,
    variant: &'static str,
    /// Per transaction, of each round.
    rounds: Vec<f64>,
    median: f64,
    /// Of the median, to stock's.
    to_stock: f64,
}

/// Valgrind's version; an error if it is not there.
fn version() -> anyhow::Result<String> {
    let version = Command::new("valgrind").arg("--version").output();
    let version = version.context("valgrind is needed, and could not be run: install it")?;
    Ok(String::from_utf8_lossy(&version.stdout).trim().to_owned())
}

/// The benchmark, which has no options of its own.
pub fn kind(common: &Common) -> Kind<'_> {
    let plan = || {
        version().context(Lacking)?;
        Ok(Plan {
            rounds: common.rounds,
            protocol: common.protocol,
        })
    };
    Kind {
        who: "the benchmark instructions has",
        options: Value::Null,
        has_warehouses: false,
        has_report: false,
        entries: vec![Entry::new((NAME, ABOUT), plan)],
    }
}

struct Plan {
    rounds: usize,
    protocol: Protocol,
}

impl Bench for Plan {
    type Record = Record;

    fn title(&self) -> (&'static str, &'static str) {
        (NAME, ABOUT)
    }

    fn extent(&self) -> Extent {
        let runs = self.rounds * WORKLOADS.len() * VARIANTS.len();
        Extent {
            names: vec![NAME],
            needs_library: true,
            runs,
            time: SECONDS_OF_A_COUNT * runs as u32,
        }
    }

    /// Counts all variants of all workloads in each round.
    fn measure(&self, install: &PgInstall) -> anyhow::Result<Record> {
        let version = version()?;
        let mut systems = Vec::new();
        let mut counts = Vec::new();
        for system in [System::Stock, System::Txn] {
            let mut site = Site::start(install, system)?;
            systems.push(site.describe()?);
            for variant in VARIANTS.iter().filter(|variant| variant.system == system) {
                for workload in WORKLOADS {
                    let rounds = (0..self.rounds)
                        .map(|_| site.count(workload, variant, self.protocol))
                        .collect::<Result<Vec<f64>, _>>()?;
                    println!("{}, {}: {rounds:.0?}", workload.name, variant.label);
                    counts.push((workload.name, variant.label, rounds));
                }
            }
        }
        Ok(Record {
            benchmark: NAME,
            machine: Machine::look(),
            counted_by: version,
            transactions: MORE,
            protocol: self.protocol,
            systems,
            lines: lines(counts),
        })
    }
}

fn lines(counts: Vec<(&'static str, &'static str, Vec<f64>)>) -> Vec<Line> {
    let medians: Vec<f64> = counts.iter().map(|(_, _, rounds)| median(rounds)).collect();
    let stock = |workload: &str| {
        let is_stock = |(name, label, _): &(&str, &str, Vec<f64>)| {
            *name == workload && *label == VARIANTS[0].label
        };
        counts
            .iter()
            .position(is_stock)
            .map_or(f64::NAN, |n| medians[n])
    };
    let mut lines: Vec<Line> = counts
        .iter()
        .zip(&medians)
        .map(|((workload, variant, rounds), &median)| Line {
            workload,
            variant,
            rounds: rounds.clone(),
            median,
            to_stock: median / stock(workload),
        })
        .collect();
    lines.sort_by_key(|line| WORKLOADS.iter().position(|one| one.name == line.workload));
    lines
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

impl Measured for Record {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn text(&self) -> String {
        let row = |line: &Line| {
            Row::from(vec![
                line.workload.to_owned(),
                line.variant.to_owned(),
                format!("{:.0}", line.median),
                format!("{:.4}", line.to_stock),
            ])
        };
        let columns = ["workload", "variant", "instructions", "x stock"];
        Sheet::new(columns, 0..2, vec![self.lines.iter().map(row).collect()]).text()
    }
}

/// A server under valgrind, and where its processes leave their counts. The server goes first.
struct Site {
    control: Client,
    server: Server,
    counts: Scratch,
}

impl Site {
    fn start(install: &PgInstall, system: System) -> anyhow::Result<Self> {
        let base = match system {
            System::Txn => ServerOptions::default(),
            _ => ServerOptions::stock(),
        };
        let options = SETTINGS
            .iter()
            .fold(base, |options, (name, value)| options.set(*name, *value))
            .set("autovacuum", "off");
        let mut server = Server::start(install, options)?;
        server
            .psql(workload::SCHEMA)
            .context("loading the tables")?;
        let counts = Scratch::new(server.user())?;
        let place = counts.path().join("%p").display().to_string();
        server.start_again_under(vec![
            "valgrind".to_owned(),
            "--tool=cachegrind".to_owned(),
            "--cache-sim=no".to_owned(),
            "--quiet".to_owned(),
            format!("--cachegrind-out-file={place}"),
        ])?;
        let control = server.connect()?;
        let site = Self {
            control,
            server,
            counts,
        };
        // The process that looks whether there is anything to recover.
        site.take_greatest(1)?;
        Ok(site)
    }

    fn describe(&mut self) -> anyhow::Result<Description> {
        let system = match self.server.options().preload {
            true => System::Txn,
            false => System::Stock,
        };
        describe(&mut self.control, system)
    }

    /// Instructions per transaction.
    fn count(
        &mut self,
        workload: &Workload,
        variant: &Variant,
        protocol: Protocol,
    ) -> anyhow::Result<f64> {
        let few = self.run(workload, variant, protocol, FEW)?;
        let more = self.run(workload, variant, protocol, FEW + MORE)?;
        Ok((more as f64 - few as f64) / MORE as f64)
    }

    /// The instructions of one session with so many transactions, whose effects are looked for in
    /// the data.
    fn run(
        &mut self,
        workload: &Workload,
        variant: &Variant,
        protocol: Protocol,
        transactions: u64,
    ) -> anyhow::Result<u64> {
        self.server
            .psql(&format!("{}{}", workload::RESET, workload.reset))?;
        self.take_greatest(1)?;
        let scripts = Scratch::new(self.server.user())?;
        let mut pgbench = self.server.command("pgbench");
        pgbench::add_scripts(&mut pgbench, &scripts, workload.scripts)?;
        let ended = pgbench
            .env("PGOPTIONS", pgbench::options(variant.settings))
            .args(["--no-vacuum", "--client", "1", "--define", "spread=0"])
            .args(["--random-seed", "1", "--protocol", protocol.name()])
            .args(["--transactions", &transactions.to_string()])
            .output()?;
        if !ended.status.success() {
            bail!("pgbench failed: {}", String::from_utf8_lossy(&ended.stderr));
        }
        // Its first session looks whether the server is there.
        let count = self.take_greatest(2)?;
        let effect: i64 = self.control.query_one(workload.effect, &[])?.get(0);
        ensure!(
            effect == transactions as i64,
            "{effect} effects of {transactions} transactions of {}",
            workload.name
        );
        Ok(count)
    }

    /// What the longest of the last sessions has executed, once each of them has ended and written
    /// its count; forgets all of them.
    fn take_greatest(&self, sessions: usize) -> anyhow::Result<u64> {
        for _ in 0..PATIENCE.as_millis() / TICK.as_millis() {
            let mut counts = Vec::new();
            for file in fs::read_dir(self.counts.path())? {
                counts.extend(summary(&file?.path())?);
            }
            if let Some(&greatest) = counts.iter().max().filter(|_| counts.len() == sessions) {
                for file in fs::read_dir(self.counts.path())? {
                    fs::remove_file(file?.path())?;
                }
                return Ok(greatest);
            }
            ensure!(
                counts.len() <= sessions,
                "{} sessions were counted",
                counts.len()
            );
            sleep(TICK);
        }
        bail!("valgrind has not written what it has counted")
    }
}

/// The sum at the end of a file of cachegrind's; none as long as it is not there.
fn summary(file: &Path) -> anyhow::Result<Option<u64>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("summary: "));
    let number = line.map(|line| line.split_whitespace().next().unwrap_or_default().parse());
    Ok(number.transpose()?)
}
