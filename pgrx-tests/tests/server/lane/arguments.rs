//! Arguments of a declared CALL: the keys are what the CALL computes, whatever the expressions.

use anyhow::{Context, Result, ensure};
use txn_server_tests::{int, sqlstate, text};

use super::bank;

const FUNCTIONS: &str = "
    CREATE FUNCTION own(a int, b int DEFAULT 2) RETURNS int IMMUTABLE LANGUAGE plpgsql
        AS $$ BEGIN RETURN a + b; END $$;
    CREATE FUNCTION picks(a int, b text DEFAULT 'two') RETURNS int IMMUTABLE STRICT LANGUAGE sql
        AS $$ SELECT length(b) $$;
    CREATE FUNCTION counts(a int) RETURNS int LANGUAGE plpgsql
        AS $$ BEGIN RETURN a; END $$;
    CREATE PROCEDURE touch(a int[]) LANGUAGE plpgsql
        AS $$ BEGIN UPDATE account SET val = val + 1 WHERE id = ANY (a); END $$;
    SELECT txn.declare_procedure('touch(int[])', ARRAY['account($1[*])']);
    CREATE DOMAIN small AS int CHECK (value < 9);
    CREATE DOMAIN positive AS small CHECK (value > 0);
    CREATE PROCEDURE bump_one(a positive DEFAULT 4) LANGUAGE plpgsql
        AS $$ BEGIN UPDATE account SET val = val + 1 WHERE id = a; END $$;
    SELECT txn.declare_procedure('bump_one(positive)', ARRAY['account($1)'])";

/// Expressions, and the keys that are declared for them; none if they are known to the CALL only.
const EXPRESSIONS: [(&str, &str); 23] = [
    ("bump(3)", "3"),
    ("bump('3')", "3"),
    ("bump(1 + 2)", "3"),
    ("bump(3::bigint::int)", "3"),
    ("bump(-(-3))", "3"),
    ("bump(length('abc'))", "3"),
    ("bump(array_length(parse_ident('a.b.c'), 1))", "3"),
    ("bump(own(1))", "3"),
    ("bump(own(1, 1 + 1))", "3"),
    ("bump(picks(1))", "3"),
    ("bump(greatest(1, 3))", "3"),
    ("bump((ARRAY[1, 3])[2])", "3"),
    ("bump(coalesce(NULL, 3))", "3"),
    ("bump(NULL::int + 3)", ""),
    ("bump(counts(3))", ""),
    ("touch(ARRAY[1, 3])", "1 3"),
    ("touch(ARRAY[1, NULL, 3])", "1 3"),
    ("touch(ARRAY[1, 3::bigint]::int[])", "1 3"),
    ("touch(array_append(ARRAY[1], 3))", "1 3"),
    ("touch('{1,3}')", "1 3"),
    ("bump_one(3)", "3"),
    ("bump_one(1 + 2)", "3"),
    ("bump_one()", "4"),
];

/// The accounts that the CALL has changed.
const CHANGED: &str = "SELECT coalesce(string_agg(id::text, ' ' ORDER BY id), '')
                       FROM account WHERE val > 0";

