//! Forecasts of what rows take at their nodes, and late admission (`txn.geo_schedule = forecast`
//! and `admission`).
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, pid, sqlstate, start, text, until, wait_until};

use super::Cluster;

/// Half of the round trip to node 1; node 0 is next door.
const FAR: Duration = Duration::from_millis(150);

const MOVE: &str = "UPDATE account SET balance = balance + CASE WHEN id < 1000 THEN -1 ELSE 1 END
                    WHERE id IN (1, 1001)";
pub const TOUCH: &str = "UPDATE account SET balance = balance WHERE id = 1";

/// What is known of row 1 of node 0.
pub const KNOWN: &str =
    "FROM txn.geo_records WHERE node = 'node0' AND relation = 'account_0'::regclass";

/// A cluster of two nodes, and a session there that forecasts and knows the distances.
pub fn cluster() -> Result<(Cluster, Client)> {
    let cluster = Cluster::start(2)?;
    let client = forecasting(&cluster)?;
    Ok((cluster, client))
}

/// A session that forecasts, when the distances are known.
fn forecasting(cluster: &Cluster) -> Result<Client> {
    let mut client = cluster.session()?;
    client.batch_execute("SET txn.geo_schedule = forecast; SET txn.geo_lock_timeout = 0")?;
    until(&mut client, "the round trips are known", |client| {
        client.batch_execute("SELECT count(*) FROM account")?;
        Ok(int(client, "SELECT count(round_trip_ms) FROM txn.geo_nodes")? == 2)
    })?;
    Ok(client)
}

/// Locks row 1 of node 0, in a session of the node's own.
pub fn hold(cluster: &Cluster) -> Result<Client> {
    let mut holder = cluster.node(0).connect()?;
    holder.batch_execute("BEGIN; SELECT FROM account WHERE id = 1 FOR UPDATE")?;
    Ok(holder)
}

