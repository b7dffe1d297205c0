//! kill -9 of the coordinator, of one of its backends and of a node, at each point of a COMMIT:
//! afterwards all places agree, with each other and with what the client was told.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pgserver::signal;
use txn_server_tests::{Background, int, sqlstate, until};

use super::transactions::wait_until_nothing_is_open;
use super::{Cluster, transfer};
use txn_server_tests::geo::{POINTS, Stopped};

/// The numbers of the transfers that have to have committed so far.
#[derive(Default)]
struct Expected(Vec<i64>);

impl Expected {
    /// Transfer `number` has committed if it was decided. What the client was told may be less.
    fn check(&mut self, cluster: &Cluster, number: i64, decided: bool) -> Result<()> {
        if decided {
            self.0.push(number);
        }
        cluster.expect_committed(&self.0)?;
        wait_until_nothing_is_open(cluster)
    }
}

#[test]
fn the_coordinator() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut expected = Expected::default();
    for (number, (point, decided)) in (1..).zip(POINTS) {
        let stopped = cluster.stop_at(point, number)?;
        cluster.kill_coordinator()?;
        let told = stopped.told()?;
        ensure!(told == "lost", "{point}: {told}");
        expected.check(&cluster, number, decided).context(point)?;
    }
    Ok(())
}

/// The postmaster alone is killed: the backends end when they notice that. Until then COMMIT may
/// go on, for the session that holds it may be the first to end.
#[test]
fn the_coordinators_postmaster() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    for (number, (point, decided)) in (1..).zip(POINTS) {
        let stopped = cluster.stop_at(point, number)?;
        cluster.dog.progress();
        cluster.coordinator.kill9()?;
        cluster.coordinator.start_again()?;
        let told = stopped.told()?;
        let committed = cluster.committed()?.contains(&number);
        ensure!(
            committed || !decided && told != "00000",
            "{point}: {number} is lost, and its client was told {told}"
        );
        wait_until_nothing_is_open(&cluster)?;
    }
    Ok(())
}

/// PostgreSQL restarts all of itself when a backend dies so; shared memory starts anew.
#[test]
fn the_backend_that_commits() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut expected = Expected::default();
    for (number, (point, decided)) in (1..).zip(POINTS) {
        let stopped = cluster.stop_at(point, number)?;
        signal(stopped.pid(), libc::SIGKILL)?;
        let told = stopped.told()?;
        ensure!(
            ["lost", "57P02"].contains(&told.as_str()),
            "{point}: {told}"
        );
        wait_until_back(&cluster)?;
        expected.check(&cluster, number, decided).context(point)?;
    }
    Ok(())
}

