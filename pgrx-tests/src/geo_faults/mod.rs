//! The fault run of distributed transactions: cycles of a coordinator and nodes under load, one
//! fault each, all of it drawn from a seed. It compares what the clients were told with what the
//! coordinator and the nodes have.
//!
//! `plan.rs` and `transaction.rs` draw, `client.rs` and `strike.rs` do, `watch.rs` looks how long
//! transactions stay in doubt, `book.rs` judges.

mod book;
mod client;
mod cycle;
mod plan;
mod strike;
mod transaction;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;

use pgserver::{PgInstall, cache_dir};
use serde::Serialize;

pub use cycle::Cycle;
pub use plan::{Fault, Plan};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    /// The first cycle; a failed one can be run again by itself.
    pub first: u64,
    pub cycles: u64,
    pub faults: Vec<Fault>,
    /// `TXN_LIBRARY_DIR` when unset. It has to have the stop events.
    pub library_dir: Option<PathBuf>,
    /// With foreign tables of stock postgres_fdw, which is not atomic: cycles have to fail.
    pub is_control: bool,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What the library says that it was built from.
    pub build: String,
    pub seed: u64,
    pub is_control: bool,
    pub acknowledged: usize,
    pub refused: usize,
    pub in_doubt: usize,
    /// Cycles by fault, with what was met.
    pub faults: BTreeMap<String, usize>,
    /// The longest of all cycles.
    pub old_gid_ms: u64,
    pub longest_gid_ms: u64,
    pub failed: usize,
    pub cycles: Vec<Cycle>,
}

impl Report {
    fn add(&mut self, cycle: Cycle) {
        if self.build.is_empty() {
            self.build.clone_from(&cycle.build);
        }
        self.acknowledged += cycle.acknowledged;
        self.refused += cycle.refused;
        self.in_doubt += cycle.in_doubt;
        self.old_gid_ms = self.old_gid_ms.max(cycle.old_gid_ms);
        self.longest_gid_ms = self.longest_gid_ms.max(cycle.longest_gid_ms);
        self.failed += usize::from(!cycle.wrong.is_empty());
        *self.faults.entry(cycle.fault.clone()).or_default() += 1;
        self.cycles.push(cycle);
    }

    /// The last line of the run.
    pub fn summary(&self) -> String {
        format!(
            "{} cycles, {} transactions acknowledged, {} in doubt; prepared ones were gone {} ms \
             after the last server was back at the latest; {} failed",
            self.cycles.len(),
            self.acknowledged,
            self.in_doubt,
            self.old_gid_ms,
            self.failed
        )
    }
}

/// Runs the cycles. `watch` is shown each with the folder in which the logs of a failed one are,
/// and says whether to go on.
pub fn run(
    install: &PgInstall,
    options: &Options,
    mut watch: impl FnMut(&Cycle, Option<&PathBuf>) -> bool,
) -> Report {
    let mut report = Report {
        build: String::new(),
        seed: options.seed,
        is_control: options.is_control,
        acknowledged: 0,
        refused: 0,
        in_doubt: 0,
        faults: BTreeMap::new(),
        old_gid_ms: 0,
        longest_gid_ms: 0,
        failed: 0,
        cycles: Vec::new(),
    };
    for number in options.first..options.first + options.cycles {
        let plan = Plan::draw(options.seed, number, &options.faults);
        let name = format!("{}-{number}-{}", options.seed, std::process::id());
        let home = cache_dir().join("geo-faults").join(name);
        let cycle = cycle::run(install, options, &plan, &home);
        let has_failed = !cycle.wrong.is_empty();
        let go_on = watch(&cycle, has_failed.then_some(&home));
        report.add(cycle);
        if !go_on {
            break;
        }
    }
    report
}
