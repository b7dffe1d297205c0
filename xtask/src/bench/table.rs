//! The summary as a table in the terminal.

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use txn_top::text::thousands;

use super::record::Line;
use super::stats::Spread;

pub const COLUMNS: [&str; 9] = [
    "clients",
    "variant",
    "tps",
    "min … max",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "× base",
    "H/U",
];

/// The cells of a line, in the order of `COLUMNS`.
pub fn cells(line: &Line) -> [String; COLUMNS.len()] {
    [
        line.clients.to_string(),
        line.variant.to_owned(),
        thousands(line.tps.median),
        format!("{} … {}", thousands(line.tps.min), thousands(line.tps.max)),
        milliseconds(line.p50_ms),
        milliseconds(line.p95_ms),
        milliseconds(line.p99_ms),
        ratio(line.to_baseline),
        ratio(line.to_ceiling),
    ]
}

/// All lines, with a rule between the numbers of clients.
pub fn render(lines: &[Line], baseline: &str) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    let columns = COLUMNS.map(|column| match column {
        "× base" => format!("× {baseline}"),
        other => other.to_owned(),
    });
    let mixed = lines.iter().any(|line| line.all_tps.is_some());
    let more = mixed.then(|| "all tps".to_owned());
    table.set_header(columns.into_iter().chain(more));
    let mut rows = lines
        .chunk_by(|one, next| one.clients == next.clients)
        .peekable();
    while let Some(group) = rows.next() {
        for line in group {
            let all = line.all_tps.map(|tps| thousands(tps.median));
            table.add_row(cells(line).into_iter().chain(all));
        }
        if rows.peek().is_some() {
            table.add_row([""]);
        }
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

pub fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |spread| format!("{:.2}", spread.median))
}

/// With as many digits as mean something.
pub fn milliseconds(value: f64) -> String {
    let digits = match value {
        value if value < 1.0 => 3,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_for_people() {
        assert_eq!(milliseconds(0.1234), "0.123");
        assert_eq!(milliseconds(12.34), "12.3");
        assert_eq!(milliseconds(1234.5), "1234");
    }
}
