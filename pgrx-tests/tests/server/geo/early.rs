//! Nodes that prepare with the last statement of a transaction (`txn.geo_prepare = early`).
use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, pid, sqlstate};

use super::trips::{trips, warm};
use super::{Cluster, NODE_SUM};
use txn_server_tests::geo::POINTS;

/// A statement that moves money from one node to the other.
const MOVE: &str = "UPDATE account SET balance = balance + CASE WHEN id < 1000 THEN -1 ELSE 1 END
                    WHERE id IN (1, 1001)";

/// How often `MOVE` has been done, at both nodes alike.
fn moved(cluster: &Cluster) -> Result<i64> {
    cluster.session()?.batch_execute("SELECT txn.geo_wake()")?;
    cluster.wait_until_resolved()?;
    let sum = cluster.balance_sum_at_nodes()?;
    ensure!(sum == 2 * NODE_SUM, "the balances are {sum} in all");
    let at = |node: usize, id: i64| {
        let sql = format!("SELECT balance FROM account WHERE id = {id}");
        int(&mut cluster.node(node).connect()?, &sql)
    };
    let (here, there) = (101 - at(0, 1)?, at(1, 1001)? - 101);
    ensure!(here == there, "{here} at node 0, {there} at node 1");
    Ok(here)
}

fn expect_trips(
    cluster: &Cluster,
    client: &mut Client,
    sql: &str,
    expected: [u64; 2],
) -> Result<()> {
    let found = trips(cluster, client, sql)?;
    ensure!(
        found == expected,
        "{found:?} trips instead of {expected:?}: {sql}"
    );
    Ok(())
}

#[test]
fn an_update_at_two_nodes_is_one_trip_before_the_decision() -> Result<()> {
    let (cluster, mut client) = warm()?;
    // The statement with PREPARE; COMMIT PREPARED.
    expect_trips(&cluster, &mut client, MOVE, [2, 2])?;
    client.batch_execute("SET txn.geo_prepare = at_commit")?;
    expect_trips(&cluster, &mut client, MOVE, [3, 3])?;
    client.batch_execute("RESET txn.geo_prepare")?;
    ensure!(moved(&cluster)? == 2);
    Ok(())
}

const FIRST: &str = "UPDATE account SET balance = balance - 1 WHERE id = 1";
const SECOND: &str = "UPDATE account SET balance = balance + 1 WHERE id = 1001";

#[test]
fn the_statement_before_commit_is_the_last_one() -> Result<()> {
    let (cluster, mut client) = warm()?;
    // Node 0 prepares while node 1 runs the last statement.
    let sql = format!("BEGIN; {FIRST}; {SECOND}; COMMIT");
    expect_trips(&cluster, &mut client, &sql, [3, 2])?;
    client.batch_execute(&format!("BEGIN; {FIRST}; SET LOCAL txn.geo_last = on"))?;
    expect_trips(&cluster, &mut client, SECOND, [1, 1])?;
    expect_trips(&cluster, &mut client, "COMMIT", [1, 1])?;
    // With prepared statements and parameters, and a Sync behind them.
    let statement =
        client.prepare("UPDATE account SET balance = balance + $1 WHERE id IN (5, 1005)")?;
    client.execute(&statement, &[&0_i64])?;
    ensure!(moved(&cluster)? == 2);
    Ok(())
}

/// What has effects beside the nodes', or may use them again, waits for COMMIT.
#[test]
fn what_may_go_on_is_not_the_last() -> Result<()> {
    let (cluster, mut client) = warm()?;
    client.batch_execute(
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM count(*) FROM account; RETURN NULL; END $$",
    )?;
    expect_trips(
        &cluster,
        &mut client,
        &format!("{MOVE} RETURNING id"),
        [3, 3],
    )?;
    client.batch_execute(
        "CREATE TRIGGER look AFTER UPDATE ON account FOR EACH STATEMENT EXECUTE FUNCTION look()",
    )?;
    client.batch_execute(MOVE)?;
    client.batch_execute("DROP TRIGGER look ON account")?;
    // In a function nothing is the last.
    client.batch_execute(&format!("DO $$ BEGIN {MOVE}; {MOVE}; END $$"))?;
    client.batch_execute(&format!(
        "BEGIN; {MOVE}; SAVEPOINT a; {MOVE}; RELEASE a; COMMIT"
    ))?;
    ensure!(moved(&cluster)? == 6);
    Ok(())
}

