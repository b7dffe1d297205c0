//! Runs the variants in turn: the load that arrives by the clock, and the switch in mid-run.

use std::thread::{scope, sleep};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, ensure};
use pgserver::{PgInstall, Server};

use super::record::{Class, ClassRun, Rates, Record, Run, summarize};
use super::{ABOUT, COLD_CLIENTS, NAME, PHASES, Plan, SERVERS_SECONDS};
use crate::catalog::{STOCK, System};
use crate::check;
use crate::common::Common;
use crate::pgbench::{self, Arrivals, Load};
use crate::plan::{Bench, Extent};
use crate::postgres_site::PostgresSite;
use crate::rounds::{Turn, in_rounds};
use crate::runner::{AROUND_SECONDS, texts};
use crate::sample::Sample;
use crate::script::{Script, Source};
use crate::site::Site;
use crate::transactions::Event;
use crate::variant::{Variant, needs_library};
use crate::workload::HOT_ROW;
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;

/// Updates of the other rows of table `hot`.
const COLD: &[Script] = &[Script {
    name: "cold",
    source: Source::Text(include_str!("../../soak-cold.sql")),
    weight: 1,
}];

const SWITCH_ON: &str = "ALTER SYSTEM SET txn.group_lock = on;\nSELECT pg_reload_conf();";
const SWITCH_BACK: &str = "ALTER SYSTEM RESET txn.group_lock;\nSELECT pg_reload_conf();";

/// What a run has seen.
struct Seen {
    /// In seconds of Unix time.
    began: f64,
    /// In seconds from the beginning.
    switched_at: Option<f64>,
    cold: Vec<Event>,
    hot: Vec<Event>,
    samples: Vec<Sample>,
}

impl Bench for Plan {
    type Record = Record;

    fn title(&self) -> (&'static str, &'static str) {
        (NAME, ABOUT)
    }

    fn extent(&self) -> Extent {
        let runs = self.common.rounds * self.common.clients.len() * self.variants.len();
        let of_a_run = (PHASES.len() as u64 * self.common.seconds) as f64 + AROUND_SECONDS;
        Extent {
            names: vec![NAME],
            needs_library: needs_library(&self.variants),
            runs,
            time: Duration::from_secs_f64(SERVERS_SECONDS + runs as f64 * of_a_run),
        }
    }

    fn measure(&self, install: &PgInstall) -> anyhow::Result<Record> {
        let machine = Machine::look();
        let Common {
            seconds, rounds, ..
        } = self.common;
        let clients = &self.common.clients;
        let most = clients.iter().max().context("no number of clients")? + COLD_CLIENTS;
        let start =
            |variant: &Variant| PostgresSite::start(install, variant.system, most, &[], None);
        let sites = self.variants.iter().map(start);
        let mut sites = sites.collect::<anyhow::Result<Vec<_>>>()?;
        let progress = Progress::new(self.extent().runs)?;
        let numbers = |_: &usize| (0..self.variants.len()).collect();
        let run = |turn, &clients: &usize, &number: &usize| {
            let variant = &self.variants[number];
            progress.begin(format!("{clients} clients · {}", variant.label));
            let run = self.run_once(&mut sites[number], variant, clients, turn, &progress);
            run.with_context(|| {
                let label = variant.label;
                format!("{NAME}: variant \"{label}\" with {clients} clients")
            })
        };
        let runs = in_rounds(&progress, rounds, clients, numbers, run)?;
        drop(progress);
        let systems = sites.iter_mut().map(Site::describe);
        Ok(Record {
            benchmark: NAME,
            about: ABOUT,
            machine,
            systems: systems.collect::<Result<_, _>>()?,
            protocol: self.common.protocol,
            seconds,
            rounds,
            arrivals: Rates {
                hot: self.hot,
                cold: self.cold,
            },
            cold_clients: COLD_CLIENTS,
            baseline: STOCK,
            phases: PHASES,
            scripts: texts(HOT_ROW.scripts.iter().chain(COLD)),
            summary: summarize(&runs, clients, seconds as f64),
            runs,
        })
    }
}

