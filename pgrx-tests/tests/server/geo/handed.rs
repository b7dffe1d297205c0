//! `txn.geo_answer = decided`: the session hands its commit over, and the resolver sends COMMIT
//! PREPARED to all nodes at once.
use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::{int, until};

use super::snapshot::{GLOBAL, Reader, session};
use super::{Cluster, Settings, transfer};

/// The resolver makes no pass of its own accord.
const SETTINGS: Settings = &[
    ("txn.geo_resolver_interval", "1h"),
    ("txn.geo_schedule", "off"),
    ("txn.geo_answer", "decided"),
];

const PASSES: &str = "SELECT max(passes) FROM txn.geo_resolver()";

/// The resolver has connections to all nodes, and nothing to do.
fn cluster() -> Result<Cluster> {
    let cluster = Cluster::with(2, SETTINGS, &[])?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    until(&mut client, "the first transfer is applied", |client| {
        client.batch_execute("SELECT txn.geo_wake()")?;
        let left = int(client, "SELECT count(*) FROM txn.geo_decision")?;
        Ok(left == 0 && cluster.prepared()?.is_empty())
    })?;
    Ok(cluster)
}

fn commits_sent(cluster: &Cluster, node: usize) -> Result<usize> {
    let log = cluster.node(node).log()?;
    Ok(log.matches(": COMMIT PREPARED 'txn/").count())
}

/// A session that uses the nodes next waits for the answers to COMMIT PREPARED, which is sent once,
/// and for no pass over all nodes.
#[test]
fn who_comes_next_waits_for_no_pass() -> Result<()> {
    const TRANSFERS: i64 = 10;
    let cluster = cluster()?;
    let [mut writer, mut reader] = [cluster.session()?, cluster.session()?];
    let before = int(&mut reader, PASSES)?;
    let sent = [0, 1].map(|node| commits_sent(&cluster, node));
    for number in 2..2 + TRANSFERS {
        writer.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))?;
        for trace in ["trace_0", "trace_1"] {
            let sql = format!("SELECT count(*) FROM {trace} WHERE number = {number}");
            ensure!(
                int(&mut reader, &sql)? == 1,
                "{number} is not seen: {trace}"
            );
        }
    }
    // The last of those that the first transfer has caused may have been under way.
    let passes = int(&mut reader, PASSES)? - before;
    ensure!(passes <= 2, "{passes} passes");
    for (node, sent) in sent.into_iter().enumerate() {
        let sent = commits_sent(&cluster, node)? - sent?;
        ensure!(
            sent == TRANSFERS as usize,
            "{sent} times COMMIT PREPARED at node {node}"
        );
    }
    reader.batch_execute("SELECT txn.geo_wake()")?;
    let all: Vec<i64> = (1..2 + TRANSFERS).collect();
    cluster.expect_committed(&all)
}

/// One node does not answer. The other one has the commit, and its readers see it; the first gets
/// it when it is back.
#[test]
fn a_node_that_is_away_holds_up_no_other() -> Result<()> {
    let cluster = cluster()?;
    let mut stopped = cluster.stop_at("geo_decided", 2)?;
    cluster.line(1).cut();
    stopped.release()?;
    stopped.end()?.1.context("COMMIT of what is decided")?;
    let mut node: Client = cluster.node(0).connect()?;
    until(&mut node, "node 0 has committed", |node| {
        Ok(int(node, "SELECT count(*) FROM pg_prepared_xacts")? == 0)
    })?;
    let sql = "SELECT count(*) FROM trace_0 WHERE number = 2";
    ensure!(int(&mut cluster.session()?, sql)? == 1);
    ensure!(cluster.prepared()?.len() == 1, "{:?}", cluster.prepared()?);
    cluster.line(1).break_connections();
    cluster.line(1).heal();
    cluster.session()?.batch_execute("SELECT txn.geo_wake()")?;
    cluster.expect_committed(&[1, 2])
}

/// A global snapshot waits for what one of its nodes has not answered: each node by itself shows it
/// torn.
#[test]
fn a_global_snapshot_has_all_of_it() -> Result<()> {
    let cluster = cluster()?;
    let mut control = cluster.session()?;
    let reader = Reader::new(session(&cluster, GLOBAL)?)?;
    let mut stopped = cluster.stop_at("geo_decided", 2)?;
    cluster.line(1).cut();
    stopped.release()?;
    stopped.end()?.1.context("COMMIT of what is decided")?;
    let reader = reader.read();
    reader.wait_until_blocked(&mut control)?;
    let at_node = |node: usize| {
        let mut client = cluster.node(node).connect()?;
        int(&mut client, "SELECT count(*) FROM trace")
    };
    until(&mut control, "node 0 has committed", |_| {
        Ok(at_node(0)? == 2)
    })?;
    ensure!(at_node(1)? == 1 && !reader.is_finished());
    cluster.line(1).heal();
    let seen = reader.end()?.1?;
    ensure!(seen == [2; 3], "{seen:?}");
    Ok(())
}

/// The resolver ends with commits on their way: the next one has them from the board.
#[test]
fn the_next_resolver_takes_over() -> Result<()> {
    let cluster = cluster()?;
    let mut control = cluster.session()?;
    let mut stopped = cluster.stop_at("geo_decided", 2)?;
    (0..2).for_each(|node| cluster.line(node).cut());
    stopped.release()?;
    stopped.end()?.1.context("COMMIT of what is decided")?;
    control.batch_execute(
        "SELECT pg_terminate_backend(pid) FROM txn.geo_resolver() WHERE pid IS NOT NULL",
    )?;
    for node in 0..2 {
        cluster.line(node).break_connections();
        cluster.line(node).heal();
    }
    until(&mut control, "another resolver works", |control| {
        control.batch_execute("SELECT txn.geo_wake()")?;
        let ready = "SELECT count(*) FROM txn.geo_resolver() WHERE phase = 'ready'";
        Ok(int(control, ready)? == 1 && cluster.prepared()?.is_empty())
    })?;
    control.batch_execute("SELECT txn.geo_wake()")?;
    cluster.expect_committed(&[1, 2])
}
