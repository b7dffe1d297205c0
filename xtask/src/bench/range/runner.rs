//! Runs a range benchmark: variants in turn at each place, every run checked against the data it
//! left.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use pgserver::PgInstall;

use super::catalog::{Benchmark, Place};
use super::mix::{Class, Data, MixScript};
use super::record::{ClassRun, PlaceRecord, Record, Run, ServerRecord, summarize};
use super::site::RangeSite;
use super::table::run_line;
use super::variant::{ServerKind, Variant};
use crate::bench::interrupt;
use crate::bench::latency::{Latency, histogram};
use crate::bench::machine::Machine;
use crate::bench::pgbench::{Failure, Load, Protocol};
use crate::bench::progress::Progress;
use crate::bench::runner::in_turn;
use crate::bench::transactions::Transactions;
use crate::bench::workload::{Script, Source};

/// A benchmark, and how long and how often.
pub struct Plan {
    pub benchmark: &'static Benchmark,
    pub places: Vec<Place>,
    /// What the places differ in.
    pub axis: &'static str,
    pub data: Data,
    pub seconds: u64,
    pub rounds: usize,
    pub protocol: Protocol,
    /// On failure, print all that pgbench printed.
    pub raw: bool,
}

/// Seconds of the run before the first round, on each server.
const WARM_UP_SECONDS: u64 = 2;

/// About what is added to the seconds of runs: to fill and warm up a server, and around each run.
const SERVER_SECONDS: u64 = 15;
const AROUND_SECONDS: u64 = 2;

impl Plan {
    /// Whether a variant runs on the extension.
    pub fn needs_library(&self) -> bool {
        self.servers().iter().any(|kind| kind.library)
    }

    /// Runs, warm-ups among them.
    pub fn runs(&self) -> usize {
        let variants = self.places.iter().map(|place| place.variants.len());
        self.servers().len() + self.rounds * variants.sum::<usize>()
    }

    /// About how long it takes.
    pub fn estimate(&self) -> Duration {
        let runs = (self.runs() - self.servers().len()) as u64;
        Duration::from_secs(
            SERVER_SECONDS * self.servers().len() as u64 + runs * (self.seconds + AROUND_SECONDS),
        )
    }

