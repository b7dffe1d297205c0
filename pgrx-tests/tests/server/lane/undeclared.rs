//! Beside those who have declared nothing.

use anyhow::{Result, ensure};
use txn_server_tests::{Background, grouped, int, sqlstate, text};

use super::{LEVELS, bank, declare, session, update};

/// U has changed the second row and wants the first, D declares both: D lets U go first.
#[test]
fn a_declared_transaction_lets_writers_end() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    // From the first declaration on writers announce themselves.
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    for level in LEVELS {
        let mut writer = session(&server, level)?;
        writer.batch_execute("BEGIN")?;
        writer.batch_execute(&update(2))?;
        let declared = session(&server, level)?;
        let block = format!("BEGIN; {}", declare(&[1, 2]));
        let declared = Background::run(declared, &block)?;
        declared.wait_until_blocked(&mut look)?;
        let state = text(
            &mut look,
            "SELECT string_agg(DISTINCT state, ',') FROM txn.lane",
        )?;
        ensure!(state == "draining", "{state}");
        writer.batch_execute(&update(1))?;
        writer.batch_execute("COMMIT")?;
        let (mut declared, told) = declared.end()?;
        told?;
        declared.batch_execute(&update(1))?;
        declared.batch_execute(&update(2))?;
        declared.batch_execute("COMMIT")?;
    }
    ensure!(int(&mut look, "SELECT sum(val) FROM account")? == 8);
    Ok(())
}

/// Writers that have declared nothing wait for the holder of the key.
#[test]
fn writers_wait_for_holders() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    let mut holder = server.connect()?;
    let writes = [
        update(1),
        "DELETE FROM account WHERE id = 1".to_owned(),
        "SELECT FROM account WHERE id = 1 FOR UPDATE".to_owned(),
        "INSERT INTO account VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET val = account.val + 1"
            .to_owned(),
    ];
    for write in &writes {
        holder.batch_execute("BEGIN")?;
        holder.batch_execute(&declare(&[1]))?;
        let writer = Background::run(server.connect()?, &format!("BEGIN; {write}; ROLLBACK"))?;
        writer.wait_until_blocked(&mut look)?;
        let reason = text(
            &mut look,
            &format!("SELECT reason FROM txn.waits WHERE pid = {}", writer.pid),
        )?;
        ensure!(reason == "lane", "{write}: {reason}");
        // Other rows are free, and so is the lock of foreign keys' checks.
        server.connect()?.batch_execute(&format!(
            "{}; SELECT FROM account WHERE id = 1 FOR KEY SHARE",
            update(2)
        ))?;
        holder.batch_execute(&update(1))?;
        holder.batch_execute("COMMIT")?;
        writer.end()?.1?;
    }
    ensure!(int(&mut look, "SELECT val FROM account WHERE id = 1")? == writes.len() as i64);
    Ok(())
}

/// U locks the hot row behind P, which has written it before anybody has declared anything. D has
/// declared the row, so U asks the lane before it locks P's version. Otherwise D would wait for U's
/// lock, and U for D.
#[test]
fn a_lock_behind_a_writer_asks_the_lane_first() -> Result<()> {
    let server = bank(1, &[])?;
    let mut look = server.connect()?;
    let mut writer = grouped(&server)?;
    writer.batch_execute("BEGIN")?;
    writer.batch_execute(&update(1))?;
    let mut declared = server.connect()?;
    declared.batch_execute("BEGIN")?;
    declared.batch_execute(&declare(&[1]))?;
    let lock = "SET enable_seqscan = off; BEGIN; SELECT FROM account WHERE id = 1 FOR UPDATE";
    let locking = Background::run(grouped(&server)?, lock)?;
    locking.wait_until_blocked(&mut look)?;
    let declared = Background::run(declared, &update(1))?;
    declared.wait_until_blocked(&mut look)?;
    writer.batch_execute("COMMIT")?;
    let (mut declared, updated) = declared.end()?;
    updated?;
    declared.batch_execute("COMMIT")?;
    let (mut locked, told) = locking.end()?;
    told?;
    locked.batch_execute(&format!("{}; COMMIT", update(1)))?;
    ensure!(int(&mut look, "SELECT val FROM account")? == 3);
    Ok(())
}

