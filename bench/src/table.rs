//! Figures in a table, for the terminal and for reports.

use std::ops::Range;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use maud::{Markup, html};
use plotters::style::RGBColor;
use txn_top::text::thousands;

use super::stats::Spread;

/// A table.
pub struct Sheet {
    pub columns: Vec<String>,
    /// Columns of words, aligned left. The last of them has the row's colour.
    pub words: Range<usize>,
    /// With a space between groups.
    pub groups: Vec<Vec<Row>>,
}

pub struct Row {
    pub cells: Vec<String>,
    pub color: Option<RGBColor>,
    pub is_best: bool,
}

impl From<Vec<String>> for Row {
    fn from(cells: Vec<String>) -> Self {
        Self {
            cells,
            color: None,
            is_best: false,
        }
    }
}

impl Sheet {
    pub fn new<C: ToString>(
        columns: impl IntoIterator<Item = C>,
        words: Range<usize>,
        groups: Vec<Vec<Row>>,
    ) -> Self {
        Self {
            columns: columns.into_iter().map(|name| name.to_string()).collect(),
            words,
            groups,
        }
    }

    /// Lines in groups of those that are `alike`.
    pub fn grouped<L>(
        columns: Vec<String>,
        words: Range<usize>,
        lines: &[L],
        alike: impl Fn(&L, &L) -> bool,
        row: impl Fn(&L) -> Row,
    ) -> Self {
        let groups = lines.chunk_by(alike);
        let groups = groups.map(|lines| lines.iter().map(&row).collect());
        Self::new(columns, words, groups.collect())
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_style(TableComponent::HeaderLines, '─');
        table.set_style(TableComponent::MiddleHeaderIntersections, '─');
        table.set_header(&self.columns);
        for (index, rows) in self.groups.iter().enumerate() {
            if index > 0 {
                table.add_row([""]);
            }
            for row in rows {
                table.add_row(&row.cells);
            }
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            if !self.words.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }

    /// For a report.
    pub fn html(&self) -> Markup {
        let class = |column: usize| self.words.contains(&column).then_some("name");
        let colored = self.words.end.checked_sub(1);
        html! {
            table {
                thead {
                    tr {
                        @for (column, name) in self.columns.iter().enumerate() {
                            th class=[class(column)] { (name) }
                        }
                    }
                }
                @for rows in &self.groups {
                    tbody {
                        @for row in rows {
                            tr class=[row.is_best.then_some("best")] {
                                @for (column, cell) in row.cells.iter().enumerate() {
                                    td class=[class(column)] {
                                        @if let Some(color) = row.color.filter(|_| colored == Some(column)) {
                                            i style={ "background:" (css(color)) } {}
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
}

pub fn css(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Each value once, in the order in which they come first.
pub fn once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}

/// From the least to the greatest.
pub fn range(spread: Spread) -> String {
    format!("{} … {}", thousands(spread.min), thousands(spread.max))
}

pub fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |spread| format!("{:.2}", spread.median))
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
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

/// Nothing when nothing committed.
pub fn latency(milliseconds_if_any: Option<f64>) -> String {
    milliseconds_if_any.map(milliseconds).unwrap_or_default()
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

    #[test]
    fn a_sheet_has_its_words_left_its_groups_apart_and_a_colour_beside_the_last_word() {
        let row = |cells: [&str; 3], is_best| Row {
            cells: cells.map(str::to_owned).to_vec(),
            color: Some(RGBColor(255, 0, 1)),
            is_best,
        };
        let groups = vec![
            vec![
                row(["4", "stock", "9"], false),
                row(["4", "group lock", "90"], true),
            ],
            vec![row(["64", "stock", "7"], false)],
        ];
        let sheet = Sheet::new(["clients", "variant", "tps"], 1..2, groups);
        let text = sheet.text();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[2], "       4   stock          9");
        assert_eq!((lines[3], lines[4]), ("       4   group lock    90", ""));
        let page = sheet.html().into_string();
        assert_eq!(page.matches("<tbody>").count(), 2);
        assert_eq!(page.matches("class=\"best\"").count(), 1);
        assert!(page.contains("<td class=\"name\"><i style=\"background:#ff0001\"></i>stock</td>"));
    }

    #[test]
    fn once_keeps_the_order() {
        assert_eq!(once(["b", "a", "b"]), ["b", "a"]);
    }
}
