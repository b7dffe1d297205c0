//! Whether a function keeps a hot row to its commit, as `txn.brief_turn` asks for, or lets others
//! follow.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, grouped, int, pid, read, sqlstate, start_hot, until, wait_until,
};

const FUNCTIONS: &str = "
    CREATE FUNCTION bump_and_wait(of int) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE hot SET val = val + 1 WHERE id = of;
        PERFORM pg_advisory_xact_lock(7);
    END $$;
    CREATE PROCEDURE call_and_wait(of int) LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE hot SET val = val + 1 WHERE id = of;
        PERFORM pg_advisory_xact_lock(7);
    END $$;
    CREATE FUNCTION try_and_wait(of int) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        BEGIN
            UPDATE hot SET val = val + 1 WHERE id = of;
        EXCEPTION WHEN numeric_value_out_of_range THEN
            RAISE NOTICE 'too many';
        END;
        PERFORM pg_advisory_xact_lock(7);
    END $$;
    CREATE FUNCTION bump_and_sleep(of int) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE hot SET val = val + 1 WHERE id = of;
        PERFORM pg_sleep(0.02);
    END $$;";
/// Longer than a row begins with, so that a function keeps it before anything is learned.
const LONG: &str = "SET txn.brief_turn = 10000";
const OFF: &str = "SET txn.brief_turn = 0";
const UPDATE: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

fn start() -> Result<(Server, Client)> {
    let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
    let mut control = server.connect()?;
    control.batch_execute(FUNCTIONS)?;
    // From now on the row is hot.
    grouped(&server)?.batch_execute("UPDATE hot SET val = val WHERE id = 1")?;
    Ok((server, control))
}

/// A function that has updated the row and waits for `control`, and an update behind it.
struct Scene {
    first: Background,
    second: Background,
    /// For what the second one waits.
    reason: String,
}

fn set(server: &Server, control: &mut Client, setting: &str, call: &str) -> Result<Scene> {
    control.batch_execute("SELECT pg_advisory_lock(7)")?;
    let session = || {
        let mut client = grouped(server)?;
        client.batch_execute(setting)?;
        anyhow::Ok(client)
    };
    let first = Background::run(session()?, call)?;
    first.wait_until_blocked(control)?;
    let second = Background::run(session()?, UPDATE)?;
    let reason = reason_of(control, second.pid)?;
    Ok(Scene {
        first,
        second,
        reason,
    })
}

/// For what that process waits.
fn reason_of(control: &mut Client, process: i32) -> Result<String> {
    let waits = format!("FROM txn.waits WHERE pid = {process}");
    wait_until(control, &format!("SELECT count(*) > 0 {waits}"))?;
    read(control, &format!("SELECT reason {waits}"))
}

/// For what an update waits behind that session, which waits for `control`. It is cancelled.
fn reason_behind<T: Send + 'static>(
    server: &Server,
    control: &mut Client,
    first: &Background<T>,
) -> Result<String> {
    first.wait_until_blocked(control)?;
    let second = Background::run(grouped(server)?, UPDATE)?;
    let reason = reason_of(control, second.pid)?;
    read::<bool>(
        control,
        &format!("SELECT pg_cancel_backend({})", second.pid),
    )?;
    let told = sqlstate(&second.end()?.1);
    ensure!(told == "57014", "the update was told {told}");
    Ok(reason)
}

