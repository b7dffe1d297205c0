//! `txn.run`: statements that are run again on the server.

use anyhow::{Result, ensure};
use postgres::SimpleQueryMessage;
use txn_server_tests::{Load, int, read, sqlstate, text};

use super::bank;

#[test]
fn what_a_statement_returns() -> Result<()> {
    let server = bank(2, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE PROCEDURE greet(INOUT name text) LANGUAGE plpgsql AS $$
         BEGIN name := 'hello ' || name; END $$",
    )?;
    let cases = [
        (
            "'UPDATE account SET val = val + $1 WHERE id = $2 RETURNING *', ARRAY['5', '1']",
            "{\"id\": 1, \"val\": 5}",
        ),
        (
            "'CALL greet($1)', ARRAY['you']",
            "{\"name\": \"hello you\"}",
        ),
        (
            "'SELECT $1::date IS NULL AS n, $2::jsonb AS j', ARRAY[NULL, '[1]']",
            "{\"j\": [1], \"n\": true}",
        ),
        ("'SELECT id FROM account ORDER BY id'", "{\"id\": 1}"),
        ("'SELECT FROM account WHERE id = 99'", ""),
        ("'CREATE TABLE made (id int)'", ""),
        (
            "'SELECT current_setting(''transaction_isolation'') AS l', \
             isolation => 'repeatable read'",
            "{\"l\": \"repeatable read\"}",
        ),
    ];
    for (arguments, expected) in cases {
        let answer = client.simple_query(&format!("CALL txn.run({arguments})"))?;
        let found = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        ensure!(found.unwrap_or("") == expected, "{arguments}: {found:?}");
    }
    ensure!(int(&mut client, "SELECT val FROM account WHERE id = 1")? == 5);
    ensure!(read::<bool>(
        &mut client,
        "SELECT to_regclass('made') IS NOT NULL"
    )?);
    Ok(())
}

/// After an error the session goes on, and nothing of the statement is left.
#[test]
fn errors() -> Result<()> {
    let server = bank(2, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
         CREATE FUNCTION refuses() RETURNS int LANGUAGE plpgsql AS $$
         BEGIN PERFORM nextval('tries'); RAISE serialization_failure; END $$;
         CREATE SEQUENCE tries",
    )?;
    let cases = [
        ("'SELECT 1/0'", "22012"),
        ("'UPDATE account SET val = 7; SELECT 1/0'", "22012"),
        ("'SELECT FROM WHERE'", "42601"),
        ("NULL", "22004"),
        ("'SELECT 1', attempts => 0", "22023"),
        ("'SELECT 1', attempts => 1001", "22023"),
        ("'SELECT 1', isolation => 'some'", "22023"),
        ("'SELECT $1::int'", "22023"),
        ("'SELECT $1::int', ARRAY['x']", "22P02"),
        ("'COMMIT'", "2D000"),
        ("'CALL commits()'", "2D000"),
        ("'SELECT refuses()', attempts => 3", "40001"),
    ];
    for (arguments, code) in cases {
        let told = client.batch_execute(&format!("CALL txn.run({arguments})"));
        ensure!(sqlstate(&told) == code, "{arguments}: {told:?}");
        ensure!(int(&mut client, "SELECT sum(val) FROM account")? == 0);
    }
    ensure!(
        int(&mut client, "SELECT last_value FROM tries")? == 3,
        "tries"
    );
    let told = client.batch_execute("BEGIN; CALL txn.run('SELECT 1')");
    ensure!(sqlstate(&told) == "25001");
    client.batch_execute("ROLLBACK")?;
    let told = client.batch_execute(
        "DO $$ DECLARE r jsonb; BEGIN CALL txn.run('SELECT 1', result => r); END $$",
    );
    ensure!(sqlstate(&told) == "00000", "{told:?}");
    Ok(())
}

