//! Statements that lock or update a row behind a running predecessor: their scans have its last
//! version, and ask nothing of an older one.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, expect_followed, grouped, int, physical_health, read, sqlstate, start_hot,
};

const TXN_HEAP: &[(&str, &str)] = &[("default_table_access_method", "txn_heap")];

/// Fails on the version that is committed, whose value is 0.
const LOCK: &str = "SELECT 10 / val FROM hot WHERE id = 1 FOR UPDATE";
const UPDATE: &str = "UPDATE hot SET val = val + 10 / val WHERE id = 1";

/// A session that has set the value to 1 and not committed, and another in a transaction.
fn two(server: &Server) -> Result<(Client, Client)> {
    let (mut ahead, mut behind) = (grouped(server)?, grouped(server)?);
    ahead.batch_execute("BEGIN; UPDATE hot SET val = 1 WHERE id = 1")?;
    behind.batch_execute("BEGIN; SET LOCAL enable_seqscan = off")?;
    Ok((ahead, behind))
}

/// Ends both, and looks at what is left.
fn end(server: &Server, mut ahead: Client, mut behind: Client, val: i64) -> Result<()> {
    ahead.batch_execute("COMMIT")?;
    behind.batch_execute("COMMIT")?;
    ensure!(int(&mut behind, "SELECT val FROM hot WHERE id = 1")? == val);
    drop((ahead, behind));
    physical_health(server, "hot", "id")
}

/// Lets `behind` run an update that waits for `ahead`, which commits. Both sessions again.
fn update_after(
    server: &Server,
    mut ahead: Client,
    behind: Client,
    update: &str,
) -> Result<(Client, Client)> {
    let updating = Background::run(behind, update)?;
    updating.wait_until_blocked(&mut server.connect()?)?;
    ahead.batch_execute("COMMIT")?;
    let (behind, result) = updating.end()?;
    result?;
    Ok((ahead, behind))
}

/// A server whose row must not have a negative value.
fn checked() -> Result<Server> {
    let server = start_hot(1, &[])?;
    let check = "ALTER TABLE hot ADD CHECK (val >= 0)";
    server.connect()?.batch_execute(check)?;
    Ok(server)
}

fn only_the_last_version_is_asked(settings: &[(&str, &str)]) -> Result<()> {
    let server = start_hot(1, settings)?;
    let (ahead, mut behind) = two(&server)?;
    ensure!(read::<i64>(&mut behind, LOCK)? == 10);
    behind.execute(UPDATE, &[])?;
    expect_followed(&mut server.connect()?, 1)?;
    end(&server, ahead, behind, 11)
}

#[test]
fn a_lock_and_an_update_see_only_the_last_version() -> Result<()> {
    only_the_last_version_is_asked(&[])
}

#[test]
fn a_lock_and_an_update_see_only_the_last_version_of_txn_heap() -> Result<()> {
    only_the_last_version_is_asked(TXN_HEAP)
}

/// A check of the new row knows nothing of the committed version, either.
#[test]
fn an_update_alone_sees_only_the_last_version() -> Result<()> {
    let server = checked()?;
    let (ahead, mut behind) = two(&server)?;
    behind.execute("UPDATE hot SET val = val - 1 WHERE id = 1", &[])?;
    expect_followed(&mut server.connect()?, 1)?;
    end(&server, ahead, behind, 0)
}

/// The predecessor's version is rolled back between the scan and the update: nothing of it stays.
#[test]
fn an_update_alone_starts_again_after_a_rollback() -> Result<()> {
    let server = start_hot(1, &[])?;
    let mut control = server.connect()?;
    control.batch_execute(
        "UPDATE hot SET val = 5;
         SELECT pg_advisory_lock(hashtext('txn.ticket_taken'))",
    )?;
    let (mut ahead, mut behind) = two(&server)?;
    behind.batch_execute("SET LOCAL txn.stop_at = 'ticket_taken'")?;
    let update = "UPDATE hot SET val = val + 10 WHERE id = 1";
    let updating = Background::run(behind, update)?;
    updating.wait_until_stopped(&mut control)?;
    ahead.batch_execute("ROLLBACK")?;
    control.batch_execute("SELECT pg_advisory_unlock_all()")?;
    let (behind, result) = updating.end()?;
    result?;
    drop(control);
    end(&server, ahead, behind, 15)
}

/// An update that fails tells so when the predecessor has ended. Others go on meanwhile, above all
/// the predecessor itself.
#[test]
fn an_update_that_fails_does_not_keep_the_row() -> Result<()> {
    let server = checked()?;
    let (mut ahead, behind) = two(&server)?;
    let failing = Background::run(behind, "UPDATE hot SET val = val - 5 WHERE id = 1")?;
    let mut look = server.connect()?;
    failing.wait_until_blocked(&mut look)?;
    let mut third = grouped(&server)?;
    third.batch_execute("BEGIN; UPDATE hot SET val = val + 10 WHERE id = 1")?;
    expect_followed(&mut look, 1)?;
    ahead.batch_execute("COMMIT")?;
    let (mut behind, result) = failing.end()?;
    ensure!(sqlstate(&result) == "23514", "{result:?}");
    behind.batch_execute("ROLLBACK; BEGIN")?;
    drop((ahead, look));
    end(&server, third, behind, 11)
}

