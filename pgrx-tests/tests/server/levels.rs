//! Levels of `synchronous_commit`. A session that asks for less than the writers of what it reads
//! must not tell others of that. Nor does a lower level for a moment make a client hear of it.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Background, grouped, int, pid, sqlstate, text, wait_until};

use crate::durability::{BUMP, VAL, with_hot_row};
use crate::visibility::waits_for_standby;

/// With a row that is visible, and whose standby does not answer.
fn with_pending(body: impl FnOnce(&Server, &mut Client) -> Result<()>) -> Result<()> {
    with_hot_row(|server, control| {
        server.set_synchronous_standbys("nobody")?;
        let writer = Background::run(grouped(server)?, BUMP)?;
        wait_until(control, "SELECT val = 2 FROM hot WHERE id = 1")?;
        body(server, control)?;
        server.set_synchronous_standbys("")?;
        writer.end()?.1?;
        Ok(())
    })
}

fn at(server: &Server, level: &str) -> Result<Client> {
    let mut client = grouped(server)?;
    client.batch_execute(&format!("SET synchronous_commit = {level}"))?;
    Ok(client)
}

/// What a follower was returned of a predecessor that had not committed yet.
#[test]
fn what_a_follower_was_returned_goes_on_with_what_it_writes() -> Result<()> {
    for (level, before, after) in [
        ("local", "", ""),
        ("off", "", ""),
        ("local", "SAVEPOINT a", "TABLE copied; ROLLBACK TO a"),
    ] {
        with_hot_row(|server, control| {
            control.batch_execute("CREATE TABLE copied (val bigint)")?;
            let mut first = grouped(server)?;
            let first_pid = pid(&mut first)?;
            first.batch_execute(&format!("BEGIN; {BUMP}"))?;
            let mut follower = at(server, level)?;
            follower.batch_execute(&format!("BEGIN; {before}"))?;
            let returned = follower.query_one(&format!("{BUMP} RETURNING val"), &[])?;
            let told: i64 = returned.get(0);
            ensure!(told == 3, "it has not followed: {told}");
            server.set_synchronous_standbys("nobody")?;
            let first = Background::run_as(first, first_pid, "COMMIT");
            wait_until(control, "SELECT val >= 2 FROM hot WHERE id = 1")?;
            follower.batch_execute(&format!(
                "{after}; INSERT INTO copied VALUES ({told}); COMMIT"
            ))?;
            let reader = Background::run(server.connect()?, "TABLE copied")?;
            waits_for_standby(control, &reader).context(level)?;
            server.set_synchronous_standbys("")?;
            first.end()?.1?;
            reader.end()?.1?;
            Ok(())
        })?;
    }
    Ok(())
}

/// A row of an unlogged table: the follower has no WAL to wait for.
#[test]
fn an_unlogged_row_tells_of_its_writers() -> Result<()> {
    with_hot_row(|server, control| {
        control.batch_execute(
            "CREATE UNLOGGED TABLE light (id int PRIMARY KEY, val bigint) WITH (fillfactor = 50);
             INSERT INTO light VALUES (1, 0); CREATE TABLE logged (id int)",
        )?;
        let light = "UPDATE light SET val = val + 1 WHERE id = 1";
        grouped(server)?.batch_execute(light)?;
        let mut first = grouped(server)?;
        let first_pid = pid(&mut first)?;
        first.batch_execute(&format!("BEGIN; INSERT INTO logged VALUES (1); {light}"))?;
        let mut follower = grouped(server)?;
        let follower_pid = pid(&mut follower)?;
        follower.batch_execute("BEGIN")?;
        let told: i64 = follower
            .query_one(&format!("{light} RETURNING val"), &[])?
            .get(0);
        ensure!(told == 3, "it has not followed: {told}");
        server.set_synchronous_standbys("nobody")?;
        let first = Background::run_as(first, first_pid, "COMMIT");
        wait_until(control, "SELECT count(*) = 1 FROM logged")?;
        let follower = Background::run_as(follower, follower_pid, "COMMIT");
        waits_for_standby(control, &follower)?;
        server.set_synchronous_standbys("")?;
        first.end()?.1?;
        follower.end()?.1?;
        Ok(())
    })
}

/// Ways to tell others that no reader of a table is asked about.
const TELLING: &[&str] = &[
    "CREATE TABLE made AS SELECT val FROM hot",
    "BEGIN; INSERT INTO copied SELECT val FROM hot; CREATE TABLE made (val int); COMMIT",
    "BEGIN; INSERT INTO copied SELECT val FROM hot; NOTIFY somebody; COMMIT",
    "BEGIN; SELECT val FROM hot; NOTIFY somebody; COMMIT",
    "SELECT pg_notify('somebody', val::text) FROM hot",
    "BEGIN; INSERT INTO copied SELECT val FROM hot; PREPARE TRANSACTION 'p'",
    "DO $$ BEGIN PERFORM lo_from_bytea(0, val::text::bytea) FROM hot; END $$",
];

