//! `txn.geo_snapshot = global`: reads of all nodes and of the coordinator at one cut. What each
//! node shows by itself is looked at beside, where it has to be torn: else the test shows nothing.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postgres::{Client, Error};
use txn_server_tests::{Background, Done, Load, Worker, int, pid, sqlstate, until};

use super::transactions::wait_until_nothing_is_open;
use super::{Cluster, NODE_SUM, Settings, transfer};

/// A session that reads at one cut, and waits for long.
pub const GLOBAL: &str = "SET default_transaction_isolation = 'repeatable read'; \
    SET txn.geo_snapshot = global; \
    SET txn.geo_snapshot_timeout = '5min'; SET txn.geo_apply_timeout = '5min'";

/// Each node has its own snapshot.
const BY_NODE: &str = "SET default_transaction_isolation = 'repeatable read'";

/// What there is of transfers: at the coordinator and at the two nodes.
pub const TRACES: &str = "SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM trace_0), \
    (SELECT count(*) FROM trace_1)";

pub fn session(cluster: &Cluster, settings: &str) -> Result<Client> {
    let mut client = cluster.session()?;
    client.batch_execute(settings)?;
    // Connections to all nodes, and what PostgreSQL has in its caches.
    client.query_one(TRACES, &[])?;
    Ok(client)
}

pub fn traces(client: &mut Client) -> Result<[i64; 3], Error> {
    let row = client.query_one(TRACES, &[])?;
    Ok([0, 1, 2].map(|n| row.get(n)))
}

/// A session that is going to read in the background. (To ask for its process is to read.)
pub struct Reader(Client, i32);

impl Reader {
    pub fn new(mut client: Client) -> Result<Reader> {
        let pid = pid(&mut client)?;
        Ok(Reader(client, pid))
    }

    pub fn batch_execute(&mut self, sql: &str) -> Result<()> {
        Ok(self.0.batch_execute(sql)?)
    }

    pub fn read(self) -> Background<[i64; 3]> {
        Background::call(self.0, self.1, traces)
    }
}

/// Waits until so many transactions at that node wait for their client.
fn wait_until_open(cluster: &Cluster, node: usize, count: i64) -> Result<()> {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
    let what = format!("{count} transactions are open at node {node}");
    until(&mut cluster.node(node).connect()?, &what, |client| {
        Ok(int(client, sql)? == count)
    })
}

/// A reader that node 0 has given its snapshot, while node 1 has not heard of it: the line there is
/// cut.
pub fn reader_between_nodes(cluster: &Cluster, client: Client) -> Result<Background<[i64; 3]>> {
    let reader = Reader::new(client)?;
    // A session does not wait until its nodes have ended a transaction that has only read.
    wait_until_nothing_is_open(cluster)?;
    cluster.line(1).cut();
    let reader = reader.read();
    wait_until_open(cluster, 0, 1)?;
    Ok(reader)
}

/// A while in which something would happen that must not.
fn expect_waiting<T: Send + 'static>(work: &Background<T>, what: &str) -> Result<()> {
    for _ in 0..10 {
        ensure!(!work.is_finished(), "{what} did not wait");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn no_half_of_a_commit_is_seen() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut by_node = session(&cluster, BY_NODE)?;
    let mut control = cluster.session()?;
    for (number, point) in (1..).zip(["geo_decided", "geo_applying"]) {
        let reader = Reader::new(session(&cluster, GLOBAL)?)?;
        let mut stopped = cluster.stop_at(point, number)?;
        let torn = traces(&mut by_node)?;
        ensure!(
            torn[0] == number && torn[2] == number - 1,
            "{point}: each node by itself shows {torn:?}, so that the test shows nothing"
        );
        let reader = reader.read();
        reader.wait_until_blocked(&mut control)?;
        expect_waiting(&reader, "a reader beside a commit that is half done")?;
        stopped.release()?;
        let seen = reader.end()?.1?;
        ensure!(seen == [number; 3], "{point}: {seen:?}");
        stopped.end()?.1?;
    }
    Ok(())
}

