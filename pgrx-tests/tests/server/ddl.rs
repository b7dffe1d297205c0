//! Everything that rewrites, indexes, empties or drops a table, while its hot row is updated.
use anyhow::{Context, Result, ensure};
use txn_server_tests::{Load, grouped, int, physical_health, start_hot};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// In mid-load amcheck meets versions of followers that are doomed but have not noticed: on top of
/// an aborted version, or left alone when that one has been pruned. They are gone with their
/// transaction, which the check after the load shows. Anything else is damage.
const HEAP_IS_SOUND: &str = "
    DO $$
    DECLARE
        found text;
    BEGIN
        SELECT string_agg(msg, '; ') INTO found FROM verify_heapam('hot')
        WHERE msg <> 'tuple is root of chain but is marked as heap-only tuple'
            AND msg NOT LIKE 'tuple with % xmin % was updated to produce a tuple at offset % with in-progress xmin %';
        ASSERT found IS NULL, found;
    END $$";

/// Runs `statements` one by one, evenly over a load on row 1.
fn under_load(statements: &[&str], check: &[&str]) -> Result<()> {
    let server = start_hot(50, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN label text NOT NULL DEFAULT 'x';
         CREATE EXTENSION amcheck",
    )?;
    let load = Load::new(&server, 32, 120).grouped();
    let step = load.transactions() / (statements.len() + 1);
    let tally = load.run_disturbed(
        |worker| {
            if worker.number % 2 == 0 {
                return worker.committing(1, |worker| worker.execute(BUMP, &[]));
            }
            worker.begin()?;
            worker.execute(BUMP, &[])?;
            match worker.chance(2) {
                true => worker.rollback(),
                false => worker.commit(1),
            }
        },
        |running| {
            let mut client = server.connect()?;
            for (n, sql) in statements.iter().enumerate() {
                running.wait_for((n + 1) * step);
                client
                    .batch_execute(sql)
                    .with_context(|| (*sql).to_owned())?;
                for sql in check {
                    client
                        .batch_execute(sql)
                        .with_context(|| (*sql).to_owned())?;
                }
            }
            Ok(())
        },
    )?;
    // A session that wants the whole table may close a cycle with sessions that have rows of it
    // (40P01). A session that has followed the victim tries again (40001).
    tally.only(&["40001", "40P01"])?;
    tally.explains(int(
        &mut server.connect()?,
        "SELECT val FROM hot WHERE id = 1",
    )?)?;
    physical_health(&server, "hot", "id")
}

#[test]
fn alter_and_rewrite() -> Result<()> {
    under_load(
        &[
            "ALTER TABLE hot ADD COLUMN extra int",
            "ALTER TABLE hot ADD COLUMN filled int NOT NULL DEFAULT 7",
            "VACUUM FULL hot",
            "ALTER TABLE hot ALTER COLUMN label TYPE varchar(100)",
            "ALTER TABLE hot ADD CONSTRAINT positive CHECK (val >= 0)",
            "CLUSTER hot USING hot_pkey",
            "ALTER TABLE hot DROP COLUMN extra",
            "ALTER TABLE hot SET (fillfactor = 60)",
        ],
        &[],
    )
}

/// An index on the updated column makes every update a non-HOT one: nobody can follow then.
#[test]
fn indexes_come_and_go() -> Result<()> {
    under_load(
        &[
            "CREATE INDEX hot_label ON hot (label)",
            "CREATE INDEX hot_val ON hot (val)",
            "REINDEX INDEX hot_val",
            "REINDEX INDEX CONCURRENTLY hot_val",
            "DROP INDEX hot_val",
            "CREATE INDEX CONCURRENTLY hot_val ON hot (val)",
            "DROP INDEX CONCURRENTLY hot_val",
            "REINDEX TABLE CONCURRENTLY hot",
            "REINDEX TABLE hot",
        ],
        &["SELECT bt_index_check('hot_pkey', true)"],
    )
}

