//! A node is away while a decided transaction is to be applied there.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use txn_server_tests::{Background, int, pid, read, sqlstate, until};

use super::{Cluster, listening, transfer};

/// COMMIT ends with a WARNING, and the resolver ends what is left when the node is back.
#[test]
fn commit_returns_with_a_warning() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let (client, notices) = listening(&cluster.coordinator)?;
    let mut stopped = cluster.stop_at_in(client, "geo_decided", 1)?;
    cluster.kill_node(1, false)?;
    stopped.release()?;
    let (mut client, told) = stopped.end()?;
    told.context("COMMIT of what is decided")?;
    let notices = notices.lock().expect("nobody panics with it").clone();
    ensure!(
        notices.iter().any(|line| line.starts_with("WARNING")),
        "COMMIT has not said that a node is away: {notices:?}"
    );
    // Node 0 has applied it, and the coordinator says what is left.
    let mut control = cluster.session()?;
    let at_node_0 = "SELECT count(*) FROM trace WHERE number = 1";
    ensure!(int(&mut cluster.node(0).connect()?, at_node_0)? == 1);
    let open = "SELECT count(*) = 1 FROM txn.geo_transactions WHERE state = 'decided'";
    txn_server_tests::wait_until(&mut control, open)?;
    let nodes: String = read(
        &mut control,
        "SELECT string_agg(node::text, ' ') FROM txn.geo_transactions WHERE state = 'decided'",
    )?;
    ensure!(nodes == "node1", "{nodes}");
    // The session goes on without the node.
    client.batch_execute("UPDATE account SET balance = balance WHERE id = 2")?;
    let told = sqlstate(&client.batch_execute("SELECT count(*) FROM account_1"));
    ensure!(told.starts_with("08"), "{told}");
    cluster.start_node(1)?;
    cluster.expect_committed(&[1])?;
    ensure!(int(&mut client, "SELECT balance FROM account WHERE id = 1001")? == 102);
    Ok(())
}

/// A session that reads at a node after COMMIT has ended sees what has committed, though the node
/// is only told of it now.
#[test]
fn a_statement_waits_for_what_is_decided() -> Result<()> {
    let mut cluster = Cluster::with(2, &[("txn.stop_at", "geo_resolver_listed")], &[])?;
    let mut stopped = cluster.stop_at("geo_decided", 1)?;
    cluster.kill_node(1, false)?;
    stopped.release()?;
    let (same, told) = stopped.end()?;
    told.context("COMMIT of what is decided")?;
    let mut resolver = cluster.hold("geo_resolver_listed")?;
    cluster.start_node(1)?;
    for client in [same, cluster.session()?] {
        let mut client = client;
        let pid = pid(&mut client)?;
        let reader = Background::call(client, pid, |client| {
            let row = client.query_one("SELECT balance FROM account WHERE id = 1001", &[])?;
            Ok(row.get::<_, i64>(0))
        });
        // It may end the transaction itself, or wait until the resolver has.
        std::thread::sleep(Duration::from_millis(500));
        if !reader.is_finished() {
            resolver.batch_execute("SELECT pg_advisory_unlock_all()")?;
        }
        let balance = reader.end()?.1?;
        ensure!(balance == 102, "a committed value was not seen: {balance}");
    }
    resolver.batch_execute("SELECT pg_advisory_unlock_all()")?;
    cluster.expect_committed(&[1])
}

/// The line to a node is cut amid COMMIT: the client is told after `geo_apply_timeout`, what it was
/// told is so, and the rest ends by itself.
#[test]
fn a_line_that_is_cut_after_the_decision() -> Result<()> {
    for point in ["geo_decided", "geo_applying"] {
        let cluster = Cluster::start(2)?;
        let mut stopped = cluster.stop_at(point, 1)?;
        for node in 0..2 {
            cluster.line(node).cut();
        }
        stopped.release()?;
        let (_, told) = stopped.end()?;
        told.with_context(|| format!("COMMIT at {point}"))?;
        for node in 0..2 {
            cluster.line(node).heal();
        }
        cluster.expect_committed(&[1])?;
    }
    Ok(())
}

/// With `txn.geo_answer = decided` COMMIT waits for no node, and who uses the node next sees it.
#[test]
fn a_commit_that_does_not_wait_for_the_nodes() -> Result<()> {
    let settings = [
        ("txn.geo_answer", "decided"),
        ("txn.geo_apply_timeout", "1h"),
    ];
    let cluster = Cluster::with(2, &settings, &[])?;
    let mut stopped = cluster.stop_at("geo_decided", 1)?;
    cluster.line(1).cut();
    stopped.release()?;
    let (_, told) = stopped.end()?;
    told.context("COMMIT")?;
    let mut client = cluster.session()?;
    let id = pid(&mut client)?;
    let reader = Background::call(client, id, |client| {
        let row = client.query_one("SELECT balance FROM account WHERE id = 1001", &[])?;
        Ok(row.get::<_, i64>(0))
    });
    reader.wait_until_blocked(&mut cluster.coordinator.connect()?)?;
    cluster.line(1).heal();
    let balance = reader.end()?.1?;
    ensure!(balance == 102, "a committed value was not seen: {balance}");
    let (mut client, notices) = listening(&cluster.coordinator)?;
    for number in 2..5 {
        client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))?;
    }
    ensure!(notices.lock().expect("nobody panics").is_empty());
    cluster.expect_committed(&[1, 2, 3, 4])
}

/// COMMIT that is cancelled after its decision has committed.
#[test]
fn a_commit_cancelled_after_its_decision() -> Result<()> {
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        let cluster = Cluster::start(2)?;
        let mut control = cluster.session()?;
        let mut stopped = cluster.stop_at("geo_decided", 1)?;
        cluster.line(1).cut();
        stopped.release()?;
        let at_node_0 = "SELECT count(*) FROM trace WHERE number = 1";
        let mut node = cluster.node(0).connect()?;
        until(&mut node, "node 0 has applied it", |node| {
            Ok(int(node, at_node_0)? == 1)
        })?;
        control.query(&format!("SELECT {function}($1)"), &[&stopped.pid()])?;
        let told = stopped.told()?;
        let right = match function {
            "pg_cancel_backend" => ["00000", "00000"],
            _ => ["57P01", "lost"],
        };
        ensure!(
            right.contains(&told.as_str()) || told == "00000",
            "{function}: {told}"
        );
        cluster.line(1).heal();
        cluster.expect_committed(&[1])?;
    }
    Ok(())
}

/// A node that is away for the resolver delays no other node's transactions.
#[test]
fn a_node_that_is_away_does_not_hold_up_others() -> Result<()> {
    let mut cluster = Cluster::start(3)?;
    cluster.line(2).cut();
    let stopped = cluster.stop_at("geo_prepared", 1)?;
    cluster.kill_coordinator()?;
    drop(stopped);
    let mut client = cluster.session()?;
    until(&mut client, "the parts at the other nodes end", |_| {
        Ok(cluster.prepared()?.is_empty())
    })?;
    cluster.line(2).heal();
    let sum = cluster.balance_sum_at_nodes()?;
    ensure!(sum == 3 * super::NODE_SUM, "{sum}");
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(2)))?;
    cluster.expect_committed(&[2])
}
