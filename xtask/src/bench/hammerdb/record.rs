//! What is kept of a measurement with HammerDB, and its table.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, TableComponent, presets};

use super::{VARIANTS, Variant};
use crate::bench::machine::Machine;
use crate::bench::site::Description;
use crate::bench::stats::Spread;
use crate::bench::table::ratio;
use txn_top::text::thousands;

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
    /// Position in the order of execution, from 1.
    pub order: usize,
    /// From 1.
    pub round: usize,
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
pub fn summarize(baseline: &str, ceiling: &str, clients: &[usize], runs: &[Run]) -> Vec<Line> {
    let mut lines = Vec::new();
    for &clients in clients {
        let of = |label: &str| -> Vec<&Run> {
            let here = |run: &&Run| run.variant == label && run.clients == clients;
            runs.iter().filter(here).collect()
        };
        let rates = |label: &str| -> Vec<(usize, f64)> {
            let of = of(label);
            of.iter().map(|run| (run.round, run.nopm as f64)).collect()
        };
        for Variant { label, .. } in &VARIANTS {
            let rates_here = rates(label);
            let runs = of(label);
            let Some(nopm) = Spread::of(rates_here.iter().map(|(_, nopm)| *nopm)) else {
                continue;
            };
            let against = |other| Spread::of_ratios(&rates_here, &rates(other));
            lines.push(Line {
                variant: label,
                clients,
                warehouses: runs[0].warehouses,
                nopm,
                to_baseline: against(baseline),
                to_ceiling: against(ceiling).filter(|_| *label != ceiling),
                failed: runs.iter().flat_map(|run| run.failed.values()).sum(),
                rollbacks: runs.iter().map(|run| run.rollbacks).sum(),
                deadlocks: runs.iter().map(|run| run.deadlocks).sum(),
            });
        }
    }
    lines
}

/// The summary for the terminal.
pub fn render(record: &Record) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    table.set_header([
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
    ]);
    for line in &record.summary {
        table.add_row([
            line.clients.to_string(),
            line.variant.to_owned(),
            line.warehouses.to_string(),
            thousands(line.nopm.median),
            format!(
                "{} … {}",
                thousands(line.nopm.min),
                thousands(line.nopm.max)
            ),
            ratio(line.to_baseline),
            ratio(line.to_ceiling),
            thousands(line.failed as f64),
            thousands(line.rollbacks as f64),
            thousands(line.deadlocks as f64),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// A finished run in one line.
pub fn run_line(run: &Run, rounds: usize) -> String {
    let failed: u64 = run.failed.values().sum();
    format!(
        "{:>2}/{rounds} {:>5} users  {:<22} {:>8} NOPM  {:>4} warehouses  checked  \
         {failed} failed, {} deadlocks",
        run.round,
        run.clients,
        run.variant,
        thousands(run.nopm as f64),
        run.warehouses,
        run.deadlocks,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::catalog::{A_WAREHOUSE_EACH, OFF, STOCK};

    fn run(round: usize, variant: &'static str, nopm: u64) -> Run {
        Run {
            order: 1,
            round,
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
        let lines = summarize(STOCK, A_WAREHOUSE_EACH, &[4, 8], &runs);
        let labels: Vec<_> = lines.iter().map(|line| line.variant).collect();
        assert_eq!(labels, [STOCK, OFF, A_WAREHOUSE_EACH]);
        let spread = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(lines[1].to_baseline, spread(1.2, 0.9, 1.5));
        assert_eq!(lines[1].to_ceiling, spread(0.6, 0.45, 0.75));
        assert_eq!((lines[1].failed, lines[1].rollbacks), (4, 2));
        assert_eq!(lines[2].to_ceiling, None);
    }
}
