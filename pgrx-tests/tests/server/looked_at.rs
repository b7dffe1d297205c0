//! Versions of a running predecessor that a statement has looked at and does not build on.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
    wait_until,
};

const LOW: &str = "UPDATE hot SET val = 1 WHERE id = 1";
const HIGH: &str = "UPDATE hot SET val = 100 WHERE id = 1";
/// Passes a row over that is low.
const IF_HIGH: &str = "UPDATE hot SET val = val - 1 WHERE val > 50";
/// Fails where the row is low.
const TAKE: &str = "UPDATE hot SET val = val - 5 WHERE id = 1";

/// The row is high, and must not become negative.
fn start() -> Result<(Server, Client)> {
    let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
    let mut control = server.connect()?;
    control.batch_execute(
        "UPDATE hot SET val = 60; ALTER TABLE hot ADD CONSTRAINT enough CHECK (val >= 0)",
    )?;
    grouped(&server)?.batch_execute("UPDATE hot SET val = val WHERE id = 1")?;
    Ok((server, control))
}

fn begin(server: &Server, statements: &[&str]) -> Result<Client> {
    let mut client = grouped(server)?;
    client.batch_execute("BEGIN")?;
    for statement in statements {
        client.batch_execute(statement)?;
    }
    Ok(client)
}

/// What has been looked at, and not built on yet, is not changed any more: the statement would have
/// passed over a row that it finds, or failed for a value that nobody has committed.
#[test]
fn its_writer_does_not_change_it() -> Result<()> {
    for (statement, told) in [(IF_HIGH, "00000"), (TAKE, "23514")] {
        for commits in [true, false] {
            let (server, control) = start()?;
            let dog = Watchdog::new(&server);
            let told = if commits { told } else { "40001" };
            let ended = change_behind(&server, control, statement, commits, told);
            dog.finish(ended.with_context(|| format!("{statement}, committed: {commits}")))?;
        }
    }
    Ok(())
}

fn change_behind(
    server: &Server,
    mut control: Client,
    statement: &str,
    commits: bool,
    told: &str,
) -> Result<()> {
    control.batch_execute("SELECT pg_advisory_lock(hashtext('txn.offered'))")?;
    let mut writer = begin(server, &[LOW])?;
    let mut looker = grouped(server)?;
    looker
        .batch_execute("SET txn.stop_at = 'offered'")
        .context("the library has to be built with --features stop_events")?;
    let looker = Background::run(looker, statement)?;
    looker.wait_until_stopped(&mut control)?;
    let (end, left) = if commits {
        ("COMMIT", 1)
    } else {
        let changed = sqlstate(&writer.batch_execute(HIGH));
        ensure!(changed == "40001", "the writer was told {changed}");
        ("ROLLBACK", 60)
    };
    writer.batch_execute(end)?;
    control.batch_execute("SELECT pg_advisory_unlock_all()")?;
    let heard = sqlstate(&looker.end()?.1);
    ensure!(heard == told, "the one behind was told {heard}");
    let val = int(&mut control, "SELECT val FROM hot")?;
    ensure!(val == left, "the value is {val}");
    drop((writer, control));
    physical_health(server, "hot", "id")
}

