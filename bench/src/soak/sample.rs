//! What a server under load looks like at one moment.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result};
use pgserver::Server;
use postgres::Client;
use serde::Serialize;

use super::parts::STEADY;
use super::processes::{self, Memory};
use super::trend::Trend;
use crate::postgres_site::counters;
use crate::stats::Spread;

/// A sample. What is counted is counted since the server's start.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Seconds since the load began.
    pub at: f64,
    /// Taken before caches were full: it counts for no trend.
    pub warm_up: bool,
    pub processes: usize,
    /// Of all the server's processes.
    pub memory: Memory,
    /// Private memory of the sessions that live as long as the load, in kB; None when there are
    /// none.
    pub backend_private_kb: Option<Spread>,
    /// Of all the server's processes, those that have ended included.
    pub cpu_seconds: f64,
    pub committed: i64,
    pub rolled_back: i64,
    /// Sessions that wait for a hot row, and transactions in the lists of hot rows.
    pub waiting: i64,
    pub running: i64,
    /// txn.stats, without what is zero.
    pub counters: BTreeMap<String, i64>,
}

/// Takes samples of one server.
pub struct Sampler<'a> {
    server: &'a Server,
    control: &'a mut Client,
    began: Instant,
    warm_up: f64,
}

impl<'a> Sampler<'a> {
    /// For a load that begins now; samples of the first `warm_up` seconds are marked.
    pub fn new(server: &'a Server, control: &'a mut Client, warm_up: f64) -> Self {
        Self {
            server,
            control,
            began: Instant::now(),
            warm_up,
        }
    }

    pub fn take(&mut self) -> Result<Sample> {
        let postmaster = self.server.postmaster_pid()?;
        let at = self.began.elapsed().as_secs_f64();
        let cpu_seconds = processes::cpu_seconds(postmaster)?;
        let transactions = self
            .control
            .query_one(
                "SELECT xact_commit, xact_rollback FROM pg_stat_database
                 WHERE datname = current_database()",
                &[],
            )
            .context("reading the transactions so far")?;
        let rows = self
            .control
            .query_one(
                "SELECT coalesce(sum(waiting), 0)::bigint, coalesce(sum(running), 0)::bigint
                 FROM txn.hotspots",
                &[],
            )
            .context("reading the hot rows")?;
        let steady: Vec<i32> = self
            .control
            .query(
                "SELECT pid FROM pg_stat_activity WHERE application_name = $1",
                &[&STEADY],
            )?
            .iter()
            .map(|row| row.get(0))
            .collect();
        let mut all = Memory::default();
        let mut backends = Vec::new();
        let pids = processes::of_server(postmaster)?;
        for &pid in &pids {
            let Some(memory) = Memory::of(pid)? else {
                continue;
            };
            all += memory;
            if steady.contains(&pid) {
                backends.push(memory.private_kb as f64);
            }
        }
        Ok(Sample {
            at,
            warm_up: at < self.warm_up,
            processes: pids.len(),
            memory: all,
            backend_private_kb: Spread::of(backends),
            cpu_seconds,
            committed: transactions.get(0),
            rolled_back: transactions.get(1),
            waiting: rows.get(0),
            running: rows.get(1),
            counters: counters(self.control)?,
        })
    }
}

impl Sample {
    /// A counter of txn.stats.
    pub fn counter(&self, name: &str) -> i64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// For the line below the progress bar; `before` is the sample before this one.
    pub fn line(&self, before: Option<&Self>) -> String {
        let rate = before.map_or(0.0, |before| self.rate(before));
        format!(
            "{rate:.0} tps · {:.1} MB in {} processes · {} hot rows · {} waiting · {} have cooled down",
            self.memory.pss_kb as f64 / 1024.0,
            self.processes,
            self.counter("hot_rows"),
            self.waiting,
            self.counter("coolings"),
        )
    }

