//! Writes that are put off (`txn.geo_defer`), and the mark `/*+ txn.last */`.
use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, pid, sqlstate};

use super::transactions::wait_until_nothing_is_open;
use super::trips::{trips, warm};
use super::{Cluster, transfer};

const FIRST: &str = "UPDATE account SET balance = balance - 1 WHERE id = 1";
const SECOND: &str = "UPDATE account SET balance = balance + 1 WHERE id = 1001";
/// There is no such row.
const NOWHERE: &str = "UPDATE account SET balance = balance + 1 WHERE id = 1999";

/// Runs each step, which takes so many round trips to the nodes.
fn expect_steps(cluster: &Cluster, client: &mut Client, steps: &[(&str, [u64; 2])]) -> Result<()> {
    for (sql, expected) in steps {
        let found = trips(cluster, client, sql)?;
        ensure!(
            found == *expected,
            "{found:?} trips instead of {expected:?}: {sql}"
        );
    }
    Ok(())
}

/// A cluster, and a session that puts writes off.
fn deferring() -> Result<(Cluster, Client)> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute("SET txn.geo_defer = on; SELECT count(*) FROM account")?;
    Ok((cluster, client))
}

fn balance(cluster: &Cluster, node: usize, id: i64) -> Result<i64> {
    let sql = format!("SELECT balance FROM account WHERE id = {id}");
    int(&mut cluster.node(node).connect()?, &sql)
}

#[test]
fn a_block_is_one_round_before_the_decision() -> Result<()> {
    let (cluster, mut client) = warm()?;
    client.batch_execute("SET txn.geo_defer = on")?;
    let block = |commit| {
        [
            ("BEGIN", [0, 0]),
            (FIRST, [0, 0]),
            ("INSERT INTO trace_0 VALUES ($$-1$$)", [0, 0]),
            (SECOND, [0, 0]),
            ("DELETE FROM account WHERE id = 1009", [0, 0]),
            ("COMMIT", commit),
        ]
    };
    // What was put off goes with PREPARE; then COMMIT PREPARED.
    expect_steps(&cluster, &mut client, &block([2, 2]))?;
    // Three rounds without early prepare.
    client.batch_execute("SET txn.geo_prepare = at_commit")?;
    cluster.node(0).connect()?.batch_execute("TRUNCATE trace")?;
    let id = "INSERT INTO account VALUES (1009, 101)";
    cluster.node(1).connect()?.batch_execute(id)?;
    expect_steps(&cluster, &mut client, &block([3, 3]))?;
    ensure!(balance(&cluster, 0, 1)? == 99 && balance(&cluster, 1, 1001)? == 103);
    // One node: one phase.
    let single = [("BEGIN", [0, 0]), (FIRST, [0, 0]), ("COMMIT", [2, 0])];
    expect_steps(&cluster, &mut client, &single)?;
    // What is alone is not put off.
    expect_steps(&cluster, &mut client, &[(FIRST, [2, 0])])?;
    ensure!(balance(&cluster, 0, 1)? == 97);
    Ok(())
}

/// A statement at a node takes along what was put off there, and sees it.
#[test]
fn statements_see_what_was_put_off() -> Result<()> {
    let (cluster, mut client) = warm()?;
    client.batch_execute("SET txn.geo_defer = on")?;
    let steps = [
        ("BEGIN", [0, 0]),
        (FIRST, [0, 0]),
        (SECOND, [0, 0]),
        (
            "DO $$ BEGIN ASSERT (SELECT balance FROM account WHERE id = 1) = 100; END $$",
            [1, 0],
        ),
        (FIRST, [0, 0]),
        (
            "UPDATE account SET balance = balance + 1 WHERE id < 1000 AND balance = 99",
            [1, 0],
        ),
        ("COMMIT", [2, 2]),
    ];
    expect_steps(&cluster, &mut client, &steps)?;
    ensure!(balance(&cluster, 0, 1)? == 100 && balance(&cluster, 1, 1001)? == 102);
    // At one snapshot, too.
    client.batch_execute(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; {FIRST}; {SECOND};
         DO $$ BEGIN ASSERT (SELECT balance FROM account WHERE id = 1) = 99; END $$; COMMIT"
    ))?;
    ensure!(balance(&cluster, 0, 1)? == 99 && balance(&cluster, 1, 1001)? == 103);
    Ok(())
}

