//! What the benchmarks were to reach on two processors, beside what the newest records say.

use super::records::{File, Plain, Record, of_benchmark};
use super::table;
use crate::catalog::lane::{ALL_KEYS, FOR_UPDATE, LANE, OCC, ROLLBACKS};
use crate::catalog::{DIFFERENT, GROUP, STOCK};
use crate::stats::Spread;

const HEAD: &str = "
## Aims

What was to be reached on two processors, and what the newest records say; in bold what is short of
it. Of the shapes of transactions it is H/U, with 64 clients where nothing else is said. pgbench
runs them in two threads, which take one client's answer after the other; applications are mostly
like a thread for each. With 256 clients the aim is 0.8 of what stands here; with a standby, or with
more threads, there was none.

";

/// With how many clients the shapes of transactions run, and more of them.
const CLIENTS: usize = 64;
const MANY: usize = 256;
/// Which part of the aim holds for many clients.
const OF_MANY: f64 = 0.8;

/// The shapes of transactions (`shape-*`), and which part of the rate on different rows each is to
/// have.
const SHAPES: [(&str, f64); 18] = [
    ("insert-first", 0.75),
    ("any-order", 0.4),
    ("repeatable-read", 0.6),
    ("savepoint", 0.75),
    ("one-order", 0.7),
    ("read-after", 0.7),
    ("procedure", 0.8),
    ("for-update", 0.75),
    ("number", 0.85),
    ("exception-block", 0.85),
    ("update-first", 0.9),
    ("returning", 1.0),
    ("now", 1.0),
    ("jsonb", 1.0),
    ("trigger", 1.0),
    ("guarded", 1.0),
    ("unnamed", 1.0),
    ("literals", 1.0),
];

