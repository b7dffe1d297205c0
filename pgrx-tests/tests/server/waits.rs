//! What the views show of who waits for whom, and to whom.
use anyhow::{Result, ensure};
use libc::{SIGCONT, SIGINT, SIGSTOP};
use pgserver::{Server, signal};
use postgres::Client;
use std::thread::sleep;
use std::time::Duration;
use txn_server_tests::{Background, Watchdog, grouped, pid, start_hot, text, until, wait_until};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

fn check_wait(control: &mut Client, waiter: i32, blocker: i32, reason: &str) -> Result<()> {
    wait_until(
        control,
        &format!("SELECT count(*) = 1 FROM txn.waits WHERE pid = {waiter}"),
    )?;
    let wait = text(
        control,
        &format!(
            "SELECT concat_ws(' ', blocked_by, relation, reason) FROM txn.waits WHERE pid = {waiter}"
        ),
    )?;
    let expected = format!("{blocker} hot {reason}");
    ensure!(
        wait == expected,
        "txn.waits shows {wait:?} instead of {expected:?}"
    );
    // After deadlock_timeout PostgreSQL's own views know of it, too.
    wait_until(
        control,
        &format!("SELECT {blocker} = ANY (pg_blocking_pids({waiter}))"),
    )
}

#[test]
fn ticket_and_commit_waits() -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "10ms")])?;
    let dog = Watchdog::new(&server);
    dog.finish(show_waits(&server))
}

fn show_waits(server: &Server) -> Result<()> {
    let mut control = server.connect()?;
    let mut first = grouped(server)?;
    let first_pid = pid(&mut first)?;
    first.batch_execute("BEGIN; SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
    let mut second = grouped(server)?;
    second.batch_execute("BEGIN")?;
    let second = Background::run(second, BUMP)?;
    let second_pid = second.pid;
    check_wait(&mut control, second_pid, first_pid, "ticket")?;
    let events = format!(
        "SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE pid = {second_pid}"
    );
    ensure!(
        !text(&mut control, &events)?.is_empty(),
        "the waiter has no wait event"
    );

    first.batch_execute("COMMIT; BEGIN")?;
    let (mut second, result) = second.end()?;
    result?;
    second.batch_execute("COMMIT; BEGIN")?;

    first.batch_execute(BUMP)?;
    second.batch_execute(BUMP)?;
    let second = Background::run(second, "COMMIT")?;
    check_wait(&mut control, second_pid, first_pid, "commit")?;
    first.batch_execute("COMMIT")?;
    second.end()?.1?;
    wait_until(&mut control, "SELECT count(*) = 0 FROM txn.waits")
}

/// Keys are shown to those who may read the table, rows of the hot table to everybody.
#[test]
fn keys_are_for_the_tables_readers() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(show_keys(&server))
}

fn show_keys(server: &Server) -> Result<()> {
    let mut control = server.connect()?;
    let mut first = grouped(server)?;
    first.batch_execute("BEGIN; SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
    let second = Background::run(grouped(server)?, BUMP)?;
    wait_until(&mut control, "SELECT count(*) = 1 FROM txn.waits")?;
    control.batch_execute("CREATE ROLE reader LOGIN; CREATE ROLE stranger LOGIN")?;
    control.batch_execute("GRANT SELECT ON hot TO reader")?;
    for view in ["txn.hotspots", "txn.waits"] {
        let key = format!("SELECT relation || ' ' || coalesce(key, 'hidden') FROM {view}");
        for (role, shown) in [("postgres", true), ("reader", true), ("stranger", false)] {
            let mut client = server.connect_as(role, "postgres")?;
            let seen = text(&mut client, &key)?;
            ensure!(
                seen.starts_with("hot ") && (seen == "hot hidden") != shown,
                "{role} sees {seen:?} in {view}"
            );
        }
    }
    first.batch_execute("COMMIT")?;
    second.end()?.1?;
    Ok(())
}

/// PostgreSQL's line about a long wait names a transaction; ours is in its context.
#[test]
fn the_log_says_what_is_waited_for() -> Result<()> {
    let settings = [("deadlock_timeout", "10ms"), ("log_lock_waits", "on")];
    let server = start_hot(1, &settings)?;
    let dog = Watchdog::new(&server);
    dog.finish(log_waits(&server))
}

fn log_waits(server: &Server) -> Result<()> {
    let mut first = grouped(server)?;
    first.batch_execute("BEGIN; SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
    let second = Background::run(grouped(server)?, BUMP)?;
    wait_for_log(
        server,
        "while waiting for its turn to update hot row (1) of table \"hot\"",
    )?;
    first.batch_execute("COMMIT")?;
    second.end()?.1?;

    first.batch_execute("BEGIN")?;
    first.batch_execute(BUMP)?;
    let mut second = grouped(server)?;
    second.batch_execute("BEGIN")?;
    second.batch_execute(BUMP)?;
    let second = Background::run(second, "COMMIT")?;
    let line = "while waiting for a predecessor to commit on hot row (1) of table \"hot\"";
    wait_for_log(server, line)?;
    first.batch_execute("COMMIT")?;
    Ok(second.end()?.1?)
}

fn wait_for_log(server: &Server, line: &str) -> Result<()> {
    let what = format!("the log says: {line}");
    until(&mut server.connect()?, &what, |_| {
        Ok(server.log()?.contains(line))
    })
}

/// A slice of a wait in the lock manager ends by a lock timeout, for which PostgreSQL has one flag
/// with cancels and `statement_timeout`: a session that is stopped until all of them are due hears
/// of all of them at once.
#[test]
fn what_comes_with_the_end_of_a_slice_is_not_lost() -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "100ms")])?;
    let dog = Watchdog::new(&server);
    dog.finish(end_slices(&server))
}

fn end_slices(server: &Server) -> Result<()> {
    let mut control = server.connect()?;
    let mut holder = grouped(server)?;
    for (is_cancelled, statement_timeout, message) in [
        (true, "0", "canceling statement due to user request"),
        (false, "2s", "canceling statement due to statement timeout"),
    ] {
        holder.batch_execute("BEGIN; SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
        let mut waiter = grouped(server)?;
        waiter.batch_execute(&format!("SET statement_timeout = '{statement_timeout}'"))?;
        let waiter = Background::run(waiter, BUMP)?;
        wait_until(
            &mut control,
            &format!(
                "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {}",
                waiter.pid
            ),
        )?;
        signal(waiter.pid, SIGSTOP)?;
        if is_cancelled {
            signal(waiter.pid, SIGINT)?;
        }
        // A slice takes at most 310 ms, and `statement_timeout` ends after it.
        sleep(Duration::from_millis(3000));
        signal(waiter.pid, SIGCONT)?;
        let result = waiter.end()?.1;
        let error = result.as_ref().err().and_then(|error| error.as_db_error());
        let told = error.map(|error| error.message());
        ensure!(told == Some(message), "{told:?} instead of {message:?}");
        holder.batch_execute("COMMIT")?;
    }
    Ok(())
}
