//! The row to which a checked foreign key refers is removed, by another transaction or by the one
//! that has checked it.
use anyhow::{Result, ensure};
use txn_server_tests::{Background, Watchdog, grouped, int, physical_health, sqlstate};

use super::{BUMP, CHECK, REMOVE, after, refer, start};

/// A transaction that removes the row between another's check and commit does not wait, with group
/// lock or without. The child is refused with 40001.
#[test]
fn a_row_that_is_removed() -> Result<()> {
    for way in [REMOVE, "UPDATE hot SET id = 7 WHERE id = 1"] {
        for in_group in [false, true] {
            for ends_first in [false, true] {
                let (server, mut control) = start(&[])?;
                let dog = Watchdog::new(&server);
                let mut checks = after(&server, &[CHECK])?;
                let mut other = if in_group {
                    grouped(&server)?
                } else {
                    server.connect()?
                };
                other.batch_execute("BEGIN")?;
                other.batch_execute(way)?;
                if ends_first {
                    other.batch_execute("COMMIT")?;
                }
                let commit = Background::run(checks, "COMMIT")?;
                if !ends_first {
                    commit.wait_until_blocked(&mut control)?;
                    other.batch_execute("COMMIT")?;
                }
                let told;
                (checks, told) = commit.end()?;
                let told = sqlstate(&told);
                ensure!(told == "40001", "{told} after {way}");
                refer(&mut control, 0)?;
                drop((checks, other, control));
                dog.finish(physical_health(&server, "hot", "id"))?;
            }
        }
    }
    Ok(())
}

