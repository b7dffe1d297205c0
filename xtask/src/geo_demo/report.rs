//! The demo as a table in the terminal and as a page.

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use maud::{Markup, html};
use txn_top::text::{rate, thousands};

use super::form::Form;
use super::record::{BASELINE, Line, Record};
use crate::bench::geo::report::{figure, figures_of};
use crate::bench::geo::variant::{Variant, color_of};
use crate::bench::stats::Spread;
use crate::bench::table::milliseconds;
use crate::report::chart::{Axis, Curve, draw};
use crate::report::{conditions, legend, page};

const BEFORE_HOLDS: [&str; 7] = [
    "form",
    "variant",
    "tps",
    "× classic",
    "p50 ms",
    "p99 ms",
    "refused",
];

fn columns(record: &Record) -> Vec<String> {
    let holds = record.rtt_ms.iter().map(|rtt| format!("hold at {rtt} ms"));
    BEFORE_HOLDS
        .map(str::to_owned)
        .into_iter()
        .chain(holds)
        .collect()
}

fn cells(line: &Line) -> Vec<String> {
    let mut cells = vec![
        line.form.name().to_owned(),
        line.variant.name().to_owned(),
        rate(Some(line.tps.median)),
        line.to_baseline
            .map_or_else(String::new, |ratio| format!("{:.2}", ratio.median)),
        milliseconds(line.p50_ms.median),
        milliseconds(line.p99_ms.median),
        format!("{:.1} %", 100.0 * line.refused.median),
    ];
    let holds = line.hold_p50_ms.iter().zip(&line.hold_p99_ms);
    cells.extend(holds.map(|(p50, p99)| {
        format!(
            "{} / {}",
            milliseconds(p50.median),
            milliseconds(p99.median)
        )
    }));
    cells
}

/// The medians for the terminal.
pub fn table(record: &Record) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    table.set_header(columns(record));
    for line in &record.summary {
        table.add_row(cells(line));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
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
                run.round
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
    let body = html! {
        h1 { "Transactions over distant nodes, with " code { "txn" } }
        p.soft { (record.about) }
        (checked(record))
        (legend(variants.iter().map(|variant| (variant.name(), color_of(*variant)))))
        p.soft {
            @for variant in &variants { (variant.name()) ": " (variant.about()) ". " }
        }
        h2 { "How long rows stay locked at each node" }
        div.row {
            @for form in forms(record) {
                (figure(form.name(), "p50, range of the rounds", &holds(record, form, |line| {
                    &line.hold_p50_ms
                })?))
                (figure(form.name(), "p99, range of the rounds", &holds(record, form, |line| {
                    &line.hold_p99_ms
                })?))
            }
        }
        h2 { "Rate and latency" }
        div.row {
            (figure("Transactions per second", "", &over_forms(record, "", |line| line.tps)?))
            (figure("Median latency", "ms", &over_forms(record, "", |line| line.p50_ms)?))
            (figure("99th percentile", "ms", &over_forms(record, "", |line| line.p99_ms)?))
        }
        h2 { "All figures" }
        p.soft {
            "Medians of " (record.rounds) " rounds. × " (BASELINE.name())
            ": against the run of the same round."
        }
        div.card.scroll { (figures(record)) }
        ul.soft { @for note in notes(record) { li { (note) } } }
        (conditions(
            &record.machine,
            &runs_in_words(record),
            record.servers.iter(),
            &record.scripts.join("\n"),
        ))
    };
    Ok(page("Transactions over distant nodes", &body))
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

fn checked(record: &Record) -> Markup {
    let good = record.runs.iter().filter(|run| run.wrong.is_none());
    let transactions: u64 = good.clone().map(|run| run.transactions).sum();
    html! {
        p {
            span.good { "✓ Data checked " }
            "after each of " (record.runs.len()) " runs, right after " (good.count())
            ": the balances add up over all nodes, and nothing is left in doubt ("
            (thousands(transactions as f64)) " transactions)."
        }
    }
}

fn forms(record: &Record) -> Vec<Form> {
    let mut forms: Vec<Form> = record.summary.iter().map(|line| line.form).collect();
    forms.dedup();
    forms
}

/// Hold spans over the nodes, a curve for each variant.
fn holds(record: &Record, form: Form, part: fn(&Line) -> &Vec<Spread>) -> anyhow::Result<String> {
    let lines = || record.summary.iter().filter(move |line| line.form == form);
    let highest = lines()
        .flat_map(part)
        .map(|spread| spread.max)
        .fold(0.0, f64::max);
    let names = record
        .rtt_ms
        .iter()
        .map(|rtt| format!("{rtt} ms"))
        .collect();
    let curves: Vec<Curve> = lines()
        .map(|line| {
            let values = part(line).iter().map(|spread| Some(value(*spread)));
            Curve::over_names(color_of(line.variant), values)
        })
        .collect();
    let x = Axis::names("round trip to the node", names);
    let y = Axis::linear("", highest, |ms| format!("{} ms", thousands(ms)));
    draw((460, 300), &x, &y, &curves)
}

/// A figure over the forms, a curve for each variant.
fn over_forms(
    record: &Record,
    name: &'static str,
    part: fn(&Line) -> Spread,
) -> anyhow::Result<String> {
    let forms = forms(record);
    let highest = record
        .summary
        .iter()
        .map(|line| part(line).max)
        .fold(0.0, f64::max);
    let curves = Variant::ALL.map(|variant| {
        let values = forms.iter().map(|form| {
            let is_it = |line: &&Line| line.form == *form && line.variant == variant;
            record
                .summary
                .iter()
                .find(is_it)
                .map(|line| value(part(line)))
        });
        Curve::over_names(color_of(variant), values)
    });
    let x = Axis::names(
        name,
        forms.iter().map(|form| form.name().to_owned()).collect(),
    );
    draw(
        (310, 300),
        &x,
        &Axis::linear("", highest, thousands),
        &curves,
    )
}

fn value(spread: Spread) -> (f64, Option<(f64, f64)>) {
    (spread.median, Some((spread.min, spread.max)))
}

fn figures(record: &Record) -> Markup {
    let forms = record.summary.chunk_by(|one, next| one.form == next.form);
    let rows = |lines: &[Line]| {
        lines
            .iter()
            .map(|line| (line.variant, cells(line)))
            .collect()
    };
    figures_of(&columns(record), forms.map(rows))
}
