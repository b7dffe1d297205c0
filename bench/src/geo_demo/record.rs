//! What is kept of the demo: every run as it was, and medians of the runs.

use std::collections::BTreeMap;

use serde::Serialize;

use txn_top::text::{rate, thousands};

use super::form::Form;
use crate::geo::variant::Variant;
use crate::latency::Latency;
use crate::rounds::{Ran, Turn};
use crate::site::Description;
use crate::stats::{Group, Spread};
use crate::table::milliseconds;
use tooling::machine::Machine;

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
    #[serde(flatten)]
    pub turn: Turn,
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
        let is_one = |run: &Run| run.form == form && run.variant == variant;
        let runs = runs.iter().filter(|run| is_one(run) && run.wrong.is_none());
        Group::new(runs, |run| (run.turn.round, run.tps))
    };
    let group = of(variant);
    let holds = |part: fn(&Latency) -> f64| -> Option<Vec<Spread>> {
        let at = |node: usize| {
            group.spread(|run| run.holds.get(node).map_or(0.0, |hold| part(&hold.ms)))
        };
        (0..nodes).map(at).collect()
    };
    Some(Line {
        variant,
        form,
        tps: group.rate()?,
        p50_ms: group.spread(|run| run.latency_ms.p50)?,
        p99_ms: group.spread(|run| run.latency_ms.p99)?,
        refused: group.spread(|run| run.refused() as f64 / run.transactions.max(1) as f64)?,
        to_baseline: group.to(&of(BASELINE)),
        hold_p50_ms: holds(|ms| ms.p50)?,
        hold_p99_ms: holds(|ms| ms.p99)?,
    })
}

impl Run {
    /// Failed attempts.
    fn refused(&self) -> u64 {
        self.refusals.values().sum()
    }
}

impl Ran for Run {
    fn line(&self) -> String {
        let holds: Vec<String> = self
            .holds
            .iter()
            .map(|hold| {
                let believed = hold.believed_rtt_ms.map(milliseconds);
                let believed = believed.map_or_else(String::new, |ms| format!(" (believed {ms})"));
                let p50 = milliseconds(hold.ms.p50);
                format!("{p50} at {} ms{believed}", hold.rtt_ms)
            })
            .collect();
        let verdict = match &self.wrong {
            None => "data right".to_owned(),
            Some(wrong) => format!("DATA WRONG: {wrong}"),
        };
        format!(
            "{:<12} {:<22} {:>6} tps  p50 {:>6} p99 {:>6} ms  hold {}  {} refused  {}",
            self.variant.name(),
            self.form.name(),
            rate(Some(self.tps)),
            milliseconds(self.latency_ms.p50),
            milliseconds(self.latency_ms.p99),
            holds.join(", "),
            thousands(self.refused() as f64),
            verdict
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: usize, variant: Variant, tps: f64, wrong: Option<&str>) -> Run {
        let latency = Latency::always(2.0);
        Run {
            turn: Turn { order: 1, round },
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
