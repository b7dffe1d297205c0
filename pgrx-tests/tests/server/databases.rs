//! A copied database has the same tables by number and the same keys in them: its rows are others.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Watchdog, grouped, int, physical_health, start_hot};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

#[test]
fn copies_of_a_row_are_other_rows() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(use_both(&server))
}

fn use_both(server: &Server) -> Result<()> {
    server
        .connect_as("postgres", "template1")?
        .batch_execute("CREATE DATABASE copy TEMPLATE postgres")?;
    let mut here = grouped(server)?;
    here.batch_execute("BEGIN; SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
    let mut there = server.connect_as("postgres", "copy")?;
    there.batch_execute("SET txn.group_lock = on; SET txn.hot_threshold = 0; BEGIN")?;
    // Neither waits for the other, nor follows it, nor falls with it.
    there.batch_execute(BUMP)?;
    here.batch_execute(BUMP)?;
    there.batch_execute("COMMIT")?;
    here.batch_execute("ROLLBACK")?;
    for (client, expected) in [(&mut here, 0), (&mut there, 1)] {
        let val = int(client, "SELECT val FROM hot")?;
        ensure!(val == expected, "the value is {val} instead of {expected}");
        let rows = int(
            client,
            "SELECT count(*) FROM txn.hotspots WHERE relation = 'hot'::regclass",
        )?;
        ensure!(rows <= 1, "a database sees another one's hot row");
    }
    let stats = "SELECT followed FROM txn.stats";
    ensure!(
        int(&mut here, stats)? == 0,
        "a row was followed into another database"
    );
    drop((here, there));
    physical_health(server, "hot", "id")
}
