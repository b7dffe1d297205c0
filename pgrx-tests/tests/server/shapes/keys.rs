//! The many ways to say which row it is.
use anyhow::Result;
use rand::Rng;
use txn_server_tests::{physical_health, start_hot};

use super::{BUMP, Mix, RETRY, either, none, one_of};

#[test]
fn another_unique_index() -> Result<()> {
    let server = start_hot(3, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN code text UNIQUE; UPDATE hot SET code = 'c' || id",
    )?;
    Mix::new(&server).run(|worker| match worker.chance(50) {
        true => either(worker, "UPDATE hot SET val = val + 1 WHERE code = 'c1'"),
        false => {
            let sql = "UPDATE hot SET val = val + 1 WHERE code = $1";
            worker.execute(sql, &[&"c1"]).map(|rows| rows as i64)
        }
    })?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "hot", "code")
}

#[test]
fn composite_key() -> Result<()> {
    let server = start_hot(3, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN region text NOT NULL DEFAULT 'x', DROP CONSTRAINT hot_pkey;
         INSERT INTO hot VALUES (1, 0, 'y');
         ALTER TABLE hot ADD PRIMARY KEY (id, region)",
    )?;
    Mix::new(&server)
        .plain("UPDATE hot SET val = val + 1 WHERE id = 1 AND region = 'x'")
        // Part of the key finds two rows, in the order of the heap.
        .allow(&RETRY)
        .run(|worker| match worker.rng.random_range(0..3) {
            0 => {
                let sql = "UPDATE hot SET val = val + 1 WHERE region = $1 AND id = $2";
                worker.execute(sql, &[&"x", &1]).map(|rows| rows as i64)
            }
            1 => either(
                worker,
                "UPDATE hot SET val = val + 1 WHERE (id, region) = (1, 'x')",
            ),
            _ => either(worker, BUMP),
        })?;
    physical_health(&server, "hot", "ctid")
}

