//! Foreign keys that point at the hot row.
use anyhow::Result;
use pgserver::Server;
use postgres::Error;
use rand::Rng;
use txn_server_tests::{Worker, physical_health, start_hot};

use super::{BUMP, Mix, either, none};

const CHILD: &str = "INSERT INTO child (hot) VALUES (1)";

fn start(constraint: &str) -> Result<Server> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE child (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                             hot int NOT NULL REFERENCES hot {constraint})"
    ))?;
    Ok(server)
}

/// Every child belongs to one increment of its parent, and the other way round.
fn belong(server: &Server) -> Result<()> {
    let differ = "SELECT sum(val) - (SELECT count(*) FROM child) FROM hot";
    none(server, differ)?;
    none(
        server,
        "SELECT count(*) FROM child c WHERE NOT EXISTS (SELECT FROM hot WHERE id = c.hot)",
    )?;
    physical_health(server, "hot", "id")?;
    physical_health(server, "child", "number")
}

fn update_then_insert(worker: &mut Worker) -> Result<i64, Error> {
    let rows = either(worker, BUMP)?;
    either(worker, CHILD)?;
    Ok(rows)
}

fn insert_then_update(worker: &mut Worker) -> Result<i64, Error> {
    either(worker, CHILD)?;
    either(worker, BUMP)
}

const BOTH: &str = "WITH new AS (UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING id)
                    INSERT INTO child (hot) SELECT id FROM new";

#[test]
fn update_then_insert_a_child() -> Result<()> {
    let server = start("")?;
    Mix::new(&server)
        .plain(BOTH)
        .in_blocks()
        .run(update_then_insert)?;
    belong(&server)
}

#[test]
fn insert_a_child_then_update() -> Result<()> {
    let server = start("")?;
    Mix::new(&server)
        .plain(BOTH)
        .in_blocks()
        .run(insert_then_update)?;
    belong(&server)
}

#[test]
fn both_orders_with_a_deferred_constraint() -> Result<()> {
    let server = start("DEFERRABLE INITIALLY DEFERRED")?;
    Mix::new(&server)
        .plain(BOTH)
        .in_blocks()
        .run(|worker| match worker.chance(50) {
            true => update_then_insert(worker),
            false => insert_then_update(worker),
        })?;
    belong(&server)
}

#[test]
fn only_insert_a_child() -> Result<()> {
    let server = start("")?;
    Mix::new(&server)
        .value("SELECT val + (SELECT count(*) FROM child) FROM hot WHERE id = 1")
        .run(|worker| either(worker, CHILD))?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "child", "number")
}

/// Children that come, go, and change their parent.
#[test]
fn children_that_move_and_go() -> Result<()> {
    let server = start("ON DELETE CASCADE")?;
    server
        .connect()?
        .batch_execute("INSERT INTO child (hot) SELECT 1 + n % 2 FROM generate_series(1, 50) n")?;
    Mix::new(&server).in_blocks().run(|worker| {
        let number = worker.number as i64 + 1;
        let to = worker.rng.random_range(1..3);
        let rows = either(worker, BUMP)?;
        match worker.chance(30) {
            true => worker.execute("DELETE FROM child WHERE number = $1", &[&number])?,
            false => {
                let sql = "UPDATE child SET hot = $2 WHERE number = $1";
                worker.execute(sql, &[&number, &to])?
            }
        };
        Ok(rows)
    })?;
    none(
        &server,
        "SELECT count(*) FROM child c WHERE NOT EXISTS (SELECT FROM hot WHERE id = c.hot)",
    )?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "child", "number")
}

/// The key changes and takes the children with it, among those who look for it under the old key.
#[test]
fn cascade_of_a_changed_key() -> Result<()> {
    let server = start("ON UPDATE CASCADE")?;
    Mix::new(&server)
        .value("SELECT sum(val) + (SELECT count(*) FROM child) FROM hot")
        // 23503: the key has changed. Parents and children are locked in both orders (40P01), and
        // who has followed the victim tries again.
        .allow(&["23503", "40001", "40P01"])
        .run(|worker| match worker.rng.random_range(0..6) {
            0 => either(worker, "UPDATE hot SET id = 101 WHERE id = 1").map(|_| 0),
            1 | 2 => either(worker, "UPDATE hot SET id = 1 WHERE id = 101").map(|_| 0),
            3 => either(worker, BUMP),
            _ => either(worker, CHILD),
        })?;
    none(
        &server,
        "SELECT count(*) FROM child c WHERE NOT EXISTS (SELECT FROM hot WHERE id = c.hot)",
    )?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "child", "number")
}

/// The parent is deleted with its children and comes again without.
#[test]
fn parent_deleted_and_inserted_again() -> Result<()> {
    let server = start("ON DELETE CASCADE")?;
    Mix::new(&server)
        .value("SELECT coalesce(sum(val), 0) FROM hot")
        // 23503: the parent is gone. 23505: two put it back. The others are as above.
        .allow(&["23503", "40001", "40P01", "23505"])
        .in_blocks()
        .run(|worker| {
            if worker.chance(70) {
                let rows = either(worker, BUMP)?;
                either(worker, CHILD)?;
                return Ok(rows);
            }
            let gone = worker.query("DELETE FROM hot WHERE id = 1 RETURNING val", &[])?;
            if let Some(row) = gone.first() {
                let val: i64 = row.get(0);
                worker.execute("INSERT INTO hot VALUES (1, $1)", &[&val])?;
            }
            Ok(0)
        })?;
    none(
        &server,
        "SELECT count(*) FROM child c WHERE NOT EXISTS (SELECT FROM hot WHERE id = c.hot)",
    )?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "child", "number")
}
