//! `cargo xtask bench results`: `docs/results.md`, and what README.md shows of it, made from the
//! records in `bench/results`.

mod aims;
mod geo;
mod papers;
mod readme;
mod records;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use self::records::{Counted, File, Hammer, Line, Machine, Plain, Range, Record, System, read};
use super::catalog::{GROUP, OFF, STOCK};
use super::stats::Spread;
use super::table::milliseconds;
use tooling::tools::checkout;
use txn_top::text::thousands;

pub const NAME: &str = "results";
pub const ABOUT: &str = "Writes docs/results.md and README.md's part, made from bench/results";

const HEAD: &str = "# Results

Made from [bench/results](../bench/results) by `cargo xtask bench results`; not to be edited. How it
is measured: [bench/README.md](../bench/README.md). Figures are medians of the rounds, with the
least and the greatest. Ratios are taken within a round, × is to the variant named, H/U to the same
work without contention. The machine is shared: only ratios within a table mean something.
";

/// Writes the pages of the checkout.
pub fn write() -> anyhow::Result<()> {
    for (path, text) in made()? {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The files that are made, with what is to be in them.
fn made() -> anyhow::Result<[(PathBuf, String); 3]> {
    let files = read()?;
    let readme = checkout().join("README.md");
    let old =
        fs::read_to_string(&readme).with_context(|| format!("cannot read {}", readme.display()))?;
    Ok([
        (checkout().join("docs/results.md"), render(&files)),
        (checkout().join("docs/hot-row.svg"), readme::plot(&files)?),
        (readme, readme::page(&old, &files)?),
    ])
}

fn render(files: &[File]) -> String {
    let mut page = HEAD.to_owned();
    page += &aims::section(files);
    page += &papers::section(files);
    page += &geo::beside_the_paper(files);
    let mut others = String::new();
    for File { name, record } in files {
        let link = format!("[{name}](../bench/results/{name}.json)");
        let section = match record {
            Record::Family(records) => family(name, records),
            Record::Hammer(record) => record.section(),
            Record::Plain(record) => record.section(),
            Record::Range(record) => record.section(),
            Record::Geo(record) => record.section(),
            Record::Counted(record) => record.section(),
            Record::Other(other) => {
                let about = other.about.as_deref().unwrap_or("no benchmark's record");
                others += &format!("- {link}: {about}\n");
                continue;
            }
        };
        page += &format!("\n## {link}\n\n{section}");
    }
    if !others.is_empty() {
        page += &format!("\n## Other records\n\n{others}");
    }
    page
}

/// How a record came to be, in a few lines.
fn origin<'a>(
    machine: &Machine,
    command: &str,
    systems: impl Iterator<Item = &'a System>,
) -> String {
    let systems: Vec<&System> = systems.collect();
    let build = systems.iter().find_map(|system| system.build.as_deref());
    let versions = systems.iter();
    let versions = list(versions.map(|one| format!("{} {}", one.system, one.version)));
    let versions = versions.replace(',', ", ");
    let day = machine.time.split('T').next().unwrap_or_default();
    let library = build.map_or(String::new(), |build| format!("; library {build}"));
    format!(
        "`{command}`\n\n{day}, commit {}{library}; {versions}; {}, {} cores, {}\n\n",
        machine.checkout, machine.processor, machine.cores, machine.system
    )
}

fn command(benchmark: &str, protocol: &str, seconds: u64, rounds: usize) -> String {
    let protocol = match protocol {
        "prepared" => String::new(),
        other => format!(" --protocol {other}"),
    };
    format!("cargo xtask bench {benchmark} --seconds {seconds} --rounds {rounds}{protocol}")
}

/// Each value once, with commas between.
fn list<T: ToString + PartialEq>(values: impl Iterator<Item = T>) -> String {
    let mut once: Vec<T> = Vec::new();
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    let texts: Vec<String> = once.iter().map(T::to_string).collect();
    texts.join(",")
}

/// The option for these variants.
fn variants<'a>(labels: impl Iterator<Item = &'a str>) -> String {
    format!(" --variants \"{}\"", list(labels))
}

fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(header) + &"|---".repeat(header.len()) + "|\n";
    for row in rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

fn rate(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!(
        "{} ({} … {})",
        thousands(median),
        thousands(min),
        thousands(max)
    )
}

fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |Spread { median, min, max }| {
        format!("{median:.2} ({min:.2} … {max:.2})")
    })
}