/// T2 at node 1 begins when T1 at node 0 is acknowledged. Who sees T2 sees T1.
#[test]
fn no_effect_is_seen_without_its_cause() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut writer = cluster.session()?;
    let node = cluster.node(1);
    let (host, port) = (node.host().display(), node.port());
    // A way to node 1 beside the line.
    writer.batch_execute(&format!(
        "CREATE SERVER direct FOREIGN DATA WRAPPER txn_fdw
             OPTIONS (host '{host}', port '{port}', dbname 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER direct OPTIONS (user 'postgres');
         CREATE FOREIGN TABLE direct (number bigint) SERVER direct OPTIONS (table_name 'trace')"
    ))?;
    let mut control = cluster.session()?;
    let cause = |n: i64| format!("INSERT INTO trace_0 VALUES ({n})");
    let effect = |n: i64| format!("INSERT INTO direct VALUES ({n})");
    writer.batch_execute(&format!("{}; {}", cause(0), effect(0)))?;

    let reader = reader_between_nodes(&cluster, session(&cluster, BY_NODE)?)?;
    writer.batch_execute(&cause(1))?;
    writer.batch_execute(&effect(1))?;
    cluster.line(1).heal();
    let torn = reader.end()?.1?;
    ensure!(
        torn == [0, 1, 2],
        "each node by itself shows {torn:?}, so that the test shows nothing"
    );

    let reader = reader_between_nodes(&cluster, session(&cluster, GLOBAL)?)?;
    let commit = Background::run(writer, &cause(2))?;
    wait_until_open(&cluster, 0, 2)?;
    commit.wait_until_blocked(&mut control)?;
    expect_waiting(&commit, "a commit in one phase beside a reader")?;
    cluster.line(1).heal();
    let (mut reader, seen) = reader.end()?;
    let seen = seen?;
    let (mut writer, told) = commit.end()?;
    told?;
    writer.batch_execute(&effect(2))?;
    ensure!(seen == [0, 2, 2], "{seen:?}");
    let seen = traces(&mut reader)?;
    ensure!(
        seen == [0, 3, 3],
        "what was acknowledged was not seen: {seen:?}"
    );
    Ok(())
}

/// A reader has waited for a commit: its statement had begun before. What it reads at the
/// coordinator belongs to the cut, too.
#[test]
fn who_has_waited_reads_the_coordinator_again() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let second = Reader::new(session(&cluster, GLOBAL)?)?;
    let mut writer = cluster.session()?;
    let first = reader_between_nodes(&cluster, session(&cluster, GLOBAL)?)?;
    writer.batch_execute("BEGIN; INSERT INTO ledger VALUES (1); INSERT INTO trace_0 VALUES (1)")?;
    let commit = Background::run(writer, "COMMIT")?;
    cluster.wait_until_prepared(0)?;
    expect_waiting(&commit, "a commit beside a reader")?;
    let second = second.read();
    second.wait_until_blocked(&mut control)?;
    expect_waiting(&second, "a reader behind a commit")?;
    cluster.line(1).heal();
    ensure!(first.end()?.1? == [0; 3]);
    commit.end()?.1?;
    let seen = second.end()?.1?;
    ensure!(seen[0] == seen[1], "{seen:?}");
    Ok(())
}

/// A cluster for transfers, commits at one node after another, and readers.
pub fn cluster_for_load(settings: Settings) -> Result<Cluster> {
    let mut all = vec![("txn.geo_lock_timeout", "500ms")];
    all.extend(settings);
    let cluster = Cluster::with(2, &all, &[])?;
    for node in 0..2 {
        let sql = format!("CREATE TABLE step_{node} (number bigint PRIMARY KEY)");
        cluster.node(node).connect()?.batch_execute(&sql)?;
        let sql = format!("CREATE FOREIGN TABLE step_{node} (number bigint) SERVER node{node}");
        cluster.session()?.batch_execute(&sql)?;
    }
    Ok(cluster)
}

/// One of these.
pub fn work(worker: &mut Worker) -> Result<Done, Error> {
    match worker.number % 3 {
        0 => read(worker),
        1 => transact(worker),
        _ => steps(worker),
    }
}

