//! Transactions that have checked a row which is not hot, and come to update it: they queue, and
//! the first waits for the row's holder. No deadlock comes of the queue, and none is hidden by it.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Background, Watchdog, grouped, sqlstate, until, wait_until};

use super::{BUMP, CHECK, belong, start_cold};

const CHECK_TWO: &str = "INSERT INTO child (hot) VALUES (2)";
const TWO: &str = "UPDATE hot SET val = val + 1 WHERE id = 2";

/// A transaction that has checked row 1. No row becomes hot for it.
fn checked(server: &Server) -> Result<Client> {
    begun_by(server, CHECK)
}

/// `checked`, by that statement.
fn begun_by(server: &Server, check: &str) -> Result<Client> {
    let mut client = grouped(server)?;
    for statement in ["SET txn.hot_threshold = 100", "BEGIN", check] {
        client.batch_execute(statement)?;
    }
    Ok(client)
}

/// `checked`, which has updated row 2.
fn with_two(server: &Server) -> Result<Client> {
    let mut client = checked(server)?;
    client.batch_execute(CHECK_TWO)?;
    client.batch_execute(TWO)?;
    Ok(client)
}

/// The update of row 1 by each of them, which waits.
fn all_waiting(clients: Vec<Client>, control: &mut Client) -> Result<Vec<Background<()>>> {
    let wait = |client| waiting(client, BUMP, control);
    clients.into_iter().map(wait).collect()
}

fn waiting(client: Client, sql: &str, control: &mut Client) -> Result<Background<()>> {
    let waiting = Background::run(client, sql)?;
    waiting.wait_until_blocked(control)?;
    Ok(waiting)
}

/// Waits until so many sessions wait in queues, and so many for a transaction.
fn expect_waits(control: &mut Client, queued: u32, first: u32) -> Result<()> {
    let are_so_many = format!(
        "SELECT (count(*) FILTER (WHERE locktype = 'userlock'),
                 count(*) FILTER (WHERE locktype = 'transactionid')) = ({queued}, {first})
         FROM pg_locks WHERE NOT granted"
    );
    wait_until(control, &are_so_many)
}

/// Waits until nobody holds or awaits a place in a queue.
fn expect_no_queue(control: &mut Client) -> Result<()> {
    let is_none = "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'userlock'";
    wait_until(control, is_none)
}

fn commit(session: Background<()>) -> Result<()> {
    let (mut client, told) = session.end()?;
    told?;
    client.batch_execute("COMMIT")?;
    Ok(())
}

/// Commits them in the order in which they go on.
fn commit_all(mut sessions: Vec<Background<()>>, control: &mut Client) -> Result<()> {
    while !sessions.is_empty() {
        commit(finished(&mut sessions, control)?)?;
    }
    Ok(())
}

fn refused(session: Background<()>, code: &str) -> Result<Client> {
    let (client, told) = session.end()?;
    let told = sqlstate(&told);
    ensure!(told == code, "told {told}");
    Ok(client)
}

/// An end of the holder wakes one of them, and so on.
#[test]
fn one_is_woken() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let mut holder = checked(&server)?;
    let clients = (0..5).map(|_| checked(&server)).collect::<Result<_>>()?;
    holder.batch_execute(BUMP)?;
    let mut sessions = all_waiting(clients, &mut control)?;
    expect_waits(&mut control, 4, 1)?;
    holder.batch_execute("COMMIT")?;
    for behind in (0..5_u32).rev() {
        let next = finished(&mut sessions, &mut control)?;
        expect_waits(&mut control, behind.saturating_sub(1), behind.min(1))?;
        commit(next)?;
    }
    expect_no_queue(&mut control)?;
    drop((holder, control));
    dog.finish(belong(&server))
}

/// The holder comes to wait for a transaction in the queue, which is not the first: its wait closes
/// the cycle.
#[test]
fn the_holder_closes_a_cycle() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let (mut holder, first, second) = (checked(&server)?, checked(&server)?, with_two(&server)?);
    holder.batch_execute(CHECK_TWO)?;
    holder.batch_execute(BUMP)?;
    let first = waiting(first, BUMP, &mut control)?;
    let second = waiting(second, BUMP, &mut control)?;
    expect_waits(&mut control, 1, 1)?;
    let told = sqlstate(&holder.batch_execute(TWO));
    ensure!(told == "40P01", "the holder is told {told}");
    holder.batch_execute("ROLLBACK")?;
    commit_all(vec![first, second], &mut control)?;
    expect_no_queue(&mut control)?;
    drop((holder, control));
    dog.finish(belong(&server))
}

