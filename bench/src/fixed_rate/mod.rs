//! `cargo xtask bench fixed-rate`: transactions arrive by the clock, a row becomes hot, and group
//! lock is switched on while it is. What is not answered in time has failed.
//!
//! `runner` measures it, `record` keeps it, `report` plots it.

mod record;
mod report;
mod runner;

use std::ops::RangeInclusive;

use anyhow::ensure;
use serde::Serialize;
use serde_json::json;

use super::catalog::{GROUP, STOCK, System};
use super::common::{Common, or_own};
use super::pgbench::Arrivals;
use super::plan::{Entry, Kind};
use super::variant::{Variant, variant};
use super::workload::check_clients;

const NAME: &str = "fixed-rate";
const ABOUT: &str =
    "arrivals at a constant rate with a hot spike; group lock is switched on while it lasts";

static VARIANTS: [Variant; 2] = [
    variant(STOCK, System::Stock, &[]),
    variant(GROUP, System::Txn, &[]),
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
#[derive(clap::Args, Serialize)]
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

/// How long and how often, and what arrives.
struct Plan {
    variants: Vec<Variant>,
    hot: Arrivals,
    cold: Arrivals,
    common: Common,
}

impl Options {
    pub fn kind<'a>(&'a self, common: &'a Common) -> Kind<'a> {
        Kind {
            who: "the benchmark fixed-rate has",
            options: json!(self),
            has_warehouses: false,
            has_report: true,
            entries: vec![Entry::new((NAME, ABOUT), || Plan::new(self, common))],
        }
    }
}

impl Plan {
    /// Fails when that cannot be run.
    fn new(options: &Options, common: &Common) -> anyhow::Result<Self> {
        let limit_ms = options.limit.unwrap_or(100);
        let arrivals = |per_second| Arrivals {
            per_second,
            limit_ms,
        };
        let plan = Self {
            variants: common.choose(NAME, &VARIANTS, |variant| variant.label)?,
            hot: arrivals(options.rate.unwrap_or(4000)),
            cold: arrivals(options.cold_rate.unwrap_or(500)),
            common: Common {
                clients: or_own(&common.clients, CLIENTS),
                ..common.clone()
            },
        };
        common.check()?;
        ensure!(
            limit_ms > 0,
            "{NAME} takes at least a limit of a millisecond"
        );
        ensure!(
            plan.hot.per_second > 0 && plan.cold.per_second > 0,
            "at least one transaction a second has to arrive"
        );
        check_clients(&plan.common.clients)?;
        Ok(plan)
    }
}
