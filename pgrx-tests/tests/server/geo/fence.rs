//! A server that acts under the name of a coordinator which is still there.
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use txn_server_tests::{Background, int, sqlstate, start, text, until, wait_until};

use super::{Cluster, transfer};

/// Another server with the same name that takes itself for the original, as a copy of a whole
/// machine would: it ends nothing and prepares nothing while the original has its lock at the
/// nodes, and goes on when that is gone.
#[test]
fn a_second_server_of_the_same_name_waits() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut original = cluster.session()?;
    original.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    let second = start(&[("txn.geo_resolver_interval", "100ms")])?;
    cluster.attach(&second, "txn_fdw")?;
    let mut copy = second.connect()?;
    // What a copy has with its original, and what this one is given.
    let mappings = "SELECT string_agg(oid::text, ' ' ORDER BY oid) FROM pg_user_mapping";
    ensure!(text(&mut original, mappings)? == text(&mut copy, mappings)?);
    let name = text(&mut original, "SELECT uuid FROM txn.geo_coordinator")?;
    let directory = std::fs::metadata(second.data_dir().join("PG_VERSION"))?.ino();
    copy.batch_execute(&format!(
        "INSERT INTO txn.geo_coordinator
             (uuid, incarnation, system_identifier, timeline, database, directory)
         SELECT '{name}', 1000, system_identifier, timeline_id,
             (SELECT oid FROM pg_database WHERE datname = current_database()), {directory}
         FROM pg_control_system(), pg_control_checkpoint()"
    ))?;
    let mut stopped = cluster.stop_at("geo_prepared", 2)?;
    let before = cluster.prepared()?;
    // The first use starts the resolver; a session that waits for it may be told, too.
    let told = sqlstate(&copy.batch_execute("SELECT count(*) FROM account"));
    ensure!(["00000", "55000"].contains(&&*told), "{told}");
    let paused = "SELECT phase = 'paused' FROM txn.geo_resolver()";
    wait_until(&mut copy, paused)?;
    copy.batch_execute("SELECT count(*) FROM account")?;
    copy.batch_execute("UPDATE account SET balance = balance WHERE id = 1005")?;
    copy.batch_execute(&format!("BEGIN; {}", transfer(3)))?;
    let refused = copy.batch_execute("COMMIT");
    ensure!(sqlstate(&refused) == "55000", "{refused:?}");
    let detail = refused
        .err()
        .and_then(|error| error.as_db_error()?.detail().map(str::to_owned));
    ensure!(detail.is_some_and(|detail| detail.contains("another session holds the lock")));
    std::thread::sleep(std::time::Duration::from_secs(1));
    ensure!(cluster.prepared()? == before, "{before:?}");
    wait_until(&mut copy, paused)?;
    stopped.release()?;
    stopped.end()?.1?;
    original.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(4)))?;
    cluster.expect_committed(&[1, 2, 4])?;
    cluster.coordinator.kill9_all()?;
    wait_until(&mut copy, "SELECT phase = 'ready' FROM txn.geo_resolver()")?;
    copy.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(5)))
        .context("the original is gone")
}

/// A coordinator that has crashed comes back before a node has noticed that the resolver's former
/// session is gone: sessions wait until it is, and none is told that this server may be a copy.
#[test]
fn its_former_session_at_a_node_is_waited_for() -> Result<()> {
    let mut cluster = Cluster::with(2, &[("txn.geo_connect_timeout", "5min")], &[])?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    let key = int(
        &mut client,
        "SELECT ('x' || right(replace(uuid::text, '-', ''), 16))::bit(64)::bigint # m.umid::bigint
         FROM txn.geo_coordinator, pg_user_mappings m WHERE m.srvname = 'node0'",
    )?;
    // In the place of the former session: gets the lock as soon as that ends.
    let former = cluster.node(0).connect()?;
    let former = Background::run(former, &format!("SELECT pg_advisory_lock({key})"))?;
    former.wait_until_blocked(&mut cluster.node(0).connect()?)?;
    cluster.kill_coordinator()?;
    let (mut former, locked) = former.end()?;
    locked?;
    let asked = |cluster: &Cluster| -> Result<usize> {
        Ok(cluster
            .node(0)
            .log()?
            .matches("pg_try_advisory_lock")
            .count())
    };
    let before = asked(&cluster)?;
    let sql = format!("BEGIN; {}; COMMIT", transfer(2));
    let waiting = Background::run(cluster.session()?, &sql)?;
    let mut control = cluster.session()?;
    until(&mut control, "the lock was asked for three times", |_| {
        Ok(asked(&cluster)? >= before + 3)
    })?;
    let phase = text(&mut control, "SELECT phase FROM txn.geo_resolver()")?;
    ensure!(phase == "starting", "{phase}");
    ensure!(!waiting.is_finished(), "it has not waited");
    former.batch_execute("SELECT pg_advisory_unlock_all()")?;
    waiting.end()?.1.context("the lock is free")?;
    cluster.expect_committed(&[1, 2])
}
