//! The line before contended rows (`txn.geo_schedule = forecast` and `admission`).
use std::thread;

use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, sqlstate, wait_until};

use super::Cluster;
use super::forecast::{KNOWN, TOUCH, cluster, hold, learn, wait_until_waiting};

/// For so long, in seconds, the row has taken at its node. When turns stand still for four times as
/// long, more may have one.
const LONG: f64 = 2.5;

/// A cluster that knows that row 1 of node 0 is waited for: two at a time have a turn there.
fn contended() -> Result<Cluster> {
    let (cluster, client) = cluster()?;
    drop(learn(&cluster, client, LONG)?);
    let known = format!("SELECT bool_and(at_once = 2) {KNOWN}");
    wait_until(&mut cluster.session()?, &known)?;
    Ok(cluster)
}

/// A session that may have to stand in line.
fn session(cluster: &Cluster, schedule: &str) -> Result<Client> {
    let mut client = cluster.session()?;
    client.batch_execute(&format!(
        "SET txn.geo_schedule = {schedule}; SET txn.geo_lock_timeout = 0;
         SELECT FROM account WHERE id = 1"
    ))?;
    Ok(client)
}

/// Waits until so many are at work on that row, and so many stand in line before it.
fn wait_until_in_line(client: &mut Client, at_work: i64, in_line: i64) -> Result<()> {
    let all = format!("in_flight = {at_work} AND in_line = {in_line}");
    let known = format!("SELECT bool_and({all}) {KNOWN}");
    wait_until(client, &known).with_context(|| all)
}

/// Two transactions on a contended row are at its node. The others stand in line, and none fails.
#[test]
fn a_contended_row_is_waited_for_in_line() -> Result<()> {
    let cluster = contended()?;
    let mut control = cluster.session()?;
    let mut holder = hold(&cluster)?;
    let schedules = ["forecast", "admission"].into_iter().cycle().take(8);
    let clients = schedules.map(|schedule| session(&cluster, schedule));
    let clients: Vec<Client> = clients.collect::<Result<_>>()?;
    let all = clients
        .into_iter()
        .map(|client| Background::run(client, TOUCH));
    let all: Vec<Background> = all.collect::<Result<_>>()?;
    wait_until_in_line(&mut control, 2, 6)?;
    let in_line = "SELECT count(*) = 6 AND count(DISTINCT blocked_by) = 5
            AND bool_and(relation = 'account_0'::regclass AND key IS NULL
                AND since < clock_timestamp())
        FROM txn.waits WHERE reason = 'line'";
    wait_until(&mut control, in_line)?;
    wait_until_waiting(&cluster, 0, 2)?;
    holder.batch_execute("ROLLBACK")?;
    for one in all {
        one.end()?.1?;
    }
    wait_until_in_line(&mut control, 0, 0)?;
    let tries = format!("SELECT bool_and(tries = commits) {KNOWN}");
    wait_until(&mut control, &tries)
}

/// A session that is cancelled or terminated in line has left it, and so has one that has stood for
/// `lock_timeout`. When turns stand still those in line go on.
#[test]
fn the_line_is_left() -> Result<()> {
    let cluster = contended()?;
    let mut control = cluster.session()?;
    let new = || session(&cluster, "forecast");
    let (mut impatient, last) = (new()?, new()?);
    impatient.batch_execute("SET lock_timeout = '50ms'")?;
    let leaving = [new()?, new()?];
    let working = [new()?, new()?];
    let mut holder = hold(&cluster)?;
    let mut all = Vec::new();
    for (client, at_work) in working.into_iter().zip(1..) {
        all.push(Background::run(client, TOUCH)?);
        wait_until_in_line(&mut control, at_work, 0)?;
    }
    let told = impatient.batch_execute(TOUCH);
    ensure!(sqlstate(&told) == "55P03", "{told:?}");
    let error = told.err().context("an error")?;
    let detail = error.as_db_error().and_then(|error| error.detail());
    ensure!(
        detail.is_some_and(|detail| detail.contains("stood in line")),
        "{error:?}"
    );
    // The last message of a terminated session may be lost with its connection.
    let ends = [
        ("cancel", &["57014"][..]),
        ("terminate", &["57P01", "lost"]),
    ];
    for ((end, codes), client) in ends.into_iter().zip(leaving) {
        let one = Background::run(client, TOUCH)?;
        wait_until_in_line(&mut control, 2, 1)?;
        control.batch_execute(&format!("SELECT pg_{end}_backend({})", one.pid))?;
        wait_until_in_line(&mut control, 2, 0)?;
        let told = sqlstate(&one.end()?.1);
        ensure!(codes.contains(&&*told), "{told} after {end}");
    }
    all.push(Background::run(last, TOUCH)?);
    wait_until_in_line(&mut control, 3, 0)?;
    holder.batch_execute("ROLLBACK")?;
    for one in all {
        one.end()?.1?;
    }
    wait_until_in_line(&mut control, 0, 0)
}

