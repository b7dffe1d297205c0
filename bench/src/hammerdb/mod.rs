//! `cargo xtask bench hammerdb`: HammerDB's TPROC-C, unmodified, on stock PostgreSQL and with group
//! lock.
//!
//! `cli` runs HammerDB, `site` has the servers with its schema, `record` keeps what came out.

mod cli;
mod record;
mod site;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use pgserver::PgInstall;
use serde::Serialize;
use serde_json::json;

use super::catalog::tpcb::{IMMEDIATE, WAIT};
use super::catalog::{A_WAREHOUSE_EACH, OFF, SLOW, STOCK, System};
use super::common::{Common, or_own};
use super::plan::{Bench, Entry, Extent, Kind, Lacking};
use super::rounds::{Turn, in_rounds};
use super::site::Description;
use super::variant::{Variant, needs_library, variant};
use cli::{Hammer, Times};
use record::{Record, Run, summarize};
use site::Site;
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;

struct Benchmark {
    name: &'static str,
    about: &'static str,
    /// Virtual users.
    clients: &'static [usize],
    slow_commits: bool,
}

static ALL: &[Benchmark] = &[
    Benchmark {
        name: "hammerdb",
        about: "HammerDB's TPROC-C with stored procedures, unmodified (needs --hammerdb)",
        clients: &[16],
        slow_commits: false,
    },
    Benchmark {
        name: "hammerdb-2ms",
        about: "the same where a commit takes 2 ms",
        clients: &[32],
        slow_commits: true,
    },
];

/// The last has as many warehouses as users.
static VARIANTS: [Variant; 5] = [
    variant(STOCK, System::Stock, &[]),
    variant(OFF, System::Txn, &[]),
    variant("group lock wait", System::Txn, WAIT),
    variant("group lock immediate", System::Txn, IMMEDIATE),
    variant(A_WAREHOUSE_EACH, System::Stock, &[]),
];

/// About what is added to the minutes of runs: for the server and HammerDB itself around each run,
/// for the copy and checks of a warehouse, and to build one.
const AROUND_SECONDS: u64 = 15;
const COPYING_SECONDS: u64 = 1;
const BUILDING_SECONDS: u64 = 20;

const HEADING: &str = "HammerDB";

/// What only these benchmarks can be told.
#[derive(clap::Args, Serialize)]
#[group(skip)]
pub struct Options {
    /// Folder with HammerDB 4.9 (bench/README.md says how to get it)
    #[arg(long, value_name = "FOLDER", help_heading = HEADING)]
    hammerdb: Option<PathBuf>,
    /// Minutes of each run that count [default: 2]
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    minutes: Option<u64>,
    /// Minutes of each run before them [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    ramp_up: Option<u64>,
}

impl Options {
    pub fn kind<'a>(&'a self, common: &'a Common) -> Kind<'a> {
        let entry = |one: &'static Benchmark| {
            Entry::new((one.name, one.about), move || Plan::new(one, self, common))
        };
        Kind {
            who: "the benchmarks hammerdb and hammerdb-2ms have",
            options: json!(self),
            has_warehouses: true,
            has_report: false,
            entries: ALL.iter().map(entry).collect(),
        }
    }
}

/// A benchmark, and how long and how often.
struct Plan {
    benchmark: &'static Benchmark,
    hammer: Hammer,
    clients: Vec<usize>,
    variants: Vec<Variant>,
    warehouses: usize,
    times: Times,
    rounds: usize,
}

impl Plan {
    /// Fails when the benchmark cannot be run with what was asked for.
    fn new(
        benchmark: &'static Benchmark,
        options: &Options,
        common: &Common,
    ) -> anyhow::Result<Self> {
        let folder = options.hammerdb.as_deref();
        let folder = folder
            .context("HammerDB is needed: --hammerdb FOLDER (bench/README.md says how to get it)")
            .context(Lacking)?;
        let plan = Self {
            benchmark,
            variants: common.choose(benchmark.name, &VARIANTS, |variant| variant.label)?,
            hammer: Hammer::find(folder)?,
            clients: or_own(&common.clients, benchmark.clients),
            warehouses: common.warehouses.unwrap_or(1) as usize,
            times: Times {
                ramp_up: options.ramp_up.unwrap_or(1),
                minutes: options.minutes.unwrap_or(2),
            },
            rounds: common.rounds,
        };
        ensure!(
            plan.times.minutes > 0
                && plan.rounds > 0
                && plan.warehouses > 0
                && !plan.clients.contains(&0),
            "HammerDB takes at least one minute, one round, one warehouse and one user"
        );
        Ok(plan)
    }

    /// The data folders of all numbers of warehouses that are needed.
    fn build(&self, install: &PgInstall) -> anyhow::Result<BTreeMap<usize, PathBuf>> {
        let mut data = BTreeMap::new();
        for variant in &self.variants {
            for &clients in &self.clients {
                interrupt::check()?;
                let warehouses = self.warehouses_of(variant, clients);
                data.insert(warehouses, site::built(install, &self.hammer, warehouses)?);
            }
        }
        Ok(data)
    }

