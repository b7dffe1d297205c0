//! A transaction that has the row in any way updates it without queueing behind its waiters.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
};

use super::BUMP;

const FOR_UPDATE: &str = "SELECT val FROM hot WHERE id = 1 FOR UPDATE";

/// One transaction has done `first`, another waits for it with `waiter`: then the first updates.
fn told(server: &Server, first: &str, waiter: &str) -> Result<(String, String, String)> {
    let mut one = grouped(server)?;
    one.batch_execute("BEGIN")?;
    one.batch_execute(first)?;
    let two = Background::run(grouped(server)?, waiter)?;
    two.wait_until_blocked(&mut server.connect()?)?;
    Ok((
        sqlstate(&one.batch_execute(BUMP)),
        sqlstate(&one.batch_execute("COMMIT")),
        sqlstate(&two.end()?.1),
    ))
}

fn has_it(firsts: &[&str], waiters: &[&str]) -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE child (hot int NOT NULL REFERENCES hot);
         SET txn.group_lock = on; SET txn.hot_threshold = 0;
         UPDATE hot SET val = val WHERE id = 1",
    )?;
    // No update follows these checks: those to come lock the row at once.
    let mut checks = grouped(&server)?;
    for _ in 0..5 {
        checks.batch_execute("INSERT INTO child VALUES (1)")?;
    }
    checks.batch_execute("DELETE FROM child")?;
    drop(checks);
    let dog = Watchdog::new(&server);
    let mut wrong = Vec::new();
    let result = (|| {
        for first in firsts {
            for waiter in waiters {
                let told = told(&server, first, waiter)?;
                if told != ("00000".into(), "00000".into(), "00000".into()) {
                    wrong.push(format!("{first} / {waiter}: {told:?}"));
                }
            }
        }
        Ok(())
    })();
    dog.finish(result)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(int(&mut server.connect()?, "SELECT val FROM hot")? > 0);
    physical_health(&server, "hot", "id")
}

#[test]
fn update_after_for_update() -> Result<()> {
    has_it(
        &[
            FOR_UPDATE,
            "SELECT val FROM hot WHERE id = 1 FOR NO KEY UPDATE",
            "DECLARE c CURSOR FOR SELECT FROM hot FOR UPDATE; FETCH c",
        ],
        &[BUMP, FOR_UPDATE],
    )
}

#[test]
fn update_after_a_lock_without_waiting() -> Result<()> {
    has_it(
        &[
            "SELECT val FROM hot WHERE id = 1 FOR UPDATE NOWAIT",
            "SELECT val FROM hot WHERE id = 1 FOR NO KEY UPDATE SKIP LOCKED",
        ],
        &[BUMP, FOR_UPDATE],
    )
}

#[test]
fn update_after_a_share() -> Result<()> {
    has_it(
        &["SELECT val FROM hot WHERE id = 1 FOR SHARE"],
        &[BUMP, FOR_UPDATE],
    )
}

#[test]
fn update_after_a_key_share() -> Result<()> {
    has_it(
        &["SELECT val FROM hot WHERE id = 1 FOR KEY SHARE"],
        &[
            FOR_UPDATE,
            "BEGIN; UPDATE hot SET id = 5 WHERE id = 1; ROLLBACK",
        ],
    )?;
    has_it(&["INSERT INTO child VALUES (1)"], &[FOR_UPDATE])
}

#[test]
fn update_after_an_upsert() -> Result<()> {
    has_it(
        &["INSERT INTO hot VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET val = 0 WHERE false"],
        &[BUMP, FOR_UPDATE],
    )
}

/// A transaction that has updated the row has handed it on: with a follower behind, a second change
/// is refused.
#[test]
fn a_second_change_after_a_follower() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    let firsts = [
        BUMP,
        "INSERT INTO hot VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1",
        "MERGE INTO hot USING (VALUES (1)) new (id) ON hot.id = new.id
         WHEN MATCHED THEN UPDATE SET val = hot.val + 1",
    ];
    let result = firsts.iter().try_for_each(|first| {
        let (again, commit, follower) = told(&server, first, BUMP)?;
        ensure!(
            (again.as_str(), commit.as_str(), follower.as_str()) == ("40001", "00000", "40001"),
            "{first}: {again}, {commit}, {follower}"
        );
        Ok(())
    });
    dog.finish(result)?;
    expect_followed(&mut server.connect()?, firsts.len() as i64)?;
    ensure!(int(&mut server.connect()?, "SELECT val FROM hot")? == 0);
    physical_health(&server, "hot", "id")
}

#[test]
fn update_of_a_row_inserted_again() -> Result<()> {
    has_it(
        &["DELETE FROM hot WHERE id = 1; INSERT INTO hot VALUES (1, 1)"],
        &[BUMP, FOR_UPDATE],
    )
}

#[test]
fn update_after_a_change_of_the_key() -> Result<()> {
    has_it(
        &[
            "UPDATE hot SET id = 1 WHERE id = 1",
            "UPDATE hot SET id = 2 WHERE id = 1; UPDATE hot SET id = 1 WHERE id = 2",
        ],
        &[BUMP, FOR_UPDATE],
    )
}

#[test]
fn update_after_the_setting_was_off() -> Result<()> {
    has_it(
        &[
            "SET LOCAL txn.group_lock = off; UPDATE hot SET val = val + 1 WHERE id = 1;
             SET LOCAL txn.group_lock = on",
            "SET LOCAL txn.group_lock = off; SELECT FROM hot WHERE id = 1 FOR UPDATE;
             SET LOCAL txn.group_lock = on",
        ],
        &[BUMP, FOR_UPDATE],
    )
}
