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

/// Rows that are routed to partitions of both wrappers, by INSERT, COPY or an UPDATE that moves
/// them, and TRUNCATE of their parent: refused before anything is committed anywhere.
#[test]
fn partitions_of_both_wrappers() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let line = cluster.line(1);
    client.batch_execute(&format!(
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw;
         CREATE SERVER stock FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{}', port '{}', dbname 'postgres');
         CREATE USER MAPPING FOR PUBLIC SERVER stock OPTIONS (user 'postgres');
         CREATE TABLE mixed (number bigint) PARTITION BY RANGE (number);
         CREATE TABLE home PARTITION OF mixed FOR VALUES FROM (1) TO (10);
         CREATE FOREIGN TABLE ours PARTITION OF mixed FOR VALUES FROM (10) TO (100)
             SERVER node0 OPTIONS (table_name 'trace');
         CREATE FOREIGN TABLE theirs PARTITION OF mixed FOR VALUES FROM (100) TO (1000)
             SERVER stock OPTIONS (table_name 'trace')",
        line.host().display(),
        line.port()
    ))?;
    let ours = "UPDATE account SET balance = balance WHERE id = 5";
    let theirs = "INSERT INTO theirs VALUES (300)";
    let refused = [
        "INSERT INTO mixed VALUES (11), (111)".to_owned(),
        "INSERT INTO mixed VALUES (111), (11)".to_owned(),
        format!("{ours}; INSERT INTO mixed VALUES (111)"),
        format!("INSERT INTO mixed VALUES (111); {ours}"),
        format!("{theirs}; INSERT INTO mixed VALUES (11)"),
        "INSERT INTO mixed VALUES (11); INSERT INTO mixed VALUES (111)".to_owned(),
        "WITH a AS (INSERT INTO mixed VALUES (111)) INSERT INTO ours VALUES (11)".to_owned(),
        format!("DO $$ BEGIN INSERT INTO mixed VALUES (111); {ours}; END $$"),
        "COPY mixed FROM PROGRAM 'echo 111'".to_owned(),
        "TRUNCATE mixed".to_owned(),
        format!("{ours}; TRUNCATE theirs"),
        "TRUNCATE ours, theirs".to_owned(),
        format!("INSERT INTO mixed VALUES (1); {ours}; UPDATE mixed SET number = 111"),
        "UPDATE mixed SET number = number".to_owned(),
    ];
    for sql in refused {
        let told = sqlstate(&client.batch_execute(&format!("BEGIN; {sql}; COMMIT")));
        ensure!(told == "0A000", "{told}: {sql}");
        client.batch_execute("ROLLBACK")?;
        for node in 0..2 {
            let count = "SELECT count(*) FROM trace";
            let count = int(&mut cluster.node(node).connect()?, count)?;
            ensure!(count == 0, "{count} rows at node {node}: {sql}");
        }
    }
    // What was refused has not been written.
    for refused in [
        "UPDATE theirs SET number = 1",
        "INSERT INTO mixed VALUES (111)",
    ] {
        client.batch_execute(&format!("BEGIN; {ours}; SAVEPOINT a"))?;
        let told = sqlstate(&client.batch_execute(refused));
        ensure!(told == "0A000", "{told}: {refused}");
        client.batch_execute("ROLLBACK TO a; COMMIT")?;
    }
    let allowed = [
        format!("INSERT INTO mixed VALUES (2), (12); {ours}"),
        "INSERT INTO mixed VALUES (3), (112); SELECT count(*) FROM account".to_owned(),
        format!("COPY home FROM PROGRAM 'echo 4'; {ours}"),
    ];
    for sql in allowed {
        client.batch_execute(&format!("BEGIN; {sql}; COMMIT"))?;
    }
    let seen = "SELECT string_agg(number::text, ' ' ORDER BY number) FROM mixed";
    let seen = text(&mut client, seen)?;
    ensure!(seen == "2 3 4 12 112", "{seen}");
    cluster.wait_until_resolved()
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
