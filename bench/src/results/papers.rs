//! The figures of the papers beside ours. Theirs are of other systems on other machines: only
//! ratios can be compared.

use super::records::{File, Plain, of_benchmark};
use super::table;
use crate::catalog::lane;
use crate::catalog::{GROUP, QUEUE, STOCK};
use crate::stats::Spread;

/// A figure of a paper, and the variants of a benchmark whose ratio is its counterpart.
struct Figure {
    what: &'static str,
    paper: &'static str,
    benchmark: &'static str,
    of: &'static str,
    against: &'static str,
}

const fn figure(
    what: &'static str,
    paper: &'static str,
    benchmark: &'static str,
    of: &'static str,
    against: &'static str,
) -> Figure {
    Figure {
        what,
        paper,
        benchmark,
        of,
        against,
    }
}

const TXSQL: &[Figure] = &[
    figure(
        "one hot row, to other systems",
        "up to 22.3 ×",
        "hot-row",
        GROUP,
        STOCK,
    ),
    figure(
        "one hot row, to other ways of locking",
        "up to 6.5 ×",
        "hot-row",
        GROUP,
        QUEUE,
    ),
];

const HDCC: &[Figure] = &[
    figure(
        "YCSB, Zipf 1.2, to the best of the others",
        "3.1 ×",
        "lane-zipf-1.2",
        lane::LANE,
        lane::ADVISORY,
    ),
    figure(
        "the same to OCC",
        "up to 6.8 ×",
        "lane-zipf-1.2",
        lane::ALL_KEYS,
        lane::OCC,
    ),
    figure(
        "the same, Zipf 0.9",
        "",
        "lane-zipf-0.9",
        lane::ALL_KEYS,
        lane::OCC,
    ),
    figure(
        "the same, Zipf 0.5",
        "1 ×, no contention",
        "lane-zipf-0.5",
        lane::ALL_KEYS,
        lane::OCC,
    ),
    figure(
        "one in five rolls back, to none",
        "0.71 ×",
        "lane-rollbacks",
        lane::ROLLBACKS,
        lane::LANE,
    ),
    figure(
        "TPC-C, 1 warehouse, to the best of the others",
        "2.3 ×",
        "lane-tpcc-1",
        lane::LANE,
        lane::FOR_UPDATE,
    ),
];

/// What the papers promise, beside what the records show of the same kind.
pub fn section(files: &[File]) -> String {
    let about_txsql = "The paper's figures are those of its \
                       [abstract](https://arxiv.org/abs/2504.06854): other systems, other \
                       machines.";
    let about_hdcc = "The paper measures a cluster of servers, where its order spares a two-phase \
                      commit; here all is on one server.";
    compared("TXSQL", about_txsql, TXSQL, files) + &compared("HDCC", about_hdcc, HDCC, files)
}

fn compared(name: &str, about: &str, figures: &[Figure], files: &[File]) -> String {
    let rows: Vec<Vec<String>> = figures
        .iter()
        .filter_map(|figure| {
            let ratio = |record| best(record, figure.of, figure.against);
            let (record, ours) = of_benchmark(files, figure.benchmark)
                .map(|record| (record, ratio(record)))
                .max_by(|one, other| rate(&one.1).total_cmp(&rate(&other.1)))?;
            let ours = ours.map_or_else(
                || "not in the records".to_owned(),
                |(ratio, clients)| format!("{ratio:.1} × {}, {clients} clients", figure.against),
            );
            let command = format!("`{}`", record.command());
            let (what, paper) = (figure.what.to_owned(), figure.paper.to_owned());
            Some(vec![what, paper, ours, command])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["what", "paper", "ours", "command"];
    format!("\n## Beside {name}\n\n{about}\n\n{}", table(&header, rows))
}

fn rate(best: &Option<(f64, usize)>) -> f64 {
    best.map_or(0.0, |(ratio, _)| ratio)
}

/// The most that the variant has of the other one's rate, and with how many clients.
fn best(record: &Plain, of: &str, against: &str) -> Option<(f64, usize)> {
    let ratios = record.summary.iter().filter_map(|line| {
        let rates = |variant| record.rates(variant, line.clients);
        let ratio = Spread::of_ratios(&rates(of), &rates(against))?;
        Some((ratio.median, line.clients))
    });
    ratios.max_by(|one, other| one.0.total_cmp(&other.0))
}
