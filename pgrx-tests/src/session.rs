//! Sessions of a scenario told step by step: statements that wait, and waiting for a state.
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use pgserver::Server;
use postgres::{Client, Error};

use crate::watchdog::{who_waits, who_waits_anywhere};
use crate::{int, read};

/// A wait of a test that takes longer has no end. Shorter than the watchdog's patience, so that the
/// test itself says for what it waits.
const LIMIT: Duration = Duration::from_secs(45);
const TICK: Duration = Duration::from_millis(10);

/// A session with group locking in which every row updated by key is hot. Waiters go on in order of
/// arrival, and functions pass the row on, however fast the machine is.
pub fn grouped(server: &Server) -> Result<Client> {
    let mut client = server.connect()?;
    client.batch_execute(
        "SET txn.group_lock = on; SET txn.hot_threshold = 0; SET txn.newest_first = 0;
         SET txn.brief_turn = 0",
    )?;
    Ok(client)
}

/// A session that waits for no standby, neither with its commits nor with what it reads.
pub fn local(server: &Server) -> Result<Client> {
    let mut client = server.connect()?;
    client.batch_execute("SET synchronous_commit = local")?;
    Ok(client)
}

/// Fails unless at least so many updates have followed another since the server's start: a scenario
/// about followers that has none tells nothing.
pub fn expect_followed(client: &mut Client, updates: i64) -> Result<()> {
    let followed = int(client, "SELECT followed FROM txn.stats")?;
    ensure!(
        followed >= updates,
        "{followed} have followed, not {updates}"
    );
    Ok(())
}

/// The process behind a session.
pub fn pid(client: &mut Client) -> Result<i32> {
    read(client, "SELECT pg_backend_pid()")
}

/// Looks until `sql` gives true.
pub fn wait_until(client: &mut Client, sql: &str) -> Result<()> {
    until(client, sql, |client| {
        Ok(read::<Option<bool>>(client, sql)?.unwrap_or(false))
    })
}

/// Looks until `come` gives true. If that takes too long it is an error. The error says for what
/// the test waited, and which backends wait for which in the server of `client`.
pub fn until(
    client: &mut Client,
    what: &str,
    mut come: impl FnMut(&mut Client) -> Result<bool>,
) -> Result<()> {
    let began = Instant::now();
    while !come(client)? {
        if began.elapsed() > LIMIT {
            let who = who_waits(client);
            bail!("waited for {} s until {what}\n{who}", LIMIT.as_secs());
        }
        sleep(TICK);
    }
    Ok(())
}

/// Waits for the end of a thread; an error that says who waits for whom if it does not come.
pub fn join<T>(thread: JoinHandle<T>, what: &str) -> Result<T> {
    let began = Instant::now();
    while !thread.is_finished() {
        if began.elapsed() > LIMIT {
            let who = who_waits_anywhere();
            bail!("{what} has not ended in {} s\n{who}", LIMIT.as_secs());
        }
        sleep(Duration::from_millis(1));
    }
    match thread.join() {
        Ok(end) => Ok(end),
        Err(_) => bail!("{what} panicked"),
    }
}

/// A statement that runs, and most likely waits, beside the test; `T` comes of it.
pub struct Background<T = ()> {
    pub pid: i32,
    thread: JoinHandle<(Client, Result<T, Error>)>,
}

impl Background {
    /// Starts `sql` in the session of `client`.
    pub fn run(mut client: Client, sql: &str) -> Result<Self> {
        let pid = pid(&mut client)?;
        Ok(Self::run_as(client, pid, sql))
    }

    /// Starts a statement in the session of `client`, whose process is `pid`: within a transaction
    /// that is not to be disturbed by the question.
    pub fn run_as(client: Client, pid: i32, sql: &str) -> Self {
        let sql = sql.to_owned();
        Self::call(client, pid, move |client| client.batch_execute(&sql))
    }
}

impl<T: Send + 'static> Background<T> {
    /// Starts `work` in the session of `client`, whose process is `pid`.
    pub fn call(
        mut client: Client,
        pid: i32,
        work: impl FnOnce(&mut Client) -> Result<T, Error> + Send + 'static,
    ) -> Self {
        let thread = spawn(move || {
            let result = work(&mut client);
            (client, result)
        });
        Background { pid, thread }
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until a point of `txn.stop_at` has stopped the session, whose lock a test holds.
    pub fn wait_until_stopped(&self, client: &mut Client) -> Result<()> {
        let sql = format!(
            "SELECT count(*) > 0 FROM pg_locks \
             WHERE pid = {} AND locktype = 'advisory' AND NOT granted",
            self.pid
        );
        wait_until(client, &sql)
    }

    /// Waits until the statement sleeps in any wait but for its client; an error if it ends.
    pub fn wait_until_blocked(&self, client: &mut Client) -> Result<()> {
        let sql = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = {} AND state = 'active' \
             AND wait_event IS NOT NULL AND wait_event_type NOT IN ('Client', 'LWLock', 'IO')",
            self.pid
        );
        let what = format!("the statement of process {} sleeps", self.pid);
        until(client, &what, |client| {
            let sleeps = read::<bool>(client, &sql)?;
            ensure!(
                sleeps || !self.is_finished(),
                "the statement of process {} did not wait",
                self.pid
            );
            Ok(sleeps)
        })
    }

    /// Waits for its end; its session, and what came of it.
    pub fn end(self) -> Result<(Client, Result<T, Error>)> {
        join(
            self.thread,
            &format!("the statement of process {}", self.pid),
        )
    }
}

/// The SQLSTATE of a result; "00000" for success, "lost" for a connection that just broke.
pub fn sqlstate<T>(result: &Result<T, Error>) -> String {
    match result {
        Ok(_) => "00000".to_owned(),
        Err(error) => match error.code() {
            Some(code) => code.code().to_owned(),
            None => "lost".to_owned(),
        },
    }
}
