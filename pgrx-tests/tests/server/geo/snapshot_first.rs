//! What may come before the first statement of a transaction with a global snapshot, and beside it.
use anyhow::{Result, ensure};
use postgres::{Client, Error};
use txn_server_tests::{Background, int, pid, sqlstate, until};

use super::snapshot::{GLOBAL, TRACES, session, traces};
use super::{Cluster, transfer};

/// The planner runs a STABLE function that reads a table, to make an estimate.
#[test]
fn functions_that_the_planner_runs_are_not_first() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.session()?.batch_execute(
        "CREATE TABLE tenant (number bigint); INSERT INTO tenant VALUES (7);
         CREATE FUNCTION tenant() RETURNS bigint STABLE LANGUAGE plpgsql AS
             $$ BEGIN RETURN (SELECT number FROM tenant); END $$",
    )?;
    let mut client = session(&cluster, GLOBAL)?;
    let read = "SELECT count(*) FROM trace_0 WHERE number < tenant()";
    for begin in ["", "BEGIN; "] {
        client.batch_execute(&format!("{begin}{read}"))?;
        if !begin.is_empty() {
            ensure!(traces(&mut client)? == [0; 3]);
        }
        client.batch_execute("COMMIT")?;
    }
    client.batch_execute(&format!("BEGIN; EXPLAIN {read}; {read}; COMMIT"))?;
    Ok(())
}

/// A session that has its settings from its role, and runs no command before its queries.
#[test]
fn the_first_query_of_a_session() -> Result<()> {
    // Else every session watches from its first command on.
    let cluster = Cluster::with(2, &[("txn.lane_stripes", "0")], &[])?;
    let mut writer = cluster.session()?;
    writer.batch_execute(
        "ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read';
         ALTER ROLE postgres SET txn.geo_snapshot = global",
    )?;
    let mut client = cluster.session()?;
    ensure!(traces(&mut client)? == [0; 3], "an extended statement");
    let mut client = cluster.session()?;
    client.simple_query(TRACES)?;
    client.simple_query(TRACES)?;
    writer.batch_execute(
        "ALTER ROLE postgres RESET default_transaction_isolation;
         ALTER ROLE postgres RESET txn.geo_snapshot",
    )?;
    // One that has run statements without anybody watching them, and sets it for one transaction.
    let mut client = cluster.session()?;
    client.simple_query("SELECT 1")?;
    client.batch_execute(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL txn.geo_snapshot = global; {TRACES}"
    ))?;
    Ok(client.batch_execute("COMMIT")?)
}

/// A view that belongs to somebody else says nothing of as whom the statement reaches a server that
/// only the rest of it names.
#[test]
fn owners_of_views_reach_what_their_views_name() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut there = cluster.node(0).connect()?;
    there.batch_execute("CREATE ROLE there LOGIN; GRANT ALL ON trace TO there")?;
    cluster.session()?.batch_execute(
        "CREATE ROLE plain LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO plain;
         CREATE VIEW here AS SELECT number FROM ledger; GRANT SELECT ON here TO plain;
         CREATE VIEW far AS SELECT number FROM trace_0; GRANT SELECT ON far TO plain;
         ALTER USER MAPPING FOR PUBLIC SERVER node0 OPTIONS (ADD password_required 'false');
         ALTER USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (ADD password_required 'false');
         CREATE USER MAPPING FOR postgres SERVER node0 OPTIONS (user 'there')",
    )?;
    let mut owners = |expected: i64| -> Result<()> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'there'";
        let count = int(&mut there, sql)?;
        ensure!(count == expected, "{count} connections as the owner");
        Ok(())
    };
    let mut client = cluster.coordinator.connect_as("plain", "postgres")?;
    client.batch_execute(GLOBAL)?;
    client.query_one(
        "SELECT (SELECT count(*) FROM trace_0), count(*) FROM here",
        &[],
    )?;
    owners(0)?;
    client.query_one("SELECT count(*) FROM far", &[])?;
    owners(1)
}

