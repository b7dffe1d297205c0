//! Nodes with group locking: transactions of the coordinator follow one in doubt, and their COMMIT
//! waits for it.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, pid, sqlstate, start, wait_until};

use super::Cluster;

const BUMP: &str = "UPDATE account SET balance = balance + 1 WHERE id = 1";
/// At the node: one waits with its commit.
const WAITS: &str = "SELECT count(*) = 1 FROM txn.waits WHERE reason = 'commit'";

/// Nodes at which each row that is updated by key is hot.
fn cluster(nodes: usize) -> Result<Cluster> {
    let node = || {
        start(&[
            ("txn.group_lock", "on"),
            ("txn.hot_threshold", "0"),
            ("max_prepared_transactions", "64"),
        ])
    };
    let nodes = (0..nodes).map(|_| node()).collect::<Result<_>>()?;
    let coordinator = start(&[("txn.geo_resolver_interval", "100ms")])?;
    Cluster::between(coordinator, nodes, "txn_fdw")
}

/// Somebody has updated the row at node 0, and is in doubt.
fn in_doubt(cluster: &Cluster) -> Result<Client> {
    let mut node = cluster.nodes[0].connect()?;
    node.batch_execute(&format!("BEGIN; {BUMP}; PREPARE TRANSACTION 'other'"))?;
    Ok(node)
}

/// A transaction of the coordinator that has followed it.
fn behind(cluster: &Cluster, before: &str) -> Result<(Client, i32)> {
    let mut client = cluster.session()?;
    client.batch_execute(before)?;
    let pid = pid(&mut client)?;
    client.batch_execute(&format!("BEGIN; {BUMP}"))?;
    Ok((client, pid))
}

fn balance(node: &mut Client) -> Result<i64> {
    int(node, "SELECT balance FROM account WHERE id = 1")
}

fn commit(client: Client, pid: i32) -> Background<()> {
    Background::call(client, pid, |client| client.batch_execute("COMMIT"))
}

#[test]
fn in_one_phase() -> Result<()> {
    for (end, told, gain) in [("COMMIT", "00000", 2), ("ROLLBACK", "40001", 0)] {
        let cluster = cluster(1)?;
        let mut node = in_doubt(&cluster)?;
        let before = balance(&mut node)?;
        let (client, pid) = behind(&cluster, "")?;
        let client = commit(client, pid);
        wait_until(&mut node, WAITS)?;
        node.batch_execute(&format!("{end} PREPARED 'other'"))?;
        let answer = sqlstate(&client.end()?.1);
        ensure!(answer == told, "{answer} after {end}");
        ensure!(balance(&mut node)? == before + gain, "after {end}");
    }
    Ok(())
}

/// A COMMIT in one phase that waits for too long, or is cancelled, has rolled back, and says so.
#[test]
fn for_too_long() -> Result<()> {
    let limits = "SET txn.geo_apply_timeout = '1s'; SET txn.geo_lock_timeout = 0";
    for (limits, is_cancelled, expected) in [
        (limits, false, "40000"),
        ("SET txn.geo_lock_timeout = '1s'", false, "55P03"),
        ("SET txn.geo_lock_timeout = 0", true, "57014"),
    ] {
        let cluster = cluster(1)?;
        let mut node = in_doubt(&cluster)?;
        let before = balance(&mut node)?;
        let (client, pid) = behind(&cluster, limits)?;
        let client = commit(client, pid);
        if is_cancelled {
            wait_until(&mut node, WAITS)?;
            let cancel = format!("SELECT pg_cancel_backend({pid})");
            cluster.coordinator.connect()?.batch_execute(&cancel)?;
        }
        let answer = sqlstate(&client.end()?.1);
        ensure!(answer == expected, "{answer} instead of {expected}");
        node.batch_execute("COMMIT PREPARED 'other'")?;
        let (mut client, _) = behind(&cluster, "")?;
        client.batch_execute("COMMIT")?;
        ensure!(balance(&mut node)? == before + 2, "{expected}");
    }
    Ok(())
}

/// One waits at the node inside the gate for one that waits at the gate for a reader that waits for
/// the first: the reader gives way.
#[test]
fn beside_a_global_snapshot() -> Result<()> {
    let cluster = cluster(2)?;
    let mut node = cluster.nodes[0].connect()?;
    let before = balance(&mut node)?;
    let mut first = cluster.session()?;
    let first_pid = pid(&mut first)?;
    let both = "UPDATE account SET balance = balance + 1 WHERE id IN (1, 1001)";
    first.batch_execute(&format!("BEGIN; SET LOCAL txn.geo_last = on; {both}"))?;
    let (second, second_pid) = behind(&cluster, "")?;
    let second = commit(second, second_pid);
    wait_until(&mut node, WAITS)?;
    let sum = "SELECT sum(balance)::bigint FROM account";
    let mut reader = cluster.session()?;
    let reader_pid = pid(&mut reader)?;
    let all = int(&mut reader, sum)?;
    reader.batch_execute(
        "SET txn.geo_snapshot = global; SET txn.geo_snapshot_timeout = '20s';
         SET default_transaction_isolation = 'repeatable read'",
    )?;
    let reader = Background::call(reader, reader_pid, move |client| client.query_one(sum, &[]));
    // It has its connections: at the gate it waits for the second, and so does the first then.
    reader.wait_until_blocked(&mut cluster.coordinator.connect()?)?;
    let first = commit(first, first_pid);
    first.end()?.1?;
    second.end()?.1?;
    let seen: i64 = reader.end()?.1?.get(0);
    ensure!([0, 2, 3].contains(&(seen - all)), "torn: {all}, {seen}");
    ensure!(balance(&mut node)? == before + 2);
    Ok(())
}
