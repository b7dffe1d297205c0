//! Runs a benchmark: variants in turn, every run checked against the data it left.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use anyhow::{Context, bail};
use pgserver::PgInstall;

use super::catalog::{Benchmark, Rows, Series, System};
use super::check;
use super::common::{Common, or_own};
use super::mariadb::{self, MariaDbSite};
use super::pgbench::{Load, Outcome};
use super::plan::{Bench, Extent, Lacking};
use super::postgres_site::PostgresSite;
use super::record::{Record, Run, summarize};
use super::rounds::{Turn, in_rounds};
use super::script::{Script, Source};
use super::site::{Findings, Site};
use super::workload::{Effect, Tables, Workload, check_clients};
use super::{sysbench, tpcc};
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;

/// A benchmark, and how long and how often.
pub struct Plan {
    pub benchmark: &'static Benchmark,
    series: Vec<Series>,
    common: Common,
}

/// Seconds of the run on a server that has been started, for each variant.
const WARM_UP_SECONDS: u64 = 2;

/// Estimates of what comes on top of the seconds of runs. The parts: servers and first warm-ups of
/// a benchmark; reset and checks of a run; the load of a warehouse, its copies and checks.
const SERVERS_SECONDS: f64 = 15.0;
pub const AROUND_SECONDS: f64 = 2.0;
const LOADING_SECONDS: f64 = 6.0;
const COPYING_SECONDS: f64 = 1.0;

impl Plan {
    /// Fails when the benchmark cannot be run with what was asked for.
    pub fn new(benchmark: &'static Benchmark, common: &Common) -> anyhow::Result<Self> {
        let plan = Self {
            benchmark,
            series: common.choose(benchmark.name, benchmark.series, |one| one.label)?,
            common: Common {
                clients: or_own(&common.clients, benchmark.clients),
                ..common.clone()
            },
        };
        check_clients(&plan.common.clients)?;
        plan.check_packages().context(Lacking)?;
        plan.common.check()?;
        Ok(plan)
    }

    /// Fails when the machine lacks a package that a variant needs.
    fn check_packages(&self) -> anyhow::Result<()> {
        for series in &self.series {
            if series.system == System::MariaDb {
                mariadb::check_installed()?;
            }
            if series.workload.tables == Tables::Sysbench {
                sysbench::program("sysbench", "sysbench")?;
            }
        }
        Ok(())
    }

    /// Runs, warm-ups among them.
    fn runs(&self) -> usize {
        let runs =
            |series| self.starts(series) + self.common.rounds * self.clients_of(series).len();
        self.series.iter().map(runs).sum()
    }

    /// How often the variant's server is started, and the variant warms up.
    fn starts(&self, series: &Series) -> usize {
        match self.starts_each_round(series.system) {
            _ if self.clients_of(series).is_empty() => 0,
            true => self.common.rounds,
            false => 1,
        }
    }

    /// Whether the system's server is started again for each round: two servers that are started
    /// alike differ in their rates. One with large tables or a standby is not.
    fn starts_each_round(&self, system: System) -> bool {
        let mut series = self.series.iter().filter(|one| one.system == system);
        system != System::MariaDb
            && self.benchmark.standby.is_none()
            && series.all(|one| one.workload.tables == Tables::Ours)
    }

    /// Starts servers again, and lets those that have been started warm up.
    fn begin_round(
        &self,
        round: usize,
        sites: &mut [Box<dyn Site>],
        progress: &Progress,
    ) -> anyhow::Result<()> {
        if round > 1 {
            sites
                .iter_mut()
                .filter(|site| self.starts_each_round(site.system()))
                .try_for_each(|site| site.start_again())?;
        }
        for series in &self.series {
            let clients = self.clients_of(series);
            let is_warm = round > 1 && !self.starts_each_round(series.system);
            let Some(&clients) = clients.get(clients.len() / 2).filter(|_| !is_warm) else {
                continue;
            };
            progress.begin(format!("warm-up · {}", series.label));
            let site = site_of(sites, series.system)?;
            let turn = Turn::default();
            self.run_once(site, series, clients, WARM_UP_SECONDS, turn, progress)?;
            progress.end();
        }
        Ok(())
    }

    /// The numbers of clients with which a variant is measured.
    fn clients_of(&self, series: &Series) -> Vec<usize> {
        let clients = self.common.clients.iter().copied();
        clients
            .filter(|clients| series.runs_with(*clients))
            .collect()
    }

