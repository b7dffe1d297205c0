//! Tables of every kind, and heaps that make it hard.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{int, physical_health, start, start_hot};

use super::{BUMP, Mix, RETRY, either, none, one_of};

fn start_partitioned() -> Result<Server> {
    let server = start(&[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE hot (id int, region text, val bigint NOT NULL, PRIMARY KEY (id, region))
             PARTITION BY LIST (region);
         CREATE TABLE hot_a PARTITION OF hot FOR VALUES IN ('a');
         CREATE TABLE hot_b PARTITION OF hot FOR VALUES IN ('b');
         INSERT INTO hot VALUES (1, 'a', 0), (2, 'b', 0), (3, 'a', 0)",
    )?;
    Ok(server)
}

#[test]
fn partitions() -> Result<()> {
    let server = start_partitioned()?;
    Mix::new(&server)
        .plain("UPDATE hot SET val = val + 1 WHERE id = 1 AND region = 'a'")
        .run(|worker| {
            one_of(
                worker,
                &[
                    "UPDATE hot_a SET val = val + 1 WHERE id = 1 AND region = 'a'",
                    "UPDATE hot SET val = val + 1 WHERE id = 1",
                    "UPDATE hot_a SET val = val + 1 WHERE id = 1",
                    "INSERT INTO hot VALUES (1, 'a', 1)
                     ON CONFLICT (id, region) DO UPDATE SET val = hot.val + excluded.val",
                ],
            )
        })?;
    physical_health(&server, "hot_a", "id")?;
    physical_health(&server, "hot_b", "id")
}

/// A row that moves takes those who wait for it by surprise: 40001 from PostgreSQL.
#[test]
fn row_that_moves_between_partitions() -> Result<()> {
    let server = start_partitioned()?;
    Mix::new(&server)
        .plain("UPDATE hot SET val = val + 1 WHERE id = 1 AND region = 'a'")
        .allow(&RETRY)
        .run(|worker| {
            if worker.chance(30) {
                let from = ["a", "b"][usize::from(worker.chance(50))];
                let to = if from == "a" { "b" } else { "a" };
                let sql = "UPDATE hot SET region = $2 WHERE id = 1 AND region = $1";
                return worker.execute(sql, &[&from, &to]).map(|_| 0);
            }
            one_of(
                worker,
                &[
                    "UPDATE hot SET val = val + 1 WHERE id = 1",
                    "UPDATE hot_a SET val = val + 1 WHERE id = 1",
                    "UPDATE hot_b SET val = val + 1 WHERE id = 1",
                ],
            )
        })?;
    none(&server, "SELECT count(*) - 3 FROM hot")?;
    physical_health(&server, "hot_a", "id")?;
    physical_health(&server, "hot_b", "id")
}

#[test]
fn inheritance() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE heir (extra int, PRIMARY KEY (id)) INHERITS (hot);
         INSERT INTO heir VALUES (1, 0, 5), (3, 0, 6)",
    )?;
    // Two rows 1, and who follows in the parent may overtake on the way to the child.
    Mix::new(&server).allow(&RETRY).run(|worker| {
        one_of(
            worker,
            &[
                "UPDATE ONLY hot SET val = val + 1 WHERE id = 1",
                "UPDATE heir SET val = val + 1 WHERE id = 1",
                BUMP,
            ],
        )
    })?;
    physical_health(&server, "heir", "id")?;
    none(&server, "SELECT count(*) - 2 FROM ONLY hot")?;
    none(&server, "SELECT count(*) - 2 FROM heir")
}

#[test]
fn unlogged_table() -> Result<()> {
    let server = start_hot(2, &[])?;
    server
        .connect()?
        .batch_execute("ALTER TABLE hot SET UNLOGGED")?;
    Mix::new(&server).run(|worker| either(worker, "UPDATE hot SET val = 1 + val WHERE id = 1"))?;
    physical_health(&server, "hot", "id")
}

