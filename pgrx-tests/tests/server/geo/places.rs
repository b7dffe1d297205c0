//! What looks for deadlocks see: one server by two names, processes whose connections are lost, and
//! long queues.
use anyhow::{Context, Result, ensure};
use geo::{HERE, Id, Look, Name, Own, Waits};
use pgserver::Line;
use postgres::SimpleQueryMessage::Row;
use txn_server_tests::{Background, int, start_stock, wait_until};

use super::Cluster;
use super::deadlocks::{cluster, deadlocks, expect, lock, wait_for_looks, waiting};

/// Another server of the coordinator for node 0, with the table `again`.
fn name_again(cluster: &Cluster, line: &Line) -> Result<()> {
    cluster.session()?.batch_execute(&format!(
        "CREATE SERVER again FOREIGN DATA WRAPPER txn_fdw
             OPTIONS (host '{}', port '{}', dbname 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER again OPTIONS (user 'postgres');
         CREATE FOREIGN TABLE again (id int, balance bigint)
             SERVER again OPTIONS (table_name 'account')",
        line.host().display(),
        line.port()
    ))?;
    int(
        &mut cluster.session()?,
        "SELECT count(*) FROM account, again",
    )?;
    cluster.wait_for_passes(3)
}

fn lock_again(id: i64) -> String {
    format!("UPDATE again SET balance = balance WHERE id = {id}")
}

/// A cycle within one server is that server's to end, however many names it has.
#[test]
fn a_cycle_within_one_server_that_has_two_names() -> Result<()> {
    let cluster = cluster(1)?;
    name_again(&cluster, cluster.line(0))?;
    let [mut first, mut second] = [cluster.session()?, cluster.session()?];
    first.batch_execute(&format!("BEGIN; {}", lock(1)))?;
    second.batch_execute(&format!("BEGIN; {}", lock(2)))?;
    let first = waiting(&cluster, first, &lock(2))?;
    let second = waiting(&cluster, second, &lock(1))?;
    wait_for_looks(&cluster, 4)?;
    ensure!(!first.is_finished() && !second.is_finished());
    ensure!(deadlocks(&cluster)? == 0);
    let cancel = format!("SELECT pg_cancel_backend({})", second.pid);
    cluster.session()?.batch_execute(&cancel)?;
    expect(&second.end()?.1, "57014")?;
    expect(&first.end()?.1, "00000")
}

/// Nobody else could end this one.
#[test]
fn a_transaction_that_waits_for_itself_by_two_names() -> Result<()> {
    let cluster = cluster(1)?;
    name_again(&cluster, cluster.line(0))?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}", lock(1)))?;
    expect(&client.batch_execute(&lock_again(1)), "40P01")?;
    ensure!(deadlocks(&cluster)? == 1);
    Ok(())
}

/// The connection of a statement is lost, and the statement is sent once more. What the old process
/// has locked the new one waits for, until the node notices.
#[test]
fn who_waits_for_its_own_lost_process_is_left_alone() -> Result<()> {
    let cluster = cluster(1)?;
    let line = Line::to(cluster.node(0))?;
    name_again(&cluster, &line)?;
    let mut client = cluster.session()?;
    client.batch_execute(&lock_again(2))?;
    let mut node = cluster.node(0).connect()?;
    let mut local = cluster.node(0).connect()?;
    local.batch_execute(&format!("BEGIN; {}", lock(1)))?;
    let waiters = |count: i64| {
        format!("SELECT count(DISTINCT pid) = {count} FROM pg_locks WHERE NOT granted")
    };
    client.batch_execute("BEGIN")?;
    let waiting = Background::run(client, &lock_again(1))?;
    wait_until(&mut node, &waiters(1))?;
    line.break_near();
    wait_until(&mut node, &waiters(2))?;
    // After a COMMIT, both would run for the new version, and the one that came later might win.
    local.batch_execute("ROLLBACK")?;
    wait_until(&mut node, &waiters(1))?;
    wait_for_looks(&cluster, 4)?;
    ensure!(!waiting.is_finished(), "{:?}", waiting.end()?.1);
    line.let_go();
    let (mut client, told) = waiting.end()?;
    expect(&told, "00000")?;
    client.batch_execute("COMMIT")?;
    ensure!(deadlocks(&cluster)? == 0);
    Ok(())
}

/// Each of 64 in a queue waits for all before it. The query gives a row for each, and its name.
#[test]
fn a_queue_takes_as_many_rows_as_it_is_long() -> Result<()> {
    const QUEUE: usize = 64;
    let server = start_stock(&[("deadlock_timeout", "1h")])?;
    let mut control = server.connect()?;
    control.batch_execute("CREATE TABLE row (id int); INSERT INTO row VALUES (1)")?;
    let update = "UPDATE row SET id = id";
    let session = |number: usize| {
        let id = Id {
            coordinator: 5,
            incarnation: 1,
            sequence: number as u64 + 1,
        };
        let name = Name { id, begun: 77 };
        let mut client = server.connect()?;
        client.batch_execute(&format!("SET application_name = '{name}'; BEGIN"))?;
        anyhow::Ok((client, id))
    };
    let (mut holder, _) = session(QUEUE)?;
    holder.batch_execute(update)?;
    let mut queue = Vec::new();
    for number in 0..QUEUE {
        let (client, _) = session(number)?;
        let waiting = Background::run(client, update)?;
        waiting.wait_until_blocked(&mut control)?;
        queue.push(waiting);
    }
    let rows = control.simple_query(&geo::waits_at_node())?;
    let rows = rows.iter().filter_map(|row| match row {
        Row(row) => Some(
            (0..row.len())
                .map(|n| row.get(n).map(str::to_owned))
                .collect(),
        ),
        _ => None,
    });
    let rows: Vec<Vec<Option<String>>> = rows.collect();
    ensure!(rows.len() <= 2 * QUEUE + 2, "{} rows", rows.len());
    let waits = Waits::of_rows(rows);
    ensure!(waits.waits.len() == QUEUE && waits.names.len() == QUEUE + 1);
    ensure!(waits.left_out == 0);
    let mut look = Look::default();
    look.add(HERE, 0, &waits, &Own::new(None, 0, &[]));
    // The first one waits for the holder, and each of the others for one before it at least.
    ensure!(look.edges.len() >= QUEUE && look.begun.len() == QUEUE + 1);
    holder.batch_execute("ROLLBACK")?;
    for waiting in queue {
        let (mut client, told) = waiting.end()?;
        told.context("an update in the queue")?;
        client.batch_execute("ROLLBACK")?;
    }
    Ok(())
}