    /// What its servers have beside the settings of all.
    fn server_settings(&self) -> &'static [(&'static str, &'static str)] {
        let is_tpcc = |series: &Series| matches!(series.workload.tables, Tables::Tpcc { .. });
        match self.series.iter().any(is_tpcc) {
            true => tpcc::SETTINGS,
            false => &[],
        }
    }

    fn open_sites(&self, install: &PgInstall) -> anyhow::Result<Vec<Box<dyn Site>>> {
        let mut systems: Vec<System> = self.series.iter().map(|series| series.system).collect();
        systems.sort();
        systems.dedup();
        let most = self.common.clients.iter().copied().max().unwrap_or(1);
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
        turn: Turn,
        progress: &Progress,
    ) -> anyhow::Result<Run> {
        let described = || {
            format!(
                "{}: variant \"{}\" with {clients} clients",
                self.benchmark.name, series.label
            )
        };
        let protocol = series.workload.protocol.unwrap_or(self.common.protocol);
        let load = Load {
            spread: series.rows == Rows::Different,
            warehouses: series.warehouses(clients),
            settings: series.settings,
            old_snapshot: series.workload.old_snapshot,
            a_thread_each: self.benchmark.a_thread_each,
            ..Load::new(series.workload.scripts, clients, seconds, protocol)
        };
        interrupt::check()?;
        site.reset(series.workload, &load).with_context(described)?;
        let mut samples = Vec::new();
        progress.tell("no hot row yet".to_owned());
        let outcome = site.run(&load, &mut |sample| {
            progress.tell(sample.line());
            samples.push(sample);
        });
        let outcome = outcome
            .inspect_err(|error| self.common.print_output(progress, error))
            .with_context(described)?;
        let findings = site.inspect(series.workload).with_context(described)?;
        let faults = check::faults(series.workload, &outcome, &findings);
        if !faults.is_empty() {
            if self.common.raw {
                progress.print(&outcome.output);
            }
            bail!("WRONG DATA. {}: {}", described(), faults.join("; "));
        }
        Ok(Run {
            turn,
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

impl Bench for Plan {
    type Record = Record;

    fn title(&self) -> (&'static str, &'static str) {
        (self.benchmark.name, self.benchmark.about)
    }

    fn extent(&self) -> Extent {
        let mut seconds = SERVERS_SECONDS;
        let mut loaded = BTreeSet::new();
        for series in &self.series {
            let again = self.starts(series).saturating_sub(1);
            seconds += again as f64 * (WARM_UP_SECONDS as f64 + AROUND_SECONDS);
            for clients in self.clients_of(series) {
                let warehouses = series.warehouses(clients).unwrap_or(0);
                let around = AROUND_SECONDS + COPYING_SECONDS * warehouses as f64;
                seconds += self.common.rounds as f64 * (self.common.seconds as f64 + around);
                loaded.insert((series.system, warehouses));
            }
        }
        let warehouses: usize = loaded.iter().map(|(_, warehouses)| warehouses).sum();
        Extent {
            names: vec![self.benchmark.name],
            needs_library: self.series.iter().any(|one| one.system == System::Txn),
            runs: self.runs(),
            time: Duration::from_secs_f64(seconds + LOADING_SECONDS * warehouses as f64),
        }
    }

    fn measure(&self, install: &PgInstall) -> anyhow::Result<Record> {
        let machine = Machine::look();
        let Common {
            seconds, rounds, ..
        } = self.common;
        let mut sites = self.open_sites(install)?;
        let progress = Progress::new(self.runs())?;
        let variants = |clients: &usize| {
            let series = self.series.iter();
            series.filter(|one| one.runs_with(*clients)).collect()
        };
        let mut round = 0;
        let run = |turn: Turn, &clients: &usize, series: &&Series| {
            if turn.round > round {
                round = turn.round;
                self.begin_round(round, &mut sites, &progress)?;
            }
            progress.begin(format!("{clients} clients · {}", series.label));
            let site = site_of(&mut sites, series.system)?;
            self.run_once(site, series, clients, seconds, turn, &progress)
        };
        let clients = &self.common.clients;
        let runs = in_rounds(&progress, rounds, clients, variants, run)?;
        drop(progress);
        let systems = sites.iter_mut().map(|site| site.describe());
        Ok(Record {
            benchmark: self.benchmark.name,
            about: self.benchmark.about,
            machine,
            systems: systems.collect::<Result<_, _>>()?,
            protocol: self.common.protocol,
            seconds,
            rounds,
            baseline: self.benchmark.baseline,
            ceiling: self.benchmark.ceiling,
            standby: self.benchmark.standby,
            scripts: texts(self.series.iter().flat_map(|one| one.workload.scripts)),
            summary: summarize(self.benchmark, clients, &runs),
            runs,
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
    use crate::catalog;
    use crate::common::tests::COMMON;

    #[test]
    fn an_estimate_counts_each_load_of_warehouses_once_and_no_run_that_is_left_out() {
        let benchmark = catalog::all().find(|one| one.name == "tpcc-procedures-2");
        let common = Common {
            clients: vec![16, 64],
            ..COMMON
        };
        let plan = Plan::new(benchmark.unwrap(), &common).unwrap();
        assert_eq!(plan.runs(), 3 * (1 + 2 * 2) + (1 + 2));
        let loads = LOADING_SECONDS * (2.0 + 2.0 + 16.0);
        let runs = 12.0 * (10.0 + AROUND_SECONDS) + 12.0 * COPYING_SECONDS * 2.0;
        let own = 2.0 * (10.0 + AROUND_SECONDS + 16.0 * COPYING_SECONDS);
        assert_eq!(
            plan.extent().time.as_secs_f64(),
            SERVERS_SECONDS + loads + runs + own
        );
    }

    #[test]
    fn servers_with_small_tables_and_no_standby_start_and_warm_up_for_each_round() {
        let runs = |name| {
            let benchmark = catalog::all().find(|one| one.name == name).unwrap();
            let common = Common {
                clients: vec![16, 64],
                rounds: 3,
                ..COMMON
            };
            let plan = Plan::new(benchmark, &common).unwrap();
            (plan.series.len(), plan.runs())
        };
        for (name, starts) in [("hot-row", 3), ("standby", 1), ("tpcb-1", 1)] {
            let (variants, runs) = runs(name);
            assert_eq!(runs, variants * (starts + 3 * 2), "{name}");
        }
    }
}