/// A session that waits for the writer's end leaves the writer free to update the row again.
#[test]
fn who_lets_it_end_leaves_it_free() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut writer = begin(&server, &[LOW])?;
    let mut waiter = grouped(&server)?;
    waiter.batch_execute("SET txn.group_lock = off; SET txn.queue_lock = on")?;
    let waiter = Background::run(waiter, IF_HIGH)?;
    waiter.wait_until_blocked(&mut control)?;
    writer.batch_execute(HIGH)?;
    writer.batch_execute("COMMIT")?;
    waiter.end()?.1?;
    ensure!(int(&mut control, "SELECT val FROM hot")? == 99);
    drop((writer, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A wait that is cut short tells nothing. With its savepoint it leaves nothing of the row.
#[test]
fn a_wait_cut_short_leaves_nothing() -> Result<()> {
    let (server, control) = start()?;
    let dog = Watchdog::new(&server);
    let mut writer = begin(&server, &[LOW])?;
    let mut failed = begin(&server, &["SAVEPOINT s", "SET LOCAL lock_timeout = '50ms'"])?;
    let told = sqlstate(&failed.batch_execute(TAKE));
    ensure!(told == "55P03", "the wait ended with {told}");
    failed.batch_execute("ROLLBACK TO s")?;
    writer.batch_execute(LOW).context("the row is its own")?;
    failed
        .batch_execute("COMMIT")
        .context("it waits for nobody")?;
    writer.batch_execute("ROLLBACK")?;
    drop((writer, failed, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// An error that has waited is true. With its savepoint it leaves nothing of the row.
#[test]
fn after_an_error_it_may_follow() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut writer = begin(&server, &[LOW])?;
    let late = Background::run(begin(&server, &["SAVEPOINT s"])?, TAKE)?;
    late.wait_until_blocked(&mut control)?;
    writer.batch_execute("COMMIT")?;
    let (mut failed, result) = late.end()?;
    let told = sqlstate(&result);
    ensure!(told == "23514", "{told}");
    failed.batch_execute("ROLLBACK TO s")?;
    writer.batch_execute("BEGIN")?;
    writer.batch_execute(HIGH)?;
    let before = int(&mut control, "SELECT followed FROM txn.stats")?;
    failed.batch_execute(TAKE)?;
    expect_followed(&mut control, before + 1).context("it may follow again")?;
    writer.batch_execute("COMMIT")?;
    failed.batch_execute("COMMIT")?;
    ensure!(int(&mut control, "SELECT val FROM hot")? == 95);
    drop((writer, failed, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// The statement comes to the row twice. The version that it has built on is that of a transaction
/// which has committed and is still in the row's list. It has that one's command where the executor
/// asks which command has changed it.
#[test]
fn a_row_that_is_found_twice() -> Result<()> {
    let once = "UPDATE hot SET val = val + 1 FROM (VALUES (1), (1)) q (id) WHERE hot.id = q.id";
    let merge = "MERGE INTO hot USING (VALUES (1), (1)) q (id) ON hot.id = q.id
                 WHEN MATCHED THEN UPDATE SET val = val + 1";
    for (statement, told, val) in [(once, "00000", 102), (merge, "21000", 101)] {
        let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
        let dog = Watchdog::new(&server);
        let mut control = server.connect()?;
        control.batch_execute("CREATE TABLE log (id int)")?;
        grouped(&server)?.batch_execute("UPDATE hot SET val = 100 WHERE id = 1")?;
        control.batch_execute("SELECT pg_advisory_lock(hashtext('txn.committed'))")?;
        let before = int(&mut control, "SELECT followed FROM txn.stats")?;
        let log = "INSERT INTO log VALUES (1)";
        let bump = "UPDATE hot SET val = val + 1 WHERE id = 1";
        let mut first = begin(&server, &[log, log, log, bump])?;
        first.batch_execute("SET LOCAL txn.stop_at = 'committed'")?;
        let first = Background::run(first, "COMMIT")?;
        wait_until(
            &mut control,
            &format!(
                "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {}",
                first.pid
            ),
        )?;
        let second = Background::run(begin(&server, &[])?, statement)?;
        let has_followed = format!("SELECT followed > {before} FROM txn.stats");
        wait_until(&mut control, &has_followed)?;
        control.batch_execute("SELECT pg_advisory_unlock_all()")?;
        first.end()?.1?;
        let (mut second, result) = second.end()?;
        ensure!(sqlstate(&result) == told, "{statement}: {result:?}");
        second.batch_execute("COMMIT")?;
        ensure!(
            int(&mut control, "SELECT val FROM hot")? == val,
            "{statement}"
        );
        drop((second, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}
