//! What may be visible before it is durable, and who must not be told of it, with a synchronous
//! standby that does not answer: transactions whose effects are not in tables, levels of
//! `synchronous_commit`, partitions.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, grouped, int, local, pid, sqlstate, start_hot, wait_until,
};

use crate::visibility::waits_for_standby;

pub const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
pub const VAL: &str = "SELECT val FROM hot WHERE id = 1";

/// With a hot row.
pub fn with_hot_row(body: impl FnOnce(&Server, &mut Client) -> Result<()>) -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    let mut control = local(&server)?;
    grouped(&server)?.batch_execute(BUMP)?;
    dog.finish(body(&server, &mut control))
}

/// Effects that no reader of a table is asked about.
const UNGUARDED: &[&str] = &[
    "NOTIFY somebody, 'done'",
    "SELECT pg_notify('somebody', 'done')",
    "INSERT INTO noted VALUES (1)",
    "SELECT lo_create(0)",
    "DO $$ BEGIN PERFORM lo_from_bytea(0, 'x'); END $$",
    "SELECT pg_logical_emit_message(true, 'a', 'b')",
    "EXPLAIN ANALYZE CREATE TABLE made AS SELECT 1",
    "UPDATE moved SET id = 2",
];

/// Functions that have no such effects.
const HARMLESS: &[&str] = &[
    "SELECT nextval('numbers'), random(), clock_timestamp(), gen_random_uuid()",
    "SELECT pg_advisory_xact_lock(1), set_config('search_path', 'public', true)",
    "INSERT INTO referring VALUES (1)",
];

#[test]
fn what_is_not_guarded_is_not_early() -> Result<()> {
    with_hot_row(|server, control| {
        control.batch_execute(
            "CREATE SEQUENCE numbers;
             CREATE TABLE referred (id int PRIMARY KEY);
             INSERT INTO referred VALUES (1);
             CREATE TABLE referring (id int REFERENCES referred);
             CREATE TABLE noted (id int);
             CREATE TABLE moved (id int) PARTITION BY LIST (id);
             CREATE TABLE moved_1 PARTITION OF moved FOR VALUES IN (1);
             CREATE TABLE moved_2 PARTITION OF moved FOR VALUES IN (2);
             INSERT INTO moved VALUES (1);
             CREATE FUNCTION native() RETURNS trigger LANGUAGE internal
             AS 'suppress_redundant_updates_trigger';
             CREATE TRIGGER native BEFORE DELETE ON moved_1
                 FOR EACH ROW WHEN (false) EXECUTE FUNCTION native();
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_notify('somebody', 'done'); RETURN NULL; END $$;
             CREATE TRIGGER note AFTER INSERT ON noted FOR EACH ROW EXECUTE FUNCTION note()",
        )?;
        let cases = UNGUARDED.iter().map(|sql| (sql, false));
        for (sql, is_early) in cases.chain(HARMLESS.iter().map(|sql| (sql, true))) {
            let before = int(control, VAL)?;
            server.set_synchronous_standbys("nobody")?;
            let writer =
                Background::run(grouped(server)?, &format!("BEGIN; {BUMP}; {sql}; COMMIT"))?;
            waits_for_standby(control, &writer).context(*sql)?;
            let seen = int(control, VAL)? - before;
            ensure!(seen == i64::from(is_early), "{seen} is visible: {sql}");
            server.set_synchronous_standbys("")?;
            writer.end()?.1?;
            wait_until(
                control,
                &format!("SELECT val = {} FROM hot WHERE id = 1", before + 1),
            )?;
        }
        Ok(())
    })
}

/// Only triggers that a statement may fire count.
#[test]
fn triggers_for_other_events_are_no_matter() -> Result<()> {
    with_hot_row(|server, control| {
        control.batch_execute(
            "CREATE FUNCTION native() RETURNS trigger LANGUAGE internal
             AS 'suppress_redundant_updates_trigger'",
        )?;
        let update =
            "CREATE TRIGGER native BEFORE UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION native()";
        for (trigger, is_early) in [
            (update.replace("UPDATE", "INSERT OR DELETE"), true),
            (update.to_owned(), false),
            (
                format!("{update}; ALTER TABLE hot DISABLE TRIGGER native"),
                true,
            ),
        ] {
            control.batch_execute(&trigger)?;
            let before = int(control, VAL)?;
            server.set_synchronous_standbys("nobody")?;
            let writer = Background::run(grouped(server)?, BUMP)?;
            waits_for_standby(control, &writer).context(trigger.clone())?;
            let seen = int(control, VAL)? - before;
            ensure!(seen == i64::from(is_early), "{seen} is visible: {trigger}");
            server.set_synchronous_standbys("")?;
            writer.end()?.1?;
            control.batch_execute("DROP TRIGGER native ON hot")?;
        }
        Ok(())
    })
}

/// A conflict in a partition tells of its rows, whatever table was named.
#[test]
fn conflicts_in_partitions_wait() -> Result<()> {
    with_hot_row(|server, control| {
        control.batch_execute(
            "CREATE TABLE parts (val int PRIMARY KEY) PARTITION BY RANGE (val);
             CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        )?;
        server.set_synchronous_standbys("nobody")?;
        let writer = Background::run(
            grouped(server)?,
            &format!("BEGIN; {BUMP}; INSERT INTO part_1 VALUES (5); COMMIT"),
        )?;
        wait_until(control, "SELECT count(*) = 1 FROM parts")?;
        let mut readers = Vec::new();
        for (sql, told) in [
            (
                "INSERT INTO parts VALUES (5) ON CONFLICT DO NOTHING",
                "00000",
            ),
            ("INSERT INTO parts VALUES (5)", "23505"),
        ] {
            let reader = Background::run(server.connect()?, sql)?;
            waits_for_standby(control, &reader).context(sql)?;
            readers.push((reader, told));
        }
        server.set_synchronous_standbys("")?;
        writer.end()?.1?;
        for (reader, wanted) in readers {
            let told = sqlstate(&reader.end()?.1);
            ensure!(told == wanted, "{told} instead of {wanted}");
        }
        Ok(())
    })
}

