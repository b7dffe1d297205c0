//! What is kept of a measurement with HammerDB, and its table.

use std::collections::BTreeMap;

use txn_top::text::thousands;

use crate::plan::Measured;
use crate::rounds::{Ran, Turn};
use crate::site::Description;
use crate::stats::{Group, Spread};
use crate::table::{Row, Sheet, range, ratio};
use tooling::machine::Machine;

/// A whole measurement, as it is written to JSON.
#[derive(Debug, serde::Serialize)]
pub struct Record {
    pub benchmark: &'static str,
    pub about: &'static str,
    pub machine: Machine,
    /// One for each variant.
    pub systems: Vec<Description>,
    pub hammerdb: String,
    pub ramp_up_minutes: u64,
    pub minutes: u64,
    pub rounds: usize,
    pub baseline: &'static str,
    pub ceiling: &'static str,
    pub summary: Vec<Line>,
    pub runs: Vec<Run>,
}

/// One run of one variant.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub turn: Turn,
    pub variant: &'static str,
    pub settings: String,
    /// Virtual users.
    pub clients: usize,
    pub warehouses: usize,
    /// New orders per minute, and transactions of all kinds, as HammerDB tells them.
    pub nopm: u64,
    pub tpm: u64,
    /// New orders in the tables at the end, those of the ramp-up among them.
    pub orders: i64,
    /// Calls that ended in an error, by procedure.
    pub failed: BTreeMap<String, u64>,
    /// Of `pg_stat_database`. HammerDB's procedures roll back by themselves after a deadlock, and
    /// say nothing.
    pub rollbacks: i64,
    pub deadlocks: i64,
    /// What `txn.stats` has counted during the run; empty without the library.
    pub counters: BTreeMap<String, i64>,
}

/// The runs of one variant with one number of virtual users, taken together.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Line {
    pub variant: &'static str,
    pub clients: usize,
    pub warehouses: usize,
    pub nopm: Spread,
    /// As a multiple of the baseline's in the same round.
    pub to_baseline: Option<Spread>,
    /// H/U: as a share of the ceiling's in the same round.
    pub to_ceiling: Option<Spread>,
    /// Of all runs.
    pub failed: u64,
    pub rollbacks: i64,
    pub deadlocks: i64,
}

/// One line for each number of virtual users and variant.
pub fn summarize(
    baseline: &str,
    ceiling: &'static str,
    variants: &[&'static str],
    clients: &[usize],
    runs: &[Run],
) -> Vec<Line> {
    let pairs = clients
        .iter()
        .flat_map(|clients| variants.iter().map(move |variant| (*clients, *variant)));
    let line = |(clients, variant): (usize, &'static str)| {
        let of = |label: &str| {
            let runs = runs
                .iter()
                .filter(|run| run.variant == label && run.clients == clients);
            Group::new(runs, |run| (run.turn.round, run.nopm as f64))
        };
        let group = of(variant);
        Some(Line {
            variant,
            clients,
            warehouses: group.runs.first()?.warehouses,
            nopm: group.rate()?,
            to_baseline: group.to(&of(baseline)),
            to_ceiling: group.to(&of(ceiling)).filter(|_| variant != ceiling),
            failed: group.sum(|run| run.failed()),
            rollbacks: group.sum(|run| run.rollbacks),
            deadlocks: group.sum(|run| run.deadlocks),
        })
    };
    pairs.filter_map(line).collect()
}

impl Measured for Record {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn text(&self) -> String {
        let columns = [
            "users",
            "variant",
            "warehouses",
            "NOPM",
            "min … max",
            "× stock",
            "H/U",
            "failed",
            "rolled back",
            "deadlocks",
        ];
        let rows = self.summary.iter().map(Line::row).collect();
        Sheet::new(columns, 1..2, vec![rows]).text()
    }
}

impl Line {
    fn row(&self) -> Row {
        Row::from(vec![
            self.clients.to_string(),
            self.variant.to_owned(),
            self.warehouses.to_string(),
            thousands(self.nopm.median),
            range(self.nopm),
            ratio(self.to_baseline),
            ratio(self.to_ceiling),
            thousands(self.failed as f64),
            thousands(self.rollbacks as f64),
            thousands(self.deadlocks as f64),
        ])
    }
}

impl Run {
    fn failed(&self) -> u64 {
        self.failed.values().sum()
    }
}

impl Ran for Run {
    fn line(&self) -> String {
        format!(
            "{:>5} users  {:<22} {:>8} NOPM  {:>4} warehouses  checked  \
             {} failed, {} deadlocks",
            self.clients,
            self.variant,
            thousands(self.nopm as f64),
            self.warehouses,
            self.failed(),
            self.deadlocks,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{A_WAREHOUSE_EACH, OFF, STOCK};

    fn run(round: usize, variant: &'static str, nopm: u64) -> Run {
        Run {
            turn: Turn { order: 1, round },
            variant,
            settings: String::new(),
            clients: 4,
            warehouses: 1,
            nopm,
            tpm: 3 * nopm,
            orders: nopm as i64,
            failed: BTreeMap::from([("Payment".to_owned(), 2)]),
            rollbacks: 1,
            deadlocks: 0,
            counters: BTreeMap::new(),
        }
    }

    #[test]
    fn ratios_are_those_within_a_round() {
        let runs = [
            run(1, STOCK, 100),
            run(1, OFF, 90),
            run(1, A_WAREHOUSE_EACH, 200),
            run(2, OFF, 150),
            run(2, STOCK, 100),
            run(2, A_WAREHOUSE_EACH, 200),
        ];
        let variants = [STOCK, OFF, A_WAREHOUSE_EACH];
        let lines = summarize(STOCK, A_WAREHOUSE_EACH, &variants, &[4, 8], &runs);
        let labels: Vec<_> = lines.iter().map(|line| line.variant).collect();
        assert_eq!(labels, [STOCK, OFF, A_WAREHOUSE_EACH]);
        let spread = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(lines[1].to_baseline, spread(1.2, 0.9, 1.5));
        assert_eq!(lines[1].to_ceiling, spread(0.6, 0.45, 0.75));
        assert_eq!((lines[1].failed, lines[1].rollbacks), (4, 2));
        assert_eq!(lines[2].to_ceiling, None);
    }
}
