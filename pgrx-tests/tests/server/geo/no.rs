//! A node votes NO: nothing of the transaction is anywhere, and the error says why.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, sqlstate, wait_until};

use super::transactions::wait_until_nothing_is_open;
use super::{Cluster, transfer};

/// Refuses the number 13 at the end of the transaction.
const REFUSE: &str = "
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'unlucky' USING ERRCODE = 'P0013', DETAIL = 'It is 13.'; END $$;
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON trace DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.number = 13) EXECUTE FUNCTION refuse()";

fn begin(client: &mut Client, number: i64) -> Result<()> {
    Ok(client.batch_execute(&format!("BEGIN; {}", transfer(number)))?)
}

/// COMMIT of transfer `number` fails; the error's SQLSTATE, message, detail and hint.
fn refused(cluster: &Cluster, client: &mut Client, number: i64) -> Result<(String, String)> {
    begin(client, number)?;
    let told = client.batch_execute("COMMIT");
    let code = sqlstate(&told);
    let Err(error) = told else {
        anyhow::bail!("transaction {number} has committed");
    };
    let text = error.as_db_error().map_or_else(String::new, |error| {
        let parts = [Some(error.message()), error.detail(), error.hint()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    });
    // The session is not in a transaction any more, and can go on.
    client.batch_execute("SELECT count(*) FROM account")?;
    cluster.expect_committed(&[])?;
    Ok((code, text))
}

#[test]
fn a_deferred_constraint_at_either_node() -> Result<()> {
    for node in 0..2 {
        let cluster = Cluster::start(2)?;
        cluster.node(node).connect()?.batch_execute(REFUSE)?;
        let mut client = cluster.session()?;
        let (code, text) = refused(&cluster, &mut client, 13)?;
        ensure!(code == "P0013", "{code} {text}");
        ensure!(
            text.contains("unlucky") && text.contains("It is 13."),
            "{text}"
        );
        client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(14)))?;
        cluster.expect_committed(&[14])?;
        wait_until_nothing_is_open(&cluster)?;
    }
    Ok(())
}

/// The constraint of a node that is the only writer, whose COMMIT is not in two phases.
#[test]
fn a_deferred_constraint_at_the_only_writer() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.node(1).connect()?.batch_execute(REFUSE)?;
    let mut client = cluster.session()?;
    let statements = [
        "INSERT INTO trace_1 VALUES (13)",
        "BEGIN; SELECT count(*) FROM account; INSERT INTO trace_1 VALUES (13); COMMIT",
        "BEGIN; INSERT INTO ledger VALUES (13); INSERT INTO trace_1 VALUES (13); COMMIT",
    ];
    for sql in statements {
        let told = sqlstate(&client.batch_execute(sql));
        ensure!(told == "P0013", "{told}: {sql}");
        cluster.expect_committed(&[])?;
    }
    wait_until_nothing_is_open(&cluster)
}

#[test]
fn a_deferred_constraint_at_the_coordinator() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let local = REFUSE.replace("ON trace", "ON ledger");
    let mut client = cluster.session()?;
    client.batch_execute(&local)?;
    let (code, text) = refused(&cluster, &mut client, 13)?;
    ensure!(code == "P0013", "{code} {text}");
    wait_until_nothing_is_open(&cluster)
}

#[test]
fn no_place_for_another_prepared_transaction() -> Result<()> {
    for node in 0..2 {
        let cluster = Cluster::start(2)?;
        let mut other = cluster.node(node).connect()?;
        other.batch_execute("CREATE TABLE others (a int)")?;
        for number in 0..64 {
            other.batch_execute(&format!(
                "BEGIN; INSERT INTO others VALUES (1); PREPARE TRANSACTION 'other {number}'"
            ))?;
        }
        let mut client = cluster.session()?;
        let (_, text) = refused(&cluster, &mut client, 1)?;
        ensure!(text.contains("max_prepared_transactions"), "{text}");
        // Others' prepared transactions are not ours to end.
        other.batch_execute("COMMIT PREPARED 'other 7'")?;
        client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(2)))?;
        cluster.expect_committed(&[2])?;
        for number in (0..64).filter(|number| *number != 7) {
            other.batch_execute(&format!("ROLLBACK PREPARED 'other {number}'"))?;
        }
    }
    Ok(())
}

