//! What is kept: every run as it was, and the summary computed from the runs.

use std::collections::BTreeMap;

use super::catalog::BASELINES;
use super::paper::Measured;
use super::place::At;
use super::variant::Variant;
use super::workload::Sizes;
use crate::latency::Latency;
use crate::pgbench::Protocol;
use crate::rounds::Turn;
use crate::site::Description;
use crate::stats::{Group, Spread};
use tooling::machine::Machine;

/// A whole measurement, as it is written to JSON.
#[derive(serde::Serialize)]
pub struct Record {
    pub benchmark: &'static str,
    pub about: &'static str,
    pub machine: Machine,
    pub servers: Vec<Description>,
    pub protocol: Protocol,
    pub seconds: u64,
    pub rounds: usize,
    /// Where a place has no others: from each coordinator to each node.
    pub rtt_ms: Vec<Vec<f64>>,
    pub sizes: Sizes,
    pub baselines: Vec<&'static str>,
    pub variants: Vec<VariantRecord>,
    /// Variants that were asked for and could not run, and why.
    pub left_out: BTreeMap<&'static str, String>,
    pub places: Vec<PlaceRecord>,
    pub summary: Vec<Line>,
    pub runs: Vec<Run>,
}

#[derive(serde::Serialize)]
pub struct VariantRecord {
    pub variant: Variant,
    pub about: &'static str,
    /// What each session says first.
    pub settings: String,
}

#[derive(serde::Serialize)]
pub struct PlaceRecord {
    pub place: String,
    pub at: At,
    /// A transaction that a client has drawn.
    pub example: Vec<String>,
}

/// One run of one variant.
#[derive(serde::Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub turn: Turn,
    pub place: String,
    pub variant: Variant,
    pub tps: f64,
    pub transactions: u64,
    /// With all attempts of a transaction. None when none committed.
    pub latency_ms: Option<Latency>,
    /// Attempts that failed, by SQLSTATE.
    pub refusals: BTreeMap<String, u64>,
    /// Bursts to each node for each transaction, without those of the coordinators' own.
    pub trips: Vec<f64>,
    /// From lock to commit at each node; none where no row was seen.
    pub holds: Vec<Option<Hold>>,
    /// What the first coordinator believed in the end; none: not known.
    pub believed_rtt_ms: Vec<Option<f64>>,
    /// Why the run does not count: it failed, or its check did.
    pub wrong: Option<String>,
}

/// Of rows at a node.
#[derive(Clone, Copy, serde::Serialize)]
pub struct Hold {
    pub samples: u64,
    pub ms: Latency,
}

/// The runs of one variant at one place, taken together.
#[derive(Clone, serde::Serialize)]
pub struct Line {
    pub place: String,
    pub variant: Variant,
    pub tps: Spread,
    /// Failed attempts for each transaction, of each run.
    pub refused: Spread,
    /// Of all runs, by SQLSTATE.
    pub refusals: BTreeMap<String, u64>,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Bursts for each transaction, over all nodes.
    pub trips: Spread,
    /// Medians at each node.
    pub hold_p50_ms: Vec<Option<f64>>,
    pub hold_p99_ms: Vec<Option<f64>>,
    /// tps as a multiple of each baseline's in the same round.
    pub ratios: BTreeMap<&'static str, Spread>,
}

impl Line {
    pub fn measured(&self) -> Measured<'_> {
        let median = |variant: Variant| {
            let ratio = self.ratios.get(variant.name());
            ratio.map(|spread| spread.median)
        };
        Measured {
            place: &self.place,
            variant: self.variant.name(),
            to_xa: median(Variant::Xa),
            to_classic: median(Variant::Classic),
            p99_ms: self.p99_ms,
        }
    }
}

/// One line for each place and variant, in this order, of the runs that count.
pub fn summarize(places: &[PlaceRecord], runs: &[Run]) -> Vec<Line> {
    let pairs = places
        .iter()
        .flat_map(|place| Variant::ALL.map(|variant| (place, variant)));
    pairs
        .filter_map(|(place, variant)| line(&place.place, variant, runs))
        .collect()
}

