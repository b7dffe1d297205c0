//! The report: failures and latency over time.

use maud::html;
use txn_top::text::thousands;

use super::record::{Class, ClassRun, PIECE, Piece, Record, Run};
use crate::catalog::color_of;
use crate::plan::Measured;
use crate::report::chart::{Axis, Curve, draw, from_zero};
use crate::report::{Report, legend, wide_figure};
use tooling::machine::Machine;

const SIZE: (u32, u32) = (920, 300);

const LATENCIES: [(&str, Class); 2] = [
    ("99th percentile on the hot row", Class::Hot),
    ("99th percentile on the other rows", Class::Cold),
];

impl Measured for Record {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn text(&self) -> String {
        self.sheet().text()
    }

    fn report(&self) -> anyhow::Result<Option<String>> {
        render(self).map(Some)
    }
}

/// The whole page.
fn render(record: &Record) -> anyhow::Result<String> {
    let shown = last_round(record);
    let switched = shown.iter().find_map(|run| run.switched_at);
    let classes = record.runs.iter().flat_map(|run| &run.classes);
    let committed: u64 = classes.map(|class| class.committed).sum();
    let report = Report {
        title: record.about.to_owned(),
        heading: html! { "A hot spike at a fixed rate" },
        about: html! { p.soft {
            (thousands(record.arrivals.cold.per_second as f64))
            " transactions a second update one of many rows, all the time. After "
            (record.seconds) " s another " (thousands(record.arrivals.hot.per_second as f64))
            " a second want the same row, for " (2 * record.seconds) " s."
            @if let Some(at) = switched {
                " With the library, " code { "ALTER SYSTEM SET txn.group_lock = on" }
                " and a reload came "
                (format!("{at:.1}")) " s after the beginning, while the sessions ran."
            }
            " A transaction that no client could begin within " (record.arrivals.hot.limit_ms)
            " ms has failed. Latency is from when a transaction should have begun."
        } },
        checked: html! {
            "after each of " (record.runs.len()) " runs: all " (thousands(committed as f64))
            " acknowledged transactions are in the tables, none twice, and nothing of those that \
             failed."
        },
        plots: html! {
            h2 {
                "The last round"
                @for run in shown.iter().take(1) { ", " (run.clients) " clients" }
            }
            (legend(shown.iter().map(|run| (run.variant, color_of(run.variant)))))
            (wide_figure("Failures on the hot row", "per second", &failures(record, &shown)?))
            (wide_figure("Commits on the hot row", "per second", &commits(record, &shown)?))
            @for (title, class) in LATENCIES {
                (wide_figure(title, "logarithmic", &latency(record, &shown, class)?))
            }
        },
        note: format!(
            "Medians of {} rounds. Failed: share of what arrived. × stock: commits against stock's \
             run in the same round.",
            record.rounds
        ),
        figures: record.sheet(),
        more: html! {},
        machine: &record.machine,
        runs: format!(
            "{} rounds, four phases of {} s, protocol {}; every transaction's end logged",
            record.rounds,
            record.seconds,
            record.protocol.name()
        ),
        servers: record.systems.iter().collect(),
        scripts: record.scripts.join("\n"),
    };
    Ok(report.render())
}

/// With the most clients.
fn last_round(record: &Record) -> Vec<&Run> {
    let most = record.runs.iter().map(|run| run.clients).max();
    let is_shown = |run: &&Run| run.turn.round == record.rounds && Some(run.clients) == most;
    record.runs.iter().filter(is_shown).collect()
}

fn of(run: &Run, class: Class) -> impl Iterator<Item = &ClassRun> {
    run.classes.iter().filter(move |other| other.class == class)
}

/// Seconds, with what happens at the ends of the phases.
fn time(record: &Record) -> Axis {
    let phase = record.seconds as f64;
    let phases = record.phases;
    Axis {
        name: "seconds",
        from: 0.0,
        to: phase * phases.len() as f64,
        ticks: (0..phases.len()).map(|n| n as f64 * phase).collect(),
        label: Box::new(move |second| {
            let name = phases.get((second / phase).round() as usize);
            format!("{second}: {}", name.copied().unwrap_or_default())
        }),
    }
}

fn curves(runs: &[&Run], class: Class, value: impl Fn(&Piece) -> Option<f64>) -> Vec<Curve> {
    let curve = |run: &&Run| {
        let pieces = of(run, class).flat_map(|class| &class.pieces);
        let middle = |piece: &Piece| Some((piece.at + PIECE / 2.0, value(piece)?));
        Curve {
            color: color_of(run.variant),
            points: pieces.filter_map(middle).collect(),
            ranges: Vec::new(),
            area: true,
        }
    };
    runs.iter().map(curve).collect()
}

fn failures(record: &Record, runs: &[&Run]) -> anyhow::Result<String> {
    per_second(record, runs, |piece| piece.failed as f64 / PIECE)
}

fn commits(record: &Record, runs: &[&Run]) -> anyhow::Result<String> {
    per_second(record, runs, |piece| piece.committed as f64 / PIECE)
}

fn per_second(record: &Record, runs: &[&Run], rate: fn(&Piece) -> f64) -> anyhow::Result<String> {
    let curves = curves(runs, Class::Hot, |piece| Some(rate(piece)));
    from_zero(SIZE, &time(record), thousands, &curves)
}

fn latency(record: &Record, runs: &[&Run], class: Class) -> anyhow::Result<String> {
    let p99 = |piece: &Piece| piece.latency_ms.map(|ms| ms.p99.max(0.001));
    let pieces = runs
        .iter()
        .flat_map(|run| of(run, class))
        .flat_map(|class| &class.pieces);
    let values: Vec<f64> = pieces.filter_map(p99).collect();
    let y = Axis::logarithmic("", values.into_iter(), |ms| format!("{ms} ms"));
    let curves = curves(runs, class, |piece| p99(piece).map(f64::log10));
    draw(SIZE, &time(record), &y, &curves)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::run;
    use super::super::record::{Rates, summarize};
    use super::super::{ABOUT, NAME, PHASES};
    use super::*;
    use crate::catalog::{GROUP, STOCK};
    use crate::pgbench::{Arrivals, Protocol};

    #[test]
    fn the_report_plots_the_last_round_and_says_when_it_was_switched() {
        let switched = Run {
            switched_at: Some(2.04),
            ..run(2, GROUP, 40, 0)
        };
        let runs = vec![run(1, STOCK, 7, 0), run(2, STOCK, 10, 30), switched];
        let arrivals = Arrivals {
            per_second: 40,
            limit_ms: 100,
        };
        let record = Record {
            benchmark: NAME,
            about: ABOUT,
            machine: Machine::look(),
            systems: Vec::new(),
            protocol: Protocol::Prepared,
            seconds: 1,
            rounds: 2,
            arrivals: Rates {
                hot: arrivals,
                cold: arrivals,
            },
            cold_clients: 1,
            baseline: STOCK,
            phases: PHASES,
            scripts: Vec::new(),
            summary: summarize(&runs, &[64], 1.0),
            runs,
        };
        let page = render(&record).unwrap();
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("came 2.0 s after") && page.contains("2: spike, switched on"));
        let shown = last_round(&record);
        let failures = curves(&shown, Class::Hot, |piece| Some(piece.failed as f64));
        let most = |curve: &Curve| curve.points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        assert_eq!(failures.iter().map(most).collect::<Vec<_>>(), [30.0, 0.0]);
    }
}
