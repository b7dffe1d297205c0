//! What a declared transaction uses without having declared it.

use anyhow::{Context, Result, ensure};
use postgres::Client;
use txn_server_tests::{int, read, sqlstate};

use super::{bank, declare, session, update};

/// Runs a transaction that declares and then does something, and returns its SQLSTATE.
fn told(client: &mut Client, declares: &str, does: &str) -> Result<String> {
    client.batch_execute("BEGIN")?;
    client.batch_execute(declares)?;
    let result = client
        .batch_execute(does)
        .and_then(|()| client.batch_execute("COMMIT"));
    client.batch_execute("ROLLBACK")?;
    Ok(sqlstate(&result))
}

const WRITES: &str = "SELECT txn.declare(ARRAY['account(1)', 'account(2)'])";
const BOTH: &str = "SELECT txn.declare(ARRAY['account(1)'], ARRAY['account(3)', 'part(4)'])";
const WIDE: &str = "SELECT txn.declare(ARRAY['account(*)'])";
const SAME: &str = "SELECT txn.declare(ARRAY['account(1)'], ARRAY['account(1)'])";
/// Nobody knows what was read where it failed.
const CAUGHT: &str = "DO $$ BEGIN UPDATE account SET val = 1 WHERE id = 1;
                  UPDATE account SET val = 1 / 0 WHERE id = 1;
                  EXCEPTION WHEN division_by_zero THEN END $$";

/// What is declared, and what need not be.
const FINE: [(&str, &str); 12] = [
    (WRITES, "UPDATE account SET val = 1 WHERE id = 2"),
    (
        WRITES,
        "DELETE FROM account WHERE id = 1; UPDATE account SET id = 1 WHERE id = 2",
    ),
    (WRITES, "SELECT FROM account WHERE id = 1 FOR UPDATE"),
    (WRITES, "SELECT FROM account WHERE id = 3 FOR KEY SHARE"),
    (WRITES, "SELECT FROM account WHERE id = 3"),
    (
        WRITES,
        "CREATE TEMPORARY TABLE own (id int PRIMARY KEY) USING txn_heap ON COMMIT DROP;
         INSERT INTO own VALUES (1)",
    ),
    (BOTH, "SELECT FROM account WHERE id IN (1, 3)"),
    (BOTH, "SELECT FROM account WHERE id = 3 FOR SHARE"),
    (BOTH, "SELECT FROM part WHERE id = 4"),
    (BOTH, "SELECT FROM part_1 WHERE id = 4"),
    (SAME, CAUGHT),
    (WIDE, "UPDATE account SET val = 1"),
];

/// Writes of keys that are not declared.
const REFUSED: [(&str, &str); 8] = [
    (WRITES, "UPDATE account SET val = 1 WHERE id = 3"),
    (WRITES, "DELETE FROM account WHERE id = 3"),
    (WRITES, "INSERT INTO account VALUES (11, 0)"),
    (WRITES, "SELECT FROM account WHERE id = 3 FOR UPDATE"),
    (BOTH, "UPDATE account SET val = 1 WHERE id = 3"),
    (WIDE, "INSERT INTO child VALUES (1, 10)"),
    // The old key counts, too.
    (
        WRITES,
        "DELETE FROM account WHERE id = 1; UPDATE account SET id = 1 WHERE id = 3",
    ),
    (WRITES, "INSERT INTO keyless VALUES (1)"),
];

/// Reads, if any are declared, of those that are validated.
const REFUSED_IF_VALIDATED: [(&str, &str); 3] = [
    (BOTH, "SELECT FROM account WHERE id = 2"),
    (BOTH, "SELECT FROM part WHERE id = 5"),
    (SAME, "SELECT FROM account WHERE id = 2"),
];

#[test]
fn with_error_it_fails() -> Result<()> {
    let server = bank(10, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE part (id int PRIMARY KEY, val int) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10) USING txn_heap;
         INSERT INTO part SELECT id, 0 FROM generate_series(1, 9) id;
         CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES account) USING txn_heap;
         CREATE TABLE plain (id int);
         CREATE TABLE keyless (id int) USING txn_heap",
    )?;
    let plain = [(WRITES, "INSERT INTO plain VALUES (1)")];
    let groups = [
        (&FINE[..], "00000", "00000"),
        (&REFUSED, "55000", "55000"),
        (&REFUSED_IF_VALIDATED, "00000", "55000"),
        (&plain, "00000", "0A000"),
    ];
    let cases = groups
        .into_iter()
        .flat_map(|(cases, committed, validated)| {
            let one = move |(declares, does)| (declares, does, committed, validated);
            cases.iter().copied().map(one)
        });
    for (declares, does, committed, validated) in cases {
        for (level, expected) in [
            ("read committed", committed),
            ("repeatable read", validated),
        ] {
            let mut client = session(&server, level)?;
            ensure!(
                told(&mut client, declares, does)?
                    == if expected == "0A000" {
                        expected
                    } else {
                        "00000"
                    }
            );
            client
                .batch_execute("UPDATE account SET val = 0; DELETE FROM account WHERE id > 10")?;
            client.batch_execute("INSERT INTO account VALUES (3, 0) ON CONFLICT DO NOTHING")?;
            client.batch_execute("DELETE FROM child; SET txn.lane_beyond = error")?;
            let code = told(&mut client, declares, does)?;
            ensure!(
                code == expected,
                "{declares}; {does}, {level}: {code}, not {expected}"
            );
        }
    }
    Ok(())
}