#[test]
fn every_read_beside_a_load_is_a_cut() -> Result<()> {
    read_beside_a_load(&[])
}

/// Commits are acknowledged before the nodes have them.
#[test]
fn every_read_is_a_cut_of_what_is_handed_over() -> Result<()> {
    read_beside_a_load(&[("txn.geo_answer", "decided")])
}

fn read_beside_a_load(settings: Settings) -> Result<()> {
    let cluster = cluster_for_load(settings)?;
    let tally = Load::new(&cluster.coordinator, 9, 40).run(|worker| {
        cluster.dog.progress();
        work(worker)
    })?;
    tally.only(&["40001", "40P01", "55P03"])?;
    cluster.wait_until_resolved()?;
    ensure!(cluster.balance_sum_at_nodes()? == 2 * NODE_SUM);
    Ok(())
}

fn number(worker: &Worker) -> i64 {
    (worker.number * 1_000_000 + worker.attempt) as i64
}

fn transact(worker: &mut Worker) -> Result<Done, Error> {
    let number = number(worker);
    worker.begin()?;
    worker.simple(&transfer(number))?;
    worker.commit(1)
}

/// At node 1 what was acknowledged at node 0.
fn steps(worker: &mut Worker) -> Result<Done, Error> {
    let number = number(worker);
    worker.execute("INSERT INTO step_0 VALUES ($1)", &[&number])?;
    worker.execute("INSERT INTO step_1 VALUES ($1)", &[&number])?;
    Ok(Done::Committed(0))
}

/// The readings that have to be equal, and those that must not be less than their neighbours.
fn read(worker: &mut Worker) -> Result<Done, Error> {
    worker.simple("BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL txn.geo_snapshot = global")?;
    let sum: i64 = worker.query("SELECT sum(balance)::bigint FROM account", &[])?[0].get(0);
    assert_eq!(sum, 2 * NODE_SUM, "half of a transfer was seen");
    let row = &worker.query(TRACES, &[])?[0];
    let found: [i64; 3] = [0, 1, 2].map(|n| row.get(n));
    assert_eq!(found, [found[0]; 3], "a part of a transfer was seen");
    let sql = "SELECT (SELECT count(*) FROM step_0), (SELECT count(*) FROM step_1)";
    let row = &worker.query(sql, &[])?[0];
    let (causes, effects): (i64, i64) = (row.get(0), row.get(1));
    assert!(causes >= effects, "{effects} effects of {causes} causes");
    worker.commit(0)
}

/// The first command takes the snapshot, whatever it is, of the nodes that come later too.
#[test]
fn the_first_command_takes_it() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut writer = cluster.session()?;
    writer.batch_execute(
        "CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS
             $$ BEGIN RETURN (SELECT count(*) FROM trace_0); END $$",
    )?;
    let mut client = session(&cluster, GLOBAL)?;
    client.batch_execute("PREPARE one AS SELECT 1")?;
    let first = [
        "SELECT 1",
        "SELECT count(*) FROM ledger",
        "SELECT count(*) FROM trace_1",
        "SELECT counted()",
        "SAVEPOINT a; SELECT 1",
        "SET LOCAL txn.geo_lock_timeout = '1s'; SHOW work_mem; SELECT 1",
        "DO $$ BEGIN PERFORM counted(); END $$",
        "EXECUTE one",
        "DECLARE c CURSOR FOR SELECT count(*) FROM trace_0; FETCH c",
        "EXPLAIN (ANALYZE) SELECT 1",
        "CREATE TEMP TABLE temporary ON COMMIT DROP AS SELECT 1",
        "UPDATE account SET balance = balance WHERE id = 9",
        "DELETE FROM ledger WHERE number < 0",
        "INSERT INTO trace_0 VALUES (-1); DELETE FROM trace_0 WHERE number = -1",
        "TRUNCATE pg_temp.own",
        "LOCK ledger IN ACCESS SHARE MODE; SELECT 1",
        "SET CONSTRAINTS ALL IMMEDIATE; SELECT 1",
        "PREPARE two AS SELECT 2; SELECT 1; DEALLOCATE two",
        "EXPLAIN SELECT count(*) FROM trace_0; SELECT 1",
    ];
    client.batch_execute("CREATE TEMP TABLE own (n int)")?;
    for (number, sql) in (1..).zip(first) {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            // SSI does not begin anew in a savepoint.
            if level == "SERIALIZABLE" && sql.starts_with("SAVEPOINT") {
                continue;
            }
            let before = int(&mut writer, "SELECT count(*) FROM ledger")?;
            client
                .batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; {sql}"))
                .with_context(|| sql.to_owned())?;
            let number = 2 * number + i64::from(level == "SERIALIZABLE");
            writer.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))?;
            let seen = traces(&mut client).with_context(|| sql.to_owned())?;
            ensure!(
                seen == [before; 3],
                "{level}: {seen:?}, not {before}: {sql}"
            );
            client
                .batch_execute("COMMIT")
                .with_context(|| format!("{level}: {sql}"))?;
            let seen = traces(&mut client)?;
            ensure!(seen == [before + 1; 3], "after it: {seen:?}: {sql}");
        }
    }
    Ok(())
}

