//! The connections of a session: that are not kept, that are out of date, that answer late.
use anyhow::{Context, Result, ensure};
use pgserver::StopMode;
use postgres::Client;
use txn_server_tests::{Background, int, sqlstate, until, wait_until};

use super::transactions::wait_until_nothing_is_open;
use super::{Cluster, Settings, listening, transfer};

/// Its resolver is silent: what is applied, a session has applied.
const SILENT: Settings = &[
    ("txn.geo_resolver_interval", "1h"),
    ("txn.geo_schedule", "off"),
];

const MOVE: &str = "UPDATE account SET balance = balance + CASE WHEN id < 1000 THEN -1 ELSE 1 END
                    WHERE id IN (1, 1001)";

fn woken(cluster: &Cluster, expected: &[i64]) -> Result<()> {
    cluster.session()?.batch_execute("SELECT txn.geo_wake()")?;
    cluster.expect_committed(expected)
}

/// They are closed at the end of the transaction, after the COMMIT PREPARED.
#[test]
fn connections_that_are_not_kept() -> Result<()> {
    let cluster = Cluster::with(2, SILENT, &[])?;
    let mut control = cluster.session()?;
    for node in 0..2 {
        let alter = format!("ALTER SERVER node{node} OPTIONS (ADD keep_connections 'off')");
        control.batch_execute(&alter)?;
    }
    int(&mut control, "SELECT count(*) FROM account")?;
    wait_until(&mut control, "SELECT passes > 0 FROM txn.geo_resolver()")?;
    let (mut client, notices) = listening(&cluster.coordinator)?;
    let blocks = [
        format!("BEGIN; {}; COMMIT", transfer(1)),
        format!(
            "BEGIN; {}; SAVEPOINT a; {MOVE}; ROLLBACK TO a; COMMIT",
            transfer(2)
        ),
        MOVE.to_owned(),
        format!("BEGIN; {}; ROLLBACK", transfer(3)),
        "SELECT count(*) FROM account".to_owned(),
    ];
    for sql in &blocks {
        for node in 0..2 {
            cluster.line(node).reset_counts();
        }
        client.batch_execute(sql)?;
        let opened = [0, 1].map(|node| cluster.line(node).connections());
        ensure!(opened == [1, 1], "{opened:?} connections: {sql}");
        ensure!(cluster.prepared()?.is_empty(), "not applied: {sql}");
        let kept = int(&mut client, "SELECT sum(connections) FROM txn.geo_nodes")?;
        ensure!(kept == 0, "{kept} connections are kept: {sql}");
    }
    let notices = notices.lock().expect("nobody panics with it").clone();
    ensure!(notices.is_empty(), "{notices:?}");
    woken(&cluster, &[1, 2])
}

/// Where node 1 cannot be reached, or not as that user, and how that is undone.
const LOST: [(&str, &str); 3] = [
    (
        "ALTER SERVER node1 OPTIONS (SET dbname 'nowhere')",
        "ALTER SERVER node1 OPTIONS (SET dbname 'postgres')",
    ),
    (
        "ALTER USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (SET user 'nobody')",
        "ALTER USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (SET user 'postgres')",
    ),
    (
        "DROP USER MAPPING FOR PUBLIC SERVER node1",
        "CREATE USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (user 'postgres')",
    ),
];

/// The session cannot use node 1 any more, and then it can.
fn expect_lost(client: &mut Client, undo: &str) -> Result<()> {
    let told = sqlstate(&client.batch_execute("SELECT count(*) FROM account_1"));
    ensure!(["08001", "42704"].contains(&&*told), "{told}");
    client.batch_execute(undo)?;
    client.batch_execute("SELECT count(*) FROM account_1")?;
    Ok(())
}

/// A transaction ends as it has begun, on its connections, whatever others do to the catalogs. The
/// next one goes by the catalogs.
#[test]
fn catalogs_that_others_change_in_mid_transaction() -> Result<()> {
    let cluster = Cluster::with(2, SILENT, &[])?;
    let mut control = cluster.session()?;
    let mut client = cluster.session()?;
    let mut expected = Vec::new();
    for (number, (change, undo)) in (1..).zip(LOST) {
        client.batch_execute(&format!("BEGIN; {}", transfer(number)))?;
        control.batch_execute(change)?;
        client.batch_execute("COMMIT").context(change)?;
        ensure!(cluster.prepared()?.is_empty(), "not applied: {change}");
        expected.push(number);
        expect_lost(&mut client, undo)?;
        // With a statement in between, which may fail, and then leaves nothing.
        let number = number + 10;
        client.batch_execute(&format!("BEGIN; {}", transfer(number)))?;
        control.batch_execute(change)?;
        let read = client.batch_execute("SELECT count(*) FROM account_1");
        ensure!(["00000", "42704"].contains(&&*sqlstate(&read)), "{read:?}");
        client.batch_execute("COMMIT").context(change)?;
        if read.is_ok() {
            expected.push(number);
        }
        expect_lost(&mut client, undo)?;
        expected.sort_unstable();
        woken(&cluster, &expected)?;
    }
    wait_until_nothing_is_open(&cluster)
}

