//! Arguments of a declared CALL: the keys are what the CALL computes, whatever the expressions.

use anyhow::{Context, Result, ensure};
use txn_server_tests::text;

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
    SELECT txn.declare_procedure('touch(int[])', ARRAY['account($1[*])'])";

/// Expressions, and the keys that are declared for them; none if they are known to the CALL only.
const EXPRESSIONS: [(&str, &str); 20] = [
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
];

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
        client.batch_execute("ROLLBACK")?;
        ensure!(found == keys, "{found} instead of {keys}: {expression}");
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
