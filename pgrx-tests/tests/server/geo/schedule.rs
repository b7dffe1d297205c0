//! Parts of a statement that leave when the distances say (`txn.geo_schedule = latency`).
use std::time::Duration;

use anyhow::{Result, ensure};
use libc::{SIGCONT, SIGSTOP};
use pgserver::signal;
use postgres::Client;
use txn_server_tests::{Background, int, pid, read, sqlstate, until};

use super::Cluster;

/// Half of the round trip to node 1; node 0 is next door.
const FAR: Duration = Duration::from_millis(150);
/// What a part for node 0 is put off at least: what is measured may lag behind.
const AT_LEAST_MS: i64 = 200;

const MOVE: &str = "UPDATE account SET balance = balance + CASE WHEN id < 1000 THEN -1 ELSE 1 END
                    WHERE id IN (1, 1001)";

/// A cluster whose nodes note when a row was locked, and a session that knows the distances.
fn cluster() -> Result<(Cluster, Client)> {
    let cluster = Cluster::start(2)?;
    cluster.node(0).connect()?.batch_execute(
        "CREATE TABLE locked (at timestamptz);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO public.locked VALUES (clock_timestamp()); RETURN NEW; END $$;
         CREATE TRIGGER note BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION note()",
    )?;
    cluster.line(1).set_delay(FAR);
    let mut client = cluster.session()?;
    client.batch_execute("SET txn.geo_schedule = latency; SELECT count(*) FROM account")?;
    until(&mut client, "the round trip is known", |client| {
        client.batch_execute("SELECT count(*) FROM account_1")?;
        let known = "SELECT coalesce(max(round_trip_ms) > 250, false) FROM txn.geo_nodes";
        read(client, known)
    })?;
    Ok((cluster, client))
}

/// How long after the statement had begun the row at node 0 was locked, in milliseconds.
fn put_off(cluster: &Cluster, client: &mut Client, sql: &str) -> Result<i64> {
    let mut node = cluster.node(0).connect()?;
    node.batch_execute("TRUNCATE locked")?;
    let began = int(
        &mut node,
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    )?;
    client.batch_execute(sql)?;
    let locked = int(
        &mut node,
        "SELECT (extract(epoch FROM at) * 1000)::bigint FROM locked",
    )?;
    Ok(locked - began)
}

#[test]
fn a_near_node_starts_late() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    let late = put_off(&cluster, &mut client, MOVE)?;
    ensure!(late >= AT_LEAST_MS, "after {late} ms");
    // So in a block, where nothing prepares with the statement.
    let block = format!("BEGIN; {MOVE}; SELECT 1; COMMIT");
    let late = put_off(&cluster, &mut client, &block)?;
    ensure!(late >= AT_LEAST_MS, "after {late} ms in a block");
    // And what was put off until COMMIT.
    let block = "BEGIN; SET LOCAL txn.geo_defer = on; \
                 UPDATE account SET balance = balance - 1 WHERE id = 1; \
                 UPDATE account SET balance = balance + 1 WHERE id = 1001; COMMIT";
    let late = put_off(&cluster, &mut client, block)?;
    ensure!(late >= AT_LEAST_MS, "after {late} ms at COMMIT");
    ensure!(cluster.balance_sum_at_nodes()? == 2 * super::NODE_SUM);
    Ok(())
}

/// Without a schedule, or with none that may last, a part goes though the other node never answers.
#[test]
fn without_a_schedule_all_leave_at_once() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    for (number, setting) in ["geo_schedule = off", "geo_max_delay = 0"]
        .iter()
        .enumerate()
    {
        client.batch_execute(&format!("RESET ALL; SET txn.{setting}"))?;
        let id = pid(&mut client)?;
        cluster.line(1).cut();
        let update = Background::call(client, id, |client| client.batch_execute(MOVE));
        cluster.wait_until_prepared(0)?;
        cluster.line(1).heal();
        let (back, told) = update.end()?;
        told?;
        client = back;
        let moved = int(
            &mut cluster.node(0).connect()?,
            "SELECT 101 - balance FROM account WHERE id = 1",
        )?;
        ensure!(moved == number as i64 + 1);
    }
    Ok(())
}

/// A node that has failed meanwhile: the part that was put off is never sent.
#[test]
fn what_has_failed_is_not_followed() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    // The error comes back before the other part is due, as that node is nearer than it was.
    client.batch_execute("SET txn.geo_prepare = at_commit; SELECT 1")?;
    // The resolver must not learn of it.
    let resolver = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'txn resolver'";
    let resolver: i32 = read(&mut client, resolver)?;
    signal(resolver, SIGSTOP)?;
    cluster.line(1).set_delay(Duration::ZERO);
    cluster.node(1).connect()?.batch_execute(
        "ALTER TABLE account ADD CONSTRAINT low CHECK (balance BETWEEN 101 AND 101) NOT VALID",
    )?;
    cluster.line(0).reset_counts();
    let told = sqlstate(&client.batch_execute(MOVE));
    ensure!(told == "23514", "{told}");
    let locked = int(
        &mut cluster.node(0).connect()?,
        "SELECT count(*) FROM locked",
    )?;
    ensure!(locked == 0, "the part for node 0 was sent");
    signal(resolver, SIGCONT)?;
    ensure!(cluster.balance_sum_at_nodes()? == 2 * super::NODE_SUM);
    Ok(())
}

/// A cancel while a part is put off.
#[test]
fn a_cancel_is_heard() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    let id = pid(&mut client)?;
    cluster.line(1).cut();
    client.batch_execute("SET txn.geo_max_delay = '1h'")?;
    let update = Background::call(client, id, |client| client.batch_execute(MOVE));
    let mut control = cluster.session()?;
    let runs =
        format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = {id} AND state = 'active'");
    txn_server_tests::wait_until(&mut control, &runs)?;
    control.query("SELECT pg_cancel_backend($1)", &[&id])?;
    let (mut client, told) = update.end()?;
    ensure!(sqlstate(&told) == "57014", "{told:?}");
    cluster.line(1).heal();
    cluster.wait_until_resolved()?;
    client.batch_execute(MOVE)?;
    ensure!(cluster.balance_sum_at_nodes()? == 2 * super::NODE_SUM);
    Ok(())
}
