//! Foreign tables of postgres_fdw that are ours after their wrapper's handler is changed.
use anyhow::{Result, ensure};
use txn_server_tests::{int, sqlstate, start, text};

use super::sql::BLOCKS;
use super::twin::Twin;
use super::{Cluster, transfer};

const ADOPT: &str = "ALTER FOREIGN DATA WRAPPER postgres_fdw
                     HANDLER txn.fdw_handler VALIDATOR txn.fdw_validator";

fn cluster() -> Result<Cluster> {
    let coordinator = start(&[("txn.geo_resolver_interval", "100ms")])?;
    let mut client = coordinator.connect()?;
    client.batch_execute("CREATE EXTENSION IF NOT EXISTS postgres_fdw")?;
    Cluster::of(coordinator, 2, &[], "postgres_fdw")
}

#[test]
fn adopted_tables_commit_as_one() -> Result<()> {
    let mut cluster = cluster()?;
    let mut client = cluster.session()?;
    client.batch_execute(ADOPT)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    let stopped = cluster.stop_at("geo_prepared", 2)?;
    cluster.kill_coordinator()?;
    drop(stopped);
    let stopped = cluster.stop_at("geo_decided", 3)?;
    cluster.kill_coordinator()?;
    drop(stopped);
    cluster.expect_committed(&[1, 3])?;
    let mut client = cluster.session()?;
    client.batch_execute("ALTER FOREIGN TABLE account_0 OPTIONS (ADD key 'id')")?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(4)))?;
    cluster.expect_committed(&[1, 3, 4])
}

#[test]
fn adopted_tables_behave_as_ours() -> Result<()> {
    let mut twin = Twin::on(cluster()?, ADOPT)?;
    twin.play(BLOCKS)?;
    twin.cluster.wait_until_resolved()
}

/// Writes by postgres_fdw itself commit before our decision, so both kinds in one transaction are
/// refused; reading is not.
#[test]
fn stock_tables_beside_ours() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let line = cluster.line(1);
    client.batch_execute(&format!(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw;
         CREATE SERVER stock FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{}', port '{}', dbname 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER stock OPTIONS (user 'postgres');
         CREATE FOREIGN TABLE stock (number bigint) SERVER stock OPTIONS (table_name 'trace')",
        line.host().display(),
        line.port()
    ))?;
    client.batch_execute("INSERT INTO stock VALUES (1); DELETE FROM stock")?;
    client.batch_execute(&format!(
        "BEGIN; {}; SELECT count(*) FROM ledger; COMMIT",
        transfer(2)
    ))?;
    let sql = format!("BEGIN; {}; INSERT INTO stock VALUES (99)", transfer(3));
    let told = match sqlstate(&client.batch_execute(&sql)).as_str() {
        "00000" => sqlstate(&client.batch_execute("COMMIT")),
        other => other.to_owned(),
    };
    ensure!(told == "0A000", "{told}");
    client.batch_execute("ROLLBACK")?;
    cluster.expect_committed(&[2])
}

/// Where the wrapper has been given back to postgres_fdw its servers are not ours.
#[test]
fn nodes_are_those_whose_wrapper_is_ours() -> Result<()> {
    let cluster = cluster()?;
    let mut client = cluster.session()?;
    ensure!(int(&mut client, "SELECT count(*) FROM txn.geo_nodes")? == 0);
    client.batch_execute(ADOPT)?;
    let nodes = "SELECT string_agg(node::text, ' ' ORDER BY node) FROM txn.geo_nodes";
    ensure!(text(&mut client, nodes)? == "node0 node1");
    client.batch_execute(
        "ALTER FOREIGN DATA WRAPPER postgres_fdw
         HANDLER postgres_fdw_handler VALIDATOR postgres_fdw_validator",
    )?;
    ensure!(int(&mut client, "SELECT count(*) FROM txn.geo_nodes")? == 0);
    Ok(())
}
