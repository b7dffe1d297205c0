//! The report's plots.

use plotters::style::RGBColor;

use crate::bench::catalog::{DIFFERENT, GROUP, QUEUE, STOCK};
use crate::bench::record::{Line, Record, Run};
use crate::bench::sample::Sample;
use crate::report::chart::{self, Axis, Curve, draw};
use txn_top::text::thousands;

/// Readable on light and on dark.
pub const WAITING: RGBColor = RGBColor(217, 119, 87);
pub const RUNNING: RGBColor = RGBColor(91, 141, 239);

pub fn color_of(variant: &str) -> RGBColor {
    match variant {
        STOCK => RGBColor(214, 69, 80),
        QUEUE => RGBColor(224, 160, 48),
        GROUP => RGBColor(22, 163, 122),
        DIFFERENT => RGBColor(128, 138, 157),
        _ => RGBColor(120, 100, 200),
    }
}

/// The variants of a record, in the benchmark's order.
pub fn variants(record: &Record) -> Vec<&'static str> {
    let mut variants = Vec::new();
    for line in &record.summary {
        if !variants.contains(&line.variant) {
            variants.push(line.variant);
        }
    }
    variants
}

/// Rates over the number of clients, with the range of the rounds.
pub fn throughput(record: &Record) -> anyhow::Result<String> {
    let highest = record
        .summary
        .iter()
        .map(|line| line.tps.max)
        .fold(0.0, f64::max);
    let y = Axis::linear("", highest, thousands);
    over_clients(record, (920, 380), &y, |line| {
        (line.tps.median, Some((line.tps.min, line.tps.max)))
    })
}

/// A latency over the number of clients, in decades.
pub fn latency(record: &Record, part: fn(&Line) -> f64) -> anyhow::Result<String> {
    let y = Axis::logarithmic("", record.summary.iter().map(part), |ms| format!("{ms} ms"));
    over_clients(record, (460, 320), &y, |line| (part(line).log10(), None))
}

fn over_clients(
    record: &Record,
    size: (u32, u32),
    y: &Axis,
    value: impl Fn(&Line) -> chart::Value,
) -> anyhow::Result<String> {
    let mut clients: Vec<usize> = record.summary.iter().map(|line| line.clients).collect();
    clients.dedup();
    let curve = |variant| {
        let values = clients.iter().map(|clients| {
            let is_here = |line: &&Line| line.variant == variant && line.clients == *clients;
            record.summary.iter().find(is_here).map(&value)
        });
        Curve::over_names(color_of(variant), values)
    };
    let curves: Vec<Curve> = variants(record).into_iter().map(curve).collect();
    let x = Axis::names("clients", clients.iter().map(usize::to_string).collect());
    draw(size, &x, y, &curves)
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
        .filter(|run| run.clients == most && run.round == record.rounds && !run.different_rows)
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
