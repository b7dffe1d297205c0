//! Standbys, and snapshots that come from another session.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pgserver::Standby;
use postgres::Client;
use txn_server_tests::{Watchdog, int, sqlstate, start, text};

use super::{TABLES, validated};

const SCAN: &str = "SELECT count(*) FROM t WHERE id BETWEEN 50 AND 80";

#[test]
fn not_on_a_standby() -> Result<()> {
    let primary = start(&[])?;
    primary.connect()?.batch_execute(TABLES)?;
    let standby = Standby::attach(&primary, "a", Duration::ZERO)?;
    standby.wait_until_caught_up(&primary)?;
    let mut client = standby.server().connect()?;
    let end = client
        .batch_execute(
            "SET txn.range_occ = on; SET default_transaction_isolation = 'repeatable read'",
        )
        .and_then(|()| client.batch_execute(SCAN));
    let error = end.err().context("it was possible")?;
    let error = error.as_db_error().context("the connection is lost")?;
    ensure!(
        error.code().code() == "0A000" && error.message().contains("txn.range_occ"),
        "{error:?}"
    );
    // Without the setting it is what it was, and so is READ COMMITTED.
    let mut client = standby.server().connect()?;
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    ensure!(int(&mut client, SCAN)? == 4);
    client.batch_execute("COMMIT")?;
    drop(client);
    drop(primary);
    let promoted = standby.promote()?;
    let mut first = validated(&promoted)?;
    let mut second = validated(&promoted)?;
    skew(&mut first, &mut second)
}

/// Only one of the two can commit.
fn skew(first: &mut Client, second: &mut Client) -> Result<()> {
    for client in [&mut *first, &mut *second] {
        client.batch_execute("BEGIN")?;
        ensure!(int(client, SCAN)? == 4);
    }
    first.batch_execute("INSERT INTO t VALUES (55, 0); COMMIT")?;
    let end = second.batch_execute("INSERT INTO t VALUES (65, 0); COMMIT");
    ensure!(sqlstate(&end) == "40001", "{end:?}");
    Ok(())
}

/// What is written between the snapshot of the one who exports it and the scan of the one who
/// imports it has not been seen.
fn with_an_imported_snapshot(sql: &str, expected: &str) -> Result<()> {
    let server = start(&[])?;
    let dog = Watchdog::new(&server);
    let result = (|| {
        server.connect()?.batch_execute(TABLES)?;
        let mut exporter = server.connect()?;
        exporter.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        let snapshot = text(&mut exporter, "SELECT pg_export_snapshot()")?;

        let mut writer = validated(&server)?;
        writer.batch_execute("BEGIN")?;
        ensure!(int(&mut writer, "SELECT v FROM flag WHERE id = 1")? == 0);
        writer.batch_execute(sql)?;
        writer.batch_execute("COMMIT")?;
        // Others come and go: whoever imports has to know what was registered before it began.
        for n in 0..5 {
            writer.batch_execute(&format!("INSERT INTO t VALUES ({}, 0)", 1000 + n))?;
        }

        let mut reader = validated(&server)?;
        reader.batch_execute("BEGIN")?;
        reader.batch_execute(&format!("SET TRANSACTION SNAPSHOT '{snapshot}'"))?;
        exporter.batch_execute("COMMIT")?;
        let mut in_order = |sql: &str| reader.simple_query(sql).map(|_| ());
        // A refusal may come as soon as it is known.
        let end = in_order(SCAN)
            .and_then(|()| in_order("UPDATE flag SET v = 1 WHERE id = 1"))
            .and_then(|()| in_order("COMMIT"));
        ensure!(sqlstate(&end) == expected, "{sql}: {end:?}");
        Ok(())
    })();
    dog.finish(result)
}

#[test]
fn an_imported_snapshot_misses_what_came_after_it() -> Result<()> {
    with_an_imported_snapshot("INSERT INTO t VALUES (55, 0)", "40001")
}

#[test]
fn an_imported_snapshot_and_writes_elsewhere() -> Result<()> {
    with_an_imported_snapshot("INSERT INTO t VALUES (85, 0)", "00000")
}

/// A careful session, which asks who can have registered anything, finds out what was running in
/// the snapshot that it imports.
#[test]
fn an_imported_snapshot_is_older_than_what_its_importer_knows() -> Result<()> {
    let server = start(&[("txn.range_slots", "4")])?;
    let dog = Watchdog::new(&server);
    let result = (|| {
        let mut control = server.connect()?;
        control.batch_execute(TABLES)?;
        // Keeps back what snapshots are known to see.
        let mut idle = server.connect()?;
        idle.batch_execute("BEGIN; INSERT INTO flag VALUES (4, 0)")?;
        let mut overwrite =
            || (0..40).try_for_each(|_| control.batch_execute("UPDATE t SET v = 0 WHERE id = 10"));
        let mut reader = validated(&server)?;
        reader.batch_execute("BEGIN; SELECT 1")?;
        overwrite()?;
        let end = reader.batch_execute("SELECT v FROM t WHERE id = 10; COMMIT");
        ensure!(sqlstate(&end) == "40001", "its history is whole: {end:?}");
        reader.batch_execute("ROLLBACK")?;
        let mut exporter = server.connect()?;
        exporter.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        let snapshot = text(&mut exporter, "SELECT pg_export_snapshot()")?;
        let mut writer = validated(&server)?;
        writer.batch_execute(
            "BEGIN; SELECT v FROM flag WHERE id = 1; UPDATE t SET v = 100 WHERE id = 10; COMMIT",
        )?;
        overwrite()?;
        reader.batch_execute("SELECT 1")?;
        let end = reader.batch_execute(&format!(
            "BEGIN; SET TRANSACTION SNAPSHOT '{snapshot}'; SELECT v FROM t WHERE id = 10; \
             UPDATE flag SET v = 1 WHERE id = 1; COMMIT"
        ));
        ensure!(sqlstate(&end) == "40001", "a write skew: {end:?}");
        Ok(())
    })();
    dog.finish(result)
}
