//! Whatever ends a declared transaction, the next one goes on.

use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Background, int, sqlstate};

use super::{bank, declare, update};

/// What ends the statement of a process.
type End<'a> = &'a dyn Fn(&mut Client, i32) -> Result<()>;

/// Runs `statement` in `client`, which waits, until it fails with that code, by itself or by what
/// `end` does to its process; then `free` lets another one have the same keys.
fn ends_with(
    server: &Server,
    look: &mut Client,
    (client, statement): (Client, &str),
    end: Option<End>,
    code: &str,
    free: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let waiter = Background::run(client, statement)?;
    if let Some(end) = end {
        waiter.wait_until_blocked(look)?;
        let mut behind = server.connect()?;
        behind.batch_execute("BEGIN")?;
        let behind = Background::run(behind, &declare(&[1, 2]))?;
        behind.wait_until_blocked(look)?;
        end(look, waiter.pid)?;
        expect_end(waiter, statement, code)?;
        free()?;
        behind.end()?.1?;
    } else {
        expect_end(waiter, statement, code)?;
        free()?;
    }
    let mut next = server.connect()?;
    next.batch_execute("BEGIN")?;
    next.batch_execute(&declare(&[1, 2]))?;
    Ok(())
}

fn expect_end(waiter: Background, statement: &str, code: &str) -> Result<()> {
    let told = sqlstate(&waiter.end()?.1);
    // The answer of a session that is terminated may be lost with its connection.
    let is_lost = code == "57P01" && told == "lost";
    ensure!(told == code || is_lost, "{statement}: {told}");
    Ok(())
}

fn signal(function: &'static str) -> impl Fn(&mut Client, i32) -> Result<()> {
    move |look, pid| {
        look.execute(&format!("SELECT {function}({pid})"), &[])?;
        Ok(())
    }
}

/// A queued transaction, and a draining one, is cancelled, terminated, or waits too long.
#[test]
fn while_it_waits() -> Result<()> {
    let server = bank(3, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    let ends = [
        ("", Some("pg_cancel_backend"), "57014"),
        ("", Some("pg_terminate_backend"), "57P01"),
        ("SET lock_timeout = '300ms'", None, "55P03"),
        ("SET statement_timeout = '300ms'", None, "57014"),
        ("SET txn.hot_wait_timeout = '300ms'", None, "55P03"),
    ];
    for declares_first in [true, false] {
        for (setting, function, code) in ends {
            let mut first = server.connect()?;
            first.batch_execute("BEGIN")?;
            if declares_first {
                first.batch_execute(&declare(&[1]))?;
            } else {
                first.batch_execute(&update(1))?;
            }
            let mut client = server.connect()?;
            client.batch_execute(&format!("{setting}; BEGIN"))?;
            let by_signal = function.map(signal);
            ends_with(
                &server,
                &mut look,
                (client, &declare(&[1, 2])),
                by_signal.as_ref().map(|end| end as End),
                code,
                // Those behind it wait for the first one.
                || Ok(first.batch_execute("COMMIT")?),
            )?;
        }
    }
    txn_server_tests::wait_until(&mut look, "SELECT count(*) = 0 FROM txn.lane")
}

/// A holder rolls back, fails, or dies.
#[test]
fn while_it_holds() -> Result<()> {
    let server = bank(3, &[])?;
    let mut look = server.connect()?;
    for end in [
        "ROLLBACK",
        "SELECT 1/0",
        "SELECT pg_terminate_backend(pg_backend_pid())",
    ] {
        let mut holder = server.connect()?;
        holder.batch_execute("BEGIN")?;
        holder.batch_execute(&declare(&[1]))?;
        holder.batch_execute(&update(1))?;
        let mut next = server.connect()?;
        next.batch_execute("BEGIN")?;
        let next = Background::run(next, &declare(&[1]))?;
        next.wait_until_blocked(&mut look)?;
        let _ = holder.batch_execute(end);
        next.end()?.1?;
    }
    ensure!(int(&mut look, "SELECT val FROM account WHERE id = 1")? == 0);
    Ok(())
}

/// A savepoint that rolls back leaves the keys.
#[test]
fn savepoints_leave_the_keys() -> Result<()> {
    let server = bank(3, &[])?;
    let mut look = server.connect()?;
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(&declare(&[1]))?;
    holder.batch_execute("SAVEPOINT a")?;
    holder.batch_execute(&update(1))?;
    holder.batch_execute("ROLLBACK TO a")?;
    let writer = Background::run(server.connect()?, &update(1))?;
    writer.wait_until_blocked(&mut look)?;
    holder.batch_execute(&update(1))?;
    holder.batch_execute("COMMIT")?;
    writer.end()?.1?;
    ensure!(int(&mut look, "SELECT val FROM account WHERE id = 1")? == 2);
    Ok(())
}

/// After a crash the lane is empty, and nothing that was acknowledged is lost.
#[test]
fn a_crash() -> Result<()> {
    let mut server = bank(3, &[("fsync", "on")])?;
    let mut holder = server.connect()?;
    holder.batch_execute("CALL bump(1)")?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(&declare(&[1]))?;
    holder.batch_execute(&update(1))?;
    server.kill9_all()?;
    server.start_again()?;
    let mut look = server.connect()?;
    ensure!(int(&mut look, "SELECT count(*) FROM txn.lane")? == 0);
    look.batch_execute("CALL bump(1)")?;
    ensure!(int(&mut look, "SELECT val FROM account WHERE id = 1")? == 2);
    Ok(())
}
