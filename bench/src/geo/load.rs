//! Clients that run transactions until the time is over, and what is watched meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, anyhow, bail};
use hdrhistogram::Histogram;
use pgserver::Server;
use postgres::Error;

use super::cluster::Cluster;
use crate::latency::histogram;
use tooling::interrupt;

/// How long clients may take to end after the time is over.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often a thread that waits looks whether the run is over.
const TICK: Duration = Duration::from_millis(20);

/// When a run counts.
pub struct Clock {
    pub begin: Instant,
    pub end: Instant,
    begin_at_nodes: SystemTime,
    is_over: AtomicBool,
}

impl Clock {
    /// From now on, but for what is not counted at the start.
    pub fn start(warm_up: Duration, time: Duration) -> Self {
        let begin = Instant::now() + warm_up;
        Self {
            begin,
            end: begin + time,
            begin_at_nodes: SystemTime::now() + warm_up,
            is_over: AtomicBool::new(false),
        }
    }

    /// Waits for that moment; false if the run is over before.
    pub fn wait(&self, until: Instant) -> bool {
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            sleep(left.min(TICK));
        }
        false
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// What a client does, over and over.
pub trait Client: Send {
    /// Draws the next transaction.
    fn draw(&mut self);

    /// Tries it. The outer error ends the run: what came back is wrong.
    fn attempt(&mut self) -> Result<Result<(), Error>>;

    /// After an attempt that has failed.
    fn roll_back(&mut self) -> Result<()>;

    /// What its transactions, as they were acknowledged, must have added to the books.
    fn effects(&self) -> Vec<i64>;
}

/// What clients have seen.
pub struct Seen {
    /// Transactions that ended within the time.
    pub transactions: u64,
    /// Of all that began within it and committed, from the first attempt on, in microseconds.
    pub latency: Histogram<u64>,
    /// Attempts that failed, by SQLSTATE.
    pub refusals: BTreeMap<String, u64>,
    /// Of all acknowledged transactions, also of those that are not counted.
    pub effects: Vec<i64>,
}

impl Seen {
    pub fn nothing() -> Result<Self> {
        Ok(Self {
            transactions: 0,
            latency: histogram()?,
            refusals: BTreeMap::new(),
            effects: Vec::new(),
        })
    }

    pub fn refused(&mut self, code: String, times: u64) {
        *self.refusals.entry(code).or_default() += times;
    }

    /// Adds what was acknowledged to the books.
    pub fn add_effects(&mut self, effects: &[i64]) {
        add(&mut self.effects, effects);
    }

    fn add(&mut self, other: Self) -> Result<()> {
        self.transactions += other.transactions;
        self.latency.add(&other.latency)?;
        for (code, count) in other.refusals {
            self.refused(code, count);
        }
        self.add_effects(&other.effects);
        Ok(())
    }
}

/// Adds up place by place.
pub fn add(sums: &mut Vec<i64>, more: &[i64]) {
    if sums.len() < more.len() {
        sums.resize(more.len(), 0);
    }
    for (sum, one) in sums.iter_mut().zip(more) {
        *sum += one;
    }
}

/// Connects all clients at once.
pub fn connect<C: Send>(
    clients: usize,
    connect: impl Fn(usize) -> Result<C> + Sync,
) -> Result<Vec<C>> {
    let connect = &connect;
    scope(|threads| {
        let threads: Vec<_> = (0..clients)
            .map(|number| threads.spawn(move || connect(number)))
            .collect();
        let all = threads.into_iter().map(|thread| {
            let connected = thread.join();
            connected.map_err(|_| anyhow!("a client panicked"))?
        });
        all.collect()
    })
}

/// Runs all clients until the time is over.
pub fn run<C: Client>(clients: Vec<C>, clock: &Clock) -> Result<Seen> {
    scope(|threads| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| threads.spawn(move || run_one(client, clock)))
            .collect();
        let mut seen = Seen::nothing()?;
        for thread in threads {
            seen.add(thread.join().map_err(|_| anyhow!("a client panicked"))??)?;
        }
        interrupt::check()?;
        Ok(seen)
    })
}

fn run_one<C: Client>(mut client: C, clock: &Clock) -> Result<Seen> {
    let mut seen = Seen::nothing()?;
    let goes_on = || Instant::now() < clock.end && interrupt::check().is_ok();
    'time: while goes_on() {
        client.draw();
        let began = Instant::now();
        let counts = began >= clock.begin;
        while let Err(error) = client.attempt()? {
            let code = refusal(&error).ok_or(error)?;
            if counts {
                seen.refused(code, 1);
            }
            client.roll_back()?;
            if !goes_on() {
                break 'time;
            }
        }
        if counts {
            let microseconds = began.elapsed().as_micros() as u64;
            seen.latency.saturating_record(microseconds);
            seen.transactions += u64::from(Instant::now() < clock.end);
        }
    }
    seen.effects = client.effects();
    Ok(seen)
}

