//! What is kept of a measurement: every run as it was, and the summary computed from the runs.

use super::catalog::{Benchmark, Rows, Standby};
use super::latency::Latency;
use super::machine::Machine;
use super::pgbench::Protocol;
use super::sample::Sample;
use super::site::{Description, Findings};
use super::stats::Spread;

/// A whole measurement, as it is written to JSON.
#[derive(Debug, serde::Serialize)]
pub struct Record {
    pub benchmark: &'static str,
    pub about: &'static str,
    pub machine: Machine,
    pub systems: Vec<Description>,
    pub protocol: Protocol,
    pub seconds: u64,
    pub rounds: usize,
    pub baseline: &'static str,
    pub ceiling: Option<&'static str>,
    pub standby: Option<Standby>,
    /// What each client runs, again and again: texts, or names of pgbench's own scripts.
    pub scripts: Vec<String>,
    pub summary: Vec<Line>,
    pub runs: Vec<Run>,
}

/// One run of one variant.
#[derive(Debug, serde::Serialize)]
pub struct Run {
    /// Position in the order of execution, from 1.
    pub order: usize,
    /// From 1.
    pub round: usize,
    pub variant: &'static str,
    pub workload: &'static str,
    pub different_rows: bool,
    pub settings: String,
    pub clients: usize,
    pub seconds: f64,
    /// Committed effects per second.
    pub tps: f64,
    pub acknowledged: u64,
    pub rolled_back: u64,
    /// Transactions of each script that ended as they meant to.
    pub by_script: Vec<u64>,
    pub retries: u64,
    pub latency_ms: Latency,
    pub findings: Findings,
    pub samples: Vec<Sample>,
}

/// The runs of one variant at one number of clients, taken together.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Line {
    pub variant: &'static str,
    pub clients: usize,
    pub tps: Spread,
    /// Transactions of all scripts per second, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_tps: Option<Spread>,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    /// tps as a multiple of the baseline's in the same round.
    pub to_baseline: Option<Spread>,
    /// H/U: tps as a share of the ceiling's in the same round; only for hot rows.
    pub to_ceiling: Option<Spread>,
    pub retries: u64,
}

impl Run {
    /// Transactions of all scripts per second; None when there is a single one.
    fn all_tps(&self) -> Option<f64> {
        let all: u64 = self.by_script.iter().sum();
        (self.by_script.len() > 1).then(|| all as f64 / self.seconds)
    }
}

/// One line for each number of clients and variant, in the order of the benchmark.
pub fn summarize(benchmark: &Benchmark, clients: &[usize], runs: &[Run]) -> Vec<Line> {
    let of = |label: &str, clients: usize| -> Vec<&Run> {
        runs.iter()
            .filter(|run| run.variant == label && run.clients == clients)
            .collect()
    };
    let rates = |runs: &[&Run]| -> Vec<(usize, f64)> {
        runs.iter().map(|run| (run.round, run.tps)).collect()
    };
    let mut lines = Vec::new();
    for &clients in clients {
        for series in benchmark.series {
            let runs = of(series.label, clients);
            let latency = |part: fn(&Latency) -> f64| {
                Spread::of(runs.iter().map(|run| part(&run.latency_ms))).map(|ms| ms.median)
            };
            let (Some(tps), Some(p50_ms), Some(p95_ms), Some(p99_ms)) = (
                Spread::of(runs.iter().map(|run| run.tps)),
                latency(|ms| ms.p50),
                latency(|ms| ms.p95),
                latency(|ms| ms.p99),
            ) else {
                continue;
            };
            let against = |label| Spread::of_ratios(&rates(&runs), &rates(&of(label, clients)));
            let ceiling = benchmark.ceiling.filter(|_| series.rows == Rows::Hot);
            lines.push(Line {
                variant: series.label,
                clients,
                tps,
                all_tps: Spread::of(runs.iter().filter_map(|run| run.all_tps())),
                p50_ms,
                p95_ms,
                p99_ms,
                to_baseline: against(benchmark.baseline),
                to_ceiling: ceiling.and_then(against),
                retries: runs.iter().map(|run| run.retries).sum(),
            });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::catalog::{DIFFERENT, GROUP, HOT_ROW, STOCK};

    fn run(round: usize, variant: &'static str, tps: f64) -> Run {
        Run {
            order: 1,
            round,
            variant,
            workload: "hot-row",
            different_rows: variant == DIFFERENT,
            settings: String::new(),
            clients: 16,
            seconds: 1.0,
            tps,
            acknowledged: 1,
            rolled_back: 0,
            by_script: vec![1],
            retries: 1,
            latency_ms: Latency {
                mean: 1.0,
                p50: 1.0,
                p95: 2.0,
                p99: tps,
                max: 3.0,
            },
            findings: Findings {
                effect: 1,
                imbalance: 0,
                rows_by_index: 1,
                rows_by_scan: 1,
                books: Vec::new(),
                conditions: Vec::new(),
                counters: BTreeMap::new(),
            },
            samples: Vec::new(),
        }
    }

    #[test]
    fn ratios_are_those_within_a_round_and_missing_variants_have_no_line() {
        let runs = [
            run(0, STOCK, 10.0),
            run(0, GROUP, 100.0),
            run(0, DIFFERENT, 200.0),
            run(1, STOCK, 20.0),
            run(1, GROUP, 240.0),
            run(1, DIFFERENT, 240.0),
        ];
        let lines = summarize(&HOT_ROW, &[16, 64], &runs);
        let labels: Vec<_> = lines.iter().map(|line| line.variant).collect();
        assert_eq!(labels, [STOCK, GROUP, DIFFERENT]);
        let group = &lines[1];
        assert_eq!(
            group.to_baseline.unwrap(),
            Spread {
                median: 11.0,
                min: 10.0,
                max: 12.0
            }
        );
        assert_eq!(
            group.to_ceiling.unwrap(),
            Spread {
                median: 0.75,
                min: 0.5,
                max: 1.0
            }
        );
        assert_eq!((group.p99_ms, group.retries), (170.0, 2));
        assert!(lines[2].to_ceiling.is_none());
    }
}