#[test]
fn what_is_said() -> Result<()> {
    let server = bank(10, &[])?;
    let mut owner = server.connect()?;
    owner.batch_execute("CREATE ROLE writer; GRANT UPDATE, SELECT (val) ON account TO writer")?;
    let mut detail = |role: &str| -> Result<String> {
        owner.batch_execute("SET txn.lane_beyond = error; BEGIN")?;
        owner.batch_execute(&declare(&[1]))?;
        owner.batch_execute(role)?;
        let error = owner.batch_execute("UPDATE account SET val = 1").err();
        owner.batch_execute("ROLLBACK; RESET ROLE")?;
        let error = error.context("no error")?;
        let told = error.as_db_error().context("no answer")?;
        ensure!(told.message() == "the transaction uses keys that it has not declared");
        Ok(told.detail().unwrap_or("").to_owned())
    };
    ensure!(detail("SELECT")? == "It writes to, or locks, key 2 of table \"account\".");
    ensure!(
        detail("SET LOCAL ROLE writer")? == "It writes to, or locks, rows of table \"account\"."
    );
    Ok(())
}

#[test]
fn why_all_of_a_table_was_read() -> Result<()> {
    let server = bank(10, &[])?;
    let mut client = session(&server, "repeatable read")?;
    client.batch_execute(
        "SET txn.lane_beyond = error; SET enable_indexscan = off; SET enable_bitmapscan = off",
    )?;
    client.batch_execute("BEGIN")?;
    client.batch_execute("SELECT txn.declare(NULL, ARRAY['account(1)'])")?;
    client.batch_execute("SELECT FROM account WHERE id = 1")?;
    let error = client.batch_execute("COMMIT").err().context("no error")?;
    let detail = error.as_db_error().and_then(|told| told.detail());
    let expected = "It has read all of table \"account\" (sequential scan).";
    ensure!(detail == Some(expected), "{detail:?}");
    Ok(())
}

/// A procedure's declaration counts like one of the transaction's own; what is learned of refused
/// attempts does not.
#[test]
fn of_procedures() -> Result<()> {
    let server = bank(10, &[])?;
    let mut client = session(&server, "read committed")?;
    client.batch_execute(
        "CREATE PROCEDURE other(a int) LANGUAGE sql AS
             'UPDATE account SET val = val + 1 WHERE id IN (a, a + 1)';
         SELECT txn.declare_procedure('other(int)', ARRAY['account($1)']);
         SET txn.lane_beyond = error",
    )?;
    ensure!(sqlstate(&client.batch_execute("CALL other(1)")) == "55000");
    client.batch_execute("CALL bump(1, 2)")?;
    client.batch_execute("CALL txn.run('UPDATE account SET val = val + 1')")?;
    client.batch_execute(&update(3))?;
    ensure!(int(&mut client, "SELECT sum(val)::bigint FROM account")? == 2 + 10 + 1);
    Ok(())
}

#[test]
fn what_a_transaction_has_used() -> Result<()> {
    let server = bank(10, &[])?;
    let used =
        "SELECT coalesce(string_agg(concat_ws(' ', relation, low, high, mode, declared), ', '
                ORDER BY relation, low, mode), '') FROM txn.my_declared";
    let cases = [
        ("read committed", "SELECT", "account 2 2 write f"),
        (
            "repeatable read",
            "SELECT",
            "account 2 2 write f, account 3 3 read f, account 4 4 read f",
        ),
        (
            "read committed",
            "SELECT txn.declare(ARRAY['account(1)'], ARRAY['account(3)'])",
            "account 1 1 write t, account 2 2 write f, account 3 3 read t",
        ),
        (
            "repeatable read",
            "SELECT txn.declare(ARRAY['account(1)', 'account(2)'], ARRAY['account(3)'])",
            "account 1 1 write t, account 2 2 write t, account 3 3 read t, account 4 4 read f",
        ),
        (
            "repeatable read",
            "SELECT txn.declare(ARRAY['account(*)'])",
            "account write t",
        ),
    ];
    for (level, declares, expected) in cases {
        let mut client = session(&server, level)?;
        client.batch_execute("BEGIN")?;
        client.batch_execute(declares)?;
        client.batch_execute(&update(2))?;
        client.batch_execute("SELECT FROM account WHERE id BETWEEN 3 AND 4")?;
        let found: String = read(&mut client, used)?;
        ensure!(found == expected, "{level}, {declares}: {found}");
    }
    Ok(())
}
