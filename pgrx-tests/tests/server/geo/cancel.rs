//! Statements that wait at a node and are cancelled; the session goes on.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, sqlstate, until};

use super::transactions::wait_until_nothing_is_open;
use super::{Cluster, transfer};

const UPDATE: &str = "UPDATE account SET balance = balance + 1 WHERE id = 1001";

/// A session at node 1 that has locked its account 1001.
fn locker(cluster: &Cluster) -> Result<Client> {
    let mut client = cluster.node(1).connect()?;
    client.batch_execute("BEGIN; UPDATE account SET balance = balance WHERE id = 1001")?;
    Ok(client)
}

/// Waits until somebody at node 1 waits for a lock.
fn wait_until_waiting(cluster: &Cluster) -> Result<()> {
    let mut client = cluster.node(1).connect()?;
    until(&mut client, "the statement waits at the node", |client| {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        Ok(int(client, sql)? == 1)
    })
}

/// Nobody waits at the node any more, and the session transfers money.
fn expect_usable(cluster: &Cluster, client: &mut Client, locker: Client, n: i64) -> Result<()> {
    let mut node = cluster.node(1).connect()?;
    until(&mut node, "nobody waits at the node", |client| {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        Ok(int(client, sql)? == 0)
    })?;
    drop(locker);
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(n)))?;
    cluster.expect_committed(&(1..=n).collect::<Vec<_>>())?;
    wait_until_nothing_is_open(cluster)
}

#[test]
fn by_a_request_or_by_a_timeout() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let ways = [
        ("", true, "57014"),
        ("SET statement_timeout = '500ms'", false, "57014"),
        ("SET txn.geo_lock_timeout = '500ms'", false, "55P03"),
    ];
    for (number, (setting, requests, code)) in (1..).zip(ways) {
        let locker = locker(&cluster)?;
        let mut client = cluster.session()?;
        client.batch_execute(setting)?;
        let waiting = Background::run(client, UPDATE)?;
        if requests {
            wait_until_waiting(&cluster)?;
            control.query("SELECT pg_cancel_backend($1)", &[&waiting.pid])?;
        }
        let (mut client, told) = waiting.end()?;
        let told = sqlstate(&told);
        ensure!(told == code, "{told} instead of {code}");
        client.batch_execute("RESET statement_timeout")?;
        expect_usable(&cluster, &mut client, locker, number)?;
    }
    Ok(())
}

/// What came before the savepoint is there, at the node too.
#[test]
fn within_a_savepoint() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let locker = locker(&cluster)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}; SAVEPOINT a", transfer(2)))?;
    let waiting = Background::run(client, UPDATE)?;
    wait_until_waiting(&cluster)?;
    control.query("SELECT pg_cancel_backend($1)", &[&waiting.pid])?;
    let (mut client, told) = waiting.end()?;
    let told = sqlstate(&told);
    ensure!(told == "57014", "{told}");
    client
        .batch_execute("ROLLBACK TO a; INSERT INTO trace_1 VALUES (77); ROLLBACK TO a; COMMIT")?;
    drop(locker);
    cluster.expect_committed(&[2])?;
    wait_until_nothing_is_open(&cluster)
}

#[test]
fn a_terminated_session_waits_no_more_at_the_node() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let locker = locker(&cluster)?;
    let mut client = cluster.session()?;
    client.batch_execute("BEGIN; UPDATE account SET balance = 0 WHERE id = 1")?;
    let waiting = Background::run(client, UPDATE)?;
    wait_until_waiting(&cluster)?;
    control.query("SELECT pg_terminate_backend($1)", &[&waiting.pid])?;
    let told = sqlstate(&waiting.end()?.1);
    ensure!(["57P01", "lost"].contains(&told.as_str()), "{told}");
    let mut node = cluster.node(1).connect()?;
    until(&mut node, "nobody waits at the node", |client| {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        Ok(int(client, sql)? == 0)
    })?;
    drop(locker);
    wait_until_nothing_is_open(&cluster)?;
    cluster.expect_committed(&[])
}

/// A node that does not answer holds no session that wants to go on.
#[test]
fn in_front_of_a_line_that_is_cut() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let statements = [
        "SELECT sum(balance) FROM account",
        UPDATE,
        "INSERT INTO trace_1 SELECT generate_series(1, 1000)",
        "TRUNCATE trace_1",
    ];
    for warm in [false, true] {
        for sql in statements {
            let mut client = cluster.session()?;
            if warm {
                client.batch_execute("SELECT count(*) FROM account")?;
            }
            cluster.line(1).cut();
            let waiting = Background::run(client, sql)?;
            // Not by what the line has carried: the resolver uses it too.
            waiting.wait_until_blocked(&mut control)?;
            control.query("SELECT pg_cancel_backend($1)", &[&waiting.pid])?;
            let (mut client, told) = waiting.end()?;
            let told = sqlstate(&told);
            ensure!(told == "57014", "{told}: {sql}");
            cluster.line(1).heal();
            let sum = int(&mut client, "SELECT count(*) FROM account")?;
            ensure!(sum == 20, "{sum} accounts after: {sql}");
        }
    }
    wait_until_nothing_is_open(&cluster)?;
    cluster.expect_committed(&[])
}
