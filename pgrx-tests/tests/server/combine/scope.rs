//! What is not combined, or only under conditions of each session's own.

use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, grouped, int, sqlstate, text};

use crate::stage::{Prepared, Stage, crowd};

use super::{BUMP, on_server};

/// A function's statement is not its caller's, whatever the protocol: the caller may still fail.
#[test]
fn statements_of_functions_are_not_combined() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "CREATE TABLE log (n bigint, no bigint UNIQUE); \
             CREATE FUNCTION next() RETURNS bigint LANGUAGE sql AS \
               'UPDATE hot SET val = val + 1 WHERE id = 1; SELECT val FROM hot WHERE id = 1'",
        )?;
        let mut stage = Stage::new(server, BUMP)?;
        let failing: Vec<_> = (0..3)
            .map(|_| Prepared::run(server, "INSERT INTO log SELECT $1, next() / 0", vec![1]))
            .collect::<Result<_>>()?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for one in failing {
            let told = sqlstate(&one.end()?);
            ensure!(["22012", "40001"].contains(&told.as_str()), "told {told}");
        }
        ensure!(stage.val()? == 1, "the value is {}", stage.val()?);
        let mut stage = Stage::new(server, BUMP)?;
        let numbers: Vec<_> = (0..4)
            .map(|n| Prepared::run(server, "INSERT INTO log VALUES ($1, next())", vec![n]))
            .collect::<Result<_>>()?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        let mut done = 0;
        for one in numbers {
            match one.end()? {
                Ok(_) => done += 1,
                Err(error) => ensure!(error.code().is_some_and(|c| c.code() == "40001"), "{error}"),
            }
        }
        ensure!(
            stage.val()? == 2 + done,
            "{done} numbers, and {}",
            stage.val()?
        );
        ensure!(stage.combined()? == 0, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// A value that makes the row large is left to its own session, and so is what settings decide.
#[test]
fn large_rows_and_settings_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "ALTER TABLE hot ADD COLUMN name text DEFAULT '', ADD COLUMN large text DEFAULT ''; \
             ALTER TABLE hot ALTER COLUMN large SET STORAGE plain",
        )?;
        let append = "UPDATE hot SET large = large || $1::bigint::text WHERE id = 1";
        let grow =
            "UPDATE hot SET large = large || repeat('x', 7000) || $1::bigint::text WHERE id = 1";
        for (sql, codes) in [(append, ["00000", "00000"]), (grow, ["00000", "54000"])] {
            let mut stage = Stage::new(server, BUMP)?;
            let first = Prepared::run(server, sql, vec![1])?;
            stage.wait_queued(1)?;
            let second = Prepared::run(server, sql, vec![2])?;
            stage.wait_queued(2)?;
            stage.release()?;
            ensure!(stage.end()? == "00000");
            let mut told = [sqlstate(&first.end()?), sqlstate(&second.end()?)];
            // Those that are not combined come in any order.
            told.sort();
            ensure!(told == codes, "{sql}: {told:?}");
        }
        let quote = "UPDATE hot SET name = quote_ident('a') WHERE id = 1";
        let mut stage = Stage::new(server, quote)?;
        let mut session = grouped(server)?;
        session.batch_execute("SET quote_all_identifiers = on")?;
        let quoting = Background::run(session, quote)?;
        stage.wait_queued(1)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        ensure!(sqlstate(&quoting.end()?.1) == "00000");
        let name = text(&mut stage.control, "SELECT name FROM hot")?;
        ensure!(name == "\"a\"", "the name is {name}");
        Ok(())
    })
}

/// Statements that are not all of their transaction are left to their own session.
#[test]
fn only_whole_transactions_are_combined() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "CREATE FUNCTION bump() RETURNS void LANGUAGE sql AS \
               'UPDATE hot SET val = val + 1 WHERE id = 1'; \
             CREATE FUNCTION bump_and_fail() RETURNS void LANGUAGE plpgsql AS \
               'BEGIN UPDATE hot SET val = val + 1 WHERE id = 1; PERFORM 1 / 0; END'",
        )?;
        let mut expected = 0;
        for (sql, code, effect) in [
            (
                "UPDATE hot SET val = val + 1 WHERE id = 1; SELECT 1 / 0",
                "22012",
                0,
            ),
            (
                "BEGIN; UPDATE hot SET val = val + 1 WHERE id = 1; ROLLBACK",
                "00000",
                0,
            ),
            (
                "SELECT bump(), 1 / (SELECT count(*) - 1 FROM hot)",
                "22012",
                0,
            ),
            ("SELECT bump_and_fail()", "22012", 0),
            (
                "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING 1 / (val - val)",
                "22012",
                0,
            ),
            (
                "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val",
                "00000",
                1,
            ),
            (
                "PREPARE p AS UPDATE hot SET val = val + 1 WHERE id = 1; EXECUTE p",
                "00000",
                1,
            ),
        ] {
            let mut stage = Stage::new(server, BUMP)?;
            let alone = Background::run(grouped(server)?, sql)?;
            alone.wait_until_blocked(&mut stage.control)?;
            stage.release()?;
            ensure!(stage.end()? == "00000");
            let told = sqlstate(&alone.end()?.1);
            ensure!(told == code, "{sql} was told {told} instead of {code}");
            expected += 1 + effect;
            let val = stage.val()?;
            ensure!(val == expected, "{val} instead of {expected} after {sql}");
            ensure!(stage.combined()? == 0, "{sql} was combined");
        }
        Ok(())
    })
}

