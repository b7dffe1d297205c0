//! The report of a range benchmark.

use maud::{Markup, PreEscaped, html};
use plotters::style::RGBColor;

use super::mix::Class;
use super::record::{Line, Record};
use super::table::{cells, columns, reasons, shared_memory};
use super::variant::{
    HEAP, HEAP_WITH_LIBRARY, ONE_RANGE, RANGE_OCC, RANGE_OCC_WINDOW, REPEATABLE_READ,
    REPEATABLE_READ_TXN_HEAP, SSI, SSI_MORE_LOCKS, TXN_HEAP,
};
use crate::report::chart::{Axis, Curve, Value, draw};
use crate::report::{conditions, css, legend, page};
use txn_top::text::thousands;

const WIDE: (u32, u32) = (920, 380);
const HALF: (u32, u32) = (460, 320);

/// Readable on light and on dark.
fn color_of(variant: &str) -> RGBColor {
    match variant {
        REPEATABLE_READ | HEAP => RGBColor(128, 138, 157),
        REPEATABLE_READ_TXN_HEAP => RGBColor(170, 136, 104),
        SSI => RGBColor(214, 69, 80),
        SSI_MORE_LOCKS => RGBColor(224, 160, 48),
        RANGE_OCC | TXN_HEAP => RGBColor(22, 163, 122),
        RANGE_OCC_WINDOW => RGBColor(8, 90, 140),
        ONE_RANGE => RGBColor(91, 141, 239),
        HEAP_WITH_LIBRARY => RGBColor(120, 100, 200),
        _ => RGBColor(217, 119, 87),
    }
}

/// The whole page.
pub fn render(record: &Record) -> anyhow::Result<String> {
    let runs = format!(
        "{} rounds of {} s, protocol {}, failed transactions not tried again",
        record.rounds,
        record.seconds,
        record.protocol.name()
    );
    let body = html! {
        h1 { "Scans of key ranges among point transactions" }
        p.soft { (record.about) ". Variants in turn, the data checked after every run." }
        (checked(record))
        (plots(record)?)
        h2 { "All figures" }
        p.soft {
            "Medians of " (record.rounds) " rounds; refused are serialization failures and deadlocks of all rounds. × is against \
             that variant's run in the same round at the same place."
        }
        div.card.scroll { (table(record)) }
        (why(record))
        @if let Some(memory) = shared_memory(record) { p { (memory) } }
        (conditions(
            &record.machine,
            &runs,
            record.servers.iter().map(|server| &server.description),
            &scripts(record).join("\n"),
        ))
    };
    let title = format!("{}: {}", record.benchmark, record.about);
    Ok(page(&title, &body))
}

fn checked(record: &Record) -> Markup {
    let classes = record.runs.iter().flat_map(|run| &run.classes);
    let committed: u64 = classes.map(|class| class.committed).sum();
    html! {
        p {
            span.good { "✓ Data checked " }
            "after each of " (record.runs.len()) " runs: the tables hold what the "
            (thousands(committed as f64))
            " committed transactions have written and nothing else, by index and by full scans."
        }
    }
}

/// The labels of all variants, in their order.
fn variants(record: &Record) -> Vec<&'static str> {
    let mut labels = Vec::new();
    for line in &record.summary {
        if !labels.contains(&line.variant) {
            labels.push(line.variant);
        }
    }
    labels
}

fn plots(record: &Record) -> anyhow::Result<Markup> {
    let has = |class| record.summary.iter().any(|line| line.class == class);
    Ok(html! {
        (legend(variants(record).iter().map(|variant| (*variant, color_of(variant)))))
        @if has(Class::Bulk) {
            figure.card.wide {
                figcaption { "Bulk transactions " span { "committed per second" } }
                (PreEscaped(rates(record, Class::Bulk, WIDE)?))
            }
            div.row style="margin-top:14px" {
                figure.card {
                    figcaption { "Bulk transactions " span { "percent refused" } }
                    (PreEscaped(refusals(record, Class::Bulk)?))
                }
                figure.card {
                    figcaption { "Point transactions " span { "committed per second" } }
                    (PreEscaped(rates(record, Class::Point, HALF)?))
                }
            }
        } @else {
            figure.card.wide {
                figcaption { "Point transactions " span { "committed per second" } }
                (PreEscaped(rates(record, Class::Point, WIDE)?))
            }
        }
    })
}

fn rates(record: &Record, class: Class, size: (u32, u32)) -> anyhow::Result<String> {
    let lines = record.summary.iter().filter(|line| line.class == class);
    let highest = lines.map(|line| line.tps.max).fold(0.0, f64::max);
    let y = Axis::linear("", highest, thousands);
    over_places(record, class, size, &y, |line| {
        (line.tps.median, Some((line.tps.min, line.tps.max)))
    })
}

fn refusals(record: &Record, class: Class) -> anyhow::Result<String> {
    let lines = record.summary.iter().filter(|line| line.class == class);
    let highest = lines.map(|line| line.refused.max).fold(0.0, f64::max);
    let y = Axis::linear("", highest * 100.0, |percent| {
        format!("{} %", (percent * 10.0).round() / 10.0)
    });
    over_places(record, class, HALF, &y, |line| {
        let percent = |share: f64| share * 100.0;
        let range = (percent(line.refused.min), percent(line.refused.max));
        (percent(line.refused.median), Some(range))
    })
}

fn over_places(
    record: &Record,
    class: Class,
    size: (u32, u32),
    y: &Axis,
    value: impl Fn(&Line) -> Value,
) -> anyhow::Result<String> {
    let curve = |variant| {
        let values = record.places.iter().map(|place| {
            let is_here = |line: &&Line| {
                (line.variant, line.class, &line.place) == (variant, class, &place.place)
            };
            record.summary.iter().find(is_here).map(&value)
        });
        Curve::over_names(color_of(variant), values)
    };
    let curves: Vec<Curve> = variants(record).into_iter().map(curve).collect();
    let places = record.places.iter().map(|place| place.tick.clone());
    let x = Axis::names(record.axis, places.collect());
    draw(size, &x, y, &curves)
}

fn table(record: &Record) -> Markup {
    /// The column of the variant, whose cells are left-aligned and have its colour.
    const VARIANT: usize = 2;
    let name_class = |column: usize| (column <= VARIANT).then_some("name");
    let same = |one: &Line, next: &Line| (&one.place, one.class) == (&next.place, next.class);
    html! {
        table {
            thead {
                tr {
                    @for (column, name) in columns(record).iter().enumerate() {
                        th class=[name_class(column)] { (name) }
                    }
                }
            }
            @for lines in record.summary.chunk_by(same) {
                tbody {
                    @for line in lines {
                        tr class=[(line.variant == RANGE_OCC).then_some("best")] {
                            @for (column, cell) in cells(record, line).iter().enumerate() {
                                td class=[name_class(column)] {
                                    @if column == VARIANT {
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

/// What range OCC has said to those whom it refused.
fn why(record: &Record) -> Markup {
    let reasons = reasons(record);
    html! {
        @if !reasons.is_empty() {
            h2 { "Why validated transactions were refused" }
            div.card {
                dl {
                    @for why in &reasons {
                        dt { (why.place) ", " (why.variant) } dd { (why) }
                    }
                }
            }
        }
    }
}

/// The texts of all scripts, each once.
fn scripts(record: &Record) -> Vec<&str> {
    let mut texts: Vec<&str> = Vec::new();
    for script in record.places.iter().flat_map(|place| &place.scripts) {
        if !texts.contains(&script.text.as_str()) {
            texts.push(&script.text);
        }
    }
    texts
}
