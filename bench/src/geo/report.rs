//! The report of a benchmark.

use anyhow::{Result, ensure};
use maud::{Markup, html};
use txn_top::text::thousands;

use super::record::{Line, Record};
use super::table::{beside_the_paper, notes, sheet};
use super::variant::{Variant, color_of};
use crate::plan::Measured;
use crate::report::chart::{Axis, Curve, Value, from_zero, value};
use crate::report::{Report, figure, legend, row};
use crate::table::once;
use tooling::machine::Machine;

const HALF: (u32, u32) = (460, 320);

impl Measured for Record {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn text(&self) -> String {
        let beside = beside_the_paper(self).map(|sheet| sheet.text() + "\n");
        let mut parts = vec![sheet(self).text() + "\n"];
        parts.extend(beside);
        parts.extend(notes(self));
        parts.join("\n")
    }

    fn report(&self) -> Result<Option<String>> {
        render(self).map(Some)
    }

    fn verdict(&self) -> Result<()> {
        let wrong = self.runs.iter().filter(|run| run.wrong.is_some()).count();
        let runs = self.runs.len();
        ensure!(
            wrong == 0,
            "{}: {wrong} of {runs} runs do not count",
            self.benchmark
        );
        Ok(())
    }
}

/// The whole page.
fn render(record: &Record) -> Result<String> {
    let variants: Vec<Variant> = record.variants.iter().map(|one| one.variant).collect();
    let good = record.runs.iter().filter(|run| run.wrong.is_none());
    let transactions: u64 = good.clone().map(|run| run.transactions).sum();
    let examples = record.places.iter().map(|place| place.example.join(";\n"));
    let report = Report {
        title: format!("{}: {}", record.benchmark, record.about),
        heading: html! { "Transactions over distant nodes" },
        about: html! {
            p.soft { (record.about) ". Variants in turn, the data checked after every run." }
        },
        checked: html! {
            "after each of " (record.runs.len()) " runs, right after " (good.count())
            ": every node holds exactly what the acknowledged transactions have written there, and \
             nothing is left in doubt (" (thousands(transactions as f64)) " transactions)."
        },
        plots: html! {
            (legend_of(&variants))
            (plots(record, &variants)?)
            (paper_beside(record))
        },
        note: format!(
            "Medians of {} rounds. × is against that variant's run in the same round at the same \
             place.",
            record.rounds
        ),
        figures: sheet(record),
        more: html! { ul.soft { @for note in notes(record) { li { (note) } } } },
        machine: &record.machine,
        runs: runs_in_words(record),
        servers: record.servers.iter().collect(),
        scripts: once(examples).join("\n\n"),
    };
    Ok(report.render())
}

/// The colours of the variants, and what each does.
pub fn legend_of(variants: &[Variant]) -> Markup {
    html! {
        (legend(variants.iter().map(|variant| (variant.name(), color_of(*variant)))))
        p.soft { @for variant in variants { (variant.name()) ": " (variant.about()) ". " } }
    }
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

fn plots(record: &Record, variants: &[Variant]) -> Result<Markup> {
    let nearest = nearest(record);
    let hold = move |line: &Line| {
        let p50 = line.hold_p50_ms.get(nearest).copied().flatten()?;
        Some((p50, None))
    };
    let over = |value: &dyn Fn(&Line) -> Option<Value>| over_places(record, variants, value);
    let tps = over(&|line| Some(value(line.tps)))?;
    let p99 = over(&|line| Some((line.p99_ms?, None)))?;
    let refused = over(&|line| Some((100.0 * line.refused.median, None)))?;
    let first = [
        figure("Transactions", "committed per second", &tps),
        figure("Latency", "p99, ms", &p99),
    ];
    let second = [
        figure("Hold at the nearest node", "p50, ms", &over(&hold)?),
        figure("Refused attempts", "percent of the transactions", &refused),
    ];
    Ok(html! { (row(&first)) (row(&second)) })
}

/// The node with the shortest round trip from the first coordinator.
fn nearest(record: &Record) -> usize {
    let rtt = record.rtt_ms.first().into_iter().flatten().enumerate();
    let nearest = rtt.min_by(|one, other| one.1.total_cmp(other.1));
    nearest.map_or(0, |(node, _)| node)
}

/// A figure over the places, a curve for each variant.
fn over_places(
    record: &Record,
    variants: &[Variant],
    value: impl Fn(&Line) -> Option<Value>,
) -> Result<String> {
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
    from_zero(HALF, &x, thousands, &curves)
}

fn paper_beside(record: &Record) -> Markup {
    html! {
        @if let Some(sheet) = beside_the_paper(record) {
            h2 { "Beside the paper" }
            p.soft {
                "GeoTP's figures are multiples of ShardingSphere's, on other machines; ours are of \
                 our best variant. xa is ShardingSphere on this machine."
            }
            div.card.scroll { (sheet.html()) }
        }
    }
}
