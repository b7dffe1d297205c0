//! What users may do, and options that are refused.
use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::sqlstate;

use super::{Cluster, transfer};

/// A user who may use everything that lies at the nodes, and has no mapping of his own.
const USERS: &str = "
    CREATE ROLE app LOGIN;
    GRANT ALL ON ALL TABLES IN SCHEMA public TO app;
    GRANT USAGE ON FOREIGN SERVER node0, node1 TO app";

fn expect(client: &mut Client, sql: &str, code: &str) -> Result<()> {
    let told = client.batch_execute(sql);
    let text = told.as_ref().err().and_then(|error| error.as_db_error());
    let text = text.map_or_else(String::new, |error| error.message().to_owned());
    let state = sqlstate(&told);
    ensure!(state == code, "{state} ({text}) instead of {code}: {sql}");
    Ok(())
}

/// With `trust` a node asks for no password, so an ordinary user would act as whoever the mapping
/// names.
#[test]
fn an_ordinary_user_needs_a_password_that_is_asked_for() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    control.batch_execute(USERS)?;
    let mut app = cluster.coordinator.connect_as("app", "postgres")?;
    let statements = [
        "SELECT count(*) FROM account_0",
        "UPDATE account SET balance = 0",
        "INSERT INTO trace_0 VALUES (1)",
        "TRUNCATE trace_0",
    ];
    for sql in statements {
        expect(&mut app, sql, "2F003")?;
    }
    // A password in the mapping that the node has not asked for is none.
    control.batch_execute(
        "CREATE USER MAPPING FOR app SERVER node0 OPTIONS (user 'postgres', password 'x')",
    )?;
    expect(&mut app, "SELECT count(*) FROM account_0", "2F003")?;
    // Only a superuser may say that none is needed.
    expect(
        &mut app,
        "ALTER USER MAPPING FOR app SERVER node0 OPTIONS (ADD password_required 'false')",
        "42501",
    )?;
    control.batch_execute(
        "ALTER USER MAPPING FOR app SERVER node0 OPTIONS (ADD password_required 'false');
         CREATE USER MAPPING FOR app SERVER node1
             OPTIONS (user 'postgres', password_required 'false')",
    )?;
    let mut app = cluster.coordinator.connect_as("app", "postgres")?;
    app.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    cluster.expect_committed(&[1])
}

/// What a user has prepared is ended by the resolver with his mapping, also if it changes.
#[test]
fn parts_belong_to_the_user_of_the_mapping() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    control.batch_execute(USERS)?;
    for node in 0..2 {
        cluster.node(node).connect()?.batch_execute(
            "CREATE ROLE there LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO there",
        )?;
        control.batch_execute(&format!(
            "CREATE USER MAPPING FOR app SERVER node{node}
                 OPTIONS (user 'there', password_required 'false')"
        ))?;
    }
    let mut expected = Vec::new();
    for (number, point) in [(1, "geo_prepared"), (2, "geo_decided")] {
        let client = cluster.coordinator.connect_as("app", "postgres")?;
        control.batch_execute("GRANT SET ON PARAMETER txn.stop_at TO app")?;
        let stopped = cluster.stop_at_in(client, point, number)?;
        let owners = "SELECT count(*) FROM pg_prepared_xacts WHERE owner = 'there'";
        let mut node = cluster.node(1).connect()?;
        ensure!(txn_server_tests::int(&mut node, owners)? == 1);
        cluster.kill_coordinator()?;
        drop(stopped);
        control = cluster.session()?;
        if point == "geo_decided" {
            expected.push(number);
        }
        cluster.expect_committed(&expected)?;
    }
    Ok(())
}

#[test]
fn decisions_are_for_superusers() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    control.batch_execute(USERS)?;
    let mut app = cluster.coordinator.connect_as("app", "postgres")?;
    let refused = [
        "SELECT * FROM txn.geo_decision",
        "DELETE FROM txn.geo_decision",
        "INSERT INTO txn.geo_decision (gid) VALUES ('txn/1')",
        "UPDATE txn.geo_decision SET xid = '1'",
        "TRUNCATE txn.geo_decision",
        "SELECT txn.geo_resolve('txn/1', true)",
        "SELECT txn.geo_take_over()",
    ];
    for sql in refused {
        expect(&mut app, sql, "42501")?;
    }
    Ok(())
}

