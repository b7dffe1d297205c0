//! Writes of a subscription's apply worker.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Watchdog, int, sqlstate, start, wait_until};

use super::{TABLES, validated_in};

const SCAN: &str = "SELECT coalesce(sum(v), 0) FROM t WHERE id BETWEEN 50 AND 80";

/// A scans, the worker writes, C sees that and nothing of A, A writes.
fn scanned_beside(server: &Server, publisher: &mut Client, sql: &str, refused: bool) -> Result<()> {
    let mut control = server.connect_as("postgres", "copy")?;
    let mut reader = validated_in(server, "copy")?;
    reader.batch_execute("BEGIN")?;
    let found = int(&mut reader, SCAN)?;
    publisher.batch_execute(sql)?;
    let sum = int(publisher, "SELECT sum(id * 100 + v) FROM t")?;
    wait_until(
        &mut control,
        &format!("SELECT sum(id * 100 + v) = {sum} FROM t"),
    )?;
    let mut observer = validated_in(server, "copy")?;
    observer.batch_execute("BEGIN READ ONLY")?;
    let later = int(&mut observer, SCAN)?;
    ensure!((found != later) == refused, "{sql}: {found} and {later}");
    let flag = int(&mut observer, "SELECT v FROM flag WHERE id = 1")?;
    observer.batch_execute("COMMIT")?;
    let end = reader
        .batch_execute("UPDATE flag SET v = v + 1 WHERE id = 1")
        .and_then(|()| reader.batch_execute("COMMIT"));
    let expected = if refused { "40001" } else { "00000" };
    ensure!(sqlstate(&end) == expected, "{sql}: {end:?}");
    let after = int(&mut control, "SELECT v FROM flag WHERE id = 1")?;
    ensure!(after == flag + i64::from(!refused), "flag is {after}");
    Ok(())
}

#[test]
fn applied_changes_are_registered() -> Result<()> {
    let server = start(&[("wal_level", "logical")])?;
    let dog = Watchdog::new(&server);
    let result = play(&server, &dog);
    dog.finish(result)
}

fn play(server: &Server, dog: &Watchdog) -> Result<()> {
    let mut client = server.connect()?;
    client.batch_execute(TABLES)?;
    client.batch_execute("CREATE PUBLICATION p FOR TABLE t")?;
    client.batch_execute("CREATE DATABASE copy")?;
    client.query(
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        &[],
    )?;
    let mut copy = server.connect_as("postgres", "copy")?;
    copy.batch_execute("CREATE EXTENSION txn")?;
    copy.batch_execute(TABLES)?;
    copy.batch_execute(&format!(
        "CREATE SUBSCRIPTION sub CONNECTION 'host={} port={} dbname=postgres user=postgres'
             PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)",
        server.host().display(),
        server.port()
    ))?;
    for (sql, refused) in [
        ("INSERT INTO t VALUES (85, 1)", false),
        ("INSERT INTO t VALUES (55, 1)", true),
        ("UPDATE t SET v = v + 1 WHERE id = 90", false),
        ("UPDATE t SET v = v + 1 WHERE id = 60", true),
        ("UPDATE t SET id = 57 WHERE id = 100", true),
        ("UPDATE t SET id = 107 WHERE id = 110", false),
        ("DELETE FROM t WHERE id = 120", false),
        ("DELETE FROM t WHERE id = 60", true),
    ] {
        scanned_beside(server, &mut client, sql, refused)?;
        dog.progress();
    }
    copy.batch_execute("DROP SUBSCRIPTION sub")?;
    Ok(())
}
