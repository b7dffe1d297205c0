//! Transaction blocks that come in one message.

use anyhow::{Result, ensure};
use txn_server_tests::{Background, grouped, sqlstate};

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
