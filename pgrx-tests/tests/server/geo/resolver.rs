//! The order in which the resolver looks: prepared transactions, live ones, decisions.
use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, read, sqlstate, text, until};

use super::{Cluster, transfer};

/// A cluster whose resolver stops when a test holds its point.
fn cluster() -> Result<Cluster> {
    Cluster::with(2, &[("txn.stop_at", "geo_resolver_listed")], &[])
}

fn cut(cluster: &Cluster) {
    cluster.lines.iter().for_each(|line| line.cut());
}

fn heal(cluster: &Cluster) {
    cluster.lines.iter().for_each(|line| line.heal());
}

/// Waits until the resolver is held.
fn wait_until_listed(control: &mut Client) -> Result<()> {
    let sql = "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type <> 'client backend' \
               AND wait_event IN ('advisory', 'PgSleep')";
    until(control, "the resolver has listed", |control| {
        read(control, sql)
    })
}

/// Lists while the transaction is prepared and undecided, and looks at the rest when it is decided,
/// not alive any more, and not applied.
#[test]
fn a_transaction_decided_after_it_was_listed() -> Result<()> {
    let cluster = cluster()?;
    let mut stopped = cluster.stop_at("geo_prepared", 1)?;
    let mut resolver = cluster.hold("geo_resolver_listed")?;
    wait_until_listed(&mut resolver)?;
    cut(&cluster);
    stopped.release()?;
    stopped.end()?.1.context("COMMIT of what is decided")?;
    heal(&cluster);
    resolver.batch_execute("SELECT pg_advisory_unlock_all()")?;
    cluster.expect_committed(&[1])
}

/// Lists before the transaction is prepared, and looks at the rest when it is decided and not yet
/// applied: its decision must not be taken for one that is applied.
#[test]
fn a_transaction_prepared_after_the_list() -> Result<()> {
    let cluster = cluster()?;
    // The first use of a node starts the resolver.
    int(&mut cluster.session()?, "SELECT count(*) FROM account")?;
    let mut resolver = cluster.hold("geo_resolver_listed")?;
    wait_until_listed(&mut resolver)?;
    let mut stopped = cluster.stop_at("geo_decided", 1)?;
    cut(&cluster);
    stopped.release()?;
    stopped.end()?.1.context("COMMIT of what is decided")?;
    heal(&cluster);
    resolver.batch_execute("SELECT pg_advisory_unlock_all()")?;
    cluster.expect_committed(&[1])
}

/// While the transaction is at any of its points many passes of the resolver leave it alone.
#[test]
fn live_transactions_are_left_alone() -> Result<()> {
    let cluster = Cluster::with(2, &[("txn.geo_resolver_interval", "10ms")], &[])?;
    let points = ["geo_prepared", "geo_decided", "geo_applying"];
    let mut expected = Vec::new();
    for (number, point) in (1..).zip(points) {
        let mut stopped = cluster.stop_at(point, number)?;
        let before = cluster.prepared()?;
        std::thread::sleep(std::time::Duration::from_millis(500));
        ensure!(cluster.prepared()? == before, "{point}: {before:?}");
        stopped.release()?;
        stopped.end()?.1.context(point)?;
        expected.push(number);
        cluster.expect_committed(&expected)?;
    }
    Ok(())
}

/// Prepared transactions of others are left alone: of no coordinator, of another one, and of
/// another database of this one.
#[test]
fn foreign_gids_are_left_alone() -> Result<()> {
    let cluster = Cluster::start(1)?;
    cluster
        .session()?
        .batch_execute("UPDATE account SET balance = balance WHERE id = 1")?;
    let mut node = cluster.node(0).connect()?;
    let gids = [
        "txn",
        "txn/",
        "txn/1/2/3/4",
        "txn/00000000-0000-0000-0000-000000000000/1/1/1",
        "mine",
        "pgfdw_1_2_3",
    ];
    for (number, gid) in gids.iter().enumerate() {
        node.batch_execute(&format!(
            "BEGIN; INSERT INTO trace VALUES ({number}); PREPARE TRANSACTION '{gid}'"
        ))?;
    }
    std::thread::sleep(std::time::Duration::from_secs(1));
    let left = int(&mut node, "SELECT count(*) FROM pg_prepared_xacts")?;
    ensure!(
        left == gids.len() as i64,
        "{left} of {} are left",
        gids.len()
    );
    Ok(())
}

/// What the views show while a transaction is in doubt, and that a superuser can end it by hand.
#[test]
fn transactions_in_doubt_are_shown() -> Result<()> {
    let mut cluster = Cluster::with(2, &[("txn.geo_resolver_interval", "1h")], &[])?;
    let nodes = "SELECT string_agg(node::text, ' ' ORDER BY node) FROM txn.geo_nodes";
    let stopped = cluster.stop_at("geo_prepared", 1)?;
    let mut control = cluster.session()?;
    ensure!(text(&mut control, nodes)? == "node0 node1");
    let shown = "SELECT string_agg(node || ' ' || state, ', ' ORDER BY node) \
                 FROM txn.geo_transactions";
    let found = text(&mut control, shown)?;
    ensure!(found == "node0 prepared, node1 prepared", "{found}");
    let sql = "SELECT bool_and(age >= interval '0') FROM txn.geo_transactions";
    ensure!(read::<bool>(&mut control, sql)?);
    cluster.kill_coordinator()?;
    drop(stopped);
    // It looks at its start, whatever its interval.
    cluster.expect_committed(&[])
}