/// Waits until so many sessions of the node wait for a lock.
pub fn wait_until_waiting(cluster: &Cluster, node: usize, count: i64) -> Result<()> {
    let waiting =
        format!("SELECT count(*) = {count} FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
    wait_until(&mut cluster.node(node).connect()?, &waiting)
}

/// Has the coordinator learn that row 1 of node 0 takes at least so long there, in seconds.
pub fn learn(cluster: &Cluster, client: Client, seconds: f64) -> Result<Client> {
    let mut holder = hold(cluster)?;
    let update = Background::run(client, TOUCH)?;
    wait_until_waiting(cluster, 0, 1)?;
    let at_work = format!("SELECT bool_and(in_flight = 1) {KNOWN}");
    wait_until(&mut cluster.session()?, &at_work)?;
    holder.batch_execute(&format!("SELECT pg_sleep({seconds}); ROLLBACK"))?;
    let (mut client, told) = update.end()?;
    told?;
    let known = format!("SELECT bool_and(local_ms > {seconds} * 600 AND in_flight = 0) {KNOWN}");
    wait_until(&mut client, &known)?;
    Ok(client)
}

/// Lets so many transactions on row 1 fail. They do not tell how long the row takes.
fn fail(client: &mut Client, times: i32) -> Result<()> {
    for _ in 0..times {
        let told = client.batch_execute("UPDATE account SET balance = NULL WHERE id = 1");
        ensure!(sqlstate(&told) == "23502", "{told:?}");
    }
    Ok(())
}

/// Whether `sql` locks its row at node 0 before that at node 1.
fn is_near_first(cluster: &Cluster, client: &mut Client, sql: &str) -> Result<bool> {
    let mut locked = Vec::new();
    for node in 0..2 {
        cluster
            .node(node)
            .connect()?
            .batch_execute("TRUNCATE locked")?;
    }
    client.batch_execute(sql)?;
    cluster.wait_until_resolved()?;
    for node in 0..2 {
        let at = "SELECT (extract(epoch FROM max(at)) * 1e6)::bigint FROM locked";
        locked.push(int(&mut cluster.node(node).connect()?, at)?);
    }
    Ok(locked[0] < locked[1])
}

/// A row that is waited for at the near node is as far away as the far node.
#[test]
fn what_a_row_has_taken_is_forecast() -> Result<()> {
    let (cluster, client) = cluster()?;
    for node in 0..2 {
        cluster.node(node).connect()?.batch_execute(
            "CREATE TABLE locked (at timestamptz);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO public.locked VALUES (clock_timestamp()); RETURN NEW; END $$;
             CREATE TRIGGER note BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION note()",
        )?;
    }
    cluster.line(1).set_delay(FAR);
    let mut client = client;
    until(&mut client, "the far node is far", |client| {
        client.batch_execute("SELECT count(*) FROM account_1")?;
        let far = "SELECT count(*) FROM txn.geo_nodes WHERE round_trip_ms > 250";
        Ok(int(client, far)? == 1)
    })?;
    let mut client = learn(&cluster, client, 1.5)?;
    client.batch_execute("SET txn.geo_schedule = latency")?;
    ensure!(!is_near_first(&cluster, &mut client, MOVE)?, "by latency");
    client.batch_execute("SET txn.geo_schedule = forecast")?;
    ensure!(is_near_first(&cluster, &mut client, MOVE)?, "by forecast");
    // A list of keys names a row of each partition.
    let rows =
        "SELECT string_agg(relation::text, ' ' ORDER BY relation::text) FROM txn.geo_records";
    ensure!(
        text(&mut client, rows)? == "account_0 account_1",
        "{}",
        text(&mut client, rows)?
    );
    // So it is for writes that travel with COMMIT.
    let mut client = learn(&cluster, client, 1.5)?;
    client.batch_execute("SET txn.geo_defer = on")?;
    let block = "BEGIN; UPDATE account SET balance = balance - 1 WHERE id = 1;
                 UPDATE account SET balance = balance + 1 WHERE id = 1001; SELECT 1; COMMIT";
    ensure!(is_near_first(&cluster, &mut client, block)?, "at COMMIT");
    ensure!(cluster.balance_sum_at_nodes()? == 2 * super::NODE_SUM);
    Ok(())
}

/// The row is the same whoever names it.
#[test]
fn a_record_is_what_its_key_names() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    client.batch_execute("SELECT set_config('txn.geo_schedule', 'latency', false)")?;
    client.batch_execute(TOUCH)?;
    let count = "SELECT count(*) FROM txn.geo_records";
    ensure!(
        int(&mut client, count)? == 0,
        "without forecasts nothing is noted"
    );
    client.batch_execute("SET txn.geo_schedule = forecast")?;
    client.batch_execute(
        "UPDATE account SET balance = balance WHERE balance = 100;
         UPDATE account SET balance = balance WHERE id < 3;
         UPDATE trace_0 SET number = number WHERE number = 1",
    )?;
    ensure!(int(&mut client, count)? == 0, "no key names these");
    for locking in [
        "",
        "FOR SHARE",
        "FOR UPDATE NOWAIT",
        "FOR UPDATE SKIP LOCKED",
    ] {
        client.batch_execute(&format!("SELECT FROM account WHERE id = 1 {locking}"))?;
    }
    ensure!(int(&mut client, count)? == 0, "these keep nobody waiting");
    let by_parameter = "UPDATE account SET balance = balance WHERE id = $1";
    for id in [600, 600, 600] {
        client.execute(by_parameter, &[&id])?;
    }
    for sql in [
        "INSERT INTO account VALUES (600, 1)",
        "UPDATE account SET balance = balance WHERE id = 600",
        "UPDATE account SET balance = balance WHERE 600 = id AND balance > 0",
        "UPDATE account SET balance = balance WHERE id = 600::bigint",
        "UPDATE account SET balance = balance WHERE id IN (600, NULL, 600)",
        "SELECT FROM account WHERE id = 600 FOR UPDATE",
        "SELECT FROM account WHERE id IN (600, 1600) FOR NO KEY UPDATE",
        "DELETE FROM account WHERE id = 600",
    ] {
        client.batch_execute(sql)?;
    }
    let known = |client: &mut Client| {
        let all = "SELECT string_agg(format('%s %s %s %s %s', node, relation, tries, commits, \
                   in_flight), ', ' ORDER BY node) FROM txn.geo_records";
        text(client, all)
    };
    ensure!(
        known(&mut client)? == "node0 account_0 11 11 0, node1 account_1 1 1 0",
        "{}",
        known(&mut client)?
    );
    a_key_may_have_several_columns(&cluster, &mut client)
}