#[test]
fn keys_are_what_the_call_computes() -> Result<()> {
    let server = bank(9, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(FUNCTIONS)?;
    let declared = "SELECT coalesce(string_agg(low, ' ' ORDER BY low), '') FROM txn.my_declared
                    WHERE declared";
    for (expression, keys) in EXPRESSIONS {
        client.batch_execute(&format!("BEGIN; CALL {expression}"))?;
        let found = text(&mut client, declared).with_context(|| expression)?;
        let changed = text(&mut client, CHANGED)?;
        client.batch_execute("ROLLBACK")?;
        ensure!(found == keys, "{found} instead of {keys}: {expression}");
        let rows = match keys {
            "" if expression.contains("counts") => "3",
            keys => keys,
        };
        ensure!(changed == rows, "{changed} instead of {rows}: {expression}");
    }
    // The CALL checks the domain.
    for out in [0, 9] {
        let told = client.batch_execute(&format!("CALL bump_one({out})"));
        ensure!(sqlstate(&told) == "23514", "{out}: {told:?}");
    }
    // A column whose type has no image, such as inet, may have any value: whatever is given for it,
    // the keys are those that begin with the others.
    client.batch_execute(
        "CREATE TABLE line (a int, b inet, PRIMARY KEY (a, b)) USING txn_heap;
         CREATE PROCEDURE call(x int, y inet) LANGUAGE sql AS 'SELECT 1'",
    )?;
    for item in [
        "public.line($1,$2)",
        "public.line($1,$2[*])",
        "public.line($1,\"10.0.0.1\")",
        "public.line($1,*)",
    ] {
        client.batch_execute(&format!(
            "SECURITY LABEL FOR txn ON PROCEDURE call IS 'writes: {item}'"
        ))?;
        for value in ["'10.0.0.1'", "NULL"] {
            client.batch_execute(&format!("BEGIN; CALL call(3, {value})"))?;
            let found = text(&mut client, declared).with_context(|| item)?;
            client.batch_execute("ROLLBACK")?;
            ensure!(found.starts_with('3'), "{found} by {item}");
        }
    }
    // So many keys are known to the CALL only.
    let skipped = "SELECT lane_skipped::text FROM txn.stats";
    let before = text(&mut client, skipped)?;
    client.batch_execute("CALL touch(array_fill(1, ARRAY[10001]))")?;
    ensure!(text(&mut client, skipped)? != before, "not skipped");
    // Parameters are known, too.
    let mut transaction = client.transaction()?;
    transaction.execute("CALL bump($1 + 1)", &[&2])?;
    let found: String = transaction.query_one(declared, &[])?.get(0);
    ensure!(found == "3", "{found}");
    transaction.rollback()?;
    // An argument that fails fails the CALL as without a declaration.
    let told = client.execute("CALL bump(1 / $1)", &[&0]);
    let code = told.err().and_then(|error| error.code().cloned());
    ensure!(
        code.is_some_and(|code| code.code() == "22012"),
        "an argument fails"
    );
    Ok(())
}

/// A procedure that commits in the middle and has arguments of all kinds, which it tells.
const KINDS: &str = "
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TABLE told (n int GENERATED ALWAYS AS IDENTITY, line text);
    CREATE PROCEDURE kinds(a int, p positive, b text, c anyelement, d anyarray, INOUT e int,
                           VARIADIC f int[]) LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE account SET val = val + 1 WHERE id = a;
        COMMIT;
        INSERT INTO told (line)
            SELECT concat_ws(' ', a, p, b, c, pg_typeof(c), d, pg_typeof(d), e, f, b < 'b');
        e := e + cardinality(f);
    END $$;
    SELECT txn.declare_procedure('kinds(int, positive, text, anyelement, anyarray, int, int[])',
                                 ARRAY['account($1)', 'account($6)', 'account($7[*])'])";

/// The CALL that runs has values in place of what was computed: the procedure sees no difference,
/// and the prepared statement stays as it was.
#[test]
fn the_procedure_is_given_what_the_call_says() -> Result<()> {
    let server = bank(9, &[])?;
    let mut client = server.connect()?;
    client.batch_execute(KINDS)?;
    let call = client.prepare(
        "CALL kinds($1 + 1, $1, lower($2), $3::text || '!', ARRAY[$4::text, NULL], $5 * 2,
                    $6::int, 4, NULL)",
    )?;
    let mut lines = Vec::new();
    for lane in ["on", "off"] {
        client.batch_execute(&format!("SET txn.lane = {lane}"))?;
        for n in 1..4i32 {
            let taken = "SELECT lane_taken FROM txn.stats";
            let before = int(&mut client, taken)?;
            let word = format!("{}Word", "a".repeat(300 * n as usize));
            let three = n.to_string();
            let result: i32 = client
                .query_one(&call, &[&n, &word, &three, &three, &n, &n])?
                .get(0);
            ensure!(result == 2 * n + 3, "{result}");
            let has_taken = int(&mut client, taken)? > before;
            ensure!(has_taken == (lane == "on"), "txn.lane = {lane}");
        }
        client.batch_execute("CALL kinds(7, 8, 'b' || 'c', 1 + 1, '{3,4}'::int[], 1, 2)")?;
        let told = "SELECT string_agg(line, E'\n' ORDER BY n) FROM told";
        lines.push(text(&mut client, told)?);
        client.batch_execute("TRUNCATE told")?;
    }
    ensure!(lines[0] == lines[1], "{lines:?}");
    ensure!(int(&mut client, "SELECT sum(val)::bigint FROM account")? == 8);
    Ok(())
}