/// For what an update waits behind that call. Both commit.
fn reason(server: &Server, control: &mut Client, setting: &str, call: &str) -> Result<String> {
    let before = int(control, "SELECT val FROM hot WHERE id = 1")?;
    let scene = set(server, control, setting, call)?;
    control.batch_execute("SELECT pg_advisory_unlock(7)")?;
    for session in [scene.first, scene.second] {
        let told = session.end()?.1;
        ensure!(told.is_ok(), "{}", sqlstate(&told));
    }
    let after = int(control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(after == before + 2, "{before} became {after}");
    Ok(scene.reason)
}

#[test]
fn functions_that_end_soon_keep_the_row() -> Result<()> {
    let (server, mut control) = start()?;
    for call in [
        "SELECT bump_and_wait(1)",
        "CALL call_and_wait(1)",
        "SELECT try_and_wait(1)",
        "DO $$ BEGIN PERFORM try_and_wait(1); END $$",
    ] {
        let kept = reason(&server, &mut control, LONG, call)?;
        ensure!(kept == "ticket", "{call}: behind it one waits for {kept}");
        let passed_on = reason(&server, &mut control, OFF, call)?;
        ensure!(
            passed_on == "commit",
            "{call}: behind it one waits for {passed_on}"
        );
    }
    Ok(())
}

/// The client has sent Sync with its Execute.
#[test]
fn the_extended_protocol_is_understood() -> Result<()> {
    let (server, mut control) = start()?;
    let mut session = grouped(&server)?;
    session.batch_execute(LONG)?;
    control.batch_execute("SELECT pg_advisory_lock(7)")?;
    let process = pid(&mut session)?;
    let first = Background::call(session, process, |client| {
        client.execute("SELECT bump_and_wait($1)", &[&1])
    });
    let reason = reason_behind(&server, &mut control, &first)?;
    control.batch_execute("SELECT pg_advisory_unlock(7)")?;
    first.end()?.1?;
    ensure!(reason == "ticket", "behind it one waits for {reason}");
    Ok(())
}

/// The table is switched on, the sessions are not: their other statements do not concern us.
#[test]
fn a_block_that_begins_with_a_function_needs_its_client() -> Result<()> {
    let (server, mut control) = start()?;
    control.batch_execute("SELECT txn.set_table('hot', 'group', hot_threshold => 0)")?;
    control.batch_execute("SELECT pg_advisory_lock(7)")?;
    let mut session = server.connect()?;
    session.batch_execute(LONG)?;
    session.batch_execute("SELECT val FROM hot WHERE id = 1")?;
    let first = Background::run(session, "BEGIN; SELECT bump_and_wait(1)")?;
    let reason = reason_behind(&server, &mut control, &first)?;
    control.batch_execute("SELECT pg_advisory_unlock(7)")?;
    let (mut session, told) = first.end()?;
    told?;
    session.batch_execute("COMMIT")?;
    ensure!(reason == "commit", "behind it one waits for {reason}");
    Ok(())
}

/// Until a row is known to be brief, functions pass it on.
#[test]
fn rows_become_brief_by_themselves() -> Result<()> {
    let (server, mut control) = start()?;
    let mut session = grouped(&server)?;
    session.batch_execute("SET txn.brief_turn = 900")?;
    let bump = "DO 'BEGIN UPDATE hot SET val = val + 1 WHERE id = 1; END'";
    session.batch_execute(bump)?;
    until(&mut control, "the row is brief", |control| {
        session.batch_execute(bump)?;
        let obstacles = "SELECT max(obstacles) FROM txn.hotspots";
        let obstacles = read::<Option<String>>(control, obstacles)?.unwrap_or_default();
        Ok(obstacles.contains("brief turn"))
    })
}

#[test]
fn in_a_block_the_row_is_passed_on() -> Result<()> {
    let (server, mut control) = start()?;
    for call in [
        "BEGIN; SELECT bump_and_wait(1); COMMIT",
        "BEGIN; SELECT try_and_wait(1); COMMIT",
        "BEGIN; SELECT 1; COMMIT AND CHAIN; SELECT bump_and_wait(1); COMMIT",
        "BEGIN; CALL call_and_wait(1); COMMIT",
    ] {
        let passed_on = reason(&server, &mut control, LONG, call)?;
        ensure!(
            passed_on == "commit",
            "{call}: behind it one waits for {passed_on}"
        );
    }
    Ok(())
}

/// The settings would have it kept, but it has been seen to take 20 milliseconds.
#[test]
fn functions_that_take_long_let_others_follow() -> Result<()> {
    let (server, mut control) = start()?;
    let mut session = grouped(&server)?;
    for _ in 0..30 {
        session.batch_execute("SELECT bump_and_sleep(1)")?;
    }
    let call = "SELECT bump_and_wait(1)";
    let passed_on = reason(&server, &mut control, LONG, call)?;
    ensure!(passed_on == "commit", "behind it one waits for {passed_on}");
    Ok(())
}

/// Nobody has built on it.
#[test]
fn the_end_of_one_that_keeps_the_row_concerns_nobody_else() -> Result<()> {
    let (server, mut control) = start()?;
    for (setting, told) in [(LONG, "00000"), (OFF, "40001")] {
        let scene = set(&server, &mut control, setting, "SELECT bump_and_wait(1)")?;
        let first = scene.first.pid;
        ensure!(read::<bool>(
            &mut control,
            &format!("SELECT pg_cancel_backend({first})")
        )?);
        let end = sqlstate(&scene.first.end()?.1);
        ensure!(end == "57014", "the function was told {end}");
        let end = sqlstate(&scene.second.end()?.1);
        ensure!(end == told, "{setting}: the update was told {end}");
        control.batch_execute("SELECT pg_advisory_unlock(7)")?;
    }
    let pid = pid(&mut control)?;
    wait_until(
        &mut control,
        &format!("SELECT count(*) = 0 FROM txn.waits WHERE pid <> {pid}"),
    )
}