fn a_key_may_have_several_columns(cluster: &Cluster, client: &mut Client) -> Result<()> {
    cluster.node(0).connect()?.batch_execute(
        "CREATE SCHEMA other; CREATE TABLE other.pair (a int, b text, PRIMARY KEY (a, b))",
    )?;
    client.batch_execute(
        "CREATE FOREIGN TABLE pair (a int, b text) SERVER node0
             OPTIONS (schema_name 'other', key 'b, a');
         CREATE FOREIGN TABLE again (a int, b text) SERVER node0
             OPTIONS (schema_name 'other', table_name 'pair', key 'b,a')",
    )?;
    for sql in [
        "DELETE FROM pair WHERE a = 1",
        "INSERT INTO pair VALUES (1, 'x')",
        "DELETE FROM pair WHERE b = 'x' AND a = 1",
        "INSERT INTO pair VALUES (1, 'x')",
        "DELETE FROM again WHERE a = 1 AND b = 'x'",
        "DELETE FROM pair WHERE a = 1 AND b IN ('x', 'y')",
    ] {
        client.batch_execute(sql)?;
    }
    let pairs = "SELECT string_agg(format('%s %s', relation, tries), ', ' ORDER BY tries)
                 FROM txn.geo_records WHERE relation NOT IN ('account_0'::regclass, 'account_1'::regclass)";
    let known = text(client, pairs)?;
    ensure!(known == "pair 1, pair 4", "{known}");
    Ok(())
}

/// A list of keys is not compared with a partition's bounds where that runs a user's function. The
/// function may fail for a key that no row has.
#[test]
fn bounds_that_run_code_of_users_are_left_alone() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    let mut node = cluster.node(0).connect()?;
    node.batch_execute("CREATE TABLE halves (a int PRIMARY KEY, n int)")?;
    client.batch_execute(
        "CREATE FUNCTION half(a int) RETURNS int IMMUTABLE LANGUAGE plpgsql
             AS $$ BEGIN RETURN a % 2 + 0 / (a - 13); END $$;
         CREATE TABLE halves (a int, n int) PARTITION BY LIST (half(a));
         CREATE FOREIGN TABLE halves_0 PARTITION OF halves FOR VALUES IN (0) SERVER node0
             OPTIONS (table_name 'halves', key 'a');
         INSERT INTO halves VALUES (2, 0);
         UPDATE halves SET n = n + 1 WHERE a IN (2, 13)",
    )?;
    let changed = int(&mut node, "SELECT n FROM halves")?;
    ensure!(changed == 1, "{changed}");
    let noted = "SELECT count(*) FROM txn.geo_records WHERE relation = 'halves_0'::regclass";
    let noted = int(&mut client, noted)?;
    ensure!(noted == 2, "{noted} records");
    Ok(())
}

/// The ends of transactions are counted, whichever way they end.
#[test]
fn ends_are_counted() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    let known = |client: &mut Client| {
        let sql = "SELECT string_agg(format('%s %s %s', in_flight, commits, tries), ', ' \
                   ORDER BY relation::text) FROM txn.geo_records";
        text(client, sql)
    };
    let steps = [
        // In two phases, with the statement and without.
        (MOVE, "0 1 1, 0 1 1"),
        ("SET txn.geo_prepare = at_commit", "0 1 1, 0 1 1"),
        (MOVE, "0 2 2, 0 2 2"),
        // In one phase.
        (TOUCH, "0 3 3, 0 2 2"),
        ("BEGIN", "0 3 3, 0 2 2"),
        (MOVE, "1 3 3, 1 2 2"),
        ("SAVEPOINT a", "1 3 3, 1 2 2"),
        (TOUCH, "1 3 3, 1 2 2"),
        ("ROLLBACK TO a", "1 3 3, 1 2 2"),
        ("ROLLBACK", "0 3 4, 0 2 3"),
        ("SET txn.geo_defer = on", "0 3 4, 0 2 3"),
        ("BEGIN", "0 3 4, 0 2 3"),
        (TOUCH, "0 3 4, 0 2 3"),
        // It takes along what was put off.
        (
            "UPDATE account SET balance = balance WHERE id < 2",
            "1 3 4, 0 2 3",
        ),
        ("COMMIT", "0 4 5, 0 2 3"),
    ];
    for (sql, expected) in steps {
        client.batch_execute(sql).with_context(|| sql)?;
        let found = known(&mut client)?;
        ensure!(found == expected, "{found} instead of {expected}: {sql}");
    }
    // A session that is terminated.
    client.batch_execute(&format!(
        "BEGIN; UPDATE account SET balance = 0 WHERE id = 1; {MOVE}"
    ))?;
    let mut control = cluster.session()?;
    ensure!(
        known(&mut control)? == "1 4 5, 1 2 3",
        "{}",
        known(&mut control)?
    );
    control.query("SELECT pg_terminate_backend($1)", &[&pid(&mut client)?])?;
    until(&mut control, "the session is gone", |control| {
        Ok(known(control)? == "0 4 6, 0 2 4")
    })?;
    // Only superusers see it.
    control.batch_execute("CREATE ROLE other; SET ROLE other")?;
    let told = control.batch_execute("SELECT FROM txn.geo_records");
    ensure!(sqlstate(&told) == "42501", "{told:?}");
    let told = control.batch_execute("SELECT FROM txn.geo_records_raw()");
    ensure!(sqlstate(&told) == "42501", "{told:?}");
    Ok(())
}

