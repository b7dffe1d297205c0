//! The summary as a table in the terminal, and a run as a line.

use super::record::{ClassRun, Line, Record, Run, ServerRecord};
use super::script::Class;
use super::variant::{RANGE_OCC, color_of};
use crate::rounds::Ran;
use crate::table::{Row, Sheet, latency, range, ratio};
use txn_top::text::thousands;

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Point => "point",
            Class::Bulk => "bulk",
        }
    }
}

/// All lines, grouped by places and classes, with a column for each baseline.
pub fn sheet(record: &Record) -> Sheet {
    let fixed = [
        "place",
        "class",
        "variant",
        "tps",
        "min … max",
        "refused",
        "p50 ms",
        "p99 ms",
    ];
    let ratios = record.baselines.iter().map(|name| format!("× {name}"));
    let columns = fixed.map(str::to_owned).into_iter().chain(ratios).collect();
    let alike = |one: &Line, next: &Line| (&one.place, one.class) == (&next.place, next.class);
    let row = |line: &Line| {
        let ratios = record.baselines.iter();
        let ratios = ratios.map(|base| ratio(line.ratios.get(base).copied()));
        let mut cells = vec![
            line.place.clone(),
            line.class.name().to_owned(),
            line.variant.to_owned(),
            thousands(line.tps.median),
            range(line.tps),
            share(line.refusals, line.begun),
            latency(line.p50_ms),
            latency(line.p99_ms),
        ];
        cells.extend(ratios);
        Row {
            cells,
            color: Some(color_of(line.variant)),
            is_best: line.variant == RANGE_OCC,
        }
    };
    Sheet::grouped(columns, 0..3, &record.summary, alike, row)
}

/// What the extension's shared memory takes in the servers that have the default settings. None
/// without such a server.
pub fn shared_memory(record: &Record) -> Option<String> {
    let default = |server: &&ServerRecord| server.kind.library && server.kind.settings.is_empty();
    let server = record.servers.iter().find(default)?;
    let memory = server.shared_memory?;
    let mebibytes = |bytes: i64| bytes as f64 / f64::from(1 << 20);
    Some(format!(
        "shared memory of the extension with default settings: {:.1} MiB, of which for range OCC {:.1} MiB",
        mebibytes(memory.bytes),
        mebibytes(memory.range_occ)
    ))
}

/// Why validated transactions of a variant were refused at a place: the counters of `txn.stats`
/// that are not zero, summed up over the runs.
pub struct Reasons<'a> {
    pub place: &'a str,
    pub variant: &'static str,
    counts: Vec<(&'static str, i64)>,
}

/// Of all places and variants that have any.
pub fn reasons(record: &Record) -> Vec<Reasons<'_>> {
    let mut all = Vec::new();
    for place in &record.places {
        for variant in place.variants.iter().filter(|variant| variant.validated) {
            let runs = record
                .runs
                .iter()
                .filter(|run| run.place == place.label && run.variant == variant.label);
            let sum = |name: &&'static str| -> (&'static str, i64) {
                let counts = runs.clone().filter_map(|run| run.counters.get(*name));
                (*name, counts.sum())
            };
            let mut counts: Vec<_> = REASONS.iter().map(sum).collect();
            counts.retain(|(_, count)| *count > 0);
            if !counts.is_empty() {
                all.push(Reasons {
                    place: &place.label,
                    variant: variant.label,
                    counts,
                });
            }
        }
    }
    all
}

const REASONS: &[&str] = &[
    "range_overlap",
    "range_cover",
    "range_relation",
    "range_history_lost",
    "range_restarted",
    "range_first_touch",
];

impl std::fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told = |(name, count): &(&'static str, i64)| {
            let name = name.trim_start_matches("range_").replace('_', " ");
            format!("{name} {}", thousands(*count as f64))
        };
        let counts: Vec<String> = self.counts.iter().map(told).collect();
        f.write_str(&counts.join(", "))
    }
}

/// A part of all in percent; it is zero only when there was nothing.
fn share(part: u64, all: u64) -> String {
    match (part, part as f64 * 100.0 / all.max(1) as f64) {
        (0, _) => "0".to_owned(),
        (_, percent) if percent < 0.01 => "< 0.01 %".to_owned(),
        (_, percent) if percent < 1.0 => format!("{percent:.2} %"),
        (_, percent) => format!("{percent:.1} %"),
    }
}

impl Ran for Run {
    fn line(&self) -> String {
        let class = |class: &ClassRun| {
            let deadlocks = match class.deadlocks {
                0 => String::new(),
                deadlocks => format!(", {deadlocks} deadlocks"),
            };
            format!(
                "  {} {:>7} tps, {:>6} refused{deadlocks}",
                class.class.name(),
                thousands(class.tps),
                thousands(class.refused as f64),
            )
        };
        let classes: String = self.classes.iter().map(class).collect();
        format!("{:<16} {:<28}{classes}  checked", self.place, self.variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_zero_only_when_there_was_none() {
        assert_eq!(share(0, 0), "0");
        assert_eq!(share(1, 20_000), "< 0.01 %");
        assert_eq!(share(1, 2_000), "0.05 %");
        assert_eq!(share(94, 100), "94.0 %");
    }

    #[test]
    fn a_run_tells_its_classes_apart() {
        let run = crate::range::record::tests::run(2, "10 keys", "SSI", 14, 900);
        let line = run.line();
        assert!(
            line.contains("point   1,000 tps,      0 refused")
                && line.contains("bulk      14 tps,    900 refused"),
            "{line}"
        );
    }
}
