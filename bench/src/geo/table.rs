//! The summary as a table in the terminal, and a run as a line.

use txn_top::text::{rate, thousands};

use super::paper;
use super::record::{Line, Record, Run};
use super::variant::color_of;
use crate::rounds::Ran;
use crate::table::{Row, Sheet, latency, milliseconds, percent, ratio};

/// All lines, grouped by places; ratios, and the hold at each node, at the end.
pub fn sheet(record: &Record) -> Sheet {
    let fixed = [
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
    let ratios = record.baselines.iter().map(|name| format!("× {name}"));
    let nodes = record.rtt_ms.first().map_or(0, Vec::len);
    let holds = (0..nodes).map(|node| format!("hold {node}"));
    let columns = fixed
        .map(str::to_owned)
        .into_iter()
        .chain(ratios)
        .chain(holds);
    let alike = |one: &Line, next: &Line| one.place == next.place;
    let row = |line: &Line| row(record, line);
    Sheet::grouped(columns.collect(), 0..2, &record.summary, alike, row)
}

fn row(record: &Record, line: &Line) -> Row {
    let (min, max) = (rate(Some(line.tps.min)), rate(Some(line.tps.max)));
    let mut cells = vec![
        line.place.clone(),
        line.variant.name().to_owned(),
        rate(Some(line.tps.median)),
        format!("{min} … {max}"),
        percent(line.refused.median),
        latency(line.p50_ms),
        latency(line.p95_ms),
        latency(line.p99_ms),
        format!("{:.1}", line.trips.median),
    ];
    let ratios = record.baselines.iter();
    cells.extend(ratios.map(|base| ratio(line.ratios.get(base).copied())));
    let holds = line.hold_p50_ms.iter().zip(&line.hold_p99_ms);
    cells.extend(holds.map(|(p50, p99)| match (p50, p99) {
        (Some(p50), Some(p99)) => format!("{} / {}", milliseconds(*p50), milliseconds(*p99)),
        _ => String::new(),
    }));
    Row {
        cells,
        color: Some(color_of(line.variant)),
        is_best: false,
    }
}

/// The paper's figures beside ours, if it has any.
pub fn beside_the_paper(record: &Record) -> Option<Sheet> {
    let lines: Vec<_> = record.summary.iter().map(Line::measured).collect();
    let rows = paper::rows(record.benchmark, &lines);
    let rows: Vec<Row> = rows
        .into_iter()
        .map(|row| Row::from(row.to_vec()))
        .collect();
    let words = 0..paper::HEADER.len();
    (!rows.is_empty()).then(|| Sheet::new(paper::HEADER, words, vec![rows]))
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
            let (name, round) = (run.variant.name(), run.turn.round);
            notes.push(format!(
                "Not counted: {}, {name}, round {round}: {wrong}",
                run.place
            ));
        }
    }
    notes
}

impl Ran for Run {
    fn line(&self) -> String {
        let latency = self.latency_ms.map_or_else(String::new, |ms| {
            format!(
                "p50 {:>6} p99 {:>6} ms",
                milliseconds(ms.p50),
                milliseconds(ms.p99)
            )
        });
        let holds = self.holds.iter().map(|hold| match hold {
            Some(hold) => milliseconds(hold.ms.p50),
            None => "–".to_owned(),
        });
        let verdict = match &self.wrong {
            None => "data right".to_owned(),
            Some(wrong) => format!("DOES NOT COUNT: {wrong}"),
        };
        format!(
            "{:<26} {:<12} {:>6} tps  {latency}  {} refused  {:.1} trips  hold {}  \
         {verdict}",
            self.place,
            self.variant.name(),
            rate(Some(self.tps)),
            thousands(self.refused() as f64),
            self.all_trips(),
            holds.collect::<Vec<_>>().join(", "),
        )
    }
}