impl Run {
    fn hold(&self, node: usize) -> Option<Latency> {
        Some(self.holds.get(node).copied().flatten()?.ms)
    }

    /// Failed attempts.
    pub fn refused(&self) -> u64 {
        self.refusals.values().sum()
    }

    /// Over all nodes.
    pub fn all_trips(&self) -> f64 {
        self.trips.iter().fold(0.0, |sum, trips| sum + trips)
    }
}

/// None of no runs.
fn line(place: &str, variant: Variant, runs: &[Run]) -> Option<Line> {
    let of = |variant: Variant| {
        let is_one = |run: &Run| run.place == place && run.variant == variant;
        let runs = runs.iter().filter(|run| is_one(run) && run.wrong.is_none());
        Group::new(runs, |run| (run.turn.round, run.tps))
    };
    let group = of(variant);
    let latency = |part: fn(&Latency) -> f64| group.median(|run| run.latency_ms.as_ref().map(part));
    let nodes = group.runs.first().map_or(0, |run| run.holds.len());
    let hold = |part: fn(&Latency) -> f64| -> Vec<Option<f64>> {
        let at = |node| group.median(|run| Some(part(&run.hold(node)?)));
        (0..nodes).map(at).collect()
    };
    let mut refusals: BTreeMap<String, u64> = BTreeMap::new();
    for (code, count) in group.runs.iter().flat_map(|run| &run.refusals) {
        *refusals.entry(code.clone()).or_default() += count;
    }
    Some(Line {
        place: place.to_owned(),
        variant,
        tps: group.rate()?,
        refused: group.spread(|run| run.refused() as f64 / run.transactions.max(1) as f64)?,
        refusals,
        p50_ms: latency(|ms| ms.p50),
        p95_ms: latency(|ms| ms.p95),
        p99_ms: latency(|ms| ms.p99),
        trips: group.spread(|run| run.all_trips())?,
        hold_p50_ms: hold(|ms| ms.p50),
        hold_p99_ms: hold(|ms| ms.p99),
        ratios: group.to_all(BASELINES.map(|base| (base.name(), of(base)))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::place::DEFAULT;

    fn run(round: usize, variant: Variant, tps: f64, wrong: Option<&str>) -> Run {
        let latency = Latency::always(tps);
        Run {
            turn: Turn { order: 1, round },
            place: "here".to_owned(),
            variant,
            tps,
            transactions: 10,
            latency_ms: Some(latency),
            refusals: BTreeMap::from([("40001".to_owned(), 5)]),
            trips: vec![1.0, 2.0],
            holds: vec![
                None,
                Some(Hold {
                    samples: 1,
                    ms: latency,
                }),
            ],
            believed_rtt_ms: Vec::new(),
            wrong: wrong.map(str::to_owned),
        }
    }

    #[test]
    fn runs_with_wrong_data_do_not_count() {
        let places = [PlaceRecord {
            place: "here".to_owned(),
            at: DEFAULT,
            example: Vec::new(),
        }];
        let runs = [
            run(1, Variant::Classic, 10.0, None),
            run(1, Variant::Early, 20.0, None),
            run(2, Variant::Classic, 10.0, None),
            run(2, Variant::Early, 90.0, Some("an update is lost")),
            run(1, Variant::Scheduled, 90.0, Some("an update is lost")),
        ];
        let lines = summarize(&places, &runs);
        assert_eq!(lines.len(), 2);
        let early = &lines[1];
        assert_eq!((early.variant, early.tps.max), (Variant::Early, 20.0));
        assert_eq!(early.ratios["classic"].median, 2.0);
        assert!(!early.ratios.contains_key("xa"));
        assert_eq!((early.refused.median, early.refusals["40001"]), (0.5, 5));
        assert_eq!((early.trips.median, early.p99_ms), (3.0, Some(20.0)));
        assert_eq!(early.hold_p99_ms, [None, Some(20.0)]);
        assert_eq!(early.measured().to_classic, Some(2.0));
    }
}
