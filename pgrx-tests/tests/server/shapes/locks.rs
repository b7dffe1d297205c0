//! Row locks and cursors next to followers.
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use postgres::Error;
use rand::Rng;
use txn_server_tests::{Background, Worker, grouped, physical_health, read, start_hot};

use super::{BUMP, Mix, either, one_of};

/// The client computes the new value from what it has locked: nobody may come in between.
fn lock_then_write(worker: &mut Worker, lock: &str) -> Result<i64, Error> {
    let rows = worker.query(lock, &[])?;
    let Some(row) = rows.first() else {
        return Ok(0);
    };
    let val: i64 = row.get(0);
    let sql = "UPDATE hot SET val = $1 WHERE id = 1";
    worker.execute(sql, &[&(val + 1)]).map(|rows| rows as i64)
}

#[test]
fn for_update_then_update() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        let lock = [
            "SELECT val FROM hot WHERE id = 1 FOR UPDATE",
            "SELECT val FROM hot WHERE id = 1 FOR NO KEY UPDATE",
            "SELECT val FROM hot WHERE val >= 0 AND id < 2 ORDER BY val LIMIT 1 FOR UPDATE",
            "SELECT h.val FROM hot h JOIN (VALUES (1)) v (id) USING (id) FOR UPDATE OF h",
        ][worker.rng.random_range(0..4)];
        lock_then_write(worker, lock)
    })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn for_update_nowait() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server)
        .in_blocks()
        .allow(&["55P03"])
        .run(|worker| {
            let lock = [
                "SELECT val FROM hot WHERE id = 1 FOR UPDATE NOWAIT",
                "SELECT val FROM hot WHERE id = 1 FOR NO KEY UPDATE NOWAIT",
            ][worker.rng.random_range(0..2)];
            lock_then_write(worker, lock)
        })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn for_update_skip_locked() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        let lock = [
            "SELECT val FROM hot WHERE id = 1 FOR UPDATE SKIP LOCKED",
            "SELECT val FROM hot WHERE id = 1 FOR NO KEY UPDATE SKIP LOCKED",
        ][worker.rng.random_range(0..2)];
        lock_then_write(worker, lock)
    })?;
    physical_health(&server, "hot", "id")
}

/// A transaction that has a share lock of the row sees it stand still until the end.
fn shared(locks: &[&str], look: &str) -> Result<()> {
    let server = start_hot(2, &[])?;
    let wavered = AtomicU64::new(0);
    // Nobody follows while a version is shared, and there may always be somebody who shares it.
    Mix::new(&server)
        .in_blocks()
        .in_turn()
        .allow(&["55P03"])
        .run(|worker| {
            let lock = locks[worker.rng.random_range(0..locks.len())];
            let Some(row) = worker.query(lock, &[])?.pop() else {
                return Ok(0);
            };
            for _ in 0..2 {
                let again = worker.query(look, &[])?.remove(0);
                if row.get::<_, i64>(0) != again.get::<_, i64>(0) {
                    wavered.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(0)
        })?;
    let wavered = wavered.into_inner();
    ensure!(wavered == 0, "a locked row changed {wavered} times");
    physical_health(&server, "hot", "id")
}

#[test]
fn for_share() -> Result<()> {
    shared(
        &[
            "SELECT val FROM hot WHERE id = 1 FOR SHARE",
            "SELECT val FROM hot WHERE id = 1 FOR SHARE NOWAIT",
            "SELECT val FROM hot WHERE id = 1 FOR SHARE SKIP LOCKED",
        ],
        "SELECT val FROM hot WHERE id = 1",
    )
}

#[test]
fn for_key_share() -> Result<()> {
    shared(
        &[
            "SELECT id::bigint FROM hot WHERE id = 1 FOR KEY SHARE",
            "SELECT id::bigint FROM hot WHERE id = 1 FOR KEY SHARE NOWAIT",
            "SELECT id::bigint FROM hot WHERE id = 1 FOR KEY SHARE SKIP LOCKED",
        ],
        "SELECT id::bigint FROM hot WHERE id = 1",
    )
}

/// Two who share and both want to write: PostgreSQL's own deadlock.
#[test]
fn share_then_update() -> Result<()> {
    let server = start_hot(2, &[("deadlock_timeout", "5ms")])?;
    Mix::new(&server)
        .in_blocks()
        // A session that has followed the victim of the deadlock tries again.
        .allow(&["40P01", "40001"])
        .run(|worker| lock_then_write(worker, "SELECT val FROM hot WHERE id = 1 FOR SHARE"))?;
    physical_health(&server, "hot", "id")
}

#[test]
fn key_share_then_update() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        worker.query("SELECT val FROM hot WHERE id = 1 FOR KEY SHARE", &[])?;
        either(worker, BUMP)
    })?;
    physical_health(&server, "hot", "id")
}

