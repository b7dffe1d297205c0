//! `cargo xtask bench`: the named benchmarks, with raw results as JSON.
//!
//! `catalog` and `workload` say what is measured, `runner` measures it on `site`s, `record` keeps
//! it. The demo is the same with a report around it.

mod books;
pub mod catalog;
mod check;
mod family;
mod instructions;
pub mod interrupt;
mod latency;
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
pub mod site;
pub mod stats;
mod sysbench;
pub mod table;
mod tpcc;
mod transactions;
pub mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// Which benchmark: a name of `bench list`, `list`, `all`, `results`, or the name of a family
    /// (`shapes`, `tpcc`)
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

    fn common(&self) -> range::Common<'_> {
        range::Common {
            clients: &self.clients,
            variants: &self.variants,
            seconds: self.seconds,
            rounds: self.rounds,
            protocol: self.protocol,
            raw: self.raw,
        }
    }
}

/// Runs one benchmark or all. A run whose data is wrong is an error.
pub fn run(args: Args, pg_config: Option<PathBuf>) -> anyhow::Result<()> {
    if args.name == "list" {
        list();
        return Ok(());
    }
    if args.name == results::NAME {
        return results::write();
    }
    let chosen = |name: &str| args.name == "all" || args.name == name;
    let ranges: Vec<range::Plan> = range::ALL
        .iter()
        .filter(|benchmark| chosen(benchmark.name))
        .map(|benchmark| args.range.plan(benchmark, &args.common()))
        .collect::<Result<_, _>>()?;
    let mut plans: Vec<Plan> = catalog::all()
        .filter(|one| chosen(one.name) || one.family == Some(args.name.as_str()))
        .map(|benchmark| args.plan(benchmark))
        .collect();
    let mut counts = chosen(instructions::NAME);
    if plans.is_empty() && ranges.is_empty() && !counts {
        bail!(
            "there is no benchmark \"{}\": `cargo xtask bench list` shows them",
            args.name
        );
    }
    if ranges.is_empty() {
        args.range.refuse()?;
    }
    if args.name == "all" {
        plans.retain(|plan| match plan.check_packages() {
            Ok(()) => true,
            Err(error) => {
                println!("{} is left out: {error}", plan.benchmark.name);
                false
            }
        });
        if let Err(error) = instructions::version() {
            println!("{} is left out: {error}", instructions::NAME);
            counts = false;
        }
    }
    for plan in &plans {
        plan.check()?;
    }
    let needs_library = counts
        || plans.iter().any(Plan::needs_library)
        || ranges.iter().any(range::Plan::needs_library);
    let install = prepare(pg_config.as_deref(), needs_library && !args.no_install)?;
    let estimates = plans.iter().map(Plan::estimate);
    let estimates = estimates.chain(ranges.iter().map(range::Plan::estimate));
    let counting = counts.then(|| instructions::estimate(args.rounds));
    let runs = plans
        .iter()
        .map(Plan::runs)
        .chain(ranges.iter().map(range::Plan::runs));
    println!(
        "{} benchmarks, {} runs, about {}",
        plans.len() + ranges.len() + usize::from(counts),
        runs.sum::<usize>(),
        in_minutes(estimates.chain(counting).sum())
    );
    let out = match &args.out {
        Some(folder) => folder.clone(),
        None => checkout().join("bench/results"),
    };
    let is_family = |plan: &Plan| {
        plan.benchmark
            .family
            .filter(|_| args.name != plan.benchmark.name)
    };
    for plans in
        plans.chunk_by(|one, next| is_family(one).is_some() && is_family(one) == is_family(next))
    {
        match is_family(&plans[0]) {
            Some(family) => family::measure(family, plans, &install, &out)?,
            None => measure_one(&plans[0], &install, &out)?,
        }
    }
    if counts {
        let record = instructions::measure(&install, args.rounds, args.protocol)?;
        println!("{}", instructions::render(&record));
        write_json(&record, &out.join(record.file_name()))?;
    }
    for plan in ranges {
        args.range.measure(plan, &install, &out)?;
    }
    Ok(())
}

/// For people, who need no seconds.
fn in_minutes(time: Duration) -> String {
    let minutes = time.as_secs().div_ceil(60);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn list() {
    let ranges = range::ALL.iter().map(|one| (one.name, one.about));
    let single = catalog::all().filter(|one| one.family.is_none());
    let all = single.map(|one| (one.name, one.about));
    let counted = [
        (instructions::NAME, instructions::ABOUT),
        (results::NAME, results::ABOUT),
    ];
    let families = catalog::FAMILIES.iter().copied();
    for (name, about) in all.chain(families).chain(ranges).chain(counted) {
        println!("{name:<16} {about}");
    }
}

/// Measures a benchmark, prints its table, and keeps its record.
fn measure_one(plan: &Plan, install: &PgInstall, out: &Path) -> anyhow::Result<()> {
    let benchmark = plan.benchmark;
    println!("{}: {}", benchmark.name, benchmark.about);
    let record = plan.measure(install)?;
    println!("{}", table::render(&record.summary, record.baseline));
    let path = out.join(record.machine.file_name(benchmark.name));
    write_json(&record, &path)?;
    println!("raw results: {}\n", path.display());
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

/// The PostgreSQL to measure, with what is missing set up; the extension built and installed into it when it is to be.
pub fn prepare(pg_config: Option<&Path>, install_extension: bool) -> anyhow::Result<PgInstall> {
    let install = setup::run(pg_config)?;
    if install_extension {
        install_release(&install)?;
    }
    interrupt::watch()?;
    Ok(install)
}
