//! What is kept of the demo: every run as it was, and medians of the runs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::form::Form;
use crate::bench::geo::variant::Variant;
use crate::bench::latency::Latency;
use crate::bench::machine::Machine;
use crate::bench::site::Description;
use crate::bench::stats::Spread;

/// All others are compared with this.
pub const BASELINE: Variant = Variant::Classic;

#[derive(Serialize)]
pub struct Record {
    pub benchmark: &'static str,
    pub about: String,
    pub machine: Machine,
    pub servers: Vec<Description>,
    /// Round-trip time to each node.
    pub rtt_ms: Vec<f64>,
    pub clients: usize,
    pub seconds: u64,
    pub rounds: usize,
    pub distributed_percent: u32,
    pub theta: f64,
    pub rows: i32,
    pub baseline: Variant,
    /// What each session of a variant runs first.
    pub settings: BTreeMap<&'static str, String>,
    /// Variants that this build of the extension does not have.
    pub left_out: Vec<Variant>,
    /// What each client runs, with example keys.
    pub scripts: Vec<String>,
    pub summary: Vec<Line>,
    pub runs: Vec<Run>,
}

/// One run of one variant.
#[derive(Serialize)]
pub struct Run {
    /// Position in the order of execution, from 1.
    pub order: usize,
    /// From 1.
    pub round: usize,
    pub variant: Variant,
    pub form: Form,
    pub tps: f64,
    pub transactions: u64,
    /// With all attempts of a transaction.
    pub latency_ms: Latency,
    /// Attempts that failed and were made again, by SQLSTATE.
    pub refusals: BTreeMap<String, u64>,
    pub holds: Vec<Hold>,
    /// The sum of the balances, which is as it was.
    pub sum: i64,
    /// What the check of the data has found; such a run is in no median.
    pub wrong: Option<String>,
}

/// From lock to commit of rows at a node.
#[derive(Serialize)]
pub struct Hold {
    pub node: usize,
    pub rtt_ms: f64,
    /// What the coordinator believed at the end of the run (`txn.geo_nodes`); none: not known.
    pub believed_rtt_ms: Option<f64>,
    pub samples: u64,
    pub ms: Latency,
}

/// The runs of a variant and a form, taken together.
#[derive(Serialize)]
pub struct Line {
    pub variant: Variant,
    pub form: Form,
    pub tps: Spread,
    pub p50_ms: Spread,
    pub p99_ms: Spread,
    /// Failed attempts for each transaction.
    pub refused: Spread,
    /// Of the rates, to the baseline's of the same round.
    pub to_baseline: Option<Spread>,
    pub hold_p50_ms: Vec<Spread>,
    pub hold_p99_ms: Vec<Spread>,
}

/// The medians of the runs whose data was right, in the order of `forms` and variants.
pub fn summary(runs: &[Run], forms: &[Form], nodes: usize) -> Vec<Line> {
    let pairs = forms
        .iter()
        .flat_map(|form| Variant::ALL.map(|variant| (*form, variant)));
    pairs
        .filter_map(|(form, variant)| line(runs, form, variant, nodes))
        .collect()
}

fn line(runs: &[Run], form: Form, variant: Variant, nodes: usize) -> Option<Line> {
    let of = |variant: Variant| {
        let is_it =
            move |run: &&Run| run.form == form && run.variant == variant && run.wrong.is_none();
        runs.iter().filter(is_it)
    };
    let spread = |value: &dyn Fn(&Run) -> f64| Spread::of(of(variant).map(value));
    let rates =
        |variant| -> Vec<(usize, f64)> { of(variant).map(|run| (run.round, run.tps)).collect() };
    let holds = |value: &dyn Fn(&Hold) -> f64| -> Option<Vec<Spread>> {
        (0..nodes)
            .map(|node| spread(&|run| run.holds.get(node).map_or(0.0, value)))
            .collect()
    };
    Some(Line {
        variant,
        form,
        tps: spread(&|run| run.tps)?,
        p50_ms: spread(&|run| run.latency_ms.p50)?,
        p99_ms: spread(&|run| run.latency_ms.p99)?,
        refused: spread(&|run| {
            let refused: u64 = run.refusals.values().sum();
            refused as f64 / run.transactions.max(1) as f64
        })?,
        to_baseline: Spread::of_ratios(&rates(variant), &rates(BASELINE)),
        hold_p50_ms: holds(&|hold| hold.ms.p50)?,
        hold_p99_ms: holds(&|hold| hold.ms.p99)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: usize, variant: Variant, tps: f64, wrong: Option<&str>) -> Run {
        let latency = Latency {
            mean: 1.0,
            p50: 1.0,
            p95: 1.0,
            p99: 2.0,
            max: 3.0,
        };
        Run {
            order: 1,
            round,
            variant,
            form: Form::Statement,
            tps,
            transactions: 10,
            latency_ms: latency,
            refusals: BTreeMap::from([("40001".to_owned(), 5)]),
            holds: vec![Hold {
                node: 0,
                rtt_ms: 10.0,
                believed_rtt_ms: None,
                samples: 1,
                ms: latency,
            }],
            sum: 0,
            wrong: wrong.map(str::to_owned),
        }
    }

    #[test]
    fn runs_with_wrong_data_do_not_count() {
        let runs = [
            run(1, Variant::Classic, 10.0, None),
            run(1, Variant::Early, 20.0, None),
            run(2, Variant::Early, 90.0, Some("the balances are wrong")),
            run(1, Variant::Scheduled, 90.0, Some("the balances are wrong")),
        ];
        let lines = summary(&runs, &[Form::Statement], 1);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].tps.max, 20.0);
        assert_eq!(lines[1].to_baseline.unwrap().median, 2.0);
        assert_eq!(
            (lines[1].refused.median, lines[1].hold_p99_ms[0].median),
            (0.5, 2.0)
        );
    }
}
