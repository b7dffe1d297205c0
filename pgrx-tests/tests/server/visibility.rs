//! Early visibility with a synchronous standby that does not answer. A row is handed on before its
//! transaction is replicated, but no session that asks for synchronous commit is told of it.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, grouped, int, local, physical_health, pid, read, sqlstate, start_hot,
    until, wait_until,
};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
/// Ways to read a table.
const READINGS: &[&str] = &[
    "SELECT val FROM hot WHERE id = 1",
    "BEGIN; SELECT sum(val) FROM hot; COMMIT",
    "BEGIN; SELECT sum(val) FROM hot; ROLLBACK",
    "BEGIN; DECLARE c CURSOR FOR TABLE hot; FETCH ALL c; ROLLBACK",
    "BEGIN; SAVEPOINT a; DECLARE c CURSOR FOR TABLE hot; FETCH c; ROLLBACK TO a; COMMIT",
    "CALL forgets()",
    "SELECT recalls()",
    "SET debug_parallel_query = on; SELECT peek_in_parallel() FROM elsewhere",
    "CALL tells_and_forgets()",
    // A dump ends without COMMIT.
    "BEGIN; COPY hot TO '/dev/null'",
    "SELECT pg_xact_status('3')",
    "DO $$ DECLARE status text := txid_status(3); BEGIN END $$",
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM elsewhere, hot; SELECT 1; COMMIT",
    "SELECT FROM elsewhere WHERE EXISTS (SELECT FROM hot WHERE hot.val = 7)",
    "VALUES ((SELECT val FROM hot WHERE id = 1))",
    "TABLE seen",
    "SELECT look()",
    "SELECT peek()",
    "BEGIN ISOLATION LEVEL SERIALIZABLE; TABLE hot; COMMIT",
    "DO $$ BEGIN PERFORM val FROM hot; END $$",
    "CALL glance()",
    "PREPARE p AS TABLE hot; EXECUTE p",
    "BEGIN; DECLARE c CURSOR FOR TABLE hot; FETCH c; COMMIT",
    "BEGIN; DECLARE c CURSOR WITH HOLD FOR TABLE hot; COMMIT",
    "COPY hot TO '/dev/null'",
    "COPY (TABLE hot) TO '/dev/null'",
    "EXPLAIN ANALYZE TABLE hot",
    "CREATE TEMPORARY TABLE kept AS TABLE hot",
];
/// An error is an answer, too: the same with its SQLSTATE, when the value is 2.
const REFUSALS: &[(&str, &str)] = &[
    ("SELECT 1 / (val - 2) FROM hot WHERE id = 1", "22012"),
    (
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 / (val - 2) FROM hot WHERE id = 1",
        "22012",
    ),
    (
        "DO $$ BEGIN IF (SELECT val FROM hot WHERE id = 1) = 2 THEN RAISE EXCEPTION 'two'; END IF; END $$",
        "P0001",
    ),
    ("UPDATE hot SET val = val + 1 WHERE id = 1", "23514"),
    // What PostgreSQL itself raises with these codes does not wait, because it tells nothing of a
    // row.
    ("SELECT tells('40001') FROM hot WHERE id = 1", "40001"),
    ("SELECT tells('40P01') FROM hot WHERE id = 1", "40P01"),
    ("SELECT tells('55P03') FROM hot WHERE id = 1", "55P03"),
    ("SELECT tells('57014') FROM hot WHERE id = 1", "57014"),
    ("SELECT tells('57P01') FROM hot WHERE id = 1", "57P01"),
    ("SELECT tells('53200') FROM hot WHERE id = 1", "53200"),
];

/// Commands that are no statement of the executor's, and the SQLSTATE of each.
const COMMANDS: &[(&str, &str)] = &[
    ("COPY hot FROM PROGRAM 'echo 1 0' (DELIMITER ' ')", "23505"),
    ("CREATE INDEX ON hot ((1 / (val - 1)))", "22012"),
    ("ALTER TABLE hot ADD CHECK (val < 1)", "23514"),
    (
        "ALTER TABLE hot ALTER val TYPE int USING 1 / (val - 1)",
        "22012",
    ),
    ("SELECT FROM elsewhere WHERE val = fails()", "P0001"),
    ("EXPLAIN SELECT FROM elsewhere WHERE val = fails()", "P0001"),
    // The statement that fails has read nothing; the one around it has.
    ("SELECT asks(val) FROM hot WHERE id = 1", "P0001"),
    (
        "BEGIN; INSERT INTO checked_late VALUES (1); COMMIT",
        "P0001",
    ),
];