/// Triggers that are left to the commit use nodes: what comes before them is not the last.
#[test]
fn deferred_triggers_that_use_nodes() -> Result<()> {
    let (cluster, mut client) = warm()?;
    client.batch_execute(&format!(
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN {MOVE}; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER look AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION look();
         CREATE TABLE other (number bigint);
         CREATE TABLE account_home PARTITION OF account FOR VALUES FROM (5000) TO (6000)
             PARTITION BY RANGE (id);
         CREATE TABLE account_here PARTITION OF account_home FOR VALUES FROM (5000) TO (5500);
         INSERT INTO account VALUES (5001);
         CREATE CONSTRAINT TRIGGER look AFTER UPDATE ON account_here
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()"
    ))?;
    let ways = [
        format!("BEGIN; INSERT INTO ledger VALUES (1); {MOVE}; COMMIT"),
        format!(
            "BEGIN; INSERT INTO ledger VALUES (2); SET LOCAL txn.geo_last = on; {MOVE}; COMMIT"
        ),
        format!("INSERT INTO ledger VALUES (3); {MOVE}"),
        format!("BEGIN; COPY ledger FROM PROGRAM 'echo 4'; {MOVE}; COMMIT"),
        format!("DO $$ BEGIN INSERT INTO ledger VALUES (5); END $$; {MOVE}"),
        format!("WITH a AS (INSERT INTO ledger VALUES (6)) {MOVE}"),
        "UPDATE account SET balance = balance + CASE WHEN id < 1000 THEN -1 ELSE 1 END
         WHERE id IN (1, 1001, 5001)"
            .to_owned(),
    ];
    let mut expected = 0;
    for sql in ways {
        client.batch_execute(&sql).with_context(|| sql.clone())?;
        expected += 2;
        ensure!(moved(&cluster)? == expected, "{sql}");
    }
    // So is a statement that writes at a node beside those that nodes do by themselves.
    client.batch_execute(&format!(
        "WITH a AS (INSERT INTO trace_0 VALUES (7000)) {MOVE}"
    ))?;
    client.batch_execute(&format!(
        "WITH a AS (INSERT INTO account VALUES (77)) {MOVE}"
    ))?;
    // Without such triggers it is.
    client.batch_execute("INSERT INTO other VALUES (1)")?;
    let sql = format!("BEGIN; INSERT INTO other VALUES (2); {MOVE}; COMMIT");
    expect_trips(&cluster, &mut client, &sql, [2, 2])?;
    ensure!(moved(&cluster)? == expected + 3);
    Ok(())
}

/// A statement after the one that was said to be the last is refused, and nothing is left.
#[test]
fn a_false_last_is_refused() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    for next in [FIRST, SECOND, "SELECT count(*) FROM account", MOVE] {
        client.batch_execute("BEGIN; SET LOCAL txn.geo_last = on")?;
        client.batch_execute(MOVE)?;
        let told = sqlstate(&client.batch_execute(next));
        ensure!(told == "55000", "{told}: {next}");
        client.batch_execute("ROLLBACK")?;
    }
    // What is done here only may follow.
    client.batch_execute("BEGIN; SET LOCAL txn.geo_last = on")?;
    client.batch_execute(MOVE)?;
    client.batch_execute("INSERT INTO ledger VALUES (1); COMMIT")?;
    client.batch_execute("BEGIN; SET LOCAL txn.geo_last = on")?;
    client.batch_execute(MOVE)?;
    client.batch_execute("ROLLBACK")?;
    ensure!(moved(&cluster)? == 1);
    ensure!(int(&mut client, "SELECT count(*) FROM ledger")? == 1);
    Ok(())
}

