//! A row's value is the number of confirmed increments: none lost, none twice, whoever rolls back.
use anyhow::{Result, ensure};
use postgres::Error;
use txn_server_tests::{Done, Load, Worker, int, physical_health, start_hot};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = $1";
const GROUP: &str = "SET txn.group_lock = on; SET txn.hot_threshold = 1";
/// 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
const RETRY: [&str; 2] = ["40001", "40P01"];

/// Runs `transaction` in 64 sessions and compares. The totals `moved` of txn.stats have to have
/// moved, so that the test has tested what it is about.
fn count(
    session: impl Fn(usize) -> String + Sync + 'static,
    allowed: &[&str],
    moved: &[&str],
    transaction: impl Fn(&mut Worker) -> Result<Done, Error> + Sync,
) -> Result<()> {
    let server = start_hot(2, &[("deadlock_timeout", "10ms")])?;
    let tally = Load::new(&server, 64, 60)
        .session(session)
        .run(transaction)?;
    tally.only(allowed)?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val) FROM hot")?)?;
    for column in moved {
        let total = int(&mut client, &format!("SELECT {column} FROM txn.stats"))?;
        ensure!(total > 0, "txn.stats.{column} is 0 after {tally:?}");
    }
    drop(client);
    physical_health(&server, "hot", "id")
}

fn group(_: usize) -> String {
    GROUP.to_owned()
}

/// One increment in a transaction block, undone in `percent` of the cases.
fn block(worker: &mut Worker, percent: u32) -> Result<Done, Error> {
    worker.begin()?;
    worker.execute(BUMP, &[&1])?;
    if worker.chance(percent) {
        return worker.rollback();
    }
    worker.commit(1)
}

#[test]
fn no_rollbacks() -> Result<()> {
    count(group, &[], &["followed", "groups"], |worker| {
        block(worker, 0)
    })
}

#[test]
fn five_percent_rollbacks() -> Result<()> {
    count(
        group,
        &RETRY,
        &["followed", "cascades", "doomed"],
        |worker| block(worker, 5),
    )
}

#[test]
fn twenty_percent_rollbacks() -> Result<()> {
    count(
        group,
        &RETRY,
        &["followed", "cascades", "doomed"],
        |worker| block(worker, 20),
    )
}

#[test]
fn autocommit_in_both_protocols() -> Result<()> {
    count(group, &[], &["tickets"], |worker| {
        worker.committing(1, |worker| match worker.number % 2 {
            0 => worker.execute(BUMP, &[&1]).map(drop),
            _ => worker.simple("UPDATE hot SET val = val + 1 WHERE id = 1"),
        })
    })
}

#[test]
fn several_statements_in_one_message() -> Result<()> {
    count(group, &RETRY, &["tickets"], |worker| {
        let undo = if worker.chance(5) {
            "SELECT 1 / 0;"
        } else {
            ""
        };
        let done = worker.committing(2, |worker| {
            worker.simple(&format!(
                "UPDATE hot SET val = val + 1 WHERE id = 1; {undo}
                 UPDATE hot SET val = val + 1 WHERE id = 2"
            ))
        });
        match done {
            Err(error) if error.code().is_some_and(|code| code.code() == "22012") => {
                Ok(Done::RolledBack)
            }
            done => done,
        }
    })
}

/// Whether any of them follows is up to the order in which they come: the rows may back off at
/// once.
#[test]
fn two_hot_rows_in_any_order() -> Result<()> {
    count(group, &RETRY, &["tickets"], |worker| {
        let first = if worker.chance(50) { 1 } else { 2 };
        worker.begin()?;
        worker.execute(BUMP, &[&first])?;
        worker.execute(BUMP, &[&(3 - first)])?;
        worker.commit(2)
    })
}

#[test]
fn the_same_row_twice_in_one_transaction() -> Result<()> {
    count(group, &RETRY, &["own_row"], |worker| {
        worker.begin()?;
        worker.execute(BUMP, &[&1])?;
        worker.execute(BUMP, &[&1])?;
        worker.commit(2)
    })
}

#[test]
fn savepoints_undone_and_kept() -> Result<()> {
    count(group, &RETRY, &["tickets"], |worker| {
        worker.begin()?;
        let before = worker.chance(30);
        if before {
            worker.execute(BUMP, &[&1])?;
        }
        worker.simple("SAVEPOINT sp")?;
        worker.execute(BUMP, &[&2])?;
        let kept = worker.chance(50);
        worker.simple(if kept { "RELEASE sp" } else { "ROLLBACK TO sp" })?;
        worker.commit(i64::from(before) + i64::from(kept))
    })
}

#[test]
fn queue_lock_has_no_cascades() -> Result<()> {
    let session = |_| "SET txn.queue_lock = on; SET txn.hot_threshold = 1".to_owned();
    count(session, &[], &["tickets"], |worker| block(worker, 20))
}

/// Sessions with every combination of settings on the same row.
#[test]
fn group_queue_and_ordinary_sessions() -> Result<()> {
    let session = |number: usize| {
        let settings = [
            GROUP,
            "SET txn.queue_lock = on; SET txn.hot_threshold = 1",
            "SET txn.group_lock = off",
            "SET txn.group_lock = on; SET txn.follower_reads = immediate",
        ];
        settings[number % settings.len()].to_owned()
    };
    count(session, &RETRY, &["tickets"], |worker| block(worker, 5))
}

/// The client computes the value: a second update between its read and its write would be lost.
#[test]
fn select_for_update_then_update() -> Result<()> {
    count(group, &RETRY, &["tickets"], |worker| {
        worker.begin()?;
        let rows = worker.query("SELECT val FROM hot WHERE id = 1 FOR UPDATE", &[])?;
        let val: i64 = rows[0].get(0);
        worker.execute("UPDATE hot SET val = $1 WHERE id = 1", &[&(val + 1)])?;
        if worker.chance(5) {
            return worker.rollback();
        }
        worker.commit(1)
    })
}

/// Read, then write at REPEATABLE READ and SERIALIZABLE next to groups at READ COMMITTED.
#[test]
fn snapshots_lose_nothing_next_to_groups() -> Result<()> {
    count(group, &RETRY, &["tickets"], |worker| {
        let level = match worker.number % 4 {
            0 => "REPEATABLE READ",
            1 => "SERIALIZABLE",
            _ => return block(worker, 5),
        };
        worker.simple(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        let rows = worker.query("SELECT val FROM hot WHERE id = 1", &[])?;
        let val: i64 = rows[0].get(0);
        worker.execute("UPDATE hot SET val = $1 WHERE id = 1", &[&(val + 1)])?;
        worker.commit(1)
    })
}