/// In a procedure that the session has called before.
#[test]
fn a_procedure_sees_only_the_last_version() -> Result<()> {
    let server = start_hot(1, &[])?;
    let mut behind = grouped(&server)?;
    behind.batch_execute(
        "CREATE PROCEDURE bump() LANGUAGE plpgsql AS $$
         DECLARE
             seen bigint;
         BEGIN
             SELECT 10 / val INTO STRICT seen FROM hot WHERE id = 1 FOR NO KEY UPDATE;
             UPDATE hot SET val = val + seen / val WHERE id = 1;
         END $$;
         SET enable_seqscan = off;
         UPDATE hot SET val = 1;
         CALL bump();
         UPDATE hot SET val = 0",
    )?;
    let mut ahead = grouped(&server)?;
    ahead.batch_execute("BEGIN; UPDATE hot SET val = 1 WHERE id = 1")?;
    behind.batch_execute("BEGIN; CALL bump()")?;
    expect_followed(&mut server.connect()?, 1)?;
    end(&server, ahead, behind, 11)
}

/// What the client has been shown is rolled back.
#[test]
fn a_rollback_dooms_who_has_locked() -> Result<()> {
    let server = start_hot(1, &[])?;
    let (mut ahead, mut behind) = two(&server)?;
    ensure!(read::<i64>(&mut behind, LOCK)? == 10);
    ahead.batch_execute("ROLLBACK")?;
    let refused = behind.execute(UPDATE, &[]);
    ensure!(sqlstate(&refused) == "40001", "{refused:?}");
    behind.batch_execute("ROLLBACK")?;
    ensure!(int(&mut behind, "SELECT val FROM hot")? == 0);
    drop((ahead, behind));
    physical_health(&server, "hot", "id")
}

#[test]
fn a_rollback_to_a_savepoint_gives_the_lock_back() -> Result<()> {
    let server = start_hot(1, &[])?;
    let (mut ahead, mut behind) = two(&server)?;
    behind.batch_execute("SAVEPOINT s")?;
    ensure!(read::<i64>(&mut behind, LOCK)? == 10);
    behind.batch_execute("ROLLBACK TO s")?;
    let other = "UPDATE hot SET val = val + 100 WHERE id = 1";
    let updating = Background::run(grouped(&server)?, other)?;
    updating.wait_until_blocked(&mut server.connect()?)?;
    ahead.batch_execute("COMMIT")?;
    behind.batch_execute("COMMIT")?;
    let (third, result) = updating.end()?;
    result?;
    drop(third);
    end(&server, ahead, behind, 101)
}

/// A condition beside the key is asked of the last version, too, and the row may fail it.
#[test]
fn a_condition_is_asked_of_the_last_version() -> Result<()> {
    let server = start_hot(1, &[])?;
    let (ahead, mut behind) = two(&server)?;
    let lock = "SELECT val FROM hot WHERE id = 1 AND val >= 0 FOR UPDATE";
    ensure!(read::<i64>(&mut behind, lock)? == 1);
    let update = "UPDATE hot SET val = 7 WHERE id = 1 AND val = 0";
    let (ahead, behind) = update_after(&server, ahead, behind, update)?;
    end(&server, ahead, behind, 1)
}

/// How strong the lock is that the scan takes.
fn keeps_out(lock: &str, sharer: &str) -> Result<bool> {
    let server = start_hot(1, &[])?;
    let (mut ahead, mut behind) = two(&server)?;
    ensure!(read::<i64>(&mut behind, lock)? == 1);
    ahead.batch_execute("COMMIT")?;
    let shared = server.connect()?.query(sharer, &[]);
    if shared.is_err() {
        ensure!(sqlstate(&shared) == "55P03", "{shared:?}");
    }
    Ok(shared.is_err())
}

#[test]
fn locks_are_as_strong_as_asked_for() -> Result<()> {
    let with_key = "SELECT val FROM hot WHERE id = 1 FOR UPDATE";
    let without = "SELECT val FROM hot WHERE id = 1 FOR NO KEY UPDATE";
    let share = "SELECT FROM hot FOR SHARE NOWAIT";
    let key_share = "SELECT FROM hot FOR KEY SHARE NOWAIT";
    ensure!(keeps_out(with_key, key_share)?);
    ensure!(!keeps_out(without, key_share)?);
    ensure!(keeps_out(without, share)?);
    Ok(())
}

/// The new version does not fit on the page: the update waits for the predecessor, and goes on from
/// what was locked.
#[test]
fn an_update_that_finds_no_room_waits() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN pad text;
         ALTER TABLE hot ALTER COLUMN pad SET STORAGE PLAIN;
         UPDATE hot SET pad = repeat('x', 3000)",
    )?;
    server.connect()?.batch_execute("VACUUM FULL hot")?;
    let (ahead, mut behind) = two(&server)?;
    ensure!(read::<i64>(&mut behind, LOCK)? == 10);
    let (ahead, behind) = update_after(&server, ahead, behind, UPDATE)?;
    end(&server, ahead, behind, 11)
}

/// A statement that calls a trigger waits for the predecessor. Its old row is what was locked.
#[test]
fn triggers_see_the_version_that_was_locked() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE seen (before bigint, after bigint);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO seen VALUES (OLD.val, NEW.val);
             RETURN NULL;
         END $$;
         CREATE TRIGGER note AFTER UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION note()",
    )?;
    let (ahead, mut behind) = two(&server)?;
    ensure!(read::<i64>(&mut behind, LOCK)? == 10);
    let (ahead, mut behind) = update_after(&server, ahead, behind, UPDATE)?;
    let rows = int(
        &mut behind,
        "SELECT count(*) FROM seen WHERE (before, after) IN ((0, 1), (1, 11))",
    )?;
    ensure!(rows == 2, "{rows} of 2 rows");
    end(&server, ahead, behind, 11)
}