    /// Committed transactions per second since `before`.
    fn rate(&self, before: &Self) -> f64 {
        (self.committed - before.committed) as f64 / (self.at - before.at)
    }

    /// CPU time for each committed transaction since `before`, in µs; None when none was committed.
    fn cpu_per_transaction(&self, before: &Self) -> Option<f64> {
        let transactions = self.committed - before.committed;
        (transactions > 0)
            .then(|| 1e6 * (self.cpu_seconds - before.cpu_seconds) / transactions as f64)
    }
}

/// How everything that should be flat has developed after the warm-up. Empty with fewer than three
/// samples.
pub fn trends(samples: &[Sample]) -> Vec<Trend> {
    let warm: Vec<&Sample> = samples.iter().filter(|sample| !sample.warm_up).collect();
    let each = |figure: &dyn Fn(&Sample) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = warm.iter().map(|sample| Some((sample.at, figure(sample)?)));
        points.flatten().collect()
    };
    let between = |figure: &dyn Fn(&Sample, &Sample) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = warm
            .windows(2)
            .map(|pair| Some((pair[1].at, figure(pair[1], pair[0])?)));
        points.flatten().collect()
    };
    let mb = |kb: u64| Some(kb as f64 / 1024.0);
    let backend = |part: fn(&Spread) -> f64| {
        move |sample: &Sample| sample.backend_private_kb.as_ref().map(part)
    };
    let all = [
        Trend::of(
            "memory of all processes",
            "MB",
            &each(&|sample| mb(sample.memory.pss_kb)),
        ),
        Trend::of(
            "  of that, private",
            "MB",
            &each(&|sample| mb(sample.memory.private_kb)),
        ),
        Trend::of(
            "  of that, shared memory",
            "MB",
            &each(&|sample| mb(sample.memory.shared_kb)),
        ),
        Trend::of(
            "a long-lived session, median",
            "kB",
            &each(&backend(|spread| spread.median)),
        ),
        Trend::of(
            "the largest of them",
            "kB",
            &each(&backend(|spread| spread.max)),
        ),
        Trend::of(
            "hot rows in use",
            "",
            &each(&|sample| Some(sample.counter("hot_rows") as f64)),
        ),
        Trend::of(
            "CPU for each transaction",
            "µs",
            &between(&|sample, before| sample.cpu_per_transaction(before)),
        ),
        Trend::of(
            "transactions per second",
            "",
            &between(&|sample, before| Some(sample.rate(before))),
        ),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(minute: u32, warm_up: bool) -> Sample {
        let minute = f64::from(minute);
        Sample {
            at: 60.0 * minute,
            warm_up,
            processes: 10,
            memory: Memory {
                pss_kb: 1024 * (100 + minute as u64),
                private_kb: 1024,
                shared_kb: 2048,
            },
            backend_private_kb: None,
            cpu_seconds: 3.0 * minute,
            committed: (30_000.0 * minute) as i64,
            rolled_back: 0,
            waiting: 0,
            running: 0,
            counters: BTreeMap::from([("hot_rows".to_owned(), 5)]),
        }
    }

    #[test]
    fn trends_leave_the_warm_up_out_and_differences_are_those_of_neighbours() {
        let samples: Vec<Sample> = (0..32).map(|minute| sample(minute, minute < 2)).collect();
        let trends = trends(&samples);
        let of = |what| trends.iter().find(|trend| trend.what == what).unwrap();
        let memory = of("memory of all processes");
        assert!((memory.per_hour.slope - 60.0).abs() < 1e-9);
        assert_eq!((memory.first_third, memory.last_third), (106.5, 126.5));
        let cpu = of("CPU for each transaction");
        assert!((cpu.first_third - 100.0).abs() < 1e-9 && cpu.per_hour.slope.abs() < 1e-6);
        assert_eq!(of("transactions per second").last_third, 500.0);
        assert!(
            trends
                .iter()
                .all(|trend| trend.what != "the largest of them")
        );
    }
}
