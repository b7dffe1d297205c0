//! `cargo xtask bench fixed-rate`: transactions arrive by the clock, a row becomes hot, and group
//! lock is switched on while it is. What is not answered in time has failed.
//!
//! `runner` measures it, `record` keeps it, `report` plots it.

mod record;
mod report;
mod runner;

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure};
use pgserver::PgInstall;

use super::catalog::{GROUP, STOCK, System};
use super::pgbench::{Arrivals, Protocol};
use super::runner::AROUND_SECONDS;
use super::workload::MOST_CLIENTS;
use super::{keep, write_report};

pub const NAME: &str = "fixed-rate";
pub const ABOUT: &str =
    "arrivals at a constant rate with a hot spike; group lock is switched on while it lasts";

/// What is compared. Sessions set nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Variant {
    label: &'static str,
    system: System,
}

static VARIANTS: [Variant; 2] = [
    Variant {
        label: STOCK,
        system: System::Stock,
    },
    Variant {
        label: GROUP,
        system: System::Txn,
    },
];

/// A run has four phases of the same length. On stock PostgreSQL nothing is switched.
const PHASES: [&str; 4] = ["calm", "spike", "spike, switched on", "calm again"];
/// Those in which hot transactions arrive.
const SPIKE: RangeInclusive<usize> = 1..=2;

/// Clients of the cold transactions.
const COLD_CLIENTS: usize = 16;
/// Of the hot ones.
const CLIENTS: &[usize] = &[64];

/// About what the start of the servers takes.
const SERVERS_SECONDS: f64 = 10.0;

const HEADING: &str = "Fixed rate";

/// What only this benchmark can be told.
#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Transactions a second that want the hot row during the spike [default: 4000]
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    rate: Option<u64>,
    /// Transactions a second on other rows, all the time [default: 500]
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    cold_rate: Option<u64>,
    /// Milliseconds until a transaction that has not begun fails [default: 100]
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    limit: Option<u64>,
}

/// What all benchmarks can be told, as far as this one needs it.
pub struct Common<'a> {
    pub clients: &'a [usize],
    pub variants: &'a [String],
    pub seconds: u64,
    pub rounds: usize,
    pub protocol: Protocol,
}

/// How long and how often, and what arrives.
pub struct Plan {
    variants: Vec<Variant>,
    clients: Vec<usize>,
    hot: Arrivals,
    cold: Arrivals,
    /// Of each phase.
    seconds: u64,
    rounds: usize,
    protocol: Protocol,
}

impl Options {
    /// Fails when something was asked for that only this benchmark has.
    pub fn refuse(&self) -> anyhow::Result<()> {
        let given = [
            ("--rate", self.rate),
            ("--cold-rate", self.cold_rate),
            ("--limit", self.limit),
        ];
        match given.iter().find(|(_, given)| given.is_some()) {
            Some((option, _)) => bail!("only the benchmark {NAME} has {option}"),
            None => Ok(()),
        }
    }

    /// Fails when that cannot be run.
    pub fn plan(&self, common: &Common) -> anyhow::Result<Plan> {
        let labels = VARIANTS.map(|variant| variant.label);
        let unknown = |label: &&String| !labels.contains(&label.as_str());
        if let Some(unknown) = common.variants.iter().find(unknown) {
            bail!(
                "benchmark {NAME} has no variant \"{unknown}\", but: {}",
                labels.join(", ")
            );
        }
        let clients = match common.clients {
            [] => CLIENTS,
            clients => clients,
        };
        let limit_ms = self.limit.unwrap_or(100);
        let arrivals = |per_second| Arrivals {
            per_second,
            limit_ms,
        };
        let chosen = |variant: &Variant| {
            common.variants.is_empty() || common.variants.iter().any(|one| one == variant.label)
        };
        let plan = Plan {
            variants: VARIANTS.iter().copied().filter(chosen).collect(),
            clients: clients.to_vec(),
            hot: arrivals(self.rate.unwrap_or(4000)),
            cold: arrivals(self.cold_rate.unwrap_or(500)),
            seconds: common.seconds,
            rounds: common.rounds,
            protocol: common.protocol,
        };
        ensure!(
            plan.seconds > 0 && plan.rounds > 0 && limit_ms > 0,
            "{NAME} takes at least a second, a round and a limit of a millisecond"
        );
        ensure!(
            plan.hot.per_second > 0 && plan.cold.per_second > 0,
            "at least one transaction a second has to arrive"
        );
        ensure!(
            clients.iter().all(|n| (1..=MOST_CLIENTS).contains(n)),
            "the numbers of clients must be from 1 to {MOST_CLIENTS}"
        );
        Ok(plan)
    }
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

    /// About how long it takes.
    pub fn estimate(&self) -> Duration {
        let of_a_run = (PHASES.len() as u64 * self.seconds) as f64 + AROUND_SECONDS;
        Duration::from_secs_f64(SERVERS_SECONDS + self.runs() as f64 * of_a_run)
    }

    /// Measures, prints the table, keeps the record in the folder `out` and the report in
    /// `reports`.
    pub fn run(&self, install: &PgInstall, out: &Path, reports: &Path) -> anyhow::Result<()> {
        println!("{NAME}: {ABOUT}");
        let record = self.measure(install)?;
        println!("{}", record::render(&record));
        let name = record.machine.file_name(NAME);
        keep(&record, &out.join(&name))?;
        write_report(&report::render(&record)?, reports, &name)
    }
}
