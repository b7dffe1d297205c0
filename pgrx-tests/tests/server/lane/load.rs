//! Many at once, in opposite orders: nobody is refused who has declared what it uses.

use anyhow::{Result, ensure};
use txn_server_tests::{Load, int, physical_health};

use super::{bank, declare};

const ROWS: i32 = 8;

/// Two of the rows, whatever their order.
fn two(worker: &mut txn_server_tests::Worker) -> (i32, i32) {
    let first = worker.below(ROWS as u32) as i32;
    let second = (first + 1 + worker.below(ROWS as u32 - 1) as i32) % ROWS;
    (first + 1, second + 1)
}

fn nobody_is_refused(level: &'static str, has_undeclared: bool) -> Result<()> {
    let server = bank(ROWS as u32, &[])?;
    let sessions = move |_| {
        format!("SET default_transaction_isolation = '{level}'; SET txn.range_occ = on; SELECT 1")
    };
    let load = Load::new(&server, 64, 25)
        .session(sessions)
        .moves("lane_waits");
    let tally = load.run(|worker| {
        let (first, second) = two(worker);
        if has_undeclared && worker.chance(20) {
            // One row only: two writers that declare nothing can meet each other's.
            let update = format!("UPDATE account SET val = val + 2 WHERE id = {first}");
            return worker.committing(2, |worker| worker.execute(&update, &[]));
        }
        if worker.chance(50) {
            let call = format!("CALL bump({first}, {second})");
            return worker.committing(2, |worker| worker.execute(&call, &[]));
        }
        worker.begin()?;
        worker.simple(&declare(&[first, second]))?;
        for id in [first, second] {
            let sql = format!("UPDATE account SET val = val + 1 WHERE id = {id}");
            worker.execute(&sql, &[])?;
        }
        match worker.chance(10) {
            true => worker.rollback(),
            false => worker.commit(2),
        }
    })?;
    // Transactions that declare nothing may be refused at REPEATABLE READ.
    let undeclared: &[&str] = if has_undeclared && level != "read committed" {
        &["40001"]
    } else {
        &[]
    };
    tally.only(undeclared)?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val) FROM account")?)?;
    ensure!(int(&mut client, "SELECT count(*) FROM txn.lane")? == 0);
    ensure!(int(&mut client, "SELECT lane_skipped FROM txn.stats")? == 0);
    drop(client);
    physical_health(&server, "account", "id")
}

#[test]
fn read_committed() -> Result<()> {
    nobody_is_refused("read committed", false)
}

#[test]
fn repeatable_read() -> Result<()> {
    nobody_is_refused("repeatable read", false)
}

#[test]
fn beside_writers_that_declare_nothing() -> Result<()> {
    nobody_is_refused("read committed", true)
}

#[test]
fn beside_validated_writers_that_declare_nothing() -> Result<()> {
    nobody_is_refused("repeatable read", true)
}