/// Three transactions at work on row 1 of node 0: one has it, two wait for it.
struct Contention {
    holder: Client,
    waiting: Vec<Background>,
}

impl Contention {
    fn begin(cluster: &Cluster) -> Result<Contention> {
        let mut holder = forecasting(cluster)?;
        holder.batch_execute(&format!("BEGIN; {TOUCH}"))?;
        let waiting = (0..2).map(|_| Background::run(forecasting(cluster)?, TOUCH));
        let waiting = waiting.collect::<Result<_>>()?;
        wait_until_waiting(cluster, 0, 2)?;
        let at_work = format!("SELECT bool_and(in_flight = 3) {KNOWN}");
        wait_until(&mut holder, &at_work)?;
        Ok(Contention { holder, waiting })
    }

    fn end(mut self) -> Result<()> {
        self.holder.batch_execute("COMMIT")?;
        for one in self.waiting {
            one.end()?.1?;
        }
        Ok(())
    }
}

/// A transaction that is most likely to fail does not begin.
#[test]
fn what_is_likely_to_fail_is_refused() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    fail(&mut client, 200)?;
    let contention = Contention::begin(&cluster)?;
    client.batch_execute("SET txn.geo_schedule = admission")?;
    let lock = "SELECT FROM account WHERE id = 1 FOR UPDATE";
    for sql in [TOUCH, MOVE, lock] {
        let told = client.batch_execute(sql);
        ensure!(sqlstate(&told) == "40001", "{told:?}");
        let error = told.err().context("an error")?;
        let error = error.as_db_error().context("an error of PostgreSQL")?;
        let detail = error.detail().unwrap_or_default();
        ensure!(
            detail.starts_with("Transactions at work on a row of \"account_0\": 3. Of ")
                && detail.ends_with(" that have ended, 0 have committed."),
            "{detail}"
        );
        let hint = error.hint().unwrap_or_default();
        ensure!(
            hint.starts_with("The transaction might succeed if retried."),
            "{hint}"
        );
    }
    // It was never at work on the row, and other rows are nobody's.
    let at_work = format!("SELECT bool_and(in_flight = 3) {KNOWN}");
    wait_until(&mut client, &at_work)?;
    client.batch_execute("UPDATE account SET balance = balance WHERE id IN (2, 1001)")?;
    // One that has written something goes on, and waits at the node.
    client.batch_execute("SET txn.geo_lock_timeout = '200ms'")?;
    let first = "UPDATE account SET balance = balance WHERE id = 1001";
    let told = client.batch_execute(&format!("BEGIN; {first}; {TOUCH}; COMMIT"));
    ensure!(sqlstate(&told) == "55P03", "{told:?}");
    client.batch_execute("ROLLBACK; SET txn.geo_defer = on")?;
    // What travels with COMMIT is refused there.
    let told = client.batch_execute(&format!("BEGIN; {first}; {TOUCH}; SELECT 1; COMMIT"));
    ensure!(sqlstate(&told) == "40001", "{told:?}");
    contention.end()?;
    // Nobody else is at work on it.
    client.batch_execute(TOUCH)?;
    cluster.wait_until_resolved()
}

/// As long as all commit nobody is kept from anything.
#[test]
fn what_commits_is_let_in() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    (0..20).try_for_each(|_| client.batch_execute(TOUCH))?;
    let contention = Contention::begin(&cluster)?;
    client.batch_execute("SET txn.geo_schedule = admission")?;
    let update = Background::run(client, TOUCH)?;
    wait_until_waiting(&cluster, 0, 3)?;
    contention.end()?;
    update.end()?.1?;
    let all = format!("SELECT bool_and(tries = commits AND in_flight = 0) {KNOWN}");
    wait_until(&mut cluster.session()?, &all)
}

