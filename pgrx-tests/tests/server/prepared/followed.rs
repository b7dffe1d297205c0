//! Others follow the version of a prepared transaction: they commit after COMMIT PREPARED, and fall
//! with ROLLBACK PREPARED.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, grouped, int, physical_health, pid, sqlstate, start_hot, wait_until,
};

use super::BUMP;

const OTHER: &str = "UPDATE hot SET val = val + 1 WHERE id = 2";
const ENDS: [(&str, &str); 2] = [("COMMIT", "00000"), ("ROLLBACK", "40001")];

/// Plays it on a server with that many rows, under a watchdog, and looks at the table afterwards.
fn scenario(
    rows: u32,
    settings: &[(&str, &str)],
    play: impl FnOnce(&Server, &mut Client) -> Result<()>,
) -> Result<()> {
    let server = start_hot(rows, settings)?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    let played = play(&server, &mut control);
    drop(control);
    dog.finish(played.and_then(|()| physical_health(&server, "hot", "id")))
}

/// Plays a scenario of one row for each end of the prepared transaction, and what those behind it
/// are told.
fn for_each_end(play: impl Fn(&Server, &mut Client, &str, &str) -> Result<()>) -> Result<()> {
    for (end, told) in ENDS {
        scenario(1, &[], |server, control| play(server, control, end, told))?;
    }
    Ok(())
}

fn begun(server: &Server, statements: &str) -> Result<Client> {
    let mut client = grouped(server)?;
    client.batch_execute(&format!("BEGIN; {statements}"))?;
    Ok(client)
}

/// A transaction that has run these statements, and is prepared.
fn prepared(server: &Server, gid: &str, statements: &str) -> Result<Client> {
    let mut client = begun(server, statements)?;
    client.batch_execute(&format!("PREPARE TRANSACTION '{gid}'"))?;
    Ok(client)
}

fn followed_prepared(client: &mut Client) -> Result<i64> {
    int(client, "SELECT followed_prepared FROM txn.stats")
}

fn val(client: &mut Client, id: i32) -> Result<i64> {
    int(client, &format!("SELECT val FROM hot WHERE id = {id}"))
}

fn nobody_is_listed(client: &mut Client) -> Result<()> {
    let running = int(client, "SELECT sum(running) FROM txn.hotspots")?;
    ensure!(running == 0, "{running} left in a list");
    Ok(())
}

/// Blocks and single statements; the row is as usable afterwards as before.
#[test]
fn until_it_ends() -> Result<()> {
    for_each_end(|server, control, end, told| {
        prepared(server, "first", BUMP)?;
        let second = begun(server, BUMP)?;
        let third = Background::run(grouped(server)?, BUMP)?;
        third.wait_until_blocked(control)?;
        let fourth = begun(server, BUMP)?;
        ensure!(followed_prepared(control)? == 1, "the first one behind");
        ensure!(int(control, "SELECT followed FROM txn.stats")? == 3);
        ensure!(val(control, 1)? == 0, "nothing is committed");
        let second = Background::run(second, "COMMIT")?;
        let fourth = Background::run(fourth, "COMMIT")?;
        for waiting in [&second, &fourth] {
            waiting.wait_until_blocked(control)?;
        }
        control.batch_execute(&format!("{end} PREPARED 'first'"))?;
        for waiting in [second, third, fourth] {
            let answer = sqlstate(&waiting.end()?.1);
            ensure!(answer == told, "{answer} instead of {told} after {end}");
        }
        grouped(server)?.batch_execute(BUMP)?;
        let expected = if end == "COMMIT" { 5 } else { 1 };
        ensure!(val(control, 1)? == expected, "after {end}");
        nobody_is_listed(control)
    })
}

/// A YES to PREPARE is final: it comes after the end of the prepared predecessor, and the next one
/// follows the next.
#[test]
fn by_one_that_is_prepared_itself() -> Result<()> {
    for_each_end(|server, control, end, told| {
        prepared(server, "first", BUMP)?;
        let second = begun(server, BUMP)?;
        let second = Background::run(second, "PREPARE TRANSACTION 'second'")?;
        second.wait_until_blocked(control)?;
        control.batch_execute(&format!("{end} PREPARED 'first'"))?;
        ensure!(sqlstate(&second.end()?.1) == told, "after {end}");
        if end == "ROLLBACK" {
            return Ok(());
        }
        let third = Background::run(begun(server, BUMP)?, "COMMIT")?;
        third.wait_until_blocked(control)?;
        ensure!(followed_prepared(control)? == 2);
        control.batch_execute("COMMIT PREPARED 'second'")?;
        third.end()?.1?;
        ensure!(val(control, 1)? == 3);
        Ok(())
    })
}

