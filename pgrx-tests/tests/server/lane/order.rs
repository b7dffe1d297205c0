//! Declared transactions among themselves.

use anyhow::{Result, ensure};
use txn_server_tests::{Background, int, text, wait_until};

use super::{LEVELS, bank, declare, session, update};

/// B declares while A holds the key; A commits, and B finds what A has left.
#[test]
fn the_next_one_finds_what_the_last_has_left() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    let mut expected = 0;
    for level in LEVELS {
        let blocks = [
            format!("BEGIN; {}; {}; COMMIT", declare(&[1, 2]), update(1)),
            "CALL bump(1)".to_owned(),
            "BEGIN; CALL bump(1); COMMIT".to_owned(),
        ];
        for block in blocks {
            let mut first = session(&server, level)?;
            first.batch_execute("BEGIN")?;
            first.batch_execute(&declare(&[1]))?;
            first.batch_execute(&update(1))?;
            let second = session(&server, level)?;
            let second = Background::run(second, &block)?;
            wait_until(
                &mut look,
                &format!(
                    "SELECT count(*) = 1 FROM txn.waits WHERE pid = {} AND reason = 'lane'",
                    second.pid
                ),
            )?;
            ensure!(!second.is_finished());
            first.batch_execute("COMMIT")?;
            second.end()?.1?;
            expected += 2;
            let val = int(&mut look, "SELECT val FROM account WHERE id = 1")?;
            ensure!(val == expected, "{level}, {block}: {val}");
        }
    }
    ensure!(int(&mut look, "SELECT count(*) FROM txn.lane")? == 0);
    ensure!(int(&mut look, "SELECT lane_skipped FROM txn.stats")? == 0);
    Ok(())
}

/// A reader does not pass a writer that waits, and readers hold a key together.
#[test]
fn readers_and_writers_in_turn() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    let read = "SELECT txn.declare(reads => ARRAY['account(1)'])";
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = server.connect()?;
        reader.batch_execute("BEGIN")?;
        reader.batch_execute(read)?;
        readers.push(reader);
    }
    let held = text(
        &mut look,
        "SELECT string_agg(concat_ws(' ', state, relation, low, high, mode, granted), ', '
                           ORDER BY number)
         FROM txn.lane",
    )?;
    ensure!(
        held == "holding account 1 1 read t, holding account 1 1 read t",
        "{held}"
    );
    let mut writer = server.connect()?;
    writer.batch_execute("BEGIN")?;
    let writer = Background::run(writer, &declare(&[1]))?;
    writer.wait_until_blocked(&mut look)?;
    let mut late = server.connect()?;
    late.batch_execute("BEGIN")?;
    let late = Background::run(late, read)?;
    late.wait_until_blocked(&mut look)?;
    readers.clear();
    let (mut writer, told) = writer.end()?;
    told?;
    ensure!(!late.is_finished(), "a reader has passed a writer");
    let blocker = int(
        &mut look,
        &format!("SELECT blocked_by FROM txn.waits WHERE pid = {}", late.pid),
    )?;
    ensure!(blocker == i64::from(txn_server_tests::pid(&mut writer)?));
    writer.batch_execute("COMMIT")?;
    late.end()?.1?;
    Ok(())
}

