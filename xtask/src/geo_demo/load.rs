//! The clients, and how long rows stay locked at the nodes meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use pgserver::Server;
use postgres::{Client, Error, NoTls, SimpleQueryMessage};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::site::Site;
use super::variant::Form;
use crate::bench::interrupt;
use crate::bench::latency::histogram;

/// What is not counted at the start of a run: sessions connect, and the coordinator learns delays.
const WARM_UP: Duration = Duration::from_secs(3);
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// The transactions of a run.
pub struct Load<'a> {
    pub site: &'a Site,
    /// What each session runs first.
    pub settings: String,
    pub form: Form,
    pub clients: usize,
    pub seconds: u64,
    /// Percent of the transactions that are over two nodes.
    pub distributed: u32,
    pub theta: f64,
    pub seed: u64,
}

/// What the clients and the samplers have seen.
pub struct Seen {
    /// Transactions that ended within the time.
    pub transactions: u64,
    /// Of all that began within it, from the first attempt on, in microseconds.
    pub latency: Histogram<u64>,
    /// Attempts that failed, by SQLSTATE.
    pub refusals: BTreeMap<String, u64>,
    /// From lock to commit at each node, in microseconds.
    pub holds: Vec<Histogram<u64>>,
}

/// When a run counts.
struct Clock {
    begin: Instant,
    end: Instant,
    begin_at_nodes: SystemTime,
    is_over: AtomicBool,
}

impl Load<'_> {
    /// Runs all clients for the time.
    pub fn run(&self) -> Result<Seen> {
        let begin = Instant::now() + WARM_UP;
        let clock = Clock {
            begin,
            end: begin + Duration::from_secs(self.seconds),
            begin_at_nodes: SystemTime::now() + WARM_UP,
            is_over: AtomicBool::new(false),
        };
        let ready = Barrier::new(self.clients);
        let (clock, ready) = (&clock, &ready);
        scope(|threads| {
            let clients: Vec<_> = (0..self.clients)
                .map(|number| threads.spawn(move || self.client(number, clock, ready)))
                .collect();
            let samplers: Vec<_> = self.site.nodes().iter().collect();
            let samplers: Vec<_> = samplers
                .into_iter()
                .map(|node| threads.spawn(move || holds(node, clock)))
                .collect();
            let clients: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            clock.is_over.store(true, Ordering::Relaxed);
            let mut seen = Seen {
                transactions: 0,
                latency: histogram()?,
                refusals: BTreeMap::new(),
                holds: Vec::new(),
            };
            for sampler in samplers {
                let holds = sampler.join().map_err(|_| anyhow!("a sampler panicked"))?;
                seen.holds.push(holds?);
            }
            for client in clients {
                let one = client.map_err(|_| anyhow!("a client panicked"))??;
                seen.transactions += one.transactions;
                seen.latency.add(&one.latency)?;
                for (code, count) in one.refusals {
                    *seen.refusals.entry(code).or_default() += count;
                }
            }
            interrupt::check()?;
            Ok(seen)
        })
    }

    fn client(&self, number: usize, clock: &Clock, ready: &Barrier) -> Result<Seen> {
        let mut seen = Seen {
            transactions: 0,
            latency: histogram()?,
            refusals: BTreeMap::new(),
            holds: Vec::new(),
        };
        let connected = self.connect();
        ready.wait();
        let mut client = connected?;
        let mut rng = SmallRng::seed_from_u64(self.seed ^ ((number as u64) << 32));
        let zipf = Zipf::new(f64::from(self.site.rows()), self.theta)?;
        while Instant::now() < clock.end && interrupt::check().is_ok() {
            let (from, to) = self.draw(&mut rng, &zipf);
            let messages = self.form.messages(from, to);
            let began = Instant::now();
            let counts = began >= clock.begin;
            while let Err(error) = transfer(&mut client, &messages)? {
                let code = refusal(&error).ok_or(error)?;
                if counts {
                    *seen.refusals.entry(code).or_default() += 1;
                }
                client.batch_execute("ROLLBACK")?;
            }
            if counts {
                seen.latency
                    .saturating_record(began.elapsed().as_micros() as u64);
                seen.transactions += u64::from(Instant::now() < clock.end);
            }
        }
        Ok(seen)
    }

    /// A session that is connected to all nodes.
    fn connect(&self) -> Result<Client> {
        let mut client = self.site.config().connect(NoTls)?;
        client.batch_execute(&self.settings)?;
        let firsts = (0..self.site.nodes().len() as i32).map(|n| n * self.site.rows());
        let firsts: Vec<String> = firsts.map(|id| id.to_string()).collect();
        let first = format!(
            "SELECT balance FROM account WHERE id IN ({})",
            firsts.join(", ")
        );
        client
            .batch_execute(&first)
            .context("the first look at the nodes")?;
        Ok(client)
    }

    /// Two rows between which money moves.
    fn draw(&self, rng: &mut SmallRng, zipf: &Zipf<f64>) -> (i32, i32) {
        let nodes = self.site.nodes().len() as i32;
        let rows = self.site.rows();
        let row = |rng: &mut SmallRng| (zipf.sample(rng) as i32 - 1).clamp(0, rows - 1);
        let first = rng.random_range(0..nodes);
        let from = row(rng);
        let is_distributed = nodes > 1 && rng.random_range(0..100) < self.distributed;
        if is_distributed {
            let second = (first + rng.random_range(1..nodes)) % nodes;
            return (first * rows + from, second * rows + row(rng));
        }
        let mut to = row(rng);
        while to == from {
            to = row(rng);
        }
        (first * rows + from, first * rows + to)
    }
}

