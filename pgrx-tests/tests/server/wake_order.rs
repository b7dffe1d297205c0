//! Which waiter has a hot row next: the newest for `txn.newest_first`, then those in order of
//! arrival.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, grouped, pid, sqlstate, start_hot, until};

use crate::stage::Stage;

/// A call of a volatile function: the holder does not do it for those that wait.
const DRAW: &str = "UPDATE hot SET val = val + 1 + floor(random()) WHERE id = 1 RETURNING val";

/// Three sessions wait one after the other. Returns when each has had the row, from 0.
fn turns(server: &Server, newest_first: &str) -> Result<[i64; 3]> {
    let holds = "UPDATE hot SET val = 0 WHERE id = 1";
    let setting = format!("SET txn.newest_first = '{newest_first}'");
    let sessions = [(); 3].map(|()| {
        let mut client = grouped(server)?;
        client.batch_execute(&setting)?;
        anyhow::Ok((pid(&mut client)?, client))
    });
    let mut stage = Stage::with(server, &setting, holds)?;
    let mut waiting = Vec::new();
    for (session, n) in sessions.into_iter().zip(1..) {
        let (pid, client) = session?;
        let session = Background::call(client, pid, |client| {
            client.query_one(DRAW, &[]).map(|row| row.get::<_, i64>(0))
        });
        stage.wait_queued(n)?;
        session.wait_until_blocked(&mut stage.control)?;
        waiting.push(session);
    }
    stage.release()?;
    ensure!(stage.end()? == "00000");
    let mut turns = [0; 3];
    for (turn, session) in turns.iter_mut().zip(waiting) {
        let (_, told) = session.end()?;
        ensure!(told.is_ok(), "{}", sqlstate(&told));
        *turn = told? - 1;
    }
    Ok(turns)
}

#[test]
fn waiters_go_on_in_order_of_arrival() -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
    for _ in 0..5 {
        let turns = turns(&server, "0")?;
        ensure!(turns == [0, 1, 2], "{turns:?}");
    }
    Ok(())
}

/// Unless the machine was so slow that they had waited for too long.
#[test]
fn the_newest_waiter_is_first() -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
    until(&mut server.connect()?, "the newest is first", |_| {
        Ok(turns(&server, "1s")? == [2, 1, 0])
    })
}
