//! Global snapshots when something does not answer, is cancelled or dies: nobody is held up for
//! long, and what is seen is still a cut.
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, Load, int, sqlstate};

use super::snapshot::{self, GLOBAL, Reader, reader_between_nodes, traces};
use super::{Cluster, NODE_SUM, transfer};

fn session(cluster: &Cluster) -> Result<Client> {
    snapshot::session(cluster, GLOBAL)
}

/// A reader inside the gate.
fn reader_inside(cluster: &Cluster) -> Result<Background<[i64; 3]>> {
    reader_between_nodes(cluster, session(cluster)?)
}

/// Nobody is left at the gate: commits and readers go on.
fn expect_free(cluster: &Cluster, number: i64) -> Result<()> {
    let mut client = session(cluster)?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))?;
    let expected = int(&mut cluster.session()?, "SELECT count(*) FROM ledger")?;
    let seen = traces(&mut client)?;
    ensure!(seen == [expected; 3], "{seen:?}, not {expected}");
    Ok(())
}

#[test]
fn a_reader_that_ends_inside_leaves() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let ways = [
        ("pg_cancel_backend", "57014"),
        ("pg_terminate_backend", "57P01"),
    ];
    for (number, (function, code)) in (1..).zip(ways) {
        let reader = reader_inside(&cluster)?;
        control.query(&format!("SELECT {function}($1)"), &[&reader.pid])?;
        let (client, told) = reader.end()?;
        let told = sqlstate(&told);
        ensure!(told == code || told == "lost", "{told}");
        // The line is still cut.
        cluster
            .session()?
            .batch_execute(&format!("INSERT INTO trace_0 VALUES (-{number})"))?;
        cluster
            .session()?
            .batch_execute(&format!("DELETE FROM trace_0 WHERE number = -{number}"))?;
        cluster.line(1).heal();
        expect_free(&cluster, number)?;
        drop(client);
    }
    Ok(())
}

/// After a cancel that is caught in a savepoint the transaction has no snapshot, and uses no node.
#[test]
fn an_interrupted_snapshot_is_none() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let mut reader = Reader::new(session(&cluster)?)?;
    reader.batch_execute("BEGIN; SAVEPOINT a")?;
    cluster.line(1).cut();
    let reader = reader.read();
    reader.wait_until_blocked(&mut control)?;
    control.query("SELECT pg_cancel_backend($1)", &[&reader.pid])?;
    let (mut client, told) = reader.end()?;
    ensure!(sqlstate(&told) == "57014", "{told:?}");
    cluster.line(1).heal();
    client.batch_execute("ROLLBACK TO a; SELECT count(*) FROM ledger")?;
    let told = sqlstate(&traces(&mut client));
    ensure!(told == "55000", "{told}");
    client.batch_execute("ROLLBACK")?;
    ensure!(traces(&mut client)? == [0; 3]);
    expect_free(&cluster, 1)
}

/// A reader that waits for a commit, and a commit that waits for a reader.
#[test]
fn who_waits_can_be_cancelled() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let reader = Reader::new(session(&cluster)?)?;
    let mut stopped = cluster.stop_at("geo_applying", 1)?;
    let reader = reader.read();
    reader.wait_until_blocked(&mut control)?;
    control.query("SELECT pg_cancel_backend($1)", &[&reader.pid])?;
    let (mut client, told) = reader.end()?;
    ensure!(sqlstate(&told) == "57014", "{told:?}");
    // Other commits go on meanwhile.
    let mut other = cluster.session()?;
    other.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(2)))?;
    stopped.release()?;
    stopped.end()?.1?;
    ensure!(traces(&mut client)? == [2; 3]);

    let reader = reader_inside(&cluster)?;
    let commit = Background::run(cluster.session()?, "INSERT INTO trace_0 VALUES (3)")?;
    commit.wait_until_blocked(&mut control)?;
    control.query("SELECT pg_cancel_backend($1)", &[&commit.pid])?;
    let (kept, told) = commit.end()?;
    ensure!(sqlstate(&told) == "57014", "{told:?}");
    cluster.line(1).heal();
    ensure!(reader.end()?.1? == [2; 3]);
    ensure!(
        traces(&mut client)? == [2; 3],
        "a cancelled commit was seen"
    );
    expect_free(&cluster, 4)?;
    drop(kept);
    Ok(())
}

/// The reader gives up, never the commit.
#[test]
fn a_node_that_does_not_answer_is_left_out() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = session(&cluster)?;
    client.batch_execute("SET txn.geo_snapshot_timeout = '300ms'")?;
    cluster.line(1).cut();
    client.batch_execute("BEGIN; SELECT count(*) FROM trace_0; SAVEPOINT a")?;
    let told = sqlstate(&client.simple_query("SELECT count(*) FROM trace_1"));
    ensure!(told == "40001", "{told}");
    cluster
        .session()?
        .batch_execute("INSERT INTO trace_0 VALUES (1)")?;
    client.batch_execute("ROLLBACK TO a")?;
    let seen = int(&mut client, "SELECT count(*) FROM trace_0")?;
    ensure!(seen == 0, "the snapshot was not kept");
    client.batch_execute("COMMIT")?;
    // Not tried again by those that do not name it.
    let seen = int(&mut client, "SELECT count(*) FROM trace_0")?;
    ensure!(seen == 1);
    cluster.line(1).heal();
    ensure!(
        traces(&mut client)? == [0, 1, 0],
        "a statement that names it does not try"
    );
    Ok(())
}