/// Each session has a table of its own of that name, besides the hot one.
#[test]
fn temporary_tables() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        worker.simple(
            "CREATE TEMP TABLE own (id int PRIMARY KEY, val bigint NOT NULL) ON COMMIT DROP;
             INSERT INTO own VALUES (1, 0);
             UPDATE own SET val = val + 1 WHERE id = 1",
        )?;
        let rows = either(worker, BUMP)?;
        worker.simple("UPDATE own SET val = val + 1 WHERE id = 1")?;
        Ok(rows)
    })?;
    physical_health(&server, "hot", "id")
}

/// Some leave the value out of line alone, some change it.
#[test]
fn value_out_of_line() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN body text;
         ALTER TABLE hot ALTER COLUMN body SET STORAGE EXTERNAL;
         UPDATE hot SET body = repeat('x', 3000)",
    )?;
    // Nobody follows on a row with a value out of line.
    Mix::new(&server).in_turn().run(|worker| {
        one_of(
            worker,
            &[
                "UPDATE hot SET val = val + 1, body = repeat('y', 3000) WHERE id = 1",
                "UPDATE hot SET val = val + 1, body = overlay(body placing 'z' from 2000) WHERE id = 1",
                "UPDATE hot SET val = val + 1 WHERE id = 1 AND length(body) = 3000",
            ],
        )
    })?;
    none(
        &server,
        "SELECT count(*) FROM hot WHERE length(body) <> 3000 OR body !~ '^([xyz])+$'",
    )?;
    physical_health(&server, "hot", "id")
}

#[test]
fn replica_identity() -> Result<()> {
    let server = start_hot(2, &[])?;
    for identity in ["FULL", "NOTHING", "USING INDEX hot_pkey", "DEFAULT"] {
        let sql = format!("ALTER TABLE hot REPLICA IDENTITY {identity}");
        server.connect()?.batch_execute(&sql)?;
        Mix::new(&server).run(|worker| either(worker, BUMP))?;
    }
    physical_health(&server, "hot", "id")
}

/// Four versions fill a page.
#[test]
fn wide_rows_on_full_pages() -> Result<()> {
    let server = start_hot(8, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot SET (fillfactor = 100); ALTER TABLE hot ADD COLUMN body text;
         UPDATE hot SET body = repeat('x', 1900)",
    )?;
    server.connect()?.batch_execute("VACUUM FULL hot")?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                BUMP,
                "UPDATE hot SET val = val + 1, body = repeat('y', 1200) WHERE id = 1",
                "UPDATE hot SET val = val + 1, body = repeat('z', 1900) WHERE id = 1 RETURNING val",
            ],
        )
    })?;
    physical_health(&server, "hot", "id")
}

/// Partial and expression indexes on what changes, next to updates that change nothing indexed.
#[test]
fn indexes_on_what_changes() -> Result<()> {
    let server = start_hot(3, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN n int NOT NULL DEFAULT 0, ADD COLUMN label text;
         CREATE INDEX ON hot (n) WHERE n % 2 = 0;
         CREATE UNIQUE INDEX ON hot ((id * 1000000 + n));
         CREATE INDEX ON hot USING gin (to_tsvector('simple', label))",
    )?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                "UPDATE hot SET val = val + 1, n = n + 1 WHERE id = 1",
                "UPDATE hot SET val = val + 1, label = 'l' || n WHERE id = 1",
                BUMP,
            ],
        )
    })?;
    let mut client = server.connect()?;
    client.batch_execute("SET enable_seqscan = off")?;
    let by_index = "SELECT count(*) FROM hot WHERE id * 1000000 + n = \
                    (SELECT 1000000 + n FROM hot WHERE id = 1)";
    let found = int(&mut client, by_index)?;
    ensure!(found == 1, "the index finds {found} rows");
    drop(client);
    physical_health(&server, "hot", "id")
}

#[test]
fn old_snapshot_stays_open() -> Result<()> {
    let server = start_hot(2, &[])?;
    let mut old = server.connect()?;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT val FROM hot")?;
    Mix::new(&server).run(|worker| {
        one_of(
            worker,
            &[
                BUMP,
                "INSERT INTO hot VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1",
            ],
        )
    })?;
    let seen = int(&mut old, "SELECT sum(val) FROM hot")?;
    ensure!(seen == 0, "the old snapshot sees {seen}");
    drop(old);
    physical_health(&server, "hot", "id")
}
