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
    for level in ["local", "off"] {
        with_hot_row(|server, control| {
            control.batch_execute("CREATE TABLE copied (val bigint)")?;
            let mut first = grouped(server)?;
            first.batch_execute(&format!("BEGIN; {BUMP}"))?;
            let mut follower = at(server, level)?;
            follower.batch_execute("BEGIN")?;
            let returned = follower.query_one(&format!("{BUMP} RETURNING val"), &[])?;
            let told: i64 = returned.get(0);
            ensure!(told == 3, "it has not followed: {told}");
            server.set_synchronous_standbys("nobody")?;
            let first_pid = pid(control)?;
            let first = Background::call(first, first_pid, |client| {
                client.batch_execute("COMMIT")?;
                Ok(())
            });
            wait_until(control, "SELECT val >= 2 FROM hot WHERE id = 1")?;
            follower.batch_execute(&format!("INSERT INTO copied VALUES ({told}); COMMIT"))?;
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

/// Ways to tell others that no reader of a table is asked about.
const TELLING: &[&str] = &[
    "CREATE TABLE made AS SELECT val FROM hot",
    "BEGIN; INSERT INTO copied SELECT val FROM hot; CREATE TABLE made (val int); COMMIT",
    "BEGIN; INSERT INTO copied SELECT val FROM hot; NOTIFY somebody; COMMIT",
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
                control.batch_execute("SELECT 1")?;
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
        control.batch_execute("CREATE TABLE copied (val bigint); CREATE TABLE other (val int)")?;
        let mut client = at(server, "local")?;
        ensure!(int(&mut client, VAL)? == 2, "not early");
        client.batch_execute("INSERT INTO copied SELECT val FROM hot")?;
        client.batch_execute("BEGIN; SELECT val FROM hot; ROLLBACK")?;
        client.batch_execute("BEGIN; INSERT INTO other VALUES (0); PREPARE TRANSACTION 'q'")?;
        client.batch_execute("COMMIT PREPARED 'q'")?;
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
        Ok(())
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
        let reader = Background::call(reader, pid, |client| {
            client.batch_execute("COMMIT")?;
            Ok(())
        });
        waits_for_standby(control, &reader)?;
        server.set_synchronous_standbys("")?;
        Ok(reader.end()?.1?)
    })
}

/// A deferred trigger that runs at the commit, where no command is asked for it, and a session of a
/// lower level.
#[test]
fn foreign_tables_are_told_late_by_deferred_triggers_and_at_any_level() -> Result<()> {
    with_hot_row(|server, control| {
        let (host, port) = (server.host().display().to_string(), server.port());
        let user = text(control, "SELECT current_user::text")?;
        let database = text(control, "SELECT current_database()::text")?;
        control.batch_execute(&format!(
            "CREATE EXTENSION postgres_fdw;
             CREATE TABLE there (val bigint);
             CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw
                 OPTIONS (host '{host}', port '{port}', dbname '{database}',
                          options '-c synchronous_commit=local');
             CREATE USER MAPPING FOR CURRENT_USER SERVER loop OPTIONS (user '{user}');
             CREATE FOREIGN TABLE remote (val bigint) SERVER loop OPTIONS (table_name 'there');
             CREATE TABLE noted (id int);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO remote SELECT val FROM hot; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER note AFTER INSERT ON noted DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION note()"
        ))?;
        for (level, statement) in [
            ("on", "INSERT INTO noted VALUES (1)"),
            ("on", "BEGIN; INSERT INTO noted VALUES (1); COMMIT"),
            ("local", "INSERT INTO noted VALUES (1)"),
            ("local", "INSERT INTO remote SELECT val FROM hot"),
            ("off", "INSERT INTO remote SELECT val FROM hot"),
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