#[test]
fn catalogs_that_the_transaction_itself_changes() -> Result<()> {
    let cluster = Cluster::with(2, SILENT, &[])?;
    let mut client = cluster.session()?;
    let mut expected = Vec::new();
    for (number, (change, undo)) in (1..).zip(LOST) {
        client.batch_execute(&format!("BEGIN; {}; {change}; ROLLBACK", transfer(number)))?;
        client.batch_execute(&format!("BEGIN; {}; {change}; COMMIT", transfer(number)))?;
        ensure!(cluster.prepared()?.is_empty(), "not applied: {change}");
        expected.push(number);
        expect_lost(&mut client, undo)?;
        woken(&cluster, &expected)?;
    }
    // Another mapping is another connection, and another part of the same transaction.
    let (drop, create) = LOST[2];
    client.batch_execute(&format!(
        "BEGIN; UPDATE account SET balance = balance WHERE id = 1005; {drop}; {create}; {}; COMMIT",
        transfer(4)
    ))?;
    expected.push(4);
    woken(&cluster, &expected)?;
    wait_until_nothing_is_open(&cluster)
}

/// A session that drops a server waits for the transactions that use its tables; a transaction
/// that drops a server where it has written commits there all the same.
#[test]
fn servers_that_are_dropped() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}", transfer(1)))?;
    let other = Background::run(cluster.session()?, "DROP SERVER node1 CASCADE")?;
    other.wait_until_blocked(&mut control)?;
    client.batch_execute("COMMIT")?;
    other.end()?.1?;
    cluster.expect_committed(&[1])?;
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let drop = "DROP SERVER node0 CASCADE; DROP SERVER node1 CASCADE";
    client.batch_execute(&format!("BEGIN; {}; {drop}; ROLLBACK", transfer(1)))?;
    client.batch_execute(&format!("BEGIN; {}; {drop}; COMMIT", transfer(2)))?;
    ensure!(cluster.prepared()?.is_empty(), "not applied");
    let found = cluster.all_or_nothing()?;
    ensure!(found.iter().eq(&[2]), "{found:?}");
    // Nobody can be asked about them, and nobody has to be: all have acknowledged.
    let rows = "SELECT count(*) = 0 FROM txn.geo_decision";
    wait_until(&mut client, rows)
}

/// Answers for which nobody waits come while the connection is idle: they are nothing of the next
/// transaction's, which commits in one phase.
#[test]
fn late_answers_are_not_of_the_next_transaction() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute("SET txn.geo_apply_timeout = 0; SELECT count(*) FROM account")?;
    for line in &cluster.lines {
        line.set_delay(std::time::Duration::from_millis(20));
    }
    for number in 1..=3 {
        client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))?;
        client.batch_execute(
            "SELECT count(*) FROM account;
             UPDATE account SET balance = balance WHERE id = 1005",
        )?;
    }
    let asked = [cluster.asked_to_prepare(0)?, cluster.asked_to_prepare(1)?];
    ensure!(asked == [3, 3], "{asked:?}");
    cluster.expect_committed(&[1, 2, 3])
}

/// A node that was shut down in good order while the session was idle has said so on its
/// connections, and is found again.
#[test]
fn a_node_that_was_shut_down_between_transactions() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    for statement in [MOVE, "SELECT count(*) FROM account", MOVE] {
        cluster.nodes[1].stop(StopMode::Fast)?;
        cluster.start_node(1)?;
        client.batch_execute(statement)?;
    }
    cluster.expect_committed(&[1])
}

/// Runs `sql`, whose first command for node 1 comes to nothing: nothing of it arrives before the
/// connection breaks.
fn broken(cluster: &Cluster, client: Client, sql: &str) -> Result<(Client, String)> {
    let mut control = cluster.session()?;
    cluster.line(1).cut();
    let statement = Background::run(client, sql)?;
    statement.wait_until_blocked(&mut control)?;
    cluster.line(1).break_connections();
    cluster.line(1).heal();
    let (client, told) = statement.end()?;
    Ok((client, sqlstate(&told)))
}

