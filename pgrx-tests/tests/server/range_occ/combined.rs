//! Updates of a hot row that one session does for others, in one version and one commit.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Watchdog, int, sqlstate, start_hot};

use super::validated;
use crate::stage::{Stage, crowd};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const FLAG: &str = "CREATE TABLE flag (id int PRIMARY KEY, v int); INSERT INTO flag VALUES (1, 0)";

/// A has read, the others update, C sees that and nothing of A, A writes.
fn read_beside(scan: &str, refused: bool) -> Result<()> {
    // Nobody goes to the lock manager, where it would not be seen who waits.
    let settings = [
        ("deadlock_timeout", "10min"),
        ("default_table_access_method", "txn_heap"),
    ];
    let server = start_hot(9, &settings)?;
    let dog = Watchdog::new(&server);
    dog.finish(play(&server, scan, refused))
}

fn play(server: &Server, scan: &str, refused: bool) -> Result<()> {
    server.connect()?.batch_execute(FLAG)?;
    let mut stage = Stage::new(server, BUMP)?;
    let waiters = crowd(server, 3, BUMP)?;
    stage.wait_queued(3)?;
    let mut reader = validated(server)?;
    reader.batch_execute("BEGIN")?;
    ensure!(int(&mut reader, scan)? == 0);
    stage.release()?;
    ensure!(stage.end()? == "00000");
    for waiter in waiters {
        let told = sqlstate(&waiter.end()?.1);
        ensure!(told == "00000", "a waiter was told {told}");
    }
    ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);

    let mut observer = validated(server)?;
    observer.batch_execute("BEGIN READ ONLY")?;
    let found = int(&mut observer, scan)?;
    ensure!((found == 4) == refused, "the sum is {found}");
    ensure!(int(&mut observer, "SELECT v FROM flag WHERE id = 1")? == 0);
    observer.batch_execute("COMMIT")?;
    let end = reader
        .batch_execute("UPDATE flag SET v = 1 WHERE id = 1")
        .and_then(|()| reader.batch_execute("COMMIT"));
    let expected = if refused { "40001" } else { "00000" };
    ensure!(sqlstate(&end) == expected, "{end:?}");
    Ok(())
}

#[test]
fn combined_updates_are_registered() -> Result<()> {
    read_beside("SELECT sum(val) FROM hot WHERE id BETWEEN 1 AND 3", true)
}

#[test]
fn combined_updates_of_other_rows() -> Result<()> {
    read_beside("SELECT sum(val) FROM hot WHERE id BETWEEN 2 AND 5", false)
}
