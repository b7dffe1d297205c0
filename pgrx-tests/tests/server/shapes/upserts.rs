//! INSERT ... ON CONFLICT and MERGE.
use anyhow::Result;
use rand::Rng;
use txn_server_tests::{physical_health, start_hot};

use super::{Mix, RETRY, either, none, one_of};

const UPSERT: &str = "INSERT INTO hot VALUES (1, 1) \
                      ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val";

#[test]
fn upsert_of_a_row_that_is_there() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                UPSERT,
                "INSERT INTO hot VALUES (1, 1)
                 ON CONFLICT ON CONSTRAINT hot_pkey DO UPDATE SET val = hot.val + 1 RETURNING val",
                "INSERT INTO hot AS h VALUES (1, 1)
                 ON CONFLICT (id) DO UPDATE SET val = h.val + 1 WHERE h.val % 5 <> 3",
                "INSERT INTO hot SELECT id, 1 FROM hot WHERE id = 1
                 ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
            ],
        )
    })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn upsert_by_another_unique_index() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN code text UNIQUE; UPDATE hot SET code = 'c' || id;
         CREATE SEQUENCE ids START 1000",
    )?;
    Mix::new(&server).run(|worker| {
        either(
            worker,
            "INSERT INTO hot VALUES (nextval('ids'), 1, 'c1')
             ON CONFLICT (code) DO UPDATE SET val = hot.val + excluded.val",
        )
    })?;
    none(&server, "SELECT count(*) - 2 FROM hot")?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "hot", "code")
}

/// Each few transactions a new row: the first to insert it race.
#[test]
fn upserts_that_race_to_insert() -> Result<()> {
    let server = start_hot(1, &[])?;
    Mix::new(&server).run(|worker| {
        let id = worker.attempt as i32 / 3 + 100;
        let sql = match worker.chance(50) {
            true => {
                "INSERT INTO hot VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1"
            }
            false => {
                "INSERT INTO hot VALUES ($1, 1)
                 ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val RETURNING val"
            }
        };
        worker.execute(sql, &[&id]).map(|rows| rows as i64)
    })?;
    physical_health(&server, "hot", "id")
}

/// A transaction that finds the row there updates it; one that inserts it counts as well.
#[test]
fn insert_or_do_nothing() -> Result<()> {
    let server = start_hot(1, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        let id = worker.attempt as i32 / 3 + 100;
        let sql = "INSERT INTO hot VALUES ($1, 1) ON CONFLICT DO NOTHING";
        if worker.execute(sql, &[&id])? == 1 {
            return Ok(1);
        }
        let sql = "UPDATE hot SET val = val + 1 WHERE id = $1";
        worker.execute(sql, &[&id]).map(|rows| rows as i64)
    })?;
    physical_health(&server, "hot", "id")
}

/// DO NOTHING next to followers of the very row, which is always there.
#[test]
fn do_nothing_next_to_followers() -> Result<()> {
    let server = start_hot(1, &[])?;
    Mix::new(&server).run(|worker| {
        either(
            worker,
            "INSERT INTO hot VALUES (1, 1) ON CONFLICT DO NOTHING",
        )
    })?;
    physical_health(&server, "hot", "id")
}

/// Several rows in the order of their keys; who inserts one may be overtaken at the next.
#[test]
fn upsert_of_several_rows() -> Result<()> {
    let server = start_hot(1, &[])?;
    Mix::new(&server).allow(&RETRY).run(|worker| {
        either(
            worker,
            "INSERT INTO hot SELECT id, 1 FROM generate_series(1, 3) id
             ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
        )
    })?;
    physical_health(&server, "hot", "id")
}

