//! `cargo xtask bench`: the named benchmarks, with raw results as JSON.
//!
//! `catalog` and `workload` say what is measured, `runner` measures it on `site`s, `record` keeps
//! it. The demo is the same with a report around it.

pub mod catalog;
mod check;
pub mod interrupt;
mod latency;
pub mod machine;
mod mariadb;
mod old_snapshot;
pub mod pgbench;
pub mod pgbench_report;
pub mod postgres_site;
pub mod progress;
pub mod record;
pub mod runner;
pub mod sample;
pub mod scratch;
pub mod site;
pub mod stats;
pub mod table;
mod transactions;
pub mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use catalog::Benchmark;
use pgserver::PgInstall;
use runner::Plan;
use serde::Serialize;

use crate::install::install_release;
use crate::setup;
use crate::tools::checkout;

#[derive(clap::Args)]
pub struct Args {
    /// Which benchmark: a name of `bench list`, `list`, or `all`
    #[arg(default_value = "list")]
    name: String,
    /// Seconds of each run
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How often every variant runs at every number of clients
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Numbers of clients, in place of the benchmark's own
    #[arg(long, value_delimiter = ',')]
    clients: Vec<usize>,
    /// Only these variants (their labels, with commas between)
    #[arg(long, value_delimiter = ',')]
    variants: Vec<String>,
    /// pgbench's query protocol
    #[arg(long, value_enum, default_value = "prepared")]
    protocol: pgbench::Protocol,
    /// Folder for the JSON results [default: bench/results in the checkout]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Use the extension as it is installed: neither build nor install it
    #[arg(long)]
    no_install: bool,
    /// Print all that pgbench said when a run fails
    #[arg(long)]
    raw: bool,
}

impl Args {
    fn plan(&self, benchmark: &'static Benchmark) -> Plan {
        Plan {
            benchmark,
            clients: match self.clients.as_slice() {
                [] => benchmark.clients.to_vec(),
                clients => clients.to_vec(),
            },
            seconds: self.seconds,
            rounds: self.rounds,
            protocol: self.protocol,
            variants: self.variants.clone(),
            raw: self.raw,
        }
    }
}

/// Runs one benchmark or all. A run whose data is wrong is an error.
pub fn run(args: Args, pg_config: Option<PathBuf>) -> anyhow::Result<()> {
    let chosen: Vec<&'static Benchmark> = match args.name.as_str() {
        "list" => {
            for benchmark in catalog::ALL {
                println!("{:<16} {}", benchmark.name, benchmark.about);
            }
            return Ok(());
        }
        "all" => catalog::ALL.to_vec(),
        name => catalog::ALL
            .iter()
            .copied()
            .filter(|benchmark| benchmark.name == name)
            .collect(),
    };
    if chosen.is_empty() {
        bail!(
            "there is no benchmark \"{}\": `cargo xtask bench list` shows them",
            args.name
        );
    }
    let mut plans: Vec<Plan> = chosen
        .into_iter()
        .map(|benchmark| args.plan(benchmark))
        .collect();
    if args.name == "all" {
        plans.retain(|plan| match plan.check_packages() {
            Ok(()) => true,
            Err(error) => {
                println!("{} is left out: {error}", plan.benchmark.name);
                false
            }
        });
    }
    let install = prepare(pg_config.as_deref(), &plans, args.no_install)?;
    let out = args.out.unwrap_or_else(|| checkout().join("bench/results"));
    for plan in &plans {
        let benchmark = plan.benchmark;
        println!("{}: {}", benchmark.name, benchmark.about);
        let record = plan.measure(&install)?;
        println!("{}", table::render(&record.summary, record.baseline));
        let day = record.machine.time.split('T').next().unwrap_or_default();
        let path = out.join(format!("{}-{day}.json", benchmark.name));
        write_json(&record, &path)?;
        println!("raw results: {}\n", path.display());
    }
    Ok(())
}

/// Writes all of a measurement, making the folder when it is not there.
pub fn write_json(record: &impl Serialize, path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(record)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The PostgreSQL to measure, with what is missing set up: the extension, too, when a plan uses it.
pub fn prepare(
    pg_config: Option<&Path>,
    plans: &[Plan],
    no_install: bool,
) -> anyhow::Result<PgInstall> {
    for plan in plans {
        plan.check()?;
    }
    let install = setup::run(pg_config)?;
    if !no_install && plans.iter().any(Plan::needs_library) {
        install_release(&install)?;
    }
    interrupt::watch()?;
    Ok(install)
}
