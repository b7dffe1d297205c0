//! A hot row whose ticket is held by a session that a named point has stopped, and sessions that
//! wait behind it.
use std::thread::{JoinHandle, spawn};

use anyhow::{Context, Result, bail};
use pgserver::Server;
use postgres::types::ToSql;
use postgres::{Client, Error};
use txn_server_tests::{Background, grouped, int, join, sqlstate, wait_until};

/// A session that has the row's ticket and has not looked yet who waits.
pub struct Stage {
    pub control: Client,
    holder: Option<Background>,
}

impl Stage {
    pub fn new(server: &Server, sql: &str) -> Result<Self> {
        Self::with(server, "", sql)
    }

    /// As `new`; the holder runs `setting` first.
    pub fn with(server: &Server, setting: &str, sql: &str) -> Result<Self> {
        // From now on the row is hot.
        grouped(server)?.batch_execute("UPDATE hot SET val = val WHERE id = 1")?;
        let mut control = server.connect()?;
        control.batch_execute("SELECT pg_advisory_lock(hashtext('txn.ticket_taken'))")?;
        let mut holder = grouped(server)?;
        holder.batch_execute(setting)?;
        holder
            .batch_execute("SET txn.stop_at = 'ticket_taken, before_commit_wait, sealed'")
            .context("the library has to be built with --features stop_events")?;
        let mut stage = Stage {
            control,
            holder: Some(Background::run(holder, sql)?),
        };
        stage.wait_stopped()?;
        Ok(stage)
    }

    pub fn holder_pid(&self) -> i32 {
        self.holder.as_ref().map_or(0, |holder| holder.pid)
    }

    pub fn wait_stopped(&mut self) -> Result<()> {
        match &self.holder {
            Some(holder) => holder.wait_until_stopped(&mut self.control),
            None => bail!("the holder has ended before"),
        }
    }

    /// Waits until so many stand in the row's queue.
    pub fn wait_queued(&mut self, waiting: i32) -> Result<()> {
        wait_until(
            &mut self.control,
            &format!("SELECT sum(waiting) = {waiting} FROM txn.hotspots"),
        )
    }

    /// Lets the holder update the row.
    pub fn release(&mut self) -> Result<()> {
        self.control
            .batch_execute("SELECT pg_advisory_unlock(hashtext('txn.ticket_taken'))")?;
        Ok(())
    }

    /// As `release`. Waits until the holder has adopted all waiters and has come to `point`.
    pub fn release_to(&mut self, point: &str) -> Result<()> {
        self.control
            .batch_execute(&format!("SELECT pg_advisory_lock(hashtext('txn.{point}'))"))?;
        self.release()?;
        self.wait_queued(0)?;
        self.wait_stopped()
    }

    pub fn release_from(&mut self, point: &str) -> Result<()> {
        self.control.batch_execute(&format!(
            "SELECT pg_advisory_unlock(hashtext('txn.{point}'))"
        ))?;
        Ok(())
    }

    /// Waits until the lock manager knows that this session waits for the holder.
    pub fn wait_blocking(&mut self, pid: i32) -> Result<()> {
        let holder = self.holder_pid();
        let sql = format!("SELECT {holder} = ANY (pg_blocking_pids({pid}))");
        wait_until(&mut self.control, &sql)
    }

    /// What the holder was told at last.
    pub fn end(&mut self) -> Result<String> {
        match self.holder.take() {
            Some(holder) => Ok(sqlstate(&holder.end()?.1)),
            None => bail!("the holder has ended before"),
        }
    }

    pub fn combined(&mut self) -> Result<i64> {
        int(&mut self.control, "SELECT combined FROM txn.stats")
    }

    pub fn val(&mut self) -> Result<i64> {
        int(&mut self.control, "SELECT val FROM hot WHERE id = 1")
    }
}

/// A prepared statement that waits beside the test; the number of rows, or the error.
pub struct Prepared(JoinHandle<Result<u64, Error>>);

impl Prepared {
    pub fn run(server: &Server, sql: &str, arguments: Vec<i64>) -> Result<Self> {
        let mut client = grouped(server)?;
        client.batch_execute("SET plan_cache_mode = force_generic_plan")?;
        let statement = client.prepare(sql)?;
        Ok(Prepared(spawn(move || {
            let arguments: Vec<&(dyn ToSql + Sync)> =
                arguments.iter().map(|a| a as &(dyn ToSql + Sync)).collect();
            client.execute(&statement, &arguments)
        })))
    }

    pub fn end(self) -> Result<Result<u64, Error>> {
        join(self.0, "a prepared statement")
    }
}

/// So many sessions that run the same statement.
pub fn crowd(server: &Server, sessions: usize, sql: &str) -> Result<Vec<Background>> {
    (0..sessions)
        .map(|_| Background::run(grouped(server)?, sql))
        .collect()
}
