//! Validated transactions (`txn.range_occ`): what has no serial order is refused, what has one that
//! they must find commits.
mod apply;
mod combined;
mod dump;
mod elsewhere;
mod history;
mod keys_elsewhere;
mod load;
mod page;
mod play;
mod restart;
mod rights;

use anyhow::Result;
use pgserver::Server;
use postgres::Client;

use play::page;

/// The tables of the tests that are told in Rust: as in the pages.
const TABLES: &str = "
    SET default_table_access_method = txn_heap;
    CREATE TABLE t (id int PRIMARY KEY, v int);
    INSERT INTO t SELECT n * 10, n FROM generate_series(1, 20) n;
    CREATE TABLE flag (id int PRIMARY KEY, v int NOT NULL);
    INSERT INTO flag VALUES (1, 0), (2, 0), (3, 0)";

/// A session whose transactions are validated. The tables are small, so it is told to use their
/// indexes.
fn validated(server: &Server) -> Result<Client> {
    validated_in(server, "postgres")
}

fn validated_in(server: &Server, database: &str) -> Result<Client> {
    let mut client = server.connect_as("postgres", database)?;
    client.batch_execute(
        "SET default_transaction_isolation = 'repeatable read'; SET txn.range_occ = on; \
         SET enable_seqscan = off",
    )?;
    Ok(client)
}

#[test]
fn skew() -> Result<()> {
    page("skew")
}

#[test]
fn subtransactions() -> Result<()> {
    page("subtransactions")
}

#[test]
fn commit() -> Result<()> {
    page("commit")
}

#[test]
fn scans() -> Result<()> {
    page("scans")
}

#[test]
fn keys() -> Result<()> {
    page("keys")
}

#[test]
fn indexes() -> Result<()> {
    page("indexes")
}

#[test]
fn writers() -> Result<()> {
    page("writers")
}

#[test]
fn sessions() -> Result<()> {
    page("sessions")
}

#[test]
fn ddl() -> Result<()> {
    page("ddl")
}

#[test]
fn stops() -> Result<()> {
    page("stops")
}

#[test]
fn overflow() -> Result<()> {
    page("overflow")
}

#[test]
fn overwritten() -> Result<()> {
    page("overwritten")
}

#[test]
fn versions() -> Result<()> {
    page("versions")
}

#[test]
fn next_try() -> Result<()> {
    page("next_try")
}

#[test]
fn older_snapshot() -> Result<()> {
    page("older_snapshot")
}

#[test]
fn undivided() -> Result<()> {
    page("undivided")
}

#[test]
fn ssi() -> Result<()> {
    page("ssi")
}

#[test]
fn definitions() -> Result<()> {
    page("definitions")
}

#[test]
fn catalogs() -> Result<()> {
    page("catalogs")
}

#[test]
fn beyond() -> Result<()> {
    page("beyond")
}

#[test]
fn idle() -> Result<()> {
    page("idle")
}

#[test]
fn window() -> Result<()> {
    page("window")
}

#[test]
fn hotlock() -> Result<()> {
    page("hotlock")
}
