//! The report of a range benchmark.

use maud::{Markup, html};

use super::record::{Line, Record};
use super::script::Class;
use super::table::{reasons, shared_memory, sheet};
use super::variant::color_of;
use crate::plan::Measured;
use crate::report::chart::{Axis, Curve, Value, from_zero, value};
use crate::report::{Report, figure, legend, row, wide_figure};
use crate::table::once;
use tooling::machine::Machine;
use txn_top::text::thousands;

const WIDE: (u32, u32) = (920, 380);
const HALF: (u32, u32) = (460, 320);

impl Measured for Record {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn text(&self) -> String {
        let reasons = reasons(self);
        let reasons = reasons
            .iter()
            .map(|why| format!("refused at {}, {}: {why}", why.place, why.variant));
        let lines = std::iter::once(sheet(self).text()).chain(reasons);
        let lines: Vec<String> = lines.chain(shared_memory(self)).collect();
        lines.join("\n")
    }

    fn report(&self) -> anyhow::Result<Option<String>> {
        render(self).map(Some)
    }
}

/// The whole page.
fn render(record: &Record) -> anyhow::Result<String> {
    let classes = record.runs.iter().flat_map(|run| &run.classes);
    let committed: u64 = classes.map(|class| class.committed).sum();
    let scripts = record.places.iter().flat_map(|place| &place.scripts);
    let report = Report {
        title: format!("{}: {}", record.benchmark, record.about),
        heading: html! { "Scans of key ranges among point transactions" },
        about: html! {
            p.soft { (record.about) ". Variants in turn, the data checked after every run." }
        },
        checked: html! {
            "after each of " (record.runs.len()) " runs: the tables hold what the "
            (thousands(committed as f64))
            " committed transactions have written and nothing else, by index and by full scans."
        },
        plots: plots(record)?,
        note: format!(
            "Medians of {} rounds; refused are serialization failures and deadlocks of all rounds. \
             × is against that variant's run in the same round at the same place.",
            record.rounds
        ),
        figures: sheet(record),
        more: html! {
            (why(record))
            @if let Some(memory) = shared_memory(record) { p { (memory) } }
        },
        machine: &record.machine,
        runs: format!(
            "{} rounds of {} s, protocol {}, failed transactions not tried again",
            record.rounds,
            record.seconds,
            record.protocol.name()
        ),
        servers: record.servers.iter().map(|one| &one.description).collect(),
        scripts: once(scripts.map(|script| script.text.as_str())).join("\n"),
    };
    Ok(report.render())
}

fn plots(record: &Record) -> anyhow::Result<Markup> {
    let has_bulk = record.summary.iter().any(|line| line.class == Class::Bulk);
    let variants = once(record.summary.iter().map(|line| line.variant));
    let rate = "committed per second";
    let rates = |class, size| over_places(record, class, size, thousands, |line| value(line.tps));
    let refused = || {
        let percent = |percent: f64| format!("{} %", (percent * 10.0).round() / 10.0);
        over_places(record, Class::Bulk, HALF, percent, |line| {
            let percent = line.refused.times(100.0);
            value(percent)
        })
    };
    Ok(html! {
        (legend(variants.iter().map(|variant| (*variant, color_of(variant)))))
        @if has_bulk {
            (wide_figure("Bulk transactions", rate, &rates(Class::Bulk, WIDE)?))
            (row(&[
                figure("Bulk transactions", "percent refused", &refused()?),
                figure("Point transactions", rate, &rates(Class::Point, HALF)?),
            ]))
        } @else {
            (wide_figure("Point transactions", rate, &rates(Class::Point, WIDE)?))
        }
    })
}

fn over_places(
    record: &Record,
    class: Class,
    size: (u32, u32),
    label: impl Fn(f64) -> String + 'static,
    value: impl Fn(&Line) -> Value,
) -> anyhow::Result<String> {
    let curve = |variant| {
        let values = record.places.iter().map(|place| {
            let is_here = |line: &&Line| {
                (line.variant, line.class, &line.place) == (variant, class, &place.label)
            };
            record.summary.iter().find(is_here).map(&value)
        });
        Curve::over_names(color_of(variant), values)
    };
    let variants = once(record.summary.iter().map(|line| line.variant));
    let curves: Vec<Curve> = variants.into_iter().map(curve).collect();
    let places = record.places.iter().map(|place| place.tick.clone());
    let x = Axis::names(record.axis, places.collect());
    from_zero(size, &x, label, &curves)
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