/// The lock of a savepoint goes with it.
#[test]
fn locks_in_savepoints() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server)
        .in_blocks()
        // ROLLBACK TO takes the version back on which somebody has built.
        .allow(&["40001"])
        .run(|worker| {
            worker.simple("SAVEPOINT sp")?;
            let mut rows = lock_then_write(worker, "SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
            if worker.chance(50) {
                worker.simple("ROLLBACK TO sp")?;
                rows = 0;
            }
            Ok(rows + either(worker, BUMP)?)
        })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn where_current_of() -> Result<()> {
    let server = start_hot(2, &[])?;
    Mix::new(&server).in_blocks().run(|worker| {
        let cursor = [
            "DECLARE c CURSOR FOR SELECT * FROM hot WHERE id = 1 FOR UPDATE",
            "DECLARE c CURSOR FOR SELECT * FROM hot WHERE id = 1 FOR NO KEY UPDATE",
            "DECLARE c CURSOR FOR SELECT * FROM hot WHERE id = 1",
        ][worker.rng.random_range(0..3)];
        worker.simple(cursor)?;
        worker.simple("FETCH c")?;
        let rows = one_of(
            worker,
            &[
                "UPDATE hot SET val = val + 1 WHERE CURRENT OF c",
                "UPDATE hot SET val = val + 1 WHERE CURRENT OF c RETURNING val",
            ],
        )?;
        worker.simple("CLOSE c")?;
        Ok(rows)
    })?;
    physical_health(&server, "hot", "id")
}

#[test]
fn cursors_in_functions() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "CREATE FUNCTION bump() RETURNS bigint LANGUAGE plpgsql AS $$
         DECLARE
             c CURSOR FOR SELECT * FROM hot WHERE id = 1 FOR UPDATE;
             n bigint := 0;
         BEGIN
             FOR r IN c LOOP
                 UPDATE hot SET val = r.val + 1 WHERE CURRENT OF c;
                 n := n + 1;
             END LOOP;
             RETURN n;
         END $$",
    )?;
    Mix::new(&server).run(|worker| {
        let rows = worker.query("SELECT bump()", &[])?;
        Ok(rows[0].get(0))
    })?;
    physical_health(&server, "hot", "id")
}

/// A lock of a predecessor's version may become a part of a MultiXact, and is remembered by others
/// for as long as its owner runs.
#[test]
fn a_lock_survives_in_a_multixact() -> Result<()> {
    let server = start_hot(2, &[])?;
    let mut control = server.connect()?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("BEGIN")?;
    leader.batch_execute(BUMP)?;
    let mut follower = grouped(&server)?;
    follower.batch_execute("BEGIN")?;
    let lock = "SELECT val FROM hot WHERE id = 1 FOR NO KEY UPDATE";
    let seen = read::<i64>(&mut follower, lock)?;
    leader.batch_execute("COMMIT")?;
    let mut other = server.connect()?;
    other.batch_execute("SELECT FROM hot WHERE id = 1 FOR KEY SHARE")?;
    let members = read::<i64>(
        &mut control,
        "SELECT count(*) FROM hot, pg_get_multixact_members(xmax) WHERE id = 1",
    )?;
    ensure!(members == 2, "{members} members of the row's lock");
    let writer = Background::run(other, BUMP)?;
    writer.wait_until_blocked(&mut control)?;
    follower.execute("UPDATE hot SET val = $1 WHERE id = 1", &[&(seen + 1)])?;
    follower.batch_execute("COMMIT")?;
    writer.end()?.1?;
    let val = read::<i64>(&mut control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(val == 3, "{val} after three updates");
    Ok(())
}