/// Several rows of one prepared transaction, met in another order; it comes to no further row, so
/// nobody lets it pass.
#[test]
fn on_several_rows() -> Result<()> {
    scenario(3, &[], |server, control| {
        let three = "UPDATE hot SET val = val + 1 WHERE id = 3";
        // Rows become hot when they are updated by such a session.
        for row in [BUMP, OTHER, three] {
            grouped(server)?.batch_execute(row)?;
        }
        prepared(server, "first", &format!("{BUMP}; {OTHER}"))?;
        let second = begun(server, &format!("{OTHER}; {three}; {BUMP}"))?;
        ensure!(followed_prepared(control)? == 2);
        let second = Background::run(second, "COMMIT")?;
        second.wait_until_blocked(control)?;
        control.batch_execute("COMMIT PREPARED 'first'")?;
        second.end()?.1?;
        for (id, expected) in [(1, 3), (2, 3), (3, 2)] {
            ensure!(val(control, id)? == expected, "row {id}");
        }
        Ok(())
    })
}

/// The session that ends it is held between the end and the lists: whoever comes to the row takes
/// the place off. What stood for it stands for another one already, which has no place of its own
/// as long as the old one is there.
#[test]
fn places_that_are_taken_off_late() -> Result<()> {
    let one = [("max_prepared_transactions", "1")];
    for (end, told) in ENDS {
        for next in [BUMP, OTHER] {
            scenario(2, &one, |server, control| {
                taken_off_late(server, control, end, told, next)
            })?;
        }
    }
    Ok(())
}

fn taken_off_late(
    server: &Server,
    control: &mut Client,
    end: &str,
    told: &str,
    next: &str,
) -> Result<()> {
    prepared(server, "first", BUMP)?;
    let second = Background::run(begun(server, BUMP)?, "COMMIT")?;
    second.wait_until_blocked(control)?;
    control.batch_execute("SELECT pg_advisory_lock(hashtext('txn.prepared_ended'))")?;
    let mut ending = server.connect()?;
    ending.batch_execute("SET txn.stop_at = 'prepared_ended'")?;
    let ending = Background::run(ending, &format!("{end} PREPARED 'first'"))?;
    ending.wait_until_blocked(control)?;
    prepared(server, "next", next)?;
    ensure!(sqlstate(&second.end()?.1) == told, "after {end}");
    let third = Background::run(grouped(server)?, next)?;
    third.wait_until_blocked(control)?;
    control.batch_execute("SELECT pg_advisory_unlock_all()")?;
    ending.end()?.1?;
    ensure!(!third.is_finished(), "its predecessor is prepared");
    control.batch_execute("COMMIT PREPARED 'next'")?;
    third.end()?.1?;
    let sum = int(control, "SELECT sum(val) FROM hot")?;
    let expected = if end == "COMMIT" { 4 } else { 2 };
    ensure!(sum == expected, "{sum} after {end} and {next}");
    nobody_is_listed(control)
}

/// What a prepared transaction has defined comes with COMMIT PREPARED, which nobody counts.
#[test]
fn not_when_it_changes_definitions() -> Result<()> {
    scenario(1, &[], |server, control| {
        let define = "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'";
        prepared(server, "first", &format!("{BUMP}; {define}"))?;
        let second = Background::run(grouped(server)?, BUMP)?;
        second.wait_until_blocked(control)?;
        ensure!(followed_prepared(control)? == 0);
        control.batch_execute("COMMIT PREPARED 'first'")?;
        second.end()?.1?;
        ensure!(val(control, 1)? == 2);
        Ok(())
    })
}

/// A transaction has locked a predecessor's version, and keeps the ticket for its update. It stands
/// in the list as a reader, which no transaction can follow.
#[test]
fn not_when_it_has_kept_the_ticket() -> Result<()> {
    scenario(1, &[], |server, control| {
        control.batch_execute(
            "CREATE TABLE far (id int PRIMARY KEY, val int, filler text);
             INSERT INTO far SELECT n, 0, repeat('x', 500) FROM generate_series(1, 500) n",
        )?;
        // What is left of this in the session's place points behind the end of the other table.
        let mut second = begun(server, "UPDATE far SET val = 1 WHERE id = 500")?;
        second.batch_execute("COMMIT")?;
        let mut first = begun(server, BUMP)?;
        second.batch_execute("BEGIN; SELECT FROM hot WHERE id = 1 FOR UPDATE")?;
        first.batch_execute("COMMIT")?;
        second.batch_execute(&format!("SAVEPOINT s; {BUMP}; RELEASE s"))?;
        second.batch_execute("PREPARE TRANSACTION 'second'")?;
        let third = Background::run(grouped(server)?, BUMP)?;
        third.wait_until_blocked(control)?;
        ensure!(followed_prepared(control)? == 0);
        control.batch_execute("COMMIT PREPARED 'second'")?;
        third.end()?.1?;
        ensure!(val(control, 1)? == 3);
        Ok(())
    })
}

