//! Sessions terminated, cancelled and timed out at random, in every wait there is.
use anyhow::{Result, ensure};
use pgserver::Server;
use rand::Rng;
use txn_server_tests::{
    Load, Running, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
};

/// 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
const RETRY: [&str; 2] = ["40001", "40P01"];
const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// Calls `function(pid)` for one busy session of the load after each `step` transactions.
fn disturb(server: &Server, running: &Running, function: &str, step: usize) -> Result<()> {
    let mut client = server.connect()?;
    let sql = format!(
        "SELECT {function}(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
         AND backend_type = 'client backend' AND state <> 'idle' ORDER BY random() LIMIT 1"
    );
    let mut done = 0;
    let mut hits = 0;
    while running.wait_for(done + step) {
        done = running.done();
        hits += client.query(&sql, &[])?.len();
    }
    ensure!(hits > 0, "no session was ever hit");
    Ok(())
}

fn under_fire(function: &str, also: &[&str]) -> Result<()> {
    let server = start_hot(1, &[])?;
    let tally = Load::new(&server, 64, 80).grouped().run_disturbed(
        |worker| {
            if worker.number % 4 == 0 {
                return worker.committing(1, |worker| worker.execute(BUMP, &[]));
            }
            worker.begin()?;
            worker.execute(BUMP, &[])?;
            match worker.chance(2) {
                true => worker.rollback(),
                false => worker.commit(1),
            }
        },
        |running| disturb(&server, running, function, 15),
    )?;
    tally.only(&[&RETRY, also].concat())?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}

#[test]
fn sessions_terminated() -> Result<()> {
    under_fire("pg_terminate_backend", &["57P01", "lost"])
}

#[test]
fn statements_cancelled() -> Result<()> {
    under_fire("pg_cancel_backend", &["57014"])
}

fn timed_out(setting: &'static str, code: &str) -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "5ms")])?;
    let tally = Load::new(&server, 64, 60).grouped().run(|worker| {
        // Some have no limit, so that something always gets through.
        let limit = [0, 0, 3, 10, 40][worker.rng.random_range(0..5)];
        worker.simple(&format!("BEGIN; SET LOCAL {setting} = {limit}"))?;
        worker.execute(BUMP, &[])?;
        match worker.chance(2) {
            true => worker.rollback(),
            false => worker.commit(1),
        }
    })?;
    tally.only(&[&RETRY[..], &[code]].concat())?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}

#[test]
fn statement_timeouts() -> Result<()> {
    timed_out("statement_timeout", "57014")
}

#[test]
fn lock_timeouts() -> Result<()> {
    timed_out("lock_timeout", "55P03")
}

/// A leader that falls asleep is ended by its own timeout, and its follower is told to retry.
#[test]
fn idle_leader_is_ended() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(idle_leader(&server))
}

fn idle_leader(server: &Server) -> Result<()> {
    let mut leader = grouped(server)?;
    leader.batch_execute("SET idle_in_transaction_session_timeout = '300ms'; BEGIN")?;
    let mut follower = grouped(server)?;
    follower.batch_execute("BEGIN")?;
    leader.batch_execute(BUMP)?;
    follower.batch_execute(BUMP)?;
    expect_followed(&mut server.connect()?, 1)?;
    let told = sqlstate(&follower.batch_execute("COMMIT"));
    ensure!(told == "40001", "the follower was told {told}");
    follower.batch_execute(BUMP)?;
    drop((leader, follower));
    let val = int(&mut server.connect()?, "SELECT val FROM hot")?;
    ensure!(val == 1, "the value is {val}");
    physical_health(server, "hot", "id")
}
