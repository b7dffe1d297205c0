//! Runs a benchmark: variants in turn at each place, every run checked against the data it left.

use std::collections::BTreeMap;
use std::thread::scope;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pgserver::PgInstall;

use super::catalog::{BASELINES, Benchmark};
use super::cluster::Layout;
use super::draws::Draws;
use super::load::{self, Clock, Seen, Watched};
use super::place::{At, check_theta};
use super::record::{Hold, PlaceRecord, Record, Run, VariantRecord, summarize};
use super::session::{Manner, Session, random};
use super::site::Site;
use super::variant::Variant;
use super::workload::{Schema, Sizes};
use super::xa::Xa;
use crate::latency::Latency;
use crate::pgbench::Protocol;
use crate::plan::{Bench, Extent};
use crate::rounds::{Turn, in_rounds};
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;

/// What is not counted at the start of a run, when all sessions are connected: the coordinators
/// learn round trips.
const WARM_UP: Duration = Duration::from_secs(2);
/// Java compiles, too.
const WARM_UP_JAVA: Duration = Duration::from_secs(5);
/// How often held rows are looked at.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// About what is added to the seconds of runs: to start, and around each run.
const START_SECONDS: u64 = 15;
const AROUND_SECONDS: u64 = 6;

/// A benchmark, and how long and how often.
pub struct Plan {
    pub benchmark: &'static Benchmark,
    pub places: Vec<Place>,
    pub variants: Vec<Variant>,
    /// Where a place has no others: from each coordinator to each node.
    pub rtt: Vec<Vec<f64>>,
    pub sizes: Sizes,
    pub seconds: u64,
    pub rounds: usize,
}

pub struct Place {
    pub label: String,
    pub at: At,
}

/// A variant that can run.
struct Contender {
    variant: Variant,
    settings: String,
}

struct Contenders {
    all: Vec<Contender>,
    /// Those that cannot run, and why.
    left_out: BTreeMap<&'static str, String>,
    /// The client of `Variant::Xa`, if that is one of them.
    xa: Option<Xa>,
}

impl Plan {
    /// Fails when the plan cannot be run.
    pub fn check(&self) -> Result<()> {
        let nodes = |one: &At| one.group_lock.is_some();
        let mut kinds = self.places.iter().map(|place| nodes(&place.at));
        let first = kinds.next().context("a benchmark without a place")?;
        ensure!(
            kinds.all(|other| other == first),
            "nodes have the extension or do not"
        );
        let is_two = self.places.iter().any(|place| place.at.coordinators > 1);
        ensure!(
            !is_two || !self.variants.contains(&Variant::Xa),
            "xa has no coordinators"
        );
        for place in &self.places {
            let at = &place.at;
            ensure!(at.clients > 0, "there has to be a client");
            ensure!(at.distributed <= 100, "percent go to 100");
            check_theta(at.theta)?;
            ensure!(
                (1..=at.operations).contains(&at.batches),
                "{} operations do not come in {} batches",
                at.operations,
                at.batches
            );
            ensure!(
                at.operations as i64 * 10 <= self.sizes.rows,
                "{} rows are too few for {} operations",
                self.sizes.rows,
                at.operations
            );
        }
        Ok(())
    }

