//! Tables that are redefined, or locked, while a transaction waits for its keys.

use anyhow::{Result, ensure};
use libc::{SIGCONT, SIGSTOP};
use pgserver::{Server, signal};
use postgres::Client;
use txn_server_tests::{Background, int, read, sqlstate, text, wait_until};

use super::{LEVELS, bank, declare, session, update, wait_until_asleep};

/// Makes three transactions meet: one holds account 1; one waits behind it with `statement`; one
/// redefines the table with `change`. When this returns, the first has ended. The third has
/// redefined the table and not committed yet.
fn redefine(
    server: &Server,
    look: &mut Client,
    level: &str,
    statement: &str,
    change: &str,
) -> Result<(Background, Client)> {
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(&declare(&[1]))?;
    holder.batch_execute(&update(1))?;
    let behind = Background::run(session(server, level)?, statement)?;
    behind.wait_until_blocked(look)?;
    let mut definer = server.connect()?;
    definer.batch_execute("BEGIN")?;
    let definer = Background::run(definer, change)?;
    definer.wait_until_blocked(look)?;
    holder.batch_execute("COMMIT")?;
    let (definer, result) = definer.end()?;
    result?;
    behind.wait_until_blocked(look)?;
    Ok((behind, definer))
}

#[test]
fn between_grant_and_holding() -> Result<()> {
    let block = format!("BEGIN; {}", declare(&[1]));
    for level in LEVELS {
        let server = bank(3, &[])?;
        let mut look = server.connect()?;
        let add = "ALTER TABLE account ADD more int";
        let (behind, mut definer) = redefine(&server, &mut look, level, &block, add)?;
        definer.batch_execute("COMMIT")?;
        let (mut behind, result) = behind.end()?;
        result?;
        behind.batch_execute("UPDATE account SET more = 1 WHERE id = 1; COMMIT")?;

        let (behind, mut definer) = redefine(
            &server,
            &mut look,
            level,
            "CALL bump(1, 1)",
            "ALTER TABLE account DROP more",
        )?;
        definer.batch_execute("COMMIT")?;
        behind.end()?.1?;
        ensure!(
            int(&mut look, "SELECT val FROM account WHERE id = 1")? == 4,
            "{level}"
        );
    }
    Ok(())
}

/// The keys have other images then: they are declared anew.
#[test]
fn another_key() -> Result<()> {
    let block = format!("BEGIN; {}", declare(&[1]));
    for level in LEVELS {
        let server = bank(3, &[])?;
        let mut look = server.connect()?;
        let retype = "ALTER TABLE account ALTER id TYPE bigint";
        let (behind, mut definer) = redefine(&server, &mut look, level, &block, retype)?;
        definer.batch_execute("COMMIT")?;
        let (mut behind, result) = behind.end()?;
        result?;
        // A transaction that declares the key now waits for this one.
        let next = Background::run(server.connect()?, &block)?;
        next.wait_until_blocked(&mut look)?;
        behind.batch_execute(&update(1))?;
        behind.batch_execute("COMMIT")?;
        next.end()?.1?;

        let longer = "ALTER TABLE account DROP CONSTRAINT account_pkey, ADD PRIMARY KEY (id, val)";
        let (behind, mut definer) = redefine(&server, &mut look, level, &block, longer)?;
        definer.batch_execute("COMMIT")?;
        ensure!(sqlstate(&behind.end()?.1) == "22023");

        let back = "ALTER TABLE account DROP CONSTRAINT account_pkey, ADD PRIMARY KEY (id)";
        look.batch_execute(back)?;
        let (behind, mut definer) =
            redefine(&server, &mut look, level, &block, "DROP TABLE account")?;
        definer.batch_execute("COMMIT")?;
        ensure!(sqlstate(&behind.end()?.1) == "42P01");
        ensure!(int(&mut look, "SELECT count(*) FROM txn.lane")? == 0);
    }
    Ok(())
}

/// The table becomes a partition: its keys are queued under another name.
#[test]
fn another_root() -> Result<()> {
    let block = format!("BEGIN; {}", declare(&[1]));
    for level in LEVELS {
        let server = bank(3, &[])?;
        let mut look = server.connect()?;
        look.batch_execute(
            "CREATE TABLE root (id int PRIMARY KEY, val bigint NOT NULL) PARTITION BY RANGE (id)",
        )?;
        let attach = "ALTER TABLE root ATTACH PARTITION account FOR VALUES FROM (0) TO (9)";
        let (behind, mut definer) = redefine(&server, &mut look, level, &block, attach)?;
        definer.batch_execute("COMMIT")?;
        let (mut behind, result) = behind.end()?;
        result?;
        let other = "BEGIN; SELECT txn.declare(ARRAY['root(1)'])";
        let next = Background::run(server.connect()?, other)?;
        next.wait_until_blocked(&mut look)?;
        behind.batch_execute("SET LOCAL txn.lane_beyond = error")?;
        behind.batch_execute(&update(1))?;
        behind.batch_execute("COMMIT")?;
        next.end()?.1?;
    }
    Ok(())
}

