//! Which tables are trusted to be read beside running predecessors, and for which a reader waits.

use anyhow::{Result, ensure};
use txn_server_tests::{Background, sqlstate};

use crate::validated_reads::{AT_ONCE, BUMP, READ, pair, start, told, watch_item};

/// A table that predecessors write is waited for, and one that nobody has asked for is watched
/// first.
#[test]
fn readers_of_what_is_written_wait() -> Result<()> {
    let server = start(&[("txn.follower_reads_backoff", "2s")])?;
    let mut control = server.connect()?;
    let read = |waits: bool| -> Result<String> {
        let (mut leader, follower) = pair(&server, BUMP)?;
        let mut follower = Background::run(follower, READ)?;
        if waits {
            follower.wait_until_blocked(&mut server.connect()?)?;
            leader.batch_execute("UPDATE item SET price = 1; COMMIT")?;
        }
        let (client, result) = follower.end()?;
        result?;
        follower = Background::run(client, "COMMIT")?;
        if !waits {
            follower.wait_until_blocked(&mut server.connect()?)?;
            leader.batch_execute("UPDATE item SET price = 1; COMMIT")?;
        }
        Ok(sqlstate(&follower.end()?.1))
    };
    ensure!(read(true)? == "00000", "it is watched first");
    ensure!(read(true)? == "00000", "it was written just now");
    control.batch_execute("SELECT pg_sleep(2)")?;
    ensure!(read(false)? == "40001", "it was trusted too long");
    ensure!(read(true)? == "00000", "it is not trusted any more");
    Ok(())
}

/// A read that was refused because definitions have changed: the table is not trusted for a while.
#[test]
fn after_a_change_of_definitions_readers_wait() -> Result<()> {
    let server = start(&[("txn.follower_reads_backoff", "2s")])?;
    watch_item(&server)?;
    server.connect()?.batch_execute("SELECT pg_sleep(2)")?;
    let (mut leader, mut follower) = pair(&server, BUMP)?;
    follower.query_one(READ, &[])?;
    let mut control = server.connect()?;
    control.batch_execute("CREATE TABLE other (n int)")?;
    control.batch_execute("ALTER TABLE other ALTER COLUMN n SET DEFAULT 7")?;
    ensure!(told(&server, follower, &mut leader, "COMMIT")? == "40001");
    let (mut leader, follower) = pair(&server, BUMP)?;
    let follower = Background::run(follower, READ)?;
    follower.wait_until_blocked(&mut server.connect()?)?;
    leader.batch_execute("COMMIT")?;
    follower.end()?.1?;
    Ok(())
}

/// One statement takes no more than half of the places for watched tables.
#[test]
fn a_read_of_nine_tables_waits() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    let read = |tables: usize| {
        let names = (1..=tables).map(|n| format!("read{n}"));
        format!("SELECT FROM {}", names.collect::<Vec<_>>().join(", "))
    };
    for n in 1..=9 {
        let create = format!("CREATE TABLE read{n} (id int)");
        server.connect()?.batch_execute(&create)?;
    }
    let waits = |tables: usize| -> Result<()> {
        let (mut leader, follower) = pair(&server, BUMP)?;
        let follower = Background::run(follower, &read(tables))?;
        follower.wait_until_blocked(&mut server.connect()?)?;
        leader.batch_execute("COMMIT")?;
        let (mut follower, result) = follower.end()?;
        result?;
        Ok(follower.batch_execute("COMMIT")?)
    };
    // The first readers have them watched.
    waits(8)?;
    let (mut leader, mut follower) = pair(&server, BUMP)?;
    follower.batch_execute(&read(8))?;
    ensure!(told(&server, follower, &mut leader, "COMMIT")? == "00000");
    waits(9)?;
    waits(9)
}