/// What is not known to change one row is asked of the node at once.
#[test]
fn what_tells_something_is_not_put_off() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    cluster.node(0).connect()?.batch_execute(
        "CREATE TABLE pair (a int, b int, c int, PRIMARY KEY (a, b));
         INSERT INTO pair VALUES (1, 1, 0)",
    )?;
    client.batch_execute(
        "CREATE FOREIGN TABLE pair (a int, b int, c int) SERVER node0 OPTIONS (key 'a, b');
         CREATE FOREIGN TABLE keyless (a int, b int, c int) SERVER node0
             OPTIONS (table_name 'pair')",
    )?;
    let told = [
        ("UPDATE account SET balance = 1 WHERE id = 999", 1),
        (
            "UPDATE account SET balance = 1 WHERE id = 999 AND balance > 0",
            0,
        ),
        (
            "UPDATE account SET balance = 1 WHERE id = 999 RETURNING id",
            0,
        ),
        (
            "UPDATE account SET balance = 1 WHERE id >= 999 AND id < 1000",
            0,
        ),
        ("UPDATE account SET balance = 1 WHERE id IN (999, 1999)", 0),
        ("UPDATE account SET balance = 1 WHERE id = balance", 0),
        (
            "UPDATE account SET balance = 1 WHERE id = (random() / 2)::int + 999",
            0,
        ),
        ("DELETE FROM pair WHERE a = 7", 0),
        ("DELETE FROM pair WHERE a = 7 AND a = 8", 0),
        ("DELETE FROM pair WHERE a = 7 AND b = 7", 1),
        ("DELETE FROM pair WHERE b = 7 AND 7 = a", 1),
        ("DELETE FROM keyless WHERE a = 7 AND b = 7", 0),
        (
            "DELETE FROM pair USING account WHERE a = 7 AND b = 7 AND id = 999",
            0,
        ),
        (
            "INSERT INTO pair VALUES (1, 1, 1) ON CONFLICT DO NOTHING",
            0,
        ),
        ("INSERT INTO pair VALUES (1, 1, 1), (1, 1, 2)", 2),
    ];
    for (sql, rows) in told {
        client.batch_execute("BEGIN")?;
        let found = client.execute(sql, &[]).with_context(|| sql.to_owned())?;
        ensure!(found == rows, "{found} rows instead of {rows}: {sql}");
        client.batch_execute("ROLLBACK")?;
        // Alone it is not put off at all.
        if !sql.starts_with("INSERT") {
            let found = client.execute(sql, &[])?;
            ensure!(found == 0, "{found} rows: {sql}");
        }
    }
    let prepared = client.prepare("UPDATE account SET balance = balance + $2 WHERE id = $1")?;
    client.batch_execute("BEGIN")?;
    ensure!(client.execute(&prepared, &[&2, &7_i64])? == 1);
    ensure!(client.execute(&prepared, &[&1002, &-7_i64])? == 1);
    client.batch_execute("COMMIT")?;
    ensure!(balance(&cluster, 0, 2)? == 109 && balance(&cluster, 1, 1002)? == 95);
    Ok(())
}