    fn schemas(&self) -> Vec<&'static Schema> {
        let mut schemas: Vec<_> = self.places.iter().map(|one| one.at.kind.schema()).collect();
        schemas.sort_by_key(|schema| schema.name);
        schemas.dedup_by_key(|schema| schema.name);
        schemas
    }

    fn start(&self, install: &PgInstall) -> Result<Site> {
        let progress = Progress::new(1)?;
        progress.begin("starting the servers, filling the tables".to_owned());
        let places = || self.places.iter().map(|place| place.at);
        let coordinators = places().map(|at| at.coordinators).max().unwrap_or(1);
        let layout = Layout {
            clients: places().map(|at| at.clients).max().unwrap_or(1),
            rtt: self
                .rtt
                .get(..coordinators)
                .context("too few round trips")?,
            nodes_have_library: places().any(|at| at.group_lock.is_some()),
        };
        Site::start(install, None, &layout, self.sizes, &self.schemas())
    }

    /// Those that can run, and why the others cannot.
    fn contenders(&self, site: &Site) -> Result<Contenders> {
        let abilities = site.cluster.abilities()?;
        let mut all = Vec::new();
        let mut left_out = BTreeMap::new();
        let mut xa = None;
        for variant in self.variants.iter().copied() {
            let Some(settings) = variant.settings(&abilities) else {
                let why = "this build has no such setting";
                left_out.insert(variant.name(), why.to_owned());
                continue;
            };
            if variant == Variant::Xa {
                match Xa::prepare() {
                    Ok(made) => xa = Some(made),
                    Err(error) => {
                        left_out.insert(variant.name(), format!("{error:#}"));
                        continue;
                    }
                }
            }
            all.push(Contender { variant, settings });
        }
        ensure!(!all.is_empty(), "no variant can run");
        Ok(Contenders { all, left_out, xa })
    }

    /// The place as it is recorded.
    fn told(&self, place: &Place) -> Result<PlaceRecord> {
        let draws = Draws::new(&place.at, &self.sizes, 0)?;
        let mut rng = random(0, 0);
        let mut drawn = std::iter::repeat_with(|| draws.draw(&mut rng));
        // One with all that there is: read and written.
        let longest = drawn.by_ref().take(20).max_by_key(|one| one.steps.len());
        let steps = longest.into_iter().flat_map(|one| one.steps);
        Ok(PlaceRecord {
            place: place.label.clone(),
            at: place.at,
            example: steps.map(|step| step.sql).collect(),
        })
    }

    /// Runs one variant and checks the data. What fails is recorded as a run that does not count.
    fn run_once(
        &self,
        site: &Site,
        place: &Place,
        contender: &Contender,
        xa: Option<&Xa>,
        turn: Turn,
    ) -> Result<Run> {
        let at = &place.at;
        let schema = at.kind.schema();
        site.arrange(at)?;
        let before = site.reset(schema)?;
        let done = match contender.variant {
            Variant::Xa => {
                let xa = xa.context("the client was not made")?;
                self.run_java(site, at, xa, turn.round)
            }
            _ => self.run_sessions(site, at, contender, turn.round),
        };
        interrupt::check()?;
        let (seen, watched, wrong) = match done {
            Ok((seen, watched)) => {
                let checked = site.check(schema, &before, &seen.effects);
                (seen, Some(watched), checked.err())
            }
            Err(error) => {
                site.cluster.roll_back_strangers()?;
                site.cluster.settle()?;
                (Seen::nothing()?, None, Some(error))
            }
        };
        let idle = site.idle_bursts();
        Ok(Run {
            turn,
            place: place.label.clone(),
            variant: contender.variant,
            tps: seen.transactions as f64 / self.seconds as f64,
            transactions: seen.transactions,
            latency_ms: (!seen.latency.is_empty()).then(|| Latency::from(&seen.latency)),
            trips: watched
                .iter()
                .flat_map(|watched| &watched.bursts)
                .zip(idle)
                .map(|(bursts, idle)| {
                    let of_clients = *bursts as f64 - idle * self.seconds as f64;
                    of_clients.max(0.0) / seen.transactions.max(1) as f64
                })
                .collect(),
            holds: watched
                .iter()
                .flat_map(|watched| &watched.holds)
                .map(|hold| {
                    (!hold.is_empty()).then(|| Hold {
                        samples: hold.len(),
                        ms: Latency::from(hold),
                    })
                })
                .collect(),
            refusals: seen.refusals,
            believed_rtt_ms: site.cluster.believed_rtt()?,
            wrong: wrong.map(|error| format!("{error:#}")),
        })
    }

    fn run_java(&self, site: &Site, at: &At, xa: &Xa, round: usize) -> Result<(Seen, Watched)> {
        let times = (WARM_UP_JAVA, Duration::from_secs(self.seconds));
        xa.run(site, at, round, times, |clock, clients| {
            self.watched(site, at, clock, || clients.finish())
        })
    }

    fn run_sessions(
        &self,
        site: &Site,
        at: &At,
        contender: &Contender,
        round: usize,
    ) -> Result<(Seen, Watched)> {
        let manner = Manner {
            settings: contender.settings.clone(),
            tells_last: contender.variant.tells_last(),
        };
        let connect = |client| {
            let config = site.cluster.config(client, at.coordinators);
            let tables = (at.kind.schema(), &self.sizes);
            let draws = Draws::new(at, &self.sizes, client)?;
            Session::new(&config, &manner, tables, draws, random(round, client))
        };
        let clients = load::connect(at.clients, connect)?;
        let clock = Clock::start(WARM_UP, Duration::from_secs(self.seconds));
        self.watched(site, at, &clock, || load::run(clients, &clock))
    }

    /// Watches the nodes while `work` runs, and changes their round trips where the place wants it.
    fn watched(
        &self,
        site: &Site,
        at: &At,
        clock: &Clock,
        work: impl FnOnce() -> Result<Seen>,
    ) -> Result<(Seen, Watched)> {
        let watch = site.watch(at.kind.schema(), SAMPLE_EVERY);
        scope(|threads| {
            threads.spawn(|| site.change(at, clock));
            watch.during(clock, work)
        })
    }
}

