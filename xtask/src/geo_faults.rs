//! `cargo xtask geo-faults`: the fault run of distributed transactions.

use std::path::{Path, PathBuf};

use anyhow::Result;
use txn_server_tests::geo_faults::{Cycle, Fault, Options, run as run_cycles};

use crate::faults::{failures, keep, seed_of_the_clock, tell};
use tooling::install::{Variant, build_library, install_scripts, publish};
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;
use tooling::setup;

#[derive(clap::Args)]
pub struct Args {
    /// Everything that is drawn is drawn from this [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// So many cycles
    #[arg(long, value_name = "N", default_value_t = 20)]
    cycles: u64,
    /// The first cycle: with `--cycles 1`, a failed one again
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Only these faults: kill-coordinator, kill-postmaster, kill-backend, kill-resolver,
    /// kill-node, restart-node, cut, cut-prepare, break, signal, stop [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    only: Vec<Fault>,
    /// With tables of stock postgres_fdw, which is not atomic: whether the judge finds that
    #[arg(long)]
    control: bool,
    /// With the control file and the SQL that are installed; the library is built in any case
    #[arg(long)]
    no_install: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the cycles; `true` when all have passed, and of a control when one has not.
pub fn run(args: Args, pg_config: Option<&Path>) -> Result<bool> {
    interrupt::watch()?;
    let install = setup::run(pg_config)?;
    if !args.no_install {
        install_scripts(&install)?;
    }
    let library = publish(&build_library(Variant::Checked, &install)?)?;
    let options = Options {
        seed: args.seed.unwrap_or_else(seed_of_the_clock),
        first: args.first,
        cycles: args.cycles,
        faults: match args.only.is_empty() {
            true => Fault::ALL.map(|(fault, _)| fault).to_vec(),
            false => args.only,
        },
        library_dir: Some(library.path().to_owned()),
        is_control: args.control,
    };
    println!("seed {}", options.seed);
    let machine = Machine::look();
    let progress = Progress::new(options.cycles as usize)?;
    let report = run_cycles(&install, &options, |cycle, kept| {
        show(&progress, cycle, kept);
        progress.end();
        interrupt::check().is_ok()
    });
    drop(progress);
    keep(args.out.as_deref(), machine, &install, &report)?;
    tell(&report.faults, &report.build, &report.summary());
    Ok((report.failed > 0) == args.control)
}

fn show(progress: &Progress, cycle: &Cycle, kept: Option<&PathBuf>) {
    progress.print(&format!(
        "cycle {:>3} {:>5.1} s  {:>4} acknowledged {:>4} refused {:>3} in doubt  gone after \
         {:>4} ms  {}",
        cycle.cycle,
        cycle.seconds,
        cycle.acknowledged,
        cycle.refused,
        cycle.in_doubt,
        cycle.old_gid_ms,
        cycle.fault
    ));
    let kept = kept.map(|folder| format!("the logs are in {}", folder.display()));
    failures(progress, &cycle.wrong, &cycle.settings, kept);
}
