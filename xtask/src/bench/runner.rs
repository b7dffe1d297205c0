//! Runs a benchmark: variants in turn, every run checked against the data it left.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use anyhow::{Context, bail};
use pgserver::PgInstall;

use super::catalog::{Benchmark, Rows, Series, System};
use super::check;
use super::interrupt;
use super::machine::Machine;
use super::mariadb::{self, MariaDbSite};
use super::pgbench::{Failure, Load, MAX_TRIES, Outcome, Protocol};
use super::postgres_site::PostgresSite;
use super::progress::{Progress, run_line};
use super::record::{Record, Run, summarize};
use super::site::{Findings, Site};
use super::workload::{Effect, Script, Source, Tables, Workload};
use super::{sysbench, tpcc};

/// A benchmark, and how long and how often.
pub struct Plan {
    pub benchmark: &'static Benchmark,
    pub clients: Vec<usize>,
    pub seconds: u64,
    pub rounds: usize,
    pub protocol: Protocol,
    /// Labels of the variants to run; all when empty.
    pub variants: Vec<String>,
    /// On failure, print all that the load generator printed.
    pub raw: bool,
}

/// Seconds of the run before the first round, for each variant.
const WARM_UP_SECONDS: u64 = 2;

/// About what is added to the seconds of runs: for the servers and warm-ups of a benchmark, for
/// reset and checks of a run, for the load of a warehouse and for its copies and checks.
const SERVERS_SECONDS: f64 = 15.0;
pub const AROUND_SECONDS: f64 = 2.0;
const LOADING_SECONDS: f64 = 6.0;
const COPYING_SECONDS: f64 = 1.0;

/// The variants in the order of a round: each begins as often as the others, as what ran before may
/// still be felt.
pub fn in_turn<T>(variants: &[T], round: usize) -> impl Iterator<Item = &T> {
    let first = (round - 1) % variants.len().max(1);
    variants.iter().cycle().skip(first).take(variants.len())
}