#[test]
fn unreplicated_values_are_not_read() -> Result<()> {
    let server = start_hot(2, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(read_guard(&server, grouped))
}

/// Unreplicated values are not read where the settings of all sessions are off, and the table's are
/// on.
#[test]
fn unreplicated_values_of_a_labelled_table_are_not_read() -> Result<()> {
    let server = start_hot(2, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish((|| {
        server
            .connect()?
            .batch_execute("SELECT txn.set_table('hot', 'group', 0)")?;
        read_guard(&server, Server::connect)
    })())
}

pub fn read_guard(server: &Server, writer: fn(&Server) -> Result<Client>) -> Result<()> {
    let mut control = local(server)?;
    control.batch_execute(
        "CREATE TABLE elsewhere AS SELECT 5 AS val;
         ALTER TABLE hot ADD CHECK (val < 3);
         CREATE FUNCTION peek() RETURNS bigint LANGUAGE plpgsql STABLE AS
         $$ BEGIN RETURN (SELECT val FROM hot WHERE id = 1); END $$;
         CREATE FUNCTION peek_in_parallel() RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE AS
         $$ BEGIN RETURN (SELECT val FROM hot WHERE id = 1); END $$;
         CREATE FUNCTION tells(code text) RETURNS void LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'two' USING ERRCODE = code; END $$;
         CREATE VIEW seen AS TABLE hot;
         CREATE FUNCTION look() RETURNS SETOF bigint LANGUAGE sql AS 'SELECT val FROM hot';
         CREATE PROCEDURE glance() LANGUAGE plpgsql AS 'BEGIN PERFORM look(); END';
         CREATE PROCEDURE forgets() LANGUAGE plpgsql AS
         'BEGIN PERFORM val FROM hot; ROLLBACK; END';
         CREATE PROCEDURE tells_and_forgets() LANGUAGE plpgsql AS
         $$ DECLARE status text := pg_xact_status('3'); BEGIN ROLLBACK; END $$;
         CREATE FUNCTION recalls() RETURNS bigint LANGUAGE plpgsql AS $$
         DECLARE r record; v bigint;
         BEGIN
             BEGIN
                 FOR r IN SELECT val FROM hot LOOP
                     v := r.val;
                     RAISE EXCEPTION SQLSTATE '40001';
                 END LOOP;
             EXCEPTION WHEN OTHERS THEN
             END;
             RETURN v;
         END $$",
    )?;
    server.set_synchronous_standbys("nobody")?;
    let first = Background::run(writer(server)?, BUMP)?;
    let second = Background::run(writer(server)?, BUMP)?;
    // Both are committed for those who do not ask for more, and neither client has been told.
    wait_until(&mut control, "SELECT val = 2 FROM hot WHERE id = 1")?;
    ensure!(
        !first.is_finished() && !second.is_finished(),
        "COMMIT before the standby"
    );

    let mut readers = Vec::new();
    let answers = READINGS.iter().map(|sql| (*sql, "00000"));
    for (sql, told) in answers.chain(REFUSALS.iter().copied()) {
        let reader = Background::run(server.connect()?, sql)?;
        reader.wait_until_blocked(&mut control).context(sql)?;
        readers.push((sql, told, reader));
    }
    // Readers of other tables do not wait.
    let other = int(&mut server.connect()?, "SELECT val FROM elsewhere")?;
    ensure!(other == 5, "another table has {other}");
    for (sql, _, reader) in &readers {
        ensure!(!reader.is_finished(), "before the standby: {sql}");
    }

    server.set_synchronous_standbys("")?;
    first.end()?.1?;
    second.end()?.1?;
    for (sql, told, reader) in readers {
        let answer = sqlstate(&reader.end()?.1);
        ensure!(answer == told, "{answer} instead of {told}: {sql}");
    }
    let val = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(val == 2, "the value is {val}");
    drop(control);
    physical_health(server, "hot", "id")
}

/// Looks until the statement waits for the standby; an error if it ends.
pub fn waits_for_standby(control: &mut Client, statement: &Background) -> Result<()> {
    let sql = format!(
        "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {}",
        statement.pid
    );
    until(control, "the statement waits for the standby", |control| {
        ensure!(!statement.is_finished(), "it was told before the standby");
        Ok(read::<Option<bool>>(control, &sql)?.unwrap_or(false))
    })
}

/// The statement fails with that SQLSTATE, and waits for the standby before, perhaps once more for
/// what is around it. (A wait for a standby ends with a warning when it is cancelled.)
fn told_late(control: &mut Client, statement: Background, told: &str) -> Result<()> {
    waits_for_standby(control, &statement)?;
    until(control, "the statement is told", |control| {
        control.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'",
            &[&statement.pid],
        )?;
        Ok(statement.is_finished())
    })?;
    let answer = sqlstate(&statement.end()?.1);
    ensure!(answer == told, "{answer} instead of {told}");
    Ok(())
}

/// The error of a command that reads by itself, and of planning, is told when what it comes from is
/// replicated.
#[test]
fn commands_that_fail_wait_for_what_they_have_looked_at() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(failing_commands(&server))
}

