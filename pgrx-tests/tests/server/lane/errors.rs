//! What cannot be declared, and what is said about it.

use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{int, sqlstate, start, text};

use super::{bank, declare};

fn refused(client: &mut Client, sql: &str, code: &str) -> Result<()> {
    let told = client.batch_execute(sql);
    client.batch_execute("ROLLBACK")?;
    ensure!(sqlstate(&told) == code, "{sql}: {told:?}, not {code}");
    Ok(())
}

#[test]
fn where_nothing_can_be_declared() -> Result<()> {
    let server = bank(2, &[])?;
    let mut client = server.connect()?;
    let one = declare(&[1]);
    let cases = [
        (one.clone(), "25P01"),
        (format!("BEGIN; {one}; {one}"), "25001"),
        (format!("BEGIN; SAVEPOINT a; {one}"), "25001"),
        (
            format!("BEGIN; UPDATE account SET val = 0 WHERE id = 2; {one}"),
            "25001",
        ),
        (format!("BEGIN; {one}, 1"), "25001"),
        (format!("BEGIN; {one} FROM account"), "25001"),
        (format!("BEGIN; SELECT ({one})"), "25001"),
        (
            format!(
                "BEGIN; DO $$ BEGIN PERFORM {}; END $$",
                &one["SELECT ".len()..]
            ),
            "25001",
        ),
        (
            format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {one}"),
            "0A000",
        ),
        (
            format!("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; {one}"),
            "25001",
        ),
    ];
    client.batch_execute("SET default_transaction_isolation = 'repeatable read'")?;
    client.batch_execute("RESET default_transaction_isolation")?;
    for (sql, code) in cases {
        refused(&mut client, &sql, code)?;
    }
    // At READ COMMITTED statements may come before it.
    client.batch_execute(&format!("BEGIN; SELECT 1; {one}; ROLLBACK"))?;
    ensure!(int(&mut client, "SELECT count(*) FROM txn.lane")? == 0);
    Ok(())
}

#[test]
fn items_that_are_none() -> Result<()> {
    let server = bank(2, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE TABLE plain (id int PRIMARY KEY) USING heap;
         CREATE TABLE keyless (id int) USING txn_heap;
         CREATE TEMP TABLE own (id int PRIMARY KEY) USING txn_heap;
         CREATE TABLE two (a int, b int, PRIMARY KEY (a, b)) USING txn_heap;
         CREATE VIEW v AS SELECT * FROM account;
         CREATE ROLE poor",
    )?;
    let cases = [
        ("account", "22023"),
        ("account(", "22023"),
        ("account()", "22023"),
        ("account(1,2)", "22023"),
        ("account($1)", "22023"),
        ("account(*,1)", "22023"),
        ("account(x)", "22P02"),
        ("account(99999999999)", "22003"),
        ("two(1)", "22023"),
        ("nothing(1)", "42P01"),
        ("a.b.c.d(1)", "42601"),
        ("plain(1)", "0A000"),
        ("keyless(1)", "0A000"),
        ("own(1)", "0A000"),
        ("v(1)", "0A000"),
        ("pg_class(1)", "0A000"),
    ];
    for (item, code) in cases {
        let sql = format!("BEGIN; SELECT txn.declare(reads => ARRAY['{item}'])");
        refused(&mut client, &sql, code)?;
    }
    refused(
        &mut client,
        "BEGIN; SELECT txn.declare(ARRAY[NULL]::text[])",
        "22004",
    )?;
    for (rights, writes, reads) in [
        ("", "42501", "42501"),
        ("SELECT", "42501", "00000"),
        ("UPDATE (val)", "00000", "42501"),
        ("INSERT", "00000", "42501"),
    ] {
        client.batch_execute("REVOKE ALL ON account FROM poor")?;
        if !rights.is_empty() {
            client.batch_execute(&format!("GRANT {rights} ON account TO poor"))?;
        }
        for (argument, code) in [("writes", writes), ("reads", reads)] {
            let sql = format!(
                "BEGIN; SET LOCAL ROLE poor; SELECT txn.declare({argument} => ARRAY['account(1)'])"
            );
            refused(&mut client, &sql, code)?;
        }
    }
    // To keep writers from many rows it takes more than to read them.
    client.batch_execute("REVOKE ALL ON account FROM poor; GRANT SELECT ON account TO poor")?;
    let wide = "BEGIN; SET LOCAL ROLE poor; SELECT txn.declare(reads => ARRAY['account(*)'])";
    refused(&mut client, wide, "42501")?;
    client.batch_execute("GRANT UPDATE ON account TO poor")?;
    refused(&mut client, wide, "00000")?;
    client.batch_execute("ALTER TABLE account ENABLE ROW LEVEL SECURITY")?;
    refused(&mut client, wide, "42501")
}