impl Plan {
    fn series(&self) -> Vec<&'static Series> {
        let chosen = |series: &&Series| {
            self.variants.is_empty() || self.variants.iter().any(|label| label == series.label)
        };
        self.benchmark.series.iter().filter(chosen).collect()
    }

    /// Whether a variant runs on the extension.
    pub fn needs_library(&self) -> bool {
        self.series()
            .iter()
            .any(|series| series.system == System::Txn)
    }

    /// Fails when the machine lacks a package that a variant needs.
    pub fn check_packages(&self) -> anyhow::Result<()> {
        for series in self.series() {
            if series.system == System::MariaDb {
                mariadb::check_installed()?;
            }
            if series.workload.tables == Tables::Sysbench {
                sysbench::program("sysbench", "sysbench")?;
            }
        }
        Ok(())
    }

    /// The numbers of clients with which a variant is measured.
    fn clients_of(&self, series: &Series) -> Vec<usize> {
        let clients = self.clients.iter().copied();
        clients
            .filter(|clients| series.runs_with(*clients))
            .collect()
    }

    /// Runs, warm-ups among them.
    pub fn runs(&self) -> usize {
        let series = self.series().into_iter();
        series
            .map(|series| self.clients_of(series).len())
            .map(|numbers| usize::from(numbers > 0) + self.rounds * numbers)
            .sum()
    }

    /// About how long it takes.
    pub fn estimate(&self) -> Duration {
        let mut seconds = SERVERS_SECONDS;
        let mut loaded = BTreeSet::new();
        for series in self.series() {
            for clients in self.clients_of(series) {
                let warehouses = series.warehouses(clients).unwrap_or(0);
                let around = AROUND_SECONDS + COPYING_SECONDS * warehouses as f64;
                seconds += self.rounds as f64 * (self.seconds as f64 + around);
                loaded.insert((series.system, warehouses));
            }
        }
        let warehouses: usize = loaded.iter().map(|(_, warehouses)| warehouses).sum();
        Duration::from_secs_f64(seconds + LOADING_SECONDS * warehouses as f64)
    }

    /// What its servers have beside the settings of all.
    fn server_settings(&self) -> &'static [(&'static str, &'static str)] {
        let is_tpcc = |series: &&Series| matches!(series.workload.tables, Tables::Tpcc { .. });
        match self.series().iter().any(is_tpcc) {
            true => tpcc::SETTINGS,
            false => &[],
        }
    }

    /// Fails when the plan cannot be run.
    pub fn check(&self) -> anyhow::Result<()> {
        let labels: Vec<&str> = self
            .benchmark
            .series
            .iter()
            .map(|series| series.label)
            .collect();
        if let Some(unknown) = self
            .variants
            .iter()
            .find(|label| !labels.contains(&label.as_str()))
        {
            bail!(
                "benchmark {} has no variant \"{unknown}\", but: {}",
                self.benchmark.name,
                labels.join(", ")
            );
        }
        let largest = super::workload::MOST_CLIENTS;
        if self.clients.is_empty() || self.clients.iter().any(|&n| n == 0 || n > largest) {
            bail!("the numbers of clients must be from 1 to {largest}");
        }
        self.check_packages()?;
        if self.seconds == 0 || self.rounds == 0 {
            bail!("a benchmark takes at least one second and one round");
        }
        Ok(())
    }

    /// Starts the systems, warms up, runs all rounds. Fails at the first run whose data is wrong.
    pub fn measure(&self, install: &PgInstall) -> anyhow::Result<Record> {
        let machine = Machine::look();
        let series = self.series();
        let mut sites = self.open_sites(install, &series)?;
        let progress = Progress::new(self.runs())?;
        for series in &series {
            let clients = self.clients_of(series);
            let Some(&clients) = clients.get(clients.len() / 2) else {
                continue;
            };
            progress.begin(format!("warm-up · {}", series.label));
            let site = site_of(&mut sites, series.system)?;
            self.run_once(site, series, clients, WARM_UP_SECONDS, &progress)?;
        }
        let mut runs: Vec<Run> = Vec::new();
        for round in 1..=self.rounds {
            for &clients in &self.clients {
                let series = in_turn(&series, round).filter(|one| one.runs_with(clients));
                for series in series {
                    progress.begin(format!("{clients} clients · {}", series.label));
                    let site = site_of(&mut sites, series.system)?;
                    let run = self.run_once(site, series, clients, self.seconds, &progress)?;
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
        Ok(Record {
            benchmark: self.benchmark.name,
            about: self.benchmark.about,
            machine,
            systems: sites
                .iter_mut()
                .map(|site| site.describe())
                .collect::<Result<_, _>>()?,
            protocol: self.protocol,
            seconds: self.seconds,
            rounds: self.rounds,
            baseline: self.benchmark.baseline,
            ceiling: self.benchmark.ceiling,
            standby: self.benchmark.standby,
            scripts: texts(series.iter().flat_map(|one| one.workload.scripts)),
            summary: summarize(self.benchmark, &self.clients, &runs),
            runs,
        })
    }

    fn open_sites(
        &self,
        install: &PgInstall,
        series: &[&Series],
    ) -> anyhow::Result<Vec<Box<dyn Site>>> {
        let mut systems: Vec<System> = series.iter().map(|series| series.system).collect();
        systems.sort();
        systems.dedup();
        let most = self.clients.iter().copied().max().unwrap_or(1);
        let open = |system| -> anyhow::Result<Box<dyn Site>> {
            Ok(match system {
                System::MariaDb => Box::new(MariaDbSite::start(most)?),
                System::Stock | System::Txn => Box::new(PostgresSite::start(
                    install,
                    system,
                    most,
                    self.server_settings(),
                    self.benchmark.standby,
                )?),
            })
        };
        systems.into_iter().map(open).collect()
    }

    /// Resets the tables, runs one variant, checks the data.
    fn run_once(
        &self,
        site: &mut dyn Site,
        series: &Series,
        clients: usize,
        seconds: u64,
        progress: &Progress,
    ) -> anyhow::Result<Run> {
        let described = || {
            format!(
                "{}: variant \"{}\" with {clients} clients",
                self.benchmark.name, series.label
            )
        };
        let load = Load {
            scripts: series.workload.scripts,
            clients,
            seconds,
            protocol: series.workload.protocol.unwrap_or(self.protocol),
            spread: series.rows == Rows::Different,
            warehouses: series.warehouses(clients),
            settings: series.settings,
            max_tries: MAX_TRIES,
            arrivals: None,
            old_snapshot: series.workload.old_snapshot,
        };
        interrupt::check()?;
        site.reset(series.workload, &load).with_context(described)?;
        let mut samples = Vec::new();
        progress.tell("no hot row yet".to_owned());
        let outcome = site.run(&load, &mut |sample| {
            progress.show(&sample);
            samples.push(sample);
        });
        let outcome = outcome
            .inspect_err(|error| {
                if let (true, Some(failure)) = (self.raw, error.downcast_ref::<Failure>()) {
                    progress.print(&failure.output);
                }
            })
            .with_context(described)?;
        let findings = site.inspect(series.workload).with_context(described)?;
        let faults = check::faults(series.workload, &outcome, &findings);
        if !faults.is_empty() {
            if self.raw {
                progress.print(&outcome.output);
            }
            bail!("WRONG DATA. {}: {}", described(), faults.join("; "));
        }
        progress.end();
        Ok(Run {
            order: 0,
            round: 0,
            variant: series.label,
            workload: series.workload.name,
            different_rows: load.spread,
            settings: load.options(),
            clients,
            seconds: outcome.seconds,
            tps: committed(series.workload, &outcome, &findings) / outcome.seconds,
            acknowledged: outcome.acknowledged(),
            rolled_back: outcome.rolled_back(),
            by_script: outcome.scripts,
            retries: outcome.retries,
            latency_ms: outcome.latency,
            findings,
            samples,
        })
    }
}

/// Transactions that have had their effect.
fn committed(workload: &Workload, outcome: &Outcome, findings: &Findings) -> f64 {
    match workload.effect_is {
        Effect::NotInTheTables => outcome.acknowledged() as f64,
        Effect::Exactly | Effect::AtMost => findings.effect as f64,
    }
}

/// The texts of all scripts, each once; the names of pgbench's and sysbench's own.
pub fn texts<'a>(scripts: impl Iterator<Item = &'a Script<'a>>) -> Vec<String> {
    let text = |script: &Script| match script.source {
        Source::Text(text) => text.to_owned(),
        Source::Builtin => script.name.to_owned(),
        Source::Sysbench(options) => format!("{} {}", script.name, options.join(" ")),
    };
    let mut texts: Vec<String> = scripts.map(text).collect();
    let mut seen = HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    texts
}

fn site_of(sites: &mut [Box<dyn Site>], system: System) -> anyhow::Result<&mut dyn Site> {
    let site = sites.iter_mut().find(|site| site.system() == system);
    Ok(site
        .with_context(|| format!("{system:?} was not started"))?
        .as_mut())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::catalog;

    #[test]
    fn an_estimate_counts_each_load_of_warehouses_once_and_no_run_that_is_left_out() {
        let benchmark = catalog::all().find(|one| one.name == "tpcc-procedures-2");
        let plan = Plan {
            benchmark: benchmark.unwrap(),
            clients: vec![16, 64],
            seconds: 10,
            rounds: 2,
            protocol: Protocol::Prepared,
            variants: Vec::new(),
            raw: false,
        };
        assert_eq!(plan.runs(), 3 * (1 + 2 * 2) + (1 + 2));
        let loads = LOADING_SECONDS * (2.0 + 2.0 + 16.0);
        let runs = 12.0 * (10.0 + AROUND_SECONDS) + 12.0 * COPYING_SECONDS * 2.0;
        let own = 2.0 * (10.0 + AROUND_SECONDS + 16.0 * COPYING_SECONDS);
        assert_eq!(
            plan.estimate().as_secs_f64(),
            SERVERS_SECONDS + loads + runs + own
        );
    }

    #[test]
    fn every_variant_runs_once_in_a_round_and_each_begins_one() {
        let order = |round| {
            in_turn(&["a", "b", "c"], round)
                .copied()
                .collect::<String>()
        };
        assert_eq!([1, 2, 3, 4].map(order), ["abc", "bca", "cab", "abc"]);
        assert_eq!(in_turn::<u8>(&[], 1).count(), 0);
    }
}