#[test]
fn nodes_that_cannot_prepare() -> Result<()> {
    let cluster = Cluster::with(2, &[], &[("max_prepared_transactions", "0")])?;
    let mut client = cluster.session()?;
    let (_, text) = refused(&cluster, &mut client, 1)?;
    ensure!(text.contains("max_prepared_transactions"), "{text}");
    // One node and the coordinator are two writers as well.
    client.batch_execute("BEGIN; INSERT INTO ledger VALUES (2); INSERT INTO trace_0 VALUES (2)")?;
    let told = sqlstate(&client.batch_execute("COMMIT"));
    ensure!(told != "00000", "nothing could be prepared");
    cluster.expect_committed(&[])?;
    wait_until_nothing_is_open(&cluster)
}

/// What a node must not prepare (temporary tables) is its NO.
#[test]
fn a_node_that_has_used_a_temporary_table() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.node(1).connect()?.batch_execute(
        "CREATE FUNCTION temporary() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN CREATE TEMP TABLE IF NOT EXISTS t (a int); INSERT INTO t VALUES (1);
         RETURN NEW; END $$;
         CREATE TRIGGER temporary BEFORE INSERT ON trace FOR EACH ROW
         EXECUTE FUNCTION temporary()",
    )?;
    let mut client = cluster.session()?;
    for number in 1..=2 {
        let (code, text) = refused(&cluster, &mut client, number)?;
        ensure!(code == "0A000", "{code} {text}");
    }
    wait_until_nothing_is_open(&cluster)
}

/// The session at a node is terminated before COMMIT.
#[test]
fn a_node_whose_session_is_gone() -> Result<()> {
    for node in 0..2 {
        let cluster = Cluster::start(2)?;
        let mut client = cluster.session()?;
        begin(&mut client, 1)?;
        let mut at_node = cluster.node(node).connect()?;
        let killed = "SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity \
                      WHERE state = 'idle in transaction'";
        ensure!(txn_server_tests::int(&mut at_node, killed)? == 1);
        let told = sqlstate(&client.batch_execute("COMMIT"));
        ensure!(told != "00000", "half of the transaction was gone");
        cluster.expect_committed(&[])?;
        client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(2)))?;
        cluster.expect_committed(&[2])?;
        wait_until_nothing_is_open(&cluster)?;
    }
    Ok(())
}

/// PREPARE answers "yes" at once, but a cancelled wait for the node's standby has it only locally:
/// that is a WARNING, in any language, and no vote.
#[test]
fn a_node_whose_standby_wait_is_cancelled() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.node(1).set_synchronous_standbys("nobody")?;
    let mut client = cluster.session()?;
    begin(&mut client, 1)?;
    let commit = Background::run(client, "COMMIT")?;
    let mut node = cluster.node(1).connect()?;
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait_until(&mut node, &format!("SELECT count(*) = 1 {waiting}"))?;
    node.batch_execute(&format!("SELECT pg_cancel_backend(pid) {waiting}"))?;
    // ROLLBACK PREPARED waits for the standby, too.
    cluster.node(1).set_synchronous_standbys("")?;
    let (_, told) = commit.end()?;
    let told = sqlstate(&told);
    ensure!(told != "00000", "a cancelled wait was taken for a vote");
    cluster.expect_committed(&[])?;
    wait_until_nothing_is_open(&cluster)
}

/// COMMIT that is cancelled while a vote is missing leaves nothing.
#[test]
fn a_commit_cancelled_before_its_decision() -> Result<()> {
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        let cluster = Cluster::start(2)?;
        let mut control = cluster.session()?;
        let mut client = cluster.session()?;
        begin(&mut client, 1)?;
        cluster.line(1).cut();
        let commit = Background::run(client, "COMMIT")?;
        cluster.wait_until_prepared(0)?;
        control.query(&format!("SELECT {function}($1)"), &[&commit.pid])?;
        let told = sqlstate(&commit.end()?.1);
        ensure!(told != "00000", "a vote was missing");
        cluster.line(1).heal();
        cluster.expect_committed(&[])?;
        wait_until_nothing_is_open(&cluster)?;
    }
    Ok(())
}

/// A NO is heard though another node does not answer.
#[test]
fn a_no_does_not_wait_for_other_votes() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.node(1).connect()?.batch_execute(REFUSE)?;
    let mut client = cluster.session()?;
    begin(&mut client, 13)?;
    cluster.line(0).cut();
    let commit = Background::run(client, "COMMIT")?;
    let (_, told) = commit.end()?;
    ensure!(sqlstate(&told) == "P0013", "{told:?}");
    cluster.line(0).heal();
    cluster.expect_committed(&[])
}
