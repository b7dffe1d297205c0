//! Runs a range benchmark: variants in turn at each place, every run checked against the data it
//! left.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use pgserver::PgInstall;

use super::catalog::{Benchmark, Place};
use super::record::{ClassRun, Record, Run, ServerRecord, summarize};
use super::script::{Class, Data, MixScript};
use super::site::RangeSite;
use super::variant::{ServerKind, Variant};
use crate::common::Common;
use crate::latency::{Latency, histogram};
use crate::pgbench::Load;
use crate::plan::{Bench, Extent};
use crate::rounds::{Turn, in_rounds};
use crate::script::{Script, Source};
use crate::table::once;
use crate::transactions::Transactions;
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;

/// A benchmark, and how long and how often.
pub struct Plan {
    pub benchmark: &'static Benchmark,
    pub places: Vec<Place>,
    /// What the places differ in.
    pub axis: &'static str,
    pub data: Data,
    pub common: Common,
    /// What the files are called, but for the day.
    pub files: String,
}

/// Seconds of the run before the first round, on each server.
const WARM_UP_SECONDS: u64 = 2;

/// About what is added to the seconds of runs: to fill and warm up a server, and around each run.
const SERVER_SECONDS: u64 = 15;
const AROUND_SECONDS: u64 = 2;

impl Plan {
    /// Fails when the plan cannot be run.
    pub fn check(&self) -> anyhow::Result<()> {
        self.common.check()?;
        let mut labels: Vec<&String> = self.places.iter().map(|place| &place.label).collect();
        labels.sort_unstable();
        if let Some(twice) = labels.windows(2).find(|two| two[0] == two[1]) {
            bail!("\"{}\" is there twice", twice[0]);
        }
        Ok(())
    }

    fn variants(&self) -> impl Iterator<Item = &Variant> {
        self.places.iter().flat_map(|place| &place.variants)
    }

    /// The servers of all variants, each once.
    fn servers(&self) -> Vec<&ServerKind> {
        once(self.variants().map(|variant| &variant.server))
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
            let all = self.variants();
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
        turn: Turn,
        progress: &Progress,
    ) -> anyhow::Result<Run> {
        let described = || {
            format!(
                "{}: variant \"{}\" at {}",
                self.benchmark.name, variant.label, place.label
            )
        };
        let scripts: Vec<Script> = place.scripts.iter().map(MixScript::for_pgbench).collect();
        let clients = place.at.sizes.clients;
        let load = Load {
            settings: &variant.session,
            max_tries: 1,
            ..Load::new(&scripts, clients, seconds, self.common.protocol)
        };
        interrupt::check()?;
        site.reset(variant).with_context(described)?;
        let ended = site
            .run(&load)
            .inspect_err(|error| self.common.print_output(progress, error))
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
        Ok(Run {
            turn,
            place: place.label.clone(),
            variant: variant.label,
            seconds: ended.seconds(),
            classes: classes(&place.scripts, &transactions, ended.seconds())?,
            counters,
        })
    }
}

impl Bench for Plan {
    type Record = Record;

    fn title(&self) -> (&'static str, &'static str) {
        (self.benchmark.name, self.benchmark.about)
    }

    fn files(&self) -> String {
        self.files.clone()
    }

    fn extent(&self) -> Extent {
        let servers = self.servers();
        let runs = self.common.rounds * self.variants().count();
        let of_runs = runs as u64 * (self.common.seconds + AROUND_SECONDS);
        Extent {
            names: vec![self.benchmark.name],
            needs_library: servers.iter().any(|kind| kind.library),
            runs: servers.len() + runs,
            time: Duration::from_secs(SERVER_SECONDS * servers.len() as u64 + of_runs),
        }
    }

    fn measure(&self, install: &PgInstall) -> anyhow::Result<Record> {
        let machine = Machine::look();
        let Common {
            seconds, rounds, ..
        } = self.common;
        let mut sites = self.open_sites(install)?;
        let progress = Progress::new(self.extent().runs)?;
        for site in &mut sites {
            let mut all = self.places.iter().flat_map(|place| {
                let variants = place.variants.iter();
                variants.map(move |variant| (place, variant))
            });
            let first = all.find(|(_, variant)| variant.server == site.kind);
            let (place, variant) = first.context("a server without a variant")?;
            progress.begin(format!("warm-up · {}", variant.label));
            let turn = Turn::default();
            self.run_once(site, place, variant, WARM_UP_SECONDS, turn, &progress)?;
            progress.end();
        }
        let variants = |place: &Place| place.variants.clone();
        let run = |turn, place: &Place, variant: &Variant| {
            progress.begin(format!("{} · {}", place.label, variant.label));
            let site = site_of(&mut sites, variant)?;
            self.run_once(site, place, variant, seconds, turn, &progress)
        };
        let runs = in_rounds(&progress, rounds, &self.places, variants, run)?;
        drop(progress);
        let describe = |site: &mut RangeSite| -> anyhow::Result<ServerRecord> {
            Ok(ServerRecord {
                kind: site.kind.clone(),
                description: site.describe()?,
                shared_memory: site.shared_memory()?,
            })
        };
        Ok(Record {
            benchmark: self.benchmark.name,
            about: self.benchmark.about,
            machine,
            servers: sites.iter_mut().map(describe).collect::<Result<_, _>>()?,
            protocol: self.common.protocol,
            seconds,
            rounds,
            baselines: self.benchmark.baselines,
            axis: self.axis,
            summary: summarize(&self.places, self.benchmark.baselines, &runs),
            places: self.places.clone(),
            runs,
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