/// A transaction that writes at one cut: it sees its own changes, and is refused where others have
/// changed the row since.
#[test]
fn it_may_write() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let (mut client, mut other) = (session(&cluster, GLOBAL)?, cluster.session()?);
    client.batch_execute(&format!("BEGIN; {}", transfer(1)))?;
    let seen = traces(&mut client)?;
    ensure!(seen == [1; 3], "own changes were not seen: {seen:?}");
    client.batch_execute("COMMIT")?;
    client.batch_execute("BEGIN; SELECT 1")?;
    other.batch_execute("UPDATE account SET balance = balance WHERE id = 1001")?;
    let update = "UPDATE account SET balance = balance WHERE id = 1001";
    let told = sqlstate(&client.batch_execute(update));
    ensure!(told == "40001", "{told}");
    client.batch_execute("ROLLBACK")?;
    cluster.expect_committed(&[1])
}

/// Where there cannot be such a snapshot nodes are refused, and nothing else.
#[test]
fn a_transaction_without_it_uses_no_node() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = session(&cluster, "SELECT 1")?;
    let late = [
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SET LOCAL txn.geo_snapshot = global",
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM trace_1;
         SET LOCAL txn.geo_snapshot = global",
        "SET txn.geo_snapshot = global; BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
    ];
    for begin in late {
        client.batch_execute(&format!(
            "{begin}; SELECT count(*) FROM ledger; SAVEPOINT a"
        ))?;
        for table in ["trace_0", "trace_1"] {
            let told = sqlstate(&client.simple_query(&format!("SELECT count(*) FROM {table}")));
            ensure!(told == "55000", "{told}: {begin}");
            client.batch_execute("ROLLBACK TO a")?;
        }
        client.batch_execute("ROLLBACK; RESET txn.geo_snapshot")?;
    }
    // READ COMMITTED is as ever.
    client.batch_execute("SET txn.geo_snapshot = global; BEGIN; SELECT count(*) FROM trace_0")?;
    cluster
        .session()?
        .batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    ensure!(traces(&mut client)? == [1; 3]);
    client.batch_execute("COMMIT")?;
    Ok(())
}

/// The options of the first command are looked at before PostgreSQL does.
#[test]
fn a_bad_option_of_explain() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = session(&cluster, GLOBAL)?;
    for option in ["ANALYZE maybe", "ANALYZE 2"] {
        let sql = format!("EXPLAIN ({option}) SELECT count(*) FROM account");
        let told = sqlstate(&client.batch_execute(&sql));
        ensure!(told == "42601", "{told}: {sql}");
    }
    client.batch_execute("EXPLAIN (ANALYZE off) SELECT 1; EXPLAIN (ANALYZE) SELECT 1")?;
    ensure!(traces(&mut client)? == [0, 0, 0]);
    Ok(())
}