/// A transaction that has left a row alone does not keep the next declared one from it.
#[test]
fn what_was_skipped_is_free() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    grouped(&server)?.batch_execute(&update(1))?;
    let ways = [
        "SELECT FROM account FOR UPDATE SKIP LOCKED",
        "SAVEPOINT a; SELECT FROM account WHERE id = 1 FOR UPDATE NOWAIT",
        "SET LOCAL enable_seqscan = off; SET LOCAL txn.group_lock = on;
         SET LOCAL txn.hot_threshold = 0; SAVEPOINT a; SET LOCAL lock_timeout = '50ms';
         SELECT FROM account WHERE id = 1 FOR UPDATE",
    ];
    // The row is a declared transaction's, or locked by another one.
    let held = [declare(&[1]), update(1)];
    for (way, held) in ways
        .iter()
        .flat_map(|way| held.iter().map(move |held| (way, held)))
    {
        let mut holder = server.connect()?;
        holder.batch_execute(&format!("BEGIN; {held}"))?;
        let mut other = server.connect()?;
        other.batch_execute("BEGIN")?;
        if other.batch_execute(way).is_err() {
            other.batch_execute("ROLLBACK TO a")?;
        }
        holder.batch_execute("COMMIT")?;
        holder.batch_execute(&format!("BEGIN; {}", declare(&[1])))?;
        let state = text(&mut look, "SELECT min(state) FROM txn.lane")?;
        ensure!(state == "holding", "{state} after {way}, {held}");
        holder.batch_execute("COMMIT")?;
        other.batch_execute("COMMIT")?;
    }
    Ok(())
}

/// U has a key share of the row, as a foreign key's check takes it, and comes to update it; D, who
/// has declared it, wants it for itself. In that circle D is not the victim. Nor is it if it has
/// checked foreign keys to rows that it has declared, or that nobody has.
#[test]
fn a_declared_transaction_is_not_the_victim() -> Result<()> {
    let server = bank(2, &[("deadlock_timeout", "200ms")])?;
    let mut look = server.connect()?;
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    for is_first in [true, false] {
        let mut other = server.connect()?;
        other.batch_execute("BEGIN; SELECT FROM account WHERE id = 1 FOR KEY SHARE")?;
        let mut declared = server.connect()?;
        declared.batch_execute(&format!("BEGIN; {}", declare(&[1])))?;
        declared.batch_execute("SELECT FROM account FOR KEY SHARE")?;
        let lock = "SELECT FROM account WHERE id = 1 FOR UPDATE";
        let (other, declared) = if is_first {
            let other = Background::run(other, &update(1))?;
            other.wait_until_blocked(&mut look)?;
            (other, Background::run(declared, lock)?)
        } else {
            let declared = Background::run(declared, lock)?;
            declared.wait_until_blocked(&mut look)?;
            (Background::run(other, &update(1))?, declared)
        };
        let (mut declared, told) = declared.end()?;
        told?;
        let (mut other, told) = other.end()?;
        ensure!(sqlstate(&told) == "40P01", "{told:?}");
        other.batch_execute("ROLLBACK")?;
        declared.batch_execute("COMMIT")?;
    }
    Ok(())
}