/// One attempt. The outer error: it has changed other rows than its two.
fn transfer(client: &mut Client, messages: &[String]) -> Result<Result<(), Error>> {
    let mut changed = 0;
    for message in messages {
        match client.simple_query(message) {
            Ok(answers) => changed += rows(&answers),
            Err(error) => return Ok(Err(error)),
        }
    }
    ensure!(changed == 2, "{changed} rows were changed by {messages:?}");
    Ok(Ok(()))
}

/// Rows that the statements have changed; BEGIN and COMMIT change none.
fn rows(answers: &[SimpleQueryMessage]) -> u64 {
    let rows = answers.iter().map(|answer| match answer {
        SimpleQueryMessage::CommandComplete(rows) => *rows,
        _ => 0,
    });
    rows.sum()
}

/// The SQLSTATE of an error after which the transaction is tried again.
fn refusal(error: &Error) -> Option<String> {
    let code = error.code()?.code();
    let is_refusal = code.starts_with("40") || code == "55P03";
    is_refusal.then(|| code.to_owned())
}

/// Samples how long transactions have had their rows locked at a node: rows that were locked of
/// late, each version once. Of a row that changes often it sees some versions only.
fn holds(node: &Server, clock: &Clock) -> Result<Histogram<u64>> {
    let mut client = node.connect()?;
    let statement = client.prepare(
        "SELECT id, xmin::text::bigint,
                (extract(epoch FROM pg_xact_commit_timestamp(xmin) - locked) * 1e6)::bigint
         FROM account WHERE locked > $1 AND locked > clock_timestamp() - interval '10 s'
             AND pg_xact_commit_timestamp(xmin) IS NOT NULL",
    )?;
    let mut seen = HashSet::new();
    let mut holds = histogram()?;
    loop {
        let is_over = clock.is_over.load(Ordering::Relaxed);
        for row in client.query(&statement, &[&clock.begin_at_nodes])? {
            let version: (i32, i64) = (row.get(0), row.get(1));
            if seen.insert(version) {
                let micros: i64 = row.get(2);
                holds.saturating_record(micros.max(1).unsigned_abs());
            }
        }
        if is_over {
            return Ok(holds);
        }
        if Instant::now() > clock.end + Duration::from_secs(300) {
            bail!("the clients do not end");
        }
        let wakes = Instant::now() + SAMPLE_EVERY;
        while Instant::now() < wakes && !clock.is_over.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(20));
        }
    }
}