    /// Fails when the plan cannot be run.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.seconds == 0 || self.rounds == 0 {
            bail!("a benchmark takes at least one second and one round");
        }
        let mut labels: Vec<&String> = self.places.iter().map(|place| &place.label).collect();
        labels.sort_unstable();
        if let Some(twice) = labels.windows(2).find(|two| two[0] == two[1]) {
            bail!("\"{}\" is there twice", twice[0]);
        }
        Ok(())
    }

    /// Leaves out all variants but those of these labels, unless there are none. Fails at a label
    /// that is unknown.
    pub fn choose(&mut self, labels: &[String]) -> anyhow::Result<()> {
        for label in labels {
            let known = self.places.iter().take(1).flat_map(|place| &place.variants);
            let known: Vec<&str> = known.map(|variant| variant.label).collect();
            if !known.contains(&label.as_str()) {
                bail!(
                    "benchmark {} has no variant \"{label}\", but: {}",
                    self.benchmark.name,
                    known.join(", ")
                );
            }
        }
        if !labels.is_empty() {
            for place in &mut self.places {
                place
                    .variants
                    .retain(|variant| labels.iter().any(|label| label == variant.label));
            }
        }
        Ok(())
    }

    /// The servers of all variants, each once.
    fn servers(&self) -> Vec<&ServerKind> {
        let mut kinds = Vec::new();
        for variant in self.places.iter().flat_map(|place| &place.variants) {
            if !kinds.contains(&&variant.server) {
                kinds.push(&variant.server);
            }
        }
        kinds
    }

    /// Starts the servers, warms up, runs all rounds. Fails at the first run whose data is wrong.
    pub fn measure(self, install: &PgInstall) -> anyhow::Result<Record> {
        let machine = Machine::look();
        let mut sites = self.open_sites(install)?;
        let progress = Progress::new(self.runs())?;
        for site in &mut sites {
            let mut all = self.places.iter().flat_map(|place| {
                let variants = place.variants.iter();
                variants.map(move |variant| (place, variant))
            });
            let first = all.find(|(_, variant)| variant.server == site.kind);
            let (place, variant) = first.context("a server without a variant")?;
            progress.begin(format!("warm-up · {}", variant.label));
            self.run_once(site, place, variant, WARM_UP_SECONDS, &progress)?;
        }
        let mut runs: Vec<Run> = Vec::new();
        for round in 1..=self.rounds {
            for place in &self.places {
                for variant in in_turn(&place.variants, round) {
                    progress.begin(format!("{} · {}", place.label, variant.label));
                    let site = site_of(&mut sites, variant)?;
                    let run = self.run_once(site, place, variant, self.seconds, &progress)?;
                    let run = Run {
                        order: runs.len() + 1,
                        round,
                        ..run
                    };
                    progress.print(&run_line(&run, self.rounds));
                    runs.push(run);
                }
            }
        }
        drop(progress);
        let describe = |site: &mut RangeSite| -> anyhow::Result<ServerRecord> {
            Ok(ServerRecord {
                kind: site.kind.clone(),
                description: site.describe()?,
                shared_memory: site.shared_memory()?,
            })
        };
        let servers = sites.iter_mut().map(describe).collect::<Result<_, _>>()?;
        let places: Vec<PlaceRecord> = self.places.into_iter().map(PlaceRecord::from).collect();
        Ok(Record {
            benchmark: self.benchmark.name,
            about: self.benchmark.about,
            machine,
            servers,
            protocol: self.protocol,
            seconds: self.seconds,
            rounds: self.rounds,
            baselines: self.benchmark.baselines,
            axis: self.axis,
            summary: summarize(&places, self.benchmark.baselines, &runs),
            places,
            runs,
        })
    }

    fn open_sites(&self, install: &PgInstall) -> anyhow::Result<Vec<RangeSite>> {
        let clients = self.places.iter().map(|place| place.at.sizes.clients);
        let most = clients.max().context("a benchmark without a place")?;
        let servers = self.servers();
        let progress = Progress::new(servers.len())?;
        let mut sites = Vec::new();
        for kind in servers {
            interrupt::check()?;
            progress.begin(format!("filling the tables · {}", kind.access_method));
            let all = self.places.iter().flat_map(|place| &place.variants);
            let variants: Vec<&Variant> = all.filter(|one| one.server == *kind).collect();
            let kind = kind.clone();
            sites.push(RangeSite::start(
                install, kind, &variants, &self.data, most,
            )?);
            progress.end();
        }
        Ok(sites)
    }

    /// Vacuums the tables, runs one variant, checks the data.
    fn run_once(
        &self,
        site: &mut RangeSite,
        place: &Place,
        variant: &Variant,
        seconds: u64,
        progress: &Progress,
    ) -> anyhow::Result<Run> {
        let described = || {
            format!(
                "{}: variant \"{}\" at {}",
                self.benchmark.name, variant.label, place.label
            )
        };
        let scripts: Vec<Script> = place.scripts.iter().map(MixScript::for_pgbench).collect();
        let load = Load {
            scripts: &scripts,
            clients: place.at.sizes.clients,
            seconds,
            protocol: self.protocol,
            spread: false,
            warehouses: None,
            settings: &variant.session,
            max_tries: 1,
            arrivals: None,
            old_snapshot: false,
        };
        interrupt::check()?;
        site.reset(variant).with_context(described)?;
        let ended = site
            .run(&load)
            .inspect_err(|error| {
                if let (true, Some(failure)) = (self.raw, error.downcast_ref::<Failure>()) {
                    progress.print(&failure.output);
                }
            })
            .with_context(described)?;
        let transactions = ended.transactions().with_context(described)?;
        let committed: Vec<u64> = transactions.iter().map(|one| one.committed).collect();
        site.audit(&place.scripts, &committed)
            .with_context(described)?;
        let counters = site.counters().with_context(described)?;
        let passed = counters.get("range_passed").copied().unwrap_or(0);
        let sum = committed.iter().sum::<u64>() as i64;
        ensure!(
            !variant.validated || passed == sum,
            "{}: {sum} transactions have committed, but {passed} have passed validation",
            described()
        );
        progress.end();
        Ok(Run {
            order: 0,
            round: 0,
            place: place.label.clone(),
            variant: variant.label,
            seconds: ended.seconds(),
            classes: classes(&place.scripts, &transactions, ended.seconds())?,
            counters,
        })
    }
}