/// A cancel while the snapshot is taken, caught by a savepoint: what the transaction has done here
/// commits.
#[test]
fn a_cancel_that_is_caught_fails_nothing_else() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = session(&cluster, GLOBAL)?;
    let mut control = cluster.session()?;
    let pid = pid(&mut client)?;
    client.batch_execute("BEGIN; SAVEPOINT a")?;
    cluster.line(1).cut();
    let reader = Background::call(client, pid, |client| client.simple_query("SELECT 1"));
    reader.wait_until_blocked(&mut control)?;
    until(&mut control, "the cancel is heard", |control| {
        control.execute("SELECT pg_cancel_backend($1)", &[&pid])?;
        Ok(reader.is_finished())
    })?;
    let (mut client, told) = reader.end()?;
    ensure!(sqlstate(&told) == "57014", "{}", sqlstate(&told));
    client.batch_execute("ROLLBACK TO a; INSERT INTO ledger VALUES (7)")?;
    let told = sqlstate(&client.simple_query("SAVEPOINT b; SELECT count(*) FROM trace_0"));
    ensure!(told == "55000", "{told}");
    client.batch_execute("ROLLBACK TO b; COMMIT")?;
    cluster.line(1).heal();
    let kept = int(&mut control, "SELECT count(*) FROM ledger WHERE number = 7")?;
    ensure!(kept == 1, "the transaction's own row is gone");
    Ok(())
}

/// A snapshot that was imported from another session stays: nodes are refused, and what is read
/// here is as that snapshot shows it.
#[test]
fn an_imported_snapshot_stays() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut exporter = cluster.session()?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    exporter.batch_execute(begin)?;
    let row = exporter.query_one("SELECT pg_export_snapshot()", &[])?;
    let name: String = row.get(0);
    let mut writer = cluster.session()?;
    writer.batch_execute("INSERT INTO ledger VALUES (7)")?;
    let mut client = session(&cluster, GLOBAL)?;
    client.batch_execute(&format!("{begin}; SET TRANSACTION SNAPSHOT '{name}'"))?;
    let seen = int(&mut client, "SELECT count(*) FROM ledger")?;
    ensure!(seen == 0, "the imported snapshot does not show the row");
    let told = sqlstate(&client.simple_query("SELECT count(*) FROM trace_0"));
    ensure!(told == "55000", "{told}");
    Ok(())
}

/// Commands that want all others to leave the database take no snapshot of the nodes.
#[test]
fn a_copy_of_the_database() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.session()?.batch_execute(&transfer(1))?;
    cluster.wait_until_resolved()?;
    let mut client = session(&cluster, GLOBAL)?;
    let other = "CREATE DATABASE other TEMPLATE postgres";
    client.batch_execute(other)?;
    for sql in ["DROP DATABASE other", "CHECKPOINT", "VACUUM ledger"] {
        client.batch_execute(sql)?;
    }
    ensure!(traces(&mut client)? == [1; 3]);
    Ok(())
}

/// The planner runs a STABLE function that reads a node, before the statement takes the snapshot.
#[test]
fn functions_that_the_planner_runs_may_read_nodes() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.session()?.batch_execute(
        "CREATE FUNCTION fewest() RETURNS bigint STABLE LANGUAGE plpgsql AS
             $$ BEGIN RETURN (SELECT count(*) FROM trace_1); END $$;
         CREATE FUNCTION caught() RETURNS bigint STABLE LANGUAGE plpgsql AS
             $$ DECLARE one bigint; BEGIN
                 BEGIN one := 1 / 0; EXCEPTION WHEN OTHERS THEN one := fewest(); END;
                 RETURN one + (SELECT count(*) FROM ledger); END $$",
    )?;
    let mut client = session(&cluster, GLOBAL)?;
    let mut writer = cluster.session()?;
    let read = "SELECT count(*) FROM trace_0 WHERE number >= fewest()";
    // The executor leaves partitions out before it runs the statement.
    let pruned = "SELECT balance FROM account WHERE id = fewest()";
    for one in [read, pruned, &read.replace("fewest", "caught")] {
        client.batch_execute(&format!("BEGIN; EXPLAIN {one}; {one}"))?;
        let seen = traces(&mut client)?;
        writer.batch_execute(&transfer(seen[0] + 1))?;
        ensure!(traces(&mut client)? == seen, "one snapshot");
        client.batch_execute("COMMIT")?;
    }
    ensure!(traces(&mut client)? == [3; 3]);
    // Keys are granted before the snapshot, and this one cannot be taken again.
    let declare = "BEGIN; SELECT txn.declare(ARRAY['ledger(1)'])";
    let told = sqlstate(&client.simple_query(declare));
    ensure!(told == "0A000", "{told}");
    client.batch_execute("ROLLBACK")?;
    // What the transaction itself has read before stays a reason to refuse.
    client
        .batch_execute("BEGIN; SET LOCAL txn.geo_snapshot = node; SELECT count(*) FROM trace_1")?;
    client.batch_execute("SET LOCAL txn.geo_snapshot = global")?;
    let told = sqlstate(&client.simple_query(read));
    ensure!(told == "55000", "{told}");
    Ok(())
}