/// A writer that has not waited for standbys keeps no reader waiting for them.
#[test]
fn a_local_commit_is_read_without_the_standby() -> Result<()> {
    with_hot_row(|server, control| {
        server.set_synchronous_standbys("nobody")?;
        let early = int(control, "SELECT early_commits FROM txn.stats")?;
        let mut writer = grouped(server)?;
        writer.batch_execute(&format!("SET synchronous_commit = local; {BUMP}"))?;
        ensure!(
            int(control, "SELECT early_commits FROM txn.stats")? > early,
            "it was not early"
        );
        for level in ["on", "remote_write", "remote_apply"] {
            let mut reader = server.connect()?;
            reader.batch_execute(&format!("SET synchronous_commit = {level}"))?;
            ensure!(int(&mut reader, VAL)? == 2, "{level}");
            // Nor does an error of it.
            let told = reader.batch_execute("SELECT 1 / (val - 2) FROM hot");
            ensure!(sqlstate(&told) == "22012", "{told:?}");
        }
        server.set_synchronous_standbys("")
    })
}

/// A client that rolls back is told so late, but nobody waits for its locks.
#[test]
fn a_rollback_waits_without_locks() -> Result<()> {
    with_hot_row(|server, control| {
        control.batch_execute("CREATE TABLE other AS SELECT 1 AS id, 0 AS val")?;
        server.set_synchronous_standbys("nobody")?;
        let writer = Background::run(grouped(server)?, BUMP)?;
        wait_until(control, "SELECT val = 2 FROM hot WHERE id = 1")?;
        let mut reader = grouped(server)?;
        reader.batch_execute(&format!(
            "BEGIN; SELECT val FROM hot; UPDATE other SET val = 1; {BUMP}"
        ))?;
        let reader = Background::run(reader, "ROLLBACK")?;
        waits_for_standby(control, &reader)?;
        control.batch_execute("UPDATE other SET val = 7")?;
        control.batch_execute(BUMP)?;
        ensure!(!reader.is_finished(), "ROLLBACK before the standby");
        server.set_synchronous_standbys("")?;
        writer.end()?.1?;
        reader.end()?.1?;
        ensure!(int(control, VAL)? == 3, "lost");
        Ok(())
    })
}

/// So is the client of a block that has failed.
#[test]
fn the_end_of_a_failed_block_waits() -> Result<()> {
    with_hot_row(|server, control| {
        server.set_synchronous_standbys("nobody")?;
        let writer = Background::run(grouped(server)?, BUMP)?;
        wait_until(control, "SELECT val = 2 FROM hot WHERE id = 1")?;
        let mut ends = Vec::new();
        for (savepoint, end) in [
            ("SELECT 1", "ROLLBACK"),
            ("SELECT 1", "COMMIT"),
            ("SAVEPOINT a", "ROLLBACK"),
        ] {
            let mut reader = server.connect()?;
            let pid = pid(&mut reader)?;
            reader.batch_execute("BEGIN")?;
            ensure!(int(&mut reader, VAL)? == 2, "not early");
            reader.batch_execute(savepoint)?;
            let told = reader.batch_execute("SELECT nothing");
            ensure!(sqlstate(&told) == "42703", "{told:?}");
            let end = Background::run_as(reader, pid, end);
            waits_for_standby(control, &end).context(savepoint)?;
            ends.push(end);
        }
        server.set_synchronous_standbys("")?;
        writer.end()?.1?;
        for end in ends {
            end.end()?.1?;
        }
        Ok(())
    })
}

/// What a session of a lower level writes may tell of what others have not been told yet.
#[test]
fn what_was_read_goes_on_with_what_is_written() -> Result<()> {
    for level in ["local", "off"] {
        with_hot_row(|server, control| {
            control.batch_execute("CREATE TABLE copied (val bigint)")?;
            server.set_synchronous_standbys("nobody")?;
            let writer = Background::run(grouped(server)?, BUMP)?;
            wait_until(control, "SELECT val = 2 FROM hot WHERE id = 1")?;
            server.connect()?.batch_execute(&format!(
                "SET synchronous_commit = {level}; INSERT INTO copied SELECT val FROM hot"
            ))?;
            let reader = Background::run(server.connect()?, "TABLE copied")?;
            waits_for_standby(control, &reader)?;
            server.set_synchronous_standbys("")?;
            writer.end()?.1?;
            reader.end()?.1?;
            Ok(())
        })?;
    }
    Ok(())
}

/// Whether there are notifications is asked by an error, which ends such a session.
#[test]
fn notifications_where_errors_are_fatal() -> Result<()> {
    with_hot_row(|server, control| {
        let mut client = grouped(server)?;
        client.batch_execute(&format!(
            "SET exit_on_error = on; BEGIN; {BUMP}; NOTIFY somebody; COMMIT"
        ))?;
        ensure!(int(control, VAL)? == 2, "lost");
        Ok(())
    })
}
