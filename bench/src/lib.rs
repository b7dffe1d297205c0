//! `cargo xtask bench`: the named benchmarks, with raw results as JSON. `demo`, `geo_demo` and
//! `soak` are commands of their own that measure with the same parts.
//!
//! What all kinds of benchmarks have in common. `common` has the arguments; `selection` finds what
//! was asked for; `plan` runs it and keeps the results. `rounds` has the order of the runs, `stats`
//! and `table` their figures. `archive` reads committed records back: `compare` and `results` use
//! them.
//!
//! `catalog` and `workload` say what most benchmarks measure, `runner` measures it on `site`s,
//! `record` keeps it. The demo puts a report around it. Other kinds are in folders of their own.

mod archive;
mod axis;
mod books;
mod catalog;
mod check;
mod common;
mod compare;
pub mod demo;
mod family;
mod fixed_rate;
mod geo;
pub mod geo_demo;
mod hammerdb;
mod instructions;
mod latency;
mod mariadb;
mod missing;
mod old_snapshot;
mod pgbench;
mod pgbench_report;
mod plan;
mod postgres_site;
mod range;
mod record;
mod report;
mod results;
mod rounds;
mod runner;
mod running;
mod sample;
mod scans;
mod scratch;
mod script;
mod selection;
mod site;
pub mod soak;
mod stats;
mod sysbench;
mod table;
mod tpcc;
mod transactions;
mod variant;
mod workload;

use std::path::{Path, PathBuf};

use pgserver::PgInstall;

use plan::Folders;
pub use selection::Args;
use tooling::files::make_folder;
use tooling::install::install_release;
use tooling::tools::checkout;
use tooling::{interrupt, setup};

/// Runs one benchmark or all. A run whose data is wrong is an error.
pub fn run(mut args: Args, pg_config: Option<PathBuf>) -> anyhow::Result<()> {
    args.common.variants = common::labels(&args.common.variants);
    if args.name == "list" {
        for (name, about) in args
            .list()
            .into_iter()
            .chain([(results::NAME, results::ABOUT)])
        {
            println!("{name:<16} {about}");
        }
        return Ok(());
    }
    if args.name == results::NAME {
        return results::write();
    }
    let plans = args.select()?;
    let folders = Folders {
        records: args.out.unwrap_or_else(archive::folder),
        reports: args
            .report
            .unwrap_or_else(|| checkout().join("bench-report")),
    };
    // Now: when it fails after the runs, their record is lost.
    make_folder(&folders.records)?;
    let needs_library = plans.iter().any(|plan| plan.extent().needs_library);
    let install = prepare(pg_config.as_deref(), needs_library && !args.no_install)?;
    let plans = match args.missing && needs_library {
        true => missing::of(plans, &install, &folders.records)?,
        false => plans,
    };
    let extents: Vec<_> = plans.iter().map(|plan| plan.extent()).collect();
    println!("{}", selection::told(&extents));
    plans
        .iter()
        .try_for_each(|plan| plan.run(&install, &folders))
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
