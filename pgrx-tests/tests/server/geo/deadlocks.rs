//! Deadlocks that no server sees alone: the youngest transaction that waits at a node gets 40P01.
//! `txn.geo_lock_timeout` is 0, so that nothing else ends them.
use anyhow::{Context, Result, ensure};
use postgres::{Client, Error};
use txn_server_tests::{
    Background, Load, expect_followed, grouped, int, pid, sqlstate, start, until,
};

use super::load::transact;
use super::transactions::wait_until_nothing_is_open;
use super::{Cluster, Settings, transfer};

/// Of the coordinator: somebody looks after a wait of 100 ms. At the nodes nobody does.
pub const SETTINGS: Settings = &[("deadlock_timeout", "50ms"), ("txn.geo_lock_timeout", "0")];

/// At nodes their own detectors come too late for any test.
pub const NODE: Settings = &[("deadlock_timeout", "1h")];

/// A statement at both nodes, which prepare with it.
const MOVE: &str = "UPDATE account SET balance = balance WHERE id IN (1, 1001)";

pub fn cluster(nodes: usize) -> Result<Cluster> {
    Cluster::with(nodes, SETTINGS, NODE)
}

pub fn lock(id: i64) -> String {
    format!("UPDATE account SET balance = balance WHERE id = {id}")
}

/// A session whose transaction has locked that account.
fn holder(cluster: &Cluster, id: i64) -> Result<Client> {
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}", lock(id)))?;
    Ok(client)
}

/// A statement that waits.
pub fn waiting(cluster: &Cluster, client: Client, sql: &str) -> Result<Background> {
    let waiting = Background::run(client, sql)?;
    waiting.wait_until_blocked(&mut cluster.session()?)?;
    Ok(waiting)
}

pub fn deadlocks(cluster: &Cluster) -> Result<i64> {
    int(
        &mut cluster.session()?,
        "SELECT geo_deadlocks FROM txn.stats",
    )
}

pub fn expect(told: &Result<(), Error>, code: &str) -> Result<()> {
    let found = sqlstate(told);
    ensure!(found == code, "{found} instead of {code}: {told:?}");
    Ok(())
}

/// The victim has been told of all these; its session goes on.
fn expect_victim(waiting: Background, names: &[String]) -> Result<Client> {
    let (mut client, told) = waiting.end()?;
    expect(&told, "40P01")?;
    let error = told.expect_err("it has failed");
    let error = error.as_db_error().context("an error of the server")?;
    ensure!(error.message() == "deadlock detected", "{error:?}");
    ensure!(error.hint().is_some(), "{error:?}");
    let detail = error.detail().context("a detail")?;
    for name in names {
        ensure!(detail.contains(name), "no {name} in: {detail}");
    }
    client.batch_execute("ROLLBACK")?;
    Ok(client)
}

/// Waits until the resolver has looked so many times more.
pub fn wait_for_looks(cluster: &Cluster, more: i64) -> Result<()> {
    let looks = "SELECT coalesce(max(looks), 0) FROM txn.geo_resolver()";
    let mut client = cluster.session()?;
    let before = int(&mut client, looks)?;
    until(&mut client, "the resolver looks for deadlocks", |client| {
        Ok(int(client, looks)? >= before + more)
    })
}

#[test]
fn opposite_orders_at_two_nodes() -> Result<()> {
    let cluster = cluster(2)?;
    let old = holder(&cluster, 1)?;
    let young = holder(&cluster, 1001)?;
    let old = waiting(&cluster, old, &lock(1001))?;
    let first = old.pid;
    let young = Background::run(young, &lock(1))?;
    let names = [
        format!(
            "Process {} waits for process {first} at server \"node0\"",
            young.pid
        ),
        format!(
            "Process {first} waits for process {} at server \"node1\"",
            young.pid
        ),
    ];
    let mut young = expect_victim(young, &names)?;
    let (mut old, told) = old.end()?;
    expect(&told, "00000")?;
    old.batch_execute("INSERT INTO ledger VALUES (77); ROLLBACK")?;
    young.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    ensure!(deadlocks(&cluster)? == 1);
    wait_until_nothing_is_open(&cluster)?;
    cluster.expect_committed(&[1])
}

