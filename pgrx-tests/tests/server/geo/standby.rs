//! A coordinator with a synchronous standby: nothing is applied that the standby has not confirmed.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pgserver::Standby;
use txn_server_tests::{Background, int, local, pid, until};

use super::{Cluster, Notices, listening, transfer};

const DELAY: Duration = Duration::from_millis(2);

/// A cluster whose coordinator has a standby for which commits wait.
fn cluster(settings: super::Settings) -> Result<(Cluster, Standby)> {
    let cluster = Cluster::with(2, settings, &[])?;
    let standby = Standby::attach(&cluster.coordinator, "a", DELAY)?;
    cluster.coordinator.set_synchronous_standbys("a")?;
    // The first use of a node gives the coordinator its name, which its standby has to have.
    int(&mut cluster.session()?, "SELECT count(*) FROM account")?;
    Ok((cluster, standby))
}

/// COMMIT of transfer `number`, which waits for the standby whose line is cut, with what it was
/// told beside the result.
fn waiting_commit(cluster: &Cluster, begin: &str, number: i64) -> Result<(Background, Notices)> {
    let (mut client, notices) = listening(&cluster.coordinator)?;
    client.batch_execute(&format!("{begin}; {}", transfer(number)))?;
    let pid = pid(&mut client)?;
    let commit = Background::call(client, pid, |client| client.batch_execute("COMMIT"));
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = {pid}"
    );
    let mut control = local(&cluster.coordinator)?;
    until(&mut control, "COMMIT waits for the standby", |control| {
        ensure!(!commit.is_finished(), "COMMIT did not wait for the standby");
        Ok(int(control, &waits)? == 1)
    })?;
    Ok((commit, notices))
}

/// Both parts are prepared, and stay so.
fn expect_prepared(cluster: &Cluster) -> Result<()> {
    for _ in 0..10 {
        let prepared = cluster.prepared()?;
        ensure!(prepared.len() == 2, "they were ended: {prepared:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn nothing_applied_early(session: &'static str) -> Result<()> {
    let (cluster, standby) = cluster(&[])?;
    let hot = "CREATE TABLE hot (id int PRIMARY KEY, val bigint); INSERT INTO hot VALUES (1, 0)";
    cluster.session()?.batch_execute(hot)?;
    standby.line()?.cut();
    let begin = format!("{session}; BEGIN; UPDATE hot SET val = val + 1 WHERE id = 1");
    let (commit, _) = waiting_commit(&cluster, &begin, 1)?;
    expect_prepared(&cluster)?;
    ensure!(!commit.is_finished(), "COMMIT did not wait for the standby");
    standby.line()?.heal();
    commit.end()?.1?;
    cluster.expect_committed(&[1])
}

#[test]
fn nothing_is_applied_before_the_standby_has_it() -> Result<()> {
    nothing_applied_early("SELECT 1")
}

/// A local row is visible to others before the standby has the commit; the nodes still wait.
#[test]
fn nothing_is_applied_with_early_visibility_either() -> Result<()> {
    nothing_applied_early("SET txn.group_lock = on; SET txn.hot_threshold = 0")
}

/// A wait that is cancelled is a WARNING, the transaction has committed here, and its parts stay
/// prepared until the standby has the decision.
#[test]
fn a_cancelled_wait_leaves_the_rest_to_the_resolver() -> Result<()> {
    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        let (cluster, standby) = cluster(&[])?;
        standby.line()?.cut();
        let (commit, notices) = waiting_commit(&cluster, "BEGIN", 1)?;
        let mut control = local(&cluster.coordinator)?;
        control.query(&format!("SELECT {function}($1)"), &[&commit.pid])?;
        let (_, told) = commit.end()?;
        if function == "pg_cancel_backend" {
            told.context("COMMIT with a cancelled wait")?;
            let notices = notices.lock().expect("nobody panics with it").clone();
            ensure!(
                notices.iter().any(|line| line.starts_with("WARNING")),
                "{notices:?}"
            );
        }
        expect_prepared(&cluster)?;
        standby.line()?.heal();
        cluster.expect_committed(&[1])?;
    }
    Ok(())
}

/// The coordinator is lost, and its standby takes over: without the decision, with it, and only
/// when it is told to.
fn promoted(decision_arrives: bool) -> Result<()> {
    let (mut cluster, standby) = cluster(&[])?;
    let mut expected = Vec::new();
    if decision_arrives {
        let stopped = cluster.stop_at("geo_decided", 1)?;
        expected.push(1);
        cluster.coordinator.kill9_all()?;
        drop(stopped);
    } else {
        standby.line()?.cut();
        let (commit, _) = waiting_commit(&cluster, "BEGIN", 1)?;
        let mut control = local(&cluster.coordinator)?;
        control.query("SELECT pg_cancel_backend($1)", &[&commit.pid])?;
        commit.end()?.1.context("COMMIT with a cancelled wait")?;
        expect_prepared(&cluster)?;
        cluster.coordinator.kill9_all()?;
    }
    cluster.coordinator = standby.promote()?;
    cluster.coordinator.set_synchronous_standbys("")?;
    // Another server than the one that has written the decisions: it waits for a word.
    expect_prepared(&cluster)?;
    cluster
        .session()?
        .batch_execute("SELECT txn.geo_take_over()")?;
    cluster.expect_committed(&expected)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(2)))?;
    expected.push(2);
    cluster.expect_committed(&expected)
}

#[test]
fn a_promoted_standby_without_the_decision_rolls_back() -> Result<()> {
    promoted(false)
}

#[test]
fn a_promoted_standby_with_the_decision_commits() -> Result<()> {
    promoted(true)
}
