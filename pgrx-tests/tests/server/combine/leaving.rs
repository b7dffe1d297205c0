//! Sessions whose update another one does, or is to do, and which end before.
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libc::{SIGCONT, SIGSTOP};
use pgserver::signal;
use txn_server_tests::{Background, grouped, sqlstate, wait_until};

use crate::stage::{Prepared, Stage, crowd};

use super::{BUMP, on_server};

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

/// Until the holder is about to commit, a session whose update it has done may be cancelled. Then
/// the holder, whose version has that update in it, fails, and the others do theirs.
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

/// A holder that waits for others for long loses those whose updates it has done: the deadlock
/// detector shall see them.
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
        // Its time with the holder begins when the holder waits for nobody any more, and gets no
        // processor.
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

/// After that it is too late, as it is after a commit, and nothing is left of it for the next
/// statement.
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

/// A cancel that comes while the session stands in the queue acts at once, and its update is not
/// done.
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

/// Somebody with hotlock off has locked the row: nobody is made to wait for that who could be
/// cancelled.
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