/// The transaction goes on, too: what it has locked before the savepoint it still has.
#[test]
fn within_a_savepoint() -> Result<()> {
    let cluster = cluster(2)?;
    let old = holder(&cluster, 1)?;
    let mut young = holder(&cluster, 1001)?;
    young.batch_execute("SAVEPOINT a")?;
    let old = waiting(&cluster, old, &lock(1001))?;
    let young = Background::run(young, &lock(1))?;
    let (mut young, told) = young.end()?;
    expect(&told, "40P01")?;
    young.batch_execute("ROLLBACK TO a; INSERT INTO trace_1 VALUES (5)")?;
    wait_for_looks(&cluster, 2)?;
    ensure!(!old.is_finished());
    young.batch_execute("COMMIT")?;
    let (mut old, told) = old.end()?;
    expect(&told, "00000")?;
    old.batch_execute("DELETE FROM trace_1; COMMIT")?;
    ensure!(deadlocks(&cluster)? == 1);
    cluster.expect_committed(&[])
}

#[test]
fn three_transactions_at_three_nodes() -> Result<()> {
    let cluster = cluster(3)?;
    let holders: Vec<Client> = [1, 1001, 2001]
        .into_iter()
        .map(|id| holder(&cluster, id))
        .collect::<Result<_>>()?;
    let mut all: Vec<Background> = Vec::new();
    for (client, id) in holders.into_iter().zip([1001, 2001, 1]) {
        all.push(Background::run(client, &lock(id))?);
    }
    let names: Vec<String> = all
        .iter()
        .map(|one| format!("Process {} waits", one.pid))
        .collect();
    let youngest = all.pop().context("three")?;
    expect_victim(youngest, &names)?;
    // The second one waited for it.
    for one in all.into_iter().rev() {
        let (mut client, told) = one.end()?;
        expect(&told, "00000")?;
        client.batch_execute("COMMIT")?;
    }
    ensure!(deadlocks(&cluster)? == 1);
    cluster.expect_committed(&[])
}

/// A session that waits here cannot be told, so it is the one at the node that fails, be it the
/// older one.
#[test]
fn a_lock_at_the_coordinator_and_one_at_a_node() -> Result<()> {
    let cluster = cluster(1)?;
    const LOCAL: &str = "SELECT pg_advisory_xact_lock(4711)";
    for local_first in [true, false] {
        let [mut local, mut remote] = [cluster.session()?, cluster.session()?];
        let mut begin = |is_local: bool| match is_local {
            true => local.batch_execute(&format!("BEGIN; SELECT count(*) FROM account; {LOCAL}")),
            false => remote.batch_execute(&format!("BEGIN; {}", lock(1))),
        };
        begin(local_first)?;
        begin(!local_first)?;
        let here = waiting(&cluster, remote, LOCAL)?;
        let names = [format!("Process {} waits for process", here.pid)];
        let there = Background::run(local, &lock(1))?;
        let coordinator = ["at the coordinator".to_owned()];
        expect_victim(there, &[&names[..], &coordinator[..]].concat())?;
        let (mut client, told) = here.end()?;
        expect(&told, "00000")?;
        client.batch_execute("COMMIT")?;
    }
    ensure!(deadlocks(&cluster)? == 2);
    Ok(())
}

/// A follower waits in COMMIT for the transaction whose hot row it has updated, and holds what that
/// one wants at a node.
#[test]
fn the_order_of_commits_and_a_lock_at_a_node() -> Result<()> {
    let cluster = cluster(1)?;
    let mut control = cluster.session()?;
    control.batch_execute(
        "CREATE TABLE hot (id int PRIMARY KEY, val int NOT NULL) USING heap;
         INSERT INTO hot VALUES (1, 0)",
    )?;
    const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
    let mut leader = grouped(&cluster.coordinator)?;
    leader.batch_execute(&format!("BEGIN; {BUMP}"))?;
    let mut follower = grouped(&cluster.coordinator)?;
    follower.batch_execute(&format!("BEGIN; {}; {BUMP}", lock(1)))?;
    expect_followed(&mut control, 1)?;
    let follower = waiting(&cluster, follower, "COMMIT")?;
    let leader = Background::run(leader, &lock(1))?;
    let names = [
        format!(
            "Process {} waits for process {} at server \"node0\"",
            leader.pid, follower.pid
        ),
        format!(
            "Process {} waits for process {} at the coordinator",
            follower.pid, leader.pid
        ),
    ];
    expect_victim(leader, &names)?;
    // It has built on what is gone now.
    let (_, told) = follower.end()?;
    expect(&told, "40001")?;
    ensure!(int(&mut control, "SELECT val FROM hot")? == 0);
    ensure!(deadlocks(&cluster)? == 1);
    wait_until_nothing_is_open(&cluster)
}