/// A live transaction, and one whose outcome is known, cannot be ended otherwise by hand.
#[test]
fn resolving_by_hand_does_not_tear() -> Result<()> {
    let cluster = Cluster::start(2)?;
    for (number, point, commit) in [(1, "geo_prepared", true), (2, "geo_decided", false)] {
        let mut stopped = cluster.stop_at(point, number)?;
        let mut control = cluster.session()?;
        for (_, gid) in cluster.prepared()? {
            let sql = format!("SELECT txn.geo_resolve('{gid}', {commit})");
            let told = sqlstate(&control.batch_execute(&sql));
            ensure!(told != "00000", "{gid} was ended against its transaction");
        }
        stopped.release()?;
        stopped.end()?.1?;
    }
    cluster.expect_committed(&[1, 2])?;
    let told = cluster
        .session()?
        .batch_execute("SELECT txn.geo_resolve('txn/nothing', true)");
    ensure!(sqlstate(&told) != "00000", "there is no such transaction");
    Ok(())
}

/// Each database of the coordinator has its own resolver, which ends its own transactions.
#[test]
fn two_databases_of_a_coordinator() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    cluster.session()?.batch_execute("CREATE DATABASE second")?;
    let mut second = cluster.coordinator.connect_as("postgres", "second")?;
    let (a, b) = (cluster.line(0), cluster.line(1));
    second.batch_execute(&format!(
        "CREATE EXTENSION txn;
         CREATE SERVER node0 FOREIGN DATA WRAPPER txn_fdw
             OPTIONS (host '{}', port '{}', dbname 'postgres');
         CREATE SERVER node1 FOREIGN DATA WRAPPER txn_fdw
             OPTIONS (host '{}', port '{}', dbname 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER node0 OPTIONS (user 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (user 'postgres');
         CREATE FOREIGN TABLE trace_0 (number bigint) SERVER node0 OPTIONS (table_name 'trace');
         CREATE FOREIGN TABLE trace_1 (number bigint) SERVER node1 OPTIONS (table_name 'trace')",
        a.host().display(),
        a.port(),
        b.host().display(),
        b.port()
    ))?;
    let point = "SELECT pg_advisory_lock(hashtext('txn.geo_prepared'))";
    let mut control = cluster.coordinator.connect_as("postgres", "second")?;
    control.batch_execute(point)?;
    second.batch_execute(
        "SET txn.stop_at = 'geo_prepared'; BEGIN; INSERT INTO trace_0 VALUES (50); \
         INSERT INTO trace_1 VALUES (50)",
    )?;
    let commit = Background::run(second, "COMMIT")?;
    until(&mut control, "both parts are prepared", |_| {
        Ok(cluster.prepared()?.len() == 2)
    })?;
    // The first database's resolver looks at the same nodes.
    let stopped = cluster.stop_at("geo_prepared", 1)?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    ensure!(cluster.prepared()?.len() == 4, "{:?}", cluster.prepared()?);
    cluster.kill_coordinator()?;
    drop((stopped, commit));
    cluster.expect_committed(&[])?;
    let mut first = cluster.session()?;
    first.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(2)))?;
    cluster.expect_committed(&[2])
}

/// Each database that uses nodes has one of 64 places in shared memory, until it is dropped.
#[test]
fn dropped_databases_give_their_places_back() -> Result<()> {
    const PLACES: usize = 64;
    let cluster = Cluster::start(1)?;
    let mut control = cluster.session()?;
    control.batch_execute("CREATE DATABASE made")?;
    let connect = |database: &str| -> Result<Client> {
        let config = cluster.coordinator.config("postgres", database);
        Ok(config.connect(postgres::NoTls)?)
    };
    // Never used, so its copies are none of a coordinator.
    connect("made")?.batch_execute(&format!(
        "CREATE EXTENSION txn;
         CREATE SERVER node FOREIGN DATA WRAPPER txn_fdw
             OPTIONS (host '{}', port '{}', dbname 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER node OPTIONS (user 'postgres');
         CREATE FOREIGN TABLE account (id int) SERVER node",
        cluster.line(0).host().display(),
        cluster.line(0).port()
    ))?;
    for number in 0..PLACES + 2 {
        cluster.dog.progress();
        control.batch_execute("CREATE DATABASE copy TEMPLATE made STRATEGY wal_log")?;
        let count = int(&mut connect("copy")?, "SELECT count(*) FROM account");
        count.with_context(|| format!("the node is used by database {number}"))?;
        control.batch_execute("DROP DATABASE copy WITH (FORCE)")?;
    }
    Ok(())
}
