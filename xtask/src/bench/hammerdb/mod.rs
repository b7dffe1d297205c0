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

use anyhow::{Context, bail, ensure};
use pgserver::PgInstall;

use super::catalog::tpcb::{IMMEDIATE, WAIT};
use super::catalog::{A_WAREHOUSE_EACH, OFF, SLOW, STOCK, System};
use super::machine::Machine;
use super::progress::Progress;
use super::runner::in_turn;
use super::site::Description;
use super::{interrupt, keep};
use cli::{Hammer, Times};
use record::{Record, Run};
use site::Site;

#[derive(Debug)]
pub struct Benchmark {
    pub name: &'static str,
    pub about: &'static str,
    /// Virtual users.
    clients: &'static [usize],
    slow_commits: bool,
}

pub static ALL: &[Benchmark] = &[
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

/// What is compared.
#[derive(Debug)]
struct Variant {
    label: &'static str,
    system: System,
    /// Of the server.
    settings: &'static [(&'static str, &'static str)],
    /// As many warehouses as users.
    a_warehouse_each: bool,
}

const fn variant(
    label: &'static str,
    system: System,
    settings: &'static [(&'static str, &'static str)],
) -> Variant {
    Variant {
        label,
        system,
        settings,
        a_warehouse_each: false,
    }
}

static VARIANTS: [Variant; 5] = [
    variant(STOCK, System::Stock, &[]),
    variant(OFF, System::Txn, &[]),
    variant("group lock wait", System::Txn, WAIT),
    variant("group lock immediate", System::Txn, IMMEDIATE),
    Variant {
        a_warehouse_each: true,
        ..variant(A_WAREHOUSE_EACH, System::Stock, &[])
    },
];

/// About what is added to the minutes of runs: for the server and HammerDB itself around each run,
/// for the copy and checks of a warehouse, and to build one.
const AROUND_SECONDS: u64 = 15;
const COPYING_SECONDS: u64 = 1;
const BUILDING_SECONDS: u64 = 20;

const HEADING: &str = "HammerDB";

/// What only these benchmarks can be told.
#[derive(clap::Args)]
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
    /// Fails when something was asked for that only these benchmarks have.
    pub fn refuse(&self) -> anyhow::Result<()> {
        let given = [
            ("--hammerdb", self.hammerdb.is_some()),
            ("--minutes", self.minutes.is_some()),
            ("--ramp-up", self.ramp_up.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                bail!("only the benchmarks hammerdb and hammerdb-2ms have {option}")
            }
            None => Ok(()),
        }
    }

    /// Fails when none was given.
    pub fn folder(&self) -> anyhow::Result<&Path> {
        let folder = self.hammerdb.as_deref();
        folder.context("HammerDB is needed: --hammerdb FOLDER (bench/README.md says how to get it)")
    }

    /// Fails when the benchmark cannot be run with what was asked for.
    pub fn plan(&self, benchmark: &'static Benchmark, common: &Common) -> anyhow::Result<Plan> {
        let labels: Vec<&str> = VARIANTS.iter().map(|variant| variant.label).collect();
        let unknown = |label: &&String| !labels.contains(&label.as_str());
        if let Some(unknown) = common.variants.iter().find(unknown) {
            bail!(
                "benchmark {} has no variant \"{unknown}\", but: {}",
                benchmark.name,
                labels.join(", ")
            );
        }
        let plan = Plan {
            benchmark,
            hammer: Hammer::find(self.folder()?)?,
            clients: match common.clients {
                [] => benchmark.clients.to_vec(),
                clients => clients.to_vec(),
            },
            variants: VARIANTS
                .iter()
                .filter(|one| {
                    common.variants.is_empty()
                        || common.variants.iter().any(|label| label == one.label)
                })
                .collect(),
            warehouses: common.warehouses.unwrap_or(1) as usize,
            times: Times {
                ramp_up: self.ramp_up.unwrap_or(1),
                minutes: self.minutes.unwrap_or(2),
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
}

/// What all benchmarks can be told, as far as these need it.
pub struct Common<'a> {
    pub clients: &'a [usize],
    pub variants: &'a [String],
    pub warehouses: Option<u64>,
    pub rounds: usize,
}

/// A benchmark, and how long and how often.
pub struct Plan {
    benchmark: &'static Benchmark,
    hammer: Hammer,
    clients: Vec<usize>,
    variants: Vec<&'static Variant>,
    warehouses: usize,
    times: Times,
    rounds: usize,
}

impl Plan {
    /// Whether a variant runs on the extension.
    pub fn needs_library(&self) -> bool {
        self.variants
            .iter()
            .any(|variant| variant.system == System::Txn)
    }

    pub fn runs(&self) -> usize {
        self.rounds * self.clients.len() * self.variants.len()
    }

    /// About how long it takes, when the cache has no warehouses yet.
    pub fn estimate(&self) -> Duration {
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
        Duration::from_secs(seconds + BUILDING_SECONDS * warehouses)
    }

    /// Measures, prints the table, and keeps the record in the folder `out`.
    pub fn run(&self, install: &PgInstall, out: &Path) -> anyhow::Result<()> {
        println!("{}: {}", self.benchmark.name, self.benchmark.about);
        let record = self.measure(install)?;
        println!("{}", record::render(&record));
        keep(
            &record,
            &out.join(record.machine.file_name(record.benchmark)),
        )
    }

    fn measure(&self, install: &PgInstall) -> anyhow::Result<Record> {
        let machine = Machine::look();
        let data = self.build(install)?;
        let mut systems = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        let progress = Progress::new(self.runs())?;
        for round in 1..=self.rounds {
            for &clients in &self.clients {
                for variant in in_turn(&self.variants, round) {
                    progress.begin(format!("{clients} users · {}", variant.label));
                    let first = runs.iter().all(|run| run.variant != variant.label);
                    let described = || {
                        format!(
                            "{}: variant \"{}\" with {clients} users",
                            self.benchmark.name, variant.label
                        )
                    };
                    let warehouses = self.warehouses_of(variant, clients);
                    let data = data.get(&warehouses).context("warehouses were not built")?;
                    let (run, system) = self
                        .run_once(install, data, variant, clients, &progress)
                        .with_context(described)?;
                    let run = Run {
                        order: runs.len() + 1,
                        round,
                        ..run
                    };
                    if first {
                        systems.push(system);
                    }
                    progress.print(&record::run_line(&run, self.rounds));
                    runs.push(run);
                }
            }
        }
        drop(progress);
        Ok(Record {
            benchmark: self.benchmark.name,
            about: self.benchmark.about,
            machine,
            systems,
            hammerdb: self.hammer.version.clone(),
            ramp_up_minutes: self.times.ramp_up,
            minutes: self.times.minutes,
            rounds: self.rounds,
            baseline: STOCK,
            ceiling: A_WAREHOUSE_EACH,
            summary: record::summarize(STOCK, A_WAREHOUSE_EACH, &self.clients, &runs),
            runs,
        })
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
        match variant.a_warehouse_each {
            true => clients,
            false => self.warehouses,
        }
    }

    /// Runs one variant on a copy of its data, and checks what it has left.
    fn run_once(
        &self,
        install: &PgInstall,
        data: &Path,
        variant: &Variant,
        clients: usize,
        progress: &Progress,
    ) -> anyhow::Result<(Run, Description)> {
        interrupt::check()?;
        let warehouses = self.warehouses_of(variant, clients);
        let mut site = Site::start(
            install,
            data,
            variant,
            self.benchmark.slow_commits,
            clients,
            warehouses,
        )?;
        let system = site.describe()?;
        let (mut sampler, server) = site.sampler();
        let outcome = self.hammer.run(server, clients, self.times, &mut || {
            if let Some(sample) = sampler.sample()? {
                progress.show(&sample);
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
        progress.end();
        let slow = if self.benchmark.slow_commits {
            SLOW
        } else {
            &[]
        };
        let settings = slow.iter().chain(variant.settings);
        let settings: Vec<String> = settings
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let run = Run {
            order: 0,
            round: 0,
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
