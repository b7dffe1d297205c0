//! Sessions terminated at the named points of the code (a library with the feature `stop_events`):
//! whoever is ahead is left alone, whoever is behind goes on or is told to retry, and the row is
//! right and free afterwards.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// What a terminated session is told, if it is still told anything.
const TERMINATED: [&str; 2] = ["57P01", "lost"];

/// The key of the lock that a point takes.
fn key(point: &str) -> String {
    format!("hashtext('txn.{point}')")
}

/// T1 leads, T2 follows and is terminated at `point`, T3 comes behind T2.
fn follower_terminated_at(point: &str) -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "10ms")])?;
    let dog = Watchdog::new(&server);
    dog.finish(terminate_follower(&server, point))
}

fn terminate_follower(server: &Server, point: &str) -> Result<()> {
    let mut control = server.connect()?;
    let mut first = grouped(server)?;
    first.batch_execute("BEGIN")?;
    first.batch_execute(BUMP)?;
    control.batch_execute(&format!("SELECT pg_advisory_lock({})", key(point)))?;

    let mut second = grouped(server)?;
    second
        .batch_execute(&format!("SET txn.stop_at = '{point}'"))
        .context("the library has to be built with --features stop_events")?;
    let in_commit = point.ends_with("commit_wait");
    let second = if in_commit {
        second.batch_execute("BEGIN")?;
        second.batch_execute(BUMP)?;
        Background::run(second, "COMMIT")?
    } else {
        Background::run(second, BUMP)?
    };
    let third = Background::run(grouped(server)?, BUMP)?;
    let mut open = Some(first);
    if point == "after_commit_wait"
        && let Some(mut first) = open.take()
    {
        first.batch_execute("COMMIT")?;
    }
    second.wait_until_stopped(&mut control)?;
    third.wait_until_blocked(&mut control)?;
    expect_followed(&mut control, i64::from(point != "ticket_taken"))?;
    control.query("SELECT pg_terminate_backend($1)", &[&second.pid])?;
    let told = sqlstate(&second.end()?.1);
    ensure!(
        TERMINATED.contains(&told.as_str()),
        "the terminated session was told {told}"
    );
    control.batch_execute("SELECT pg_advisory_unlock_all()")?;
    if let Some(mut first) = open.take() {
        first
            .batch_execute("COMMIT")
            .context("the leader has nothing to do with it")?;
    }
    let (session, result) = third.end()?;
    let told = sqlstate(&result);
    ensure!(
        ["00000", "40001"].contains(&told.as_str()),
        "who came behind was told {told}"
    );
    ensure!(
        point != "ticket_taken" || told == "00000",
        "who came behind had built on nothing, and was told {told}"
    );
    drop(session);
    grouped(server)?
        .batch_execute(BUMP)
        .context("the row is free again")?;
    let expected = 2 + i64::from(told == "00000");
    let val = int(&mut control, "SELECT val FROM hot")?;
    ensure!(val == expected, "the value is {val} instead of {expected}");
    drop(control);
    physical_health(server, "hot", "id")
}

/// T1 leads and is terminated at `point`; T2 comes behind.
fn leader_terminated_at(point: &str) -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "10ms")])?;
    let dog = Watchdog::new(&server);
    dog.finish(terminate_leader(&server, point))
}

fn terminate_leader(server: &Server, point: &str) -> Result<()> {
    let mut control = server.connect()?;
    control.batch_execute(&format!("SELECT pg_advisory_lock({})", key(point)))?;
    let mut leader = grouped(server)?;
    leader
        .batch_execute(&format!("SET txn.stop_at = '{point}'"))
        .context("the library has to be built with --features stop_events")?;
    leader.batch_execute("BEGIN")?;
    let leader = if point.ends_with("commit_wait") {
        leader.batch_execute(BUMP)?;
        Background::run(leader, "COMMIT")?
    } else {
        Background::run(leader, BUMP)?
    };
    leader.wait_until_stopped(&mut control)?;
    let second = Background::run(grouped(server)?, BUMP)?;
    second.wait_until_blocked(&mut control)?;
    expect_followed(&mut control, i64::from(point != "ticket_taken"))?;
    control.query("SELECT pg_terminate_backend($1)", &[&leader.pid])?;
    let told = sqlstate(&leader.end()?.1);
    ensure!(
        TERMINATED.contains(&told.as_str()),
        "the terminated session was told {told}"
    );
    control.batch_execute("SELECT pg_advisory_unlock_all()")?;
    let (session, result) = second.end()?;
    let told = sqlstate(&result);
    ensure!(
        ["00000", "40001"].contains(&told.as_str()),
        "the follower was told {told}"
    );
    drop(session);
    grouped(server)?
        .batch_execute(BUMP)
        .context("the row is free again")?;
    let expected = 1 + i64::from(told == "00000");
    let val = int(&mut control, "SELECT val FROM hot")?;
    ensure!(val == expected, "the value is {val} instead of {expected}");
    drop(control);
    physical_health(server, "hot", "id")
}

#[test]
fn follower_with_the_ticket() -> Result<()> {
    follower_terminated_at("ticket_taken")
}

#[test]
fn follower_after_its_update() -> Result<()> {
    follower_terminated_at("updated")
}

#[test]
fn follower_before_it_waits_to_commit() -> Result<()> {
    follower_terminated_at("before_commit_wait")
}

#[test]
fn follower_with_permission_to_commit() -> Result<()> {
    follower_terminated_at("after_commit_wait")
}

#[test]
fn leader_with_the_ticket() -> Result<()> {
    leader_terminated_at("ticket_taken")
}

#[test]
fn leader_after_its_update() -> Result<()> {
    leader_terminated_at("updated")
}

#[test]
fn leader_before_it_waits_to_commit() -> Result<()> {
    leader_terminated_at("before_commit_wait")
}

#[test]
fn leader_with_permission_to_commit() -> Result<()> {
    leader_terminated_at("after_commit_wait")
}
