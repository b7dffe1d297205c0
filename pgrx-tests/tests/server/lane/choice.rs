//! `txn.lane = auto` and `txn.reschedule`: who takes keys, when.

use anyhow::{Result, bail, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Background, int, read, sqlstate, wait_until};

use super::{bank, declare, session, update, wait_until_asleep};

/// Has the session refused because of account `id`, in the way that is named.
fn refuse(server: &Server, client: &mut Client, how: &str, id: i32) -> Result<()> {
    let mut other = server.connect()?;
    let (bump, aside) = (update(id), update(id + 50));
    let result = match how {
        "changed" => {
            client.batch_execute(&format!(
                "BEGIN; SELECT FROM account WHERE id = {}",
                id + 50
            ))?;
            other.batch_execute(&bump)?;
            client.batch_execute(&bump)
        }
        "validated" => {
            client.batch_execute(&format!("BEGIN; SELECT val FROM account WHERE id = {id}"))?;
            client.batch_execute(&aside)?;
            other.batch_execute(&format!("BEGIN; SELECT FROM account; {bump}; COMMIT"))?;
            // It must not stand before the other one.
            client.batch_execute(&format!("SELECT FROM account WHERE id = {}", id + 1))?;
            client.batch_execute("COMMIT")
        }
        "held" => {
            other.batch_execute("SET txn.lane = on; BEGIN")?;
            other.batch_execute(&declare(&[id]))?;
            client.batch_execute(&bump)
        }
        "deadlock" => {
            client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")?;
            client.batch_execute(&aside)?;
            // The detector of the other one looks later.
            other.batch_execute("SET deadlock_timeout = '1h'; BEGIN")?;
            other.batch_execute(&bump)?;
            let mut look = server.connect()?;
            let behind = Background::run(other, &aside)?;
            behind.wait_until_blocked(&mut look)?;
            let result = client.batch_execute(&bump);
            client.batch_execute("ROLLBACK")?;
            behind.end()?.1?;
            result
        }
        how => bail!("{how}"),
    };
    let code = sqlstate(&result);
    let expected = if how == "deadlock" { "40P01" } else { "40001" };
    ensure!(code == expected, "{how}: {code}");
    client.batch_execute("ROLLBACK")?;
    Ok(())
}

const WAYS: [&str; 4] = ["changed", "validated", "held", "deadlock"];

/// Whether a transaction takes the key of that account.
fn is_taken(client: &mut Client, id: i32) -> Result<bool> {
    client.batch_execute("BEGIN")?;
    let is_taken = read(client, &declare(&[id]))?;
    client.batch_execute("COMMIT")?;
    Ok(is_taken)
}

