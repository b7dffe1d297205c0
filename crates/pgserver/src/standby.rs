//! Streaming replication between servers of ours: standbys, the line to them, and what commits wait
//! for.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postgres::Client;

use crate::line::Line;
use crate::options::ServerOptions;
use crate::server::Server;
use crate::template::run;

/// How long a standby may take to connect, to catch up or to become a primary.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);

/// A hot standby of a primary, with the primary's settings, in a folder of its own.
pub struct Standby {
    name: String,
    server: Server,
    line: Option<Line>,
}

impl Standby {
    /// Copies `primary`, starts the copy and waits until WAL is streamed to it. Each way of the
    /// line takes `delay`; zero is a direct connection. The primary knows the standby by `name`,
    /// letters only, and must not yet have been told to wait for standbys: the copy would do so,
    /// too, after its promotion.
    pub fn attach(primary: &Server, name: &str, delay: Duration) -> Result<Self> {
        let line = match delay.is_zero() {
            true => None,
            false => Some(Line::with_delay(primary, delay)?),
        };
        let port = line.as_ref().map_or(primary.port(), Line::port);
        let options = ServerOptions {
            create_extension: false,
            port: None,
            data_dir: None,
            keep_running: false,
            ..primary.options().clone()
        };
        let source = format!(
            "host={} port={port} user=postgres",
            primary.host().display()
        );
        let options = options
            .set("cluster_name", name)
            .set("primary_conninfo", source)
            .set("wal_retrieve_retry_interval", "100ms");
        let server = Server::start_on(primary.install(), options, |_, _, folder| {
            copy(primary, folder)
        })
        .with_context(|| format!("could not start standby {name}"))?;
        let standby = Standby {
            name: name.to_owned(),
            server,
            line,
        };
        standby.wait_until_streaming(primary)?;
        Ok(standby)
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The line to the primary. Error if the connection is direct.
    pub fn line(&self) -> Result<&Line> {
        let line = self.line.as_ref();
        line.with_context(|| format!("standby {} has no line", self.name))
    }

    /// Waits until `primary` streams WAL to it and it has caught up.
    pub fn wait_until_streaming(&self, primary: &Server) -> Result<()> {
        let streaming = format!(
            "SELECT count(*) > 0 FROM pg_stat_replication \
             WHERE application_name = '{}' AND state = 'streaming'",
            self.name
        );
        self.wait_until(&mut primary.connect()?, &streaming)
    }

    /// Waits until it has replayed all that `primary` has written up to now.
    pub fn wait_until_caught_up(&self, primary: &Server) -> Result<()> {
        let mut client = primary.connect()?;
        // Flushes WAL, which nobody may have done yet after the last changes.
        client.batch_execute("CHECKPOINT")?;
        let end: String = client
            .query_one("SELECT pg_current_wal_flush_lsn()::text", &[])?
            .get(0);
        let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
        self.wait_until(&mut self.server.connect()?, &replayed)
    }

    /// Ends the connection to the primary for good, with what is under way, and waits until all
    /// that has arrived is on disk. A direct connection ends with its primary only.
    pub fn disconnect(&mut self) -> Result<()> {
        self.line = None;
        let alone = "SELECT count(*) = 0 FROM pg_stat_wal_receiver";
        self.wait_until(&mut self.server.connect()?, alone)
    }

    /// The WAL position up to which it has received everything, in bytes; final once it is
    /// disconnected. The standby that is furthest is the one to promote.
    pub fn received(&self) -> Result<i64> {
        let sql = "SELECT (pg_last_wal_receive_lsn() - '0/0')::bigint";
        Ok(self.server.connect()?.query_one(sql, &[])?.get(0))
    }

    /// Makes it a primary, with all the WAL that it has received.
    pub fn promote(mut self) -> Result<Server> {
        self.disconnect()?;
        let sql = format!("SELECT pg_promote(true, {})", PATIENCE.as_secs());
        let promoted: bool = self.server.connect()?.query_one(&sql, &[])?.get(0);
        if !promoted {
            bail!("{}", self.failure("is not promoted"));
        }
        Ok(self.server)
    }

    fn wait_until(&self, client: &mut Client, sql: &str) -> Result<()> {
        wait_until(client, sql).with_context(|| self.failure("does not get there"))
    }

    fn failure(&self, what: &str) -> String {
        let log = self.server.log().unwrap_or_default();
        format!("standby {} {what}; its log:\n{log}", self.name)
    }
}

impl Server {
    /// Sets `synchronous_standby_names`. When this returns, commits that begin wait for these
    /// standbys, or for none if `names` is empty. Commits that no longer have to wait have been let
    /// go.
    pub fn set_synchronous_standbys(&self, names: &str) -> Result<()> {
        let mut client = self.connect()?;
        client.batch_execute(&format!(
            "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
        ))?;
        self.reload()?;
        // A session has the setting before the checkpointer has, who tells all the others. A new
        // session comes after the postmaster has signalled everybody; the first checkpoint may
        // still begin without the signal.
        let set = format!("SELECT current_setting('synchronous_standby_names') = '{names}'");
        wait_until(&mut client, &set)?;
        self.connect()?.batch_execute("CHECKPOINT; CHECKPOINT")?;
        Ok(())
    }
}

/// Waits until `sql` is true.
fn wait_until(client: &mut Client, sql: &str) -> Result<()> {
    let began = Instant::now();
    while !client.query_one(sql, &[])?.get::<_, bool>(0) {
        if began.elapsed() > PATIENCE {
            bail!("after {} s it is still not so: {sql}", PATIENCE.as_secs());
        }
        sleep(TICK);
    }
    Ok(())
}

/// Fills `folder` with a copy of `primary` that starts as a standby.
fn copy(primary: &Server, folder: &Path) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let mut backup = primary.command("pg_basebackup");
    backup.args(["--checkpoint=fast", "--no-sync", "--pgdata"]);
    run(backup.arg(folder))?;
    let signal = folder.join("standby.signal");
    fs::write(&signal, "")?;
    primary.user().own(&signal)
}