#[test]
fn more_than_fits() -> Result<()> {
    let server = bank(100, &[("txn.lane_keys", "2")])?;
    let mut client = server.connect()?;
    client.batch_execute(&format!("BEGIN; {}", declare(&[1, 2, 90])))?;
    let joined = text(
        &mut client,
        "SELECT string_agg(concat_ws(' ', relation, low, high, mode), ', ')
         FROM txn.my_declared WHERE declared",
    )?;
    ensure!(
        joined == "account 1 2 write, account 90 90 write",
        "{joined}"
    );
    client.batch_execute("ROLLBACK")?;
    for n in 1..=3 {
        client.batch_execute(&format!(
            "CREATE TABLE t{n} (id int PRIMARY KEY) USING txn_heap"
        ))?;
    }
    refused(
        &mut client,
        "BEGIN; SELECT txn.declare(ARRAY['t1(1)', 't2(1)', 't3(1)'])",
        "54000",
    )?;
    refused(
        &mut client,
        "BEGIN; SELECT txn.declare(array_fill('account(1)'::text, ARRAY[10001]))",
        "54000",
    )?;
    // Joined keys are as many as an open item's.
    client.batch_execute("CREATE ROLE poor; GRANT SELECT ON account TO poor")?;
    for (items, code) in [
        ("'account(1)', 'account(5)'", "00000"),
        ("'account(1)', 'account(5)', 'account(9)'", "42501"),
    ] {
        let sql =
            format!("BEGIN; SET LOCAL ROLE poor; SELECT txn.declare(reads => ARRAY[{items}])");
        refused(&mut client, &sql, code)?;
    }
    Ok(())
}

#[test]
fn declarations_of_procedures() -> Result<()> {
    let server = bank(2, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE PROCEDURE many(a int[], b text) LANGUAGE plpgsql AS $$
         BEGIN UPDATE account SET val = val + 1 WHERE id = ANY (a); END $$;
         CREATE FUNCTION f(a int) RETURNS int LANGUAGE sql RETURN a;
         CREATE ROLE other",
    )?;
    procedures_that_declare_nothing(&mut client)?;
    client.batch_execute(
        "SELECT txn.declare_procedure('many(int[], text)', ARRAY['account($1[*])'], \
         ARRAY['account(\"2\")'])",
    )?;
    let label = "SELECT label FROM pg_seclabel WHERE objoid = 'many'::regproc";
    let label = text(&mut client, label)?;
    ensure!(
        label == "writes: public.account($1[*]); reads: public.account(\"2\")",
        "{label}"
    );
    client.batch_execute("BEGIN; CALL many('{1,NULL,7}', 'x')")?;
    let declared =
        "SELECT string_agg(concat_ws(' ', low, mode), ', ') FROM txn.my_declared WHERE declared";
    let declared = text(&mut client, declared)?;
    ensure!(declared == "1 write, 2 read, 7 write", "{declared}");
    client.batch_execute("ROLLBACK")?;
    labels_that_declare_nothing(&mut client)?;
    client.batch_execute("SELECT txn.declare_procedure('many(int[], text)')")?;
    ensure!(
        int(
            &mut client,
            "SELECT count(*) FROM pg_seclabel WHERE objoid = 'many'::regproc"
        )? == 0
    );
    client.batch_execute("BEGIN; CALL many('{1}', 'x')")?;
    ensure!(
        int(
            &mut client,
            "SELECT count(*) FROM txn.my_declared WHERE declared"
        )? == 0
    );
    client.batch_execute("ROLLBACK; DROP PROCEDURE bump")?;
    ensure!(int(&mut client, "SELECT count(*) FROM pg_seclabel")? == 0);
    Ok(())
}

fn procedures_that_declare_nothing(client: &mut Client) -> Result<()> {
    let cases = [
        ("'nothing(int)', ARRAY['account(1)']", "42883"),
        ("'f(int)', ARRAY['account($1)']", "42809"),
        ("'many(int[], text)', ARRAY['account($3)']", "22023"),
        ("'many(int[], text)', ARRAY['account($2)']", "22023"),
        ("'many(int[], text)', ARRAY['account($1)']", "22023"),
        (
            "'many(int[], text)', ARRAY['account($1[*])', 'account($0)']",
            "22023",
        ),
        ("'many(int[], text)', ARRAY['account(x)']", "22P02"),
        ("'many(int[], text)', ARRAY['nothing($1[*])']", "42P01"),
    ];
    for (arguments, code) in cases {
        refused(
            client,
            &format!("SELECT txn.declare_procedure({arguments})"),
            code,
        )?;
    }
    refused(
        client,
        "BEGIN; SET LOCAL ROLE other; \
         SELECT txn.declare_procedure('many(int[], text)', ARRAY['account(1)'])",
        "42501",
    )
}

fn labels_that_declare_nothing(client: &mut Client) -> Result<()> {
    for label in [
        "writes: account",
        "writes: account(1)",
        "mode=group",
        "reads: a.b.c.d(\"1\")",
    ] {
        let sql = format!("SECURITY LABEL FOR txn ON PROCEDURE many IS '{label}'");
        let told = client.batch_execute(&sql);
        ensure!(
            ["22023", "42601", "42602"].contains(&sqlstate(&told).as_str()),
            "{label}: {told:?}"
        );
    }
    refused(
        client,
        "SECURITY LABEL FOR txn ON FUNCTION f IS 'writes: account(1)'",
        "42809",
    )
}

