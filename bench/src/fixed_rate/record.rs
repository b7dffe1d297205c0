//! What is kept of a fixed-rate run, its table, and what happened in each piece of its time.

use std::ops::RangeInclusive;

use hdrhistogram::Histogram;
use txn_top::text::thousands;

use super::{PHASES, SPIKE, VARIANTS};
use crate::catalog::{GROUP, STOCK, color_of};
use crate::latency::{Latency, histogram};
use crate::pgbench::{Arrivals, Protocol};
use crate::rounds::{Ran, Turn};
use crate::sample::Sample;
use crate::site::{Description, Findings};
use crate::stats::{Group, Spread};
use crate::table::{Row, Sheet, latency, percent, range, ratio};
use crate::transactions::{End, Event};
use crate::variant::Variant;
use tooling::machine::Machine;

/// A whole measurement, as it is written to JSON.
#[derive(Debug, serde::Serialize)]
pub struct Record {
    pub benchmark: &'static str,
    pub about: &'static str,
    pub machine: Machine,
    pub systems: Vec<Description>,
    pub protocol: Protocol,
    /// Of each phase.
    pub seconds: u64,
    pub rounds: usize,
    pub arrivals: Rates,
    pub cold_clients: usize,
    pub baseline: &'static str,
    pub phases: [&'static str; PHASES.len()],
    /// Those of the hot transactions, and of the cold ones.
    pub scripts: Vec<String>,
    pub summary: Vec<Line>,
    pub runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Rates {
    pub hot: Arrivals,
    pub cold: Arrivals,
}

/// Which rows a transaction updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Hot,
    Cold,
}

/// One run of one variant.
#[derive(Debug, serde::Serialize)]
pub struct Run {
    #[serde(flatten)]
    pub turn: Turn,
    pub variant: &'static str,
    /// Of the hot transactions.
    pub clients: usize,
    /// When group lock was on, in seconds from the beginning; None on stock.
    pub switched_at: Option<f64>,
    pub classes: [ClassRun; 2],
    pub findings: Findings,
    pub samples: Vec<Sample>,
}

/// The transactions of one class in a run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ClassRun {
    pub class: Class,
    pub committed: u64,
    /// Of these, after the limit.
    pub late: u64,
    /// No client was free within the limit.
    pub skipped: u64,
    /// 40001 or 40P01, and the limit was over.
    pub refused: u64,
    pub pieces: Vec<Piece>,
}

/// What ended in a piece of time.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Piece {
    /// When it begins, in seconds from the beginning of the run.
    pub at: f64,
    pub committed: u64,
    /// Skipped or refused.
    pub failed: u64,
    /// None when none committed.
    pub latency_ms: Option<Latency>,
    #[serde(skip)]
    microseconds: Option<Histogram<u64>>,
}

/// How long a piece is, in seconds.
pub const PIECE: f64 = 0.5;

impl ClassRun {
    /// What ended between `began`, in Unix time, and `seconds` later; what ended after that is in
    /// the last piece.
    pub fn of(class: Class, events: &[Event], began: f64, seconds: f64, limit_ms: u64) -> Self {
        let pieces = (seconds / PIECE).ceil().max(1.0) as usize;
        let mut run = Self {
            class,
            committed: 0,
            late: 0,
            skipped: 0,
            refused: 0,
            pieces: (0..pieces).map(|n| Piece::new(n as f64 * PIECE)).collect(),
        };
        for event in events {
            let piece = ((event.at - began) / PIECE).max(0.0) as usize;
            let piece = &mut run.pieces[piece.min(pieces - 1)];
            match event.end {
                End::Committed(microseconds) => {
                    run.committed += 1;
                    run.late += u64::from(microseconds > limit_ms * 1000);
                    piece.commit(microseconds);
                }
                End::Skipped => run.skipped += 1,
                End::Refused | End::Deadlock => run.refused += 1,
            }
            piece.failed += u64::from(!matches!(event.end, End::Committed(_)));
        }
        for piece in &mut run.pieces {
            piece.latency_ms = piece.microseconds.as_ref().map(Latency::from);
        }
        run
    }

    /// The pieces of a phase. What the spike leaves to be ended after it belongs to its end.
    fn phase(&self, phase: usize, seconds: f64) -> impl Iterator<Item = &Piece> {
        let last = *self.class.phases().end();
        let is_here = move |piece: &&Piece| ((piece.at / seconds) as usize).min(last) == phase;
        self.pieces.iter().filter(is_here)
    }
}