/// NOWAIT, SKIP LOCKED, and a validated transaction, which would come too late.
#[test]
fn writers_that_do_not_wait() -> Result<()> {
    let server = bank(2, &[])?;
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(&declare(&[1]))?;
    let mut client = server.connect()?;
    let nowait = client.batch_execute("SELECT FROM account WHERE id = 1 FOR UPDATE NOWAIT");
    ensure!(sqlstate(&nowait) == "55P03");
    let skipped = "SELECT count(*) FROM (SELECT id FROM account FOR UPDATE SKIP LOCKED) free";
    ensure!(int(&mut client, skipped)? == 1);
    let mut validated = session(&server, "repeatable read")?;
    ensure!(sqlstate(&validated.batch_execute(&update(1))) == "40001");
    client.batch_execute("SET lock_timeout = '50ms'")?;
    ensure!(sqlstate(&client.batch_execute(&update(1))) == "55P03");
    holder.batch_execute("COMMIT")?;
    client.batch_execute(&update(1))?;
    validated.batch_execute(&update(1))?;
    ensure!(int(&mut client, "SELECT val FROM account WHERE id = 1")? == 2);
    Ok(())
}

/// A prepared transaction has declared nothing any more: others wait for its end all the same.
#[test]
fn prepared_transactions() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    for level in LEVELS {
        let mut first = session(&server, level)?;
        first.batch_execute("BEGIN")?;
        first.batch_execute(&declare(&[1]))?;
        first.batch_execute(&update(1))?;
        first.batch_execute("PREPARE TRANSACTION 'p'")?;
        let second = session(&server, level)?;
        let second = Background::run(second, &format!("BEGIN; {}", declare(&[1])))?;
        second.wait_until_blocked(&mut look)?;
        first.batch_execute("COMMIT PREPARED 'p'")?;
        let (mut second, told) = second.end()?;
        told?;
        second.batch_execute(&update(1))?;
        second.batch_execute("COMMIT")?;
    }
    ensure!(int(&mut look, "SELECT val FROM account WHERE id = 1")? == 4);
    Ok(())
}

/// On a hot row: a declared transaction takes no ticket, and followers end before it begins.
#[test]
fn beside_followers() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("BEGIN")?;
    leader.batch_execute(&update(1))?;
    let mut follower = grouped(&server)?;
    follower.batch_execute("BEGIN")?;
    follower.batch_execute(&update(1))?;
    let mut declared = grouped(&server)?;
    declared.batch_execute("BEGIN")?;
    let declared = Background::run(declared, &declare(&[1]))?;
    declared.wait_until_blocked(&mut look)?;
    leader.batch_execute("COMMIT")?;
    follower.batch_execute("COMMIT")?;
    let (mut declared, told) = declared.end()?;
    told?;
    let late = Background::run(grouped(&server)?, &update(1))?;
    late.wait_until_blocked(&mut look)?;
    declared.batch_execute(&update(1))?;
    declared.batch_execute("COMMIT")?;
    late.end()?.1?;
    ensure!(int(&mut look, "SELECT val FROM account WHERE id = 1")? == 4);
    Ok(())
}

/// Tables whose keys nobody can declare stop no declared transaction, whatever is done to them.
#[test]
fn tables_that_cannot_be_declared() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    look.batch_execute("CREATE TABLE log (line text) USING txn_heap")?;
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    let mut busy = server.connect()?;
    busy.batch_execute(
        "CREATE TEMP TABLE own (id int PRIMARY KEY) USING txn_heap;
         INSERT INTO own SELECT id FROM generate_series(1, 3) id;
         DELETE FROM own WHERE id = 1;
         SELECT FROM own WHERE id = 2 FOR UPDATE;
         UPDATE own SET id = 9 WHERE id = 3",
    )?;
    busy.batch_execute("BEGIN; INSERT INTO log VALUES ('x'); DELETE FROM log")?;
    let mut declared = server.connect()?;
    declared.batch_execute(&format!("BEGIN; {}", declare(&[1, 2])))?;
    let state = text(&mut look, "SELECT DISTINCT state FROM txn.lane")?;
    ensure!(state == "holding", "{state}");
    Ok(())
}

/// A holder that only reads keeps writers waiting, and refuses nobody; others lock the row to
/// share it.
#[test]
fn holders_that_only_read() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN; SELECT txn.declare(reads => ARRAY['account(1)'])")?;
    let writer = Background::run(session(&server, "repeatable read")?, &update(1))?;
    writer.wait_until_blocked(&mut look)?;
    server
        .connect()?
        .batch_execute("SELECT FROM account WHERE id = 1 FOR SHARE")?;
    holder.batch_execute("COMMIT")?;
    writer.end()?.1?;
    Ok(())
}