/// The row comes and goes among upserts, and leaves what it had in another.
#[test]
fn upsert_of_a_row_that_goes() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server)
        // The row goes while somebody has built on it.
        .allow(&["40001"])
        .in_blocks()
        .run(|worker| {
            if worker.chance(70) {
                return either(worker, UPSERT);
            }
            let gone = worker.query("DELETE FROM hot WHERE id = 1 RETURNING val", &[])?;
            if let Some(row) = gone.first() {
                let val: i64 = row.get(0);
                let id = 1000 + worker.number as i32;
                let sql = "INSERT INTO hot VALUES ($1, $2)
                           ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val";
                worker.execute(sql, &[&id, &val])?;
            }
            Ok(0)
        })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn merge_into_a_row_that_is_there() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                "MERGE INTO hot USING (VALUES (1, 1)) new (id, val) ON hot.id = new.id
                 WHEN MATCHED THEN UPDATE SET val = hot.val + new.val",
                "MERGE INTO hot USING (VALUES (1)) new (id) ON hot.id = new.id
                 WHEN MATCHED AND hot.val % 5 = 3 THEN DO NOTHING
                 WHEN MATCHED AND hot.val % 2 = 0 THEN UPDATE SET val = hot.val + 1
                 WHEN MATCHED THEN UPDATE SET val = 1 + hot.val",
                "MERGE INTO hot USING (VALUES (1)) new (id) ON hot.id = new.id
                 WHEN MATCHED THEN UPDATE SET val = hot.val + 1
                 WHEN NOT MATCHED THEN INSERT VALUES (new.id, 1)",
            ],
        )
    })?;
    physical_health(&server, "hot", "id")
}

/// MERGE does not wait for a row that is being inserted: as in PostgreSQL, some fail with 23505.
#[test]
fn merges_that_race_to_insert() -> Result<()> {
    let server = start_hot(1, &[])?;
    Mix::new(&server).allow(&["23505"]).run(|worker| {
        let id = worker.attempt as i32 / 3 + 100;
        let sql = "MERGE INTO hot USING (SELECT $1::int AS id) new ON hot.id = new.id
                   WHEN MATCHED THEN UPDATE SET val = hot.val + 1
                   WHEN NOT MATCHED THEN INSERT VALUES (new.id, 1)";
        worker.execute(sql, &[&id]).map(|rows| rows as i64)
    })?;
    physical_health(&server, "hot", "id")
}

/// MERGE that deletes the row, after taking what is in it, and its return.
#[test]
fn merge_that_deletes() -> Result<()> {
    let server = start_hot(2, &[])?;
    server
        .connect()?
        .batch_execute("CREATE TABLE taken (val bigint NOT NULL)")?;
    Mix::new(&server)
        .value("SELECT coalesce(sum(val), 0) + (SELECT coalesce(sum(val), 0) FROM taken) FROM hot")
        // 23505: two put the row back; who has followed the one that fails tries again.
        .allow(&["23505", "40001"])
        .in_blocks()
        .run(|worker| match worker.rng.random_range(0..4) {
            0 => {
                let sql = "SELECT val FROM hot WHERE id = 1 FOR UPDATE";
                let Some(row) = worker.query(sql, &[])?.pop() else {
                    return Ok(0);
                };
                let val: i64 = row.get(0);
                let sql = "MERGE INTO hot USING (VALUES (1)) gone (id) ON hot.id = gone.id
                           WHEN MATCHED THEN DELETE";
                either(worker, sql)?;
                worker.execute("INSERT INTO taken VALUES ($1)", &[&val])?;
                Ok(0)
            }
            1 => either(
                worker,
                "INSERT INTO hot VALUES (1, 1) ON CONFLICT (id) DO NOTHING",
            ),
            2 => either(
                worker,
                "MERGE INTO hot USING (VALUES (1)) new (id) ON hot.id = new.id
                 WHEN MATCHED THEN UPDATE SET val = hot.val + 1
                 WHEN NOT MATCHED THEN INSERT VALUES (1, 1)",
            ),
            _ => either(
                worker,
                "MERGE INTO hot USING (VALUES (1)) new (id) ON hot.id = new.id
                 WHEN MATCHED THEN UPDATE SET val = hot.val + 1",
            ),
        })?;
    physical_health(&server, "hot", "id")
}
