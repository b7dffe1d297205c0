//! Runs a benchmark: variants in turn, every run checked against the data it left.

use std::collections::HashSet;

use anyhow::{Context, bail};
use pgserver::PgInstall;

use super::catalog::{Benchmark, Rows, Series, System};
use super::check;
use super::interrupt;
use super::machine::Machine;
use super::mariadb::{self, MariaDbSite};
use super::pgbench::{Failure, Load, MAX_TRIES, Protocol};
use super::postgres_site::PostgresSite;
use super::progress::{Progress, run_line};
use super::record::{Record, Run, summarize};
use super::site::Site;
use super::workload::Source;

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

/// The variants in the order of a round: each begins as often as the others, as what ran before may still be felt.
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
        if self
            .series()
            .iter()
            .any(|series| series.system == System::MariaDb)
        {
            mariadb::check_installed()?;
        }
        Ok(())
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
        if self
            .series()
            .iter()
            .any(|series| series.system == System::MariaDb)
        {
            mariadb::check_installed()?;
        }
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
        let progress = Progress::new(series.len() * (1 + self.rounds * self.clients.len()))?;
        let warm_up = self.clients[self.clients.len() / 2];
        for series in &series {
            progress.begin(format!("warm-up · {}", series.label));
            let site = site_of(&mut sites, series.system)?;
            self.run_once(site, series, warm_up, WARM_UP_SECONDS, &progress)?;
        }
        let mut runs: Vec<Run> = Vec::new();
        for round in 1..=self.rounds {
            for &clients in &self.clients {
                for series in in_turn(&series, round) {
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
            scripts: scripts(&series),
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
            protocol: self.protocol,
            spread: series.rows == Rows::Different,
            settings: series.settings,
            max_tries: MAX_TRIES,
            arrivals: None,
            old_snapshot: series.workload.old_snapshot,
        };
        interrupt::check()?;
        site.reset(series.workload).with_context(described)?;
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
            tps: findings.effect as f64 / outcome.seconds,
            acknowledged: outcome.acknowledged,
            rolled_back: outcome.rolled_back,
            retries: outcome.retries,
            latency_ms: outcome.latency,
            findings,
            samples,
        })
    }
}

/// The texts of all scripts, each once; the names of pgbench's own.
fn scripts(series: &[&Series]) -> Vec<&'static str> {
    let mut texts: Vec<&str> = series
        .iter()
        .flat_map(|series| series.workload.scripts)
        .map(|script| match script.source {
            Source::Text(text) => text,
            Source::Builtin => script.name,
        })
        .collect();
    let mut seen = HashSet::new();
    texts.retain(|text| seen.insert(*text));
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
