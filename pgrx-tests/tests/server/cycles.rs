//! Cycles through a hot row and something that is none: T2 follows T1 and holds what T1 wants, and
//! waits in COMMIT for T1. The deadlock detector sees both waits. Whom it picks is a matter of
//! milliseconds; that somebody is told and that what commits is right is not.
//!
//! And cycles through rows that are not hot yet: they are refused at once, too.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
    until,
};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// What T2 does first, and T1 afterwards.
const SCENES: [(&str, &str); 6] = [
    (
        "SELECT pg_advisory_xact_lock(42)",
        "SELECT pg_advisory_xact_lock(42)",
    ),
    ("LOCK TABLE cold", "LOCK TABLE cold"),
    ("INSERT INTO uniq VALUES (5)", "INSERT INTO uniq VALUES (5)"),
    (
        "DELETE FROM parent WHERE id = 1",
        "INSERT INTO child VALUES (1, 1)",
    ),
    ("UPDATE cold SET val = 2", "UPDATE cold SET val = 1"),
    (
        "SELECT 1 FROM cold WHERE id = 1 FOR SHARE",
        "UPDATE cold SET val = 1 WHERE id = 1",
    ),
];

fn all_scenes(follower_first: bool) -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "20ms")])?;
    server.connect()?.batch_execute(
        "CREATE TABLE cold (id int PRIMARY KEY, val int NOT NULL);
         CREATE TABLE uniq (k int UNIQUE);
         CREATE TABLE parent (id int PRIMARY KEY);
         CREATE TABLE child (id int PRIMARY KEY, parent int NOT NULL REFERENCES parent);
         INSERT INTO cold VALUES (1, 0);
         INSERT INTO parent VALUES (1)",
    )?;
    let dog = Watchdog::new(&server);
    let mut result = Ok(());
    for (holds, wants) in SCENES {
        result = result.and_then(|()| {
            dog.progress();
            circle(&server, holds, wants, follower_first)
                .with_context(|| format!("T2: {holds}; T1: {wants}"))
        });
    }
    dog.finish(result)?;
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "cold", "id")
}

fn circle(server: &Server, holds: &str, wants: &str, follower_first: bool) -> Result<()> {
    let mut control = server.connect()?;
    let before = int(&mut control, "SELECT val FROM hot")?;
    let followed = int(&mut control, "SELECT followed FROM txn.stats")?;
    let mut leader = grouped(server)?;
    leader.batch_execute("BEGIN")?;
    leader.batch_execute(BUMP)?;
    let mut follower = grouped(server)?;
    follower.batch_execute("BEGIN")?;
    follower.batch_execute(holds)?;
    follower.batch_execute(BUMP)?;
    expect_followed(&mut control, followed + 1)?;
    let (mut leader, wanted, follower) = if follower_first {
        let follower = Background::run(follower, "COMMIT")?;
        follower.wait_until_blocked(&mut control)?;
        let (leader, wanted) = Background::run(leader, wants)?.end()?;
        (leader, wanted, Ok(follower))
    } else {
        let leader = Background::run(leader, wants)?;
        // It waits, unless it has been refused at once; then there is nothing left to wait for.
        let waits = leader.wait_until_blocked(&mut control).is_ok();
        let follower = match waits {
            true => Ok(Background::run(follower, "COMMIT")?),
            false => Err(follower),
        };
        let (leader, wanted) = leader.end()?;
        (leader, wanted, follower)
    };
    let leader_told = sqlstate(&wanted);
    leader.batch_execute(if wanted.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    let follower_told = match follower {
        Ok(background) => sqlstate(&background.end()?.1),
        Err(mut session) => sqlstate(&session.batch_execute("COMMIT")),
    };

    let told = [leader_told.as_str(), follower_told.as_str()];
    ensure!(
        [["00000", "40P01"], ["40P01", "40001"]].contains(&told),
        "leader and follower were told {told:?}"
    );
    let committed = i64::from(leader_told == "00000") + i64::from(follower_told == "00000");
    let val = int(&mut control, "SELECT val FROM hot")? - before;
    ensure!(val == committed, "{val} increments after {told:?}");
    Ok(())
}

#[test]
fn follower_waits_first() -> Result<()> {
    all_scenes(true)
}

#[test]
fn leader_waits_first() -> Result<()> {
    all_scenes(false)
}

/// A waits for row 1, which C gets before it, and C asks for A's row. A has declared its wait for
/// C, or does when its turn in heap's queue comes: one of the two is refused, long before
/// PostgreSQL looks for deadlocks.
#[test]
fn among_rows_that_are_not_hot() -> Result<()> {
    let server = start_hot(2, &[("deadlock_timeout", "10min")])?;
    let dog = Watchdog::new(&server);
    let mut result = Ok(());
    let second = "UPDATE hot SET val = val + 1 WHERE id = 2";
    for first in [BUMP, "SELECT FROM hot WHERE id = 1 FOR UPDATE"] {
        result = result.and_then(|()| {
            // Which of the two waiters is the next owner is not said.
            while !next_owner(&server, first, second).with_context(|| first.to_owned())? {
                dog.progress();
            }
            dog.progress();
            Ok(())
        });
    }
    dog.finish(result)?;
    physical_health(&server, "hot", "id")
}

/// Whether C was the next owner, and A was told of the cycle that it closes with it.
fn next_owner(server: &Server, first: &str, second: &str) -> Result<bool> {
    let mut control = server.connect()?;
    let sum = "SELECT sum(val)::int8 FROM hot";
    let before = int(&mut control, sum)?;
    let promotions = int(&mut control, "SELECT promotions FROM txn.stats")?;
    let session = || -> Result<_> {
        let mut session = grouped(server)?;
        session.batch_execute("SET txn.hot_threshold = 100; BEGIN")?;
        Ok(session)
    };
    let (mut owner, mut a, c) = (session()?, session()?, session()?);
    owner.batch_execute(BUMP)?;
    a.batch_execute(second)?;
    let c = Background::run(c, first)?;
    c.wait_until_blocked(&mut control)?;
    let a = Background::run(a, first)?;
    a.wait_until_blocked(&mut control)?;
    owner.batch_execute("COMMIT")?;
    until(&mut control, "one of the waiters has the row", |_| {
        Ok(a.is_finished() || c.is_finished())
    })?;
    if a.is_finished() {
        let (mut a, got) = a.end()?;
        ensure!(got.is_ok(), "A does not get the row: {got:?}");
        a.batch_execute("ROLLBACK")?;
        let (mut c, got) = c.end()?;
        ensure!(got.is_ok(), "C does not get the row after A: {got:?}");
        c.batch_execute("ROLLBACK")?;
        return Ok(false);
    }
    let (mut c, got) = c.end()?;
    ensure!(got.is_ok(), "C does not get the row: {got:?}");
    let c_told = sqlstate(&c.batch_execute(second));
    c.batch_execute(if c_told == "00000" {
        "COMMIT"
    } else {
        "ROLLBACK"
    })?;
    let (mut a, a_told) = a.end()?;
    let a_told = sqlstate(&a_told);
    a.batch_execute("COMMIT")?;

    let told = [a_told.as_str(), c_told.as_str()];
    ensure!(
        [["00000", "40P01"], ["40P01", "00000"]].contains(&told),
        "A and C were told {told:?}"
    );
    let updates = i64::from(first == BUMP);
    ensure!(int(&mut control, sum)? - before == 2 + updates, "{told:?}");
    ensure!(promotions == int(&mut control, "SELECT promotions FROM txn.stats")?);
    Ok(true)
}