/// What a session may not do itself nobody does for it, and what its table wants done is done.
#[test]
fn permissions_triggers_and_rules_of_the_table_hold() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "CREATE ROLE stranger LOGIN; CREATE ROLE reader LOGIN; GRANT SELECT ON hot TO reader",
        )?;
        let mut stage = Stage::new(server, BUMP)?;
        for role in ["stranger", "reader"] {
            let mut session = grouped(server)?;
            session.batch_execute(&format!("SET ROLE {role}"))?;
            let told = sqlstate(&session.batch_execute(BUMP));
            ensure!(told == "42501", "{role} was told {told}");
        }
        let mut read_only = grouped(server)?;
        read_only.batch_execute("SET default_transaction_read_only = on")?;
        let told = sqlstate(&read_only.batch_execute(BUMP));
        ensure!(told == "25006", "a read-only session was told {told}");
        stage.release()?;
        ensure!(stage.end()? == "00000");

        for ddl in [
            "CREATE TABLE log (val bigint); \
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
               'BEGIN INSERT INTO log VALUES (1); RETURN NULL; END'; \
             CREATE TRIGGER each_row AFTER UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION note()",
            "DROP TRIGGER each_row ON hot; TRUNCATE log; \
             CREATE TRIGGER each_statement AFTER UPDATE ON hot EXECUTE FUNCTION note()",
        ] {
            stage.control.batch_execute(ddl)?;
            let mut first = grouped(server)?;
            first.batch_execute("BEGIN; SELECT FROM hot WHERE id = 1 FOR UPDATE")?;
            let waiters = crowd(server, 4, BUMP)?;
            stage.wait_queued(4)?;
            first.batch_execute("COMMIT")?;
            for waiter in waiters {
                ensure!(sqlstate(&waiter.end()?.1) == "00000");
            }
            let fired = int(&mut stage.control, "SELECT count(*) FROM log")?;
            ensure!(fired == 4, "{fired} of 4 updates fired {ddl}");
        }
        ensure!(stage.combined()? == 0, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Row security is a condition of its own for each role.
#[test]
fn row_security_is_each_roles_own() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "CREATE ROLE tenant LOGIN; GRANT SELECT, UPDATE ON hot TO tenant; \
             ALTER TABLE hot ENABLE ROW LEVEL SECURITY; \
             CREATE POLICY rows ON hot USING (id = 1) WITH CHECK (val < 100)",
        )?;
        let mut stage = Stage::new(server, BUMP)?;
        let waiters: Vec<_> = [(1, "00000"), (1000, "42501"), (1, "00000")]
            .into_iter()
            .map(|(amount, code)| {
                let mut session = grouped(server)?;
                session.batch_execute("SET ROLE tenant")?;
                let sql = format!("UPDATE hot SET val = val + {amount} WHERE id = 1");
                Ok((Background::run(session, &sql)?, code))
            })
            .collect::<Result<_>>()?;
        for (waiter, _) in &waiters {
            waiter.wait_until_blocked(&mut stage.control)?;
        }
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for (waiter, code) in waiters {
            let told = sqlstate(&waiter.end()?.1);
            ensure!(told == code, "told {told} instead of {code}");
        }
        ensure!(stage.val()? == 3, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// A session that does the updates of others makes their commit record, which is as durable as its
/// own level says when it becomes visible.
#[test]
fn updates_are_combined_with_those_of_their_level() -> Result<()> {
    on_server(|server| only_alike(server, "remote_apply"))?;
    on_server(|server| only_alike(server, "local"))?;
    on_server(|server| only_alike(server, "off"))
}

fn only_alike(server: &Server, level: &str) -> Result<()> {
    let mut stage = Stage::new(server, BUMP)?;
    let mut session = grouped(server)?;
    session.batch_execute(&format!("SET synchronous_commit = {level}"))?;
    let other = Background::run(session, BUMP)?;
    stage.wait_queued(1)?;
    let same = Background::run(grouped(server)?, BUMP)?;
    stage.wait_queued(2)?;
    stage.release()?;
    ensure!(stage.end()? == "00000");
    ensure!(sqlstate(&other.end()?.1) == "00000" && sqlstate(&same.end()?.1) == "00000");
    ensure!(stage.val()? == 3, "the value is {}", stage.val()?);
    ensure!(
        stage.combined()? == 1,
        "{level}: {} combined",
        stage.combined()?
    );
    Ok(())
}
