//! The summary as a table in the terminal, and a run as a line.

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use txn_top::text::{rate, thousands};

use super::paper;
use super::record::{Line, Record, Run};
use crate::bench::table::milliseconds;

const BEFORE_RATIOS: [&str; 9] = [
    "place",
    "variant",
    "tps",
    "min … max",
    "refused",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "trips",
];

/// The names of the columns: ratios, and the hold at each node, at the end.
pub fn columns(record: &Record) -> Vec<String> {
    let ratios = record.baselines.iter().map(|name| format!("× {name}"));
    let nodes = record.rtt_ms.first().map_or(0, Vec::len);
    let holds = (0..nodes).map(|node| format!("hold {node}"));
    let fixed = BEFORE_RATIOS.map(str::to_owned);
    fixed.into_iter().chain(ratios).chain(holds).collect()
}

/// The cells of a line, in the order of `columns`.
pub fn cells(record: &Record, line: &Line) -> Vec<String> {
    let latency = |value: Option<f64>| value.map(milliseconds).unwrap_or_default();
    let mut cells = vec![
        line.place.clone(),
        line.variant.name().to_owned(),
        rate(Some(line.tps.median)),
        format!(
            "{} … {}",
            rate(Some(line.tps.min)),
            rate(Some(line.tps.max))
        ),
        format!("{:.1} %", 100.0 * line.refused.median),
        latency(line.p50_ms),
        latency(line.p95_ms),
        latency(line.p99_ms),
        format!("{:.1}", line.trips.median),
    ];
    cells.extend(record.baselines.iter().map(|baseline| {
        let ratio = line.ratios.get(baseline);
        ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median))
    }));
    let holds = line.hold_p50_ms.iter().zip(&line.hold_p99_ms);
    cells.extend(holds.map(|(p50, p99)| match (p50, p99) {
        (Some(p50), Some(p99)) => format!("{} / {}", milliseconds(*p50), milliseconds(*p99)),
        _ => String::new(),
    }));
    cells
}

/// All lines, with a space between places; then what the paper has.
pub fn render(record: &Record) -> String {
    let mut table = plain(&columns(record));
    let groups = record.summary.chunk_by(|one, next| one.place == next.place);
    for (index, group) in groups.enumerate() {
        if index > 0 {
            table.add_row([""]);
        }
        for line in group {
            table.add_row(cells(record, line));
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = table.to_string();
    let beside = beside_the_paper(record);
    if !beside.is_empty() {
        let mut table = plain(&paper::HEADER);
        table.add_rows(beside);
        text += &format!("\n\n{table}");
    }
    text
}

fn plain<T: ToString>(header: &[T]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    table.set_header(header.iter().map(T::to_string));
    table
}

/// The paper's figures beside ours.
pub fn beside_the_paper(record: &Record) -> Vec<[String; 6]> {
    let lines: Vec<_> = record.summary.iter().map(Line::measured).collect();
    paper::rows(record.benchmark, &lines)
}

/// What the figures do not say by themselves.
pub fn notes(record: &Record) -> Vec<String> {
    let mut notes = vec![
        "postgres_fdw is not atomic: a failure between its commits leaves half a transaction. It \
         shows what two-phase commit costs."
            .to_owned(),
        "Refused: failed attempts (40xxx, 55P03) in percent of the transactions; latencies include \
         all attempts. Trips: bursts to the nodes for each transaction."
            .to_owned(),
        "Hold: from the lock of a row to its commit at the node of that number, p50 / p99 in ms. \
         Of rows that change often it samples some versions."
            .to_owned(),
    ];
    for (variant, why) in &record.left_out {
        notes.push(format!("The variant {variant} is left out: {why}."));
    }
    for line in &record.summary {
        let codes = line.refusals.iter();
        let codes: Vec<String> = codes
            .map(|(code, count)| format!("{code} {}", thousands(*count as f64)))
            .collect();
        if !codes.is_empty() {
            let name = line.variant.name();
            notes.push(format!("{}, {name}: {}", line.place, codes.join(", ")));
        }
    }
    for run in &record.runs {
        if let Some(wrong) = &run.wrong {
            let (name, round) = (run.variant.name(), run.round);
            notes.push(format!(
                "Not counted: {}, {name}, round {round}: {wrong}",
                run.place
            ));
        }
    }
    notes
}

/// A finished run in one line.
pub fn run_line(run: &Run, rounds: usize) -> String {
    let refused: u64 = run.refusals.values().sum();
    let latency = run.latency_ms.map_or_else(String::new, |ms| {
        format!(
            "p50 {:>6} p99 {:>6} ms",
            milliseconds(ms.p50),
            milliseconds(ms.p99)
        )
    });
    let holds = run.holds.iter().map(|hold| match hold {
        Some(hold) => milliseconds(hold.ms.p50),
        None => "–".to_owned(),
    });
    let verdict = match &run.wrong {
        None => "data right".to_owned(),
        Some(wrong) => format!("DOES NOT COUNT: {wrong}"),
    };
    format!(
        "{:>2}/{rounds} {:<26} {:<12} {:>6} tps  {latency}  {} refused  {:.1} trips  hold {}  \
         {verdict}",
        run.round,
        run.place,
        run.variant.name(),
        rate(Some(run.tps)),
        thousands(refused as f64),
        run.trips.iter().fold(0.0, |sum, trips| sum + trips),
        holds.collect::<Vec<_>>().join(", "),
    )
}