/// One that has prepared at a node and waits at the other one, before its decision: with its last
/// statement, and in COMMIT.
#[test]
fn a_prepared_holder() -> Result<()> {
    let cluster = cluster(2)?;
    let with_last = "BEGIN; SET LOCAL txn.geo_last = on".to_owned();
    let (first, second) = (lock(1), lock(1001));
    let deferred = format!("BEGIN; SET LOCAL txn.geo_defer = on; {first}; {second}");
    for (begin, prepare) in [(&with_last, MOVE), (&deferred, "COMMIT")] {
        for is_older in [true, false] {
            prepared_and_waiting(&cluster, begin, prepare, is_older)
                .with_context(|| format!("{prepare}, older: {is_older}"))?;
        }
    }
    ensure!(deadlocks(&cluster)? == 4);
    cluster.expect_committed(&[])
}

fn prepared_and_waiting(
    cluster: &Cluster,
    begin: &str,
    prepare: &str,
    is_older: bool,
) -> Result<()> {
    let mut prepared = cluster.session()?;
    if is_older {
        prepared.batch_execute(begin)?;
    }
    let other = holder(cluster, 1001)?;
    if !is_older {
        prepared.batch_execute(begin)?;
    }
    let prepared = Background::run(prepared, prepare)?;
    cluster.wait_until_prepared(0)?;
    let other = Background::run(other, &lock(1))?;
    let (victim, survivor) = match is_older {
        true => (other, prepared),
        false => (prepared, other),
    };
    expect_victim(victim, &[])?;
    let (mut client, told) = survivor.end()?;
    expect(&told, "00000")?;
    client.batch_execute("COMMIT")?;
    wait_until_nothing_is_open(cluster)
}

/// A transaction of a node's own stands between two of ours.
#[test]
fn a_local_transaction_of_a_node_in_between() -> Result<()> {
    let cluster = cluster(2)?;
    let old = holder(&cluster, 1)?;
    let young = holder(&cluster, 1001)?;
    let mut local = cluster.node(0).connect()?;
    local.batch_execute(&format!("BEGIN; {}", lock(2)))?;
    let names = [format!(" {} of server \"node0\"", pid(&mut local)?)];
    let old = waiting(&cluster, old, &lock(1001))?;
    let local = Background::run(local, &lock(1))?;
    local.wait_until_blocked(&mut cluster.node(0).connect()?)?;
    expect_victim(Background::run(young, &lock(2))?, &names)?;
    let (mut old, told) = old.end()?;
    expect(&told, "00000")?;
    old.batch_execute("COMMIT")?;
    expect(&local.end()?.1, "00000")?;
    ensure!(deadlocks(&cluster)? == 1);
    Ok(())
}

/// Long waits in a chain over both nodes and the coordinator, without a cycle.
#[test]
fn who_only_waits_long_is_left_alone() -> Result<()> {
    let cluster = cluster(2)?;
    let mut first = holder(&cluster, 1)?;
    first.batch_execute("SELECT pg_advisory_xact_lock(1)")?;
    let second = holder(&cluster, 1001)?;
    let second = waiting(&cluster, second, &lock(1))?;
    let third = holder(&cluster, 1002)?;
    let third = waiting(&cluster, third, &lock(1001))?;
    let fourth = waiting(
        &cluster,
        holder(&cluster, 2)?,
        "SELECT pg_advisory_xact_lock(1)",
    )?;
    wait_for_looks(&cluster, 5)?;
    ensure!(!second.is_finished() && !third.is_finished() && !fourth.is_finished());
    first.batch_execute("COMMIT")?;
    for one in [second, third, fourth] {
        let (mut client, told) = one.end()?;
        expect(&told, "00000")?;
        client.batch_execute("COMMIT")?;
    }
    ensure!(deadlocks(&cluster)? == 0);
    cluster.expect_committed(&[])
}

