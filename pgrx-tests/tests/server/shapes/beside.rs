//! Maintenance, emptying and dumping of the table next to the load.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Error;
use rand::Rng;
use txn_server_tests::{Worker, int, physical_health, start_hot};

use super::{BUMP, Mix, either};

/// An update, an upsert, a lock and an update, a savepoint.
fn anything(worker: &mut Worker) -> Result<i64, Error> {
    match worker.rng.random_range(0..4) {
        0 => either(worker, BUMP),
        1 => either(
            worker,
            "INSERT INTO hot (id, val) VALUES (1, 1)
             ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
        ),
        2 => {
            either(worker, "SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
            either(worker, BUMP)
        }
        _ => {
            worker.simple("SAVEPOINT sp")?;
            let rows = either(worker, BUMP)?;
            worker.simple("RELEASE sp")?;
            Ok(rows)
        }
    }
}

/// Runs `commands` in turn for as long as the load lasts, and each at least once. They refuse
/// nobody.
fn maintained(commands: &[&str]) -> Result<()> {
    maintained_with(commands, &[])
}

/// With these SQLSTATEs allowed.
fn maintained_with(commands: &[&str], codes: &'static [&'static str]) -> Result<()> {
    let server = start_hot(20, &[])?;
    Mix::new(&server)
        .in_blocks()
        .allow(codes)
        .run_beside(anything, |running| {
            let mut client = server.connect()?;
            for (n, sql) in commands.iter().cycle().enumerate() {
                if running.over() && n >= commands.len() && n % commands.len() == 0 {
                    break;
                }
                client
                    .batch_execute(sql)
                    .with_context(|| (*sql).to_owned())?;
            }
            Ok(())
        })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn vacuum_and_analyze() -> Result<()> {
    maintained(&["VACUUM hot", "VACUUM (FREEZE) hot", "ANALYZE hot"])
}

#[test]
fn indexes_built_concurrently() -> Result<()> {
    maintained(&[
        "CREATE INDEX CONCURRENTLY extra ON hot (val)",
        "DROP INDEX CONCURRENTLY extra",
        "REINDEX INDEX CONCURRENTLY hot_pkey",
    ])
}

/// From heap to txn_heap and back, with an index built in between.
#[test]
fn access_method_changed() -> Result<()> {
    maintained(&[
        "ALTER TABLE hot SET ACCESS METHOD txn_heap",
        "CREATE INDEX CONCURRENTLY extra ON hot (val)",
        "VACUUM (ANALYZE) hot",
        "DROP INDEX CONCURRENTLY extra",
        "ALTER TABLE hot SET ACCESS METHOD heap",
    ])
}

/// Changes of the table that do not wait for running statements.
#[test]
fn storage_and_statistics_changed() -> Result<()> {
    maintained(&[
        "ALTER TABLE hot ALTER COLUMN val SET STATISTICS 10",
        "ALTER TABLE hot SET (autovacuum_enabled = off)",
        "SECURITY LABEL FOR txn ON TABLE hot IS 'group_size=100'",
    ])
}

/// Followers that have run a statement by then are refused.
#[test]
fn granted_and_revoked() -> Result<()> {
    maintained_with(
        &[
            "GRANT SELECT ON hot TO PUBLIC",
            "REVOKE SELECT ON hot FROM PUBLIC",
        ],
        &["40001"],
    )
}

#[test]
fn columns_added_and_dropped() -> Result<()> {
    maintained(&[
        "ALTER TABLE hot ADD COLUMN extra int DEFAULT 7",
        "ALTER TABLE hot DROP COLUMN extra",
    ])
}

/// Emptied and filled again in one transaction: whoever waits for it finds the new row.
#[test]
fn truncated_and_filled_again() -> Result<()> {
    let server = start_hot(3, &[])?;
    Mix::new(&server)
        .in_blocks()
        .run_beside(anything, |running| {
            let mut client = server.connect()?;
            while !running.over() {
                client.batch_execute(
                    "BEGIN;
                     LOCK TABLE hot;
                     CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM hot;
                     TRUNCATE hot;
                     INSERT INTO hot SELECT * FROM kept;
                     COMMIT",
                )?;
            }
            Ok(())
        })?;
    physical_health(&server, "hot", "id")
}

fn dump(server: &Server) -> Result<String> {
    let mut dump = server.command("pg_dump");
    dump.args(["--table=hot", "--table=journal", "--no-owner"]);
    let output = dump.output().context("could not run pg_dump")?;
    ensure!(
        output.status.success(),
        "pg_dump: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// What pg_dump reads of two tables belongs together. (An UPDATE in a WITH waits for the ticket,
/// and does not follow.)
#[test]
fn dumped() -> Result<()> {
    let server = start_hot(2, &[])?;
    let mut client = server.connect()?;
    client.batch_execute("CREATE TABLE journal (val bigint NOT NULL)")?;
    client.batch_execute("CREATE DATABASE restored")?;
    drop(client);
    let bump = "WITH new AS (UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val)
                INSERT INTO journal SELECT val FROM new";
    Mix::new(&server).plain(bump).in_turn().run_beside(
        |worker| either(worker, bump),
        |running| {
            while !running.over() {
                let sql = dump(&server)?;
                let mut client = server.connect_as("postgres", "restored")?;
                client.batch_execute("DROP TABLE IF EXISTS hot, journal")?;
                server.psql(&format!("\\connect restored\n{sql}"))?;
                let found = "SELECT count(*) FROM public.hot WHERE id = 1 AND val = \
                             (SELECT count(DISTINCT val) FROM public.journal)";
                ensure!(
                    int(&mut client, found)? == 1,
                    "the tables of a dump do not belong together"
                );
            }
            Ok(())
        },
    )?;
    physical_health(&server, "hot", "id")
}
