//! What is kept of a measurement: every run as it was, and the summary computed from the runs.

use txn_top::text::thousands;

use super::catalog::{Benchmark, GROUP, Rows, Series, Standby, color_of};
use super::latency::Latency;
use super::pgbench::Protocol;
use super::plan::Measured;
use super::rounds::{Ran, Turn};
use super::sample::Sample;
use super::site::{Description, Findings};
use super::stats::{Group, Spread};
use super::table::{Row, Sheet, milliseconds, range, ratio};
use tooling::machine::Machine;

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
    #[serde(flatten)]
    pub turn: Turn,
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

impl Ran for Run {
    fn line(&self) -> String {
        let waiting = self.samples.iter().map(|sample| sample.waiting).max();
        let mode = self.samples.last().map(|sample| sample.mode.as_str());
        let hot = mode.zip(waiting).map_or_else(
            || "no hot row".to_owned(),
            |(mode, waiting)| format!("{mode}, up to {waiting} waiting"),
        );
        let retries = match self.retries {
            0 => String::new(),
            retries => format!(", {} retries", thousands(retries as f64)),
        };
        format!(
            "{:>5} clients  {:<22} {:>8} tps  p50 {:>6} p99 {:>6} ms  \
             checked {:>9}  {hot}{retries}",
            self.clients,
            self.variant,
            thousands(self.tps),
            milliseconds(self.latency_ms.p50),
            milliseconds(self.latency_ms.p99),
            thousands(self.findings.effect as f64),
        )
    }
}

/// One line for each number of clients and variant, in the order of the benchmark.
pub fn summarize(benchmark: &Benchmark, clients: &[usize], runs: &[Run]) -> Vec<Line> {
    let pairs = clients.iter().flat_map(|clients| {
        benchmark
            .series
            .iter()
            .map(move |series| (*clients, series))
    });
    let line = |(clients, series): (usize, &Series)| {
        let of = |label| {
            let runs = runs
                .iter()
                .filter(|run| run.variant == label && run.clients == clients);
            Group::new(runs, |run| (run.turn.round, run.tps))
        };
        let group = of(series.label);
        let ceiling = benchmark.ceiling.filter(|_| series.rows == Rows::Hot);
        Some(Line {
            variant: series.label,
            clients,
            tps: group.rate()?,
            all_tps: group.spread_of(|run| run.all_tps()),
            p50_ms: group.spread(|run| run.latency_ms.p50)?.median,
            p95_ms: group.spread(|run| run.latency_ms.p95)?.median,
            p99_ms: group.spread(|run| run.latency_ms.p99)?.median,
            to_baseline: group.to(&of(benchmark.baseline)),
            to_ceiling: ceiling.and_then(|ceiling| group.to(&of(ceiling))),
            retries: group.sum(|run| run.retries),
        })
    };
    pairs.filter_map(line).collect()
}

impl Record {
    /// All lines, grouped by the number of clients.
    pub fn sheet(&self) -> Sheet {
        let against = format!("× {}", self.baseline);
        let mut columns = vec![
            "clients",
            "variant",
            "tps",
            "min … max",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            &against,
            "H/U",
        ];
        let is_mixed = self.summary.iter().any(|line| line.all_tps.is_some());
        columns.extend(is_mixed.then_some("all tps"));
        let columns = columns.into_iter().map(str::to_owned).collect();
        let alike = |one: &Line, next: &Line| one.clients == next.clients;
        Sheet::grouped(columns, 1..2, &self.summary, alike, Line::row)
    }
}

impl Line {
    fn row(&self) -> Row {
        let mut cells = vec![
            self.clients.to_string(),
            self.variant.to_owned(),
            thousands(self.tps.median),
            range(self.tps),
            milliseconds(self.p50_ms),
            milliseconds(self.p95_ms),
            milliseconds(self.p99_ms),
            ratio(self.to_baseline),
            ratio(self.to_ceiling),
        ];
        cells.extend(self.all_tps.map(|tps| thousands(tps.median)));
        Row {
            cells,
            color: Some(color_of(self.variant)),
            is_best: self.variant == GROUP,
        }
    }
}

impl Measured for Record {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn text(&self) -> String {
        self.sheet().text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{DIFFERENT, GROUP, HOT_ROW, STOCK};

    fn run(round: usize, variant: &'static str, tps: f64) -> Run {
        Run {
            turn: Turn { order: 1, round },
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
            latency_ms: Latency::always(tps),
            findings: Findings::default(),
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
        let spread = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(group.to_baseline, spread(11.0, 10.0, 12.0));
        assert_eq!(group.to_ceiling, spread(0.75, 0.5, 1.0));
        assert_eq!((group.p99_ms, group.retries), (170.0, 2));
        assert!(lines[2].to_ceiling.is_none());
    }
}