impl Piece {
    fn new(at: f64) -> Self {
        Self {
            at,
            committed: 0,
            failed: 0,
            latency_ms: None,
            microseconds: None,
        }
    }

    fn commit(&mut self, microseconds: u64) {
        self.committed += 1;
        if self.microseconds.is_none() {
            self.microseconds = histogram().ok();
        }
        if let Some(all) = &mut self.microseconds {
            all.saturating_record(microseconds);
        }
    }
}

/// One class of transactions in one phase of all runs of a variant.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Line {
    pub phase: &'static str,
    pub class: Class,
    pub variant: &'static str,
    pub clients: usize,
    /// Committed per second.
    pub tps: Spread,
    /// Share of what has arrived.
    pub failed: Spread,
    /// Medians of the runs; None when none committed.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// tps as a multiple of the baseline's in the same round.
    pub to_baseline: Option<Spread>,
}

/// A phase of a run.
struct Part {
    round: usize,
    tps: f64,
    failed: f64,
    latency: Option<Latency>,
}

/// One line for each number of clients, phase, class and variant to which anything has happened.
pub fn summarize(runs: &[Run], clients: &[usize], seconds: f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for &clients in clients {
        for (phase, name) in PHASES.into_iter().enumerate() {
            for (index, class) in [Class::Hot, Class::Cold].into_iter().enumerate() {
                let parts = |label: &str| -> Group<Part> {
                    let here = |run: &&Run| run.variant == label && run.clients == clients;
                    let part =
                        |run: &Run| part(run.turn.round, &run.classes[index], phase, seconds);
                    Group::new(runs.iter().filter(here).filter_map(part), |part| {
                        (part.round, part.tps)
                    })
                };
                let line = |variant: &Variant| {
                    let parts_here = parts(variant.label);
                    Some(Line {
                        phase: name,
                        class,
                        variant: variant.label,
                        clients,
                        tps: parts_here.rate()?,
                        failed: parts_here.spread(|part| part.failed)?,
                        p50_ms: parts_here.median(|part| Some(part.latency?.p50)),
                        p99_ms: parts_here.median(|part| Some(part.latency?.p99)),
                        to_baseline: parts_here.to(&parts(STOCK)),
                    })
                };
                lines.extend(VARIANTS.iter().filter_map(line));
            }
        }
    }
    lines
}

/// None when nothing happened.
fn part(round: usize, class: &ClassRun, phase: usize, seconds: f64) -> Option<Part> {
    let pieces = || class.phase(phase, seconds);
    let committed: u64 = pieces().map(|piece| piece.committed).sum();
    let failed: u64 = pieces().map(|piece| piece.failed).sum();
    if committed + failed == 0 {
        return None;
    }
    let mut all = histogram().ok()?;
    for microseconds in pieces().filter_map(|piece| piece.microseconds.as_ref()) {
        all.add(microseconds).ok()?;
    }
    Some(Part {
        round,
        tps: committed as f64 / seconds,
        failed: failed as f64 / (committed + failed) as f64,
        latency: (committed > 0).then(|| Latency::from(&all)),
    })
}

impl Class {
    /// In which its transactions arrive.
    fn phases(self) -> RangeInclusive<usize> {
        match self {
            Class::Hot => SPIKE,
            Class::Cold => 0..=PHASES.len() - 1,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Class::Hot => "hot",
            Class::Cold => "cold",
        }
    }
}

impl Line {
    fn row(&self) -> Row {
        let cells = vec![
            self.clients.to_string(),
            self.phase.to_owned(),
            self.class.name().to_owned(),
            self.variant.to_owned(),
            thousands(self.tps.median),
            range(self.tps),
            percent(self.failed.median),
            latency(self.p50_ms),
            latency(self.p99_ms),
            ratio(self.to_baseline),
        ];
        Row {
            cells,
            color: Some(color_of(self.variant)),
            is_best: self.variant == GROUP,
        }
    }
}

impl Record {
    pub fn sheet(&self) -> Sheet {
        let columns = [
            "clients",
            "phase",
            "rows",
            "variant",
            "tps",
            "min … max",
            "failed",
            "p50 ms",
            "p99 ms",
            "× stock",
        ];
        let alike = |one: &Line, next: &Line| {
            (one.clients, one.phase, one.class) == (next.clients, next.phase, next.class)
        };
        let columns = columns.map(str::to_owned).to_vec();
        Sheet::grouped(columns, 0..4, &self.summary, alike, Line::row)
    }
}

