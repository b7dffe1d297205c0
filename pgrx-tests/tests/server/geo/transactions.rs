//! Transactions over two nodes: all of it or nothing, by every way out.
use anyhow::{Result, ensure};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use txn_server_tests::{int, pid, sqlstate, text, until, wait_until};

use super::{Cluster, transfer};

/// The processes at a node that serve the coordinator and are in a transaction.
const OPEN: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
                    AND pid <> pg_backend_pid() AND state <> 'idle'";

/// Waits until no transaction is open or prepared at any node.
pub fn wait_until_nothing_is_open(cluster: &Cluster) -> Result<()> {
    cluster.wait_until_resolved()?;
    for node in &cluster.nodes {
        wait_until(&mut node.connect()?, &format!("SELECT ({OPEN}) = 0"))?;
    }
    Ok(())
}

#[test]
fn every_way_out_ends_all_parts_alike() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let ends = [
        (1, "COMMIT", true),
        (2, "ROLLBACK", false),
        (3, "SAVEPOINT a; SELECT 1; COMMIT", true),
        (
            4,
            "SAVEPOINT a; DELETE FROM trace_1; ROLLBACK TO a; COMMIT",
            true,
        ),
        (5, "SAVEPOINT a; SAVEPOINT b; RELEASE a; COMMIT", true),
        (
            6,
            "DECLARE c CURSOR FOR SELECT id FROM account; FETCH 1 FROM c; COMMIT",
            true,
        ),
        (7, "SELECT 1 / 0; COMMIT", false),
        (8, "INSERT INTO trace_0 VALUES (1); COMMIT", false),
        (9, "SAVEPOINT a; SELECT 1 / 0; ROLLBACK", false),
        (10, "PREPARE TRANSACTION 'mine'", false),
    ];
    let mut expected = Vec::new();
    for (number, end, commits) in ends {
        let sql = format!("BEGIN; {}; {end}", transfer(number));
        let told = client.batch_execute(&sql);
        let _ = client.batch_execute("ROLLBACK");
        if commits {
            told?;
            expected.push(number);
        }
        cluster.expect_committed(&expected)?;
    }
    // Transactions without BEGIN: a string of statements, and one statement.
    client.batch_execute(&transfer(11))?;
    client.batch_execute(
        "WITH a AS (INSERT INTO trace_0 VALUES (12)), b AS (INSERT INTO trace_1 VALUES (12)) \
         INSERT INTO ledger VALUES (12)",
    )?;
    expected.extend([11, 12]);
    cluster.expect_committed(&expected)?;
    wait_until_nothing_is_open(&cluster)
}

#[test]
fn nothing_of_a_transaction_whose_statement_failed_is_anywhere() -> Result<()> {
    let cluster = Cluster::start(2)?;
    for (number, node) in [(1, 0), (2, 1)] {
        let mut client = cluster.session()?;
        client.batch_execute(&format!("BEGIN; {}", transfer(number)))?;
        let again = format!("INSERT INTO trace_{node} VALUES ({number})");
        let told = sqlstate(&client.batch_execute(&again));
        ensure!(told == "23505", "{told}");
        let told = sqlstate(&client.batch_execute("SELECT count(*) FROM account"));
        ensure!(told == "25P02", "{told}");
        // COMMIT of a failed transaction answers ROLLBACK.
        client.batch_execute("COMMIT")?;
        cluster.expect_committed(&[])?;
    }
    wait_until_nothing_is_open(&cluster)
}

/// A handler in PL/pgSQL undoes its block at the nodes, and the rest commits.
#[test]
fn an_exception_handler_undoes_its_block_at_both_nodes() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let code = |number: i64, fails: &str| {
        format!(
            "DO $$ BEGIN
                 BEGIN {}; {fails};
                 EXCEPTION WHEN others THEN NULL; END;
                 {};
             END $$",
            transfer(number),
            transfer(number + 100)
        )
    };
    let fails = [
        "RAISE EXCEPTION 'here'",
        "INSERT INTO trace_0 VALUES (2)",
        "INSERT INTO trace_1 VALUES (3)",
        "PERFORM 1 / (id - id) FROM account_1",
    ];
    for (number, fails) in (1..).zip(fails) {
        client.batch_execute(&code(number, fails))?;
    }
    cluster.expect_committed(&[101, 102, 103, 104])?;
    wait_until_nothing_is_open(&cluster)
}

#[test]
fn a_terminated_session_leaves_nothing() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}", transfer(1)))?;
    let pid = pid(&mut client)?;
    control.query("SELECT pg_terminate_backend($1)", &[&pid])?;
    let told = sqlstate(&client.batch_execute("COMMIT"));
    ensure!(["57P01", "lost"].contains(&told.as_str()), "{told}");
    wait_until_nothing_is_open(&cluster)?;
    cluster.expect_committed(&[])?;
    // A client that just goes away.
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}", transfer(2)))?;
    drop(client);
    wait_until_nothing_is_open(&cluster)?;
    cluster.expect_committed(&[])
}

