//! `cargo xtask bench geo` and its kin: transactions over distant nodes, by every way to commit.
//!
//! `catalog` says what is measured at which `place`s, `variant` what is compared; `ycsb` and `tpcc`
//! are the `workload`s, whose `transaction`s `session`s send (or `xa`'s client). `cluster` has the
//! servers and the lines, `site` the tables and what must hold for them, `load` runs clients.
//! `runner` measures, `record` keeps it, `table` and `report` show it, beside the `paper`.
//! `cargo xtask geo-demo` has site, variants and load in common with it.

mod catalog;
pub mod cluster;
mod draws;
pub mod load;
pub mod paper;
pub mod place;
mod record;
pub mod report;
mod runner;
mod session;
pub mod site;
mod table;
mod tpcc;
mod transaction;
pub mod variant;
pub mod workload;
mod xa;
mod ycsb;

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;
use serde_json::json;

use super::axis::replace;
use super::common::Common;
use super::pgbench::Protocol;
use super::plan::{Entry, Kind, Lacking};
use super::table::once;
use catalog::{ALL, Benchmark};
pub use place::At;
use place::{ROUND_TRIPS, check_rtt, labels};
use runner::{Place, Plan};
use variant::Variant;
pub use workload::Sizes;

const HEADING: &str = "Distant nodes";
/// At each node, unless others are asked for.
const NODE_ROWS: i64 = 100_000;
const NODE_WAREHOUSES: i64 = 4;

/// What benchmarks of distant nodes can be told beside what all benchmarks can.
#[derive(clap::Args, Serialize)]
#[group(skip)]
pub struct Options {
    /// Percent of the transactions that are over two nodes, in place of the benchmark's own
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', help_heading = HEADING)]
    distributed: Vec<u32>,
    /// Exponents of Zipf's law by which rows of a node are drawn, in place of the benchmark's own
    #[arg(long, value_name = "EXPONENTS", value_delimiter = ',', help_heading = HEADING)]
    theta: Vec<f64>,
    /// Numbers of operations of a transaction, in place of the benchmark's own
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', help_heading = HEADING)]
    operations: Vec<usize>,
    /// Numbers of batches in which they come, in place of the benchmark's own
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', help_heading = HEADING)]
    batches: Vec<usize>,
    /// Percent by which a way may take longer, by chance, in place of the benchmark's own
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', help_heading = HEADING)]
    jitter: Vec<u32>,
    /// Seconds after which nodes change their round trips, 0 for never, in place of the benchmark's
    /// own
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', help_heading = HEADING)]
    change: Vec<u64>,
    /// Numbers of coordinators, 1 or 2, in place of the benchmark's own
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', help_heading = HEADING)]
    coordinators: Vec<usize>,
    /// Rows at each node [default: 100000]
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    node_rows: Option<i64>,
    /// Round-trip times to the nodes in milliseconds; each is a node [default: 0,27,73,251]
    #[arg(long, value_name = "TIMES", value_delimiter = ',', help_heading = HEADING)]
    rtt: Vec<f64>,
}

impl Options {
    pub fn kind<'a>(&'a self, common: &'a Common) -> Kind<'a> {
        let entry = |one: &'static Benchmark| {
            Entry::new((one.name, one.about), move || self.plan(one, common))
        };
        Kind {
            who: "the benchmarks geo and geo-... have",
            options: json!(self),
            has_warehouses: true,
            has_report: true,
            entries: ALL.iter().map(entry).collect(),
        }
    }

    /// The benchmark with what was asked for in place of its own. Fails when that cannot be run.
    fn plan(&self, benchmark: &'static Benchmark, common: &Common) -> Result<Plan> {
        if common.protocol != Protocol::Prepared {
            let name = benchmark.name;
            let error = anyhow!("benchmark {name} has no other protocol than prepared");
            return Err(error.context(Lacking));
        }
        let rtt = self.round_trips()?;
        let nodes = rtt[0].len();
        let plan = Plan {
            benchmark,
            places: self.places(benchmark, &common.clients),
            variants: variants(benchmark, common)?,
            rtt,
            sizes: Sizes {
                nodes,
                rows: self.node_rows.unwrap_or(NODE_ROWS),
                warehouses: warehouses(common.warehouses, nodes)?,
            },
            seconds: common.seconds,
            rounds: common.rounds,
        };
        common.check()?;
        plan.check()?;
        Ok(plan)
    }

    /// From each coordinator to each node; the nodes that are near one are far from the other.
    fn round_trips(&self) -> Result<Vec<Vec<f64>>> {
        if self.rtt.is_empty() {
            return Ok(ROUND_TRIPS.map(|trips| trips.to_vec()).to_vec());
        }
        check_rtt(&self.rtt)?;
        let reversed = self.rtt.iter().rev().copied().collect();
        Ok(vec![self.rtt.clone(), reversed])
    }

    fn places(&self, benchmark: &Benchmark, clients: &[usize]) -> Vec<Place> {
        let mut places = benchmark.places.to_vec();
        replace(&mut places, clients, |at, clients| at.clients = clients);
        replace(&mut places, &self.distributed, |at, share| {
            at.distributed = share
        });
        replace(&mut places, &self.theta, |at, theta| at.theta = theta);
        replace(&mut places, &self.operations, |at, count| {
            at.operations = count
        });
        replace(&mut places, &self.batches, |at, count| at.batches = count);
        replace(&mut places, &self.jitter, |at, jitter| at.jitter = jitter);
        replace(&mut places, &self.change, |at, change| at.change = change);
        replace(&mut places, &self.coordinators, |at, count| {
            at.coordinators = count.clamp(1, 2);
        });
        let places = once(places);
        let labels = labels(&places).into_iter();
        let places = labels.zip(places);
        places.map(|(label, at)| Place { label, at }).collect()
    }
}