/// Each coordinator sees all of a cycle at nodes, and both choose the same victim.
#[test]
fn transactions_of_two_coordinators() -> Result<()> {
    let cluster = cluster(2)?;
    let mut settings = vec![("txn.geo_resolver_interval", "100ms")];
    settings.extend(SETTINGS);
    let second = start(&settings)?;
    let mut client = second.connect()?;
    for node in 0..2 {
        let (host, port) = (cluster.line(node).host(), cluster.line(node).port());
        client.batch_execute(&format!(
            "CREATE SERVER there{node} FOREIGN DATA WRAPPER txn_fdw
                 OPTIONS (host '{}', port '{port}', dbname 'postgres');
             CREATE USER MAPPING FOR PUBLIC SERVER there{node} OPTIONS (user 'postgres');
             CREATE FOREIGN TABLE account_{node} (id int, balance bigint)
                 SERVER there{node} OPTIONS (table_name 'account')",
            host.display()
        ))?;
    }
    let there = |node: usize, id: i64| {
        format!("UPDATE account_{node} SET balance = balance WHERE id = {id}")
    };
    for second_is_younger in [true, false] {
        let mut theirs = second.connect()?;
        let begin = format!("BEGIN; {}", there(1, 1001));
        if !second_is_younger {
            theirs.batch_execute(&begin)?;
        }
        let ours = holder(&cluster, 1)?;
        if second_is_younger {
            theirs.batch_execute(&begin)?;
        }
        let ours = Background::run(ours, &lock(1001))?;
        let theirs = Background::run(theirs, &there(0, 1))?;
        let (victim, survivor) = match second_is_younger {
            true => (theirs, ours),
            false => (ours, theirs),
        };
        expect_victim(victim, &["another coordinator".to_owned()])?;
        let (mut survivor, told) = survivor.end()?;
        expect(&told, "00000")?;
        survivor.batch_execute("COMMIT")?;
    }
    ensure!(deadlocks(&cluster)? == 1);
    let other = int(&mut client, "SELECT geo_deadlocks FROM txn.stats")?;
    ensure!(other == 1, "{other}");
    Ok(())
}

/// Users who may see nothing of each other, nor does the resolver by either's mapping.
#[test]
fn users_without_privileges_at_the_nodes() -> Result<()> {
    let cluster = cluster(2)?;
    let mut control = cluster.session()?;
    for role in ["one", "two"] {
        let create = format!("CREATE ROLE {role} LOGIN");
        control.batch_execute(&format!("{create}; GRANT ALL ON account TO {role}"))?;
        for node in 0..2 {
            let sql = format!("{create}; GRANT ALL ON account TO {role}");
            cluster.node(node).connect()?.batch_execute(&sql)?;
            control.batch_execute(&format!(
                "CREATE USER MAPPING FOR {role} SERVER node{node}
                 OPTIONS (user '{role}', password_required 'false')"
            ))?;
        }
    }
    control.batch_execute(
        "DROP USER MAPPING FOR PUBLIC SERVER node0; DROP USER MAPPING FOR PUBLIC SERVER node1",
    )?;
    let as_user = |role: &str, id: i64| -> Result<Client> {
        let mut client = cluster.session()?;
        client.batch_execute(&format!("SET ROLE {role}; BEGIN; {}", lock(id)))?;
        Ok(client)
    };
    let old = as_user("one", 1)?;
    let young = as_user("two", 1001)?;
    let old = waiting(&cluster, old, &lock(1001))?;
    expect_victim(Background::run(young, &lock(1))?, &[])?;
    expect(&old.end()?.1, "00000")?;
    ensure!(deadlocks(&cluster)? == 1);
    Ok(())
}

/// The youngest is known to wait long before it asks for a look itself.
#[test]
fn the_youngest_need_not_have_waited_for_long() -> Result<()> {
    let cluster = cluster(2)?;
    let patient = |limit: &str, id: i64| -> Result<Client> {
        let mut client = cluster.session()?;
        client.batch_execute(&format!(
            "SET deadlock_timeout = '{limit}'; BEGIN; {}",
            lock(id)
        ))?;
        Ok(client)
    };
    let old = patient("500ms", 1)?;
    let young = patient("5s", 1001)?;
    let young = waiting(&cluster, young, &lock(1))?;
    let old = Background::run(old, &lock(1001))?;
    expect_victim(young, &[])?;
    expect(&old.end()?.1, "00000")?;
    ensure!(deadlocks(&cluster)? == 1);
    Ok(())
}

/// Many at a time, some of which are no deadlocks of ours: all end.
#[test]
fn under_load() -> Result<()> {
    let cluster = Cluster::with(2, SETTINGS, &[("deadlock_timeout", "50ms")])?;
    let tally = Load::new(&cluster.coordinator, 16, 40).run(|worker| {
        cluster.dog.progress();
        transact(worker)
    })?;
    ensure!(tally.in_doubt == 0, "a connection broke: {tally:?}");
    tally.only(&["40P01"])?;
    tally.explains(cluster.committed()?.len() as i64)
}
