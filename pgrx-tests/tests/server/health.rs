//! The physical check finds what it is for: damage planted by hand.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{physical_health, start_stock};

fn sound_table() -> Result<Server> {
    let server = start_stock(&[("autovacuum", "off")])?;
    server.connect()?.batch_execute(
        "CREATE TABLE hot (id int PRIMARY KEY, val int);
         INSERT INTO hot VALUES (1, 0);
         UPDATE hot SET val = 1",
    )?;
    physical_health(&server, "hot", "id").context("nothing has been done to it yet")?;
    Ok(server)
}

/// Inserts a row behind the back of the index.
fn insert_unindexed(server: &Server, id: i32) -> Result<()> {
    let mut client = server.connect()?;
    let ready = |ready| {
        format!("UPDATE pg_index SET indisready = {ready} WHERE indexrelid = 'hot_pkey'::regclass")
    };
    client.batch_execute(&ready(false))?;
    client.batch_execute(&format!("INSERT INTO hot VALUES ({id}, 9)"))?;
    client.batch_execute(&ready(true))?;
    Ok(())
}

fn expect_findings(server: &Server, what: &str) -> Result<()> {
    ensure!(
        physical_health(server, "hot", "id").is_err(),
        "{what} was not noticed"
    );
    Ok(())
}

/// What a doomed follower that commits leaves behind.
#[test]
fn a_second_live_version() -> Result<()> {
    let server = sound_table()?;
    insert_unindexed(&server, 1)?;
    expect_findings(&server, "a second version of a row")
}

#[test]
fn a_row_that_no_index_reaches() -> Result<()> {
    let server = sound_table()?;
    insert_unindexed(&server, 2)?;
    expect_findings(&server, "a row that no index reaches")
}

#[test]
fn a_prepared_transaction_left_behind() -> Result<()> {
    let server = sound_table()?;
    let update = "BEGIN; UPDATE hot SET val = 3; PREPARE TRANSACTION 'left'";
    server.connect()?.batch_execute(update)?;
    expect_findings(&server, "a prepared transaction")
}
