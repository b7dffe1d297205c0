//! Updates in savepoints and in blocks with EXCEPTION: others follow them, and a rollback to before
//! them dooms those.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const FOR_UPDATE: &str = "SELECT FROM hot WHERE id = 1 FOR UPDATE";

fn start() -> Result<(Server, Client)> {
    let server = start_hot(
        3,
        &[
            ("deadlock_timeout", "10min"),
            ("max_prepared_transactions", "3"),
        ],
    )?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE PROCEDURE bump(n int, fails boolean) LANGUAGE plpgsql AS $$
         BEGIN
             BEGIN
                 UPDATE hot SET val = val + 1 WHERE id = n;
                 IF fails THEN PERFORM 1 / 0; END IF;
             EXCEPTION WHEN division_by_zero THEN NULL;
             END;
         END $$",
    )?;
    grouped(&server)?.batch_execute(BUMP)?;
    control.batch_execute("UPDATE hot SET val = 0")?;
    Ok((server, control))
}

fn after(server: &Server, statements: &[&str]) -> Result<Client> {
    let mut client = grouped(server)?;
    // What a procedure's condition evaluates is known once it has been parsed.
    client.batch_execute("CALL bump(3, false)")?;
    client.batch_execute("BEGIN")?;
    for statement in statements {
        client.batch_execute(statement)?;
    }
    Ok(client)
}

fn followed(control: &mut Client) -> Result<i64> {
    int(control, "SELECT followed FROM txn.stats")
}

fn val(control: &mut Client) -> Result<i64> {
    int(control, "SELECT val FROM hot WHERE id = 1")
}

/// Ways to update the row in a subtransaction that stays.
const WAYS: [&[&str]; 6] = [
    &["SAVEPOINT s", BUMP],
    &["SAVEPOINT s", BUMP, "RELEASE s"],
    &["SAVEPOINT s", "SAVEPOINT t", BUMP, "RELEASE t"],
    &[
        "SAVEPOINT s",
        "SAVEPOINT t",
        "RELEASE s",
        BUMP,
        "SAVEPOINT u",
    ],
    &["CALL bump(1, false)"],
    &["SAVEPOINT s", FOR_UPDATE, BUMP],
];

#[test]
fn follow_each_other() -> Result<()> {
    for first in WAYS {
        for second in WAYS {
            let (server, mut control) = start()?;
            let dog = Watchdog::new(&server);
            let before = followed(&mut control)?;
            let mut leader = after(&server, first)?;
            let follower = after(&server, second)?;
            let third = after(&server, &[BUMP])?;
            expect_followed(&mut control, before + 2).context("nobody has followed")?;
            let third = Background::run(third, "COMMIT")?;
            let follower = Background::run(follower, "COMMIT")?;
            leader.batch_execute("COMMIT")?;
            for background in [follower, third] {
                background.end()?.1?;
            }
            ensure!(val(&mut control)? == 3, "{first:?}, {second:?}");
            drop((leader, control));
            dog.finish(physical_health(&server, "hot", "id"))?;
        }
    }
    Ok(())
}

/// A rollback to before the update dooms those behind, and them only: the transaction itself goes
/// on, and may update the row again.
#[test]
fn a_rollback_dooms_those_behind() -> Result<()> {
    for again in [
        &[][..],
        &[BUMP],
        &["SAVEPOINT s", BUMP],
        &["CALL bump(1, false)"],
    ] {
        for update in [
            &["SAVEPOINT s", BUMP][..],
            &["SAVEPOINT s", "SAVEPOINT t", BUMP, "RELEASE t"],
        ] {
            let (server, mut control) = start()?;
            let dog = Watchdog::new(&server);
            let mut first = after(&server, &[BUMP])?;
            let mut second = after(&server, update)?;
            let third = after(&server, &[BUMP])?;
            let third = Background::run(third, "COMMIT")?;
            third.wait_until_blocked(&mut control)?;
            second.batch_execute("ROLLBACK TO s")?;
            let (third, told) = third.end()?;
            let told = sqlstate(&told);
            ensure!(told == "40001", "{told}");
            first.batch_execute("COMMIT")?;
            for statement in again {
                second.batch_execute(statement)?;
            }
            second.batch_execute("COMMIT")?;
            let expected = 1 + i64::from(!again.is_empty());
            ensure!(val(&mut control)? == expected, "{again:?} after {update:?}");
            grouped(&server)?.batch_execute(BUMP)?;
            ensure!(val(&mut control)? == expected + 1);
            drop((first, second, third, control));
            dog.finish(physical_health(&server, "hot", "id"))?;
        }
    }
    Ok(())
}