impl Ran for Run {
    fn line(&self) -> String {
        let class = |class: &ClassRun| {
            format!(
                "  {}: {:>8} committed, {:>8} skipped, {:>4} refused",
                class.class.name(),
                thousands(class.committed as f64),
                thousands(class.skipped as f64),
                thousands(class.refused as f64),
            )
        };
        let classes: String = self.classes.iter().map(class).collect();
        format!(
            "{:>5} clients  {:<12}{classes}  checked",
            self.clients, self.variant
        )
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// `committed` and `failed` transactions of 20 ms in each second of two.
    fn events(began: f64, committed: u64, failed: u64) -> Vec<Event> {
        let event = |second: u64, end| Event {
            at: began + second as f64 + 0.25,
            script: 0,
            end,
        };
        let mut events = Vec::new();
        for second in 1..3 {
            events.extend((0..committed).map(|_| event(second, End::Committed(20_000))));
            events.extend((0..failed).map(|_| event(second, End::Skipped)));
        }
        events
    }

    pub fn run(round: usize, variant: &'static str, committed: u64, failed: u64) -> Run {
        let began = 1_795_224_976.5;
        let of = |class, committed, failed| {
            ClassRun::of(class, &events(began, committed, failed), began, 4.0, 10)
        };
        Run {
            turn: Turn { order: 1, round },
            variant,
            clients: 64,
            switched_at: None,
            classes: [of(Class::Hot, committed, failed), of(Class::Cold, 5, 0)],
            findings: Findings::default(),
            samples: Vec::new(),
        }
    }

    #[test]
    fn transactions_are_in_the_piece_in_which_they_ended() {
        let run = run(1, STOCK, 3, 1);
        let [hot, _] = &run.classes;
        assert_eq!((hot.committed, hot.late, hot.skipped), (6, 6, 2));
        assert_eq!(hot.pieces.len(), 8);
        let busy: Vec<f64> = hot
            .pieces
            .iter()
            .filter(|piece| piece.committed == 3 && piece.failed == 1)
            .map(|piece| piece.at)
            .collect();
        assert_eq!(busy, [1.0, 2.0]);
        assert!(hot.pieces[0].latency_ms.is_none());
        assert!((hot.pieces[2].latency_ms.unwrap().p99 - 20.0).abs() < 0.1);
    }

    #[test]
    fn what_ends_late_is_in_the_last_piece_and_failures_are_told_apart() {
        let event = |at, end| Event { at, script: 0, end };
        let events = [
            event(9.0, End::Refused),
            event(9.0, End::Deadlock),
            event(99.0, End::Skipped),
        ];
        let run = ClassRun::of(Class::Hot, &events, 10.0, 2.0, 10);
        assert_eq!((run.refused, run.skipped), (2, 1));
        let failed: Vec<u64> = run.pieces.iter().map(|piece| piece.failed).collect();
        assert_eq!(failed, [2, 0, 0, 1]);
    }

    #[test]
    fn what_the_spike_leaves_belongs_to_its_end() {
        let late = Event {
            at: 3.7,
            script: 0,
            end: End::Committed(1),
        };
        let committed = |class| {
            let run = ClassRun::of(class, &[late], 0.0, 4.0, 10);
            [0, 1, 2, 3].map(|phase| part(1, &run, phase, 1.0).map_or(0.0, |part| part.tps))
        };
        assert_eq!(committed(Class::Hot), [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(committed(Class::Cold), [0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn phases_are_compared_within_a_round() {
        let runs = [
            run(1, STOCK, 10, 30),
            run(1, GROUP, 40, 0),
            run(2, GROUP, 40, 0),
            run(2, STOCK, 20, 20),
        ];
        let lines = summarize(&runs, &[64, 256], 1.0);
        let hot: Vec<_> = lines
            .iter()
            .filter(|line| line.class == Class::Hot)
            .map(|line| (line.phase, line.variant))
            .collect();
        // Nothing hot arrives in the first and the last phase.
        let expected = [
            (PHASES[1], STOCK),
            (PHASES[1], GROUP),
            (PHASES[2], STOCK),
            (PHASES[2], GROUP),
        ];
        assert_eq!(hot, expected);
        let group = lines
            .iter()
            .find(|line| line.variant == GROUP && line.phase == PHASES[1])
            .unwrap();
        let ratio = group.to_baseline.unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (3.0, 2.0, 4.0));
        assert_eq!(group.failed.median, 0.0);
        let stock = lines.iter().find(|line| line.phase == PHASES[1]).unwrap();
        assert_eq!(stock.failed.median, 0.625);
    }
}