/// The SQLSTATE of an error after which the transaction is tried again.
fn refusal(error: &Error) -> Option<String> {
    let code = error.code()?.code();
    is_refusal(code).then(|| code.to_owned())
}

/// Whether a transaction that ended in this SQLSTATE has left nothing and is tried again.
pub fn is_refusal(code: &str) -> bool {
    code.starts_with("40") && code != "40003" || code == "55P03"
}

/// What is watched at the nodes while clients run.
pub struct Watch<'a> {
    pub cluster: &'a Cluster,
    /// A table with the columns `locked`, by a trigger, and this key.
    pub table: &'a str,
    pub key: &'a str,
    /// How often it is looked at.
    pub every: Duration,
}

pub struct Watched {
    /// From lock to commit at each node, in microseconds.
    pub holds: Vec<Histogram<u64>>,
    /// Bursts to each node within the time.
    pub bursts: Vec<u64>,
}

impl Watch<'_> {
    /// Watches until `work` ends.
    pub fn during<T>(
        &self,
        clock: &Clock,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Watched)> {
        scope(|threads| {
            let bursts = threads.spawn(|| self.bursts(clock));
            let holds: Vec<_> = self
                .cluster
                .nodes()
                .iter()
                .map(|node| threads.spawn(move || self.holds(node, clock)))
                .collect();
            let done = work();
            clock.is_over.store(true, Ordering::Relaxed);
            let panicked = |_| anyhow!("a thread that watches panicked");
            let mut all = Vec::new();
            for hold in holds {
                all.push(hold.join().map_err(panicked)?);
            }
            let bursts = bursts.join().map_err(panicked)?;
            let done = done?;
            let watched = Watched {
                holds: all.into_iter().collect::<Result<_>>()?,
                bursts,
            };
            Ok((done, watched))
        })
    }

    fn bursts(&self, clock: &Clock) -> Vec<u64> {
        clock.wait(clock.begin);
        let before = self.cluster.bursts();
        clock.wait(clock.end);
        let after = self.cluster.bursts().into_iter();
        after
            .zip(before)
            .map(|(after, before)| after - before)
            .collect()
    }

    /// Samples how long transactions have had their rows locked at a node: rows that were locked of
    /// late, each version once. Of a row that changes often it sees some versions only.
    fn holds(&self, node: &Server, clock: &Clock) -> Result<Histogram<u64>> {
        let mut client = node.connect()?;
        let Self { table, key, .. } = self;
        let statement = client.prepare(&format!(
            "SELECT {key}::bigint, xmin::text::bigint,
                    (extract(epoch FROM pg_xact_commit_timestamp(xmin) - locked) * 1e6)::bigint
             FROM {table} WHERE locked > $1 AND locked > clock_timestamp() - interval '10 s'
                 AND pg_xact_commit_timestamp(xmin) IS NOT NULL"
        ))?;
        let mut seen = HashSet::new();
        let mut holds = histogram()?;
        loop {
            let is_last = clock.is_over();
            for row in client.query(&statement, &[&clock.begin_at_nodes])? {
                let version: (i64, i64) = (row.get(0), row.get(1));
                if seen.insert(version) {
                    let micros: i64 = row.get(2);
                    holds.saturating_record(micros.max(1).unsigned_abs());
                }
            }
            if is_last {
                return Ok(holds);
            }
            if Instant::now() > clock.end + PATIENCE {
                bail!("the clients do not end");
            }
            clock.wait(Instant::now() + self.every);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_committed_is_not_tried_again() {
        assert!(
            ["40001", "40P01", "55P03"]
                .iter()
                .all(|code| is_refusal(code))
        );
        for code in ["40003", "08007", "23505", "57014"] {
            assert!(!is_refusal(code), "{code}");
        }
    }

    #[test]
    fn what_clients_have_seen_adds_up() {
        let one = |code: &str, effects: &[i64]| {
            let mut seen = Seen::nothing().unwrap();
            seen.transactions = 2;
            seen.latency.record(5).unwrap();
            seen.refused(code.to_owned(), 3);
            seen.add_effects(effects);
            seen
        };
        let mut all = one("40001", &[1, 2]);
        all.add(one("55P03", &[10, 20, 30])).unwrap();
        all.add(one("40001", &[])).unwrap();
        assert_eq!((all.transactions, all.latency.len()), (6, 3));
        assert_eq!(all.effects, [11, 22, 30]);
        assert_eq!((all.refusals["40001"], all.refusals["55P03"]), (6, 3));
    }
}