/// A connection that was kept turns out to be dead with the transaction's first commands at the
/// node: they are sent once more, on a new one.
#[test]
fn a_kept_connection_that_turns_out_to_be_dead() -> Result<()> {
    let cluster = Cluster::with(2, SILENT, &[])?;
    let mut client = cluster.session()?;
    let update = "UPDATE account SET balance = balance + 1 WHERE id = 1001";
    let done = [
        update.to_owned(),
        format!("BEGIN; {update}; COMMIT"),
        format!("BEGIN; SAVEPOINT a; {update}; RELEASE a; COMMIT"),
        format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {update}; COMMIT"),
        format!("BEGIN; SELECT count(*) FROM account; {update}; COMMIT"),
        format!("SELECT count(*) FROM account_1, trace_1; {update}"),
        format!("DO $$ BEGIN PERFORM count(*) FROM account; {update}; END $$"),
    ];
    for sql in &done {
        // One connection for the transaction, and one for several reads.
        client.batch_execute(
            "SELECT count(*) FROM account; SELECT count(*) FROM account_1, trace_1",
        )?;
        let told;
        (client, told) = broken(&cluster, client, sql)?;
        ensure!(told == "00000", "{told}: {sql}");
    }
    let balance = int(&mut client, "SELECT balance FROM account WHERE id = 1001")?;
    ensure!(balance == 101 + done.len() as i64, "{balance}");
    wait_until_nothing_is_open(&cluster)
}

/// Where the node may have prepared, or has answered in this transaction, nothing is repeated.
#[test]
fn what_may_have_had_an_effect_is_not_repeated() -> Result<()> {
    let cluster = Cluster::with(2, SILENT, &[])?;
    let mut client = cluster.session()?;
    client.batch_execute("SELECT count(*) FROM account")?;
    let told;
    (client, told) = broken(&cluster, client, MOVE)?;
    ensure!(told == "08006", "{told}");
    let read = "SELECT count(*) FROM account_1";
    client.batch_execute(&format!("BEGIN; {read}"))?;
    let told;
    (client, told) = broken(&cluster, client, read)?;
    ensure!(told == "08006", "{told}");
    client.batch_execute("ROLLBACK")?;
    // Nor what a savepoint has taken back meanwhile.
    client.batch_execute(read)?;
    let code = format!(
        "BEGIN; DO $$ BEGIN
             BEGIN {read}; EXCEPTION WHEN query_canceled THEN NULL; END;
             {};
         END $$",
        transfer(1)
    )
    .replace(read, "PERFORM count(*) FROM account_1");
    let mut control = cluster.session()?;
    cluster.line(1).cut();
    let statement = Background::run(client, &code)?;
    statement.wait_until_blocked(&mut control)?;
    control.query("SELECT pg_cancel_backend($1)", &[&statement.pid])?;
    cluster.line(1).break_connections();
    cluster.line(1).heal();
    let (mut client, told) = statement.end()?;
    ensure!(sqlstate(&told) != "00000", "{told:?}");
    client.batch_execute("ROLLBACK")?;
    cluster.session()?.batch_execute("SELECT txn.geo_wake()")?;
    cluster.expect_committed(&[])?;
    wait_until_nothing_is_open(&cluster)
}

/// A node that is starting is waited for, as long as connecting may take.
#[test]
fn a_node_that_is_starting() -> Result<()> {
    // Its recovery goes on when there is a file.
    let waits = "until test -e go; do sleep 0.02; done; false";
    let mut cluster = Cluster::with(2, SILENT, &[("restore_command", waits)])?;
    let mut client = cluster.session()?;
    client.batch_execute("SELECT count(*) FROM account")?;
    cluster.nodes[1].kill9_all()?;
    let folder = cluster.node(1).data_dir().to_owned();
    let signal = folder.join("recovery.signal");
    std::fs::write(&signal, "")?;
    cluster.node(1).user().own(&signal)?;
    let config = cluster.node(1).config("postgres", "postgres");
    let mut control = cluster.session()?;
    let node = &mut cluster.nodes[1];
    std::thread::scope(|scope| {
        let start = scope.spawn(move || node.start_again());
        until(&mut control, "the node is starting", |_| {
            let told = config.connect(postgres::NoTls).map(drop);
            Ok(sqlstate(&told) == "57P03")
        })?;
        client.batch_execute("SET txn.geo_connect_timeout = '300ms'")?;
        // A slow machine may have no answer from the node in that time.
        until(&mut control, "the node's answer is told", |_| {
            let told = client.batch_execute("SELECT count(*) FROM account");
            ensure!(sqlstate(&told) == "08001", "{told:?}");
            let text = format!("{told:?}");
            ensure!(!text.contains("57P03") && !text.contains(".c:"), "{text}");
            Ok(text.contains("FATAL:  the database system"))
        })?;
        client.batch_execute("SET txn.geo_connect_timeout = '40s'")?;
        let read = Background::run(client, "SELECT count(*) FROM account")?;
        read.wait_until_blocked(&mut control)?;
        std::fs::write(folder.join("go"), "")?;
        read.end()?.1.context("the node has started")?;
        start.join().expect("it does not panic")
    })
}