/// An error in a savepoint, or in a block with EXCEPTION, dooms the transactions behind, too.
#[test]
fn an_error_dooms_those_behind() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut second = after(&server, &["SAVEPOINT s", BUMP])?;
    let mut third = after(&server, &[BUMP])?;
    ensure!(sqlstate(&second.batch_execute("SELECT 1 / 0")) == "22012");
    let told = sqlstate(&third.batch_execute("COMMIT"));
    ensure!(told == "40001", "{told}");
    second.batch_execute("ROLLBACK TO s; CALL bump(1, true); CALL bump(1, false); COMMIT")?;
    ensure!(val(&mut control)? == 1);
    drop((second, third, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A follower that has rolled its own update back has seen its predecessor's: it commits only after
/// that one.
#[test]
fn what_was_seen_stays_seen() -> Result<()> {
    for (end, expected) in [("COMMIT", "00000"), ("ROLLBACK", "40001")] {
        let (server, mut control) = start()?;
        let dog = Watchdog::new(&server);
        let mut leader = after(&server, &[BUMP])?;
        let follower = after(&server, &["SAVEPOINT s", BUMP, "ROLLBACK TO s"])?;
        let commit = Background::run(follower, "COMMIT")?;
        commit.wait_until_blocked(&mut control)?;
        leader.batch_execute(end)?;
        let (follower, told) = commit.end()?;
        let told = sqlstate(&told);
        ensure!(told == expected, "{told} after {end}");
        drop((leader, follower, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// A row that was locked before the savepoint is kept to the end: a rollback would leave the lock.
#[test]
fn a_row_locked_above() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut first = after(&server, &[FOR_UPDATE, "SAVEPOINT s", BUMP, "ROLLBACK TO s"])?;
    let other = Background::run(grouped(&server)?, BUMP)?;
    other.wait_until_blocked(&mut control)?;
    first.batch_execute(BUMP)?;
    first.batch_execute("COMMIT")?;
    other.end()?.1?;
    ensure!(val(&mut control)? == 2);
    drop((first, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A predecessor's version that was locked in a savepoint is handed out. After a rollback a cursor
/// still stands at it.
#[test]
fn a_cursor_outlives_the_savepoint_of_its_lock() -> Result<()> {
    for (end, expected) in [("COMMIT", "00000"), ("ROLLBACK", "40001")] {
        let (server, mut control) = start()?;
        let dog = Watchdog::new(&server);
        let mut leader = after(&server, &[BUMP])?;
        let cursor = after(
            &server,
            &[
                "DECLARE c CURSOR FOR SELECT * FROM hot WHERE id = 1 FOR UPDATE",
                "SAVEPOINT s",
                "FETCH c",
                "ROLLBACK TO s",
            ],
        )?;
        let update = "UPDATE hot SET val = val + 1 WHERE CURRENT OF c";
        let update = Background::run(cursor, update)?;
        update.wait_until_blocked(&mut control)?;
        leader.batch_execute(end)?;
        let (mut cursor, told) = update.end()?;
        let told = sqlstate(&told);
        ensure!(told == expected, "{told} after {end}");
        cursor.batch_execute("COMMIT")?;
        grouped(&server)?.batch_execute(BUMP)?;
        let sum = if expected == "00000" { 3 } else { 1 };
        ensure!(val(&mut control)? == sum);
        drop((leader, cursor, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// One that is doomed has the row in hand. It will not commit: to wait for it closes no cycle.
#[test]
fn the_doomed_may_be_awaited() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut first = after(&server, &["SAVEPOINT s", BUMP])?;
    let mut second = after(&server, &[FOR_UPDATE])?;
    first.batch_execute("ROLLBACK TO s")?;
    let again = Background::run(first, BUMP)?;
    again.wait_until_blocked(&mut control)?;
    let told = sqlstate(&second.batch_execute(BUMP));
    ensure!(told == "40001", "{told}");
    second.batch_execute("ROLLBACK")?;
    let (mut first, told) = again.end()?;
    told?;
    first.batch_execute("COMMIT")?;
    ensure!(val(&mut control)? == 1);
    drop((first, second, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// What somebody has seen is not changed any more, even if that one has rolled its own version
/// back.
#[test]
fn a_version_that_was_seen_is_not_changed() -> Result<()> {
    for change in [BUMP, "DELETE FROM hot WHERE id = 1"] {
        let (server, mut control) = start()?;
        let dog = Watchdog::new(&server);
        let mut first = after(&server, &[BUMP])?;
        let mut second = after(&server, &["SAVEPOINT s", BUMP, "ROLLBACK TO s"])?;
        let told = sqlstate(&first.batch_execute(change));
        ensure!(told == "40001", "{told} for {change}");
        first.batch_execute("ROLLBACK")?;
        let told = sqlstate(&second.batch_execute("COMMIT"));
        ensure!(told == "40001", "{told} after {change}");
        ensure!(val(&mut control)? == 0);
        drop((first, second, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// A lock that is rolled back holds nobody up.
#[test]
fn a_lock_goes_with_its_savepoint() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut first = after(&server, &[BUMP])?;
    let mut second = after(&server, &["SAVEPOINT s", FOR_UPDATE, "ROLLBACK TO s"])?;
    first.batch_execute("COMMIT")?;
    grouped(&server)?.batch_execute(BUMP)?;
    second.batch_execute("COMMIT")?;
    ensure!(val(&mut control)? == 2);
    drop((first, second, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// One that is doomed has locked another row. To wait for it closes no cycle.
#[test]
fn the_doomed_may_hold_other_rows() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    control.batch_execute(
        "CREATE TABLE cold (id int PRIMARY KEY, val int); INSERT INTO cold VALUES (1, 0);
         SELECT txn.set_table('cold', 'off')",
    )?;
    let cold = "UPDATE cold SET val = val + 1 WHERE id = 1";
    let mut second = after(&server, &[cold])?;
    let mut first = after(&server, &["SAVEPOINT s", BUMP])?;
    second.batch_execute(BUMP)?;
    first.batch_execute("ROLLBACK TO s")?;
    let waits = Background::run(first, cold)?;
    waits.wait_until_blocked(&mut control)?;
    let told = sqlstate(&second.batch_execute("COMMIT"));
    ensure!(told == "40001", "{told}");
    let (mut first, told) = waits.end()?;
    told?;
    first.batch_execute("COMMIT")?;
    ensure!(int(&mut control, "SELECT val FROM cold")? == 1);
    drop((first, second, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A follower waits for its predecessor's second version of another row, which is rolled back. The
/// predecessor may come to that row again, and is first.
#[test]
fn a_predecessor_that_comes_again_is_first() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let two = "UPDATE hot SET val = val + 1 WHERE id = 2";
    let mut first = after(&server, &[BUMP, "SAVEPOINT s", two, two])?;
    let second = after(&server, &[BUMP])?;
    let waits = Background::run(second, two)?;
    waits.wait_until_blocked(&mut control)?;
    first.batch_execute("ROLLBACK TO s")?;
    first.batch_execute(two)?;
    first.batch_execute("COMMIT")?;
    let (mut second, told) = waits.end()?;
    told?;
    second.batch_execute("COMMIT")?;
    ensure!(val(&mut control)? == 2);
    ensure!(int(&mut control, "SELECT val FROM hot WHERE id = 2")? == 2);
    drop((first, second, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// Somebody waits in the ordinary way for a transaction whose savepoint is released: the group ends
/// for that one, too.
#[test]
fn ordinary_waiters_end_the_group() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut first = after(&server, &["SAVEPOINT s", BUMP, "RELEASE s"])?;
    let third = after(&server, &[])?;
    let ordinary = Background::run(server.connect()?, BUMP)?;
    ordinary.wait_until_blocked(&mut control)?;
    let third = Background::run(third, BUMP)?;
    third.wait_until_blocked(&mut control)?;
    first.batch_execute("COMMIT")?;
    // Either of the two may be the first to wake up. The ordinary one commits at once.
    let (mut third, told) = third.end()?;
    told?;
    third.batch_execute("COMMIT")?;
    let (ordinary, told) = ordinary.end()?;
    told?;
    ensure!(val(&mut control)? == 3);
    drop((first, ordinary, third, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A prepared transaction has updated in savepoints; its followers wait for COMMIT PREPARED.
#[test]
fn prepared() -> Result<()> {
    for (end, expected, sum) in [
        ("COMMIT PREPARED 'p'", "00000", 2),
        ("ROLLBACK PREPARED 'p'", "40001", 0),
    ] {
        let (server, mut control) = start()?;
        let dog = Watchdog::new(&server);
        let mut first = after(&server, &["SAVEPOINT s", BUMP, "RELEASE s"])?;
        let second = after(&server, &["SAVEPOINT s", BUMP, "RELEASE s"])?;
        first.batch_execute("PREPARE TRANSACTION 'p'")?;
        let commit = Background::run(second, "COMMIT")?;
        commit.wait_until_blocked(&mut control)?;
        first.batch_execute(end)?;
        let (second, told) = commit.end()?;
        let told = sqlstate(&told);
        ensure!(told == expected, "{told} after {end}");
        ensure!(val(&mut control)? == sum);
        drop((first, second, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// Waits that would close a cycle are refused at once, also where the rows were updated in
/// savepoints.
#[test]
fn circles() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let two = "UPDATE hot SET val = val + 1 WHERE id = 2";
    let mut first = after(&server, &["SAVEPOINT s", BUMP, "RELEASE s"])?;
    let mut second = after(&server, &["SAVEPOINT s", two, "RELEASE s", BUMP])?;
    let told = sqlstate(&first.batch_execute(two));
    ensure!(told == "40P01", "{told}");
    first.batch_execute("ROLLBACK")?;
    let told = sqlstate(&second.batch_execute("COMMIT"));
    ensure!(told == "40001", "{told}");
    ensure!(val(&mut control)? == 0);
    drop((first, second, control));
    dog.finish(physical_health(&server, "hot", "id"))
}
