//! Transaction blocks that come in one message.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use txn_server_tests::{Background, grouped, join, sqlstate};

use crate::stage::{Stage, crowd};

use super::{BUMP, on_server};

#[test]
fn a_block_of_one_statement_is_combined() -> Result<()> {
    on_server(|server| {
        for (n, block) in [
            format!("BEGIN; {BUMP}; COMMIT"),
            format!("START TRANSACTION; {BUMP}; END;"),
            format!("/* one */ begin isolation level read committed ;\n{BUMP} ;commit"),
        ]
        .iter()
        .enumerate()
        {
            let before = n as i64;
            let mut stage = Stage::new(server, BUMP)?;
            let waiters = crowd(server, 4, block)?;
            stage.wait_queued(4)?;
            stage.release()?;
            ensure!(stage.end()? == "00000");
            for waiter in waiters {
                let (mut client, told) = waiter.end()?;
                told?;
                // Its transaction is over.
                client.batch_execute("VACUUM hot")?;
            }
            let (val, combined) = (stage.val()?, stage.combined()?);
            ensure!(val == 5 * (before + 1), "{block}: the value is {val}");
            ensure!(combined == 4 * (before + 1), "{block}: {combined} combined");
        }
        Ok(())
    })
}

/// What stands beside the statement may fail, or undo it.
#[test]
fn a_block_with_more_in_it_is_not_combined() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let blocks = [
            format!("BEGIN; {BUMP}; SELECT 1; COMMIT"),
            format!("BEGIN; SELECT 1; {BUMP}; COMMIT"),
            format!("BEGIN; {BUMP}; COMMIT; SELECT 1"),
            format!("BEGIN; SAVEPOINT a; {BUMP}; COMMIT"),
            format!("BEGIN; {BUMP}; COMMIT AND CHAIN; ROLLBACK"),
            format!("SELECT 1; {BUMP}; SELECT 1"),
            format!("BEGIN; {BUMP}"),
        ];
        let mut waiters = Vec::new();
        for block in &blocks {
            waiters.push(Background::run(grouped(server)?, block)?);
        }
        let mut late = grouped(server)?;
        late.batch_execute("BEGIN; SELECT 1")?;
        waiters.push(Background::run(late, &format!("BEGIN; {BUMP}; COMMIT"))?);
        stage.wait_queued(waiters.len() as i32)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        let mut ended = 0;
        // The last but one leaves its block open: those behind it wait for it.
        let open = waiters.remove(blocks.len() - 1);
        let (mut client, told) = open.end()?;
        told?;
        client.batch_execute("COMMIT")?;
        for waiter in waiters {
            waiter.end()?.1?;
            ended += 1;
        }
        let (val, combined) = (stage.val()?, stage.combined()?);
        ensure!(val == 2 + ended, "{ended} have ended, the value is {val}");
        ensure!(combined == 0, "{combined} combined");
        Ok(())
    })
}

/// A block whose update is undone by the session itself is no block of one.
#[test]
fn a_block_that_rolls_back_changes_nothing() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let waiters = crowd(server, 3, &format!("BEGIN; {BUMP}; ROLLBACK"))?;
        stage.wait_queued(3)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for waiter in waiters {
            let told = sqlstate(&waiter.end()?.1);
            ensure!(["00000", "40001"].contains(&told.as_str()), "told {told}");
        }
        ensure!(stage.val()? == 1, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 0, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// The session that has the ticket does those of others, and commits by a statement of its own.
#[test]
fn a_block_leads_others() -> Result<()> {
    on_server(|server| {
        let block = format!("BEGIN; {BUMP}; COMMIT");
        let mut stage = Stage::new(server, &block)?;
        let mut waiters = crowd(server, 2, BUMP)?;
        waiters.extend(crowd(server, 2, &block)?);
        let returning = format!("BEGIN; {BUMP} RETURNING val; COMMIT");
        waiters.extend(crowd(server, 1, &returning)?);
        stage.wait_queued(5)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        for waiter in waiters {
            waiter.end()?.1?;
        }
        ensure!(stage.val()? == 6, "the value is {}", stage.val()?);
        // RETURNING is another form: its session does it by itself.
        ensure!(stage.combined()? == 4, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Once the holder commits, the waiters' blocks are done: nothing comes between UPDATE and COMMIT.
#[test]
fn nothing_comes_between_the_update_and_its_commit() -> Result<()> {
    on_server(|server| {
        let block = format!("BEGIN; {BUMP}; COMMIT");
        let mut stage = Stage::new(server, &block)?;
        let mut sessions = Vec::new();
        for setting in [
            "lock_timeout = 0",
            "lock_timeout = 4000",
            "statement_timeout = 4000",
        ] {
            let mut session = grouped(server)?;
            session.batch_execute(&format!("SET {setting}"))?;
            sessions.push(Background::run(session, &block)?);
        }
        // The driver may tell of a FATAL that comes after the answer in place of that.
        let mut terminated = server.command("psql");
        terminated
            .args(["--no-psqlrc", "--dbname=postgres", "--command", &block])
            .env("PGOPTIONS", "-c txn.group_lock=on")
            .env("PGAPPNAME", "terminated");
        let terminated = std::thread::spawn(move || terminated.output());
        stage.wait_queued(4)?;
        stage.release_to("sealed")?;
        let control = &mut stage.control;
        control.query("SELECT pg_cancel_backend($1)", &[&sessions[0].pid])?;
        control.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'terminated'",
            &[],
        )?;
        std::thread::sleep(Duration::from_millis(4200));
        stage.release_from("sealed")?;
        ensure!(stage.end()? == "00000");
        for session in sessions {
            let (mut client, told) = session.end()?;
            ensure!(sqlstate(&told) == "00000", "told {}", sqlstate(&told));
            let again = client.batch_execute("SELECT 1; SELECT 2");
            again.context("nothing is left of the cancel")?;
        }
        // It hears of its end when its COMMIT has been answered.
        let told = join(terminated, "psql")??;
        let told = String::from_utf8_lossy(&told.stdout);
        ensure!(told == "BEGIN\nUPDATE 1\nCOMMIT\n", "told {told}");
        ensure!(stage.val()? == 5, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 4, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// What is looked at again is read as it was the first time, whatever has been set meanwhile.
#[test]
fn settings_of_the_scanner_may_change_in_the_message() -> Result<()> {
    on_server(|server| {
        let mut client = grouped(server)?;
        let odd = r"SELECT 'C:\'";
        for message in [
            format!("SET standard_conforming_strings = off; {BUMP}; {odd}; {BUMP}; SELECT 1"),
            format!("{odd}; SET standard_conforming_strings = off; {BUMP}; SELECT 1"),
            format!("BEGIN; SET standard_conforming_strings = off; {BUMP}; {odd}; COMMIT"),
        ] {
            client.batch_execute("SET standard_conforming_strings = on")?;
            client.batch_execute(&message).context(message)?;
        }
        let val: i64 = client
            .query_one("SELECT val FROM hot WHERE id = 1", &[])?
            .get(0);
        ensure!(val == 4, "the value is {val}");
        Ok(())
    })
}
