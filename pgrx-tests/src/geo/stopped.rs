//! A transfer that a stop event holds in its COMMIT (a library with the feature `stop_events`).
use crate::{Background, read, sqlstate, until};
use anyhow::{Context, Result, ensure};
use postgres::{Client, Error};

use super::{Cluster, transfer};

/// Points of a COMMIT over two nodes, and whether it is decided there.
pub const POINTS: [(&str, bool); 3] = [
    ("geo_prepared", false),
    ("geo_decided", true),
    ("geo_applying", true),
];

/// The session that holds the lock of the point, and the COMMIT that waits for it.
pub struct Stopped {
    control: Client,
    commit: Background,
}

impl Stopped {
    pub fn pid(&self) -> i32 {
        self.commit.pid
    }

    pub fn is_finished(&self) -> bool {
        self.commit.is_finished()
    }

    /// Lets it go on.
    pub fn release(&mut self) -> Result<()> {
        Ok(self
            .control
            .batch_execute("SELECT pg_advisory_unlock_all()")?)
    }

    /// Waits for the answer to COMMIT, which must not be held any more.
    pub fn end(self) -> Result<(Client, Result<(), Error>)> {
        self.commit.end()
    }

    pub fn told(self) -> Result<String> {
        Ok(sqlstate(&self.end()?.1))
    }
}

impl Cluster {
    /// A session that holds the lock of `point`: what comes there stops.
    pub fn hold(&self, point: &str) -> Result<Client> {
        let mut control = self.session()?;
        let sql = format!("SELECT pg_advisory_lock(hashtext('txn.{point}'))");
        control.batch_execute(&sql)?;
        Ok(control)
    }

    /// Runs transfer `number` up to `point`.
    pub fn stop_at(&self, point: &str, number: i64) -> Result<Stopped> {
        let client = self.session()?;
        self.stop_at_in(client, point, number)
    }

    /// Runs transfer `number` in the session `client` up to `point`.
    pub fn stop_at_in(&self, mut client: Client, point: &str, number: i64) -> Result<Stopped> {
        let mut control = self.hold(point)?;
        client
            .batch_execute(&format!(
                "SET txn.stop_at = '{point}'; SET txn.geo_apply_timeout = '1s'; BEGIN; {}",
                transfer(number)
            ))
            .context("the library has to be built with --features stop_events")?;
        let commit = Background::run(client, "COMMIT")?;
        ensure!(!commit.is_finished(), "COMMIT has not come to {point}");
        self.wait_until_held(&mut control, commit.pid)
            .with_context(|| format!("COMMIT is at {point}"))?;
        Ok(Stopped { control, commit })
    }

    /// Waits until a stop event holds that session.
    pub fn wait_until_held(&self, control: &mut Client, pid: i32) -> Result<()> {
        let held = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity \
             WHERE pid = {pid} AND wait_event IN ('advisory', 'PgSleep')"
        );
        until(control, "the session is held", |control| {
            read(control, &held)
        })
    }
}
