//! `cargo xtask bench range` and its kin: scans of key ranges among point transactions, at
//! isolation levels and settings that keep them serializable or do not.
//!
//! `catalog` says what is measured along which `axis`, `variant` what is compared, `mix` what the
//! clients do. `runner` measures it on the servers of `site`, `record` keeps it, `table` and
//! `report` show it.

mod axis;
mod catalog;
mod mix;
mod record;
mod report;
mod runner;
mod site;
mod table;
mod tpcc;
mod variant;
mod zipf;

use std::path::Path;

use anyhow::bail;
use pgserver::PgInstall;

use super::pgbench::Protocol;
use super::{keep, write_report};
use axis::Axes;
pub use catalog::{ALL, Benchmark};
use mix::Sizes;
pub use runner::Plan;

const HEADING: &str = "Range benchmarks";

/// What range benchmarks can be told beside what all benchmarks can.
#[derive(clap::Args)]
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

/// What all benchmarks can be told, as far as range benchmarks need it.
pub struct Common<'a> {
    pub clients: &'a [usize],
    pub variants: &'a [String],
    pub warehouses: Option<u64>,
    pub seconds: u64,
    pub rounds: usize,
    pub protocol: Protocol,
    pub raw: bool,
}

impl Options {
    /// Fails when something was asked for that only range benchmarks have.
    pub fn refuse(&self) -> anyhow::Result<()> {
        let given = [
            ("--scan", !self.scan.is_empty()),
            ("--skew", !self.skew.is_empty()),
            ("--ranges", !self.ranges.is_empty()),
            ("--slots", !self.slots.is_empty()),
            ("--rows", self.rows.is_some()),
            ("--row-bytes", self.row_bytes.is_some()),
            ("--bulk", self.bulk.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => bail!("only the benchmarks range and range-... have {option}"),
            None => Ok(()),
        }
    }

    /// The benchmark with what was asked for in place of its own. Fails when that cannot be run.
    pub fn plan(&self, benchmark: &'static Benchmark, common: &Common) -> anyhow::Result<Plan> {
        let own = benchmark.axes();
        let axes = Axes {
            scans: chosen(&self.scan, own.scans),
            clients: chosen(common.clients, own.clients),
            skews: chosen(&self.skew, own.skews),
            ranges: chosen(&self.ranges, own.ranges),
            slots: chosen(&self.slots, own.slots),
        };
        let sizes = Sizes {
            rows: self.rows.unwrap_or(1_000_000),
            row_bytes: self.row_bytes.unwrap_or(100),
            warehouses: common.warehouses.unwrap_or(16),
            scan: 0,
            clients: 0,
            skew: 0.0,
            bulk: self.bulk.unwrap_or(10),
        };
        let mut plan = Plan {
            benchmark,
            places: benchmark.places(&axes, sizes)?,
            axis: benchmark.axis_name(&axes),
            data: sizes.data(benchmark.kind),
            seconds: common.seconds,
            rounds: common.rounds,
            protocol: common.protocol,
            raw: common.raw,
        };
        plan.choose(common.variants)?;
        plan.check()?;
        Ok(plan)
    }

    /// Measures, and writes down what came out: a table, the raw results in the folder `out`, a
    /// report in `reports`.
    pub fn measure(
        &self,
        plan: Plan,
        install: &PgInstall,
        out: &Path,
        reports: &Path,
    ) -> anyhow::Result<()> {
        println!("{}: {}", plan.benchmark.name, plan.benchmark.about);
        let record = plan.measure(install)?;
        println!("{}", table::render(&record));
        for why in table::reasons(&record) {
            println!("refused at {}, {}: {why}", why.place, why.variant);
        }
        if let Some(line) = table::shared_memory(&record) {
            println!("{line}");
        }
        let bytes = match self.row_bytes {
            Some(bytes) => format!("-{bytes}-bytes"),
            None => String::new(),
        };
        let name = record
            .machine
            .file_name(&format!("{}{bytes}", record.benchmark));
        keep(&record, &out.join(&name))?;
        write_report(&report::render(&record)?, reports, &name)
    }
}

/// What was asked for, else what the benchmark has.
fn chosen<T: Clone>(asked: &[T], own: Vec<T>) -> Vec<T> {
    match asked {
        [] => own,
        asked => asked.to_vec(),
    }
}