impl Bench for Plan {
    type Record = Record;

    fn title(&self) -> (&'static str, &'static str) {
        (self.benchmark.name, self.benchmark.about)
    }

    fn extent(&self) -> Extent {
        let runs = self.rounds * self.places.len() * self.variants.len();
        let of_runs = runs as u64 * (self.seconds + AROUND_SECONDS);
        Extent {
            names: vec![self.benchmark.name],
            needs_library: true,
            runs,
            time: Duration::from_secs(START_SECONDS + of_runs),
        }
    }

    fn measure(&self, install: &PgInstall) -> Result<Record> {
        let site = self.start(install)?;
        let Contenders { all, left_out, xa } = self.contenders(&site)?;
        for (variant, why) in &left_out {
            println!("{variant} is left out: {why}");
        }
        let machine = Machine::look();
        let progress = Progress::new(self.rounds * self.places.len() * all.len())?;
        let contenders = |_: &Place| all.iter().collect();
        let run = |turn, place: &Place, contender: &&Contender| {
            progress.begin(format!("{} · {}", place.label, contender.variant.name()));
            self.run_once(&site, place, contender, xa.as_ref(), turn)
        };
        let runs = in_rounds(&progress, self.rounds, &self.places, contenders, run)?;
        drop(progress);
        let places = self.places.iter().map(|place| self.told(place));
        let places: Vec<PlaceRecord> = places.collect::<Result<_>>()?;
        Ok(Record {
            benchmark: self.benchmark.name,
            about: self.benchmark.about,
            machine,
            servers: site.cluster.describe()?,
            protocol: Protocol::Prepared,
            seconds: self.seconds,
            rounds: self.rounds,
            rtt_ms: self.rtt.clone(),
            sizes: self.sizes,
            baselines: baselines(&all),
            variants: all.into_iter().map(VariantRecord::from).collect(),
            left_out,
            summary: summarize(&places, &runs),
            places,
            runs,
        })
    }
}

impl From<Contender> for VariantRecord {
    fn from(contender: Contender) -> Self {
        Self {
            variant: contender.variant,
            about: contender.variant.about(),
            settings: contender.settings,
        }
    }
}

/// Those that run.
fn baselines(contenders: &[Contender]) -> Vec<&'static str> {
    let runs = |baseline: &&Variant| contenders.iter().any(|one| one.variant == **baseline);
    let baselines = BASELINES.iter().filter(runs);
    baselines.map(|variant| variant.name()).collect()
}
