//! One frame as plain text.

use comfy_table::{CellAlignment, Table, presets};

use super::cells::{self, Cells, Kind};
use super::rates::Frame;
use super::sample::TOTALS;
use super::text::{age, rate, thousands};

/// The two lines on top of every frame.
pub fn head(address: &str, frame: &Frame) -> [String; 2] {
    let sample = &frame.sample;
    let per_second = |at: usize| rate(frame.transactions.as_ref().map(|rates| rates[at]));
    [
        format!(
            "{} on {address} · {} commits/s · {} rollbacks/s",
            sample.database,
            per_second(0),
            per_second(1)
        ),
        format!(
            "PostgreSQL {} · up {} · {}",
            sample.version,
            age(sample.now - sample.started),
            sample.clock
        ),
    ]
}

pub fn print(address: &str, frame: &Frame) -> String {
    let mut totals = table(["total", "since reset", "per second"].map(str::to_owned));
    for (at, name) in TOTALS.iter().enumerate() {
        totals.add_row([
            (*name).to_owned(),
            thousands(frame.sample.totals.values[at] as f64),
            rate(frame.totals.as_ref().map(|rates| rates[at])),
        ]);
    }
    align(&mut totals, |at| at > 0);
    format!(
        "{}\n\n{}\n\nhot rows of this database: {}, of the server: {}\n{}\nwaits: {}\n{}",
        head(address, frame).join("\n"),
        totals.trim_fmt(),
        frame.rows.len(),
        frame.sample.hot_rows,
        lines(&cells::rows(frame)),
        frame.sample.waits.len(),
        lines(&cells::waits(frame)),
    )
}

/// A table of its own, or nothing when there is nothing to show.
fn lines(cells: &Cells) -> String {
    if cells.lines.is_empty() {
        return String::new();
    }
    let mut table = table(cells.columns.iter().map(|column| column.title.to_owned()));
    table.add_rows(&cells.lines);
    align(&mut table, |at| cells.columns[at].kind == Kind::Number);
    table.trim_fmt() + "\n"
}

fn table(header: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header.into_iter().collect::<Vec<_>>());
    table
}

fn align(table: &mut Table, is_number: impl Fn(usize) -> bool) {
    for (at, column) in table.column_iter_mut().enumerate() {
        if is_number(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Counters, HotRow, Sample, Wait};

    #[test]
    fn everything_is_told_and_nothing_cut() {
        let key = "k".repeat(64);
        let sample = |second: i64| Sample {
            version: "16.14".into(),
            database: "bank".into(),
            clock: "12:34:56".into(),
            now: second * 1_000_000,
            transactions: Counters {
                life: (second, 0),
                values: vec![second, 0],
            },
            totals: Counters {
                life: (0, 0),
                values: vec![second * 7; TOTALS.len()],
            },
            rows: vec![HotRow {
                relation: "accounts".into(),
                key: Some(key.clone()),
                mode: "group".into(),
                counts: Counters {
                    life: (0, 0),
                    values: vec![second * 2000, 0, 0, 0],
                },
                ..HotRow::default()
            }],
            waits: vec![Wait {
                pid: 4711,
                reason: "ticket".into(),
                ..Wait::default()
            }],
            ..Sample::default()
        };
        let text = print("db:5432", &Frame::new(Some(&sample(1)), sample(2)));
        let line = |start: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(start));
            line.unwrap_or_else(|| panic!("no {start:?} in\n{text}"))
        };
        assert_eq!(
            line("bank on db:5432"),
            "bank on db:5432 · – commits/s · – rollbacks/s"
        );
        let words = |start| line(start).split_whitespace().collect::<Vec<_>>();
        assert_eq!(words("tickets"), ["tickets", "14", "7.0"]);
        assert_eq!(words("accounts")[..3], ["accounts", &key, "group"]);
        assert!(words("accounts").contains(&"2,000"));
        assert_eq!(words("4711")[..2], ["4711", "–"]);
        assert!(text.lines().all(|line| line == line.trim_end()));

        let idle = print(
            "db:5432",
            &Frame::new(
                None,
                Sample {
                    rows: vec![],
                    waits: vec![],
                    ..sample(1)
                },
            ),
        );
        assert!(idle.ends_with("waits: 0\n"), "{idle}");
    }
}