/// The holder waits for a transaction that then comes to the queue: that one closes the cycle.
#[test]
fn who_queues_closes_a_cycle() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let (mut holder, first, mut second) =
        (checked(&server)?, checked(&server)?, with_two(&server)?);
    holder.batch_execute(CHECK_TWO)?;
    holder.batch_execute(BUMP)?;
    let first = waiting(first, BUMP, &mut control)?;
    let holder = waiting(holder, TWO, &mut control)?;
    let told = sqlstate(&second.batch_execute(BUMP));
    ensure!(told == "40P01", "the second is told {told}");
    second.batch_execute("ROLLBACK")?;
    commit(holder)?;
    commit(first)?;
    expect_no_queue(&mut control)?;
    drop((second, control));
    dog.finish(belong(&server))
}

/// While the first has not declared its wait, the holder comes to wait for the other one of the
/// queue. The first is not in that cycle, and leaves the queue; the other one is, and is refused.
#[test]
fn the_first_leaves_a_cycle_of_others() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let (mut holder, mut first, second) =
        (checked(&server)?, checked(&server)?, with_two(&server)?);
    holder.batch_execute(CHECK_TWO)?;
    holder.batch_execute(BUMP)?;
    control.batch_execute("SELECT pg_advisory_lock(hashtext('txn.first_in_queue'))")?;
    first.batch_execute("SET txn.stop_at = 'first_in_queue'")?;
    let first = waiting(first, BUMP, &mut control)?;
    let second = waiting(second, BUMP, &mut control)?;
    expect_waits(&mut control, 1, 0)?;
    let holder = waiting(holder, TWO, &mut control)?;
    control.batch_execute("SELECT pg_advisory_unlock_all()")?;
    refused(second, "40P01")?.batch_execute("ROLLBACK")?;
    commit(holder)?;
    commit(first)?;
    expect_no_queue(&mut control)?;
    drop(control);
    dog.finish(belong(&server))
}

/// The holder has the row in a savepoint. The first waits for that, and for the transaction when
/// the savepoint is released; when it is rolled back, it has the row.
#[test]
fn behind_a_savepoint() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    for (end, goes_on) in [("RELEASE s", false), ("ROLLBACK TO s", true)] {
        let mut holder = checked(&server)?;
        let clients = (0..3).map(|_| checked(&server)).collect::<Result<_>>()?;
        holder.batch_execute("SAVEPOINT s")?;
        holder.batch_execute(BUMP)?;
        let mut sessions = all_waiting(clients, &mut control)?;
        expect_waits(&mut control, 2, 1)?;
        holder.batch_execute(end)?;
        if goes_on {
            commit(finished(&mut sessions, &mut control)?)?;
            holder.batch_execute("ROLLBACK")?;
        } else {
            let for_the_holder = "SELECT count(*) = 1 FROM pg_locks AS l JOIN pg_stat_activity AS h
                                  ON h.backend_xid = l.transactionid WHERE NOT granted";
            wait_until(&mut control, for_the_holder)?;
            expect_waits(&mut control, 2, 1)?;
            holder.batch_execute("COMMIT")?;
        }
        commit_all(sessions, &mut control)?;
        expect_no_queue(&mut control)?;
    }
    drop(control);
    dog.finish(belong(&server))
}

/// An error of a wait for a savepoint has the context that PostgreSQL gives to one for a
/// transaction.
#[test]
fn context_of_a_wait_for_a_savepoint() -> Result<()> {
    let (server, control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let (mut holder, mut other) = (checked(&server)?, checked(&server)?);
    holder.batch_execute("SAVEPOINT s")?;
    holder.batch_execute(BUMP)?;
    other.batch_execute("SET lock_timeout = '10ms'")?;
    let told = other.batch_execute(BUMP).err().context("no error")?;
    let told = told.as_db_error().context("an error of the server's")?;
    let context = told.where_().unwrap_or_default();
    ensure!(
        (told.code().code(), context)
            == ("55P03", "while updating tuple (0,1) in relation \"hot\""),
        "told {told:?}"
    );
    drop((holder, other, control));
    dog.finish(belong(&server))
}

/// A session whose wait is cancelled leaves the queue, be it the first or another one, and keeps
/// what it has done before its savepoint.
#[test]
fn cancelled() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let mut holder = checked(&server)?;
    let begun = || {
        let mut client = checked(&server)?;
        client.batch_execute("SAVEPOINT s")?;
        anyhow::Ok(client)
    };
    let clients = vec![begun()?, begun()?, begun()?];
    holder.batch_execute(BUMP)?;
    let mut sessions = all_waiting(clients, &mut control)?;
    let mut cancelled = Vec::new();
    for (at, waits) in [(1, (1, 1)), (0, (0, 1))] {
        let session = sessions.remove(at);
        control.execute("SELECT pg_cancel_backend($1)", &[&session.pid])?;
        let mut client = refused(session, "57014")?;
        client.batch_execute("ROLLBACK TO s")?;
        cancelled.push(client);
        expect_waits(&mut control, waits.0, waits.1)?;
    }
    holder.batch_execute("COMMIT")?;
    for last in sessions {
        commit(last)?;
    }
    expect_no_queue(&mut control)?;
    for mut client in cancelled {
        client.batch_execute(BUMP)?;
        client.batch_execute("COMMIT")?;
    }
    drop((holder, control));
    dog.finish(belong(&server))
}

