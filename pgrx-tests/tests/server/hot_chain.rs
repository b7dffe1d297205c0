//! A hot row with many versions: who has the ticket begins to look for the row's version where the
//! last one has found it, and finds what heap would find.
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::repeatable::is_refused_behind;
use anyhow::{Result, ensure};
use pgserver::Server;
use rand::Rng;
use txn_server_tests::{Load, grouped, int, physical_health, start_hot};

/// Far enough for another place to be noted.
const FAR: i64 = 20;
const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// A transaction whose snapshot is older than what others have noted of the row is refused, and not
/// told that there is no row.
fn an_older_snapshot(settings: &[(&str, &str)]) -> Result<()> {
    is_refused_behind(FAR, &start_hot(1, settings)?, "SELECT 1")
}

#[test]
fn an_older_snapshot_is_refused() -> Result<()> {
    an_older_snapshot(&[])
}

#[test]
fn an_older_snapshot_is_refused_in_txn_heap() -> Result<()> {
    an_older_snapshot(&[("default_table_access_method", "txn_heap")])
}

/// A cursor that was opened before many updates, by the transaction that then has the ticket, comes
/// to the row with its old snapshot.
pub fn a_cursor(server: &Server) -> Result<()> {
    let mut other = grouped(server)?;
    other.batch_execute(
        "DROP TABLE IF EXISTS old;
         CREATE TABLE old (id int PRIMARY KEY, val bigint NOT NULL);
         INSERT INTO old VALUES (1, 0)",
    )?;
    let bump = BUMP.replace("hot", "old");
    (0..3).try_for_each(|_| other.batch_execute(&bump))?;
    let mut client = grouped(server)?;
    client.batch_execute(
        "SET enable_seqscan = off; SET enable_bitmapscan = off;
         BEGIN;
         DECLARE c CURSOR FOR SELECT val FROM old WHERE id = 1 FOR UPDATE",
    )?;
    (0..FAR).try_for_each(|_| other.batch_execute(&bump))?;
    client.query_one("SELECT val FROM old WHERE id = 1 FOR UPDATE", &[])?;
    for expected in [&[3 + FAR][..], &[]] {
        let rows = client.query("FETCH c", &[])?;
        let seen: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        ensure!(seen == expected, "FETCH gave {seen:?}");
    }
    Ok(())
}

#[test]
fn an_older_cursor_finds_the_row() -> Result<()> {
    a_cursor(&start_hot(1, &[])?)
}

#[test]
fn an_older_cursor_finds_the_row_of_txn_heap() -> Result<()> {
    a_cursor(&start_hot(
        1,
        &[("default_table_access_method", "txn_heap")],
    )?)
}

const FUNCTIONS: &str = "
    CREATE TABLE ledger (amount bigint NOT NULL);
    -- Updates the row, perhaps rolls that back and comes again. Exactly one row is there each time.
    CREATE FUNCTION bump(undone boolean, way text) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        rows bigint;
    BEGIN
        IF undone THEN
            BEGIN
                UPDATE hot SET val = val + 1000 WHERE id = 1;
                RAISE division_by_zero;
            EXCEPTION WHEN division_by_zero THEN
                NULL;
            END;
        END IF;
        IF way = 'id' THEN
            UPDATE hot SET val = val + 1 WHERE id = 1;
        ELSIF way = 'name' THEN
            UPDATE hot SET val = val + 1 WHERE name = 'one';
        ELSE
            UPDATE hot SET val = val + 1, tag = tag + 1 WHERE id = 1;
        END IF;
        GET DIAGNOSTICS rows = ROW_COUNT;
        IF rows <> 1 THEN
            RAISE EXCEPTION 'updated % rows', rows USING ERRCODE = 'TXBAD';
        END IF;
        INSERT INTO ledger VALUES (1);
    END $$;";

/// What is done with the table meanwhile, in turn.
const MEANWHILE: [&str; 5] = [
    "VACUUM FULL hot",
    "VACUUM hot",
    "CLUSTER hot USING hot_pkey",
    "CREATE INDEX another ON hot (val); DROP INDEX another",
    "REINDEX TABLE hot",
];

/// Functions update one hot row by two indexes. Some change an index, some roll back to savepoints,
/// and snapshots keep the versions. Meanwhile the table is written anew and vacuumed. Each update
/// is done exactly once.
fn each_update_finds_one_row(settings: &[(&str, &str)]) -> Result<()> {
    let server = start_hot(1, settings)?;
    let mut control = server.connect()?;
    control.batch_execute(
        "ALTER TABLE hot ADD COLUMN name text NOT NULL DEFAULT 'one';
         ALTER TABLE hot ADD COLUMN tag int DEFAULT 0;
         INSERT INTO hot (id, val, name) SELECT id, 0, 'n' || id FROM generate_series(2, 40) id;
         CREATE UNIQUE INDEX ON hot (name);
         CREATE INDEX ON hot (tag)",
    )?;
    control.batch_execute(FUNCTIONS)?;
    grouped(&server)?.batch_execute("UPDATE hot SET val = val WHERE id = 1")?;
    let is_over = AtomicBool::new(false);
    let tally = thread::scope(|scope| {
        let rewriter = scope.spawn(|| -> Result<()> {
            let mut client = server.connect()?;
            for command in MEANWHILE.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                command
                    .split("; ")
                    .try_for_each(|part| client.batch_execute(part))?;
            }
            Ok(())
        });
        // Keeps all versions for a while.
        let keeper = scope.spawn(|| -> Result<()> {
            let mut client = server.connect()?;
            while !is_over.load(Ordering::Relaxed) {
                client.batch_execute(
                    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot;
                     SELECT pg_sleep(0.05); COMMIT",
                )?;
            }
            Ok(())
        });
        let tally = Load::new(&server, 12, 150)
            .session(|_| "SET txn.group_lock = on; SET txn.hot_threshold = 0".to_owned())
            .moves("ticket_waits")
            .run(|worker| {
                let way = match worker.rng.random_range(0..10) {
                    0..6 => "id",
                    6..9 => "name",
                    _ => "tag",
                };
                let undone = worker.chance(15);
                worker.committing(1, |worker| {
                    worker.execute("SELECT bump($1, $2)", &[&undone, &way])
                })
            });
        is_over.store(true, Ordering::Relaxed);
        rewriter.join().expect("the rewriter panicked")?;
        keeper.join().expect("the keeper panicked")?;
        tally
    })?;
    tally.only(&["40001", "40P01"])?;
    tally.explains(int(&mut control, "SELECT val FROM hot WHERE id = 1")?)?;
    tally.explains(int(&mut control, "SELECT sum(amount) FROM ledger")?)?;
    drop(control);
    physical_health(&server, "hot", "id")
}

#[test]
fn each_update_finds_one_row_in_heap() -> Result<()> {
    each_update_finds_one_row(&[])
}

#[test]
fn each_update_finds_one_row_in_txn_heap() -> Result<()> {
    each_update_finds_one_row(&[("default_table_access_method", "txn_heap")])
}