/// Declared transactions lock their tables no longer than they need to: one that locks a table
/// itself meets no other one that has declared other keys of it.
#[test]
fn tables_are_not_kept_locked() -> Result<()> {
    let server = bank(3, &[])?;
    let mut clients = [server.connect()?, server.connect()?];
    for (client, id) in clients.iter_mut().zip([1, 2]) {
        client.batch_execute("BEGIN")?;
        client.batch_execute(&declare(&[id]))?;
    }
    let [mut one, two] = clients;
    one.batch_execute("LOCK TABLE account IN SHARE ROW EXCLUSIVE MODE")?;
    let two = Background::run(two, "LOCK TABLE account IN SHARE ROW EXCLUSIVE MODE")?;
    two.wait_until_blocked(&mut server.connect()?)?;
    one.batch_execute("COMMIT")?;
    two.end()?.1?;
    Ok(())
}

/// A transaction that has locked the table, or written to the key, goes on: nobody holds the key
/// yet.
#[test]
fn those_who_are_let_end_wait_for_nobody() -> Result<()> {
    let block = format!("BEGIN; {}", declare(&[1]));
    for level in LEVELS {
        let server = bank(3, &[])?;
        let mut look = server.connect()?;
        look.batch_execute("BEGIN; SELECT txn.declare(ARRAY['account(3)']); COMMIT")?;

        let mut other = server.connect()?;
        other.batch_execute("BEGIN; LOCK TABLE account IN EXCLUSIVE MODE")?;
        let declared = Background::run(session(&server, level)?, &block)?;
        declared.wait_until_blocked(&mut look)?;
        other.batch_execute(&update(1))?;
        other.batch_execute("COMMIT")?;
        let (mut declared, result) = declared.end()?;
        result?;
        declared.batch_execute(&update(1))?;
        declared.batch_execute("COMMIT")?;

        other.batch_execute("BEGIN")?;
        other.batch_execute(&update(1))?;
        let declared = Background::run(session(&server, level)?, &block)?;
        declared.wait_until_blocked(&mut look)?;
        other.batch_execute("ALTER TABLE account ADD more int")?;
        other.batch_execute("COMMIT")?;
        let (mut declared, result) = declared.end()?;
        result?;
        declared.batch_execute("UPDATE account SET more = 1 WHERE id = 1; COMMIT")?;
        ensure!(read::<i64>(&mut look, "SELECT val FROM account WHERE id = 1")? == 3);
    }
    Ok(())
}

/// The table gets other ranges while one waits behind it, for its end. It is declared anew, and
/// neither takes that for a deadlock.
#[test]
fn who_sleeps_behind_it_wakes_up_first() -> Result<()> {
    let server = bank(3, &[("deadlock_timeout", "10ms")])?;
    let mut look = server.connect()?;
    let block = |ids: &[i32]| format!("BEGIN; {}; COMMIT", declare(ids));
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(&declare(&[2]))?;
    let behind = Background::run(server.connect()?, &block(&[1, 2]))?;
    behind.wait_until_blocked(&mut look)?;
    let mut next = server.connect()?;
    next.batch_execute("SET deadlock_timeout = '400ms'")?;
    let next = Background::run(next, &block(&[1]))?;
    wait_until_asleep(&mut look, next.pid)?;
    look.batch_execute("SELECT txn.partition_by_range('account', width => 1)")?;
    holder.batch_execute("COMMIT")?;
    behind.end()?.1?;
    next.end()?.1?;
    Ok(())
}

/// An attempt of `txn.run` declares what the last one has used, though somebody slept until that
/// one's end: it has ended.
#[test]
fn who_slept_behind_an_attempt_does_not_matter_to_the_next() -> Result<()> {
    let server = bank(3, &[("deadlock_timeout", "10ms")])?;
    let mut look = server.connect()?;
    look.batch_execute(
        "CREATE SEQUENCE attempts; CREATE SEQUENCE declared;
         CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM nextval('attempts');
             PERFORM nextval('declared') FROM (SELECT FROM txn.my_declared LIMIT 1) one;
             UPDATE account SET val = val + 1 WHERE id = 1;
             PERFORM pg_advisory_xact_lock(3);
             RAISE serialization_failure;
         END $$",
    )?;
    let count = |look: &mut Client, of: &str| {
        read::<i64>(
            look,
            &format!("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {of}"),
        )
    };
    let mut gate = server.connect()?;
    gate.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(3)")?;
    let attempts = "CALL txn.run('SELECT fails()', attempts => 3)";
    let running = Background::run(server.connect()?, attempts)?;
    let mut behind = Vec::new();
    for attempt in 1..=3 {
        let is_there = format!("SELECT is_called AND last_value = {attempt} FROM attempts");
        wait_until(&mut look, &is_there)?;
        running.wait_until_blocked(&mut look)?;
        ensure!(count(&mut look, "declared")? == attempt - 1);
        if attempt > 1 {
            let block = format!("BEGIN; {}; COMMIT", declare(&[1]));
            let sleeper = Background::run(server.connect()?, &block)?;
            wait_until_asleep(&mut look, sleeper.pid)?;
            // It does not notice yet.
            signal(sleeper.pid, SIGSTOP)?;
            behind.push(sleeper);
        }
        let mut next = server.connect()?;
        let pid = int(&mut next, "SELECT pg_backend_pid()::bigint")? as i32;
        let next = Background::run_as(next, pid, "BEGIN; SELECT pg_advisory_xact_lock(3)");
        next.wait_until_blocked(&mut look)?;
        gate.batch_execute("COMMIT")?;
        (gate, _) = next.end()?;
        if let Some(sleeper) = behind.last() {
            if attempt < 3 {
                running.wait_until_blocked(&mut look)?;
            }
            signal(sleeper.pid, SIGCONT)?;
        }
    }
    ensure!(running.end()?.1.is_err());
    for one in behind {
        one.end()?.1?;
    }
    Ok(())
}

