//! Early visibility: with a synchronous standby that does not answer, a row is handed on before its
//! transaction is replicated, but nobody who asks for synchronous commit is told of it.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, grouped, int, physical_health, pid, start_hot, wait_until,
};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

fn standbys(client: &mut Client, names: &str) -> Result<()> {
    client.batch_execute(&format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
    ))?;
    client.batch_execute("SELECT pg_reload_conf()")?;
    wait_until(
        client,
        &format!("SELECT current_setting('synchronous_standby_names') = '{names}'"),
    )
}

/// A session whose own commits wait for nobody.
fn local(server: &Server) -> Result<Client> {
    let mut client = server.connect()?;
    client.batch_execute("SET synchronous_commit = local")?;
    Ok(client)
}

#[test]
fn unreplicated_values_are_not_read() -> Result<()> {
    let server = start_hot(2, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(read_guard(&server, grouped))
}

/// The same with the settings of all sessions off, and the table's on.
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

fn read_guard(server: &Server, writer: fn(&Server) -> Result<Client>) -> Result<()> {
    let mut control = local(server)?;
    control.batch_execute(
        "CREATE TABLE elsewhere AS SELECT 5 AS val;
         CREATE FUNCTION peek() RETURNS bigint LANGUAGE plpgsql STABLE AS
         $$ BEGIN RETURN (SELECT val FROM hot WHERE id = 1); END $$",
    )?;
    standbys(&mut control, "nobody")?;
    let first = Background::run(writer(server)?, BUMP)?;
    let second = Background::run(writer(server)?, BUMP)?;
    // Both are committed for those who do not ask for more, and neither client has been told.
    wait_until(&mut control, "SELECT val = 2 FROM hot WHERE id = 1")?;
    ensure!(
        !first.is_finished() && !second.is_finished(),
        "COMMIT before the standby"
    );

    let mut readers = Vec::new();
    for (isolation, read) in [
        ("read committed", "SELECT val FROM hot WHERE id = 1"),
        ("read committed", "SELECT peek()"),
        ("serializable", "SELECT val FROM hot WHERE id = 1"),
    ] {
        let mut reader = server.connect()?;
        reader.batch_execute(&format!(
            "SET default_transaction_isolation = '{isolation}'"
        ))?;
        let reader_pid = pid(&mut reader)?;
        let reader = std::thread::spawn(move || int(&mut reader, read));
        let waits = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = {reader_pid} \
             AND state = 'active' AND wait_event_type NOT IN ('Client', 'LWLock', 'IO')"
        );
        wait_until(&mut control, &waits)?;
        ensure!(
            !reader.is_finished(),
            "the reader was told a value that is not replicated"
        );
        readers.push(reader);
    }
    // Readers of other tables do not wait.
    let other = int(&mut server.connect()?, "SELECT val FROM elsewhere")?;
    ensure!(other == 5, "another table has {other}");

    standbys(&mut control, "")?;
    first.end()?.1?;
    second.end()?.1?;
    for reader in readers {
        let read = reader.join().expect("the reader does not panic")?;
        ensure!(read == 2, "the reader got {read}");
    }
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
    standbys(&mut control, "nobody")?;
    let mut writer = grouped(server)?;
    writer.batch_execute("SET txn.early_visibility = off")?;
    let writer = Background::run(writer, BUMP)?;
    let waits = format!(
        "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {}",
        writer.pid
    );
    wait_until(&mut control, &waits)?;
    let seen = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(seen == 0, "a running transaction's {seen} is visible");
    standbys(&mut control, "")?;
    writer.end()?.1?;
    drop(control);
    physical_health(server, "hot", "id")
}

/// A cancelled wait for the standby is a warning to a client whose transaction is committed.
#[test]
fn a_cancelled_standby_wait_is_no_error() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    dog.finish(cancelled_standby_wait(&server))
}

fn cancelled_standby_wait(server: &Server) -> Result<()> {
    let mut control = local(server)?;
    standbys(&mut control, "nobody")?;
    let writer = Background::run(grouped(server)?, BUMP)?;
    wait_until(&mut control, "SELECT val = 1 FROM hot WHERE id = 1")?;
    writer.wait_until_blocked(&mut control)?;
    control.query("SELECT pg_cancel_backend($1)", &[&writer.pid])?;
    writer.end()?.1?;
    let val = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(val == 1, "the value is {val}");
    standbys(&mut control, "")?;
    drop(control);
    physical_health(server, "hot", "id")
}
