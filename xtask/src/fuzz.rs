//! `cargo xtask fuzz`: the differential fuzzer, for as long as one likes.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use txn_server_tests::fuzz::{Limit, Options, Report, run as run_schedules};

use tooling::install::{Variant, build_library, install_release, publish};
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::setup;

#[derive(clap::Args)]
pub struct Args {
    /// The first schedule; alone it is this one only [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// As many schedules as begin within so many seconds
    #[arg(long, value_name = "S", conflicts_with = "schedules")]
    seconds: Option<u64>,
    /// So many schedules
    #[arg(long, value_name = "N")]
    schedules: Option<u64>,
    /// Runs of smaller schedules to shrink one that has failed
    #[arg(long, value_name = "N", default_value_t = 150)]
    shrink: usize,
    /// Failures of each rule to shrink and to keep in the report; of others only the seed is kept
    #[arg(long, value_name = "N", default_value_t = 5)]
    keep: usize,
    /// Only schedules with a statement that contains one of these texts
    #[arg(long, value_name = "TEXT,...", value_delimiter = ',')]
    only: Vec<String>,
    /// With none of the extension's settings on: what is found then is wrong with the fuzzer
    #[arg(long)]
    off: bool,
    /// Without the replay on a server without the library
    #[arg(long)]
    no_replay: bool,
    /// With the control file and the SQL that are installed; the library is built in any case
    #[arg(long)]
    no_install: bool,
    /// The library in this folder, perhaps of another commit, instead of a build of this one; its
    /// control file and SQL must be those that are installed
    #[arg(long, value_name = "DIR", conflicts_with = "no_install")]
    library: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// What is written to `--report`.
#[derive(Serialize)]
struct Record<'a> {
    machine: Machine,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the schedules; `true` when all have passed.
pub fn run(args: Args, pg_config: Option<&Path>) -> Result<bool> {
    interrupt::watch()?;
    let install = setup::run(pg_config)?;
    if !args.no_install && args.library.is_none() {
        install_release(&install)?;
    }
    // Kept until the servers have ended.
    let built = match &args.library {
        Some(_) => None,
        None => Some(publish(&build_library(Variant::Checked, &install)?)?),
    };
    let library = args.library.as_deref();
    let library = library.or(built.as_ref().map(|folder| folder.path()));
    let limit = match (args.seconds, args.schedules, args.seed) {
        (Some(seconds), _, _) => Limit::Time(Duration::from_secs(seconds)),
        (None, Some(schedules), _) => Limit::Schedules(schedules),
        (None, None, Some(_)) => Limit::Schedules(1),
        (None, None, None) => Limit::Time(Duration::from_secs(60)),
    };
    let options = Options {
        seed: args.seed.unwrap_or_else(seed),
        limit,
        library_dir: library.map(Path::to_owned),
        shrink: args.shrink,
        keep: args.keep,
        only: args.only,
        off: args.off,
        replay: !args.no_replay,
    };
    println!("seed {}", options.seed);
    let machine = Machine::look();
    let bar = bar(limit)?;
    let report = run_schedules(&install, &options, |report, failure| {
        if let Some(failure) = failure {
            bar.suspend(|| println!("{}", failure.transcript));
        }
        match limit {
            Limit::Schedules(_) => bar.inc(1),
            Limit::Time(_) => bar.set_position(bar.elapsed().as_secs()),
        }
        bar.set_message(report.summary());
        interrupt::check().is_ok()
    })?;
    bar.finish_and_clear();
    if let Some(file) = &args.report {
        let record = Record {
            machine,
            report: &report,
        };
        fs::write(file, serde_json::to_string_pretty(&record)?)
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    for (rule, seeds) in &report.rules {
        println!("{:>5} {rule}", seeds.len());
    }
    println!("{}", report.summary());
    Ok(report.failed == 0)
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs() * 1000)
}

fn bar(limit: Limit) -> Result<ProgressBar> {
    let length = match limit {
        Limit::Schedules(schedules) => schedules,
        Limit::Time(time) => time.as_secs(),
    };
    let bar = ProgressBar::new(length);
    bar.set_style(
        ProgressStyle::with_template("{bar:24.cyan/dim} {pos}/{len}  {elapsed}  {msg}")?
            .progress_chars("━╸─"),
    );
    bar.enable_steady_tick(Duration::from_millis(250));
    Ok(bar)
}
