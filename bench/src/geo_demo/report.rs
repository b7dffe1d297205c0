//! The demo as a table in the terminal and as a page.

use maud::{Markup, html};
use txn_top::text::{rate, thousands};

use super::form::Form;
use super::record::{BASELINE, Line, Record};
use crate::geo::report::legend_of;
use crate::geo::variant::{Variant, color_of};
use crate::report::chart::{Axis, Curve, from_zero, value};
use crate::report::{Report, figure, row};
use crate::stats::Spread;
use crate::table::{Row, Sheet, milliseconds, once, percent, ratio};

/// All lines, grouped by forms.
pub fn sheet(record: &Record) -> Sheet {
    let fixed = [
        "form",
        "variant",
        "tps",
        "× classic",
        "p50 ms",
        "p99 ms",
        "refused",
    ];
    let holds = record.rtt_ms.iter().map(|rtt| format!("hold at {rtt} ms"));
    let columns = fixed.map(str::to_owned).into_iter().chain(holds).collect();
    let alike = |one: &Line, next: &Line| one.form == next.form;
    Sheet::grouped(columns, 0..2, &record.summary, alike, row_of)
}

fn row_of(line: &Line) -> Row {
    let mut cells = vec![
        line.form.name().to_owned(),
        line.variant.name().to_owned(),
        rate(Some(line.tps.median)),
        ratio(line.to_baseline),
        milliseconds(line.p50_ms.median),
        milliseconds(line.p99_ms.median),
        percent(line.refused.median),
    ];
    let holds = line.hold_p50_ms.iter().zip(&line.hold_p99_ms);
    cells.extend(holds.map(|(p50, p99)| {
        let (p50, p99) = (milliseconds(p50.median), milliseconds(p99.median));
        format!("{p50} / {p99}")
    }));
    Row {
        cells,
        color: Some(color_of(line.variant)),
        is_best: false,
    }
}

/// What the figures do not say by themselves.
pub fn notes(record: &Record) -> Vec<String> {
    let mut notes = vec![
        "postgres_fdw is not atomic: a failure between its commits leaves half a transfer. \
         It is here to show what two-phase commit costs."
            .to_owned(),
        "Hold: from the lock of a row to its commit at the node, p50 / p99 in ms, of \
         transactions at one node and at two. Of rows that change often it samples some versions."
            .to_owned(),
        "Refused: failed attempts (40xxx, 55P03) in percent of the transactions; latencies \
         include all attempts."
            .to_owned(),
    ];
    for variant in &record.left_out {
        notes.push(format!(
            "The variant {} is left out: this build has no such setting.",
            variant.name()
        ));
    }
    for run in &record.runs {
        if let Some(wrong) = &run.wrong {
            notes.push(format!(
                "Not counted: {}, {}, round {}: {wrong}",
                run.variant.name(),
                run.form.name(),
                run.turn.round
            ));
        }
    }
    notes
}

/// The whole page.
pub fn render(record: &Record) -> anyhow::Result<String> {
    let variants = Variant::ALL
        .into_iter()
        .filter(|variant| record.summary.iter().any(|line| line.variant == *variant));
    let variants: Vec<Variant> = variants.collect();
    let good = record.runs.iter().filter(|run| run.wrong.is_none());
    let transactions: u64 = good.clone().map(|run| run.transactions).sum();
    let report = Report {
        title: "Transactions over distant nodes".to_owned(),
        heading: html! { "Transactions over distant nodes, with " code { "txn" } },
        about: html! { p.soft { (record.about) } },
        checked: html! {
            "after each of " (record.runs.len()) " runs, right after " (good.count())
            ": the balances add up over all nodes, and nothing is left in doubt ("
            (thousands(transactions as f64)) " transactions)."
        },
        plots: html! { (legend_of(&variants)) (plots(record)?) },
        note: format!(
            "Medians of {} rounds. × {}: against the run of the same round.",
            record.rounds,
            BASELINE.name()
        ),
        figures: sheet(record),
        more: html! { ul.soft { @for note in notes(record) { li { (note) } } } },
        machine: &record.machine,
        runs: runs_in_words(record),
        servers: record.servers.iter().collect(),
        scripts: record.scripts.join("\n"),
    };
    Ok(report.render())
}

fn plots(record: &Record) -> anyhow::Result<Markup> {
    let mut spans = Vec::new();
    for form in forms(record) {
        let [p50, p99] = [
            holds(record, form, |line| &line.hold_p50_ms)?,
            holds(record, form, |line| &line.hold_p99_ms)?,
        ];
        spans.push(figure(form.name(), "p50, range of the rounds", &p50));
        spans.push(figure(form.name(), "p99, range of the rounds", &p99));
    }
    let rates = over_forms(record, |line| line.tps)?;
    let p50 = over_forms(record, |line| line.p50_ms)?;
    let p99 = over_forms(record, |line| line.p99_ms)?;
    Ok(html! {
        h2 { "How long rows stay locked at each node" }
        (row(&spans))
        h2 { "Rate and latency" }
        (row(&[
            figure("Transactions per second", "", &rates),
            figure("Median latency", "ms", &p50),
            figure("99th percentile", "ms", &p99),
        ]))
    })
}

fn runs_in_words(record: &Record) -> String {
    let settings = record
        .settings
        .iter()
        .map(|(name, sql)| format!("{name}: {sql}"));
    format!(
        "{} rounds of {} s, {} clients, {} % of the transactions over two nodes, rows by Zipf \
         with θ = {} of {} at each node, round trips of {:?} ms. {}",
        record.rounds,
        record.seconds,
        record.clients,
        record.distributed_percent,
        record.theta,
        record.rows,
        record.rtt_ms,
        settings.collect::<Vec<_>>().join(". ")
    )
}

fn forms(record: &Record) -> Vec<Form> {
    once(record.summary.iter().map(|line| line.form))
}

/// Hold spans over the nodes, a curve for each variant.
fn holds(record: &Record, form: Form, part: fn(&Line) -> &Vec<Spread>) -> anyhow::Result<String> {
    let lines = record.summary.iter().filter(|line| line.form == form);
    let curve = |line: &Line| {
        let values = part(line).iter().map(|spread| Some(value(*spread)));
        Curve::over_names(color_of(line.variant), values)
    };
    let curves: Vec<Curve> = lines.map(curve).collect();
    let nodes = record.rtt_ms.iter().map(|rtt| format!("{rtt} ms"));
    let x = Axis::names("round trip to the node", nodes.collect());
    let label = |ms| format!("{} ms", thousands(ms));
    from_zero((460, 300), &x, label, &curves)
}

/// A figure over the forms, a curve for each variant.
fn over_forms(record: &Record, part: fn(&Line) -> Spread) -> anyhow::Result<String> {
    let forms = forms(record);
    let curves = Variant::ALL.map(|variant| {
        let values = forms.iter().map(|form| {
            let is_it = |line: &&Line| line.form == *form && line.variant == variant;
            let mut lines = record.summary.iter();
            lines.find(is_it).map(|line| value(part(line)))
        });
        Curve::over_names(color_of(variant), values)
    });
    let names = forms.iter().map(|form| form.name().to_owned());
    let x = Axis::names("", names.collect());
    from_zero((310, 300), &x, thousands, &curves)
}
