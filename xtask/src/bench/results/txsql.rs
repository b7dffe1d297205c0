//! TXSQL's figures beside ours.

use super::records::{File, Plain, Record};
use super::table;
use crate::bench::catalog::{GROUP, QUEUE, STOCK};
use crate::bench::stats::Spread;

const SOURCE: &str = "https://arxiv.org/abs/2504.06854";

/// What the paper promises in its abstract, beside what a record shows of the same kind. Its own
/// tables are of other systems on other machines: only ratios can be compared.
pub fn section(files: &[File]) -> String {
    let hot_row = files.iter().rev().find_map(|file| match &file.record {
        Record::Plain(record) if record.benchmark == "hot-row" => Some(record),
        _ => None,
    });
    let Some(record) = hot_row else {
        return String::new();
    };
    let row = |what: &str, paper: &str, against: &str| {
        vec![
            what.to_owned(),
            paper.to_owned(),
            best(record, against),
            format!("`{}`", record.command()),
        ]
    };
    let rows = [
        row("one hot row, to other systems", "up to 22.3 ×", STOCK),
        row(
            "one hot row, to other ways of locking",
            "up to 6.5 ×",
            QUEUE,
        ),
    ];
    let header = ["what", "paper", "ours", "command"];
    format!(
        "\n## Beside TXSQL\n\nThe paper's figures are those of its [abstract]({SOURCE}): other \
         systems, other machines.\n\n{}",
        table(&header, rows)
    )
}

/// The number of clients with which group lock has most of the variant's rate.
fn best(record: &Plain, against: &str) -> String {
    let rates = |variant: &str, clients: usize| -> Vec<(usize, f64)> {
        let runs = record.runs.iter();
        runs.filter(|run| run.variant == variant && run.clients == clients)
            .map(|run| (run.round, run.tps))
            .collect()
    };
    let ratios = record.summary.iter().filter_map(|line| {
        let ratio = Spread::of_ratios(&rates(GROUP, line.clients), &rates(against, line.clients))?;
        Some((ratio.median, line.clients))
    });
    ratios
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map_or_else(
            || "not in the records".to_owned(),
            |(ratio, clients)| format!("{ratio:.1} × {against}, {clients} clients"),
        )
}