/// PREPARE TRANSACTION with parts at nodes is refused, also if they have only been read.
#[test]
fn prepare_at_the_coordinator_is_refused() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let refused = [
        transfer(1),
        "UPDATE account SET balance = balance + 1 WHERE id = 1".to_owned(),
        "SELECT count(*) FROM account".to_owned(),
    ];
    for sql in refused {
        client.batch_execute(&format!("BEGIN; {sql}"))?;
        let told = sqlstate(&client.batch_execute("PREPARE TRANSACTION 'mine'"));
        ensure!(told == "0A000", "{told}: {sql}");
        client.batch_execute("ROLLBACK")?;
    }
    client.batch_execute("BEGIN; INSERT INTO ledger VALUES (5); PREPARE TRANSACTION 'local'")?;
    client.batch_execute("ROLLBACK PREPARED 'local'")?;
    cluster.expect_committed(&[])?;
    wait_until_nothing_is_open(&cluster)
}

/// Where nothing can be prepared, a transaction that writes at one place only commits.
#[test]
fn one_writer_needs_no_two_phases() -> Result<()> {
    let cluster = Cluster::with(2, &[], &[("max_prepared_transactions", "0")])?;
    let mut client = cluster.session()?;
    let statements = [
        "SELECT sum(balance) FROM account",
        "UPDATE account SET balance = balance + 1 WHERE id = 1",
        "BEGIN; SELECT sum(balance) FROM account;
         UPDATE account SET balance = balance - 1 WHERE id = 1001; COMMIT",
        "BEGIN; SELECT sum(balance) FROM account; INSERT INTO ledger VALUES (1); COMMIT",
        "BEGIN; UPDATE account SET balance = balance + 1 WHERE id = 1; SAVEPOINT a;
         UPDATE account SET balance = balance - 1 WHERE id = 2; ROLLBACK TO a;
         UPDATE account SET balance = balance - 1 WHERE id = 3; COMMIT",
    ];
    for sql in statements {
        client.batch_execute(sql)?;
    }
    let found = row(&mut client)?;
    ensure!(found == "103 102 102", "{found}");
    ensure!(int(&mut client, "SELECT balance FROM account WHERE id = 1001")? == 100);
    Ok(())
}

fn row(client: &mut Client) -> Result<String> {
    let sql =
        "SELECT string_agg(balance::text, ' ' ORDER BY id) FROM account WHERE id IN (1, 2, 3)";
    text(client, sql)
}

/// A connection that is kept for the next transaction may have broken meanwhile.
#[test]
fn a_node_that_restarts_between_transactions_is_found_again() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let mut expected = Vec::new();
    for number in 1..=3 {
        client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))?;
        expected.push(number);
        cluster.kill_node(number as usize % 2, true)?;
    }
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(4)))?;
    expected.push(4);
    cluster.expect_committed(&expected)
}

/// Within a transaction a lost connection is the end of it.
#[test]
fn a_node_that_restarts_within_a_transaction_fails_it() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    for node in 0..2 {
        let mut client = cluster.session()?;
        client.batch_execute(&format!("BEGIN; {}", transfer(1)))?;
        cluster.kill_node(node, true)?;
        let told = sqlstate(&client.batch_execute("COMMIT"));
        ensure!(told != "00000", "half of the transaction was lost");
        client.batch_execute("ROLLBACK")?;
        cluster.expect_committed(&[])?;
        client.batch_execute(&format!("BEGIN; {}", transfer(1)))?;
        cluster.kill_node(node, true)?;
        let read = format!("SELECT count(*) FROM account_{node}");
        let told = sqlstate(&client.batch_execute(&read));
        ensure!(told != "00000", "the rows were read in another transaction");
        client.batch_execute("COMMIT")?;
        cluster.expect_committed(&[])?;
    }
    wait_until_nothing_is_open(&cluster)
}

/// NOTIFY may fail when the coordinator commits: a single writer prepares then, and who listens
/// hears of it only if all has committed.
#[test]
fn a_single_writer_and_notify() -> Result<()> {
    let write = "UPDATE account SET balance = balance + 1 WHERE id = 1";
    for places in ["64", "0"] {
        let cluster = Cluster::with(2, &[], &[("max_prepared_transactions", places)])?;
        let mut listener = cluster.session()?;
        listener.batch_execute("LISTEN news")?;
        let mut client = cluster.session()?;
        client.batch_execute(write)?;
        ensure!(cluster.asked_to_prepare(0)? == 0, "one phase was enough");
        let told = client.batch_execute(&format!("BEGIN; {write}; NOTIFY news; COMMIT"));
        let commits = places != "0";
        ensure!(told.is_ok() == commits, "{told:?}");
        ensure!(cluster.asked_to_prepare(0)? > 0, "NOTIFY was in one phase");
        let _ = client.batch_execute("ROLLBACK");
        client.batch_execute("NOTIFY last")?;
        listener.batch_execute("LISTEN last; NOTIFY last")?;
        let mut heard = Vec::new();
        until(&mut client, "the last one is heard", |_| {
            listener.batch_execute("SELECT 1")?;
            while let Some(one) = listener.notifications().iter().next()? {
                heard.push(one.channel().to_owned());
            }
            Ok(heard.iter().any(|channel| channel == "last"))
        })?;
        ensure!(heard.contains(&"news".to_owned()) == commits, "{heard:?}");
        let balance = int(&mut client, "SELECT balance FROM account WHERE id = 1")?;
        ensure!(balance == 102 + i64::from(commits), "{balance}");
    }
    Ok(())
}
