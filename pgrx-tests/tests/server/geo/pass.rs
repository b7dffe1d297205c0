//! What a pass of the resolver learns from a node, and what it does not.
use anyhow::{Context, Result, ensure};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;
use txn_server_tests::{Background, read, until, wait_until};

use super::{Cluster, transfer};

/// The decision rows of node 1, and whether they are lost.
const ROWS: &str = "SELECT string_agg(CASE WHEN lost THEN 'lost' ELSE 'decided' END, ' ')
                    FROM txn.geo_decision d JOIN pg_foreign_server s ON s.oid = d.server
                    WHERE srvname = 'node1'";

fn rows(client: &mut Client) -> Result<String> {
    Ok(read::<Option<String>>(client, ROWS)?.unwrap_or_default())
}

/// Transfer `number` is decided, and node 1 has not been told.
fn leave_undone(cluster: &Cluster, number: i64) -> Result<()> {
    let mut stopped = cluster.stop_at("geo_decided", number)?;
    cluster.line(1).cut();
    stopped.release()?;
    stopped.end()?.1.context("COMMIT of what is decided")?;
    // What is held in the line does not come.
    cluster.line(1).break_connections();
    Ok(())
}

/// The node's wait for its standby is cancelled, and the connection is lost before the next answer
/// comes: that commit may be gone after a failover of the node, so its row stays.
#[test]
fn a_warning_counts_though_the_connection_is_lost() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.coordinator.connect()?;
    let mut first = cluster.stop_at("geo_decided", 1)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!(
        "SET txn.stop_at = 'geo_decided'; SET txn.geo_apply_timeout = '1s'; BEGIN; {}",
        transfer(2)
    ))?;
    let second = Background::run(client, "COMMIT")?;
    cluster.wait_until_held(&mut control, second.pid)?;
    let mut node = cluster.node(1).connect()?;
    node.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")?;
    node.batch_execute("SELECT pg_reload_conf()")?;
    cluster.line(1).cut();
    first.release()?;
    for told in [first.end()?.1, second.end()?.1] {
        told.context("COMMIT of what is decided")?;
    }
    cluster.line(1).break_connections();
    cluster.line(1).heal();
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'
                  AND query LIKE 'COMMIT PREPARED%'";
    until(&mut node, "the first commit's wait is cancelled", |node| {
        Ok(!node.query(cancel, &[])?.is_empty())
    })?;
    // The second commit waits, so the resolver closes the connection, whose backend at the node
    // keeps the lock of its name.
    until(
        &mut control,
        "the resolver has closed the connection",
        |_| {
            let log = cluster.coordinator.log()?;
            Ok(log.contains("another server acts as this coordinator"))
        },
    )?;
    let found = rows(&mut control)?;
    ensure!(found == "decided decided", "{found}");
    node.batch_execute("ALTER SYSTEM RESET synchronous_standby_names")?;
    node.batch_execute("SELECT pg_reload_conf()")?;
    cluster.expect_committed(&[1, 2])
}

/// Another server answers in place of node 1: a new one, or one restored from elsewhere. It has had
/// more transactions than node 1, and they are committed: what it says of an id is about its own.
#[test]
fn another_server_at_the_address_tells_nothing() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut stopped = cluster.stop_at("geo_decided", 1)?;
    cluster.kill_node(1, false)?;
    stopped.release()?;
    stopped.end()?.1.context("COMMIT of what is decided")?;
    let options = ServerOptions::stock().set("max_prepared_transactions", 10);
    let other = Server::start_on(&PgInstall::from_env()?, options, pgserver::initdb)?;
    let mut at_other = other.connect()?;
    for _ in 0..500 {
        at_other.batch_execute("SELECT pg_current_xact_id()")?;
    }
    let mut control = cluster.session()?;
    let to = |host: &std::path::Path, port: u16| {
        let host = host.display();
        format!("ALTER SERVER node1 OPTIONS (SET host '{host}', SET port '{port}')")
    };
    control.batch_execute(&to(other.host(), other.port()))?;
    cluster.wait_for_passes(3)?;
    let found = rows(&mut control)?;
    ensure!(found == "decided", "{found}");
    let (host, port) = (cluster.line(1).host(), cluster.line(1).port());
    control.batch_execute(&to(host, port))?;
    cluster.start_node(1)?;
    cluster.expect_committed(&[1])
}

