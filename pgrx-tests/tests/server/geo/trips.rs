//! How many round trips a statement takes: bursts that the lines have counted, not time.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{read, until, wait_until};

use super::Cluster;

/// Round trips to both nodes for `sql`, in a session that is connected and knows its tables.
pub fn trips(cluster: &Cluster, client: &mut Client, sql: &str) -> Result<[u64; 2]> {
    answered(cluster)?;
    for node in 0..2 {
        cluster.line(node).reset_counts();
    }
    client.batch_execute(sql)?;
    answered(cluster)?;
    for node in 0..2 {
        let connections = cluster.line(node).connections();
        ensure!(connections == 0, "{connections} new connections: {sql}");
    }
    Ok([0, 1].map(|node| cluster.line(node).bursts().0))
}

/// Waits until all that was sent has been answered: nobody waits for the end of a reader. A node
/// whose sessions are idle has read it all, and so has the line to it. Within a transaction each
/// statement waits for its answers.
fn answered(cluster: &Cluster) -> Result<()> {
    let are_idle = "SELECT count(*) = 0 FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()";
    if read(&mut cluster.session()?, are_idle)? {
        for node in 0..2 {
            wait_until(&mut cluster.node(node).connect()?, are_idle)?;
        }
    }
    until(&mut cluster.session()?, "everything is answered", |_| {
        let is_answered = |node| {
            let (there, back) = cluster.line(node).bursts();
            there == back
        };
        Ok((0..2).all(is_answered))
    })
}

/// A cluster whose resolver is silent, and a session that is connected to both nodes.
pub fn warm() -> Result<(Cluster, Client)> {
    // Nor does it measure round trips.
    let silent = [
        ("txn.geo_resolver_interval", "1h"),
        ("txn.geo_schedule", "off"),
    ];
    let cluster = Cluster::with(2, &silent, &[])?;
    let many = "INSERT INTO trace SELECT k FROM generate_series(1, 5000) k";
    cluster.node(0).connect()?.batch_execute(many)?;
    let mut client = cluster.session()?;
    client.batch_execute("SELECT count(*) FROM account; BEGIN; SELECT 1 FROM account; COMMIT")?;
    Ok((cluster, client))
}

#[test]
fn of_single_statements() -> Result<()> {
    let (cluster, mut client) = warm()?;
    // The most that each node may take; the end of a reader may be a trip of its own.
    let statements = [
        ("SELECT balance FROM account WHERE id = 1", [2, 0]),
        ("SELECT sum(balance) FROM account", [2, 2]),
        // No cursor: all rows come with the answer.
        ("SELECT number FROM trace_0", [2, 0]),
        (
            "UPDATE account SET balance = balance WHERE id = 1001",
            [0, 2],
        ),
        // BEGIN, the statement and PREPARE; COMMIT PREPARED.
        (
            "UPDATE account SET balance = balance WHERE id IN (1, 1001)",
            [2, 2],
        ),
        ("DELETE FROM account WHERE id % 1000 = 9", [2, 2]),
    ];
    for (sql, most) in statements {
        let found = trips(&cluster, &mut client, sql)?;
        ensure!(
            (0..2).all(|node| found[node] <= most[node] && (found[node] > 0) == (most[node] > 0)),
            "{found:?} trips instead of {most:?}: {sql}"
        );
    }
    Ok(())
}

#[test]
fn of_a_transaction_step_by_step() -> Result<()> {
    let (cluster, mut client) = warm()?;
    let steps = [
        ("BEGIN", [0, 0]),
        (
            "UPDATE account SET balance = balance - 1 WHERE id = 1",
            [1, 0],
        ),
        (
            "UPDATE account SET balance = balance + 1 WHERE id = 1001",
            [0, 1],
        ),
        ("SELECT balance FROM account WHERE id = 1", [1, 0]),
        (
            "UPDATE account SET balance = balance + 1 WHERE id = 2",
            [1, 0],
        ),
        // PREPARE and COMMIT PREPARED.
        ("COMMIT", [2, 2]),
    ];
    for (sql, expected) in steps {
        let found = trips(&cluster, &mut client, sql)?;
        ensure!(
            found == expected,
            "{found:?} trips instead of {expected:?}: {sql}"
        );
    }
    Ok(())
}

/// A transaction that has touched no node does not talk to any.
#[test]
fn of_local_transactions() -> Result<()> {
    let (cluster, mut client) = warm()?;
    for sql in [
        "BEGIN; INSERT INTO ledger VALUES (1); COMMIT",
        "SELECT count(*) FROM ledger",
    ] {
        let found = trips(&cluster, &mut client, sql)?;
        ensure!(found == [0, 0], "{found:?}: {sql}");
    }
    Ok(())
}