/// The first leaves the queue before the deadlock detector looks at its wait: it must not become
/// the victim of a deadlock between others.
#[test]
fn the_first_leaves_before_its_deadlock_check() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let mut holder = checked(&server)?;
    let mut clients = vec![checked(&server)?, checked(&server)?, checked(&server)?];
    for client in &mut clients {
        client.batch_execute("SET deadlock_timeout = '100ms'")?;
    }
    holder.batch_execute(BUMP)?;
    let sessions = all_waiting(clients, &mut control)?;
    expect_waits(&mut control, 0, 3)?;
    expect_no_queue(&mut control)?;
    holder.batch_execute("COMMIT")?;
    commit_all(sessions, &mut control)?;
    drop((holder, control));
    dog.finish(belong(&server))
}

/// Beside a session that waits in PostgreSQL's way nobody queues: each of them would get the row as
/// often as the whole queue.
#[test]
fn beside_others() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let mut holder = checked(&server)?;
    let mut other = server.connect()?;
    other.batch_execute("BEGIN")?;
    other.batch_execute(CHECK)?;
    let clients = vec![other, checked(&server)?, checked(&server)?];
    holder.batch_execute(BUMP)?;
    let sessions = all_waiting(clients, &mut control)?;
    expect_waits(&mut control, 0, 3)?;
    expect_no_queue(&mut control)?;
    holder.batch_execute("COMMIT")?;
    commit_all(sessions, &mut control)?;
    drop((holder, control));
    dog.finish(belong(&server))
}

/// A transaction holds two rows, and each has its queue: they do not count as others.
#[test]
fn beside_another_queue() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let mut holder = checked(&server)?;
    let three = |check| {
        (0..3)
            .map(|_| begun_by(&server, check))
            .collect::<Result<Vec<_>>>()
    };
    let (clients, others) = (three(CHECK)?, three(CHECK_TWO)?);
    holder.batch_execute(CHECK_TWO)?;
    holder.batch_execute(BUMP)?;
    holder.batch_execute(TWO)?;
    let sessions = all_waiting(clients, &mut control)?;
    expect_waits(&mut control, 2, 1)?;
    let wait = |other| waiting(other, TWO, &mut control);
    let others = others.into_iter().map(wait).collect::<Result<Vec<_>>>()?;
    expect_waits(&mut control, 4, 2)?;
    holder.batch_execute("COMMIT")?;
    commit_all(sessions, &mut control)?;
    commit_all(others, &mut control)?;
    expect_no_queue(&mut control)?;
    drop((holder, control));
    dog.finish(belong(&server))
}

/// A stricter transaction fails when the row's holder has committed, and does not queue for that.
#[test]
fn repeatable_read() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let mut holder = checked(&server)?;
    let mut strict = grouped(&server)?;
    strict.batch_execute(
        "SET txn.hot_threshold = 100; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM hot",
    )?;
    strict.batch_execute(CHECK)?;
    let first = checked(&server)?;
    holder.batch_execute(BUMP)?;
    let first = waiting(first, BUMP, &mut control)?;
    let strict = waiting(strict, BUMP, &mut control)?;
    expect_waits(&mut control, 0, 2)?;
    holder.batch_execute("COMMIT")?;
    refused(strict, "40001")?.batch_execute("ROLLBACK")?;
    commit(first)?;
    drop((holder, control));
    dog.finish(belong(&server))
}

/// `lock_timeout` is for each holder of the row, as in PostgreSQL: with it nobody queues.
#[test]
fn with_lock_timeout() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let mut holder = checked(&server)?;
    let (mut first, mut second) = (checked(&server)?, checked(&server)?);
    holder.batch_execute(BUMP)?;
    first.batch_execute("SET lock_timeout = '10min'")?;
    let first = waiting(first, BUMP, &mut control)?;
    second.batch_execute("SET lock_timeout = '200ms'")?;
    let told = sqlstate(&second.batch_execute(BUMP));
    ensure!(told == "55P03", "told {told}");
    second.batch_execute("ROLLBACK")?;
    expect_waits(&mut control, 0, 1)?;
    expect_no_queue(&mut control)?;
    holder.batch_execute("COMMIT")?;
    commit(first)?;
    drop((holder, second, control));
    dog.finish(belong(&server))
}

/// Waits until one of the sessions has done its statement, and takes it.
fn finished(sessions: &mut Vec<Background<()>>, control: &mut Client) -> Result<Background<()>> {
    let mut at = None;
    until(control, "a session of the queue goes on", |_| {
        at = sessions.iter().position(Background::is_finished);
        Ok(at.is_some())
    })?;
    let at = at.context("a session")?;
    Ok(sessions.remove(at))
}