    fn warehouses_of(&self, variant: &Variant, clients: usize) -> usize {
        match variant.label == A_WAREHOUSE_EACH {
            true => clients,
            false => self.warehouses,
        }
    }

    /// Of the server.
    fn settings(
        &self,
        variant: &Variant,
    ) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let slow = if self.benchmark.slow_commits {
            SLOW
        } else {
            &[]
        };
        slow.iter().chain(variant.settings)
    }

    /// Runs one variant on a copy of its data, and checks what it has left.
    fn run_once(
        &self,
        install: &PgInstall,
        data: &Path,
        variant: &Variant,
        clients: usize,
        turn: Turn,
        progress: &Progress,
    ) -> anyhow::Result<(Run, Description)> {
        let warehouses = self.warehouses_of(variant, clients);
        let settings = self.settings(variant);
        let mut site = Site::start(install, data, variant.system, settings, clients, warehouses)?;
        let system = site.describe()?;
        let (mut sampler, server) = site.sampler();
        let outcome = self.hammer.run(server, clients, self.times, &mut || {
            if let Some(sample) = sampler.sample()? {
                progress.tell(sample.line());
            }
            Ok(())
        })?;
        progress.tell("checking TPC-C's conditions".to_owned());
        let found = site.inspect(&self.hammer)?;
        let counted = outcome.nopm * self.times.minutes;
        ensure!(
            counted <= found.orders as u64,
            "WRONG DATA. HammerDB has counted {counted} new orders, but there are {}",
            found.orders
        );
        let settings = self.settings(variant);
        let settings: Vec<String> = settings
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let run = Run {
            turn,
            variant: variant.label,
            settings: settings.join(" "),
            clients,
            warehouses,
            nopm: outcome.nopm,
            tpm: outcome.tpm,
            orders: found.orders,
            failed: outcome.failed,
            rollbacks: found.rollbacks,
            deadlocks: found.deadlocks,
            counters: found.counters,
        };
        Ok((run, system))
    }
}

impl Bench for Plan {
    type Record = Record;

    fn title(&self) -> (&'static str, &'static str) {
        (self.benchmark.name, self.benchmark.about)
    }

    /// When the cache has no warehouses yet.
    fn extent(&self) -> Extent {
        let mut built = BTreeSet::new();
        let mut seconds = 0;
        for variant in &self.variants {
            for &clients in &self.clients {
                let warehouses = self.warehouses_of(variant, clients);
                let around = AROUND_SECONDS + COPYING_SECONDS * warehouses as u64;
                seconds += self.rounds as u64 * (self.times.seconds() + around);
                built.insert(warehouses);
            }
        }
        let warehouses = built.iter().sum::<usize>() as u64;
        Extent {
            names: vec![self.benchmark.name],
            needs_library: needs_library(&self.variants),
            runs: self.rounds * self.clients.len() * self.variants.len(),
            time: Duration::from_secs(seconds + BUILDING_SECONDS * warehouses),
        }
    }

    fn measure(&self, install: &PgInstall) -> anyhow::Result<Record> {
        let machine = Machine::look();
        let data = self.build(install)?;
        let mut systems: BTreeMap<&str, Description> = BTreeMap::new();
        let progress = Progress::new(self.extent().runs)?;
        let variants = |_: &usize| self.variants.iter().collect();
        let run = |turn, &clients: &usize, variant: &&Variant| {
            progress.begin(format!("{clients} users · {}", variant.label));
            let warehouses = self.warehouses_of(variant, clients);
            let data = data.get(&warehouses).context("warehouses were not built")?;
            let ran = self.run_once(install, data, variant, clients, turn, &progress);
            let (run, system) = ran.with_context(|| {
                let (name, label) = (self.benchmark.name, variant.label);
                format!("{name}: variant \"{label}\" with {clients} users")
            })?;
            systems.entry(variant.label).or_insert(system);
            Ok(run)
        };
        let runs = in_rounds(&progress, self.rounds, &self.clients, variants, run)?;
        drop(progress);
        let labels: Vec<&str> = self.variants.iter().map(|variant| variant.label).collect();
        Ok(Record {
            benchmark: self.benchmark.name,
            about: self.benchmark.about,
            machine,
            systems: labels
                .iter()
                .filter_map(|label| systems.remove(label))
                .collect(),
            hammerdb: self.hammer.version.clone(),
            ramp_up_minutes: self.times.ramp_up,
            minutes: self.times.minutes,
            rounds: self.rounds,
            baseline: STOCK,
            ceiling: A_WAREHOUSE_EACH,
            summary: summarize(STOCK, A_WAREHOUSE_EACH, &labels, &self.clients, &runs),
            runs,
        })
    }
}
