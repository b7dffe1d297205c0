//! Combining: a session that has the ticket does the waiting updates of others. The holder is stopped at a named point (a
//! library with the feature `stop_events`), so that it is certain who is done by whom.
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libc::{SIGCONT, SIGSTOP};
use pgserver::{Server, signal};
use postgres::Client;
use txn_server_tests::{
    Background, Load, Watchdog, grouped, int, physical_health, sqlstate, start_hot, text,
    wait_until,
};

use crate::stage::{Prepared, Stage, crowd};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// Nobody goes to the lock manager, where it would not be seen.
const PATIENT: [(&str, &str); 1] = [("deadlock_timeout", "10min")];

fn versions(client: &mut Client) -> Result<i64> {
    client.batch_execute("CREATE EXTENSION IF NOT EXISTS pageinspect")?;
    int(
        client,
        "SELECT count(*) FROM heap_page_items(get_raw_page('hot', 0)) WHERE lp_flags = 1",
    )
}

/// Runs `scenario` on a server of its own.
fn on_server(scenario: fn(&Server) -> Result<()>) -> Result<()> {
    let server = start_hot(1, &PATIENT)?;
    let dog = Watchdog::new(&server);
    dog.finish(scenario(&server))?;
    physical_health(&server, "hot", "id")
}

#[test]
fn waiters_share_the_holders_version() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let before = versions(&mut stage.control)?;
        let waiters = crowd(server, 5, BUMP)?;
        stage.wait_queued(5)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for waiter in waiters {
            let told = sqlstate(&waiter.end()?.1);
            ensure!(told == "00000", "a waiter was told {told}");
        }
        ensure!(stage.val()? == 6, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 5, "{} combined", stage.combined()?);
        let written = versions(&mut stage.control)? - before;
        ensure!(written == 1, "{written} versions of the row were written");
        let updates = int(&mut stage.control, "SELECT updates FROM txn.hotspots")?;
        ensure!(updates == 7, "txn.hotspots counts {updates} updates");
        let stats = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'hot'";
        wait_until(&mut stage.control, &format!("SELECT ({stats}) = 7"))
    })
}

/// Each has arguments of its own, and conditions that are checked against what those before it have left.
#[test]
fn arguments_and_conditions_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute("UPDATE hot SET val = 10")?;
        let take = "UPDATE hot SET val = val - $1 WHERE id = 1 AND val >= $1";
        let mut stage = Stage::new(server, BUMP)?;
        // The holder's statement is another: the first of these does the others.
        let takers: Vec<_> = [3, 4, 5, 3]
            .into_iter()
            .map(|amount| Prepared::run(server, take, vec![amount]))
            .collect::<Result<_>>()?;
        stage.wait_queued(4)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        let mut taken = 0;
        for (taker, amount) in takers.into_iter().zip([3, 4, 5, 3]) {
            match taker.end()?? {
                0 => {}
                1 => taken += amount,
                rows => bail!("one update changed {rows} rows"),
            }
        }
        let val = stage.val()?;
        ensure!(val == 11 - taken, "{taken} taken of 11, {val} left");
        ensure!(val < 3, "{val} left, and somebody was refused");
        ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// An error belongs to the session whose arguments made it.