/// The client was told of a row that is not there, or of one that the node refuses.
#[test]
fn a_broken_promise_fails_the_transaction() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    client.batch_execute("ALTER SERVER node0 OPTIONS (ADD batch_size '10')")?;
    let doubled = "INSERT INTO trace_0 SELECT 7 FROM generate_series(1, 2)";
    let broken = [(NOWHERE, "21000"), (doubled, "23505")];
    for prepare in ["early", "at_commit"] {
        client.batch_execute(&format!("SET txn.geo_prepare = {prepare}"))?;
        for (sql, code) in broken {
            // At COMMIT, with several nodes or one; with a statement there.
            for (before, end) in [(FIRST, "COMMIT"), ("SELECT 1", "COMMIT")] {
                client.batch_execute(&format!("BEGIN; {before}; {sql}"))?;
                let told = sqlstate(&client.batch_execute(end));
                ensure!(
                    told == code,
                    "{told} instead of {code}: {before}; {sql}; {end}"
                );
            }
            client.batch_execute(&format!("BEGIN; {FIRST}; {SECOND}; {sql}"))?;
            let told = sqlstate(&client.batch_execute("SELECT count(*) FROM account"));
            ensure!(
                told == code,
                "{told} instead of {code} with a statement: {sql}"
            );
            client.batch_execute("ROLLBACK")?;
            // A handler of errors does not mend it.
            client.batch_execute(&format!("BEGIN; {FIRST}; {sql}; SAVEPOINT a"))?;
            let told = sqlstate(&client.batch_execute("SELECT count(*) FROM account"));
            ensure!(told == code, "{told} instead of {code}: {sql}");
            client.batch_execute("ROLLBACK TO a")?;
            let told = client.batch_execute("COMMIT");
            ensure!(told.is_err(), "{sql} has failed, and COMMIT has not");
        }
    }
    wait_until_nothing_is_open(&cluster)?;
    cluster.expect_committed(&[])
}

/// A write that was sent with a statement that has failed in a savepoint is the transaction's.
#[test]
fn what_was_sent_with_a_statement_that_failed() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    for node in 0..2 {
        cluster.node(node).connect()?.batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE check_violation; END $$;
             CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON account
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                 WHEN (NEW.balance > 1000) EXECUTE FUNCTION refuse()",
        )?;
    }
    let failing = "SAVEPOINT a; SELECT 1 / (id - 1) FROM account WHERE id = 1";
    // The node that has taken it along is not one that has only read.
    for (second, code) in [("balance + 5000", "23514"), ("balance + 1", "00000")] {
        client.batch_execute(&format!(
            "BEGIN; {FIRST}; UPDATE account SET balance = {second} WHERE id = 1001"
        ))?;
        let told = sqlstate(&client.batch_execute(failing));
        ensure!(told == "22012", "{told}");
        client.batch_execute("ROLLBACK TO a")?;
        let told = sqlstate(&client.batch_execute("COMMIT"));
        ensure!(told == code, "{told} instead of {code}");
        let (here, there) = (balance(&cluster, 0, 1)?, balance(&cluster, 1, 1001)?);
        let right = if code == "00000" {
            (100, 102)
        } else {
            (101, 101)
        };
        ensure!((here, there) == right, "{here} and {there} after {code}");
    }
    // Its own refusal is heard.
    client.batch_execute("BEGIN; UPDATE account SET balance = 5000 WHERE id = 1")?;
    let told = sqlstate(&client.batch_execute(failing));
    ensure!(told == "22012", "{told}");
    client.batch_execute("ROLLBACK TO a")?;
    let told = sqlstate(&client.batch_execute("COMMIT"));
    ensure!(told == "23514", "{told}");
    wait_until_nothing_is_open(&cluster)
}

/// Of a table with local rows the local ones count, too.
#[test]
fn tables_that_are_not_all_foreign() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    cluster.node(0).connect()?.batch_execute(
        "CREATE TABLE part (id int PRIMARY KEY, n int); INSERT INTO part VALUES (2, 0)",
    )?;
    client.batch_execute(
        "CREATE TABLE whole (id int, n int); INSERT INTO whole VALUES (1, 0);
         CREATE FOREIGN TABLE part () INHERITS (whole) SERVER node0 OPTIONS (key 'id')",
    )?;
    for (id, rows) in [(1, 1), (2, 1), (3, 0)] {
        client.batch_execute("BEGIN")?;
        let sql = format!("UPDATE whole SET n = n + 1 WHERE id = {id}");
        let found = client.execute(&sql, &[])?;
        ensure!(found == rows, "{found} rows instead of {rows}: {sql}");
        client.batch_execute("COMMIT")?;
    }
    ensure!(int(&mut client, "SELECT sum(n) FROM whole")? == 2);
    Ok(())
}