impl Plain {
    fn command(&self) -> String {
        let own = command(&self.benchmark, &self.protocol, self.seconds, self.rounds);
        let clients = list(self.summary.iter().map(|line| line.clients));
        let variants = variants(self.summary.iter().map(|line| line.variant.as_str()));
        format!("{own} --clients {clients}{variants}")
    }

    fn section(&self) -> String {
        let mixed = self.summary.iter().any(|line| line.all_tps.is_some());
        let against = format!("× {}", self.baseline);
        let mut header = vec!["clients", "variant", "tps"];
        header.extend(mixed.then_some("all tps"));
        header.extend([&against, "H/U", "p50 ms", "p99 ms", "retries"]);
        let rows = self.summary.iter().map(|line| {
            let mut row = vec![
                line.clients.to_string(),
                line.variant.clone(),
                rate(line.tps),
            ];
            row.extend(mixed.then(|| line.all_tps.map_or_else(String::new, rate)));
            row.extend([
                ratio(line.to_baseline),
                ratio(line.to_ceiling),
                milliseconds(line.p50_ms),
                milliseconds(line.p99_ms),
                thousands(line.retries as f64),
            ]);
            row
        });
        let origin = origin(&self.machine, &self.command(), self.systems.iter());
        format!("{}\n\n{origin}{}", self.about, table(&header, rows))
    }

    fn line(&self, variant: &str, clients: usize) -> Option<&Line> {
        let mut lines = self.summary.iter();
        lines.find(|line| line.variant == variant && line.clients == clients)
    }
}

/// Of benchmarks that are run together: a line for each and each number of clients.
fn family(name: &str, records: &[Plain]) -> String {
    let Some(first) = records.first() else {
        return String::new();
    };
    // The file's name ends with the day.
    let day = first.machine.time.split('T').next().unwrap_or_default();
    let name = name.split(&format!("-{day}")).next().unwrap_or(name);
    let lines = || records.iter().flat_map(|record| &record.summary);
    let own = command(name, &first.protocol, first.seconds, first.rounds);
    let clients = list(lines().map(|line| line.clients));
    let origin = origin(
        &first.machine,
        &format!("{own} --clients {clients}"),
        first.systems.iter(),
    );
    let mut header = vec![
        "what", "clients", STOCK, OFF, GROUP, "U", "× stock", "H/U", "p99 ms",
    ];
    let mixed = lines().any(|line| line.all_tps.is_some());
    if mixed {
        header.extend(["all: stock", "all: group lock"]);
    }
    let rows = records.iter().flat_map(|record| {
        let grouped = record.summary.iter().filter(|line| line.variant == GROUP);
        grouped.map(|group| {
            let tps_of = |variant: &str| {
                let line = record.line(variant, group.clients);
                line.map_or_else(String::new, |line| rate(line.tps))
            };
            let all_of = |variant: &str| {
                let line = record.line(variant, group.clients);
                line.and_then(|line| line.all_tps)
                    .map_or_else(String::new, rate)
            };
            let mut row = vec![
                record.about.clone(),
                group.clients.to_string(),
                tps_of(STOCK),
                tps_of(OFF),
                tps_of(GROUP),
                record.ceiling.as_deref().map_or_else(String::new, tps_of),
                ratio(group.to_baseline),
                ratio(group.to_ceiling),
                milliseconds(group.p99_ms),
            ];
            if mixed {
                row.extend([all_of(STOCK), all_of(GROUP)]);
            }
            row
        })
    });
    origin + &table(&header, rows)
}

impl Range {
    /// The options by which the places differ from the defaults of all range benchmarks.
    fn options(&self) -> String {
        let known = [
            ("scan", "--scan", ""),
            ("clients", "--clients", ""),
            ("skew", "--skew", "0.0"),
            ("ranges", "--ranges", "0"),
            ("slots", "--slots", "0"),
            ("rows", "--rows", "1000000"),
            ("row_bytes", "--row-bytes", "100"),
            ("warehouses", "--warehouses", "16"),
            ("bulk", "--bulk", "10"),
        ];
        let given = known.iter().map(|(field, option, default)| {
            let places = self.places.iter();
            let values = list(places.filter_map(|place| place.at.get(*field)));
            match values == *default || values.is_empty() {
                true => String::new(),
                false => format!(" {option} {values}"),
            }
        });
        let variants = variants(self.summary.iter().map(|line| line.variant.as_str()));
        given.collect::<String>() + &variants
    }