/// A transaction stands in line only as long as nobody waits for it, and its snapshot is not too
/// old then. Others keep their turns.
#[test]
fn some_go_to_the_node_at_once() -> Result<()> {
    let cluster = contended()?;
    let mut control = cluster.session()?;
    control.batch_execute("CREATE TABLE local (id int)")?;
    let block = |begin: &str| -> Result<Client> {
        let mut client = session(&cluster, "forecast")?;
        client.batch_execute(begin)?;
        Ok(client)
    };
    let at_once = [
        block("BEGIN; INSERT INTO local VALUES (1)")?,
        block("BEGIN; UPDATE account SET balance = balance WHERE id = 1001")?,
        block("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM account WHERE id = 2")?,
    ];
    let in_turn = [
        block("BEGIN; SELECT FROM account WHERE id = 2")?,
        block("BEGIN ISOLATION LEVEL REPEATABLE READ")?,
        block("BEGIN")?,
    ];
    let mut holder = hold(&cluster)?;
    let mut all = Vec::new();
    for (client, at_work) in at_once.into_iter().zip(1..) {
        all.push(Background::run(client, TOUCH)?);
        wait_until_in_line(&mut control, at_work, 0)?;
    }
    for (client, (at_work, in_line)) in in_turn.into_iter().zip([(4, 0), (5, 0), (5, 1)]) {
        all.push(Background::run(client, TOUCH)?);
        wait_until_in_line(&mut control, at_work, in_line)?;
    }
    holder.batch_execute("ROLLBACK")?;
    // Those that wait at the node are served in any order.
    let end = |one: Background| -> Result<()> {
        let (mut client, told) = one.end()?;
        told?;
        Ok(client.batch_execute("ROLLBACK")?)
    };
    let ends: Vec<_> = all
        .into_iter()
        .map(|one| thread::spawn(move || end(one)))
        .collect();
    for one in ends {
        one.join().expect("no panic")?;
    }
    wait_until_in_line(&mut control, 0, 0)
}

/// What is rolled back to a savepoint gives its turn back.
#[test]
fn a_savepoint_gives_turns_back() -> Result<()> {
    let cluster = contended()?;
    let mut control = cluster.session()?;
    let mut client = session(&cluster, "forecast")?;
    let steps = [
        ("BEGIN; SAVEPOINT a; SAVEPOINT b", 0),
        (TOUCH, 1),
        ("RELEASE b", 1),
        ("SAVEPOINT c; ROLLBACK TO c", 1),
        ("ROLLBACK TO a", 0),
        (TOUCH, 1),
        ("SAVEPOINT d", 1),
        (TOUCH, 1),
        ("ROLLBACK TO d; RELEASE d", 1),
        ("ROLLBACK TO a", 0),
    ];
    let tries = format!("SELECT tries {KNOWN}");
    let before = int(&mut control, &tries)?;
    for (sql, at_work) in steps {
        client.batch_execute(sql).with_context(|| sql)?;
        let found = int(&mut control, &format!("SELECT in_flight {KNOWN}"))?;
        ensure!(found == at_work, "{found} at work after {sql}");
    }
    // Two turns are there for others, though the transaction has had three and goes on.
    let mut others = [
        session(&cluster, "forecast")?,
        session(&cluster, "forecast")?,
    ];
    for other in &mut others {
        other.batch_execute("SET lock_timeout = '1ms'; BEGIN; SAVEPOINT a")?;
        other.batch_execute(TOUCH)?;
        other.batch_execute("ROLLBACK TO a")?;
    }
    others[0].batch_execute(TOUCH)?;
    client.batch_execute("ROLLBACK")?;
    // Only the end of the transaction counts as one.
    ensure!(int(&mut control, &tries)? <= before + 1);
    Ok(())
}
