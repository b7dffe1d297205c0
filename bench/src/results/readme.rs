//! What README.md shows of the records: a table, and the plot `docs/hot-row.svg`.

use anyhow::Context;
use plotters::style::RGBColor;

use super::records::{File, Hammer, Plain, Record};
use super::table;
use crate::catalog::{DIFFERENT, GROUP, STOCK};
use crate::report::chart::{Axis, Curve, draw};
use crate::stats::Spread;
use crate::table::milliseconds;
use txn_top::text::thousands;

const BEGIN: &str = "<!-- Made by `cargo xtask bench results`. -->\n";
const END: &str = "<!-- End. -->\n";

const SHOWN: [usize; 3] = [1, 64, 256];
const SHAPES_CLIENTS: usize = 64;
/// HammerDB's variant that is shown.
const HAMMER_GROUP: &str = "group lock wait";
const SIZE: (u32, u32) = (720, 320);
/// What is drawn in which colour, and what that is called.
const COLORS: [(&str, RGBColor, &str); 3] = [
    (STOCK, RGBColor(0xD5, 0x5E, 0x00), "orange"),
    (GROUP, RGBColor(0x00, 0x72, 0xB2), "blue"),
    (DIFFERENT, RGBColor(0x80, 0x80, 0x80), "grey"),
];
/// Text and grid: readable on a light and on a dark page.
const INK: &str = "#808080";

/// README.md with its part about results made anew.
pub fn page(old: &str, files: &[File]) -> anyhow::Result<String> {
    let (head, rest) = old.split_once(BEGIN).context("README.md has no results")?;
    let (_, tail) = rest
        .split_once(END)
        .context("the results in README.md have no end")?;
    Ok(format!("{head}{BEGIN}{}{END}{tail}", part(files)?))
}

/// The newest record of one run of the benchmark `hot-row`.
fn hot_row(files: &[File]) -> anyhow::Result<(&str, &Plain)> {
    let mut files = files.iter().rev();
    let found = files.find_map(|file| match &file.record {
        Record::Plain(record) if record.benchmark == "hot-row" => Some((&*file.name, record)),
        _ => None,
    });
    found.context("bench/results has no record of hot-row")
}

fn part(files: &[File]) -> anyhow::Result<String> {
    let (name, record) = hot_row(files)?;
    let mut rows = Vec::new();
    for clients in SHOWN {
        let of = |variant| record.line(variant, clients);
        let (Some(stock), Some(group)) = (of(STOCK), of(GROUP)) else {
            continue;
        };
        rows.push(vec![
            format!("one row, {}, updates/s", count_of(clients)),
            thousands(stock.tps.median),
            thousands(group.tps.median),
            times(group.to_baseline.map(|ratio| ratio.median)),
            share(group.to_ceiling.map(|ratio| ratio.median)),
            milliseconds(stock.p99_ms),
            milliseconds(group.p99_ms),
        ]);
    }
    for file in files {
        if let Record::Hammer(record) = &file.record {
            rows.extend(record.line());
        }
    }
    let header = [
        "",
        "stock",
        "txn",
        "× stock",
        "H/U",
        "p99 ms stock",
        "p99 ms txn",
    ];
    let colors = COLORS.map(|(variant, _, color)| format!("{variant} {color}"));
    Ok(format!(
        "\n{}\n![Updates of one row per second over the number of clients](docs/hot-row.svg)\n\n\
         The plot: {}. {}, {} cores, PostgreSQL {}, `fsync` and `synchronous_commit` on, data checked \
         after every run, medians of {} rounds: [{name}](bench/results/{name}.json).\n{}\n",
        table(&header, rows),
        colors.join(", "),
        record.machine.processor,
        record.machine.cores,
        record.systems.first().map_or("", |system| &system.version),
        record.rounds,
        shapes(files).unwrap_or_default(),
    ))
}

/// From where to where H/U goes over the shapes of the newest record of `shapes` that has so many
/// clients.
fn shapes(files: &[File]) -> Option<String> {
    let of_shapes = files
        .iter()
        .filter(|file| file.name.starts_with("shapes-20"));
    let ratios = of_shapes.rev().find_map(|file| match &file.record {
        Record::Family(records) => {
            let groups = records.iter();
            let groups = groups.filter_map(|record| record.line(GROUP, SHAPES_CLIENTS));
            let ratios = groups.filter_map(|group| Some(group.to_ceiling?.median));
            Some(ratios.collect::<Vec<f64>>()).filter(|ratios| !ratios.is_empty())
        }
        _ => None,
    })?;
    let shapes = ratios.len();
    let spread = Spread::of(ratios)?;
    Some(format!(
        "\nWhat applications write besides single updates ({shapes} shapes of transactions on one \
         hot row, {SHAPES_CLIENTS} clients) has an H/U of {:.2} to {:.2}.\n",
        spread.min, spread.max
    ))
}

/// Rates over the number of clients.
pub fn plot(files: &[File]) -> anyhow::Result<String> {
    let (_, record) = hot_row(files)?;
    let mut clients: Vec<usize> = record.summary.iter().map(|line| line.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    let highest = record.summary.iter().map(|line| line.tps.max);
    let y = Axis::linear("updates per second", highest.fold(0.0, f64::max), |rate| {
        thousands(rate)
    });
    let names = clients.iter().map(usize::to_string).collect();
    let curves = COLORS.map(|(variant, color, _)| {
        let values = clients.iter().map(|&clients| {
            let line = record.line(variant, clients)?;
            Some((line.tps.median, Some((line.tps.min, line.tps.max))))
        });
        Curve::over_names(color, values)
    });
    let svg = draw(SIZE, &Axis::names("clients", names), &y, &curves)?;
    Ok(svg.replace("currentColor", INK))
}

fn count_of(clients: usize) -> String {
    match clients {
        1 => "1 client".to_owned(),
        _ => format!("{clients} clients"),
    }
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}"))
}

fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

impl Hammer {
    /// Group lock against stock.
    fn line(&self) -> Option<Vec<String>> {
        let of = |variant: &str| self.summary.iter().find(|line| line.variant == variant);
        let (stock, group) = (of(STOCK)?, of(HAMMER_GROUP)?);
        let delay = match self.benchmark.as_str() {
            "hammerdb-2ms" => ", a commit takes 2 ms",
            _ => "",
        };
        Some(vec![
            format!(
                "HammerDB TPROC-C, {} warehouse, {} users{delay}, NOPM",
                group.warehouses, group.clients
            ),
            thousands(stock.nopm.median),
            thousands(group.nopm.median),
            times(group.to_baseline.map(|ratio| ratio.median)),
            share(group.to_ceiling.map(|ratio| ratio.median)),
            String::new(),
            String::new(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_what_stands_around_its_results() {
        let files = super::super::records::read().unwrap();
        let page = page(&format!("before\n{BEGIN}old\n{END}after\n"), &files).unwrap();
        assert!(page.starts_with(&format!("before\n{BEGIN}\n| ")));
        assert!(page.ends_with(&format!("{END}after\n")) && !page.contains("old\n"));
        assert!(super::page("nothing", &files).is_err());
    }

    #[test]
    fn the_plot_has_its_colours_and_no_record_is_an_error() {
        let plot = plot(&super::super::records::read().unwrap()).unwrap();
        assert!(plot.contains("#D55E00") && plot.contains("#0072B2") && plot.contains(INK));
        assert!(!plot.contains("currentColor"));
        assert!(super::plot(&[]).is_err());
    }
}
