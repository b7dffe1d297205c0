//! The fault run: cycles of a load with faults, all of it drawn from a seed. After each cycle the
//! run compares what the clients were told with what the database holds. Then it makes the physical
//! check.
//!
//! `plan.rs` and `transaction.rs` draw, `client.rs` and `strike.rs` do, `book.rs` judges,
//! `replica.rs` has what must be a copy.

mod book;
mod client;
mod cycle;
mod disk;
mod kind;
mod log;
mod plan;
mod replica;
mod strike;
mod transaction;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use pgserver::{PgInstall, ServerOptions, cache_dir, make_readable_dir};
use serde::Serialize;

pub use cycle::Cycle;
pub(crate) use log::{PREFIX, is_problem};
pub(crate) use plan::rng;
pub use plan::{Aim, Fault, Hit, Plan, ReplicaKind};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// The first cycle; a failed one can be run again by itself.
    pub first: u64,
    pub limit: Limit,
    pub clients: usize,
    pub faults: Vec<Fault>,
    /// `TXN_LIBRARY_DIR` when unset. It has to have the stop events.
    pub library_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub enum Limit {
    Cycles(u64),
    Time(Duration),
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the library says that it was built from.
    pub build: String,
    pub seed: u64,
    pub clients: usize,
    /// Processes killed with SIGKILL: backends and postmasters.
    pub kills: usize,
    /// How often each fault came, and what its victim did.
    pub hits: BTreeMap<String, usize>,
    pub failed: usize,
    pub cycles: Vec<Cycle>,
}

impl Report {
    fn add(&mut self, cycle: Cycle) {
        if self.build.is_empty() {
            self.build.clone_from(&cycle.build);
        }
        self.failed += usize::from(!cycle.wrong.is_empty());
        for hit in &cycle.hits {
            self.kills += usize::from(hit.fault.is_kill());
            *self.hits.entry(hit.to_string()).or_default() += 1;
        }
        self.cycles.push(cycle);
    }

    /// The faults that came with `fault`.
    pub fn count(&self, fault: Fault) -> usize {
        let hits = self.cycles.iter().flat_map(|cycle| &cycle.hits);
        hits.filter(|hit| hit.fault == fault).count()
    }

    /// The last line of the run.
    pub fn summary(&self) -> String {
        format!(
            "{} cycles, {} kills, {} failed",
            self.cycles.len(),
            self.kills,
            self.failed
        )
    }
}

/// Runs the cycles, on one data folder as long as they pass; that of a failed cycle is kept.
/// `watch` is shown each cycle with the folder that was kept, and says whether to go on.
pub fn run(
    install: &PgInstall,
    options: &Options,
    mut watch: impl FnMut(&Cycle, Option<&PathBuf>) -> bool,
) -> Result<Report> {
    let parent = cache_dir().join("faults");
    make_readable_dir(&parent)?;
    let began = Instant::now();
    let mut report = Report {
        build: String::new(),
        seed: options.seed,
        clients: options.clients,
        kills: 0,
        hits: BTreeMap::new(),
        failed: 0,
        cycles: Vec::new(),
    };
    let mut home = None;
    for number in options.first.. {
        let over = match options.limit {
            Limit::Cycles(cycles) => number >= options.first + cycles,
            Limit::Time(time) => began.elapsed() >= time,
        };
        if over {
            break;
        }
        let plan = Plan::draw(options.seed, number, options.clients, &options.faults);
        let folder = home.get_or_insert_with(|| {
            parent.join(format!("{}-{number}-{}", options.seed, std::process::id()))
        });
        let server = ServerOptions {
            data_dir: Some(folder.join("data")),
            library_dir: options.library_dir.clone(),
            ..ServerOptions::default()
        };
        let cycle = cycle::run(install, folder, server, &plan);
        let kept = match cycle.wrong.is_empty() {
            true => None,
            false => home.take(),
        };
        let go_on = watch(&cycle, kept.as_ref());
        report.add(cycle);
        if !go_on {
            break;
        }
    }
    if let Some(folder) = home {
        fs::remove_dir_all(folder)?;
    }
    Ok(report)
}
