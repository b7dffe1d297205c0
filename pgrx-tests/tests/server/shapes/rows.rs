//! The hot row changes its key, is deleted and comes again, or is written at other isolation
//! levels.
use anyhow::Result;
use postgres::Error;
use rand::Rng;
use txn_server_tests::{Worker, physical_health, start_hot};

use super::{BUMP, Mix, either, none, one_of};

#[test]
fn key_that_changes() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).run(|worker| match worker.rng.random_range(0..6) {
        0 => either(worker, "UPDATE hot SET id = 101 WHERE id = 1").map(|_| 0),
        1 | 2 => either(worker, "UPDATE hot SET id = 1 WHERE id = 101").map(|_| 0),
        _ => one_of(
            worker,
            &[
                BUMP,
                "UPDATE hot SET val = val + 1 WHERE id = 101",
                "UPDATE hot SET val = val + 1 WHERE id IN (1, 101)",
                "UPDATE hot SET val = val + 1, id = id WHERE id = 1",
            ],
        ),
    })?;
    none(&server, "SELECT count(*) - 2 FROM hot")?;
    physical_health(&server, "hot", "id")
}

/// There and back in one transaction, with an update in between.
#[test]
fn key_that_changes_and_returns() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        either(worker, "UPDATE hot SET id = 101 WHERE id = 1")?;
        let rows = either(worker, "UPDATE hot SET val = val + 1 WHERE id = 101")?;
        either(worker, "UPDATE hot SET id = 1 WHERE id = 101")?;
        Ok(rows)
    })?;
    none(&server, "SELECT count(*) - 2 FROM hot")?;
    physical_health(&server, "hot", "id")
}

fn delete_and_insert(worker: &mut Worker) -> Result<i64, Error> {
    let gone = worker.query("DELETE FROM hot WHERE id = 1 RETURNING val", &[])?;
    let Some(row) = gone.first() else {
        return Ok(0);
    };
    let val: i64 = row.get(0);
    let sql = "INSERT INTO hot VALUES (1, $1)";
    worker.execute(sql, &[&(val + 1)]).map(|rows| rows as i64)
}

#[test]
fn row_deleted_and_inserted_again() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server)
        .in_blocks()
        .run(|worker| match worker.chance(50) {
            true => delete_and_insert(worker),
            false => either(worker, BUMP),
        })?;
    none(&server, "SELECT count(*) - 2 FROM hot")?;
    physical_health(&server, "hot", "id")
}

/// Deleted in a savepoint, which does not last.
#[test]
fn row_deleted_in_a_savepoint() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        worker.simple("SAVEPOINT sp")?;
        delete_and_insert(worker)?;
        worker.simple("ROLLBACK TO sp")?;
        either(worker, BUMP)
    })?;
    none(&server, "SELECT count(*) - 2 FROM hot")?;
    physical_health(&server, "hot", "id")
}

#[test]
fn higher_isolation_levels() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server)
        .in_blocks()
        // PostgreSQL's own: the row was updated after the snapshot.
        .allow(&["40001"])
        .run(|worker| {
            let level = ["REPEATABLE READ", "SERIALIZABLE"][worker.rng.random_range(0..2)];
            worker.simple(&format!("SET TRANSACTION ISOLATION LEVEL {level}"))?;
            match worker.rng.random_range(0..4) {
                0 => either(worker, BUMP),
                1 => either(
                    worker,
                    "INSERT INTO hot VALUES (1, 1)
                     ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
                ),
                2 => {
                    let look = "SELECT val FROM hot WHERE id = 1 FOR UPDATE";
                    let val: i64 = worker.query(look, &[])?[0].get(0);
                    let sql = "UPDATE hot SET val = $1 WHERE id = 1";
                    worker.execute(sql, &[&(val + 1)]).map(|rows| rows as i64)
                }
                _ => {
                    let val: i64 = worker.query("SELECT val FROM hot WHERE id = 1", &[])?[0].get(0);
                    let sql = "UPDATE hot SET val = $1 WHERE id = 1";
                    worker.execute(sql, &[&(val + 1)]).map(|rows| rows as i64)
                }
            }
        })?;
    physical_health(&server, "hot", "id")
}
