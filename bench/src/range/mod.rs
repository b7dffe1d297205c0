//! `cargo xtask bench range` and its kin: scans of key ranges among point transactions, at
//! isolation levels and settings that keep them serializable or do not.
//!
//! `catalog` says what is measured along which `axis`, `variant` what is compared, `mix` what the
//! clients do. `runner` measures it on the servers of `site`, `record` keeps it, `table` and
//! `report` show it.

mod axis;
mod catalog;
mod division;
mod mix;
mod record;
mod report;
mod runner;
mod script;
mod site;
mod table;
mod tpcc;
mod variant;
mod zipf;

use serde::Serialize;
use serde_json::json;

use super::axis::replace;
use super::common::Common;
use super::plan::{Entry, Kind};
use catalog::{ALL, Benchmark};
use mix::Sizes;
use runner::Plan;

const HEADING: &str = "Range benchmarks";

/// What range benchmarks can be told beside what all benchmarks can.
#[derive(clap::Args, Serialize)]
#[group(skip)]
pub struct Options {
    /// Numbers of keys of a scan, in place of the benchmark's own
    #[arg(long, value_name = "KEYS", value_delimiter = ',', help_heading = HEADING)]
    scan: Vec<u64>,
    /// Exponents of Zipf's law by which keys are drawn, 0 for uniform, in place of the benchmark's
    /// own
    #[arg(long, value_name = "EXPONENTS", value_delimiter = ',', help_heading = HEADING)]
    skew: Vec<f64>,
    /// Numbers of ranges of range OCC, 0 for the default, in place of the benchmark's own
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', help_heading = HEADING)]
    ranges: Vec<u64>,
    /// Slots of each bucket of ranges, 0 for the default, in place of the benchmark's own
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', help_heading = HEADING)]
    slots: Vec<u32>,
    /// Rows of the table [default: 1000000]
    #[arg(long, value_name = "NUMBER", help_heading = HEADING)]
    rows: Option<u64>,
    /// Bytes of a row [default: 100]
    #[arg(long, value_name = "BYTES", help_heading = HEADING)]
    row_bytes: Option<u64>,
    /// Percent of bulk transactions [default: 10]
    #[arg(long, value_name = "PERCENT", help_heading = HEADING)]
    bulk: Option<u32>,
}

impl Options {
    pub fn kind<'a>(&'a self, common: &'a Common) -> Kind<'a> {
        let entry = |one: &'static Benchmark| {
            Entry::new((one.name, one.about), move || self.plan(one, common))
        };
        Kind {
            who: "the benchmarks range and range-... have",
            options: json!(self),
            has_warehouses: true,
            has_report: true,
            entries: ALL.iter().map(entry).collect(),
        }
    }

    /// The benchmark with what was asked for in place of its own. Fails when that cannot be run.
    fn plan(&self, benchmark: &'static Benchmark, common: &Common) -> anyhow::Result<Plan> {
        let sizes = Sizes {
            rows: self.rows.unwrap_or(1_000_000),
            row_bytes: self.row_bytes.unwrap_or(100),
            warehouses: common.warehouses.unwrap_or(16),
            scan: 0,
            clients: 0,
            skew: 0.0,
            bulk: self.bulk.unwrap_or(10),
        };
        let mut all = benchmark.own(sizes);
        replace(&mut all, &self.scan, |at, scan| at.sizes.scan = scan);
        replace(&mut all, &common.clients, |at, clients| {
            at.sizes.clients = clients
        });
        replace(&mut all, &self.skew, |at, skew| at.sizes.skew = skew);
        replace(&mut all, &self.ranges, |at, ranges| at.ranges = ranges);
        replace(&mut all, &self.slots, |at, slots| at.slots = slots);
        let mut places = benchmark.places(&all)?;
        for place in &mut places {
            place.variants = common.choose(benchmark.name, &place.variants, |one| one.label)?;
        }
        let bytes = self.row_bytes.map(|bytes| format!("-{bytes}-bytes"));
        let plan = Plan {
            benchmark,
            places,
            axis: benchmark.axis_name(&all),
            data: sizes.data(benchmark.kind),
            common: common.clone(),
            files: benchmark.name.to_owned() + &bytes.unwrap_or_default(),
        };
        plan.check()?;
        Ok(plan)
    }
}