/// The row is held from the update on, or from PREPARE TRANSACTION on: whoever removes it waits,
/// and sees the child.
#[test]
fn holds_the_row() -> Result<()> {
    for (holds, ends) in [
        (&[BUMP][..], "COMMIT"),
        (&["PREPARE TRANSACTION 'held'"], "COMMIT PREPARED 'held'"),
        (
            &[BUMP, "PREPARE TRANSACTION 'held'"],
            "COMMIT PREPARED 'held'",
        ),
        // A utility command may remove rows itself.
        (&["CREATE TABLE new (a int)"], "COMMIT"),
        (
            &["SAVEPOINT s", "ALTER TABLE other ADD a int", "RELEASE s"],
            "COMMIT",
        ),
    ] {
        let (server, mut control) = start(&[("max_prepared_transactions", "3")])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        for statement in holds {
            checks.batch_execute(statement)?;
        }
        let other = Background::run(server.connect()?, REMOVE)?;
        other.wait_until_blocked(&mut control)?;
        checks.batch_execute(ends)?;
        let (other, told) = other.end()?;
        let told = sqlstate(&told);
        ensure!(told == "23503", "{told} after {holds:?}");
        refer(&mut control, 1)?;
        drop((checks, other, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// The transaction may remove the row itself, once it has no children.
#[test]
fn its_own_removal() -> Result<()> {
    for statements in [
        &["DELETE FROM child", REMOVE][..],
        &["UPDATE child SET hot = 2", REMOVE],
        &["DELETE FROM child", "UPDATE hot SET id = 7 WHERE id = 1"],
        &["DELETE FROM child", BUMP, REMOVE],
        &["TRUNCATE hot, child"],
        &["DROP TABLE child", REMOVE],
        &[
            "DROP TABLE child, hot",
            "CREATE TABLE hot (id int PRIMARY KEY, val int)",
            "CREATE TABLE child (hot int REFERENCES hot)",
        ],
        &["SAVEPOINT s", "DELETE FROM child", REMOVE, "RELEASE s"],
        &[
            "SAVEPOINT s",
            "SAVEPOINT t",
            "DELETE FROM child",
            BUMP,
            "RELEASE t",
            REMOVE,
            "RELEASE s",
        ],
        &[
            "SET LOCAL txn.group_lock = off",
            "DELETE FROM child",
            REMOVE,
        ],
        &[
            "SELECT set_config('txn.group_lock', 'off', true)",
            "DELETE FROM child",
            REMOVE,
        ],
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        for statement in statements {
            checks.batch_execute(statement)?;
        }
        let told = sqlstate(&checks.batch_execute("COMMIT"));
        ensure!(told == "00000", "{told} after {statements:?}");
        let rows = int(&mut control, "SELECT count(*) FROM hot WHERE id = 1")?;
        ensure!(rows == 0, "the row is there after {statements:?}");
        drop((checks, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// What a savepoint has taken back: the removal by the transaction itself, and with it the lock; or
/// the check.
#[test]
fn savepoints() -> Result<()> {
    for (statements, expected) in [
        (
            &["SAVEPOINT s", "DELETE FROM child", REMOVE, "ROLLBACK TO s"][..],
            "40001",
        ),
        (
            &[
                "SAVEPOINT s",
                "LOCK TABLE other",
                "CREATE TABLE a ()",
                "ROLLBACK TO s",
            ],
            "40001",
        ),
        (&["SAVEPOINT s", BUMP, "ROLLBACK TO s"], "40001"),
        (&["ROLLBACK TO before"], "00000"),
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &["SAVEPOINT before", CHECK])?;
        for statement in statements {
            checks.batch_execute(statement)?;
        }
        server.connect()?.batch_execute(REMOVE)?;
        let told = sqlstate(&checks.batch_execute("COMMIT"));
        ensure!(told == expected, "{told} after {statements:?}");
        refer(&mut control, 0)?;
        drop((checks, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// A row that has been removed and inserted again is as good.
#[test]
fn a_row_that_is_back() -> Result<()> {
    for updates in [false, true] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        let mut other = server.connect()?;
        other.batch_execute(REMOVE)?;
        other.batch_execute("INSERT INTO hot VALUES (1, 0)")?;
        if updates {
            checks.batch_execute(BUMP)?;
        }
        checks.batch_execute("COMMIT")?;
        refer(&mut control, 1)?;
        drop((checks, other, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// An update that finds no row, because another transaction has removed it, is refused, also if the
/// row is back then.
#[test]
fn an_update_that_finds_none() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let mut other = server.connect()?;
    let checks = after(&server, &[CHECK])?;
    other.batch_execute("BEGIN")?;
    other.batch_execute(REMOVE)?;
    other.batch_execute("INSERT INTO hot VALUES (1, 100)")?;
    let update = Background::run(checks, BUMP)?;
    update.wait_until_blocked(&mut control)?;
    other.batch_execute("COMMIT")?;
    let (checks, told) = update.end()?;
    ensure!(sqlstate(&told) == "40001", "{told:?}");
    drop(checks);
    let mut checks = after(&server, &[CHECK])?;
    other.batch_execute("UPDATE hot SET id = 13 WHERE id = 1")?;
    let told = sqlstate(&checks.batch_execute(BUMP));
    ensure!(told == "40001", "{told}");
    drop((checks, other));
    refer(&mut control, 0)?;
    drop(control);
    dog.finish(physical_health(&server, "hot", "id"))
}

/// Rows of the table that other transactions remove are none of the check's business.
#[test]
fn other_rows_that_are_removed() -> Result<()> {
    for (before, statement) in [
        (&[CHECK][..], "UPDATE hot SET val = val + 1 WHERE id >= 1"),
        (&[CHECK], "UPDATE hot SET val = val + 1 WHERE id IN (2, 3)"),
        (&[CHECK], "SELECT FROM hot WHERE id IN (2, 3) FOR UPDATE"),
        (
            &["SAVEPOINT s", CHECK, BUMP],
            "UPDATE hot SET val = val + 1 WHERE id IN (2, 3)",
        ),
        (
            &[CHECK, "SAVEPOINT s", "CREATE TEMP TABLE new ()"],
            "SELECT FROM hot WHERE id IN (2, 3) FOR UPDATE",
        ),
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        control.batch_execute("INSERT INTO hot VALUES (3, 0)")?;
        let checks = after(&server, before)?;
        let mut other = server.connect()?;
        other.batch_execute("BEGIN; DELETE FROM hot WHERE id = 2")?;
        let waits = Background::run(checks, statement)?;
        waits.wait_until_blocked(&mut control)?;
        other.batch_execute("COMMIT")?;
        let (mut checks, told) = waits.end()?;
        ensure!(
            sqlstate(&told) == "00000",
            "{told:?}: {statement} after {before:?}"
        );
        checks.batch_execute("COMMIT")?;
        refer(&mut control, 1)?;
        drop((checks, other, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// Whatever way the transaction comes to the row that another one has removed: it does not go on as
/// if the row had never been there.
#[test]
fn a_removed_row_is_not_taken_for_none() -> Result<()> {
    for statement in [
        "WITH u AS (UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val) \
         SELECT count(*) FROM u",
        "INSERT INTO hot VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET val = hot.val + 5",
        "INSERT INTO hot VALUES (1, 5)",
        "MERGE INTO hot USING (VALUES (1)) s (n) ON id = n
            WHEN MATCHED THEN UPDATE SET val = val + 1 WHEN NOT MATCHED THEN INSERT VALUES (n, 1)",
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        server.connect()?.batch_execute(REMOVE)?;
        let told = sqlstate(&checks.batch_execute(statement));
        ensure!(told == "40001", "{told}: {statement}");
        drop(checks);
        refer(&mut control, 0)?;
        drop(control);
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}
