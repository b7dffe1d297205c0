//! `cargo xtask faults`: the fault run, for as long as one likes.
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use pgserver::PgInstall;
use serde::Serialize;
use txn_server_tests::faults::{Cycle, Fault, Limit, Options, run as run_cycles};

use tooling::files::write_json;
use tooling::install::{Variant, build_library, install_release, publish};
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;
use tooling::setup;

#[derive(clap::Args)]
pub struct Args {
    /// Everything that is drawn is drawn from this [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// As many cycles as begin within so many seconds
    #[arg(long, value_name = "S", conflicts_with = "cycles")]
    seconds: Option<u64>,
    /// So many cycles [default: 20]
    #[arg(long, value_name = "N")]
    cycles: Option<u64>,
    /// The first cycle: with `--cycles 1`, a failed one again
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Clients of the load
    #[arg(long, value_name = "N", default_value_t = 24)]
    clients: usize,
    /// Only these faults: cancel, terminate, kill-backend, kill-postmaster, immediate, fast,
    /// disk-full, timeout, cut [default: all; disk-full is for root]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    only: Vec<Fault>,
    /// With the control file and the SQL that are installed; the library is built in any case
    #[arg(long)]
    no_install: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What is written to `--out`.
#[derive(Serialize)]
struct Record<'a, R> {
    machine: Machine,
    postgresql: &'a str,
    #[serde(flatten)]
    report: &'a R,
}

/// Runs the cycles; `true` when all have passed.
pub fn run(args: Args, pg_config: Option<&Path>) -> Result<bool> {
    interrupt::watch()?;
    let install = setup::run(pg_config)?;
    if !args.no_install {
        install_release(&install)?;
    }
    let library = publish(&build_library(Variant::Checked, &install)?)?;
    let limit = match (args.seconds, args.cycles) {
        (Some(seconds), _) => Limit::Time(Duration::from_secs(seconds)),
        (None, cycles) => Limit::Cycles(cycles.unwrap_or(20)),
    };
    let options = Options {
        seed: args.seed.unwrap_or_else(seed_of_the_clock),
        first: args.first,
        limit,
        clients: args.clients,
        faults: faults(args.only),
        library_dir: Some(library.path().to_owned()),
    };
    println!("seed {}", options.seed);
    let machine = Machine::look();
    let began = Instant::now();
    let progress = Progress::new(match limit {
        Limit::Cycles(cycles) => cycles as usize,
        Limit::Time(time) => time.as_secs() as usize,
    })?;
    let report = run_cycles(&install, &options, |cycle, kept| {
        show(&progress, cycle, kept);
        match limit {
            Limit::Cycles(_) => progress.end(),
            Limit::Time(_) => progress.set(began.elapsed().as_secs()),
        }
        interrupt::check().is_ok()
    })?;
    drop(progress);
    keep(args.out.as_deref(), machine, &install, &report)?;
    tell(&report.hits, &report.build, &report.summary());
    Ok(report.failed == 0)
}

/// Writes the report to the file that was asked for, if one was.
pub fn keep(
    out: Option<&Path>,
    machine: Machine,
    install: &PgInstall,
    report: &impl Serialize,
) -> Result<()> {
    let Some(file) = out else {
        return Ok(());
    };
    let record = Record {
        machine,
        postgresql: &install.version,
        report,
    };
    write_json(&record, file)
}

/// What was hit how often, by which library, and the verdict.
pub fn tell(hits: &BTreeMap<String, usize>, build: &str, summary: &str) {
    for (hit, count) in hits {
        println!("{count:>5} {hit}");
    }
    println!("library: {build}\n{summary}");
}

/// Another one each second.
pub fn seed_of_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// What was asked for; everything that we may do if nothing was.
fn faults(only: Vec<Fault>) -> Vec<Fault> {
    if !only.is_empty() {
        return only;
    }
    // SAFETY: asks for a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    let all = Fault::ALL.into_iter().map(|(fault, _)| fault);
    all.filter(|fault| is_root || *fault != Fault::DiskFull)
        .collect()
}

fn show(progress: &Progress, cycle: &Cycle, kept: Option<&PathBuf>) {
    let hits: Vec<String> = cycle.hits.iter().map(ToString::to_string).collect();
    progress.print(&format!(
        "cycle {:>3} {:>5.1} s  {:>5} acknowledged {:>5} failed {:>3} in doubt  {}",
        cycle.cycle,
        cycle.seconds,
        cycle.acknowledged,
        cycle.failed,
        cycle.in_doubt,
        hits.join(" ")
    ));
    let kept = kept.map(|folder| format!("its data and log are kept in {}", folder.display()));
    failures(progress, &cycle.wrong, &cycle.settings, kept);
}

/// What was wrong with a cycle, and what is left of it.
pub fn failures(
    progress: &Progress,
    wrong: &[String],
    settings: &impl Display,
    kept: Option<String>,
) {
    for wrong in wrong {
        progress.print(&format!("  FAILED: {wrong}"));
    }
    if let Some(kept) = kept {
        progress.print(&format!("  {settings}\n  {kept}"));
    }
}
