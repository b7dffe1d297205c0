//! What roles are told of others' keys when they are refused.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Watchdog, start};

/// `a` may read all of the table, `b` all but its key. `c` may not read all rows; `d` may, in spite
/// of the policy.
const ROLES: &str = "
    SET default_table_access_method = txn_heap;
    CREATE TABLE open (id int PRIMARY KEY, v int);
    CREATE TABLE policed (id int PRIMARY KEY, v int);
    INSERT INTO open SELECT n * 10, 0 FROM generate_series(1, 20) n;
    INSERT INTO policed SELECT n * 10, 0 FROM generate_series(1, 20) n;
    CREATE TABLE flag (id int PRIMARY KEY, v int NOT NULL);
    INSERT INTO flag VALUES (1, 0);
    CREATE ROLE a LOGIN;
    CREATE ROLE b LOGIN;
    CREATE ROLE c LOGIN;
    CREATE ROLE d LOGIN BYPASSRLS;
    GRANT SELECT ON open TO a, c, d;
    GRANT SELECT (v) ON open TO b;
    GRANT SELECT ON policed TO a, c, d;
    ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
    CREATE POLICY lower ON policed USING (id < 100);
    GRANT SELECT, UPDATE ON flag TO a, b, c, d";

const BY_KEY: &str = "SELECT sum(v) FROM TABLE WHERE id BETWEEN 50 AND 80";
const ALL: &str = "SELECT sum(v) FROM TABLE";

/// Strict, so that the refusal is certain; of few slots, so that writes are forgotten.
const SETTINGS: [(&str, &str); 3] = [
    ("txn.range_window", "off"),
    ("txn.range_slots", "2"),
    ("autovacuum", "off"),
];
const ROW_60: &str = "UPDATE TABLE SET v = 0 WHERE id = 60";
const OTHERS: &str = "UPDATE TABLE SET v = 0 WHERE id NOT BETWEEN 50 AND 80";

/// The DETAIL with which the role is refused that has read the table before `write` was run three
/// times.
fn detail(server: &Server, role: &str, table: &str, read: &str, write: &str) -> Result<String> {
    let mut client: Client = server.connect_as(role, "postgres")?;
    client.batch_execute(
        "SET default_transaction_isolation = 'repeatable read'; SET txn.range_occ = on; \
         SET enable_seqscan = off",
    )?;
    // In a message of its own: the settings are those of the next transaction.
    client.batch_execute("BEGIN")?;
    client.batch_execute(&read.replace("TABLE", table))?;
    let mut writer = server.connect()?;
    for _ in 0..3 {
        writer.batch_execute(&write.replace("TABLE", table))?;
    }
    let end = client.batch_execute("UPDATE flag SET v = 1 WHERE id = 1; COMMIT");
    let error = end.err().context("it was not refused")?;
    let error = error.as_db_error().context("the connection is lost")?;
    ensure!(error.code().code() == "40001", "{error:?}");
    Ok(error.detail().unwrap_or_default().to_owned())
}

#[test]
fn errors_do_not_tell_of_hidden_keys() -> Result<()> {
    let server = start(&SETTINGS)?;
    server.connect()?.batch_execute(ROLES)?;
    let dog = Watchdog::new(&server);
    dog.finish(conflicts(&server))
}

#[test]
fn errors_of_lost_history_do_not_tell_of_hidden_keys() -> Result<()> {
    // With this setting nobody can be asked but the rings.
    let server = start(&[&SETTINGS[..], &[("old_snapshot_threshold", "1h")]].concat())?;
    server.connect()?.batch_execute(ROLES)?;
    let dog = Watchdog::new(&server);
    dog.finish(lost_history(&server))
}

fn conflicts(server: &Server) -> Result<()> {
    for (role, table) in [
        ("postgres", "open"),
        ("a", "open"),
        ("postgres", "policed"),
        ("d", "policed"),
    ] {
        let said = detail(server, role, table, BY_KEY, ROW_60)?;
        ensure!(
            said.contains("wrote key 60 in range ") && said.ends_with("read keys 50 to 80."),
            "{role} may read the keys of {table}: {said}"
        );
    }
    for (role, table, read) in [
        ("b", "open", ALL),
        ("a", "policed", BY_KEY),
        ("c", "policed", BY_KEY),
        ("c", "policed", ALL),
    ] {
        let said = detail(server, role, table, read, ROW_60)?;
        let expected = format!(" wrote to table \"{table}\".");
        ensure!(
            said.starts_with("Transaction ") && said.ends_with(&expected) && words(&said) == 6,
            "{role} may not read all keys of {table}: {said}"
        );
    }
    Ok(())
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The number of a range tells of its keys as bounds do.
fn lost_history(server: &Server) -> Result<()> {
    for (role, table, is_told) in [
        ("a", "open", true),
        ("d", "policed", true),
        ("c", "policed", false),
    ] {
        let said = detail(server, role, table, BY_KEY, OTHERS)?;
        ensure!(said.contains(&format!("table \"{table}\"")), "{said}");
        ensure!(
            said.contains(" in range ") == is_told,
            "{role} of {table}: {said}"
        );
        ensure!(!said.contains("key"), "{role} of {table}: {said}");
    }
    Ok(())
}