fn failing_commands(server: &Server) -> Result<()> {
    let mut control = local(server)?;
    control.batch_execute(
        "CREATE TABLE elsewhere AS SELECT 5 AS val;
         ANALYZE elsewhere;
         CREATE TABLE parts (val int) PARTITION BY LIST (val);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE part_2 PARTITION OF parts FOR VALUES IN (2);
         CREATE FUNCTION fails(n int DEFAULT 1) RETURNS int LANGUAGE plpgsql STABLE AS $$
         BEGIN
             IF (SELECT val FROM hot WHERE id = 1) = 1 THEN
                 RAISE EXCEPTION 'one';
             END IF;
             RETURN n;
         END $$;
         CREATE FUNCTION is_not_one(n bigint) RETURNS bool LANGUAGE plpgsql AS $$
         BEGIN
             IF n = 1 THEN
                 RAISE EXCEPTION 'one';
             END IF;
             RETURN true;
         END $$;
         CREATE FUNCTION asks(n bigint) RETURNS void LANGUAGE plpgsql AS
         $$ BEGIN PERFORM is_not_one(n); END $$;
         CREATE TABLE checked_late (val int);
         CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM fails(); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON checked_late
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
    )?;
    server.set_synchronous_standbys("nobody")?;
    let writer = Background::run(grouped(server)?, BUMP)?;
    wait_until(&mut control, "SELECT val = 1 FROM hot WHERE id = 1")?;
    for (sql, told) in COMMANDS {
        let command = Background::run(server.connect()?, sql)?;
        told_late(&mut control, command, told).context(*sql)?;
    }
    // A generic plan calls the function when the executor starts, to leave partitions out.
    let mut client = server.connect()?;
    client.batch_execute("SET plan_cache_mode = force_generic_plan")?;
    let pid = pid(&mut client)?;
    let pruned = Background::call(client, pid, |client| {
        client.execute("SELECT FROM parts WHERE val = fails($1)", &[&2])?;
        Ok(())
    });
    told_late(&mut control, pruned, "P0001").context("partitions")?;
    server.set_synchronous_standbys("")?;
    writer.end()?.1?;
    drop(control);
    physical_health(server, "hot", "id")
}

/// "Sold out" is an answer, too: it is told when what it comes from is replicated.
#[test]
fn an_update_that_finds_nothing_waits_for_what_it_has_looked_at() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(sold_out(&server))
}

fn sold_out(server: &Server) -> Result<()> {
    let mut control = local(server)?;
    server.set_synchronous_standbys("nobody")?;
    let mut buyer = grouped(server)?;
    buyer.batch_execute("BEGIN; UPDATE hot SET val = 1 WHERE id = 1")?;
    let late = "UPDATE hot SET val = val + 1 WHERE id = 1 AND val < 1";
    let late = Background::run(grouped(server)?, late)?;
    late.wait_until_blocked(&mut control)?;
    let buyer = Background::run(buyer, "COMMIT")?;
    wait_until(&mut control, "SELECT val = 1 FROM hot WHERE id = 1")?;
    waits_for_standby(&mut control, &late)?;
    ensure!(!buyer.is_finished(), "COMMIT before the standby");
    server.set_synchronous_standbys("")?;
    buyer.end()?.1?;
    late.end()?.1?;
    drop(control);
    physical_health(server, "hot", "id")
}

/// Turned off, a transaction is seen when stock PostgreSQL would show it.
#[test]
fn turned_off_it_is_stock() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(no_early_visibility(&server))
}

fn no_early_visibility(server: &Server) -> Result<()> {
    let mut control = local(server)?;
    server.set_synchronous_standbys("nobody")?;
    let mut writer = grouped(server)?;
    writer.batch_execute("SET txn.early_visibility = off")?;
    let writer = Background::run(writer, BUMP)?;
    waits_for_standby(&mut control, &writer)?;
    let seen = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(seen == 0, "a running transaction's {seen} is visible");
    server.set_synchronous_standbys("")?;
    writer.end()?.1?;
    drop(control);
    physical_health(server, "hot", "id")
}