/// A commit that hangs keeps readers waiting, and no other commits for long.
#[test]
fn a_commit_that_hangs_holds_up_readers_only() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let mut reader = Reader::new(session(&cluster)?)?;
    reader.batch_execute("SET txn.geo_snapshot_timeout = '200ms'")?;
    let mut stopped = cluster.stop_at("geo_applying", 1)?;
    let reader = reader.read();
    reader.wait_until_blocked(&mut control)?;
    for number in 2..5 {
        let mut other = cluster.session()?;
        other.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))?;
    }
    ensure!(!reader.is_finished(), "the reader did not wait");
    stopped.release()?;
    stopped.end()?.1?;
    ensure!(reader.end()?.1? == [4; 3]);
    Ok(())
}

/// A reader that waits in vain for a commit gives up.
#[test]
fn a_reader_gives_up() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = session(&cluster)?;
    client
        .batch_execute("SET txn.geo_snapshot_timeout = '100ms'; SET txn.geo_apply_timeout = 0")?;
    let mut stopped = cluster.stop_at("geo_applying", 1)?;
    let told = sqlstate(&traces(&mut client));
    ensure!(told == "40001", "{told}");
    stopped.release()?;
    stopped.end()?.1?;
    ensure!(traces(&mut client)? == [1; 3]);
    Ok(())
}

/// What is decided and not applied at a node is not seen at others either.
#[test]
fn unapplied_commits_keep_readers_waiting() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = session(&cluster)?;
    let in_line = Reader::new(session(&cluster)?)?;
    let later = Reader::new(session(&cluster)?)?;
    let mut stopped = cluster.stop_at("geo_applying", 1)?;
    let in_line = in_line.read();
    in_line.wait_until_blocked(&mut cluster.session()?)?;
    cluster.line(1).cut();
    stopped.release()?;
    stopped.end()?.1?;
    client.batch_execute("SET txn.geo_apply_timeout = '1s'")?;
    let told = sqlstate(&traces(&mut client));
    ensure!(told == "08006", "{told}");
    let later = later.read();
    for reader in [&in_line, &later] {
        reader.wait_until_blocked(&mut cluster.session()?)?;
    }
    cluster.line(1).heal();
    for reader in [in_line, later] {
        let seen = reader.end()?.1?;
        ensure!(seen == [1; 3], "{seen:?}");
    }
    Ok(())
}

/// The coordinator dies when one node has the commit, and the other has not.
#[test]
fn after_a_crash_nothing_is_torn() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let stopped = cluster.stop_at("geo_applying", 1)?;
    cluster.line(1).cut();
    cluster.kill_coordinator()?;
    drop(stopped);
    let mut reader = Reader::new(cluster.session()?)?;
    reader.batch_execute(GLOBAL)?;
    reader.batch_execute("SET txn.geo_connect_timeout = '5min'")?;
    let reader = reader.read();
    reader.wait_until_blocked(&mut cluster.session()?)?;
    cluster.line(1).heal();
    let seen = reader.end()?.1?;
    ensure!(seen == [1; 3], "{seen:?}");
    Ok(())
}

/// What a transaction may fail with while lines are cut and servers die.
const GONE: [&str; 14] = [
    "lost", "57P01", "57P02", "57P03", "08000", "08001", "08003", "08004", "08006", "08007",
    "40001", "40P01", "55P03", "25P02",
];

/// The bank under faults, with readers beside: each of their reads is a cut.
#[test]
fn reads_beside_faults_are_cuts() -> Result<()> {
    const SOME: usize = 60;
    let mut cluster = snapshot::cluster_for_load(&[("txn.geo_apply_timeout", "2s")])?;
    let load = Load::endless(&cluster.coordinator, 9);
    let dog = Arc::clone(&cluster.dog);
    let work = |worker: &mut _| {
        dog.progress();
        snapshot::work(worker)
    };
    let tally = load.run_disturbed(work, |running| {
        for number in 0..6 {
            let more = running.done() + SOME;
            ensure!(running.wait_for(more), "the load has ended");
            match number {
                2 => cluster.kill_node(1, true)?,
                4 => cluster.kill_coordinator()?,
                _ => {
                    let line = cluster.line(number % 2);
                    line.cut();
                    std::thread::sleep(Duration::from_millis(300));
                    if number >= 3 {
                        line.break_connections();
                    }
                    line.heal();
                }
            }
        }
        let more = running.done() + SOME;
        ensure!(running.wait_for(more), "the load has ended");
        Ok(())
    })?;
    tally.only(&GONE)?;
    cluster.wait_until_resolved()?;
    ensure!(cluster.balance_sum_at_nodes()? == 2 * NODE_SUM);
    Ok(())
}