/// A function with the rights of its owner uses the owner's mapping, with its statements that wait
/// to be sent too.
#[test]
fn a_security_definer_uses_the_owners_mapping() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut control = cluster.session()?;
    control.batch_execute(USERS)?;
    control.batch_execute(&format!(
        "CREATE PROCEDURE run(number bigint) LANGUAGE plpgsql SECURITY DEFINER AS $$
         BEGIN {}; END $$",
        transfer(1)
    ))?;
    let mut app = cluster.coordinator.connect_as("app", "postgres")?;
    app.batch_execute("CALL run(1)")?;
    expect(&mut app, "SELECT count(*) FROM account_0", "2F003")?;
    app.batch_execute("SET ROLE app")?;
    expect(&mut app, "BEGIN; CALL run(1)", "23505")?;
    app.batch_execute("ROLLBACK")?;
    cluster.expect_committed(&[1])
}

#[test]
fn options_are_checked() -> Result<()> {
    let cluster = Cluster::start(1)?;
    let mut client = cluster.session()?;
    let server = |option: &str| format!("ALTER SERVER node0 OPTIONS (ADD {option})");
    let table = |option: &str| format!("ALTER FOREIGN TABLE account_0 OPTIONS (ADD {option})");
    // FDW_INVALID_OPTION_NAME, INVALID_PARAMETER_VALUE and others of that kind.
    let refused = [
        server("nonsense '1'"),
        server("user 'postgres'"),
        server("password 'x'"),
        server("use_remote_estimate 'true'"),
        server("fetch_size '0'"),
        server("async_capable 'perhaps'"),
        server("key 'id'"),
        table("nonsense '1'"),
        table("use_remote_estimate 'true'"),
        table("host 'x'"),
        table("batch_size '-1'"),
        "ALTER FOREIGN TABLE account_0 OPTIONS (SET key '')".to_owned(),
        "ALTER USER MAPPING FOR PUBLIC SERVER node0 OPTIONS (ADD host 'x')".to_owned(),
    ];
    for sql in refused {
        let told = sqlstate(&client.batch_execute(&sql));
        ensure!(
            [
                "HV00D", "22023", "42601", "0A000", "42703", "HV00C", "HV000"
            ]
            .contains(&&*told),
            "{told}: {sql}"
        );
    }
    let accepted = [
        server("fetch_size '7'"),
        server("use_remote_estimate 'false'"),
        server("async_capable 'true'"),
        server("connect_timeout '5'"),
        server("extensions 'plpgsql'"),
        table("updatable 'true'"),
        table("batch_size '10'"),
    ];
    for sql in accepted {
        client.batch_execute(&sql).with_context(|| sql.clone())?;
    }
    // A key column that does not exist is told when it is set or when it is used.
    let set = sqlstate(
        &client.batch_execute("ALTER FOREIGN TABLE account_0 OPTIONS (SET key 'nothing')"),
    );
    let used = sqlstate(&client.batch_execute("UPDATE account SET balance = 0 WHERE id = 1"));
    ensure!(
        set != "00000" || used != "00000",
        "a key column that does not exist is accepted"
    );
    ensure!(
        !set.starts_with("XX") && !used.starts_with("XX"),
        "{set} {used}"
    );
    Ok(())
}

/// A table that must not be written is not.
#[test]
fn updatable_is_heeded() -> Result<()> {
    let cluster = Cluster::start(1)?;
    let mut client = cluster.session()?;
    client.batch_execute("ALTER FOREIGN TABLE account_0 OPTIONS (ADD updatable 'false')")?;
    for sql in [
        "UPDATE account_0 SET balance = 0",
        "DELETE FROM account_0",
        "INSERT INTO account_0 VALUES (77, 1)",
        "INSERT INTO account VALUES (77, 1)",
    ] {
        expect(&mut client, sql, "55000")?;
    }
    client.batch_execute("SELECT count(*) FROM account")?;
    Ok(())
}