/// An open item is for all keys that begin so; others' keys do not wait.
#[test]
fn wide_items() -> Result<()> {
    let server = bank(2, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(
        "CREATE TABLE line (o int, n int, PRIMARY KEY (o, n)) USING txn_heap;
         INSERT INTO line SELECT o, n FROM generate_series(1, 3) o, generate_series(1, 3) n",
    )?;
    let mut wide = server.connect()?;
    wide.batch_execute("BEGIN; SELECT txn.declare(ARRAY['line(2,*)'])")?;
    let mut free = server.connect()?;
    free.batch_execute("BEGIN; SELECT txn.declare(ARRAY['line(1,2)', 'line(3,1)'])")?;
    let mut within = server.connect()?;
    within.batch_execute("BEGIN")?;
    let within = Background::run(within, "SELECT txn.declare(ARRAY['line(2,3)'])")?;
    within.wait_until_blocked(&mut look)?;
    let mut all = server.connect()?;
    all.batch_execute("BEGIN")?;
    let all = Background::run(all, "SELECT txn.declare(ARRAY['line(*)'])")?;
    all.wait_until_blocked(&mut look)?;
    wide.batch_execute("COMMIT")?;
    let (within, told) = within.end()?;
    told?;
    ensure!(!all.is_finished());
    drop((free, within));
    all.end()?.1?;
    Ok(())
}

/// Keys of a partition are those of the partitioned table.
#[test]
fn partitions() -> Result<()> {
    let server = bank(1, &[])?;
    let mut look = server.connect()?;
    look.batch_execute(
        "CREATE TABLE part (id int PRIMARY KEY, val int NOT NULL) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10) USING txn_heap;
         INSERT INTO part VALUES (1, 0), (2, 0)",
    )?;
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN; SELECT txn.declare(ARRAY['part(1)'])")?;
    let mut other = server.connect()?;
    other.batch_execute("BEGIN")?;
    let other = Background::run(other, "SELECT txn.declare(ARRAY['part_1(1)'])")?;
    let undeclared = Background::run(server.connect()?, "UPDATE part SET val = 1 WHERE id = 1")?;
    other.wait_until_blocked(&mut look)?;
    undeclared.wait_until_blocked(&mut look)?;
    server
        .connect()?
        .batch_execute("UPDATE part SET val = 1 WHERE id = 2")?;
    holder.batch_execute("COMMIT")?;
    undeclared.end()?.1?;
    other.end()?.1?;
    Ok(())
}

/// The next one starts when the last is visible, and does not wait for its flush.
#[test]
fn the_next_one_starts_before_the_flush() -> Result<()> {
    let server = bank(1, &[])?;
    let mut look = server.connect()?;
    let mut gate = server.connect()?;
    gate.batch_execute("SELECT pg_advisory_lock(hashtext('txn.visible'))")?;
    let mut first = server.connect()?;
    first.batch_execute("SET txn.stop_at = 'visible'; BEGIN")?;
    first.batch_execute(&declare(&[1]))?;
    first.batch_execute(&update(1))?;
    let mut second = server.connect()?;
    second.batch_execute("BEGIN")?;
    let second = Background::run(second, &declare(&[1]))?;
    second.wait_until_blocked(&mut look)?;
    let first = Background::run(first, "COMMIT")?;
    let (mut second, told) = second.end()?;
    told?;
    ensure!(!first.is_finished());
    ensure!(int(&mut second, "SELECT val FROM account WHERE id = 1")? == 1);
    gate.batch_execute("SELECT pg_advisory_unlock_all()")?;
    first.end()?.1?;
    second.batch_execute("COMMIT")?;
    Ok(())
}

/// What was queued for is not a cycle that nobody sees: locks that were taken before the
/// declaration.
#[test]
fn a_circle_with_other_locks_is_detected() -> Result<()> {
    let server = bank(1, &[])?;
    let mut look = server.connect()?;
    let mut first = server.connect()?;
    first.batch_execute("BEGIN")?;
    first.batch_execute(&declare(&[1]))?;
    let mut second = server.connect()?;
    second.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(7)")?;
    let second = Background::run(second, &declare(&[1]))?;
    second.wait_until_blocked(&mut look)?;
    let first = Background::run(first, "SELECT pg_advisory_xact_lock(7)")?;
    let (first_session, first) = first.end()?;
    drop(first_session);
    let (second_session, second) = second.end()?;
    drop(second_session);
    let codes = [&first, &second].map(txn_server_tests::sqlstate);
    ensure!(
        codes.iter().filter(|code| *code == "40P01").count() == 1,
        "{codes:?}"
    );
    Ok(())
}

/// A session's very first transaction, too: a CALL by itself, whose level is the session's.
#[test]
fn the_first_call_of_a_session() -> Result<()> {
    let server = bank(1, &[])?;
    let mut look = server.connect()?;
    let mut config = server.config("postgres", "postgres");
    config.options("-c default_transaction_isolation=repeatable\\ read -c txn.range_occ=on");
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(&declare(&[1]))?;
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let config = config.clone();
            std::thread::spawn(move || {
                config
                    .connect(postgres::NoTls)?
                    .batch_execute("CALL bump(1)")
            })
        })
        .collect();
    wait_until(
        &mut look,
        "SELECT count(*) = 2 FROM txn.waits WHERE reason = 'lane'",
    )?;
    holder.batch_execute(&update(1))?;
    holder.batch_execute("COMMIT")?;
    for waiter in waiters {
        txn_server_tests::join(waiter, "a waiter")??;
    }
    ensure!(int(&mut look, "SELECT lane_skipped FROM txn.stats")? == 0);
    ensure!(int(&mut look, "SELECT val FROM account WHERE id = 1")? == 3);
    Ok(())
}