#[test]
fn keys_that_others_are_refused_for_are_taken() -> Result<()> {
    let settings = [
        ("txn.lane", "auto"),
        ("txn.range_window", "off"),
        ("deadlock_timeout", "10ms"),
    ];
    let server = bank(100, &settings)?;
    let mut client = session(&server, "repeatable read")?;
    for (n, how) in WAYS.into_iter().enumerate() {
        let id = n as i32 * 10 + 1;
        ensure!(!is_taken(&mut client, id)?, "{how}: taken at once");
        // Heat goes as time goes: on a slow machine it takes more of them.
        let mut times = 0;
        while !is_taken(&mut client, id)? {
            refuse(&server, &mut client, how, id)?;
            times += 1;
        }
        ensure!(times >= 2, "{how}: taken after {times}");
        // Several keys among which that one is are hot, too.
        client.batch_execute("BEGIN")?;
        let wide = "SELECT txn.declare(ARRAY['account(*)'])";
        ensure!(read::<bool>(&mut client, wide)?, "{how}: not all keys");
        client.batch_execute("COMMIT")?;
        ensure!(
            !is_taken(&mut client, id + 5)?,
            "{how}: another key is taken"
        );
        // It cools down.
        while is_taken(&mut client, id)? {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    ensure!(int(&mut client, "SELECT lane_cold FROM txn.stats")? >= 12);
    Ok(())
}

#[test]
fn keys_that_others_wait_for_are_taken() -> Result<()> {
    let server = bank(10, &[("txn.lane_threshold", "2")])?;
    let mut look = server.connect()?;
    let mut automatic = server.connect()?;
    automatic.batch_execute("SET txn.lane = auto")?;
    ensure!(!is_taken(&mut automatic, 1)?);
    while !is_taken(&mut automatic, 1)? {
        let mut holder = server.connect()?;
        holder.batch_execute("BEGIN")?;
        holder.batch_execute(&declare(&[1, 2]))?;
        // One that has declared the key, and one that has declared nothing.
        let mut waiters = Vec::new();
        for sql in [format!("BEGIN; {}", declare(&[1])), update(1)] {
            let waiter = Background::run(server.connect()?, &sql)?;
            waiter.wait_until_blocked(&mut look)?;
            waiters.push(waiter);
        }
        holder.batch_execute("COMMIT")?;
        for waiter in waiters {
            waiter.end()?.1?;
        }
    }
    ensure!(
        !is_taken(&mut automatic, 2)?,
        "nobody has waited for the other one"
    );
    Ok(())
}

#[test]
fn a_call_with_and_without_heat() -> Result<()> {
    let server = bank(10, &[("txn.lane", "auto")])?;
    let mut client = session(&server, "read committed")?;
    let mut taken = |threshold: i32| -> Result<(i64, i64)> {
        let count = "SELECT 1000 * lane_taken + lane_cold FROM txn.stats";
        let before = int(&mut client, count)?;
        client.batch_execute(&format!("SET txn.lane_threshold = {threshold}"))?;
        client.batch_execute("CALL bump(1, 2)")?;
        let grown = int(&mut client, count)? - before;
        Ok((grown / 1000, grown % 1000))
    };
    ensure!(taken(8)? == (0, 1));
    ensure!(taken(0)? == (1, 0));
    ensure!(int(&mut client, "SELECT sum(val)::bigint FROM account")? == 4);
    Ok(())
}

/// Items that the present transaction has declared.
const DECLARED: &str = "SELECT count(*) FROM txn.my_declared WHERE declared";

#[test]
fn a_refused_transaction_takes_its_keys_when_it_begins_again() -> Result<()> {
    let server = bank(
        100,
        &[("txn.range_window", "off"), ("deadlock_timeout", "10ms")],
    )?;
    let mut client = session(&server, "repeatable read")?;
    let mut look = server.connect()?;
    // Off, nothing is remembered.
    refuse(&server, &mut client, "changed", 1)?;
    client.batch_execute("BEGIN")?;
    ensure!(int(&mut client, DECLARED)? == 0);
    client.batch_execute("COMMIT; SET txn.reschedule = on")?;
    for (n, how) in WAYS.into_iter().enumerate() {
        let id = n as i32 * 10 + 1;
        // On a slow machine more than a second may go by.
        loop {
            refuse(&server, &mut client, how, id)?;
            client.batch_execute("BEGIN")?;
            if int(&mut client, DECLARED)? > 0 {
                break;
            }
            client.batch_execute("COMMIT")?;
        }
        let has_key = format!(
            "SELECT count(*) FROM txn.my_declared
             WHERE declared AND {id} BETWEEN low::int AND high::int"
        );
        ensure!(int(&mut client, &has_key)? == 1, "{how}: not that key");
        let waiter = Background::run(server.connect()?, &format!("BEGIN; {}", declare(&[id])))?;
        waiter.wait_until_blocked(&mut look)?;
        client.batch_execute(&update(id))?;
        client.batch_execute("COMMIT")?;
        waiter.end()?.1?;
        // Once is enough.
        client.batch_execute("BEGIN")?;
        ensure!(int(&mut client, DECLARED)? == 0, "{how}: declared again");
        client.batch_execute("COMMIT")?;
    }
    ensure!(int(&mut client, "SELECT lane_rescheduled FROM txn.stats")? == 4);
    Ok(())
}

/// BEGIN waits for the keys, has its snapshot later, and lets the transaction declare others.
#[test]
fn a_block_that_waits_at_its_begin() -> Result<()> {
    // BEGIN waits for three quarters of that.
    let server = bank(100, &[("deadlock_timeout", "1min")])?;
    let mut look = server.connect()?;
    loop {
        let mut holder = server.connect()?;
        holder.batch_execute("BEGIN")?;
        holder.batch_execute(&declare(&[1]))?;
        holder.batch_execute(&update(1))?;
        let mut client = session(&server, "repeatable read")?;
        client.batch_execute("SET txn.reschedule = on")?;
        ensure!(sqlstate(&client.batch_execute(&update(1))) == "40001");
        let block = format!("BEGIN; {}; COMMIT", update(1));
        let again = Background::run(client, &block)?;
        let waits = "SELECT count(*) FROM txn.waits WHERE reason = 'lane'";
        // Later than a second it is refused again.
        while int(&mut look, waits)? == 0 && !again.is_finished() {}
        holder.batch_execute("COMMIT")?;
        let (mut client, result) = again.end()?;
        if sqlstate(&result) == "40001" {
            continue;
        }
        result?;
        ensure!(int(&mut look, "SELECT lane_rescheduled FROM txn.stats")? == 1);
        // A declaration of its own takes the place of what was taken.
        loop {
            refuse(&server, &mut client, "changed", 11)?;
            client.batch_execute("BEGIN")?;
            client.batch_execute(&declare(&[21]))?;
            let declared = "SELECT low::int::bigint FROM txn.my_declared WHERE declared";
            ensure!(int(&mut client, declared)? == 21);
            client.batch_execute("COMMIT")?;
            if int(&mut look, "SELECT lane_rescheduled FROM txn.stats")? > 1 {
                return Ok(());
            }
        }
    }
}

/// Has the session refused because of account 1, and lets it begin a block with `begin` then.
/// Repeats this until at most a second goes by between the two. Returns whether the block has taken
/// the key.
fn begins(server: &Server, client: &mut Client, begin: &str) -> Result<bool> {
    loop {
        let (since, mut look) = (std::time::Instant::now(), server.connect()?);
        // Not in the block, which may still declare others.
        let pid = int(client, "SELECT pg_backend_pid()::bigint")?;
        refuse(server, client, "changed", 1)?;
        client.batch_execute(begin)?;
        let is_in_time = since.elapsed().as_secs_f64() < 1.0;
        let taken = format!("SELECT count(*) FROM txn.lane WHERE pid = {pid}");
        let taken = int(&mut look, &taken)?;
        if is_in_time {
            return Ok(taken > 0);
        }
        client.batch_execute("ROLLBACK")?;
    }
}

/// BEGIN takes keys only if it begins a transaction that may use them, and never fails.
#[test]
fn where_a_block_takes_nothing() -> Result<()> {
    let server = bank(100, &[("txn.range_window", "off")])?;
    for (begin, expected) in [
        ("BEGIN", true),
        ("START TRANSACTION ISOLATION LEVEL READ COMMITTED", true),
        ("BEGIN READ ONLY", false),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", false),
        ("LOCK TABLE account IN ACCESS SHARE MODE; BEGIN", false),
        ("SET txn.lane = off; BEGIN", false),
    ] {
        let mut client = session(&server, "repeatable read")?;
        client.batch_execute("SET txn.reschedule = on")?;
        let is_taken = begins(&server, &mut client, begin)?;
        ensure!(is_taken == expected, "{begin}: {is_taken}");
    }
    // Others keep the key for longer than it may wait.
    for timeout in ["lock_timeout", "statement_timeout", "txn.hot_wait_timeout"] {
        let mut holder = server.connect()?;
        let mut client = session(&server, "repeatable read")?;
        client.batch_execute("SET txn.reschedule = on")?;
        refuse(&server, &mut client, "changed", 1)?;
        holder.batch_execute("BEGIN")?;
        holder.batch_execute(&declare(&[1]))?;
        client.batch_execute(&format!("SET {timeout} = '100ms'"))?;
        client.batch_execute("BEGIN")?;
        ensure!(int(&mut client, DECLARED)? == 0, "{timeout}");
        holder.batch_execute("COMMIT")?;
        client.batch_execute(&update(1))?;
        client.batch_execute("COMMIT")?;
    }
    Ok(())
}

/// A declaration that is refused leaves the keys that the block has taken at its BEGIN.
#[test]
fn a_declaration_that_fails_in_a_block_that_has_keys() -> Result<()> {
    let server = bank(100, &[("txn.range_window", "off")])?;
    let mut look = server.connect()?;
    let mut client = session(&server, "repeatable read")?;
    client.batch_execute("SET txn.reschedule = on")?;
    ensure!(begins(&server, &mut client, "BEGIN")?);
    client.batch_execute(&update(1))?;
    client.batch_execute("SAVEPOINT s")?;
    ensure!(sqlstate(&client.batch_execute(&declare(&[9]))) == "25001");
    client.batch_execute("ROLLBACK TO s")?;
    let next = Background::run(server.connect()?, &format!("BEGIN; {}", declare(&[1])))?;
    next.wait_until_blocked(&mut look)?;
    client.batch_execute("COMMIT")?;
    next.end()?.1?;

    // A CALL whose keys are cold leaves them, too, and PREPARE tells of them.
    client.batch_execute("SET txn.lane = auto")?;
    ensure!(begins(&server, &mut client, "BEGIN")?);
    client.batch_execute("CALL bump(31, 32)")?;
    client.batch_execute(&update(1))?;
    client.batch_execute("PREPARE TRANSACTION 'kept'")?;
    let next = session(&server, "repeatable read")?;
    let next = Background::run(next, &format!("BEGIN; {}", declare(&[1])))?;
    next.wait_until_blocked(&mut look)?;
    look.batch_execute("COMMIT PREPARED 'kept'")?;
    let (mut next, result) = next.end()?;
    result?;
    next.batch_execute(&update(1))?;
    next.batch_execute("COMMIT")?;
    Ok(())
}

/// A block that has keys from its BEGIN declares others, and leaves the lane for that. Those who
/// sleep until its end then, declared or not, are no deadlock.
#[test]
fn who_sleeps_behind_a_block_that_declares_others() -> Result<()> {
    let ways = [true, false].map(|is_declared| [true, false].map(|ends| (is_declared, ends)));
    for (is_declared, is_terminated) in ways.concat() {
        let server = bank(100, &[("txn.range_window", "off")])?;
        let mut look = server.connect()?;
        let mut client = session(&server, "repeatable read")?;
        client.batch_execute("SET txn.reschedule = on")?;
        let pid = int(&mut client, "SELECT pg_backend_pid()::bigint")? as i32;
        ensure!(begins(&server, &mut client, "BEGIN")?);
        client.batch_execute("SET LOCAL deadlock_timeout = '10ms'")?;
        let mut other = server.connect()?;
        other.batch_execute("SET deadlock_timeout = '400ms'; BEGIN")?;
        let wants = if is_declared {
            declare(&[1])
        } else {
            update(1)
        };
        let other = Background::run(other, &wants)?;
        wait_until_asleep(&mut look, other.pid)?;
        if is_terminated {
            look.execute("SELECT pg_terminate_backend($1)", &[&other.pid])?;
        }
        let client = Background::run_as(client, pid, &declare(&[1]));
        let (mut other, result) = other.end()?;
        if !is_terminated {
            result?;
            other.batch_execute("COMMIT")?;
        }
        client.end()?.1?;
    }
    Ok(())
}

/// A refusal that a savepoint takes back is none of the transaction.
#[test]
fn a_refusal_that_is_survived() -> Result<()> {
    let server = bank(10, &[])?;
    let mut client = session(&server, "read committed")?;
    client.batch_execute(
        "SET txn.reschedule = on; BEGIN; UPDATE account SET val = 1 WHERE id = 1;
         DO $$ BEGIN RAISE serialization_failure; EXCEPTION WHEN OTHERS THEN END $$;
         COMMIT; BEGIN",
    )?;
    ensure!(int(&mut client, DECLARED)? == 0);
    Ok(())
}

/// Nobody sleeps until the end of a block whose BEGIN may not get its keys: it goes on in time, and
/// may wait for those who were behind it.
#[test]
fn who_waits_behind_a_block_that_gets_no_keys() -> Result<()> {
    let server = bank(100, &[("txn.range_window", "off")])?;
    let mut look = server.connect()?;
    let mut client = session(&server, "repeatable read")?;
    client.batch_execute("SET txn.reschedule = on; SET deadlock_timeout = '8s'")?;
    let pid = int(&mut client, "SELECT pg_backend_pid()::bigint")? as i32;
    // It has read account 51, and has been refused because of account 1.
    refuse(&server, &mut client, "changed", 1)?;
    // BEGIN waits for half of that.
    client.batch_execute("SET statement_timeout = '6s'")?;
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(&declare(&[1]))?;
    let mut other = server.connect()?;
    other.batch_execute("SET deadlock_timeout = '2s'; BEGIN; SELECT pg_advisory_xact_lock(77)")?;
    let begin = Background::run_as(client, pid, "BEGIN");
    wait_until(
        &mut look,
        &format!(
            "SELECT EXISTS (SELECT FROM txn.lane WHERE pid = {pid})
                 OR state = 'idle in transaction'
             FROM pg_stat_activity WHERE pid = {pid}"
        ),
    )?;
    let other = Background::run(other, &declare(&[51]))?;
    let (client, result) = begin.end()?;
    result?;
    let client = Background::run_as(
        client,
        pid,
        "SET statement_timeout = 0; SELECT pg_advisory_xact_lock(77)",
    );
    let (mut other, result) = other.end()?;
    result?;
    other.batch_execute("COMMIT")?;
    client.end()?.1?;
    Ok(())
}

/// What group locking refuses is remembered, too: while COMMIT waits, and while an error does.
#[test]
fn what_a_predecessor_takes_along() -> Result<()> {
    let server = bank(9, &[("deadlock_timeout", "10min")])?;
    let mut look = server.connect()?;
    look.batch_execute(
        "CREATE TABLE item (id int PRIMARY KEY, stock int CHECK (stock >= 0)) USING txn_heap;
         INSERT INTO item VALUES (1, 0)",
    )?;
    let grouped = || -> Result<Client> {
        let mut client = server.connect()?;
        client.batch_execute("SET txn.group_lock = on; SET txn.hot_threshold = 0")?;
        Ok(client)
    };
    for (ahead, last, end) in [
        (update(9), "COMMIT".to_owned(), "ROLLBACK"),
        (
            "UPDATE item SET stock = 5".to_owned(),
            "INSERT INTO item VALUES (1, 1)".to_owned(),
            "ROLLBACK",
        ),
    ] {
        grouped()?.batch_execute(&update(1))?;
        let mut first = grouped()?;
        first.batch_execute("BEGIN")?;
        first.batch_execute(&ahead)?;
        first.batch_execute(&update(1))?;
        let mut second = grouped()?;
        second.batch_execute("SET txn.reschedule = on")?;
        second.batch_execute("BEGIN")?;
        second.batch_execute(&update(1))?;
        let second = Background::run(second, &last)?;
        second.wait_until_blocked(&mut look)?;
        first.batch_execute(end)?;
        let (mut second, result) = second.end()?;
        ensure!(sqlstate(&result) == "40001", "{last}: {result:?}");
        second.batch_execute("ROLLBACK")?;
        second.batch_execute("BEGIN")?;
        ensure!(int(&mut second, DECLARED)? > 0, "{last}");
        second.batch_execute("ROLLBACK")?;
    }
    Ok(())
}
