//! Faults from outside: who is struck, and how the server comes back.
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pgserver::{Server, StopMode, signal};
use postgres::Client;

use super::client::LOAD;
use super::disk::Disk;
use super::plan::{Aim, Fault, Hit, Strike};
use crate::Watchdog;

const TICK: Duration = Duration::from_millis(5);
/// How long we lie in wait for somebody to come to where we aim.
const LOOKS: usize = 150;
/// Sessions end while we aim at them.
const ATTEMPTS: usize = 50;
/// How long a server may take to be there again, or to notice a killed backend.
const PATIENCE: Duration = Duration::from_secs(60);

/// Strikes; when it returns the server takes connections again.
pub fn strike(
    server: &mut Server,
    disk: Option<&Disk>,
    strike: &Strike,
    dog: &Watchdog,
) -> Result<Hit> {
    for _ in 0..ATTEMPTS {
        dog.progress();
        let mut control = connect(server)?;
        let Ok((aim, pid)) = victim(&mut control, strike.aim) else {
            continue;
        };
        let struck = match (strike.fault, pid) {
            (Fault::KillPostmaster, _) => {
                server.kill9()?;
                server.start_again()?;
                true
            }
            (Fault::Immediate, _) => stop(server, StopMode::Immediate)?,
            (Fault::Fast, _) => stop(server, StopMode::Fast)?,
            (Fault::DiskFull, _) => {
                let disk = disk.context("the disk is not small")?;
                disk.fill_up(server, &mut control)?
            }
            (Fault::Cancel, Some(pid)) => ask(&mut control, "pg_cancel_backend", pid),
            (Fault::Terminate, Some(pid)) => ask(&mut control, "pg_terminate_backend", pid),
            (Fault::KillBackend, Some(pid)) => {
                signal(pid, libc::SIGKILL).is_ok() && noticed(&mut control)
            }
            (_, None) => false,
            (Fault::Timeout | Fault::Cut, _) => bail!("{} comes from clients", strike.fault),
        };
        // A session that is held at the point goes on when the connection closes.
        drop(control);
        if struck {
            connect(server)?;
            dog.progress();
            return Ok(Hit {
                fault: strike.fault,
                aim,
            });
        }
    }
    bail!("nobody could be struck: {strike:?}")
}

/// A connection, as soon as the server gives one.
pub fn connect(server: &Server) -> Result<Client> {
    let began = Instant::now();
    loop {
        match server.connect() {
            Ok(client) => return Ok(client),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => sleep(TICK),
        }
    }
}

/// Sessions that are held at the point whose lock is ours. Where they cannot fail they show the
/// wait event PgSleep; nobody else does.
const HELD: &str = "SELECT held.pid FROM pg_locks held JOIN pg_locks ours \
    USING (locktype, database, classid, objid, objsubid) \
    WHERE locktype = 'advisory' AND NOT held.granted AND ours.pid = pg_backend_pid() \
    UNION SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'";

/// Somebody who does what we aim at; if nobody comes, anybody busy.
fn victim(control: &mut Client, aim: Aim) -> Result<(Aim, Option<i32>)> {
    if let Aim::Point(name) | Aim::Behind(name) = aim {
        control.batch_execute(&format!("SELECT pg_advisory_lock(hashtext('txn.{name}'))"))?;
    }
    let load = format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{LOAD}'");
    let sql = match aim {
        Aim::Busy => format!("{load} AND state <> 'idle'"),
        Aim::Flush => format!("{load} AND wait_event IN ('WALSync', 'WALWrite')"),
        Aim::Wait(reason) => format!("SELECT pid FROM txn.waits WHERE reason = '{reason}'"),
        Aim::Point(_) => HELD.to_owned(),
        Aim::Behind(_) => format!("{load} AND wait_event_type = 'Extension' AND EXISTS ({HELD})"),
    };
    let sql = format!("SELECT pid FROM ({sql}) AS found ORDER BY random() LIMIT 1");
    for _ in 0..LOOKS {
        if let Some(row) = control.query_opt(&sql, &[])? {
            return Ok((aim, Some(row.get(0))));
        }
        sleep(TICK);
    }
    match aim {
        Aim::Busy => Ok((aim, None)),
        _ => victim(control, Aim::Busy),
    }
}

fn ask(control: &mut Client, function: &str, pid: i32) -> bool {
    let row = control.query_one(&format!("SELECT {function}($1)"), &[&pid]);
    row.is_ok_and(|row| row.get(0))
}

/// PostgreSQL ends all sessions when a backend dies so, unless it was ending anyway.
fn noticed(control: &mut Client) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if control.simple_query("SELECT 1").is_err() {
            return true;
        }
        sleep(TICK);
    }
    false
}

fn stop(server: &mut Server, mode: StopMode) -> Result<bool> {
    server.stop(mode)?;
    server.start_again()?;
    Ok(true)
}

/// Ends what is prepared as its name says, `c-` or `r-`, until no session and nothing prepared is
/// left.
pub fn settle(client: &mut Client) -> Result<()> {
    let began = Instant::now();
    loop {
        finish_prepared(client, |_| true)?;
        let left: i64 = client
            .query_one(
                "SELECT (SELECT count(*) FROM pg_prepared_xacts) + (SELECT count(*) FROM \
                 pg_stat_activity WHERE backend_type = 'client backend' \
                 AND pid <> pg_backend_pid())",
                &[],
            )?
            .get(0);
        if left == 0 {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{left} sessions or prepared transactions do not end"
        );
        sleep(TICK);
    }
}

/// Ends those prepared transactions that `now` says.
pub fn finish_prepared(
    client: &mut Client,
    mut now: impl FnMut(&str) -> bool,
) -> Result<(), postgres::Error> {
    for row in client.query("SELECT gid FROM pg_prepared_xacts", &[])? {
        let gid: String = row.get(0);
        if now(&gid) {
            let verb = if gid.starts_with('c') {
                "COMMIT"
            } else {
                "ROLLBACK"
            };
            let result = client.batch_execute(&format!("{verb} PREPARED '{gid}'"));
            // Its own session may still be busy with it.
            if let Err(error) = result
                && error.as_db_error().is_none()
            {
                return Err(error);
            }
        }
    }
    Ok(())
}
