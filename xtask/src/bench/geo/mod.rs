//! `cargo xtask bench geo` and its kin: transactions over distant nodes, by every way to commit.
//!
//! `catalog` says what is measured at which `place`s, `variant` what is compared; `ycsb` and `tpcc`
//! are the `workload`s, whose `transaction`s `session`s send (or `xa`'s client). `cluster` has the
//! servers and the lines, `site` the tables and what must hold for them, `load` runs clients.
//! `runner` measures, `record` keeps it, `table` and `report` show it, beside the `paper`.
//! `cargo xtask geo-demo` has cluster, variants and load in common with it.

mod catalog;
pub mod cluster;
pub mod load;
pub mod paper;
mod place;
mod record;
pub mod report;
mod runner;
mod session;
mod site;
mod table;
mod tpcc;
mod transaction;
pub mod variant;
mod workload;
mod xa;
mod ycsb;

use std::path::Path;

use anyhow::{Result, bail, ensure};
use pgserver::PgInstall;

use super::pgbench::Protocol;
use super::{keep, write_report};
pub use catalog::{ALL, Benchmark};
pub use place::At;
use place::{Axis, ROUND_TRIPS};
use runner::Place;
pub use runner::Plan;
use variant::Variant;
pub use workload::Sizes;

const HEADING: &str = "Distant nodes";
/// At each node, unless others are asked for.
const NODE_ROWS: i64 = 100_000;
const NODE_WAREHOUSES: i64 = 4;

/// What benchmarks of distant nodes can be told beside what all benchmarks can.
#[derive(clap::Args)]
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

/// What all benchmarks can be told, as far as these need it.
pub struct Common<'a> {
    pub clients: &'a [usize],
    pub variants: &'a [String],
    pub warehouses: Option<u64>,
    pub seconds: u64,
    pub rounds: usize,
    pub protocol: Protocol,
}

impl Options {
    /// Fails when something was asked for that only these benchmarks have.
    pub fn refuse(&self) -> Result<()> {
        let given = [
            ("--distributed", !self.distributed.is_empty()),
            ("--theta", !self.theta.is_empty()),
            ("--operations", !self.operations.is_empty()),
            ("--batches", !self.batches.is_empty()),
            ("--jitter", !self.jitter.is_empty()),
            ("--change", !self.change.is_empty()),
            ("--coordinators", !self.coordinators.is_empty()),
            ("--node-rows", self.node_rows.is_some()),
            ("--rtt", !self.rtt.is_empty()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!("only the benchmarks geo and geo-... have {option}"),
            None => Ok(()),
        }
    }

    /// The benchmark with what was asked for in place of its own. Fails when that cannot be run.
    pub fn plan(&self, benchmark: &'static Benchmark, common: &Common) -> Result<Plan> {
        ensure!(
            common.protocol == Protocol::Prepared,
            "benchmark {} has no other protocol than prepared",
            benchmark.name
        );
        let rtt = self.round_trips()?;
        let nodes = rtt[0].len();
        let plan = Plan {
            benchmark,
            places: self.places(benchmark, common.clients),
            variants: variants(benchmark, common.variants)?,
            rtt,
            sizes: Sizes {
                nodes,
                rows: self.node_rows.unwrap_or(NODE_ROWS),
                warehouses: warehouses(common.warehouses, nodes)?,
            },
            seconds: common.seconds,
            rounds: common.rounds,
        };
        plan.check()?;
        Ok(plan)
    }

    /// From each coordinator to each node; the nodes that are near one are far from the other.
    fn round_trips(&self) -> Result<Vec<Vec<f64>>> {
        if self.rtt.is_empty() {
            return Ok(ROUND_TRIPS.map(|trips| trips.to_vec()).to_vec());
        }
        let is_time = |rtt: &f64| (0.0..=10_000.0).contains(rtt);
        ensure!(
            self.rtt.iter().all(is_time),
            "round trips take from 0 to 10000 ms"
        );
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
        let varying = Axis::varying(&places);
        let place = |at: At| Place {
            label: at.label(&varying),
            at,
        };
        places.into_iter().map(place).collect()
    }
}

/// All places with each of the values, each once; as they are if there is no value.
fn replace<T: Copy>(places: &mut Vec<At>, values: &[T], set: impl Fn(&mut At, T)) {
    if values.is_empty() {
        return;
    }
    let mut replaced: Vec<At> = Vec::new();
    for at in places.iter() {
        for value in values {
            let mut at = *at;
            set(&mut at, *value);
            if !replaced.contains(&at) {
                replaced.push(at);
            }
        }
    }
    *places = replaced;
}

/// Those that were asked for, or the benchmark's own.
fn variants(benchmark: &Benchmark, asked: &[String]) -> Result<Vec<Variant>> {
    if asked.is_empty() {
        return Ok(benchmark.variants.to_vec());
    }
    let mut variants = Vec::new();
    for name in asked {
        let Some(variant) = Variant::named(name) else {
            let known = Variant::ALL.map(Variant::name).join(", ");
            bail!(
                "benchmark {} has no variant \"{name}\", but: {known}",
                benchmark.name
            );
        };
        variants.push(variant);
    }
    Ok(variants)
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
        let values = |places: &[At]| {
            let mut values: Vec<String> = Vec::new();
            for value in places.iter().map(value) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            values.join(",")
        };
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

/// Measures, and writes down what came out: a table, the raw results in the folder `out`, a report
/// in `reports`. Fails if a run does not count.
pub fn measure(plan: &Plan, install: &PgInstall, out: &Path, reports: &Path) -> Result<()> {
    println!("{}: {}", plan.benchmark.name, plan.benchmark.about);
    let record = plan.measure(install)?;
    println!("{}\n", table::render(&record));
    for note in table::notes(&record) {
        println!("{note}");
    }
    let name = record.machine.file_name(record.benchmark);
    keep(&record, &out.join(&name))?;
    write_report(&report::render(&record)?, reports, &name)?;
    runner::verdict(&record)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    const COMMON: Common = Common {
        clients: &[],
        variants: &[],
        warehouses: None,
        seconds: 8,
        rounds: 3,
        protocol: Protocol::Prepared,
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
        assert_eq!((plan.runs(), plan.variants.len()), (24, 4));
        let places: Vec<At> = plan.places.iter().map(|place| place.at).collect();
        assert_eq!(
            super::options("geo-share", &places, &plan.rtt[0], &plan.sizes),
            " --distributed 10 --theta 0.3,1.5 --rtt 5,50"
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let refused = |options: Options, name: &str, variants: &[String]| {
            let common = Common { variants, ..COMMON };
            assert!(options.plan(named(name), &common).is_err());
        };
        let options = || NOTHING;
        refused(options(), "geo", &["stock".to_owned()]);
        refused(options(), "geo-coordinators", &["xa".to_owned()]);
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
