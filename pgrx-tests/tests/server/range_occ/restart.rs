//! Shared memory is gone, prepared transactions are not.
use anyhow::{Result, ensure};
use pgserver::{Server, StopMode};
use txn_server_tests::{Watchdog, int, sqlstate, start};

use super::{TABLES, validated};

const SCAN: &str = "SELECT count(*) FROM t WHERE id BETWEEN 50 AND 80";

fn over_a_restart(stop: fn(&mut Server) -> Result<()>) -> Result<()> {
    let mut server = start(&[])?;
    let dog = Watchdog::new(&server);
    let result = play(&mut server, &dog, stop);
    dog.finish(result)
}

/// The prepared one has read what the other then writes, and has written what the other does not
/// see: no order.
fn play(server: &mut Server, dog: &Watchdog, stop: fn(&mut Server) -> Result<()>) -> Result<()> {
    server.connect()?.batch_execute(TABLES)?;
    let mut writer = validated(server)?;
    writer.batch_execute("BEGIN")?;
    ensure!(int(&mut writer, "SELECT v FROM flag WHERE id = 1")? == 0);
    writer.batch_execute("INSERT INTO t VALUES (55, 0); PREPARE TRANSACTION 'before'")?;
    drop(writer);
    stop(server)?;
    server.start_again()?;
    dog.progress();

    let mut control = server.connect()?;
    let mut reader = validated(server)?;
    reader.batch_execute("BEGIN")?;
    let mut in_order = |sql: &str| reader.simple_query(sql).map(|_| ());
    let scanned = in_order(SCAN);
    control.batch_execute("COMMIT PREPARED 'before'")?;
    // The refusal may come as soon as it is known.
    let end = scanned
        .and_then(|()| in_order("UPDATE flag SET v = 1 WHERE id = 1"))
        .and_then(|()| in_order("COMMIT"));
    ensure!(sqlstate(&end) == "40001", "the reader was told {end:?}");
    ensure!(int(&mut control, "SELECT v FROM flag WHERE id = 1")? == 0);
    dog.progress();

    // A transaction that comes after it sees it, and has missed nothing.
    let mut reader = validated(server)?;
    reader.batch_execute("BEGIN")?;
    let found = int(&mut reader, SCAN)?;
    ensure!(found == 5, "{found} rows, all of them committed");
    reader.batch_execute("UPDATE flag SET v = 1 WHERE id = 1")?;
    reader.batch_execute("COMMIT")?;
    Ok(())
}

#[test]
fn prepared_before_a_stop() -> Result<()> {
    over_a_restart(|server| server.stop(StopMode::Fast))
}

#[test]
fn prepared_before_a_crash() -> Result<()> {
    over_a_restart(Server::kill9)
}

/// Nothing is left of transactions from before that were not prepared.
#[test]
fn no_refusal_without_a_reason_after_a_crash() -> Result<()> {
    let mut server = start(&[])?;
    server.connect()?.batch_execute(TABLES)?;
    validated(&server)?.batch_execute("INSERT INTO t VALUES (55, 0)")?;
    server.kill9()?;
    server.start_again()?;
    let mut reader = validated(&server)?;
    reader.batch_execute("BEGIN")?;
    let found = int(&mut reader, SCAN)?;
    ensure!(found == 5, "{found} rows");
    validated(&server)?.batch_execute("INSERT INTO t VALUES (85, 0)")?;
    reader.batch_execute("UPDATE flag SET v = 1 WHERE id = 1")?;
    reader.batch_execute("COMMIT")?;
    Ok(())
}
