//! `cargo xtask bench`: the named benchmarks, with raw results as JSON.
//!
//! `catalog` and `workload` say what is measured, `runner` measures it on `site`s, `record` keeps
//! it. `archive` reads committed records back: `compare` and `results` use them. The demo is the
//! same with a report around it.

mod archive;
mod books;
pub mod catalog;
mod check;
mod compare;
mod family;
mod fixed_rate;
pub mod geo;
mod hammerdb;
mod instructions;
pub mod interrupt;
pub mod latency;
pub mod machine;
mod mariadb;
mod old_snapshot;
pub mod pgbench;
pub mod pgbench_report;
pub mod postgres_site;
pub mod progress;
mod range;
pub mod record;
mod results;
pub mod runner;
pub mod sample;
pub mod scratch;
mod selection;
pub mod site;
pub mod stats;
mod sysbench;
pub mod table;
mod tpcc;
mod transactions;
pub mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use catalog::Benchmark;
use pgserver::PgInstall;
use runner::Plan;
use selection::Selection;
use serde::Serialize;

use crate::install::install_release;
use crate::setup;
use crate::tools::checkout;

#[derive(clap::Args)]
pub struct Args {
    /// Which benchmark: a name of `bench list`, `list`, `all`, `results`, or the name of a family
    /// (`shapes`, `tpcc`, `sysbench`)
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
    /// Only these variants (their labels, with commas and no space between)
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
    /// Warehouses of range-tpcc and geo-tpcc [default: 16] and hammerdb [default: 1]
    #[arg(long, value_name = "NUMBER")]
    warehouses: Option<u64>,
    /// Folder for the HTML reports of range benchmarks, geo benchmarks and fixed-rate
    /// [default: bench-report in the checkout]
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    #[command(flatten)]
    fixed_rate: fixed_rate::Options,
    #[command(flatten)]
    geo: geo::Options,
    #[command(flatten)]
    hammerdb: hammerdb::Options,
    #[command(flatten)]
    range: range::Options,
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

    fn for_ranges(&self) -> range::Common<'_> {
        range::Common {
            clients: &self.clients,
            variants: &self.variants,
            warehouses: self.warehouses,
            seconds: self.seconds,
            rounds: self.rounds,
            protocol: self.protocol,
            raw: self.raw,
        }
    }

    fn for_fixed_rate(&self) -> fixed_rate::Common<'_> {
        fixed_rate::Common {
            clients: &self.clients,
            variants: &self.variants,
            seconds: self.seconds,
            rounds: self.rounds,
            protocol: self.protocol,
        }
    }

    fn for_geo(&self) -> geo::Common<'_> {
        geo::Common {
            clients: &self.clients,
            variants: &self.variants,
            warehouses: self.warehouses,
            seconds: self.seconds,
            rounds: self.rounds,
            protocol: self.protocol,
        }
    }

    fn for_hammerdb(&self) -> hammerdb::Common<'_> {
        hammerdb::Common {
            clients: &self.clients,
            variants: &self.variants,
            warehouses: self.warehouses,
            rounds: self.rounds,
        }
    }
}

/// Runs one benchmark or all. A run whose data is wrong is an error.
pub fn run(mut args: Args, pg_config: Option<PathBuf>) -> anyhow::Result<()> {
    args.variants = labels(&args.variants);
    if args.name == "list" {
        selection::list();
        return Ok(());
    }
    if args.name == results::NAME {
        return results::write();
    }
    let selection = Selection::of(&args)?;
    let out = match &args.out {
        Some(folder) => folder.clone(),
        None => archive::folder(),
    };
    let reports = match &args.report {
        Some(folder) => folder.clone(),
        None => checkout().join("bench-report"),
    };
    // Now: when it fails after the runs, their record is lost.
    make_folder(&out)?;
    let install = prepare(
        pg_config.as_deref(),
        selection.needs_library() && !args.no_install,
    )?;
    selection.announce(args.rounds);
    selection.measure(&args, &install, &out, &reports)
}

/// The labels of variants: a comma before a space is part of a label.
fn labels(parts: &[String]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for part in parts {
        match labels.last_mut() {
            Some(label) if part.starts_with(' ') => *label += &format!(",{part}"),
            _ => labels.push(part.clone()),
        }
    }
    labels
}

/// Measures a benchmark, prints its table, and keeps its record.
fn measure_one(plan: &Plan, install: &PgInstall, out: &Path) -> anyhow::Result<()> {
    let benchmark = plan.benchmark;
    println!("{}: {}", benchmark.name, benchmark.about);
    let record = plan.measure(install)?;
    println!("{}", table::render(&record.summary, record.baseline));
    keep(&record, &out.join(record.machine.file_name(benchmark.name)))
}

/// Writes a record, and says what fell since the last one.
fn keep(record: &impl Serialize, path: &Path) -> anyhow::Result<()> {
    write_json(record, path)?;
    compare::tell(&[record]);
    println!("raw results: {}\n", path.display());
    Ok(())
}

/// Writes the report of that name into the folder.
fn write_report(page: &str, folder: &Path, name: &str) -> anyhow::Result<()> {
    make_folder(folder)?;
    let path = folder.join(name).with_extension("html");
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    println!("report: {}\n", path.display());
    Ok(())
}

fn make_folder(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Writes all of a measurement, making the folder when it is not there.
pub fn write_json(record: &impl Serialize, path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let text = serde_json::to_string_pretty(record)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The PostgreSQL to measure, with what is missing set up; the extension built and installed into
/// it when it is to be.
pub fn prepare(pg_config: Option<&Path>, install_extension: bool) -> anyhow::Result<PgInstall> {
    let install = setup::run(pg_config)?;
    if install_extension {
        install_release(&install)?;
    }
    interrupt::watch()?;
    Ok(install)
}

#[cfg(test)]
mod tests {
    use super::labels;

    #[test]
    fn labels_may_have_commas() {
        let given = ["lane", "lane", " all keys", " range OCC", "SSI"].map(String::from);
        assert_eq!(labels(&given), ["lane", "lane, all keys, range OCC", "SSI"]);
    }
}