#[test]
fn what_others_are_told_is_durable_at_its_writers_level() -> Result<()> {
    for level in ["local", "off"] {
        for sql in TELLING {
            with_pending(|server, control| {
                control.batch_execute("CREATE TABLE copied (val bigint)")?;
                let teller = Background::run(at(server, level)?, sql)?;
                waits_for_standby(control, &teller).with_context(|| format!("{level}: {sql}"))?;
                server.set_synchronous_standbys("")?;
                teller.end()?.1?;
                if sql.contains("PREPARE") {
                    control.batch_execute("COMMIT PREPARED 'p'")?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// A client at `local` that tells nobody else waits for nobody.
#[test]
fn a_lower_level_by_itself_waits_for_nobody() -> Result<()> {
    with_pending(|server, control| {
        control.batch_execute(
            "CREATE TABLE copied (val bigint); CREATE TABLE other (val int);
             CREATE TABLE once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
             CREATE TABLE warm (id int PRIMARY KEY, val bigint) WITH (fillfactor = 50);
             INSERT INTO warm VALUES (1, 0)",
        )?;
        let mut client = at(server, "local")?;
        ensure!(int(&mut client, VAL)? == 2, "not early");
        client.batch_execute("INSERT INTO copied SELECT val FROM hot")?;
        client.batch_execute("BEGIN; SELECT val FROM hot; ROLLBACK")?;
        client.batch_execute("BEGIN; INSERT INTO other VALUES (0); PREPARE TRANSACTION 'q'")?;
        client.batch_execute("COMMIT PREPARED 'q'")?;
        // Nor does it after an error, which has been told.
        let told = client.batch_execute("SELECT 1 / (val - 2) FROM hot");
        ensure!(sqlstate(&told) == "22012", "{told:?}");
        client.batch_execute("CREATE TABLE made (val int); NOTIFY somebody")?;
        let told = client
            .batch_execute("BEGIN; SELECT val FROM hot; INSERT INTO once VALUES (1), (1); COMMIT");
        ensure!(sqlstate(&told) == "23505", "{told:?}");
        client.batch_execute("NOTIFY somebody")?;
        // A hot row of others, who have not waited for standbys either.
        let warm = "UPDATE warm SET val = val + 1 WHERE id = 1";
        client.batch_execute(&format!("{warm}; BEGIN; {warm}; NOTIFY somebody; COMMIT"))?;
        let mut reader = grouped(server)?;
        let val: i64 = reader.query_one("SELECT val FROM warm", &[])?.get(0);
        ensure!(val == 2, "{val}");
        Ok(())
    })
}

/// A value that a function has for itself says nothing of what the client asks for.
#[test]
fn a_functions_own_level_does_not_count() -> Result<()> {
    with_pending(|server, control| {
        for level in ["off", "local"] {
            control.batch_execute(&format!(
                "CREATE OR REPLACE FUNCTION tells() RETURNS void LANGUAGE plpgsql
                 SET synchronous_commit = {level} AS $$ DECLARE seen bigint;
                 BEGIN SELECT val INTO seen FROM hot; RAISE EXCEPTION 'there is %', seen; END $$"
            ))?;
            let reader = Background::run(grouped(server)?, "SELECT tells()")?;
            waits_for_standby(control, &reader).context(level)?;
            control.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
                 AND query = 'SELECT tells()'",
                &[],
            )?;
            let told = sqlstate(&reader.end()?.1);
            ensure!(told == "P0001", "{told}");
        }
        // One that it leaves to the commit.
        control.batch_execute(
            "CREATE TABLE noted (id int);
             CREATE FUNCTION notes() RETURNS bigint LANGUAGE sql AS
             $$ SELECT set_config('synchronous_commit', 'off', true);
                INSERT INTO noted VALUES (1); SELECT val FROM hot $$",
        )?;
        let reader = Background::run(grouped(server)?, "SELECT notes()")?;
        waits_for_standby(control, &reader)?;
        server.set_synchronous_standbys("")?;
        Ok(reader.end()?.1?)
    })
}

/// A wait at a lower level is not one at the level that the transaction ends with.
#[test]
fn a_weaker_wait_does_not_do() -> Result<()> {
    with_pending(|server, control| {
        let mut reader = grouped(server)?;
        let pid = pid(&mut reader)?;
        reader.batch_execute(
            "BEGIN; SET LOCAL synchronous_commit = local; SELECT val FROM hot;
             COPY (SELECT 1) TO '/dev/null'; SET LOCAL synchronous_commit = on",
        )?;
        let reader = Background::run_as(reader, pid, "COMMIT");
        waits_for_standby(control, &reader)?;
        server.set_synchronous_standbys("")?;
        Ok(reader.end()?.1?)
    })
}

/// A block that AND CHAIN has opened is a block.
#[test]
fn the_end_of_a_chained_block_waits() -> Result<()> {
    with_pending(|server, control| {
        let mut ends = Vec::new();
        for end in ["COMMIT", "ROLLBACK"] {
            let mut reader = grouped(server)?;
            let pid = pid(&mut reader)?;
            reader.batch_execute(&format!("BEGIN; {end} AND CHAIN"))?;
            ensure!(int(&mut reader, VAL)? == 2, "not early");
            let told = reader.batch_execute("SELECT FROM WHERE");
            ensure!(sqlstate(&told) == "42601", "{told:?}");
            ends.push(Background::run_as(reader, pid, "ROLLBACK"));
        }
        for end in &ends {
            waits_for_standby(control, end)?;
        }
        server.set_synchronous_standbys("")?;
        for end in ends {
            end.end()?.1?;
        }
        Ok(())
    })
}

/// No ROLLBACK comes after it.
#[test]
fn a_commit_that_fails_waits() -> Result<()> {
    with_hot_row(|server, control| {
        control.batch_execute(
            "CREATE TABLE warm (id int PRIMARY KEY, val bigint) WITH (fillfactor = 50);
             INSERT INTO warm VALUES (1, 0)",
        )?;
        let warm = "UPDATE warm SET val = val + 1 WHERE id = 1";
        grouped(server)?.batch_execute(warm)?;
        server.set_synchronous_standbys("nobody")?;
        let writer = Background::run(grouped(server)?, BUMP)?;
        wait_until(control, "SELECT val = 2 FROM hot WHERE id = 1")?;
        let mut first = grouped(server)?;
        first.batch_execute(&format!("BEGIN; {warm}"))?;
        let mut reader = grouped(server)?;
        let pid = pid(&mut reader)?;
        reader.batch_execute(&format!("BEGIN; SELECT val FROM hot; {warm}"))?;
        first.batch_execute("SET synchronous_commit = local; ROLLBACK")?;
        let told = reader.batch_execute("COMMIT");
        ensure!(sqlstate(&told) == "40001", "{told:?}");
        wait_until(
            control,
            &format!("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {pid}"),
        )?;
        server.set_synchronous_standbys("")?;
        writer.end()?.1?;
        reader.batch_execute("SELECT 1")?;
        Ok(())
    })
}

/// Another server is told of a value only when it is durable here. So is one that a deferred
/// trigger tells, which may run at the commit where no command is asked for it.
#[test]
fn foreign_tables_are_told_late() -> Result<()> {
    with_hot_row(|server, control| {
        let (host, port) = (server.host().display().to_string(), server.port());
        let user = text(control, "SELECT current_user::text")?;
        let database = text(control, "SELECT current_database()::text")?;
        control.batch_execute("CREATE EXTENSION postgres_fdw; CREATE TABLE there (val bigint)")?;
        for (wrapper, table) in [("postgres_fdw", "remote"), ("txn_fdw", "node")] {
            control.batch_execute(&format!(
                "CREATE SERVER {wrapper} FOREIGN DATA WRAPPER {wrapper}
                     OPTIONS (host '{host}', port '{port}', dbname '{database}',
                              options '-c synchronous_commit=local');
                 CREATE USER MAPPING FOR CURRENT_USER SERVER {wrapper} OPTIONS (user '{user}');
                 CREATE FOREIGN TABLE {table} (val bigint)
                     SERVER {wrapper} OPTIONS (table_name 'there')"
            ))?;
        }
        // The resolver of transactions over several servers starts.
        control.batch_execute("BEGIN; INSERT INTO node VALUES (0); COMMIT")?;
        control.batch_execute(
            "CREATE TABLE noted (id int);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO remote SELECT val FROM hot; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER note AFTER INSERT ON noted DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION note()",
        )?;
        let both = format!("BEGIN; INSERT INTO remote VALUES (0); {BUMP}; COMMIT");
        for (level, statement) in [
            ("on", "INSERT INTO remote SELECT val FROM hot"),
            (
                "on",
                "BEGIN; INSERT INTO remote VALUES (0); SELECT val FROM hot; COMMIT",
            ),
            ("on", &both),
            ("on", "INSERT INTO noted VALUES (1)"),
            ("on", "BEGIN; INSERT INTO noted VALUES (1); COMMIT"),
            ("local", "INSERT INTO noted VALUES (1)"),
            ("local", "INSERT INTO remote SELECT val FROM hot"),
            ("off", "INSERT INTO remote SELECT val FROM hot"),
            ("on", "INSERT INTO node SELECT val FROM hot"),
            ("local", "INSERT INTO node SELECT val FROM hot"),
            ("off", "BEGIN; INSERT INTO node SELECT val FROM hot; COMMIT"),
        ] {
            control.batch_execute("TRUNCATE there")?;
            let before = int(control, VAL)?;
            server.set_synchronous_standbys("nobody")?;
            let writer = Background::run(grouped(server)?, BUMP)?;
            wait_until(
                control,
                &format!("SELECT val = {} FROM hot WHERE id = 1", before + 1),
            )?;
            let teller = Background::run(at(server, level)?, statement)?;
            waits_for_standby(control, &teller).with_context(|| format!("{level}: {statement}"))?;
            ensure!(
                int(control, "SELECT count(*) FROM there")? == 0,
                "told: {level}: {statement}"
            );
            server.set_synchronous_standbys("")?;
            writer.end()?.1?;
            teller.end()?.1?;
            ensure!(
                int(control, "SELECT count(*) FROM there")? == 1,
                "{statement}"
            );
        }
        Ok(())
    })
}