/// Waits until the coordinator takes connections, again and in full.
fn wait_until_back(cluster: &Cluster) -> Result<()> {
    for _ in 0..3000 {
        if let Ok(mut client) = cluster.session()
            && int(&mut client, "SELECT 1").is_ok()
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("the coordinator has not come back")
}

/// The node is back before the COMMIT goes on.
#[test]
fn a_node() -> Result<()> {
    for node in 0..2 {
        let mut cluster = Cluster::start(2)?;
        let mut expected = Expected::default();
        for (number, (point, _)) in (1..).zip(POINTS) {
            let mut stopped = cluster.stop_at(point, number)?;
            cluster.kill_node(node, true)?;
            stopped.release()?;
            // All have voted YES, and their votes outlive them.
            stopped
                .end()?
                .1
                .with_context(|| format!("{point}, node {node}"))?;
            expected.check(&cluster, number, true).context(point)?;
        }
    }
    Ok(())
}

/// The node comes back after COMMIT has ended, successfully if it was decided.
#[test]
fn a_node_that_stays_away() -> Result<()> {
    for node in 0..2 {
        let mut cluster = Cluster::start(2)?;
        let mut expected = Expected::default();
        for (number, (point, _)) in (1..).zip(POINTS) {
            let mut stopped = cluster.stop_at(point, number)?;
            cluster.kill_node(node, false)?;
            stopped.release()?;
            stopped
                .end()?
                .1
                .with_context(|| format!("{point}, node {node}"))?;
            cluster.start_node(node)?;
            expected.check(&cluster, number, true).context(point)?;
        }
    }
    Ok(())
}

#[test]
fn the_coordinator_and_a_node() -> Result<()> {
    for node_first in [false, true] {
        let mut cluster = Cluster::start(2)?;
        let mut expected = Expected::default();
        for (number, (point, decided)) in (1..).zip(POINTS) {
            let stopped = cluster.stop_at(point, number)?;
            cluster.kill_node(1, false)?;
            cluster.coordinator.kill9_all()?;
            ensure!(stopped.told()? == "lost");
            if node_first {
                cluster.start_node(1)?;
                cluster.coordinator.start_again()?;
            } else {
                cluster.coordinator.start_again()?;
                // Some passes of the resolver find no node 1.
                std::thread::sleep(Duration::from_secs(1));
                cluster.start_node(1)?;
            }
            expected.check(&cluster, number, decided).context(point)?;
        }
    }
    Ok(())
}

/// A node dies while it has not voted: NO. A part that is prepared elsewhere rolls back.
#[test]
fn a_node_before_its_vote() -> Result<()> {
    for starts_again in [true, false] {
        let mut cluster = Cluster::start(2)?;
        let mut client = cluster.session()?;
        client.batch_execute(&format!("BEGIN; {}", transfer(1)))?;
        cluster.line(1).cut();
        let commit = Background::run(client, "COMMIT")?;
        cluster.wait_until_prepared(0)?;
        cluster.kill_node(1, starts_again)?;
        cluster.line(1).break_connections();
        cluster.line(1).heal();
        let told = sqlstate(&commit.end()?.1);
        ensure!(told != "00000", "a vote was missing");
        if !starts_again {
            cluster.start_node(1)?;
        }
        Expected::default().check(&cluster, 1, false)?;
    }
    Ok(())
}

/// The PREPARE of a dead coordinator arrives after its restart: a later pass finds it.
#[test]
fn a_prepare_that_arrives_after_the_coordinators_death() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}", transfer(1)))?;
    cluster.line(1).cut();
    let commit = Background::run(client, "COMMIT")?;
    cluster.wait_until_prepared(0)?;
    // Then PREPARE is in the line to node 1.
    commit.wait_until_blocked(&mut cluster.session()?)?;
    let mut node = cluster.node(1).connect()?;
    let before = prepares(&cluster)?;
    cluster.kill_coordinator()?;
    let told = sqlstate(&commit.end()?.1);
    ensure!(told == "lost", "{told}");
    // The part at node 0 has ended, though node 1 cannot be reached.
    until(&mut node, "the part at node 0 has rolled back", |_| {
        Ok(cluster.prepared()?.is_empty())
    })?;
    cluster.line(1).heal();
    until(&mut node, "PREPARE has arrived at node 1", |_| {
        Ok(prepares(&cluster)? > before)
    })?;
    Expected::default().check(&cluster, 1, false)
}

/// How often PREPARE TRANSACTION has come to node 1.
fn prepares(cluster: &Cluster) -> Result<usize> {
    Ok(cluster
        .node(1)
        .log()?
        .matches("PREPARE TRANSACTION")
        .count())
}

/// Rows of a part in doubt: readers see the old version, writers wait, and then go on.
#[test]
fn others_while_a_part_is_in_doubt() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut stopped: Stopped = cluster.stop_at("geo_prepared", 1)?;
    let mut reader = cluster.session()?;
    let balance = "SELECT balance FROM account WHERE id = 1001";
    ensure!(
        int(&mut reader, balance)? == 101,
        "what is in doubt was seen"
    );
    let mut node = cluster.node(1).connect()?;
    ensure!(int(&mut node, balance)? == 101, "what is in doubt was seen");
    let bump = "UPDATE account SET balance = balance + 5 WHERE id = 1001";
    let writer = Background::run(cluster.session()?, bump)?;
    txn_server_tests::wait_until(
        &mut node,
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    )?;
    ensure!(!stopped.is_finished() && !writer.is_finished());
    stopped.release()?;
    stopped.end()?.1?;
    writer.end()?.1?;
    ensure!(int(&mut reader, balance)? == 107, "an update was lost");
    Ok(())
}
