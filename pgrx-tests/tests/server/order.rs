//! The order of update is the order of commit, and every reader sees a prefix of it.
use std::sync::Mutex;

use anyhow::{Result, ensure};
use txn_server_tests::{Done, Load, int, physical_health, start_hot};

const READERS: usize = 6;
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// Each transaction files the value it made of the hot row. What is committed has to be 1, 2, 3 ...
/// without gap or double, committed in this order; and whoever looks, and whenever, has to find as
/// many values as the row says, and never fewer than before.
fn prefix(rollbacks: u32, follower_reads: &'static str) -> Result<()> {
    let server = start_hot(1, &[("track_commit_timestamp", "on")])?;
    server.connect()?.batch_execute(
        "CREATE TABLE journal (val bigint NOT NULL); CREATE INDEX ON journal (val)",
    )?;
    let wrong = Mutex::new(Vec::new());
    let load = Load::new(&server, READERS + 48, 60).session(move |_| {
        format!(
            "SET txn.group_lock = on; SET txn.hot_threshold = 1;
             SET txn.follower_reads = {follower_reads}"
        )
    });
    let load = load.moves("followed");
    let tally = load.run(|worker| {
        if worker.number < READERS {
            let level = LEVELS[worker.number % LEVELS.len()];
            let mut before = 0;
            for _ in 0..5 {
                worker.simple(&format!("BEGIN ISOLATION LEVEL {level}"))?;
                let look = "SELECT val, (SELECT count(*) FROM journal), \
                            (SELECT coalesce(max(val), 0) FROM journal) FROM hot";
                let row = worker.query(look, &[])?.remove(0);
                let seen: (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
                worker.commit(0)?;
                if seen.0 != seen.1 || seen.0 != seen.2 || seen.0 < before {
                    wrong.lock().unwrap().push((level, before, seen));
                }
                before = seen.0;
            }
            return Ok(Done::Committed(0));
        }
        worker.begin()?;
        let bump = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val";
        let val: i64 = worker.query(bump, &[])?[0].get(0);
        worker.execute("INSERT INTO journal VALUES ($1)", &[&val])?;
        if worker.chance(rollbacks) {
            return worker.rollback();
        }
        worker.commit(1)
    })?;
    // 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
    tally.only(&["40001", "40P01"])?;
    let wrong = wrong.into_inner()?;
    ensure!(
        wrong.is_empty(),
        "level, seen before, (row, values, greatest): {wrong:?}"
    );
    let mut client = server.connect()?;
    let val = int(&mut client, "SELECT val FROM hot")?;
    tally.explains(val)?;
    let count = int(&mut client, "SELECT count(*) FROM journal")?;
    let greatest = int(&mut client, "SELECT max(val) FROM journal")?;
    ensure!(
        val == count && val == greatest,
        "{val}, but {count} values up to {greatest}"
    );
    let swapped = "SELECT count(*) FROM (SELECT pg_xact_commit_timestamp(xmin) < \
                   lag(pg_xact_commit_timestamp(xmin)) OVER (ORDER BY val) AS late FROM journal) o \
                   WHERE late";
    let swapped = int(&mut client, swapped)?;
    ensure!(
        swapped == 0,
        "{swapped} transactions committed before their predecessor"
    );
    drop(client);
    physical_health(&server, "hot", "id")?;
    // This counts distinct values, too.
    physical_health(&server, "journal", "val")
}

#[test]
fn readers_see_a_prefix() -> Result<()> {
    prefix(0, "wait")
}

#[test]
fn readers_see_a_prefix_with_rollbacks() -> Result<()> {
    prefix(10, "wait")
}

#[test]
fn readers_see_a_prefix_when_followers_read_at_once() -> Result<()> {
    prefix(10, "immediate")
}
