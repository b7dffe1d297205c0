//! Benchmarks that are measured one after the other and told of in one table and one record.

use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use pgserver::PgInstall;

use super::catalog::{GROUP, OFF, STOCK};
use super::record::{Line, Record};
use super::runner::Plan;
use super::{compare, table, write_json};
use txn_top::text::thousands;

/// Measures the benchmarks of a family. What is there is written after each of them.
pub fn measure(
    family: &str,
    plans: &[Plan],
    install: &PgInstall,
    out: &Path,
) -> anyhow::Result<()> {
    let mut records: Vec<Record> = Vec::new();
    for plan in plans {
        println!("{}: {}", plan.benchmark.name, plan.benchmark.about);
        let mut record = plan.measure(install)?;
        println!("{}\n", table::render(&record.summary, record.baseline));
        for run in &mut record.runs {
            run.samples.clear();
        }
        records.push(record);
        let path = out.join(records[0].machine.file_name(family));
        write_json(&records, &path)?;
    }
    if records
        .iter()
        .flat_map(|record| &record.summary)
        .any(|line| line.variant == GROUP)
    {
        println!("{}", render(&records));
    }
    compare::tell(&records);
    Ok(())
}

const COLUMNS: [&str; 9] = [
    "what", "clients", "stock", "off", "group", "U", "× stock", "H/U", "p99 ms",
];

/// A line for each benchmark and number of clients.
fn render(records: &[Record]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(COLUMNS);
    for record in records {
        for group in record.summary.iter().filter(|line| line.variant == GROUP) {
            table.add_row(cells(record, group));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn cells(record: &Record, group: &Line) -> [String; COLUMNS.len()] {
    let rate = |variant| {
        let mut lines = record.summary.iter();
        lines
            .find(|line| line.variant == variant && line.clients == group.clients)
            .map_or_else(String::new, |line| thousands(line.tps.median))
    };
    [
        record.about.to_owned(),
        group.clients.to_string(),
        rate(STOCK),
        rate(OFF),
        rate(GROUP),
        rate(record.ceiling.unwrap_or_default()),
        table::ratio(group.to_baseline),
        table::ratio(group.to_ceiling),
        table::milliseconds(group.p99_ms),
    ]
}