/// Writers that have declared nothing come one after the other, and a declared transaction gets its
/// turn among them.
#[test]
fn a_stream_of_writers() -> Result<()> {
    const DECLARED: i64 = 30;
    let server = bank(2, &[])?;
    // From the first declaration on writers announce themselves.
    let once = format!("BEGIN; {}; COMMIT", declare(&[1]));
    server.connect()?.batch_execute(&once)?;
    let load = txn_server_tests::Load::endless(&server, 8);
    let tally = load.run_disturbed(
        |worker| {
            let update = update(1);
            worker.committing(1, |worker| worker.execute(&update, &[]))
        },
        |running| {
            let mut client = server.connect()?;
            ensure!(running.wait_for(20), "nothing runs");
            for _ in 0..DECLARED {
                client.batch_execute(&format!("BEGIN; {}", declare(&[1])))?;
                client.batch_execute(&update(1))?;
                client.batch_execute("COMMIT")?;
            }
            Ok(())
        },
    )?;
    tally.only(&[])?;
    let mut look = server.connect()?;
    tally.explains(int(&mut look, "SELECT val FROM account WHERE id = 1")? - DECLARED)
}

/// An insert has put its row into the table and no entry into the index: its key is announced.
#[test]
fn an_insert_without_its_index_entry() -> Result<()> {
    for level in LEVELS {
        let server = bank(2, &[])?;
        let mut look = server.connect()?;
        look.batch_execute(
            "CREATE FUNCTION slow(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN n; END $$;
             CREATE TABLE late (id int NOT NULL) USING txn_heap;
             CREATE INDEX ON late (slow(id));
             ALTER TABLE late ADD PRIMARY KEY (id)",
        )?;
        let declare = "BEGIN; SELECT txn.declare(ARRAY['late(5)'])";
        look.batch_execute(declare)?;
        look.batch_execute("COMMIT; SELECT pg_advisory_lock(7)")?;
        let insert = Background::run(server.connect()?, "INSERT INTO late VALUES (5)")?;
        insert.wait_until_blocked(&mut look)?;
        let declared = Background::run(session(&server, level)?, declare)?;
        declared.wait_until_blocked(&mut look)?;
        look.batch_execute("SELECT pg_advisory_unlock(7)")?;
        insert.end()?.1?;
        let (mut declared, result) = declared.end()?;
        result?;
        ensure!(int(&mut declared, "SELECT count(*) FROM late WHERE id = 5")? == 1);
        declared.batch_execute("DELETE FROM late WHERE id = 5; COMMIT")?;
    }
    Ok(())
}

/// A transaction that changes many rows announces the first of them, and waits for all that are
/// held.
#[test]
fn a_writer_of_many_rows() -> Result<()> {
    let server = bank(1000, &[])?;
    let mut look = server.connect()?;
    let once = format!("BEGIN; {}; COMMIT", declare(&[1]));
    look.batch_execute(&once)?;
    let all = "UPDATE account SET val = val + 1";

    let mut bulk = server.connect()?;
    bulk.batch_execute("BEGIN; SET LOCAL enable_indexscan = off")?;
    bulk.batch_execute(all)?;
    let first = Background::run(server.connect()?, &once)?;
    first.wait_until_blocked(&mut look)?;
    let mut last = server.connect()?;
    last.batch_execute("BEGIN")?;
    last.batch_execute(&declare(&[900]))?;
    let last = Background::run(last, &update(900))?;
    last.wait_until_blocked(&mut look)?;
    bulk.batch_execute("COMMIT")?;
    first.end()?.1?;
    let (mut holder, result) = last.end()?;
    result?;

    let bulk = Background::run(bulk, all)?;
    bulk.wait_until_blocked(&mut look)?;
    holder.batch_execute("COMMIT")?;
    bulk.end()?.1?;
    ensure!(int(&mut look, "SELECT sum(val)::bigint FROM account")? == 2001);
    Ok(())
}