/// A cancel while a transaction waits to begin.
#[test]
fn the_wait_for_admission_heeds_a_cancel() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    // So it waits a second, ten times.
    fail(&mut client, 200)?;
    let mut client = learn(&cluster, client, 1.5)?;
    let contention = Contention::begin(&cluster)?;
    client.batch_execute("SET txn.geo_schedule = admission")?;
    let update = Background::run(client, TOUCH)?;
    let mut control = cluster.session()?;
    let waits = format!(
        "SELECT count(*) = 1 FROM pg_stat_activity
         WHERE pid = {} AND state = 'active' AND wait_event = 'Extension'",
        update.pid
    );
    wait_until(&mut control, &waits)?;
    ensure!(!update.is_finished());
    control.query("SELECT pg_cancel_backend($1)", &[&update.pid])?;
    let (_, told) = update.end()?;
    ensure!(sqlstate(&told) == "57014", "{told:?}");
    contention.end()
}

/// A part that has failed ends the others, which may wait for something.
#[test]
fn a_failure_does_not_wait_for_the_others() -> Result<()> {
    let (cluster, mut client) = cluster()?;
    cluster.node(1).connect()?.batch_execute(
        "ALTER TABLE account ADD CONSTRAINT low CHECK (balance BETWEEN 101 AND 101) NOT VALID",
    )?;
    let block = "BEGIN; UPDATE account SET balance = balance - 1 WHERE id = 1;
                 UPDATE account SET balance = balance + 1 WHERE id = 1001; SELECT 1; COMMIT";
    let holder = hold(&cluster)?;
    for setting in [
        "geo_schedule = off",
        "geo_schedule = forecast",
        "geo_defer = on",
    ] {
        client.batch_execute(&format!("SET txn.{setting}"))?;
        let sql = if setting.starts_with("geo_defer") {
            block
        } else {
            MOVE
        };
        let told = client.batch_execute(sql);
        ensure!(sqlstate(&told) == "23514", "{told:?} with {setting}");
        client.batch_execute("ROLLBACK")?;
        wait_until_waiting(&cluster, 0, 0)?;
    }
    drop(holder);
    cluster.wait_until_resolved()?;
    ensure!(cluster.balance_sum_at_nodes()? == 2 * super::NODE_SUM);
    Ok(())
}

/// A node that has the extension tells of its hot rows, whoever uses them.
#[test]
fn nodes_report_their_hot_rows() -> Result<()> {
    let node = [
        ("max_prepared_transactions", "64"),
        ("log_statement", "all"),
        ("txn.queue_lock", "on"),
        ("txn.hot_threshold", "0"),
    ];
    let coordinator = start(&[("txn.geo_resolver_interval", "100ms")])?;
    let nodes = vec![start(&node)?, start(&node)?];
    let cluster = Cluster::between(coordinator, nodes, "txn_fdw")?;
    let mut client = forecasting(&cluster)?;
    client.batch_execute(TOUCH)?;
    // Local clients of the node use the row one after the other.
    let waiting = |count: i64| {
        let sql = format!("SELECT sum(waiting) = {count} FROM txn.hotspots WHERE key = '1'");
        wait_until(&mut cluster.node(0).connect()?, &sql)
    };
    let mut holder = cluster.node(0).connect()?;
    holder.batch_execute(&format!("BEGIN; {TOUCH}"))?;
    let mut others = Vec::new();
    for n in 1..=4 {
        others.push(Background::run(cluster.node(0).connect()?, TOUCH)?);
        waiting(n)?;
    }
    holder.batch_execute("COMMIT")?;
    for other in others {
        other.end()?.1?;
    }
    holder.batch_execute(&format!("BEGIN; {TOUCH}"))?;
    let other = Background::run(cluster.node(0).connect()?, TOUCH)?;
    waiting(1)?;
    until(&mut client, "the row's queue is known", |client| {
        // The node is asked as long as it is used.
        client.batch_execute("UPDATE account SET balance = balance WHERE id IN (2, 1001)")?;
        let queue = format!("SELECT coalesce(sum(queue), 0) {KNOWN} AND queue > 0 AND turn_ms > 0");
        Ok(int(client, &queue)? == 2)
    })?;
    // A node that has lost the extension is not asked any more, and works.
    let moved = "UPDATE account SET balance = balance WHERE id IN (3, 1002)";
    let mut node = cluster.node(1).connect()?;
    node.batch_execute("DROP EXTENSION txn CASCADE")?;
    client.batch_execute(moved)?;
    holder.batch_execute("COMMIT")?;
    other.end()?.1?;
    cluster.wait_until_resolved()
}
