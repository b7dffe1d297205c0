//! All shapes at once on one row.
use anyhow::Result;
use postgres::Error;
use rand::Rng;
use txn_server_tests::{Worker, physical_health, start_hot};

use super::{BUMP, Mix, RETRY, either, none, one_of};

const STATEMENTS: [&str; 9] = [
    BUMP,
    "UPDATE hot SET val = val + 1 WHERE id = 1 AND val >= 0 RETURNING val",
    "UPDATE hot SET val = val + 1 WHERE id IN (SELECT 1)",
    "UPDATE seen SET val = val + 1 WHERE id = 1",
    "UPDATE hot h SET val = h.val + 1 FROM (VALUES (1)) v (id) WHERE h.id = v.id",
    "INSERT INTO hot VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
    "MERGE INTO hot USING (VALUES (1)) new (id) ON hot.id = new.id
     WHEN MATCHED THEN UPDATE SET val = hot.val + 1",
    "WITH gone AS (DELETE FROM child WHERE number = (SELECT min(number) FROM child) RETURNING 1)
     UPDATE hot SET val = val + 1 WHERE id = 1",
    "SELECT bump()",
];

fn anything(worker: &mut Worker) -> Result<i64, Error> {
    match worker.rng.random_range(0..10) {
        0 => {
            worker.simple("INSERT INTO child (hot) VALUES (1)")?;
            one_of(worker, &STATEMENTS)
        }
        1 => {
            let rows = one_of(worker, &STATEMENTS)?;
            worker.simple("INSERT INTO child (hot) VALUES (1)")?;
            Ok(rows)
        }
        2 => {
            worker.simple("SELECT FROM hot WHERE id = 1 FOR UPDATE")?;
            one_of(worker, &STATEMENTS)
        }
        3 => {
            worker.simple("SELECT FROM hot WHERE id = 1 FOR KEY SHARE")?;
            one_of(worker, &STATEMENTS)
        }
        4 => {
            worker.simple("SAVEPOINT sp")?;
            one_of(worker, &STATEMENTS)?;
            worker.simple("ROLLBACK TO sp")?;
            one_of(worker, &STATEMENTS)
        }
        5 => {
            worker
                .simple("DECLARE c CURSOR FOR SELECT FROM hot WHERE id = 1 FOR UPDATE; FETCH c")?;
            either(worker, "UPDATE hot SET val = val + 1 WHERE CURRENT OF c")
        }
        6 => {
            worker.simple("SELECT sum(val) FROM hot")?;
            let rows = one_of(worker, &STATEMENTS)?;
            worker.simple("SELECT sum(val) FROM hot")?;
            Ok(rows)
        }
        7 => Ok(one_of(worker, &STATEMENTS)? + one_of(worker, &STATEMENTS)?),
        _ => one_of(worker, &STATEMENTS),
    }
}

#[test]
fn everything_on_one_row() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE child (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                             hot int NOT NULL REFERENCES hot);
         CREATE VIEW seen AS SELECT * FROM hot WHERE val >= 0 WITH CHECK OPTION;
         CREATE FUNCTION bump() RETURNS bigint LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE hot SET val = val + 1 WHERE id = 1;
             RETURN 1;
         END $$",
    )?;
    // Some update the row twice, and some look at other tables in any order.
    Mix::new(&server).in_blocks().allow(&RETRY).run(anything)?;
    none(&server, "SELECT count(*) - 2 FROM hot")?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "child", "number")
}