/// The transaction may become READ ONLY after its writes.
#[test]
fn read_only_after_a_write() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    client.batch_execute(&format!(
        "BEGIN; {FIRST}; {SECOND}; SET TRANSACTION READ ONLY; COMMIT"
    ))?;
    ensure!(balance(&cluster, 0, 1)? == 100 && balance(&cluster, 1, 1001)? == 102);
    Ok(())
}

/// Large values do not wait in memory.
#[test]
fn large_values_are_sent() -> Result<()> {
    let (cluster, mut client) = warm()?;
    client.batch_execute("SET txn.geo_defer = on")?;
    // One is in the text, the other a parameter.
    let in_text = "UPDATE account SET owner = repeat('x', 600000) WHERE id = 1";
    let parameter = "INSERT INTO account_0 VALUES (20, 0, repeat('x', 600000))";
    let steps = [
        ("BEGIN; SAVEPOINT a", [0, 0]),
        (in_text, [0, 0]),
        // What is rolled back waits no more.
        ("ROLLBACK TO a", [0, 0]),
        (in_text, [0, 0]),
        (parameter, [1, 0]),
        // The savepoint, and the transaction.
        ("ROLLBACK", [2, 0]),
    ];
    expect_steps(&cluster, &mut client, &steps)
}

/// What was put off belongs to its savepoint.
#[test]
fn savepoints() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    client.batch_execute(&format!(
        "BEGIN;
         {first}; SAVEPOINT a; {nowhere}; {lost}; ROLLBACK TO a;
         SAVEPOINT b; {second}; SAVEPOINT c; {trace}; RELEASE c; RELEASE b;
         SAVEPOINT d; {lost}; SELECT count(*) FROM account; {nowhere}; ROLLBACK TO d;
         INSERT INTO trace_1 VALUES (3); INSERT INTO ledger VALUES (3);
         COMMIT",
        first = FIRST,
        nowhere = NOWHERE,
        second = SECOND,
        lost = "DELETE FROM account WHERE id = 5",
        trace = "INSERT INTO trace_0 VALUES (3)",
    ))?;
    cluster.expect_committed(&[3])?;
    ensure!(balance(&cluster, 0, 1)? == 100 && balance(&cluster, 1, 1001)? == 102);
    // What was put off above a savepoint is sent before it.
    client.batch_execute(&format!(
        "BEGIN; {FIRST}; SAVEPOINT a; SELECT count(*) FROM account; ROLLBACK TO a; {SECOND};
         SAVEPOINT b; SAVEPOINT c; {FIRST}; SELECT count(*) FROM account; ROLLBACK TO b; COMMIT"
    ))?;
    ensure!(balance(&cluster, 0, 1)? == 99 && balance(&cluster, 1, 1001)? == 103);
    // All of it is rolled back.
    client.batch_execute(&format!("BEGIN; {FIRST}; {SECOND}; ROLLBACK"))?;
    client.batch_execute(&format!(
        "BEGIN; SAVEPOINT a; {FIRST}; ROLLBACK TO a; COMMIT"
    ))?;
    ensure!(balance(&cluster, 0, 1)? == 99 && balance(&cluster, 1, 1001)? == 103);
    wait_until_nothing_is_open(&cluster)
}

/// Functions and their handlers of errors; many writes, which do not all wait.
#[test]
fn in_functions() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    client.batch_execute(
        "DO $$ DECLARE n int; BEGIN
             FOR k IN 1..250 LOOP
                 INSERT INTO trace_0 VALUES (k);
                 INSERT INTO trace_1 VALUES (k);
                 INSERT INTO ledger VALUES (k);
             END LOOP;
             UPDATE account SET balance = balance - 1 WHERE id = 1;
             GET DIAGNOSTICS n = ROW_COUNT;
             ASSERT n = 1 AND FOUND;
             BEGIN
                 INSERT INTO trace_1 VALUES (251);
                 RAISE division_by_zero;
             EXCEPTION WHEN division_by_zero THEN NULL;
             END;
             UPDATE account SET balance = balance + 1 WHERE id = 1001;
         END $$",
    )?;
    cluster.expect_committed(&(1..=250).collect::<Vec<_>>())
}

