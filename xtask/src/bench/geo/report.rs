//! The report of a benchmark.

use maud::{Markup, PreEscaped, html};
use txn_top::text::thousands;

use super::paper;
use super::record::{Line, Record};
use super::table::{beside_the_paper, cells, columns, notes};
use super::variant::{Variant, color_of};
use crate::report::chart::{Axis, Curve, Value, draw};
use crate::report::{conditions, css, legend, page};

const HALF: (u32, u32) = (460, 320);

/// The whole page.
pub fn render(record: &Record) -> anyhow::Result<String> {
    let variants: Vec<Variant> = record.variants.iter().map(|one| one.variant).collect();
    let body = html! {
        h1 { "Transactions over distant nodes" }
        p.soft { (record.about) ". Variants in turn, the data checked after every run." }
        (checked(record))
        (legend(variants.iter().map(|variant| (variant.name(), color_of(*variant)))))
        p.soft {
            @for variant in &variants { (variant.name()) ": " (variant.about()) ". " }
        }
        (plots(record, &variants)?)
        (paper_beside(record))
        h2 { "All figures" }
        p.soft {
            "Medians of " (record.rounds) " rounds. × is against that variant's run in the same \
             round at the same place."
        }
        div.card.scroll { (figures(record)) }
        ul.soft { @for note in notes(record) { li { (note) } } }
        (conditions(
            &record.machine,
            &runs_in_words(record),
            record.servers.iter(),
            &scripts(record),
        ))
    };
    let title = format!("{}: {}", record.benchmark, record.about);
    Ok(page(&title, &body))
}

fn runs_in_words(record: &Record) -> String {
    let settings = record
        .variants
        .iter()
        .map(|one| format!("{}: {}", one.variant.name(), one.settings));
    format!(
        "{} rounds of {} s, protocol {}, {} rows at each node (YCSB), {} warehouses (TPC-C), round \
         trips of {:?} ms. {}",
        record.rounds,
        record.seconds,
        record.protocol.name(),
        record.sizes.rows,
        record.sizes.warehouses,
        record.rtt_ms,
        settings.collect::<Vec<_>>().join(". ")
    )
}

fn scripts(record: &Record) -> String {
    let mut texts: Vec<String> = Vec::new();
    for place in &record.places {
        let text = place.example.join(";\n");
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("\n\n")
}

fn checked(record: &Record) -> Markup {
    let good = record.runs.iter().filter(|run| run.wrong.is_none());
    let transactions: u64 = good.clone().map(|run| run.transactions).sum();
    html! {
        p {
            span.good { "✓ Data checked " }
            "after each of " (record.runs.len()) " runs, right after " (good.count())
            ": every node holds exactly what the acknowledged transactions have written there, and \
             nothing is left in doubt (" (thousands(transactions as f64)) " transactions)."
        }
    }
}

fn plots(record: &Record, variants: &[Variant]) -> anyhow::Result<Markup> {
    let nearest = nearest(record);
    let hold = move |line: &Line| {
        let p50 = line.hold_p50_ms.get(nearest).copied().flatten()?;
        Some((p50, None))
    };
    Ok(html! {
        div.row {
            (figure("Transactions", "committed per second", &over_places(record, variants, |line| {
                Some((line.tps.median, Some((line.tps.min, line.tps.max))))
            })?))
            (figure("Latency", "p99, ms", &over_places(record, variants, |line| {
                Some((line.p99_ms?, None))
            })?))
        }
        div.row style="margin-top:14px" {
            (figure("Hold at the nearest node", "p50, ms", &over_places(record, variants, hold)?))
            (figure("Refused attempts", "percent of the transactions", &over_places(
                record,
                variants,
                |line| Some((100.0 * line.refused.median, None)),
            )?))
        }
    })
}

/// The node with the shortest round trip from the first coordinator.
fn nearest(record: &Record) -> usize {
    let rtt = record.rtt_ms.first().into_iter().flatten().enumerate();
    let nearest = rtt.min_by(|one, other| one.1.total_cmp(other.1));
    nearest.map_or(0, |(node, _)| node)
}

/// A plot with its title and what it shows.
pub fn figure(title: &str, about: &str, svg: &str) -> Markup {
    html! {
        figure.card {
            figcaption { (title) " " span { (about) } }
            (PreEscaped(svg))
        }
    }
}

/// A figure over the places, a curve for each variant.
fn over_places(
    record: &Record,
    variants: &[Variant],
    value: impl Fn(&Line) -> Option<Value>,
) -> anyhow::Result<String> {
    let highest = record.summary.iter().filter_map(&value);
    let highest = highest
        .map(|(median, range)| range.map_or(median, |(_, highest)| highest))
        .fold(0.0, f64::max);
    let curve = |variant: &Variant| {
        let values = record.places.iter().map(|place| {
            let mut lines = record.summary.iter();
            let line = lines.find(|line| line.variant == *variant && line.place == place.place)?;
            value(line)
        });
        Curve::over_names(color_of(*variant), values)
    };
    let curves: Vec<Curve> = variants.iter().map(curve).collect();
    let places = record.places.iter().map(|place| place.place.clone());
    let x = Axis::names("", places.collect());
    draw(HALF, &x, &Axis::linear("", highest, thousands), &curves)
}

fn paper_beside(record: &Record) -> Markup {
    let rows = beside_the_paper(record);
    html! {
        @if !rows.is_empty() {
            h2 { "Beside the paper" }
            p.soft {
                "GeoTP's figures are multiples of ShardingSphere's, on other machines; ours are of \
                 our best variant. xa is ShardingSphere on this machine."
            }
            div.card.scroll {
                table {
                    thead { tr { @for name in paper::HEADER { th.name { (name) } } } }
                    tbody {
                        @for row in rows {
                            tr { @for cell in row { td.name { (cell) } } }
                        }
                    }
                }
            }
        }
    }
}

fn figures(record: &Record) -> Markup {
    let places = record.summary.chunk_by(|one, next| one.place == next.place);
    let rows = |lines: &[Line]| {
        let row = |line: &Line| (line.variant, cells(record, line));
        lines.iter().map(row).collect()
    };
    figures_of(&columns(record), places.map(rows))
}

/// A table: the names of its columns, and groups of rows, each with its variant, whose color is
/// shown in the second column.
pub fn figures_of(
    columns: &[String],
    groups: impl Iterator<Item = Vec<(Variant, Vec<String>)>>,
) -> Markup {
    let class = |column: usize| (column < 2).then_some("name");
    html! {
        table {
            thead {
                tr {
                    @for (column, name) in columns.iter().enumerate() {
                        th class=[class(column)] { (name) }
                    }
                }
            }
            @for rows in groups {
                tbody {
                    @for (variant, cells) in &rows {
                        tr {
                            @for (column, cell) in cells.iter().enumerate() {
                                td class=[class(column)] {
                                    @if column == 1 {
                                        i style={ "background:" (css(color_of(*variant))) } {}
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