const SWAP: &str = "ALTER TABLE account RENAME TO former; ALTER TABLE fresh RENAME TO account";
const ANEW: &str = "DROP TABLE account;
                    CREATE TABLE account (id int PRIMARY KEY, val bigint) USING txn_heap;
                    INSERT INTO account VALUES (1, 0)";
/// What is declared, and whether `account` is what the name leads to now.
const DECLARED: &str =
    "SELECT string_agg(low || ' of ' || relation::text, ', ') FROM txn.my_declared
                        WHERE declared AND relation = 'account'::regclass";

/// The name leads to another table when the keys are there, or before they are asked for.
#[test]
fn another_table_of_the_name() -> Result<()> {
    let block = format!("BEGIN; {}", declare(&[1]));
    let call = "BEGIN; CALL bump(1)";
    for (statement, change, is_before) in [
        (&block[..], SWAP, false),
        (&block, SWAP, true),
        (&block, ANEW, true),
        (call, SWAP, false),
    ] {
        let server = bank(3, &[])?;
        let mut look = server.connect()?;
        look.batch_execute(
            "CREATE TABLE fresh (id int PRIMARY KEY, val bigint NOT NULL) USING txn_heap;
             INSERT INTO fresh VALUES (1, 0)",
        )?;
        let (behind, mut definer) = if is_before {
            let mut definer = server.connect()?;
            definer.batch_execute("BEGIN")?;
            definer.batch_execute(change)?;
            let behind = Background::run(server.connect()?, statement)?;
            behind.wait_until_blocked(&mut look)?;
            (behind, definer)
        } else {
            redefine(&server, &mut look, "read committed", statement, change)?
        };
        definer.batch_execute("COMMIT")?;
        let (mut behind, result) = behind.end()?;
        result?;
        let declared = text(&mut behind, DECLARED)?;
        ensure!(
            declared == "1 of account",
            "{statement}; {change}: {declared}"
        );
        behind.batch_execute(&update(1))?;
        behind.batch_execute("COMMIT")?;
    }
    let server = bank(3, &[])?;
    let mut look = server.connect()?;
    let mut definer = server.connect()?;
    definer.batch_execute("BEGIN; DROP TABLE account")?;
    let behind = Background::run(server.connect()?, &block)?;
    behind.wait_until_blocked(&mut look)?;
    definer.batch_execute("COMMIT")?;
    let told = behind.end()?.1;
    ensure!(sqlstate(&told) == "42P01", "{told:?}");
    Ok(())
}

/// A session that has called the procedure hears of it when the schema has other tables.
#[test]
fn another_schema_of_the_name() -> Result<()> {
    let server = bank(1, &[])?;
    let mut client = server.connect()?;
    let mut definer = server.connect()?;
    definer.batch_execute(
        "CREATE SCHEMA live;
         CREATE TABLE live.account (id int PRIMARY KEY, val int) USING txn_heap;
         INSERT INTO live.account VALUES (1, 0);
         CREATE SCHEMA staging;
         CREATE TABLE staging.account (id int PRIMARY KEY, val int) USING txn_heap;
         INSERT INTO staging.account VALUES (1, 0);
         CREATE PROCEDURE up(a int) LANGUAGE plpgsql AS $$
         BEGIN UPDATE live.account SET val = val + 1 WHERE id = a; END $$;
         SELECT txn.declare_procedure('up(int)', ARRAY['live.account($1)'])",
    )?;
    client.batch_execute("SET txn.lane_beyond = error; CALL up(1)")?;
    definer.batch_execute(
        "BEGIN; ALTER SCHEMA live RENAME TO former; ALTER SCHEMA staging RENAME TO live; COMMIT",
    )?;
    client.batch_execute("CALL up(1)")?;
    Ok(())
}