/// Each write goes to the node as the user who has written it.
#[test]
fn the_user_of_a_write_is_kept() -> Result<()> {
    let (cluster, mut client) = deferring()?;
    cluster.node(0).connect()?.batch_execute(
        "CREATE ROLE teller LOGIN; CREATE TABLE who (name name, k int PRIMARY KEY);
         GRANT ALL ON who TO teller;
         CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN NEW.name := current_user; RETURN NEW; END $$;
         CREATE TRIGGER who BEFORE INSERT ON who FOR EACH ROW EXECUTE FUNCTION who()",
    )?;
    client.batch_execute(
        "CREATE ROLE teller;
         CREATE FOREIGN TABLE who (name name, k int) SERVER node0;
         GRANT ALL ON who TO teller;
         CREATE USER MAPPING FOR teller SERVER node0
             OPTIONS (user 'teller', password_required 'false');
         CREATE FUNCTION write(k int) RETURNS void SECURITY DEFINER LANGUAGE sql AS
             'INSERT INTO who (k) VALUES (k)';
         GRANT CREATE ON SCHEMA public TO teller;
         ALTER FUNCTION write(int) OWNER TO teller;
         BEGIN; INSERT INTO who (k) VALUES (1); SELECT write(2); INSERT INTO who (k) VALUES (3);
         COMMIT",
    )?;
    let mut node = cluster.node(0).connect()?;
    let rows = node.query("SELECT name::text FROM who ORDER BY k", &[])?;
    let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    ensure!(names == ["postgres", "teller", "postgres"], "{names:?}");
    Ok(())
}

/// Transfers in parallel. Both of their parts leave at once, so two of the same rows may meet in a
/// deadlock: one is told so, and tries again.
#[test]
fn transfers_of_many_sessions() -> Result<()> {
    let (cluster, _) = deferring()?;
    let sessions: Vec<_> = (0..4)
        .map(|n| {
            let mut client = cluster.session()?;
            client.batch_execute("SET txn.geo_defer = on; SET txn.geo_lock_timeout = '1min'")?;
            let pid = pid(&mut client)?;
            Ok(Background::call(client, pid, move |client| {
                (1..=10).try_for_each(|k| retried(client, &transfer(n * 10 + k)))
            }))
        })
        .collect::<Result<_>>()?;
    for session in sessions {
        session.end()?.1?;
    }
    cluster.expect_committed(&(1..=40).collect::<Vec<_>>())
}

/// Runs a block, again and again while it is in a deadlock.
fn retried(client: &mut Client, sql: &str) -> std::result::Result<(), postgres::Error> {
    loop {
        let told = client.batch_execute(&format!("BEGIN; {sql}; COMMIT"));
        if sqlstate(&told) != "40P01" {
            return told;
        }
        client.batch_execute("ROLLBACK")?;
    }
}

/// The text of a statement says that it is the last one.
#[test]
fn a_mark_says_that_a_statement_is_the_last() -> Result<()> {
    let (cluster, mut client) = warm()?;
    let marked = format!("/*+ txn.last */ {SECOND}");
    let steps = [
        ("BEGIN", [0, 0]),
        (FIRST, [1, 0]),
        (marked.as_str(), [1, 1]),
        ("COMMIT", [1, 1]),
    ];
    expect_steps(&cluster, &mut client, &steps)?;
    let statement = client.prepare(&format!(" /*+ txn.last */\n{SECOND}"))?;
    client.batch_execute(&format!("BEGIN; {FIRST}"))?;
    client.execute(&statement, &[])?;
    let told = sqlstate(&client.batch_execute(FIRST));
    ensure!(told == "55000", "{told}");
    client.batch_execute("ROLLBACK")?;
    // Elsewhere it is a comment.
    client.batch_execute(&format!(
        "BEGIN; {FIRST} /*+ txn.last */; SELECT '/*+ txn.last */'; {SECOND}; {FIRST}; {SECOND}; \
         COMMIT"
    ))?;
    ensure!(balance(&cluster, 0, 1)? == 98 && balance(&cluster, 1, 1001)? == 104);
    Ok(())
}