#[test]
fn arrays_of_keys() -> Result<()> {
    let server = start_hot(5, &[("deadlock_timeout", "10ms")])?;
    Mix::new(&server)
        .allow(&RETRY)
        .run(|worker| match worker.rng.random_range(0..3) {
            0 => either(
                worker,
                "UPDATE hot SET val = val + 1 WHERE id = ANY ('{1}')",
            ),
            1 => either(worker, "UPDATE hot SET val = val + 1 WHERE id IN (1, 2, 3)"),
            _ => {
                let sql = "UPDATE hot SET val = val + 1 WHERE id = ANY ($1)";
                let rows = worker.execute(sql, &[&vec![1, 2, 3]])?;
                Ok(rows as i64)
            }
        })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn joins_and_subqueries() -> Result<()> {
    let server = start_hot(5, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE which (name text PRIMARY KEY, id int NOT NULL);
         INSERT INTO which VALUES ('hot', 1), ('cold', 2)",
    )?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                "UPDATE hot SET val = val + 1 FROM which WHERE hot.id = which.id AND name = 'hot'",
                "UPDATE hot SET val = val + 1 WHERE id = (SELECT id FROM which WHERE name = 'hot')",
                "UPDATE hot SET val = val + 1 WHERE id IN (SELECT id FROM which WHERE name = 'hot')",
                "UPDATE hot SET val = val + 1 WHERE EXISTS
                     (SELECT FROM which w WHERE w.id = hot.id AND name = 'hot')",
                "UPDATE hot SET val = val + (SELECT count(*) FROM which WHERE name = 'hot') WHERE id = 1",
                "UPDATE hot h SET val = h.val + 1 FROM hot o WHERE h.id = 1 AND o.id = 2",
            ],
        )
    })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn views() -> Result<()> {
    let server = start_hot(3, &[])?;
    server.connect()?.batch_execute(
        "CREATE VIEW small AS SELECT id, val FROM hot WHERE id < 3 WITH CHECK OPTION;
         CREATE VIEW even AS SELECT id, val FROM hot WHERE val % 2 = 0 WITH CHECK OPTION;
         CREATE VIEW odd AS SELECT id, val FROM hot WHERE val % 2 = 1;
         CREATE VIEW barred WITH (security_barrier) AS SELECT id, val FROM hot WHERE id = 1",
    )?;
    // 44000: the view does not let it through; who has followed that one tries again.
    Mix::new(&server).allow(&["44000", "40001"]).run(|worker| {
        one_of(
            worker,
            &[
                "UPDATE small SET val = val + 1 WHERE id = 1",
                "UPDATE barred SET val = val + 1",
                // Whether they find it is up to the value; the second of them is never allowed to.
                "UPDATE odd SET val = val + 1 WHERE id = 1 RETURNING val",
                "UPDATE even SET val = val + 1 WHERE id = 1",
            ],
        )
    })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn common_table_expressions() -> Result<()> {
    let server = start_hot(3, &[])?;
    server
        .connect()?
        .batch_execute("CREATE TABLE journal (id int NOT NULL, val bigint NOT NULL)")?;
    let bump = "WITH new AS (UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING id, val) \
                INSERT INTO journal SELECT id, val FROM new";
    // An UPDATE in a WITH waits for the ticket, and does not follow.
    Mix::new(&server)
        .plain(bump)
        .in_turn()
        .value("SELECT val FROM hot WHERE id = 1")
        .run(|worker| {
            one_of(
                worker,
                &[
                    bump,
                    "WITH new AS (UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING id, val),
                          noted AS (INSERT INTO journal SELECT id, val FROM new)
                     SELECT * FROM new",
                    "WITH locked AS (SELECT id FROM hot WHERE id = 1 FOR UPDATE),
                          new AS (UPDATE hot SET val = val + 1 FROM locked
                                  WHERE hot.id = locked.id RETURNING hot.id, val)
                     INSERT INTO journal SELECT id, val FROM new",
                ],
            )
        })?;
    none(
        &server,
        "SELECT val - (SELECT count(DISTINCT val) FROM journal) FROM hot WHERE id = 1",
    )?;
    none(&server, "SELECT count(*) - max(val) FROM journal")?;
    physical_health(&server, "hot", "id")
}

/// The scan goes by the places of the versions, so it takes the rows in any order.
#[test]
fn several_hot_rows_in_one_statement() -> Result<()> {
    let server = start_hot(12, &[("deadlock_timeout", "10ms")])?;
    Mix::new(&server).allow(&RETRY).run(|worker| {
        one_of(
            worker,
            &[
                "UPDATE hot SET val = val + 1 WHERE id <= 3",
                "UPDATE hot SET val = val + 1 WHERE id IN (1, 2)",
                "UPDATE hot SET val = val + 1",
            ],
        )
    })?;
    physical_health(&server, "hot", "id")
}

/// In one order. A follower may overtake on the way to the next row, so there are cycles all the
/// same.
fn hot_rows_in_order(counts: &[i32]) -> Result<()> {
    let server = start_hot(12, &[("deadlock_timeout", "10ms")])?;
    Mix::new(&server).in_blocks().allow(&RETRY).run(|worker| {
        let count = counts[worker.rng.random_range(0..counts.len())];
        let mut effects = 0;
        for id in 1..=count {
            let sql = "UPDATE hot SET val = val + 1 WHERE id = $1";
            effects += worker.execute(sql, &[&id])? as i64;
        }
        Ok(effects)
    })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn two_hot_rows_in_order() -> Result<()> {
    hot_rows_in_order(&[2])
}

#[test]
fn as_many_hot_rows_as_one_can_follow() -> Result<()> {
    hot_rows_in_order(&[2, 8])
}

#[test]
fn more_hot_rows_than_one_can_follow() -> Result<()> {
    hot_rows_in_order(&[8, 12])
}
