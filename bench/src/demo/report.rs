//! The report: one HTML file with everything in it.

use maud::{Markup, PreEscaped, html};

use super::plot;
use crate::catalog::{GROUP, color_of};
use crate::record::{Line, Record, Run};
use crate::report::{Report, figure, legend, row, wide_figure};
use crate::table::milliseconds;
use txn_top::text::{microseconds, thousands};

/// The whole page.
pub fn render(record: &Record) -> anyhow::Result<String> {
    let effects: i64 = record.runs.iter().map(|run| run.findings.effect).sum();
    let (rounds, base) = (record.rounds, record.baseline);
    let report = Report {
        title: format!("A hot row: {}", record.about),
        heading: html! { "A hot row, with and without " code { "txn" } },
        about: html! {
            p.soft { (record.about) ". Variants in turn, the data checked after every run." }
            (key_figures(record))
        },
        checked: html! {
            "after each of " (record.runs.len()) " runs: all "
            (thousands(effects as f64)) " acknowledged transactions are in the tables, none twice."
        },
        plots: html! { (curves(record)?) (hot_row(record)?) },
        note: format!(
            "Medians of {rounds} rounds. × {base}: against the {base} run of the same round. H/U: \
             against the same work on different rows, in the same round."
        ),
        figures: record.sheet(),
        more: html! {},
        machine: &record.machine,
        runs: format!(
            "{rounds} rounds of {} s, protocol {}, every transaction's latency logged",
            record.seconds,
            record.protocol.name()
        ),
        servers: record.systems.iter().collect(),
        scripts: record.scripts.join("\n"),
    };
    Ok(report.render())
}

/// What group lock does with the most clients, in large type.
fn key_figures(record: &Record) -> Markup {
    let Some(line) = record.summary.iter().rfind(|line| line.variant == GROUP) else {
        return html! {};
    };
    let base = |other: &&Line| other.variant == record.baseline && other.clients == line.clients;
    let base = record.summary.iter().find(base);
    html! {
        div.figures {
            div.card {
                b { (thousands(line.tps.median)) }
                span { "transactions per second with " (line.clients) " clients and group lock" }
            }
            @if let Some(ratio) = line.to_baseline {
                div.card {
                    b { (format!("{:.1} ×", ratio.median)) }
                    span { "the rate of " (record.baseline) " PostgreSQL" }
                }
            }
            @if let Some(share) = line.to_ceiling {
                div.card {
                    b { (format!("{:.0} %", share.median * 100.0)) }
                    span { "of the rate on different rows (H/U)" }
                }
            }
            @if let Some(base) = base {
                div.card {
                    b { (milliseconds(line.p99_ms)) " ms" }
                    span {
                        "99th percentile of latency ("
                        (record.baseline) ": " (milliseconds(base.p99_ms)) " ms)"
                    }
                }
            }
        }
    }
}

fn curves(record: &Record) -> anyhow::Result<Markup> {
    let variants = plot::variants(record);
    let p50 = plot::latency(record, |line| line.p50_ms)?;
    let p99 = plot::latency(record, |line| line.p99_ms)?;
    let rates = plot::throughput(record)?;
    Ok(html! {
        h2 { "Throughput and latency" }
        (legend(variants.iter().map(|variant| (*variant, color_of(variant)))))
        (wide_figure("Committed transactions per second", "over the number of clients", &rates))
        (row(&[
            figure("Median latency", "logarithmic", &p50),
            figure("99th percentile", "logarithmic", &p99),
        ]))
    })
}

fn hot_row(record: &Record) -> anyhow::Result<Markup> {
    let plots = plot::hot_row(record)?;
    let Some((run, _)) = plots.first() else {
        return Ok(html! {});
    };
    Ok(html! {
        h2 { "The hot row over time" }
        p.soft {
            "Sessions, four times a second, in the last run with " (run.clients)
            " clients. With the library this is what " code { "txn.hotspots" }
            " shows; without it, what waits for a lock and what does not."
        }
        (legend([("waiting", plot::WAITING), ("running", plot::RUNNING)]))
        div.row {
            @for (run, svg) in &plots {
                figure.card {
                    figcaption { (run.variant) span.state { (state_at_the_end(run)) } }
                    (PreEscaped(svg))
                }
            }
        }
    })
}

/// How the extension has treated the row, in figures; or that the row was PostgreSQL's own affair.
fn state_at_the_end(run: &Run) -> String {
    let Some(sample) = run.samples.last() else {
        return "never hot".to_owned();
    };
    if sample.updates == 0 {
        return sample.mode.clone();
    }
    let count = |name| run.findings.counters.get(name).copied().unwrap_or_default();
    let followed = 100.0 * count("followed") as f64 / run.acknowledged.max(1) as f64;
    let order = match count("followed") {
        0 => "handed over at commit".to_owned(),
        _ => format!("{followed:.0} % followed"),
    };
    let (handover, cascades) = (microseconds(sample.handover_us), count("cascades"));
    format!("{order} · hand-over {handover} · {cascades} cascades")
}