/// Transactions that read all accounts and write two of them: each attempt that is refused declares
/// what it has used, so that nobody is refused for ever.
#[test]
fn what_is_refused_is_run_again() -> Result<()> {
    let server = bank(4, &[])?;
    server.connect()?.batch_execute(
        "CREATE PROCEDURE shift(a int, b int) LANGUAGE plpgsql AS $$
         DECLARE total bigint;
         BEGIN
             SELECT sum(val) INTO total FROM account WHERE id BETWEEN 1 AND 4;
             UPDATE account SET val = val + 1 WHERE id = a;
             UPDATE account SET val = val + 1 WHERE id = b;
             INSERT INTO note (total) VALUES (total);
         END $$;
         CREATE TABLE note (n bigserial PRIMARY KEY, total bigint) USING txn_heap",
    )?;
    let sessions = |_| "SET txn.range_occ = on".to_owned();
    let load = Load::new(&server, 12, 20)
        .session(sessions)
        .moves("lane_taken");
    let tally = load.run(|worker| {
        let (a, b) = (1 + worker.below(4), 1 + worker.below(4));
        let call = format!(
            "CALL txn.run('CALL shift($1, $2)', ARRAY['{a}', '{b}'], attempts => 1000, \
             isolation => 'repeatable read')"
        );
        worker.committing(2, |worker| worker.query(&call, &[]))
    })?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val) FROM account")?)?;
    // Serializable: each has seen another sum, two apart.
    let sums = text(
        &mut client,
        "SELECT count(DISTINCT total) = 12 * 20 AND max(total) = 2 * 12 * 20 - 2 FROM note",
    )?;
    ensure!(sums == "true", "{sums}");
    Ok(())
}

/// Of a deadlock at READ COMMITTED one is run again.
#[test]
fn deadlocks_are_run_again() -> Result<()> {
    let server = bank(2, &[("deadlock_timeout", "10ms")])?;
    let load = Load::new(&server, 8, 20);
    let tally = load.run(|worker| {
        let (a, b) = if worker.chance(50) { (1, 2) } else { (2, 1) };
        let call = format!(
            "CALL txn.run('UPDATE account SET val = val + 1 FROM (SELECT pg_sleep(0.001)) nap \
             WHERE id = {a} OR id = {b}')"
        );
        worker.committing(2, |worker| worker.query(&call, &[]))
    })?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val) FROM account")?)
}

/// What an attempt returned that was refused at its commit is not the result.
#[test]
fn what_is_refused_at_the_commit_returns_nothing() -> Result<()> {
    let server = bank(1, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE SEQUENCE tries;
         CREATE TABLE line (n bigint);
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE serialization_failure; END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON line DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION refuse()",
    )?;
    let call = "CALL txn.run('INSERT INTO line SELECT 1 FROM nextval(''tries'') n WHERE n = 1 \
                RETURNING n')";
    let answer = client.simple_query(call)?;
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0)),
        _ => None,
    });
    ensure!(rows.collect::<Vec<_>>() == [None]);
    ensure!(int(&mut client, "SELECT last_value FROM tries")? == 2);
    ensure!(int(&mut client, "SELECT count(*) FROM line")? == 0);
    Ok(())
}

/// Arguments may be of domains whose checks read tables; more parameters than fit beside them are
/// refused.
#[test]
fn arguments_that_read() -> Result<()> {
    let server = bank(2, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE FUNCTION is_there(n int) RETURNS bool STABLE LANGUAGE sql
             AS 'SELECT EXISTS (SELECT FROM account WHERE id = n)';
         CREATE DOMAIN known AS int CHECK (is_there(VALUE))",
    )?;
    client.batch_execute("CALL txn.run('SELECT $1::known', ARRAY['1'])")?;
    let told = client.batch_execute("CALL txn.run('SELECT $1::known', ARRAY['9'])");
    ensure!(sqlstate(&told) == "23514");
    let many: Vec<String> = (1..=60)
        .map(|n| format!("${n}::int + 0 * length(repeat('x', 200))"))
        .collect();
    let values: Vec<String> = (1..=60).map(|n| format!("'{n}'")).collect();
    let statement = format!("SELECT {}", many.join(" + ")).replace('\'', "''");
    let call = format!(
        "CALL txn.run('{statement} AS sum', ARRAY[{}])",
        values.join(", ")
    );
    let answer = client.simple_query(&call)?;
    let sum = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    ensure!(sum == Some("{\"sum\": 1830}"), "{sum:?}");
    Ok(())
}
