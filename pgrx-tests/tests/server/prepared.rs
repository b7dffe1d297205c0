//! PREPARE TRANSACTION on hot rows, under load and over a crash.

mod followed;

use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Error;
use txn_server_tests::{
    Background, Done, Load, Watchdog, Worker, grouped, int, physical_health, pid, sqlstate,
    start_hot,
};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

fn in_two_phases(worker: &mut Worker, run: &str) -> Result<Done, Error> {
    let gid = format!("{run}-{}-{}", worker.number, worker.attempt);
    worker.begin()?;
    worker.execute(BUMP, &[])?;
    worker.simple(&format!("PREPARE TRANSACTION '{gid}'"))?;
    if worker.chance(10) {
        worker.simple(&format!("ROLLBACK PREPARED '{gid}'"))?;
        return Ok(Done::RolledBack);
    }
    worker.committing(1, |worker| {
        worker.simple(&format!("COMMIT PREPARED '{gid}'"))
    })
}

#[test]
fn two_phases_next_to_one() -> Result<()> {
    let server = start_hot(1, &[])?;
    let tally = Load::new(&server, 40, 40).grouped().run(|worker| {
        if worker.number % 2 == 0 {
            return worker.committing(1, |worker| worker.execute(BUMP, &[]));
        }
        in_two_phases(worker, "p")
    })?;
    // 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
    tally.only(&["40001", "40P01"])?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}

/// A transaction has locked the version of one that is then prepared: it waits for the end of that
/// one.
#[test]
fn a_lender_that_is_prepared_is_awaited() -> Result<()> {
    const LOCKS: [&str; 2] = [
        "BEGIN; SELECT FROM hot WHERE id = 1 FOR UPDATE",
        "BEGIN; INSERT INTO hot (id, val) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET val = 9 WHERE false",
    ];
    let server = start_hot(1, &[])?;
    let mut control = server.connect()?;
    for lock in LOCKS {
        for (end, told) in [("COMMIT", "00000"), ("ROLLBACK", "40001")] {
            let mut first = grouped(&server)?;
            first.batch_execute(&format!("BEGIN; {BUMP}"))?;
            let mut second = grouped(&server)?;
            let pid = pid(&mut second)?;
            second.batch_execute(lock)?;
            first.batch_execute("PREPARE TRANSACTION 'lender'")?;
            let second = Background::call(second, pid, |client| {
                client.batch_execute(BUMP)?;
                client.batch_execute("COMMIT")
            });
            second.wait_until_blocked(&mut control).context(lock)?;
            control.batch_execute(&format!("{end} PREPARED 'lender'"))?;
            let answer = sqlstate(&second.end()?.1);
            ensure!(answer == told, "{answer} instead of {told}: {lock}, {end}");
        }
    }
    let val = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(val == 4, "the value is {val}");
    drop(control);
    physical_health(&server, "hot", "id")
}

/// After the crash, whatever is left prepared is rolled back: its COMMIT was in doubt or never
/// sent.
#[test]
fn two_phases_over_a_crash() -> Result<()> {
    let mut server = start_hot(1, &[])?;
    let load = Load::new(&server, 30, 60).grouped();
    let half = load.transactions() / 2;
    let tally = load.run_disturbed(
        |worker| in_two_phases(worker, "c"),
        |running| {
            ensure!(running.wait_for(half), "the load ended before the crash");
            server.kill9()?;
            server.start_again()?;
            let mut client = server.connect()?;
            let left =
                "SELECT gid FROM pg_prepared_xacts WHERE prepared < pg_postmaster_start_time()";
            for row in client.query(left, &[])? {
                let gid: String = row.get(0);
                client.batch_execute(&format!("ROLLBACK PREPARED '{gid}'"))?;
            }
            Ok(())
        },
    )?;
    tally.only(&["lost", "57P01", "57P02", "57P03", "40001", "40P01"])?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}

/// A prepared transaction outlives the shared memory that knew of its place in the list: after the
/// restart it stands in the way of the next updater as any prepared transaction does.
#[test]
fn commit_prepared_after_a_restart() -> Result<()> {
    let mut server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    let result = over_a_restart(&mut server, &dog);
    dog.finish(result)
}

fn over_a_restart(server: &mut Server, dog: &Watchdog) -> Result<()> {
    let mut first = grouped(server)?;
    first.batch_execute("BEGIN")?;
    first.batch_execute(BUMP)?;
    first.batch_execute("PREPARE TRANSACTION 'first'")?;
    // Behind the prepared one, and goes down with the server.
    let second = Background::run(grouped(server)?, BUMP)?;
    second.wait_until_blocked(&mut server.connect()?)?;
    server.kill9()?;
    server.start_again()?;
    dog.progress();

    let mut client = server.connect()?;
    let val = int(&mut client, "SELECT val FROM hot")?;
    ensure!(val == 0, "val is {val} with nothing committed");
    let third = Background::run(grouped(server)?, BUMP)?;
    third.wait_until_blocked(&mut client)?;
    client.batch_execute("COMMIT PREPARED 'first'")?;
    third.end()?.1?;
    let val = int(&mut client, "SELECT val FROM hot")?;
    ensure!(val == 2, "val is {val} after two increments");
    drop(client);
    physical_health(server, "hot", "id")
}