#[test]
fn errors_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "UPDATE hot SET val = 100; ALTER TABLE hot ADD CONSTRAINT solvent CHECK (val >= 0)",
        )?;
        let divide = "UPDATE hot SET val = val / $1 - $2 WHERE id = 1";
        let mut stage = Stage::new(server, BUMP)?;
        let first = Prepared::run(server, divide, vec![1, 1])?;
        stage.wait_queued(1)?;
        let by_zero = Prepared::run(server, divide, vec![0, 1])?;
        stage.wait_queued(2)?;
        let too_much = Prepared::run(server, divide, vec![1, 1000])?;
        stage.wait_queued(3)?;
        let last = Prepared::run(server, divide, vec![2, 0])?;
        stage.wait_queued(4)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        ensure!(first.end()?? == 1 && last.end()?? == 1);
        let told = sqlstate(&by_zero.end()?);
        ensure!(told == "22012", "who divided by zero was told {told}");
        let error = too_much.end()?.err().context("nobody may overdraw")?;
        let error = error.as_db_error().context("an error of the server")?;
        ensure!(error.code().code() == "23514" && error.constraint() == Some("solvent"));
        // They are executed in any order: 101 / 1 - 1, / 2 - 0, or the other way round.
        ensure!(
            [49, 50].contains(&stage.val()?),
            "the value is {}",
            stage.val()?
        );
        ensure!(stage.combined()? >= 1, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// The holder is terminated with the updates of others in its version: they do them by themselves.
#[test]
fn who_depended_on_a_terminated_holder_goes_on() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let waiters = crowd(server, 3, BUMP)?;
        stage.wait_queued(3)?;
        stage.release_to("before_commit_wait")?;
        let pid = stage.holder_pid();
        stage
            .control
            .query("SELECT pg_terminate_backend($1)", &[&pid])?;
        let told = stage.end()?;
        ensure!(["57P01", "lost"].contains(&told.as_str()), "told {told}");
        stage.release_from("before_commit_wait")?;
        for waiter in waiters {
            let told = sqlstate(&waiter.end()?.1);
            ensure!(told == "00000", "a waiter was told {told}");
        }
        ensure!(stage.val()? == 3, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// Until the holder is about to commit, a session whose update it has done may be cancelled. Then the holder, whose version
/// has that update in it, fails, and the others do theirs.
#[test]
fn the_adopted_may_leave_before_the_seal() -> Result<()> {
    on_server(|server| {
        for (ending, code) in [
            ("pg_cancel_backend", "57014"),
            ("pg_terminate_backend", "57P01"),
            ("lock_timeout", "55P03"),
            ("statement_timeout", "57014"),
            ("txn.hot_wait_timeout", "55P03"),
        ] {
            let mut stage = Stage::new(server, BUMP)?;
            let before = stage.val()?;
            let mut session = grouped(server)?;
            if !ending.starts_with("pg_") {
                session.batch_execute(&format!("SET {ending} = '1s'"))?;
            }
            let leaver = Background::run(session, BUMP)?;
            let others = crowd(server, 2, BUMP)?;
            stage.wait_queued(3)?;
            stage.release_to("before_commit_wait")?;
            if ending.starts_with("pg_") {
                let sql = format!("SELECT {ending}($1)");
                stage.control.query(&sql, &[&leaver.pid])?;
            }
            let told = sqlstate(&leaver.end()?.1);
            ensure!(
                told == code || (code == "57P01" && told == "lost"),
                "{ending}: told {told}"
            );
            stage.release_from("before_commit_wait")?;
            let told = stage.end()?;
            ensure!(told == "40001", "{ending}: the holder was told {told}");
            for other in others {
                ensure!(sqlstate(&other.end()?.1) == "00000");
            }
            let done = stage.val()? - before;
            ensure!(done == 2, "{ending}: {done} updates were done");
        }
        Ok(())
    })
}

/// A holder that waits for others for long loses those whose updates it has done: the deadlock detector shall see them.
#[test]
fn the_adopted_leave_a_holder_that_waits_for_long() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let mut session = grouped(server)?;
        session.batch_execute("SET deadlock_timeout = '50ms'")?;
        stage
            .control
            .batch_execute("SELECT pg_advisory_lock(hashtext('txn.before_commit_wait'))")?;
        stage.release()?;
        stage.wait_stopped()?;
        let alone = Background::run(session, BUMP)?;
        alone.wait_until_blocked(&mut stage.control)?;
        stage.wait_blocking(alone.pid)?;
        stage.release_from("before_commit_wait")?;
        ensure!(stage.end()? == "00000");
        ensure!(sqlstate(&alone.end()?.1) == "00000");
        ensure!(stage.val()? == 2, "the value is {}", stage.val()?);

        let mut stage = Stage::new(server, BUMP)?;
        let mut session = grouped(server)?;
        session.batch_execute("SET deadlock_timeout = '1s'")?;
        let adopted = Background::run(session, BUMP)?;
        stage.wait_queued(1)?;
        stage.release_to("before_commit_wait")?;
        stage.wait_blocking(adopted.pid)?;
        stage.release_from("before_commit_wait")?;
        ensure!(stage.end()? == "40001");
        ensure!(sqlstate(&adopted.end()?.1) == "00000");
        ensure!(stage.val()? == 3, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// A holder that is merely slow keeps them: a busy machine is no reason to fail.
#[test]
fn the_adopted_stay_with_a_holder_that_is_slow() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let mut session = grouped(server)?;
        session.batch_execute("SET deadlock_timeout = '3s'")?;
        let adopted = Background::run(session, BUMP)?;
        stage.wait_queued(1)?;
        adopted.wait_until_blocked(&mut stage.control)?;
        // Its time with the holder begins when the holder waits for nobody any more, and gets no processor.
        signal(adopted.pid, SIGSTOP)?;
        stage.release_to("before_commit_wait")?;
        signal(stage.holder_pid(), SIGSTOP)?;
        stage.release_from("before_commit_wait")?;
        signal(adopted.pid, SIGCONT)?;
        std::thread::sleep(Duration::from_millis(4500));
        ensure!(!adopted.is_finished());
        signal(stage.holder_pid(), SIGCONT)?;
        ensure!(stage.end()? == "00000");
        ensure!(sqlstate(&adopted.end()?.1) == "00000");
        ensure!(stage.combined()? == 1, "{} combined", stage.combined()?);
        ensure!(stage.val()? == 2, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// After that it is too late, as it is after a commit, and nothing is left of it for the next statement.
#[test]
fn cancels_and_timeouts_come_too_late_after_the_seal() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let mut sessions = Vec::new();
        for setting in [
            "lock_timeout = 0",
            "lock_timeout = 1000",
            "statement_timeout = 1000",
        ] {
            let mut session = grouped(server)?;
            session.batch_execute(&format!("SET {setting}"))?;
            sessions.push(Background::run(session, BUMP)?);
        }
        let terminated = Background::run(grouped(server)?, BUMP)?;
        stage.wait_queued(4)?;
        stage.release_to("sealed")?;
        stage
            .control
            .query("SELECT pg_cancel_backend($1)", &[&sessions[0].pid])?;
        stage
            .control
            .query("SELECT pg_terminate_backend($1)", &[&terminated.pid])?;
        std::thread::sleep(Duration::from_millis(1200));
        let finished = sessions.iter().filter(|s| s.is_finished()).count();
        ensure!(
            finished == 0,
            "{finished} went on before the holder committed"
        );
        stage.release_from("sealed")?;
        ensure!(stage.end()? == "00000");
        for session in sessions {
            let (mut client, result) = session.end()?;
            ensure!(sqlstate(&result) == "00000", "told {}", sqlstate(&result));
            client
                .batch_execute("SELECT 1; SELECT 2")
                .context("nothing is left of the cancel")?;
        }
        let told = sqlstate(&terminated.end()?.1);
        ensure!(
            ["00000", "57P01", "lost"].contains(&told.as_str()),
            "told {told}"
        );
        ensure!(stage.val()? == 5, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 4, "{} combined", stage.combined()?);
        Ok(())
    })
}

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

/// One that fails among those that are adopted is refused once, wherever it has gone meanwhile.
#[test]
fn who_was_refused_is_not_refused_again() -> Result<()> {
    on_server(|server| {
        server
            .connect()?
            .batch_execute("UPDATE hot SET val = 100")?;
        let divide = "UPDATE hot SET val = val / $1 WHERE id = 1";
        let mut stage = Stage::new(server, BUMP)?;
        let waiters: Vec<_> = [1, 0, 1, 0, 1, 1]
            .into_iter()
            .enumerate()
            .map(|(n, by)| {
                let waiter = Prepared::run(server, divide, vec![by]);
                stage.wait_queued(n as i32 + 1)?;
                waiter
            })
            .collect::<Result<_>>()?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        let told: Vec<_> = waiters
            .into_iter()
            .map(|waiter| Ok(sqlstate(&waiter.end()?)))
            .collect::<Result<_>>()?;
        ensure!(
            told == ["00000", "22012", "00000", "22012", "00000", "00000"],
            "{told:?}"
        );
        ensure!(stage.val()? == 101, "the value is {}", stage.val()?);
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

/// A cancel that comes while the session stands in the queue acts at once, and its update is not done.
#[test]
fn who_is_cancelled_in_the_queue_is_not_adopted() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let cancelled = Background::run(grouped(server)?, BUMP)?;
        let mut session = grouped(server)?;
        session.batch_execute("SET lock_timeout = 50")?;
        let late = Background::run(session, BUMP)?;
        let mut session = grouped(server)?;
        session.batch_execute("SET txn.hot_wait_timeout = 50")?;
        let later = Background::run(session, BUMP)?;
        stage.wait_queued(1)?;
        stage
            .control
            .query("SELECT pg_cancel_backend($1)", &[&cancelled.pid])?;
        for (session, code) in [(cancelled, "57014"), (late, "55P03"), (later, "55P03")] {
            let told = sqlstate(&session.end()?.1);
            ensure!(told == code, "told {told} instead of {code}");
        }
        stage.release()?;
        ensure!(stage.end()? == "00000");
        ensure!(stage.val()? == 1, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 0);
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

/// Somebody with hotlock off has locked the row: nobody is made to wait for that who could be cancelled.
#[test]
fn a_row_lock_in_the_way_keeps_nobody_uninterruptible() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let mut stranger = server.connect()?;
        stranger.batch_execute("BEGIN; SELECT FROM hot WHERE id = 1 FOR UPDATE")?;
        let waiter = Background::run(grouped(server)?, BUMP)?;
        let cancelled = Background::run(grouped(server)?, BUMP)?;
        stage.wait_queued(2)?;
        stage.release()?;
        // The holder waits for the stranger, in the ordinary way.
        let pid = stage.holder_pid();
        wait_until(
            &mut stage.control,
            &format!(
                "SELECT count(*) > 0 FROM pg_locks \
                 WHERE pid = {pid} AND locktype = 'transactionid' AND NOT granted"
            ),
        )?;
        stage
            .control
            .query("SELECT pg_cancel_backend($1)", &[&cancelled.pid])?;
        let told = sqlstate(&cancelled.end()?.1);
        ensure!(told == "57014", "who was cancelled was told {told}");
        stranger.batch_execute("COMMIT")?;
        ensure!(stage.end()? == "00000");
        ensure!(sqlstate(&waiter.end()?.1) == "00000");
        ensure!(stage.val()? == 2, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// Many sessions, with and without a place in each other's transactions; what each is told adds up.
#[test]
fn a_crowd_with_arguments_of_its_own() -> Result<()> {
    let server = start_hot(1, &[])?;
    let tally = Load::new(&server, 48, 100)
        .session(|number| {
            let off = [
                "",
                "; SET txn.combine_updates = off",
                "; SET txn.early_visibility = off",
            ];
            let off = off[if number % 8 == 0 {
                1 + number / 8 % 2
            } else {
                0
            }];
            format!(
                "SET txn.group_lock = on; SET txn.hot_threshold = 1; \
                 SET plan_cache_mode = force_generic_plan{off}"
            )
        })
        .run(|worker| {
            let amount = 1 + (worker.attempt % 7) as i64;
            worker.committing(amount, |worker| {
                worker.execute("UPDATE hot SET val = val + $1 WHERE id = 1", &[&amount])
            })
        })?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot")?)?;
    drop(client);
    physical_health(&server, "hot", "id")
}
