//! The line before contended rows (`txn.geo_schedule = forecast` and `admission`).
use anyhow::{Context, Result, ensure};
use txn_server_tests::{Background, sqlstate, wait_until};

use super::Cluster;
use super::forecast::{KNOWN, TOUCH, cluster, hold, learn, wait_until_waiting};

/// Starts an update of row 1 of node 0 by a session that may have to stand in line.
fn touch(cluster: &Cluster, schedule: &str) -> Result<Background> {
    let mut client = cluster.session()?;
    client.batch_execute(&format!(
        "SET txn.geo_schedule = {schedule}; SET txn.geo_lock_timeout = 0"
    ))?;
    Background::run(client, TOUCH)
}

/// Waits until so many are at work on that row, and so many stand in line before it.
fn wait_until_in_line(cluster: &Cluster, at_work: i64, in_line: i64) -> Result<()> {
    let all = format!("in_flight = {at_work} AND in_line = {in_line}");
    let known = format!("SELECT bool_and({all}) {KNOWN}");
    wait_until(&mut cluster.session()?, &known).with_context(|| all)
}

/// Three transactions on a contended row are at its node. The others stand in line, and none fails.
#[test]
fn a_contended_row_is_waited_for_in_line() -> Result<()> {
    let (cluster, client) = cluster()?;
    drop(learn(&cluster, client, 1.0)?);
    let mut holder = hold(&cluster)?;
    let schedules = ["forecast", "admission"].into_iter().cycle().take(8);
    let all = schedules.map(|schedule| touch(&cluster, schedule));
    let all: Vec<Background> = all.collect::<Result<_>>()?;
    wait_until_in_line(&cluster, 3, 5)?;
    wait_until_waiting(&cluster, 0, 3)?;
    holder.batch_execute("ROLLBACK")?;
    for one in all {
        one.end()?.1?;
    }
    wait_until_in_line(&cluster, 0, 0)?;
    let tries = format!("SELECT bool_and(tries = commits) {KNOWN}");
    wait_until(&mut cluster.session()?, &tries)
}

/// A session that is cancelled or terminated in line has left it; one that stands there for long
/// goes on.
#[test]
fn the_line_is_left() -> Result<()> {
    let (cluster, client) = cluster()?;
    drop(learn(&cluster, client, 1.0)?);
    let mut control = cluster.session()?;
    let mut holder = hold(&cluster)?;
    let mut all = Vec::new();
    for at_work in 1..=3 {
        all.push(touch(&cluster, "forecast")?);
        wait_until_in_line(&cluster, at_work, 0)?;
    }
    // The last message of a terminated session may be lost with its connection.
    for (end, codes) in [
        ("cancel", &["57014"][..]),
        ("terminate", &["57P01", "lost"]),
    ] {
        let one = touch(&cluster, "forecast")?;
        wait_until_in_line(&cluster, 3, 1)?;
        control.batch_execute(&format!("SELECT pg_{end}_backend({})", one.pid))?;
        wait_until_in_line(&cluster, 3, 0)?;
        let told = sqlstate(&one.end()?.1);
        ensure!(codes.contains(&&*told), "{told} after {end}");
    }
    all.push(touch(&cluster, "forecast")?);
    wait_until_in_line(&cluster, 3, 1)?;
    wait_until_in_line(&cluster, 4, 0)?;
    holder.batch_execute("ROLLBACK")?;
    for one in all {
        one.end()?.1?;
    }
    wait_until_in_line(&cluster, 0, 0)
}