/// One node refuses: the other one, which has prepared, rolls back.
#[test]
fn an_error_at_one_node_takes_all_back() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    for (node, undo) in [(0, "DROP"), (1, "DROP")] {
        let mut at_node = cluster.node(node).connect()?;
        at_node.batch_execute(
            "ALTER TABLE account ADD CONSTRAINT low CHECK (balance BETWEEN 101 AND 101) NOT VALID",
        )?;
        let told = sqlstate(&client.batch_execute(MOVE));
        ensure!(told == "23514", "{told}");
        at_node.batch_execute(&format!("ALTER TABLE account {undo} CONSTRAINT low"))?;
        ensure!(moved(&cluster)? == 0);
    }
    let line = format!(
        "BEGIN; {FIRST}; UPDATE account SET balance = 1 / (id - 1001) WHERE id = 1001; COMMIT"
    );
    let told = sqlstate(&client.batch_execute(&line));
    ensure!(told == "22012", "{told}");
    client.batch_execute("ROLLBACK")?;
    // Rows that are not there are no reason.
    client.batch_execute("UPDATE account SET balance = balance WHERE id IN (1, 1999)")?;
    ensure!(moved(&cluster)? == 0);
    Ok(())
}

/// A cancel while a node works on what it would prepare.
#[test]
fn a_cancel_takes_all_back() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut holder = cluster.node(1).connect()?;
    holder.batch_execute("BEGIN; UPDATE account SET balance = balance WHERE id = 1001")?;
    let mut client = cluster.session()?;
    client.batch_execute("SET txn.geo_lock_timeout = 0; SELECT count(*) FROM account")?;
    let pid = pid(&mut client)?;
    let update = Background::call(client, pid, |client| client.batch_execute(MOVE));
    cluster.wait_until_prepared(0)?;
    let mut control = cluster.session()?;
    control.query("SELECT pg_cancel_backend($1)", &[&pid])?;
    let (mut client, told) = update.end()?;
    ensure!(sqlstate(&told) == "57014", "{told:?}");
    holder.batch_execute("ROLLBACK")?;
    ensure!(moved(&cluster)? == 0);
    client.batch_execute(MOVE)?;
    ensure!(moved(&cluster)? == 1);
    Ok(())
}

/// Voting begins before the first node is reached, and that fails: the next transaction has nothing
/// of it, and commits in one phase.
#[test]
fn a_vote_that_fails_before_a_node_is_reached() -> Result<()> {
    // The part for node 0 leaves first.
    let settings = [("txn.geo_schedule", "off")];
    let mut cluster = Cluster::with(2, &settings, &[("max_prepared_transactions", "0")])?;
    int(&mut cluster.session()?, "SELECT count(*) FROM account")?;
    cluster.kill_node(0, false)?;
    let mut client = cluster.session()?;
    for _ in 0..2 {
        let told = sqlstate(&client.batch_execute(MOVE));
        ensure!(told == "08001", "{told}");
        client.batch_execute(SECOND)?;
    }
    ensure!(cluster.asked_to_prepare(1)? == 0, "it was in two phases");
    cluster.start_node(0)?;
    client.batch_execute(FIRST)?;
    ensure!(cluster.balance_sum_at_nodes()? == 2 * NODE_SUM + 1);
    Ok(())
}

/// kill -9 of the coordinator and of each node at each point of such a COMMIT.
#[test]
fn a_crash_at_each_point() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut expected = 0;
    for (point, decided) in POINTS {
        for killed in [None, Some(0), Some(1)] {
            let mut control = cluster.hold(point)?;
            let mut client = cluster.session()?;
            client.batch_execute(&format!(
                "SET txn.stop_at = '{point}'; SELECT count(*) FROM account"
            ))?;
            let pid = pid(&mut client)?;
            let update = Background::call(client, pid, |client| client.batch_execute(MOVE));
            cluster.wait_until_held(&mut control, pid).context(point)?;
            match killed {
                None => cluster.kill_coordinator()?,
                Some(node) => cluster.kill_node(node, true)?,
            }
            drop(control);
            let (_, told) = update.end()?;
            // All have voted: a node that dies then comes back with what it has prepared.
            let commits = decided || killed.is_some();
            ensure!(
                told.is_ok() || killed.is_none(),
                "{point} {killed:?}: {told:?}"
            );
            expected += i64::from(commits);
            let found = moved(&cluster).with_context(|| format!("{point} {killed:?}"))?;
            ensure!(
                found == expected,
                "{point} {killed:?}: {found} instead of {expected}"
            );
        }
    }
    Ok(())
}