impl Plan {
    fn run_once(
        &self,
        site: &mut PostgresSite,
        variant: &Variant,
        clients: usize,
        turn: Turn,
        progress: &Progress,
    ) -> anyhow::Result<Run> {
        let hot = self.load(HOT_ROW.scripts, clients, 2, self.hot);
        site.reset(&HOT_ROW, &hot)?;
        if variant.system == System::Txn {
            let group_lock = site.server().psql("SHOW txn.group_lock")?;
            ensure!(group_lock.trim() == "off", "group lock is on already");
        }
        let seen = self.spike(site, variant, &hot, progress)?;
        if seen.switched_at.is_some() {
            site.server().psql(SWITCH_BACK)?;
        }
        let end = PHASES.len() as f64 * self.common.seconds as f64;
        let classes = [(Class::Hot, &seen.hot), (Class::Cold, &seen.cold)]
            .map(|(class, events)| ClassRun::of(class, events, seen.began, end, self.hot.limit_ms));
        let committed: u64 = classes.iter().map(|class| class.committed).sum();
        let findings = site.inspect(&HOT_ROW)?;
        let mut faults = check::faults_of_data(&HOT_ROW, &[committed], &findings);
        let value: i64 = site
            .server()
            .connect()?
            .query_one("SELECT val FROM hot WHERE id = 1", &[])?
            .get(0);
        if value != classes[0].committed as i64 {
            faults.push(format!(
                "{} transactions on the hot row were acknowledged, but it holds {value}",
                classes[0].committed
            ));
        }
        ensure!(faults.is_empty(), "WRONG DATA. {}", faults.join("; "));
        Ok(Run {
            turn,
            variant: variant.label,
            clients,
            switched_at: seen.switched_at,
            classes,
            findings,
            samples: seen.samples,
        })
    }

    /// Cold transactions all the time; hot ones in the second and the third phase, and the switch
    /// between these.
    fn spike(
        &self,
        site: &mut PostgresSite,
        variant: &Variant,
        hot: &Load,
        progress: &Progress,
    ) -> anyhow::Result<Seen> {
        let (server, mut sampler) = site.sampled();
        let phase = Duration::from_secs(self.common.seconds);
        let cold = self.load(COLD, COLD_CLIENTS, 4, self.cold);
        let start = SystemTime::now();
        let began = start.duration_since(UNIX_EPOCH)?.as_secs_f64();
        let since = || start.elapsed().unwrap_or_default();
        let (mut switched_at, mut samples) = (None, Vec::new());
        let (cold, hot) = scope(|scope| -> anyhow::Result<_> {
            let cold = scope.spawn(|| events(server, &cold, &mut || Ok(())));
            while since() < phase {
                interrupt::check()?;
                sleep(Duration::from_millis(5));
            }
            let hot = events(server, hot, &mut || {
                if variant.system == System::Txn && switched_at.is_none() && since() >= 2 * phase {
                    server.psql(SWITCH_ON)?;
                    switched_at = Some(since().as_secs_f64());
                }
                if let Some(sample) = sampler.sample()? {
                    progress.tell(sample.line());
                    samples.push(sample);
                }
                Ok(())
            })?;
            let cold = cold
                .join()
                .map_err(|_| anyhow!("the cold load panicked"))??;
            Ok((cold, hot))
        })?;
        ensure!(
            variant.system != System::Txn || switched_at.is_some(),
            "the spike was over before group lock was to be switched on"
        );
        Ok(Seen {
            began,
            switched_at,
            cold,
            hot,
            samples,
        })
    }

    fn load<'a>(
        &self,
        scripts: &'a [Script<'a>],
        clients: usize,
        phases: u64,
        arrivals: Arrivals,
    ) -> Load<'a> {
        Load {
            arrivals: Some(arrivals),
            ..Load::new(
                scripts,
                clients,
                phases * self.common.seconds,
                self.common.protocol,
            )
        }
    }
}

/// Puts `load` on the server; what became of every transaction, as the report says too.
fn events(server: &Server, load: &Load, tick: &mut pgbench::Tick) -> anyhow::Result<Vec<Event>> {
    let ended = pgbench::drive(server, load, tick)?;
    ended.transactions()?;
    ended.events()
}