/// Somebody has rolled it back at the node, or a failover has: that is told and kept. If the node
/// shows it again it commits.
#[test]
fn a_lost_transaction_that_comes_back() -> Result<()> {
    let cluster = Cluster::start(2)?;
    leave_undone(&cluster, 1)?;
    let mut node = cluster.node(1).connect()?;
    let gid: String = read(&mut node, "SELECT gid FROM pg_prepared_xacts")?;
    node.batch_execute(&format!("ROLLBACK PREPARED '{gid}'"))?;
    cluster.line(1).heal();
    let mut control = cluster.session()?;
    until(&mut control, "it is known to be lost", |control| {
        Ok(rows(control)? == "lost")
    })?;
    let log = cluster.coordinator.log()?;
    ensure!(log.contains("has lost the committed transaction"), "{log}");
    // The node can be used, and the row stays.
    control.batch_execute("SELECT count(*) FROM account")?;
    cluster.wait_for_passes(3)?;
    ensure!(rows(&mut control)? == "lost", "{}", rows(&mut control)?);
    node.batch_execute(&format!(
        "BEGIN; UPDATE account SET balance = balance + 1 WHERE id = 1001;
         INSERT INTO trace VALUES (1); PREPARE TRANSACTION '{gid}'"
    ))?;
    cluster.expect_committed(&[1])
}

/// Two transactions commit in one pass at a node whose wait for its standby is cancelled once. The
/// warning does not say of which: neither row may go before the node has been asked.
#[test]
fn a_standby_warning_amid_several_commits() -> Result<()> {
    let cluster = Cluster::with(2, &[("txn.stop_at", "geo_resolver_listed")], &[])?;
    let mut control = cluster.hold("geo_decided")?;
    let mut commits = Vec::new();
    for number in [1, 2] {
        let mut client = cluster.session()?;
        client.batch_execute(&format!(
            "SET txn.stop_at = 'geo_decided'; SET txn.geo_apply_timeout = '100ms'; BEGIN; {}",
            transfer(number)
        ))?;
        let commit = Background::run(client, "COMMIT")?;
        cluster.wait_until_held(&mut control, commit.pid)?;
        commits.push(commit);
    }
    cluster.line(1).cut();
    control.batch_execute("SELECT pg_advisory_unlock_all()")?;
    for commit in commits {
        commit.end()?.1.context("COMMIT of what is decided")?;
    }
    cluster.line(1).break_connections();
    cluster.node(1).set_synchronous_standbys("nobody")?;
    cluster.line(1).heal();
    let mut node = cluster.node(1).connect()?;
    let waits = |left: i64| {
        format!(
            "SELECT count(*) = 1 AND (SELECT count(*) = {left} FROM pg_prepared_xacts)
             FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
    };
    wait_until(&mut node, &waits(2))?;
    // The next pass is held when it has listed.
    let mut resolver = cluster.hold("geo_resolver_listed")?;
    node.batch_execute(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
    )?;
    wait_until(&mut node, &waits(1))?;
    cluster.node(1).set_synchronous_standbys("")?;
    let listed = "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'txn resolver' \
                  AND wait_event IN ('advisory', 'PgSleep')";
    wait_until(&mut control, listed)?;
    let found = rows(&mut control)?;
    ensure!(found == "decided decided", "{found}");
    resolver.batch_execute("SELECT pg_advisory_unlock_all()")?;
    cluster.expect_committed(&[1, 2])
}