/// Those that were asked for, or the benchmark's own.
fn variants(benchmark: &Benchmark, common: &Common) -> Result<Vec<Variant>> {
    let all = match common.variants.is_empty() {
        true => benchmark.variants,
        false => &Variant::ALL,
    };
    common.choose(benchmark.name, all, |variant| variant.name())
}

/// Of each node, from those of all.
fn warehouses(all: Option<u64>, nodes: usize) -> Result<i64> {
    let nodes = nodes as u64;
    let all = all.unwrap_or(NODE_WAREHOUSES as u64 * nodes);
    ensure!(
        all > 0 && all.is_multiple_of(nodes),
        "{all} warehouses cannot be shared by {nodes} nodes"
    );
    Ok(i64::try_from(all / nodes)?)
}

/// A value of a place, as an option has it.
type Told = fn(&At) -> String;

/// The options by which these places, round trips and sizes differ from the benchmark's own.
pub fn options(benchmark: &str, places: &[At], rtt: &[f64], sizes: &Sizes) -> String {
    let own = ALL.iter().find(|one| one.name == benchmark);
    let own = own.map_or(&[][..], |one| one.places);
    let mut options = String::new();
    let axes: [(&str, Told); 8] = [
        ("--clients", |at| at.clients.to_string()),
        ("--distributed", |at| at.distributed.to_string()),
        ("--theta", |at| at.theta.to_string()),
        ("--operations", |at| at.operations.to_string()),
        ("--batches", |at| at.batches.to_string()),
        ("--jitter", |at| at.jitter.to_string()),
        ("--change", |at| at.change.to_string()),
        ("--coordinators", |at| at.coordinators.to_string()),
    ];
    for (option, value) in axes {
        let values = |places: &[At]| once(places.iter().map(value)).join(",");
        if values(places) != values(own) {
            options += &format!(" {option} {}", values(places));
        }
    }
    if rtt != ROUND_TRIPS[0] {
        let rtt: Vec<String> = rtt.iter().map(f64::to_string).collect();
        options += &format!(" --rtt {}", rtt.join(","));
    }
    if sizes.rows != NODE_ROWS {
        options += &format!(" --node-rows {}", sizes.rows);
    }
    if sizes.warehouses != NODE_WAREHOUSES {
        let all = sizes.warehouses * sizes.nodes as i64;
        options += &format!(" --warehouses {all}");
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::tests::COMMON;
    use crate::plan::Bench;

    const NOTHING: Options = Options {
        distributed: Vec::new(),
        theta: Vec::new(),
        operations: Vec::new(),
        batches: Vec::new(),
        jitter: Vec::new(),
        change: Vec::new(),
        coordinators: Vec::new(),
        node_rows: None,
        rtt: Vec::new(),
    };
    fn named(name: &str) -> &'static Benchmark {
        ALL.iter().find(|one| one.name == name).unwrap()
    }

    #[test]
    fn all_benchmarks_can_be_planned() {
        for benchmark in ALL {
            let plan = NOTHING.plan(benchmark, &COMMON).unwrap();
            assert_eq!(plan.places.len(), benchmark.places.len());
            assert_eq!((plan.sizes.rows, plan.sizes.warehouses), (100_000, 4));
        }
    }

    #[test]
    fn what_is_asked_for_replaces_the_places() {
        let options = Options {
            theta: vec![0.3, 1.5],
            distributed: vec![10],
            rtt: vec![5.0, 50.0],
            ..NOTHING
        };
        let plan = options.plan(named("geo-share"), &COMMON).unwrap();
        let labels: Vec<&str> = plan.places.iter().map(|place| &*place.label).collect();
        assert_eq!(labels, ["θ 0.3", "θ 1.5"]);
        assert_eq!(plan.rtt, [[5.0, 50.0], [50.0, 5.0]]);
        assert_eq!(plan.sizes.warehouses, 4);
        assert_eq!(plan.extent().runs, 2 * 2 * plan.variants.len());
        let places: Vec<At> = plan.places.iter().map(|place| place.at).collect();
        assert_eq!(
            super::options("geo-share", &places, &plan.rtt[0], &plan.sizes),
            " --distributed 10 --theta 0.3,1.5 --rtt 5,50"
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let refused = |options: Options, name: &str, variants: &[&str]| {
            let variants = variants.iter().map(|name| (*name).to_owned()).collect();
            let common = Common { variants, ..COMMON };
            assert!(options.plan(named(name), &common).is_err());
        };
        let options = || NOTHING;
        refused(options(), "geo", &["stock"]);
        refused(options(), "geo-coordinators", &["xa"]);
        refused(
            Options {
                batches: vec![6],
                ..NOTHING
            },
            "geo",
            &[],
        );
        refused(
            Options {
                node_rows: Some(40),
                ..NOTHING
            },
            "geo",
            &[],
        );
        assert!(warehouses(Some(6), 4).is_err() && warehouses(Some(8), 4).unwrap() == 2);
    }
}
