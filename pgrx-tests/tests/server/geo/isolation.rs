//! What a transaction sees of others at one node, at each level.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, sqlstate, text};

use super::Cluster;

const BALANCE: &str = "SELECT balance FROM account WHERE id = 1";
const BUMP: &str = "UPDATE account SET balance = balance + 1 WHERE id = 1";

fn balance(client: &mut Client) -> Result<i64> {
    int(client, BALANCE)
}

#[test]
fn read_committed_sees_what_has_committed() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let (mut a, mut b) = (cluster.session()?, cluster.session()?);
    a.batch_execute("BEGIN")?;
    ensure!(balance(&mut a)? == 101);
    b.batch_execute(BUMP)?;
    ensure!(balance(&mut a)? == 102, "a snapshot was kept");
    b.batch_execute(&format!("BEGIN; {BUMP}"))?;
    ensure!(balance(&mut a)? == 102, "what has not committed was seen");
    ensure!(balance(&mut b)? == 103, "an own change was not seen");
    b.batch_execute("COMMIT")?;
    a.batch_execute(BUMP)?;
    ensure!(balance(&mut a)? == 104, "an update was lost");
    a.batch_execute("COMMIT")?;
    cluster.wait_until_resolved()
}

/// An update that waits for another one goes on from what has committed.
#[test]
fn read_committed_updates_what_has_committed_meanwhile() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut first = cluster.session()?;
    first.batch_execute(&format!("BEGIN; {BUMP}"))?;
    let mut second = cluster.session()?;
    second.batch_execute("BEGIN; SELECT sum(balance) FROM account")?;
    let second = Background::run(second, BUMP)?;
    txn_server_tests::wait_until(
        &mut cluster.node(0).connect()?,
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    )?;
    first.batch_execute("COMMIT")?;
    let (mut second, told) = second.end()?;
    told?;
    second.batch_execute("COMMIT")?;
    ensure!(balance(&mut second)? == 103, "an update was lost");
    Ok(())
}

#[test]
fn repeatable_read_keeps_its_snapshot_of_a_node() -> Result<()> {
    let cluster = Cluster::start(2)?;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (mut a, mut b) = (cluster.session()?, cluster.session()?);
        let before = balance(&mut b)?;
        a.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        ensure!(balance(&mut a)? == before);
        b.batch_execute(BUMP)?;
        ensure!(
            balance(&mut a)? == before,
            "{level}: the snapshot was not kept"
        );
        a.batch_execute("SAVEPOINT a")?;
        let told = sqlstate(&a.batch_execute(BUMP));
        ensure!(told == "40001", "{level}: {told}");
        a.batch_execute("ROLLBACK TO a")?;
        ensure!(
            balance(&mut a)? == before,
            "{level}: the snapshot was not kept"
        );
        a.batch_execute("COMMIT")?;
        ensure!(balance(&mut a)? == before + 1);
    }
    Ok(())
}

/// Two scans of one node in one SELECT see one state of it, whatever commits between them.
#[test]
fn a_select_has_one_snapshot_of_a_node() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    control.batch_execute(
        "CREATE FUNCTION pause() RETURNS int LANGUAGE plpgsql VOLATILE AS $$
         BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN 1; END $$",
    )?;
    let selects = [
        "SELECT (SELECT balance FROM account_0 WHERE id = 1), pause(),
                (SELECT balance FROM account_0 WHERE id = 1)",
        "SELECT a.balance, a.pause, b.balance
         FROM (SELECT balance, pause() FROM account_0 WHERE id = 1 OFFSET 0) a,
              LATERAL (SELECT balance FROM account_0 WHERE id = a.pause OFFSET 0) b",
    ];
    for sql in selects {
        control.batch_execute("SELECT pg_advisory_lock(7)")?;
        let mut client = cluster.session()?;
        let pid = txn_server_tests::pid(&mut client)?;
        let select = Background::call(client, pid, move |client| {
            let row = client.query_one(sql, &[])?;
            Ok((row.get::<_, i64>(0), row.get::<_, i64>(2)))
        });
        select.wait_until_blocked(&mut control)?;
        cluster.node(0).connect()?.batch_execute(BUMP)?;
        control.batch_execute("SELECT pg_advisory_unlock(7)")?;
        let (first, second) = select.end()?.1?;
        ensure!(first == second, "{first} and {second}: {sql}");
    }
    Ok(())
}

/// In a transaction that has written at the node such a SELECT is refused or right.
#[test]
fn a_select_of_several_scans_after_a_write() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {BUMP}; SAVEPOINT a"))?;
    let sql = "SELECT (SELECT balance FROM account_0 WHERE id = 1) || ' ' ||
                      (SELECT max(balance) FROM account_0 WHERE id <= 1)";
    let told = client.simple_query(sql);
    match sqlstate(&told).as_str() {
        "00000" => {
            let found = text(&mut client, sql)?;
            ensure!(found == "102 102", "own changes were not seen: {found}");
        }
        "0A000" => client.batch_execute("ROLLBACK TO a")?,
        other => anyhow::bail!("{other}"),
    }
    client.batch_execute("COMMIT")?;
    ensure!(balance(&mut client)? == 102);
    Ok(())
}

/// A transaction that is READ ONLY is so at the nodes, whatever their functions do.
#[test]
fn read_only_holds_at_the_node() -> Result<()> {
    let cluster = Cluster::start(2)?;
    cluster.node(0).connect()?.batch_execute(
        "CREATE FUNCTION wrote() RETURNS int LANGUAGE plpgsql VOLATILE AS $$
         BEGIN INSERT INTO public.trace VALUES (1); RETURN 1; END $$;
         CREATE VIEW writer AS SELECT wrote() AS one",
    )?;
    let mut client = cluster.session()?;
    client.batch_execute(
        "CREATE FOREIGN TABLE writer (one int) SERVER node0 OPTIONS (table_name 'writer')",
    )?;
    let told = sqlstate(&client.simple_query("BEGIN READ ONLY; SELECT one FROM writer"));
    ensure!(told == "25006", "{told}");
    client.batch_execute("ROLLBACK")?;
    ensure!(int(&mut client, "SELECT count(*) FROM trace_0")? == 0);
    // In any other transaction what the function has written commits.
    client.batch_execute("SELECT one FROM writer")?;
    ensure!(int(&mut client, "SELECT count(*) FROM trace_0")? == 1);
    Ok(())
}