/// Calls with arguments and in transactions of all sorts, and how many of them are skipped.
const BY_ARGUMENTS_AND_TRANSACTIONS: [(&str, i64); 7] = [
    ("CALL bump(1)", 0),
    ("CALL bump(1 + 1, 3::smallint::int)", 0),
    ("CALL bump((random() * 0)::int + 1)", 1),
    ("BEGIN; CALL bump(1); CALL bump(2); COMMIT", 1),
    ("BEGIN; SAVEPOINT a; CALL bump(1); COMMIT", 1),
    (
        "BEGIN ISOLATION LEVEL SERIALIZABLE; CALL bump(1); COMMIT",
        1,
    ),
    (
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; CALL bump(1); COMMIT",
        1,
    ),
];

/// Calls where the table is there or not, where the lane is on or not, and by all sorts of roles;
/// how many of them are skipped.
const BY_TABLES_AND_ROLES: [(&str, i64); 9] = [
    ("CALL touch(1)", 0),
    ("ALTER TABLE moved RENAME TO gone ;; CALL touch(1)", 1),
    ("ALTER TABLE gone RENAME TO moved ;; CALL touch(1)", 0),
    // Nested ones, and those with the lane off, are not where anything could be declared.
    ("DO 'BEGIN CALL bump(1); END'", 0),
    ("SET txn.lane = off; CALL bump(1); RESET txn.lane", 0),
    (
        "CREATE ROLE caller ;; SET ROLE caller ;; CALL touch(1) ;; RESET ROLE",
        1,
    ),
    (
        "ALTER PROCEDURE touch SECURITY DEFINER ;; SET ROLE caller ;; CALL touch(1) ;; RESET ROLE",
        0,
    ),
    // What is not the caller's business raises nothing: a schema, a right to execute, row security.
    (
        "CREATE SCHEMA inner_one ;; ALTER TABLE moved SET SCHEMA inner_one ;; \
         SECURITY LABEL FOR txn ON PROCEDURE touch IS 'writes: inner_one.moved($1)' ;; \
         SET ROLE caller ;; CALL touch(1) ;; RESET ROLE",
        0,
    ),
    (
        "SECURITY LABEL FOR txn ON PROCEDURE touch IS 'writes: other_base.inner_one.moved($1)' ;; \
         CALL touch(1)",
        1,
    ),
];

/// An argument that changes something is evaluated once.
const ONCE: (&str, i64) = ("CREATE SEQUENCE once ;; CALL bump(nextval('once')::int)", 1);

/// A CALL whose declaration cannot be used runs as any other, and is counted.
#[test]
fn calls_that_cannot_declare() -> Result<()> {
    let server = bank(2, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE TABLE moved (id int PRIMARY KEY) USING txn_heap;
         CREATE PROCEDURE touch(a int) LANGUAGE sql AS 'SELECT 1';
         SELECT txn.declare_procedure('touch(int)', ARRAY['moved($1)'])",
    )?;
    let cases = BY_ARGUMENTS_AND_TRANSACTIONS.into_iter();
    let mut skipped = 0;
    for (sql, more) in cases.chain(BY_TABLES_AND_ROLES).chain([ONCE]) {
        for statement in sql.split(" ;; ") {
            client.batch_execute(statement)?;
        }
        skipped += more;
        let counted = int(&mut client, "SELECT lane_skipped FROM txn.stats")?;
        ensure!(
            counted == skipped,
            "{sql}: {counted} skipped, not {skipped}"
        );
    }
    ensure!(int(&mut client, "SELECT last_value FROM once")? == 1);
    client.batch_execute("REVOKE EXECUTE ON PROCEDURE touch FROM PUBLIC")?;
    client.batch_execute("SET ROLE caller")?;
    ensure!(sqlstate(&client.batch_execute("CALL touch(1)")) == "42501");
    client.batch_execute("RESET ROLE")?;
    ensure!(int(&mut client, "SELECT sum(val) FROM account")? == 11);
    Ok(())
}

#[test]
fn a_server_without_a_lane() -> Result<()> {
    let server = start(&[("txn.lane_stripes", "0")])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE TABLE account (id int PRIMARY KEY, val bigint NOT NULL) USING txn_heap;
         INSERT INTO account VALUES (1, 0);
         CREATE PROCEDURE bump(a int) LANGUAGE sql
             AS 'UPDATE account SET val = val + 1 WHERE id = a';
         SELECT txn.declare_procedure('bump(int)', writes => ARRAY['account($1)']);
         CALL bump(1)",
    )?;
    ensure!(int(&mut client, "SELECT val FROM account")? == 1);
    ensure!(int(&mut client, "SELECT count(*) FROM txn.lane")? == 0);
    refused(&mut client, &format!("BEGIN; {}", declare(&[1])), "55000")
}
