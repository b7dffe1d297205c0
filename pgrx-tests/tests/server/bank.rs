//! Transfers between few accounts: the sum is the same at every instant, for every reader.
use std::sync::Mutex;

use anyhow::{Result, ensure};
use rand::Rng;
use txn_server_tests::{Load, int, physical_health, start};

const ACCOUNTS: i32 = 4;
const TOTAL: i64 = 4000;
const READERS: usize = 6;
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn bank(follower_reads: &'static str, rollbacks: u32) -> Result<()> {
    let server = start(&[("deadlock_timeout", "10ms")])?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
         INSERT INTO account SELECT id, {TOTAL} / {ACCOUNTS} FROM generate_series(1, {ACCOUNTS}) id"
    ))?;
    let wrong = Mutex::new(Vec::new());
    let load = Load::new(&server, READERS + 40, 60).session(move |_| {
        format!(
            "SET txn.group_lock = on; SET txn.hot_threshold = 1;
             SET txn.follower_reads = {follower_reads}"
        )
    });
    let load = load.moves("followed");
    let tally = load.run(|worker| {
        if worker.number < READERS {
            let level = LEVELS[worker.number % LEVELS.len()];
            worker.simple(&format!("BEGIN ISOLATION LEVEL {level}"))?;
            for _ in 0..2 {
                let sum = "SELECT sum(balance)::bigint, count(*) FROM account";
                let row = worker.query(sum, &[])?.remove(0);
                let seen: (i64, i64) = (row.get(0), row.get(1));
                if seen != (TOTAL, i64::from(ACCOUNTS)) {
                    wrong.lock().unwrap().push((level, seen));
                }
            }
            return worker.commit(0);
        }
        let from = worker.rng.random_range(1..=ACCOUNTS);
        let to = from % ACCOUNTS + 1;
        let amount = worker.rng.random_range(1..10i64);
        worker.begin()?;
        let update = "UPDATE account SET balance = balance + $2 WHERE id = $1";
        worker.execute(update, &[&from, &-amount])?;
        worker.execute(update, &[&to, &amount])?;
        if worker.chance(rollbacks) {
            return worker.rollback();
        }
        worker.commit(1)
    })?;
    // Transfers take two accounts in any order (40P01), and who has followed one that rolls back
    // tries again (40001).
    tally.only(&["40001", "40P01"])?;
    let wrong = wrong.into_inner()?;
    ensure!(wrong.is_empty(), "readers saw another sum: {wrong:?}");
    let sum = int(&mut server.connect()?, "SELECT sum(balance) FROM account")?;
    ensure!(sum == TOTAL, "the sum is {sum} at the end");
    physical_health(&server, "account", "id")
}

#[test]
fn sum_is_constant() -> Result<()> {
    bank("wait", 0)
}

#[test]
fn sum_is_constant_with_rollbacks() -> Result<()> {
    bank("wait", 10)
}

#[test]
fn sum_is_constant_when_followers_read_at_once() -> Result<()> {
    bank("immediate", 10)
}
