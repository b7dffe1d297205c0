//! The answer to a COMMIT in one phase is lost: the client is told what has happened, or 08007.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, sqlstate, wait_until};

use super::Cluster;
use super::transactions::wait_until_nothing_is_open;

const UNKNOWN: &str = "08007";
const WRITE: &str = "INSERT INTO trace_1 VALUES (1)";
/// At the node: one has committed, and waits for its standby.
const WAITS_FOR_STANDBY: &str =
    "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Whether the row is there when nothing is open any more.
fn is_there(cluster: &Cluster, client: &mut Client) -> Result<bool> {
    wait_until_nothing_is_open(cluster)?;
    Ok(int(client, "SELECT count(*) FROM trace_1")? == 1)
}

/// Node 1 has committed, and its answer is lost with the connection. `is_reachable` says whether
/// the coordinator can ask it again.
fn answer_lost(begin: &str, commit: &str, is_reachable: bool) -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute("ALTER SERVER node1 OPTIONS (ADD connect_timeout '2')")?;
    client.batch_execute("SELECT count(*) FROM account")?;
    client.batch_execute(begin)?;
    let mut node = cluster.node(1).connect()?;
    // It has committed, and answers when nobody is waited for any more.
    cluster.node(1).set_synchronous_standbys("nobody")?;
    let commit = Background::run(client, commit)?;
    wait_until(&mut node, WAITS_FOR_STANDBY)?;
    cluster.line(1).cut();
    cluster.node(1).set_synchronous_standbys("")?;
    wait_until(&mut node, "SELECT count(*) = 1 FROM trace")?;
    cluster.line(1).break_connections();
    if is_reachable {
        cluster.line(1).heal();
    }
    let (mut client, told) = commit.end()?;
    let told = sqlstate(&told);
    ensure!(
        ["00000", UNKNOWN].contains(&told.as_str()),
        "it has committed, and the client was told {told}"
    );
    ensure!(is_reachable || told == UNKNOWN, "nobody can know: {told}");
    cluster.line(1).heal();
    ensure!(is_there(&cluster, &mut client)?, "a committed row is lost");
    Ok(())
}

#[test]
fn of_a_block() -> Result<()> {
    answer_lost(&format!("BEGIN; {WRITE}"), "COMMIT", true)
}

#[test]
fn of_a_single_statement() -> Result<()> {
    answer_lost("SELECT 1", WRITE, true)
}

#[test]
fn of_a_block_at_a_node_that_is_away() -> Result<()> {
    answer_lost(&format!("BEGIN; {WRITE}"), "COMMIT", false)
}

/// The connection breaks before COMMIT has come to the node: nothing is committed, and nobody is
/// told that it is.
#[test]
fn the_request_is_lost() -> Result<()> {
    for (begin, end) in [(&*format!("BEGIN; {WRITE}"), "COMMIT"), ("SELECT 1", WRITE)] {
        let cluster = Cluster::start(2)?;
        let mut client = cluster.session()?;
        client.batch_execute("SELECT count(*) FROM account")?;
        client.batch_execute(begin)?;
        cluster.line(1).cut();
        let commit = Background::run(client, end)?;
        // Then COMMIT is in the line.
        commit.wait_until_blocked(&mut cluster.session()?)?;
        cluster.line(1).break_connections();
        cluster.line(1).heal();
        let (mut client, told) = commit.end()?;
        let told = sqlstate(&told);
        let is_there = is_there(&cluster, &mut client)?;
        ensure!(
            told == UNKNOWN || (told == "00000") == is_there,
            "told {told}, and the row is there: {is_there}"
        );
    }
    Ok(())
}

/// A node that dies in its COMMIT comes back with or without it, and the client is told which.
#[test]
fn a_node_dies_in_its_commit() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {WRITE}"))?;
    let mut node = cluster.node(1).connect()?;
    cluster.node(1).set_synchronous_standbys("nobody")?;
    let commit = Background::run(client, "COMMIT")?;
    wait_until(&mut node, WAITS_FOR_STANDBY)?;
    node.batch_execute("ALTER SYSTEM RESET synchronous_standby_names")?;
    cluster.kill_node(1, true)?;
    let (mut client, told) = commit.end()?;
    let told = sqlstate(&told);
    ensure!(["00000", UNKNOWN].contains(&told.as_str()), "{told}");
    ensure!(is_there(&cluster, &mut client)?, "a committed row is lost");
    Ok(())
}

/// A COMMIT that waits for the node's standby, and is cancelled there, is not confirmed: the client
/// must not be told that it has committed.
#[test]
fn a_standby_does_not_answer() -> Result<()> {
    for is_cancelled in [false, true] {
        let cluster = Cluster::start(2)?;
        let mut client = cluster.session()?;
        if !is_cancelled {
            client.batch_execute("SET txn.geo_apply_timeout = '1s'")?;
        }
        client.batch_execute(&format!("BEGIN; {WRITE}"))?;
        let mut node = cluster.node(1).connect()?;
        cluster.node(1).set_synchronous_standbys("nobody")?;
        let commit = Background::run(client, "COMMIT")?;
        wait_until(&mut node, WAITS_FOR_STANDBY)?;
        if is_cancelled {
            let cancel = format!("SELECT pg_cancel_backend({})", commit.pid);
            cluster.coordinator.connect()?.batch_execute(&cancel)?;
        }
        let (mut client, told) = commit.end()?;
        let told = sqlstate(&told);
        ensure!(told == UNKNOWN, "{told} with nothing at a standby");
        cluster.node(1).set_synchronous_standbys("")?;
        ensure!(is_there(&cluster, &mut client)?, "a committed row is lost");
    }
    Ok(())
}
