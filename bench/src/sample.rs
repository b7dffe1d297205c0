//! What the server shows of its hottest row while a load runs.

use std::time::{Duration, Instant};

use anyhow::Context;
use postgres::Client;
use txn_top::text::{microseconds, thousands};

use super::catalog::System;

/// The state of the hottest row at one moment.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub at: f64,
    /// How its updates are ordered: `row lock` is PostgreSQL's own way.
    pub mode: String,
    pub waiting: i32,
    pub running: i32,
    pub updates: i64,
    pub cascades: i64,
    pub handover_us: f64,
}

impl Sample {
    /// What `txn.hotspots` says of the hottest row, in a line.
    pub fn line(&self) -> String {
        let Self {
            mode,
            waiting,
            running,
            updates,
            cascades,
            handover_us,
            ..
        } = self;
        if mode == ROW_LOCK_MODE {
            return format!("hot row: {mode} · waiting {waiting} · running {running}");
        }
        format!(
            "hot row: {mode} · waiting {waiting} · running {running} · updates {} · \
             cascades {cascades} · hand-over {}",
            thousands(*updates as f64),
            microseconds(*handover_us)
        )
    }
}

/// The hottest row by `txn.hotspots`, or what stands for it while no row is hot.
const HOTSPOT: &str = "
    SELECT mode, waiting, running, updates, cascades, coalesce(handover_us, 0)
    FROM txn.hotspots ORDER BY updates DESC LIMIT 1";

/// The mode of a sample taken without the library.
pub const ROW_LOCK_MODE: &str = "row lock";

/// Without the library: the sessions that wait for a lock, and those that work.
const ROW_LOCK: &str = "
    SELECT 'row lock',
           (count(*) FILTER (WHERE wait_event_type = 'Lock'))::int,
           (count(*) FILTER (WHERE wait_event_type IS DISTINCT FROM 'Lock'))::int,
           0::bigint, 0::bigint, 0::float8
    FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid()";

const INTERVAL: Duration = Duration::from_millis(250);

/// Takes a sample every 250 ms, over a connection of its own.
pub struct Sampler<'a> {
    client: &'a mut Client,
    query: &'static str,
    start: Instant,
    last: Option<Instant>,
}

impl<'a> Sampler<'a> {
    pub fn new(client: &'a mut Client, system: System) -> Self {
        let query = if system == System::Txn {
            HOTSPOT
        } else {
            ROW_LOCK
        };
        Self {
            client,
            query,
            start: Instant::now(),
            last: None,
        }
    }

    /// None when it is not time yet, or when no row is hot.
    pub fn sample(&mut self) -> anyhow::Result<Option<Sample>> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now < last + INTERVAL) {
            return Ok(None);
        }
        self.last = Some(now);
        let row = self
            .client
            .query_opt(self.query, &[])
            .context("reading the hot row's state")?;
        Ok(row.map(|row| Sample {
            at: (now - self.start).as_secs_f64(),
            mode: row.get(0),
            waiting: row.get(1),
            running: row.get(2),
            updates: row.get(3),
            cascades: row.get(4),
            handover_us: row.get(5),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_line_says_what_hotspots_says() {
        let sample = Sample {
            at: 0.5,
            mode: "group".to_owned(),
            waiting: 212,
            running: 43,
            updates: 123_456,
            cascades: 2,
            handover_us: 12.34,
        };
        assert_eq!(
            sample.line(),
            "hot row: group · waiting 212 · running 43 · updates 123,456 · cascades 2 · \
             hand-over 12.3 µs"
        );
    }
}