    fn section(&self) -> String {
        let own = command(&self.benchmark, &self.protocol, self.seconds, self.rounds);
        let origin = origin(
            &self.machine,
            &(own + &self.options()),
            self.servers.iter().map(|server| &server.description),
        );
        let against: Vec<String> = self
            .baselines
            .iter()
            .map(|name| format!("× {name}"))
            .collect();
        let mut header = vec!["place", "transactions", "variant", "tps", "refused"];
        header.extend(against.iter().map(String::as_str));
        let rows = self.summary.iter().map(|line| {
            let mut row = vec![
                line.place.clone(),
                line.class.clone(),
                line.variant.clone(),
                rate(line.tps),
                format!("{:.2} %", 100.0 * line.refused.median),
            ];
            let ratios = self.baselines.iter();
            row.extend(ratios.map(|name| ratio(line.ratios.get(name).copied())));
            row
        });
        format!("{}\n\n{origin}{}", self.about, table(&header, rows))
    }
}

impl Hammer {
    fn section(&self) -> String {
        let clients = list(self.summary.iter().map(|line| line.clients));
        let variants = variants(self.summary.iter().map(|line| line.variant.as_str()));
        let command = format!(
            "cargo xtask bench {} --hammerdb FOLDER --minutes {} --ramp-up {} --rounds {} \
             --clients {clients}{variants}",
            self.benchmark, self.minutes, self.ramp_up_minutes, self.rounds
        );
        let origin = origin(&self.machine, &command, self.systems.iter());
        let against = format!("× {}", self.baseline);
        let header = [
            "users",
            "variant",
            "warehouses",
            "NOPM",
            &against,
            "H/U",
            "failed",
        ];
        let rows = self.summary.iter().map(|line| {
            vec![
                line.clients.to_string(),
                line.variant.clone(),
                line.warehouses.to_string(),
                rate(line.nopm),
                ratio(line.to_baseline),
                ratio(line.to_ceiling),
                line.failed.to_string(),
            ]
        });
        format!(
            "{}; HammerDB {}\n\n{origin}{}",
            self.about,
            self.hammerdb,
            table(&header, rows)
        )
    }
}