/// What became of the transactions of each class that has scripts.
fn classes(
    scripts: &[MixScript],
    transactions: &[Transactions],
    seconds: f64,
) -> anyhow::Result<Vec<ClassRun>> {
    let mut classes = Vec::new();
    for class in [Class::Point, Class::Bulk] {
        let of_class: Vec<&Transactions> = scripts
            .iter()
            .zip(transactions)
            .filter(|(script, _)| script.class == class)
            .map(|(_, transactions)| transactions)
            .collect();
        if of_class.is_empty() {
            continue;
        }
        let sum = |part: fn(&Transactions) -> u64| of_class.iter().map(|one| part(one)).sum();
        let committed: u64 = sum(|one| one.committed);
        let mut microseconds: Histogram<u64> = histogram()?;
        for one in &of_class {
            microseconds.add(&one.microseconds)?;
        }
        classes.push(ClassRun {
            class,
            committed,
            refused: sum(|one| one.refused),
            deadlocks: sum(|one| one.deadlocks),
            tps: committed as f64 / seconds,
            latency_ms: (committed > 0).then(|| Latency::from(&microseconds)),
        });
    }
    Ok(classes)
}

impl MixScript {
    fn for_pgbench(&self) -> Script<'_> {
        Script {
            name: self.name,
            source: Source::Text(&self.text),
            weight: self.weight,
        }
    }
}

impl From<Place> for PlaceRecord {
    fn from(place: Place) -> Self {
        Self {
            place: place.label,
            tick: place.tick,
            at: place.at,
            scripts: place.scripts,
            variants: place.variants,
        }
    }
}

fn site_of<'a>(sites: &'a mut [RangeSite], variant: &Variant) -> anyhow::Result<&'a mut RangeSite> {
    sites
        .iter_mut()
        .find(|site| site.kind == variant.server)
        .with_context(|| format!("no server for \"{}\" was started", variant.label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(class: Class) -> MixScript {
        MixScript {
            name: "",
            class,
            weight: 1,
            effects: &[],
            text: String::new(),
        }
    }

    fn transactions(committed: u64, refused: u64, microseconds: u64) -> Transactions {
        let mut latency = histogram().unwrap();
        latency.record_n(microseconds, committed).unwrap();
        Transactions {
            committed,
            refused,
            deadlocks: 1,
            skipped: 0,
            microseconds: latency,
        }
    }

    #[test]
    fn scripts_of_a_class_are_counted_together() {
        let scripts = [Class::Point, Class::Bulk, Class::Point].map(script);
        let all = [
            transactions(10, 1, 1000),
            transactions(0, 9, 1),
            transactions(30, 2, 3000),
        ];
        let classes = classes(&scripts, &all, 2.0).unwrap();
        let [point, bulk] = classes.as_slice() else {
            panic!("{classes:?}")
        };
        assert_eq!(
            (point.committed, point.refused, point.deadlocks),
            (40, 3, 2)
        );
        assert_eq!(point.tps, 20.0);
        assert!((point.latency_ms.unwrap().p50 / 3.0 - 1.0).abs() < 1e-3);
        assert_eq!((bulk.committed, bulk.refused), (0, 9));
        assert!(bulk.latency_ms.is_none());
    }
}
