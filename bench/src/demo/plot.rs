//! The report's plots.

use plotters::style::RGBColor;

use crate::catalog::color_of;
use crate::record::{Line, Record, Run};
use crate::report::chart::{self, Axis, Curve, draw, from_zero};
use crate::sample::Sample;
use crate::table::once;
use txn_top::text::thousands;

/// Readable on light and on dark.
pub const WAITING: RGBColor = RGBColor(217, 119, 87);
pub const RUNNING: RGBColor = RGBColor(91, 141, 239);

/// The variants of a record, in the benchmark's order.
pub fn variants(record: &Record) -> Vec<&'static str> {
    once(record.summary.iter().map(|line| line.variant))
}

/// Rates over the number of clients, with the range of the rounds.
pub fn throughput(record: &Record) -> anyhow::Result<String> {
    let (x, curves) = over_clients(record, |line| chart::value(line.tps));
    from_zero((920, 380), &x, thousands, &curves)
}

/// A latency over the number of clients, in decades.
pub fn latency(record: &Record, part: fn(&Line) -> f64) -> anyhow::Result<String> {
    let y = Axis::logarithmic("", record.summary.iter().map(part), |ms| format!("{ms} ms"));
    let (x, curves) = over_clients(record, |line| (part(line).log10(), None));
    draw((460, 320), &x, &y, &curves)
}

fn over_clients(record: &Record, value: impl Fn(&Line) -> chart::Value) -> (Axis, Vec<Curve>) {
    let clients = once(record.summary.iter().map(|line| line.clients));
    let curve = |variant| {
        let values = clients.iter().map(|clients| {
            let is_here = |line: &&Line| line.variant == variant && line.clients == *clients;
            record.summary.iter().find(is_here).map(&value)
        });
        Curve::over_names(color_of(variant), values)
    };
    let x = Axis::names("clients", clients.iter().map(usize::to_string).collect());
    (x, variants(record).into_iter().map(curve).collect())
}

/// The hot row over time in the last run of each variant that has one, with the most clients.
pub fn hot_row(record: &Record) -> anyhow::Result<Vec<(&Run, String)>> {
    let most = record
        .runs
        .iter()
        .map(|run| run.clients)
        .max()
        .unwrap_or_default();
    let shown: Vec<&Run> = record
        .runs
        .iter()
        .filter(|run| run.clients == most && run.turn.round == record.rounds && !run.different_rows)
        .collect();
    let samples = || shown.iter().flat_map(|run| &run.samples);
    let highest = samples()
        .map(|sample| sample.waiting.max(sample.running))
        .max()
        .unwrap_or(1);
    let end = samples().map(|sample| sample.at).fold(1.0, f64::max);
    let x = Axis::linear("seconds", end, |second| {
        format!("{}", (second * 10.0).round() / 10.0)
    });
    let y = Axis::linear("", f64::from(highest), thousands);
    let plot = |run: &&'_ Run| {
        let curve = |color, part: fn(&Sample) -> i32| Curve {
            color,
            points: run
                .samples
                .iter()
                .map(|at| (at.at, f64::from(part(at))))
                .collect(),
            ranges: vec![],
            area: true,
        };
        let curves = [
            curve(WAITING, |sample| sample.waiting),
            curve(RUNNING, |sample| sample.running),
        ];
        draw((310, 230), &x, &y, &curves)
    };
    shown.iter().map(|run| Ok((*run, plot(run)?))).collect()
}
