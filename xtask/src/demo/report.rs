//! The report: one HTML file with everything in it.

use maud::{Markup, PreEscaped, html};

use super::plot::{self, color_of};
use crate::bench::catalog::GROUP;
use crate::bench::record::{Line, Record, Run};
use crate::bench::table::{COLUMNS, cells, milliseconds};
use crate::report::{conditions, css, legend, page};
use txn_top::text::{microseconds, thousands};

/// The whole page.
pub fn render(record: &Record) -> anyhow::Result<String> {
    let body = html! {
        h1 { "A hot row, with and without " code { "txn" } }
        p.soft { (record.about) ". Variants in turn, the data checked after every run." }
        (key_figures(record))
        (checked(record))
        (curves(record)?)
        (hot_row(record)?)
        h2 { "All figures" }
        p.soft {
            "Medians of " (record.rounds) " rounds. × " (record.baseline)
            ": against the " (record.baseline) " run of the same round. H/U: against \
             the same work on different rows, in the same round."
        }
        div.card.scroll { (table(record)) }
        (conditions(
            &record.machine,
            &format!(
                "{} rounds of {} s, protocol {}, every transaction's latency logged",
                record.rounds,
                record.seconds,
                record.protocol.name()
            ),
            record.systems.iter(),
            &record.scripts.join("\n"),
        ))
    };
    Ok(page(&format!("A hot row: {}", record.about), &body))
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

fn checked(record: &Record) -> Markup {
    let effects: i64 = record.runs.iter().map(|run| run.findings.effect).sum();
    html! {
        p {
            span.good { "✓ Data checked " }
            "after each of " (record.runs.len()) " runs: all "
            (thousands(effects as f64)) " acknowledged transactions are in the tables, none twice."
        }
    }
}

fn curves(record: &Record) -> anyhow::Result<Markup> {
    let variants = plot::variants(record);
    Ok(html! {
        h2 { "Throughput and latency" }
        (legend(variants.iter().map(|variant| (*variant, color_of(variant)))))
        figure.card.wide {
            figcaption { "Committed transactions per second " span { "over the number of clients" } }
            (PreEscaped(plot::throughput(record)?))
        }
        div.row style="margin-top:14px" {
            figure.card {
                figcaption { "Median latency " span { "logarithmic" } }
                (PreEscaped(plot::latency(record, |line| line.p50_ms)?))
            }
            figure.card {
                figcaption { "99th percentile " span { "logarithmic" } }
                (PreEscaped(plot::latency(record, |line| line.p99_ms)?))
            }
        }
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

fn table(record: &Record) -> Markup {
    let name_class = |column: usize| (column == 1).then_some("name");
    html! {
        table {
            thead {
                tr {
                    @for (column, name) in COLUMNS.iter().enumerate() {
                        th class=[name_class(column)] { (name.replace("base", record.baseline)) }
                    }
                }
            }
            @for lines in record.summary.chunk_by(|one, next| one.clients == next.clients) {
                tbody {
                    @for line in lines {
                        tr class=[(line.variant == GROUP).then_some("best")] {
                            @for (column, cell) in cells(line).iter().enumerate() {
                                td class=[name_class(column)] {
                                    @if column == 1 {
                                        i style={ "background:" (css(color_of(line.variant))) } {}
                                    }
                                    (cell)
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
