//! PostgreSQL's own load generator, in all of its protocols.
use std::fs;

use anyhow::{Context, Result, ensure};
use txn_server_tests::{Watchdog, int, physical_health, start_hot};

/// Runs `script` with 64 clients, 40 transactions each; fails with pgbench's own words. The counter
/// `moves` of `txn.stats` has to grow.
fn pgbench(protocol: &str, script: &str, moves: &str, expected: i64) -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int)",
    )?;
    let file = server.host().join("script.sql");
    fs::write(&file, script)?;
    server.user().own(&file)?;
    let mut pgbench = server.command("pgbench");
    pgbench.env("PGOPTIONS", "-c txn.group_lock=on -c txn.hot_threshold=1");
    pgbench.args(["-n", "-c", "64", "-j", "2", "-t", "40", "-M", protocol]);
    pgbench.arg("--max-tries=1").arg("-f").arg(&file);
    let dog = Watchdog::new(&server);
    let output = dog.finish(pgbench.output().context("could not run pgbench"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pgbench failed: {said}");
    let mut client = server.connect()?;
    let val = int(&mut client, "SELECT val FROM hot")?;
    ensure!(
        val == expected,
        "val is {val} instead of {expected}: {said}"
    );
    let rows = int(&mut client, "SELECT count(*) FROM ledger")?;
    ensure!(
        rows == 0 || rows == val,
        "{rows} ledger rows for {val} increments"
    );
    let moved = int(&mut client, &format!("SELECT {moves} FROM txn.stats"))?;
    ensure!(moved > 0, "txn.stats.{moves} has not moved");
    drop(client);
    physical_health(&server, "hot", "id")
}

const AUTOCOMMIT: &str = "UPDATE hot SET val = val + 1 WHERE id = 1;\n";
const BLOCK: &str = "BEGIN;\n\
                     UPDATE hot SET val = val + 1 WHERE id = 1;\n\
                     INSERT INTO ledger (amount) VALUES (1);\n\
                     END;\n";

#[test]
fn autocommit_simple() -> Result<()> {
    pgbench("simple", AUTOCOMMIT, "combined", 64 * 40)
}

#[test]
fn autocommit_extended() -> Result<()> {
    pgbench("extended", AUTOCOMMIT, "combined", 64 * 40)
}

#[test]
fn autocommit_prepared() -> Result<()> {
    pgbench("prepared", AUTOCOMMIT, "combined", 64 * 40)
}

#[test]
fn hot_row_and_ledger_prepared() -> Result<()> {
    pgbench("prepared", BLOCK, "followed", 64 * 40)
}

/// Pipelined, the messages of a whole transaction arrive before the first answer leaves.
#[test]
fn pipeline() -> Result<()> {
    let script = format!("\\startpipeline\n{BLOCK}\\endpipeline\n");
    pgbench("extended", &script, "followed", 64 * 40)
}