/// A writer that has declared nothing comes while one holds the key and another one waits for it:
/// both get it.
#[test]
fn a_writer_behind_a_queue() -> Result<()> {
    for level in LEVELS {
        let server = bank(2, &[])?;
        let mut look = server.connect()?;
        let mut holder = server.connect()?;
        holder.batch_execute("BEGIN")?;
        holder.batch_execute(&declare(&[1]))?;
        holder.batch_execute(&update(1))?;
        let queued = Background::run(session(&server, level)?, "CALL bump(1, 2)")?;
        queued.wait_until_blocked(&mut look)?;
        let writer = Background::run(server.connect()?, &update(1))?;
        writer.wait_until_blocked(&mut look)?;
        holder.batch_execute("COMMIT")?;
        queued.end()?.1?;
        writer.end()?.1?;
        ensure!(int(&mut look, "SELECT sum(val)::bigint FROM account")? == 4);
    }
    Ok(())
}

/// Writers of other keys come one after the other: an item of several keys of the same table gets
/// its turn, though it looks at all of its announcements.
#[test]
fn several_keys_beside_a_stream_of_writers() -> Result<()> {
    const DECLARED: i64 = 20;
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(
        "CREATE TABLE line (o int, n int, val bigint NOT NULL, PRIMARY KEY (o, n)) USING txn_heap;
         INSERT INTO line SELECT o, n, 0 FROM generate_series(3, 4) o, generate_series(1, 8) n",
    )?;
    look.batch_execute(&format!("BEGIN; {}; COMMIT", declare(&[1])))?;
    let load = txn_server_tests::Load::endless(&server, 8);
    let tally = load.run_disturbed(
        |worker| {
            let n = worker.below(8) + 1;
            let sql = format!("UPDATE line SET val = val + 1 WHERE o = 4 AND n = {n}");
            worker.committing(1, |worker| worker.execute(&sql, &[]))
        },
        |running| {
            let mut client = server.connect()?;
            ensure!(running.wait_for(20), "nothing runs");
            for _ in 0..DECLARED {
                client.batch_execute("BEGIN; SELECT txn.declare(ARRAY['line(3,*)'])")?;
                client.batch_execute("UPDATE line SET val = val + 1 WHERE o = 3 AND n = 1")?;
                client.batch_execute("COMMIT")?;
            }
            Ok(())
        },
    )?;
    tally.only(&[])?;
    let sum = |o: i32| format!("SELECT sum(val)::bigint FROM line WHERE o = {o}");
    ensure!(int(&mut look, &sum(3))? == DECLARED);
    tally.explains(int(&mut look, &sum(4))?)
}

/// Those who lock what they have declared to read wait for each other no more than readers do; who
/// writes waits for them, also when they are prepared.
#[test]
fn share_locks_of_what_is_declared_to_be_read() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    let share = "SELECT FROM account WHERE id = 1 FOR SHARE";
    let mut clients = [server.connect()?, server.connect()?];
    for client in &mut clients {
        client.batch_execute("BEGIN; SELECT txn.declare(reads => ARRAY['account(1)'])")?;
        client.batch_execute(share)?;
    }
    let [mut one, mut two] = clients;
    one.batch_execute("COMMIT")?;
    two.batch_execute("PREPARE TRANSACTION 'reader'")?;
    let writer = session(&server, "repeatable read")?;
    let writer = Background::run(writer, &format!("BEGIN; {}", declare(&[1])))?;
    writer.wait_until_blocked(&mut look)?;
    // It does not hold the key: nobody waits for it.
    ensure!(text(&mut look, "SELECT state FROM txn.lane")? == "draining");
    look.batch_execute("COMMIT PREPARED 'reader'")?;
    let (mut writer, result) = writer.end()?;
    result?;
    writer.batch_execute(&update(1))?;
    writer.batch_execute("COMMIT")?;
    Ok(())
}