/// The version of a savepoint that was released, which has an id of its own.
#[test]
fn that_has_updated_in_a_savepoint() -> Result<()> {
    for_each_end(|server, control, end, told| {
        prepared(server, "first", &format!("SAVEPOINT s; {BUMP}; RELEASE s"))?;
        let mut second = begun(server, BUMP)?;
        let second_pid = pid(&mut second)?;
        ensure!(followed_prepared(control)? == 1);
        let second = Background::call(second, second_pid, |client| client.batch_execute("COMMIT"));
        wait_until(control, &waits_for_prepared(second_pid))?;
        control.batch_execute(&format!("{end} PREPARED 'first'"))?;
        ensure!(sqlstate(&second.end()?.1) == told, "after {end}");
        let expected = if end == "COMMIT" { 2 } else { 0 };
        ensure!(val(control, 1)? == expected, "after {end}");
        Ok(())
    })
}

/// Whether `txn.waits` says so, as `pg_blocking_pids` does.
fn waits_for_prepared(pid: i32) -> String {
    format!("SELECT (SELECT blocked_by = 0 FROM txn.waits WHERE pid = {pid})")
}

/// It was followed before it was prepared, and its session is busy with something else.
#[test]
fn before_it_was_prepared() -> Result<()> {
    scenario(1, &[], |server, control| {
        let mut first = begun(server, BUMP)?;
        let mut second = begun(server, BUMP)?;
        let second_pid = pid(&mut second)?;
        first.batch_execute("PREPARE TRANSACTION 'first'")?;
        first.batch_execute("BEGIN; UPDATE hot SET val = 0 WHERE false")?;
        let second = Background::call(second, second_pid, |client| client.batch_execute("COMMIT"));
        wait_until(control, &waits_for_prepared(second_pid))?;
        control.batch_execute("COMMIT PREPARED 'first'")?;
        second.end()?.1?;
        ensure!(int(control, "SELECT count(*) FROM txn.waits")? == 0);
        ensure!(val(control, 1)? == 2);
        Ok(())
    })
}

/// Sessions without group locking wait as they do for any prepared transaction, and get their turn
/// behind the followers.
#[test]
fn beside_sessions_without_group_locking() -> Result<()> {
    for_each_end(|server, control, end, told| {
        prepared(server, "first", BUMP)?;
        let mut second = begun(server, BUMP)?;
        let ordinary = Background::run(server.connect()?, BUMP)?;
        ordinary.wait_until_blocked(control)?;
        control.batch_execute(&format!("{end} PREPARED 'first'"))?;
        let answer = sqlstate(&second.batch_execute("COMMIT"));
        ordinary.end()?.1?;
        ensure!(answer == told, "{answer} after {end}");
        let expected = if end == "COMMIT" { 3 } else { 1 };
        ensure!(val(control, 1)? == expected, "after {end}");
        Ok(())
    })
}

/// A cancelled wait for it rolls back the one that waits, and those behind that.
#[test]
fn and_a_wait_for_it_is_cancelled() -> Result<()> {
    scenario(1, &[], |server, control| {
        prepared(server, "first", BUMP)?;
        let mut second = begun(server, BUMP)?;
        let second_pid = pid(&mut second)?;
        let third = begun(server, BUMP)?;
        let second = Background::call(second, second_pid, |client| client.batch_execute("COMMIT"));
        second.wait_until_blocked(control)?;
        let third = Background::run(third, "COMMIT")?;
        third.wait_until_blocked(control)?;
        control.batch_execute(&format!("SELECT pg_cancel_backend({second_pid})"))?;
        ensure!(sqlstate(&second.end()?.1) == "57014");
        ensure!(sqlstate(&third.end()?.1) == "40001");
        let fourth = Background::run(begun(server, BUMP)?, "COMMIT")?;
        fourth.wait_until_blocked(control)?;
        control.batch_execute("COMMIT PREPARED 'first'")?;
        fourth.end()?.1?;
        ensure!(val(control, 1)? == 2);
        Ok(())
    })
}