/// A cursor's plan is made after the snapshot, of a table that was locked before: it knows what has
/// come between.
#[test]
fn partitions_that_come_before_a_cursor_is_planned() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    control.batch_execute(
        "CREATE TABLE part (number bigint) PARTITION BY LIST (number);
         CREATE TABLE part_0 PARTITION OF part FOR VALUES IN (0)",
    )?;
    let mut reader = session(&cluster, GLOBAL)?;
    let declare = "BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM part";
    // What it looks up is in its caches from now on.
    reader.batch_execute(&format!("{declare}; FETCH c; ROLLBACK"))?;
    let pid = pid(&mut reader)?;
    let mut stopped = cluster.stop_at("geo_decided", 1)?;
    let declaring = Background::call(reader, pid, |client| client.batch_execute(declare));
    declaring.wait_until_blocked(&mut control)?;
    control.batch_execute(
        "CREATE TABLE part_1 AS SELECT 1::bigint AS number;
         ALTER TABLE part ATTACH PARTITION part_1 FOR VALUES IN (1)",
    )?;
    stopped.release()?;
    let (mut reader, told) = declaring.end()?;
    told?;
    let row = reader.query_one("FETCH c", &[])?;
    ensure!(row.get::<_, i64>(0) == 1, "the new partition is missing");
    stopped.end()?.1?;
    Ok(())
}

/// A table becomes a partition, or an heir, with what a commit has written, while the reader waits
/// at the gate: the plan does not know it.
#[test]
fn partitions_that_come_meanwhile() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    control.batch_execute(
        "CREATE TABLE part (number bigint) PARTITION BY LIST (number);
         CREATE TABLE part_0 PARTITION OF part FOR VALUES IN (0);
         CREATE TABLE heir (number bigint)",
    )?;
    let changes = [
        "CREATE TABLE part_1 AS SELECT 1::bigint AS number;
         ALTER TABLE part ATTACH PARTITION part_1 FOR VALUES IN (1)",
        "CREATE TABLE heir_1 AS SELECT 1::bigint AS number; ALTER TABLE heir_1 INHERIT heir",
    ];
    let read = "SELECT (SELECT count(*) FROM part), (SELECT count(*) FROM heir), \
        (SELECT count(*) FROM trace_0)";
    let both = |client: &mut Client| {
        let row = client.query_one(read, &[])?;
        Ok::<[i64; 3], Error>([0, 1, 2].map(|n| row.get(n)))
    };
    for (number, change) in (1..).zip(changes) {
        let mut reader = session(&cluster, GLOBAL)?;
        let pid = pid(&mut reader)?;
        let mut stopped = cluster.stop_at("geo_decided", number)?;
        let reading = Background::call(reader, pid, both);
        reading.wait_until_blocked(&mut control)?;
        control.batch_execute(change)?;
        stopped.release()?;
        let (mut reader, told) = reading.end()?;
        ensure!(sqlstate(&told) == "40001", "{}", sqlstate(&told));
        ensure!(
            both(&mut reader)?[number as usize - 1] == 1,
            "the next attempt sees it"
        );
        stopped.end()?.1?;
    }
    Ok(())
}
