//! The benchmarks of the catalogue; those of a family are measured one after the other and told of
//! in one table and one record.

use pgserver::PgInstall;
use serde_json::Value;
use txn_top::text::thousands;

use super::catalog::{self, Benchmark, GROUP, OFF, STOCK};
use super::common::Common;
use super::compare;
use super::plan::{Bench, Entry, Extent, Folders, Kind, Measured, Planned};
use super::record::{Line, Record};
use super::runner::Plan;
use super::table::{Row, Sheet, milliseconds, ratio};
use tooling::files::write_json;

struct Family {
    name: &'static str,
    plans: Vec<Plan>,
}

/// The benchmarks of the catalogue, which have no options of their own.
pub fn kind(common: &Common) -> Kind<'_> {
    let one = |benchmark: &'static Benchmark| Entry {
        is_part: benchmark.family.is_some(),
        ..Entry::new((benchmark.name, benchmark.about), move || {
            Plan::new(benchmark, common)
        })
    };
    let family = |&(name, about): &(&'static str, &'static str)| {
        Entry::new((name, about), move || {
            let plans = catalog::all().filter(|one| one.family == Some(name));
            let plans = plans.map(|benchmark| Plan::new(benchmark, common));
            let plans = plans.collect::<anyhow::Result<_>>()?;
            Ok(Family { name, plans })
        })
    };
    Kind {
        who: "the benchmarks of the catalogue have",
        options: Value::Null,
        has_warehouses: false,
        has_report: false,
        entries: catalog::all()
            .map(one)
            .chain(catalog::FAMILIES.iter().map(family))
            .collect(),
    }
}

impl Planned for Family {
    fn extent(&self) -> Extent {
        let extents: Vec<Extent> = self.plans.iter().map(Bench::extent).collect();
        Extent {
            names: self.plans.iter().map(|plan| plan.title().0).collect(),
            needs_library: extents.iter().any(|one| one.needs_library),
            runs: extents.iter().map(|one| one.runs).sum(),
            time: extents.iter().map(|one| one.time).sum(),
        }
    }

    /// What is there is written after each benchmark.
    fn run(&self, install: &PgInstall, folders: &Folders) -> anyhow::Result<()> {
        let mut records: Vec<Record> = Vec::new();
        for plan in &self.plans {
            let (name, about) = plan.title();
            println!("{name}: {about}");
            let mut record = plan.measure(install)?;
            println!("{}\n", record.text());
            for run in &mut record.runs {
                run.samples.clear();
            }
            records.push(record);
            let name = records[0].machine.file_name(self.name);
            write_json(&records, &folders.records.join(name))?;
        }
        let mut lines = records.iter().flat_map(|record| &record.summary);
        if lines.any(|line| line.variant == GROUP) {
            println!("{}", sheet(&records).text());
        }
        compare::tell(&records);
        Ok(())
    }
}

/// A line for each benchmark and number of clients.
fn sheet(records: &[Record]) -> Sheet {
    let columns = [
        "what", "clients", "stock", "off", "group", "U", "× stock", "H/U", "p99 ms",
    ];
    let rows = records.iter().flat_map(|record| {
        let lines = record.summary.iter();
        lines
            .filter(|line| line.variant == GROUP)
            .map(|group| row(record, group))
    });
    Sheet::new(columns, 0..1, vec![rows.collect()])
}

fn row(record: &Record, group: &Line) -> Row {
    let rate = |variant| {
        let mut lines = record.summary.iter();
        lines
            .find(|line| line.variant == variant && line.clients == group.clients)
            .map_or_else(String::new, |line| thousands(line.tps.median))
    };
    Row::from(vec![
        record.about.to_owned(),
        group.clients.to_string(),
        rate(STOCK),
        rate(OFF),
        rate(GROUP),
        rate(record.ceiling.unwrap_or_default()),
        ratio(group.to_baseline),
        ratio(group.to_ceiling),
        milliseconds(group.p99_ms),
    ])
}
