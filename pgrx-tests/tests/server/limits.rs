//! Full tables degrade to stock locking, with a counter and without an error.
use anyhow::{Result, ensure};
use rand::Rng;
use txn_server_tests::{Load, int, physical_health, start_hot};

fn more_hot_rows_than(max_hot_rows: &str) -> Result<()> {
    let server = start_hot(32, &[("txn.max_hot_rows", max_hot_rows)])?;
    let tally = Load::new(&server, 40, 60)
        .session(|_| "SET txn.group_lock = on; SET txn.hot_threshold = 0".to_owned())
        .run(|worker| {
            let id: i32 = worker.rng.random_range(1..=32);
            worker.begin()?;
            worker.execute("UPDATE hot SET val = val + 1 WHERE id = $1", &[&id])?;
            worker.commit(1)
        })?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val) FROM hot")?)?;
    let full = int(&mut client, "SELECT table_full FROM txn.stats")?;
    ensure!(full > 0, "32 rows fitted into {max_hot_rows} places");
    drop(client);
    physical_health(&server, "hot", "id")
}

#[test]
fn one_hot_row_for_many() -> Result<()> {
    more_hot_rows_than("1")
}

#[test]
fn four_hot_rows_for_many() -> Result<()> {
    more_hot_rows_than("4")
}

/// Enough places, several groups at once, groups of two.
#[test]
fn many_groups_side_by_side() -> Result<()> {
    let server = start_hot(8, &[])?;
    let tally = Load::new(&server, 64, 40)
        .session(|number| {
            let size = if number % 2 == 0 {
                "SET txn.group_size = 2"
            } else {
                ""
            };
            format!("SET txn.group_lock = on; SET txn.hot_threshold = 1; {size}")
        })
        .moves("followed")
        .run(|worker| {
            let id: i32 = worker.rng.random_range(1..=8);
            worker.begin()?;
            worker.execute("UPDATE hot SET val = val + 1 WHERE id = $1", &[&id])?;
            match worker.chance(5) {
                true => worker.rollback(),
                false => worker.commit(1),
            }
        })?;
    // 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
    tally.only(&["40001", "40P01"])?;
    tally.explains(int(&mut server.connect()?, "SELECT sum(val) FROM hot")?)?;
    physical_health(&server, "hot", "id")
}
