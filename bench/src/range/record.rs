//! What is kept of a range benchmark: every run as it was, and the summary computed from the runs.

use std::collections::BTreeMap;

use super::catalog::Place;
use super::script::Class;
use super::variant::ServerKind;
use crate::latency::Latency;
use crate::pgbench::Protocol;
use crate::rounds::Turn;
use crate::site::Description;
use crate::stats::{Group, Spread};
use tooling::machine::Machine;

/// A whole measurement, as it is written to JSON.
#[derive(Debug, serde::Serialize)]
pub struct Record {
    pub benchmark: &'static str,
    pub about: &'static str,
    pub machine: Machine,
    pub servers: Vec<ServerRecord>,
    pub protocol: Protocol,
    pub seconds: u64,
    pub rounds: usize,
    pub baselines: &'static [&'static str],
    /// What the places differ in; empty when there are several such things.
    pub axis: &'static str,
    pub places: Vec<Place>,
    pub summary: Vec<Line>,
    pub runs: Vec<Run>,
}

#[derive(Debug, serde::Serialize)]
pub struct ServerRecord {
    pub kind: ServerKind,
    pub description: Description,
    /// None without the extension.
    pub shared_memory: Option<SharedMemory>,
}

/// What the extension's shared memory takes, in bytes.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct SharedMemory {
    pub bytes: i64,
    /// Of these, for range OCC.
    pub range_occ: i64,
}

/// One run of one variant.
#[derive(Debug, serde::Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub turn: Turn,
    pub place: String,
    pub variant: &'static str,
    pub seconds: f64,
    pub classes: Vec<ClassRun>,
    /// What `txn.stats` has counted during the run; empty without the library.
    pub counters: BTreeMap<String, i64>,
}

/// The transactions of one class in a run.
#[derive(Debug, serde::Serialize)]
pub struct ClassRun {
    pub class: Class,
    pub committed: u64,
    /// 40001, not tried again.
    pub refused: u64,
    /// 40P01, not tried again.
    pub deadlocks: u64,
    /// Committed per second.
    pub tps: f64,
    /// None when none committed.
    pub latency_ms: Option<Latency>,
}

/// The runs of one variant at one place, one class of transactions, taken together.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Line {
    pub place: String,
    pub variant: &'static str,
    pub class: Class,
    /// Committed per second.
    pub tps: Spread,
    /// Share that was refused or ended in a deadlock, of each run.
    pub refused: Spread,
    /// Those of all runs, and all that were begun.
    pub refusals: u64,
    pub begun: u64,
    /// Medians of the runs in which any committed.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// tps as a multiple of each baseline's in the same round.
    pub ratios: BTreeMap<&'static str, Spread>,
}

impl ClassRun {
    fn failed(&self) -> u64 {
        self.refused + self.deadlocks
    }

    fn begun(&self) -> u64 {
        self.committed + self.failed()
    }

    fn share_refused(&self) -> f64 {
        self.failed() as f64 / self.begun().max(1) as f64
    }
}

impl Run {
    pub fn class(&self, class: Class) -> Option<&ClassRun> {
        self.classes.iter().find(|one| one.class == class)
    }
}

/// One line for each place, class and variant, in the order of the places.
pub fn summarize(places: &[Place], baselines: &[&'static str], runs: &[Run]) -> Vec<Line> {
    let mut lines = Vec::new();
    for place in places {
        for class in [Class::Bulk, Class::Point] {
            let of = |label: &str| {
                let here = runs.iter().filter(|run| run.place == place.label);
                let here = here.filter(|run| run.variant == label);
                let parts = here.filter_map(|run| Some((run.turn.round, run.class(class)?)));
                Group::new(parts, |(round, run)| (*round, run.tps))
            };
            let line = |variant: &super::variant::Variant| {
                let group = of(variant.label);
                Some(Line {
                    place: place.label.clone(),
                    variant: variant.label,
                    class,
                    tps: group.rate()?,
                    refused: group.spread(|(_, run)| run.share_refused())?,
                    refusals: group.sum(|(_, run)| run.failed()),
                    begun: group.sum(|(_, run)| run.begun()),
                    p50_ms: group.median(|(_, run)| Some(run.latency_ms?.p50)),
                    p99_ms: group.median(|(_, run)| Some(run.latency_ms?.p99)),
                    ratios: group.to_all(baselines.iter().map(|base| (*base, of(base)))),
                })
            };
            lines.extend(place.variants.iter().filter_map(line));
        }
    }
    lines
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::range::catalog;
    use crate::range::catalog::tests::SIZES;
    use crate::range::variant::{RANGE_OCC, REPEATABLE_READ, SSI};

    /// The places of benchmark `range`.
    fn places() -> Vec<Place> {
        let range = &catalog::ALL[0];
        range.places(&range.own(SIZES)).unwrap()
    }

    pub fn run(round: usize, place: &str, variant: &'static str, bulk: u64, refused: u64) -> Run {
        let class = |class, committed, refused| ClassRun {
            class,
            committed,
            refused,
            deadlocks: 0,
            tps: committed as f64,
            latency_ms: (committed > 0).then(|| Latency::always(committed as f64)),
        };
        Run {
            turn: Turn { order: 1, round },
            place: place.to_owned(),
            variant,
            seconds: 1.0,
            classes: vec![
                class(Class::Point, 1000, 0),
                class(Class::Bulk, bulk, refused),
            ],
            counters: BTreeMap::new(),
        }
    }

    #[test]
    fn ratios_are_those_within_a_round_and_a_class() {
        let runs = [
            run(1, "10 keys", REPEATABLE_READ, 100, 0),
            run(1, "10 keys", SSI, 10, 30),
            run(1, "10 keys", RANGE_OCC, 90, 10),
            run(2, "10 keys", REPEATABLE_READ, 200, 0),
            run(2, "10 keys", SSI, 20, 20),
            run(2, "10 keys", RANGE_OCC, 220, 0),
            run(2, "100 keys", RANGE_OCC, 7, 0),
        ];
        let lines = summarize(&places(), &[REPEATABLE_READ, SSI], &runs);
        let found = |place: &str, class| {
            let mut lines = lines.iter();
            lines
                .find(|line| {
                    line.place == place && line.class == class && line.variant == RANGE_OCC
                })
                .unwrap()
        };
        let bulk = found("10 keys", Class::Bulk);
        let spread = |median, min, max| Spread { median, min, max };
        assert_eq!(bulk.ratios[SSI], spread(10.0, 9.0, 11.0));
        assert_eq!(bulk.ratios[REPEATABLE_READ], spread(1.0, 0.9, 1.1));
        assert_eq!((bulk.refused, bulk.refusals), (spread(0.05, 0.0, 0.1), 10));
        assert_eq!(bulk.p50_ms, Some(155.0));
        let point = found("10 keys", Class::Point);
        assert_eq!(point.ratios[SSI], spread(1.0, 1.0, 1.0));
        let alone = found("100 keys", Class::Bulk);
        assert!(alone.ratios.is_empty() && alone.tps.median == 7.0);
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn nothing_committed_has_no_latency_and_is_no_base() {
        let runs = [
            run(1, "10 keys", SSI, 0, 50),
            run(1, "10 keys", RANGE_OCC, 90, 10),
        ];
        let lines = summarize(&places(), &[SSI], &runs);
        let ssi = &lines[0];
        assert_eq!((ssi.class, ssi.variant), (Class::Bulk, SSI));
        assert_eq!((ssi.p50_ms, ssi.refused.median), (None, 1.0));
        assert!(lines[1].ratios.is_empty());
    }
}