impl Counted {
    fn section(&self) -> String {
        let rounds = self.lines.iter().map(|line| line.rounds.len()).max();
        let protocol = match self.protocol.as_str() {
            "prepared" => String::new(),
            other => format!(" --protocol {other}"),
        };
        let command = format!(
            "cargo xtask bench {} --rounds {}{protocol}",
            self.benchmark,
            rounds.unwrap_or(0)
        );
        let origin = origin(&self.machine, &command, self.systems.iter());
        let rows = self.lines.iter().map(|line| {
            let counts = Spread::of(line.rounds.iter().copied());
            vec![
                line.workload.clone(),
                line.variant.clone(),
                counts.map_or_else(String::new, rate),
                format!("{:.3}", line.to_stock),
            ]
        });
        let header = ["workload", "variant", "instructions", "× stock"];
        format!(
            "Instructions of the server's process per transaction, counted by {}\n\n{origin}{}",
            self.counted_by,
            table(&header, rows)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Content;

    #[test]
    fn the_pages_are_what_the_records_make_of_them() {
        for (path, made) in made().unwrap() {
            assert!(
                fs::read_to_string(&path).unwrap_or_default() == made,
                "{} is not what bench/results says: `cargo xtask bench results`",
                path.display()
            );
        }
    }

    fn file(name: &str, json: &str) -> File {
        File {
            name: name.to_owned(),
            record: Record::of(Content::parse(json.as_bytes()).unwrap()).unwrap(),
        }
    }

    const PLAIN: &str = r#"{
        "benchmark": "hot-row", "about": "a row",
        "machine": {"processor": "P", "cores": 2, "system": "S", "commit": "abc",
                    "time": "2026-11-21T06:40:39Z"},
        "systems": [{"system": "PostgreSQL", "version": "16.14"},
                    {"system": "PostgreSQL with txn", "version": "16.14", "build": "0.2.0 def 1"}],
        "protocol": "simple", "seconds": 5, "rounds": 3, "baseline": "stock", "ceiling": null,
        "summary": [
            {"variant": "stock", "clients": 16, "tps": {"median": 1000, "min": 900, "max": 1100},
             "p50_ms": 1.5, "p99_ms": 30, "to_baseline": null, "to_ceiling": null, "retries": 0},
            {"variant": "group lock", "clients": 16,
             "tps": {"median": 8000, "min": 7000, "max": 9000}, "p50_ms": 0.5, "p99_ms": 3,
             "to_baseline": {"median": 8.5, "min": 7, "max": 9}, "to_ceiling": null, "retries": 7}
        ],
        "runs": [
            {"round": 1, "variant": "stock", "clients": 16, "tps": 1000},
            {"round": 1, "variant": "group lock", "clients": 16, "tps": 8000}
        ]}"#;

    #[test]
    fn a_record_has_its_command_its_origin_and_medians_with_their_range() {
        let page = render(&[file("hot-row-2026-11-21", PLAIN)]);
        for part in [
            "## [hot-row-2026-11-21](../bench/results/hot-row-2026-11-21.json)",
            "`cargo xtask bench hot-row --seconds 5 --rounds 3 --protocol simple --clients 16 \
             --variants \"stock,group lock\"`",
            "2026-11-21, commit abc; library 0.2.0 def 1; PostgreSQL 16.14, \
             PostgreSQL with txn 16.14; P, 2 cores, S",
            "| 16 | group lock | 8,000 (7,000 … 9,000) | 8.50 (7.00 … 9.00) |  | 0.500 | 3.00 | \
             7 |",
            "| one hot row, to other systems | up to 22.3 × | 8.0 × stock, 16 clients |",
            "| one hot row, to other ways of locking | up to 6.5 × | not in the records |",
        ] {
            assert!(page.contains(part), "{part}\nis not in\n{page}");
        }
    }

    #[test]
    fn variants_are_named_once() {
        assert_eq!(variants(["a", "b", "a"].into_iter()), " --variants \"a,b\"");
        assert_eq!(
            variants(["a", "b, c"].into_iter()),
            " --variants \"a,b, c\""
        );
    }

    #[test]
    fn a_family_has_a_line_for_each_benchmark_and_is_called_by_its_name() {
        let page = render(&[file("shapes-2026-11-21", &format!("[{PLAIN}]"))]);
        assert!(page.contains("`cargo xtask bench shapes --seconds 5 --rounds 3"));
        assert!(page.contains("| a row | 16 | 1,000 (900 … 1,100) |  | 8,000 (7,000 … 9,000) |"));
        assert!(!page.contains("Beside HDCC") && !page.contains("all: stock"));
        let mixed = PLAIN.replace(
            "\"p50_ms\": 0.5",
            "\"all_tps\": {\"median\": 20000, \"min\": 1, \"max\": 30000}, \"p50_ms\": 0.5",
        );
        let page = render(&[file("tpcc-2026-11-21", &format!("[{mixed}]"))]);
        assert!(page.contains("| H/U | p99 ms | all: stock | all: group lock |"));
        assert!(page.contains("| 3.00 |  | 20,000 (1 … 30,000) |"));
    }

    #[test]
    fn what_no_benchmark_has_made_is_only_named() {
        let page = render(&[file("faults-2026-11-23", r#"{"seed": 1}"#)]);
        assert!(page.contains("## Other records"));
        assert!(page.contains("faults-2026-11-23.json): no benchmark's record"));
    }

    #[test]
    fn records_of_another_form_are_named_with_what_they_are_about() {
        let arrivals = PLAIN.replace("\"p50_ms\": 1.5", "\"p50_ms\": null");
        let new_orders = PLAIN.replace("\"tps\"", "\"nopm\"");
        for json in [arrivals, new_orders] {
            let page = render(&[file("another-2026-11-23", &json)]);
            assert!(page.contains("## Other records"));
            assert!(page.contains("another-2026-11-23.json): a row"));
        }
    }

    #[test]
    fn a_range_record_names_the_options_that_are_not_the_defaults() {
        let record: Range = serde_json::from_str(
            r#"{"benchmark": "range", "about": "scans",
                "machine": {"processor": "P", "cores": 2, "system": "S", "checkout": "abc",
                            "time": "2026-11-22T06:40:39Z"},
                "servers": [{"description": {"system": "PostgreSQL", "version": "16.14"}}],
                "protocol": "prepared", "seconds": 3, "rounds": 2, "baselines": ["SSI"],
                "places": [{"at": {"rows": 1000000, "scan": 10, "clients": 16, "skew": 0.0}},
                           {"at": {"rows": 1000000, "scan": 100, "clients": 16, "skew": 0.7}}],
                "summary": [{"place": "10 keys", "variant": "SSI", "class": "bulk",
                             "tps": {"median": 10, "min": 9, "max": 11},
                             "refused": {"median": 0.25, "min": 0, "max": 1},
                             "ratios": {"SSI": {"median": 1, "min": 1, "max": 1}}}]}"#,
        )
        .unwrap();
        let section = record.section();
        assert!(section.contains("--scan 10,100 --clients 16 --skew 0.0,0.7 --variants \"SSI\""));
        assert!(section.contains("| 10 keys | bulk | SSI | 10 (9 … 11) | 25.00 % | 1.00 (1.00"));
    }
}