#[test]
fn vacuum_and_amcheck() -> Result<()> {
    under_load(
        &[
            "VACUUM hot",
            "VACUUM (FREEZE) hot",
            "ANALYZE hot",
            "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) hot",
            "CHECKPOINT",
        ],
        &[
            "SELECT bt_index_check('hot_pkey', true)",
            HEAP_IS_SOUND,
            "DO $$ BEGIN ASSERT (SELECT count(*) = 50 FROM hot); END $$",
        ],
    )
}

/// The hot row vanishes under its updaters and comes again: they update nothing or are told.
#[test]
fn truncate_drop_and_create_again() -> Result<()> {
    let server = start_hot(1, &[])?;
    let load = Load::new(&server, 32, 60).grouped();
    let step = load.transactions() / 6;
    let tally = load.run_disturbed(
        |worker| {
            worker.begin()?;
            worker.simple(BUMP)?;
            worker.simple("UPDATE hot SET val = val + 1 WHERE id = 2")?;
            worker.commit(1)
        },
        |running| {
            let mut client = server.connect()?;
            for (n, sql) in [
                "TRUNCATE hot",
                "INSERT INTO hot VALUES (1, 0), (2, 0)",
                "DROP TABLE hot",
                "CREATE TABLE hot (id int PRIMARY KEY, val bigint NOT NULL)",
                "INSERT INTO hot VALUES (1, 0), (2, 0)",
            ]
            .iter()
            .enumerate()
            {
                running.wait_for((n + 1) * step);
                client
                    .batch_execute(sql)
                    .with_context(|| (*sql).to_owned())?;
            }
            Ok(())
        },
    )?;
    // 42P01: there is no table for a moment. The others are as above.
    tally.only(&["42P01", "40001", "40P01"])?;
    physical_health(&server, "hot", "id")
}

/// A dump of a whole database brings the extension, the access method and the rows along.
#[test]
fn a_dump_keeps_the_access_method() -> Result<()> {
    let server = start_hot(100, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "ALTER TABLE hot SET ACCESS METHOD txn_heap;
         CREATE MATERIALIZED VIEW total USING txn_heap AS SELECT count(*) AS rows FROM hot",
    )?;
    client.batch_execute("CREATE DATABASE restored")?;
    let dump = server.command("pg_dump").output()?;
    ensure!(
        dump.status.success(),
        "{}",
        String::from_utf8_lossy(&dump.stderr)
    );
    let dump = String::from_utf8(dump.stdout)?;
    server.psql(&format!("\\connect restored\n{dump}"))?;
    let mut restored = server.connect_as("postgres", "restored")?;
    let found = "SELECT count(*) FROM pg_class JOIN pg_am ON pg_am.oid = relam \
                 WHERE amname = 'txn_heap' AND relname IN ('hot', 'total')";
    ensure!(
        int(&mut restored, found)? == 2,
        "of the access method: {dump}"
    );
    let rows = "SELECT (SELECT count(*) FROM public.hot) + (SELECT rows FROM public.total)";
    ensure!(int(&mut restored, rows)? == 200);
    Ok(())
}

/// A cursor that fails in a savepoint in which it was not made never ends: its transaction may
/// change the table all the same.
#[test]
fn after_a_cursor_that_failed() -> Result<()> {
    let server = start_hot(5, &[])?;
    let mut client = grouped(&server)?;
    client.batch_execute(
        "BEGIN;
         DECLARE c CURSOR FOR SELECT id, 1 / (id - 3) FROM hot WHERE id >= 1 ORDER BY id FOR UPDATE;
         FETCH c;
         SAVEPOINT s",
    )?;
    ensure!(client.batch_execute("FETCH 5 FROM c").is_err(), "no error");
    client.batch_execute(
        "ROLLBACK TO s;
         CLOSE c;
         ALTER TABLE hot ADD COLUMN label text;
         COMMIT",
    )?;
    Ok(())
}