/// A variant of a benchmark with so many clients.
#[derive(Clone, Copy)]
struct Rate(&'static str, usize);

/// Which multiple of the second rate the first one is to be.
struct Aim {
    benchmark: &'static str,
    of: Rate,
    against: Rate,
    wanted: f64,
}

/// Two variants with the same number of clients.
const fn aim(
    benchmark: &'static str,
    clients: usize,
    of: &'static str,
    against: &'static str,
    wanted: f64,
) -> Aim {
    Aim {
        benchmark,
        of: Rate(of, clients),
        against: Rate(against, clients),
        wanted,
    }
}

const OTHERS: [Aim; 17] = [
    aim("uniform", 64, GROUP, STOCK, 0.98),
    aim("rows-64", 16, GROUP, STOCK, 1.0),
    aim("zipf", 16, GROUP, STOCK, 1.0),
    aim("tpcb-1", 64, "group lock wait", STOCK, 3.0),
    aim("foreign-key", 256, GROUP, STOCK, 12.0),
    aim("hot-ledger", 64, GROUP, DIFFERENT, 0.95),
    aim("hot-ledger", 256, GROUP, DIFFERENT, 0.95),
    Aim {
        benchmark: "hot-row",
        of: Rate(GROUP, 1024),
        against: Rate(GROUP, 64),
        wanted: 0.8,
    },
    aim("lane-zipf-0.5", 64, ALL_KEYS, OCC, 0.95),
    aim("lane-zipf-1.2", 64, ALL_KEYS, OCC, 3.0),
    aim("lane-zipf-1.2", 64, ALL_KEYS, FOR_UPDATE, 2.0),
    aim("lane-statements", 64, LANE, FOR_UPDATE, 1.2),
    aim("lane-tpcc-1", 64, LANE, FOR_UPDATE, 1.5),
    aim("lane-tpcc-1", 64, LANE, "SSI", 2.0),
    aim("lane-standby", 64, LANE, FOR_UPDATE, 5.0),
    aim("lane-undeclared", 64, "10 of 100 by txn.run", ALL_KEYS, 0.7),
    aim("lane-rollbacks", 64, ROLLBACKS, LANE, 0.8),
];

/// What HammerDB is to have of the orders that its users place with a warehouse each.
const HAMMER: (&str, f64) = ("group lock wait", 0.95);

pub fn section(files: &[File]) -> String {
    let shapes = shapes(files);
    let others: Vec<Vec<String>> = others(files).chain(hammer(files)).collect();
    if shapes.is_empty() && others.is_empty() {
        return String::new();
    }
    let of_shapes = [
        "transactions",
        "aim",
        "64 clients",
        "a thread for each",
        "a commit takes 2 ms",
        "standby",
        "256 clients",
    ];
    let of_others = ["benchmark", "clients", "ratio", "aim", "reached"];
    format!(
        "{HEAD}{}\n{}",
        table(&of_shapes, shapes),
        table(&of_others, others)
    )
}

fn shapes(files: &[File]) -> Vec<Vec<String>> {
    let rows = SHAPES.iter().filter_map(|&(shape, wanted)| {
        let plain = format!("shape-{shape}");
        let ratio = |benchmark: &str, clients| {
            newest(
                files,
                benchmark,
                Rate(GROUP, clients),
                Rate(DIFFERENT, clients),
            )
        };
        let about = &newest_record(files, &plain)?.about;
        Some(vec![
            about.clone(),
            format!("{wanted:.2}"),
            judged(ratio(&plain, CLIENTS), Some(wanted)),
            judged(ratio(&format!("{plain}-threads"), CLIENTS), None),
            judged(ratio(&format!("{plain}-2ms"), CLIENTS), Some(wanted)),
            judged(ratio(&format!("{plain}-standby"), CLIENTS), None),
            judged(ratio(&plain, MANY), Some(OF_MANY * wanted)),
        ])
    });
    rows.collect()
}

fn others(files: &[File]) -> impl Iterator<Item = Vec<String>> {
    OTHERS.iter().filter_map(|aim| {
        let Aim { of, against, .. } = aim;
        let ratio = newest(files, aim.benchmark, *of, *against)?;
        let to = match of.1 == against.1 {
            true => against.0.to_owned(),
            false => format!("{} with {} clients", against.0, against.1),
        };
        Some(vec![
            aim.benchmark.to_owned(),
            of.1.to_string(),
            format!("{} to {to}", of.0),
            format!("{:.2}", aim.wanted),
            judged(Some(ratio), Some(aim.wanted)),
        ])
    })
}

fn hammer(files: &[File]) -> impl Iterator<Item = Vec<String>> {
    let (variant, wanted) = HAMMER;
    files.iter().filter_map(move |file| {
        let Record::Hammer(record) = &file.record else {
            return None;
        };
        let mut lines = record.summary.iter();
        let line = lines.find(|line| line.variant == variant)?;
        Some(vec![
            record.benchmark.clone(),
            line.clients.to_string(),
            format!("{variant} to stock with a warehouse each"),
            format!("{wanted:.2}"),
            judged(line.to_ceiling.map(|ratio| ratio.median), Some(wanted)),
        ])
    })
}

/// The ratio, in bold if it is short of what is wanted.
fn judged(ratio: Option<f64>, wanted: Option<f64>) -> String {
    let Some(ratio) = ratio else {
        return String::new();
    };
    match wanted.filter(|wanted| ratio < *wanted) {
        // Two digits would hide it.
        Some(wanted) if wanted - ratio < 0.005 => format!("**{ratio:.3}**"),
        Some(_) => format!("**{ratio:.2}**"),
        None => format!("{ratio:.2}"),
    }
}

/// The median ratio of these rates in the newest record that has both.
fn newest(files: &[File], benchmark: &str, of: Rate, against: Rate) -> Option<f64> {
    let rates = |record: &Plain, rate: Rate| record.rates(rate.0, rate.1);
    let all = of_benchmark(files, benchmark).filter_map(|record| {
        let ratio = Spread::of_ratios(&rates(record, of), &rates(record, against))?;
        Some((&record.machine.time, ratio.median))
    });
    let newest = all.max_by(|one, other| one.0.cmp(other.0));
    newest.map(|(_, ratio)| ratio)
}

fn newest_record<'a>(files: &'a [File], benchmark: &str) -> Option<&'a Plain> {
    of_benchmark(files, benchmark).max_by(|one, other| one.machine.time.cmp(&other.machine.time))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::archive::Content;

    fn record(benchmark: &str, time: &str, tps: &[(&str, usize, f64)]) -> File {
        let runs = tps.iter().map(|(variant, clients, tps)| {
            json!({"round": 1, "variant": variant, "clients": clients, "tps": tps})
        });
        let record = json!({
            "benchmark": benchmark, "about": format!("about {benchmark}"),
            "machine": {"processor": "P", "cores": 2, "system": "S", "checkout": "abc",
                        "time": time},
            "systems": [], "protocol": "prepared", "seconds": 2, "rounds": 1, "baseline": STOCK,
            "ceiling": DIFFERENT, "summary": [], "runs": runs.collect::<Vec<_>>(),
        });
        let content = Content::parse(record.to_string().as_bytes()).unwrap();
        File {
            name: benchmark.to_owned(),
            record: Record::of(content).unwrap(),
        }
    }

    #[test]
    fn the_newest_record_counts_that_has_both_rates() {
        let files = [
            record(
                "shape-procedure",
                "2026-11-28T10:00:00Z",
                &[(GROUP, 64, 70.0), (DIFFERENT, 64, 100.0)],
            ),
            record(
                "shape-procedure",
                "2026-11-28T09:00:00Z",
                &[(GROUP, 64, 90.0), (DIFFERENT, 64, 100.0)],
            ),
            record(
                "shape-procedure",
                "2026-11-28T11:00:00Z",
                &[(GROUP, 256, 65.0), (DIFFERENT, 256, 100.0)],
            ),
            record(
                "shape-procedure-2ms",
                "2026-11-28T11:00:00Z",
                &[(GROUP, 64, 80.0), (DIFFERENT, 64, 100.0)],
            ),
        ];
        let section = section(&files);
        let line = "| about shape-procedure | 0.80 | **0.70** |  | 0.80 |  | 0.65 |";
        assert!(section.contains(line), "{section}");
    }

    #[test]
    fn what_is_short_of_an_aim_is_in_bold() {
        let rates = [(GROUP, 64, 1000.0), (GROUP, 1024, 700.0)];
        let section = section(&[
            record("hot-row", "2026-11-28T10:00:00Z", &rates),
            record(
                "tpcb-1",
                "2026-11-28T10:00:00Z",
                &[("group lock wait", 64, 310.0), (STOCK, 64, 100.0)],
            ),
        ]);
        for line in [
            "| tpcb-1 | 64 | group lock wait to stock | 3.00 | 3.10 |",
            "| hot-row | 1024 | group lock to group lock with 64 clients | 0.80 | **0.70** |",
        ] {
            assert!(section.contains(line), "{section}");
        }
        assert_eq!(super::section(&[]), "");
    }

    #[test]
    fn two_digits_do_not_hide_what_is_short_of_an_aim() {
        assert_eq!(judged(Some(0.75), Some(0.75)), "0.75");
        assert_eq!(judged(Some(0.7491), Some(0.75)), "**0.749**");
        assert_eq!(judged(Some(0.74), Some(0.75)), "**0.74**");
        assert_eq!(judged(Some(0.1), None), "0.10");
        assert_eq!(judged(None, Some(0.75)), "");
    }
}
