//! Logical decoding: what it says is what the tables hold, in the order of the updates.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{Watchdog, int, physical_health, start_hot, wait_until};

use super::{BUMP, Mix, one_of};

fn start() -> Result<Server> {
    let server = start_hot(2, &[("wal_level", "logical")])?;
    server.connect()?.batch_execute(
        "CREATE TABLE journal (val bigint PRIMARY KEY);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO journal VALUES (NEW.val); RETURN NULL; END $$;
             CREATE TRIGGER note AFTER UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION note()",
    )?;
    Ok(server)
}

fn load(mix: Mix) -> Result<()> {
    mix.value("SELECT val FROM hot WHERE id = 1").run(|worker| {
        one_of(
            worker,
            &[
                BUMP,
                "INSERT INTO hot VALUES (1, 1)
                     ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
            ],
        )
    })
}

/// The stream has the values 1, 2, 3 ... of the row, and with each its journal entry.
fn streamed(identity: &str) -> Result<()> {
    let server = start()?;
    let mut client = server.connect()?;
    client.batch_execute(&format!("ALTER TABLE hot REPLICA IDENTITY {identity}"))?;
    client
        .query(
            "SELECT pg_create_logical_replication_slot('s', 'test_decoding')",
            &[],
        )
        .context("no slot")?;
    let mix = Mix::new(&server);
    // WAL has the whole old row then, which nobody has before its writer ends.
    load(if identity == "FULL" {
        mix.in_turn()
    } else {
        mix
    })?;
    let changes = client.query(
        "SELECT data FROM pg_logical_slot_get_changes('s', NULL, NULL, 'include-xids', '0')",
        &[],
    )?;
    let number = |data: &str, from: &str| -> Option<i64> {
        let at = data.rfind(from)? + from.len();
        data[at..].split_whitespace().next()?.parse().ok()
    };
    let (mut updates, mut entries) = (Vec::new(), Vec::new());
    for row in &changes {
        let data: &str = row.get(0);
        if data.starts_with("table public.hot: UPDATE:") {
            updates.extend(number(data, "val[bigint]:"));
        } else if data.starts_with("table public.journal: INSERT:") {
            entries.extend(number(data, "val[bigint]:"));
        }
    }
    let val = int(&mut client, "SELECT val FROM hot WHERE id = 1")?;
    let expected: Vec<i64> = (1..=val).collect();
    ensure!(updates == expected, "updates of {val}: {updates:?}");
    ensure!(entries == expected, "entries of {val}: {entries:?}");
    client.batch_execute("SELECT pg_drop_replication_slot('s')")?;
    drop(client);
    physical_health(&server, "hot", "id")
}

#[test]
fn stream_by_key() -> Result<()> {
    streamed("DEFAULT")
}

#[test]
fn stream_with_the_old_row() -> Result<()> {
    streamed("FULL")
}

/// A subscription in another database applies it.
#[test]
fn subscription() -> Result<()> {
    let server = start()?;
    let mut client = server.connect()?;
    client.batch_execute("CREATE PUBLICATION p FOR TABLE hot, journal")?;
    client.batch_execute("CREATE DATABASE copy")?;
    client.query(
        "SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
        &[],
    )?;
    let mut copy = server.connect_as("postgres", "copy")?;
    copy.batch_execute(
        "CREATE TABLE hot (id int PRIMARY KEY, val bigint NOT NULL);
         INSERT INTO hot VALUES (1, 0), (2, 0);
         CREATE TABLE journal (val bigint PRIMARY KEY);
         ALTER DATABASE copy SET txn.group_lock = on;
         ALTER DATABASE copy SET txn.hot_threshold = 0",
    )?;
    copy.batch_execute(&format!(
        "CREATE SUBSCRIPTION sub CONNECTION 'host={} port={} dbname=postgres user=postgres'
             PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)",
        server.host().display(),
        server.port()
    ))?;
    load(Mix::new(&server))?;
    let val = int(&mut client, "SELECT val FROM hot WHERE id = 1")?;
    let dog = Watchdog::new(&server);
    let arrived = wait_until(
        &mut copy,
        &format!("SELECT val = {val} FROM hot WHERE id = 1"),
    );
    dog.finish(arrived)?;
    let entries = int(&mut copy, "SELECT count(*) FROM journal")?;
    ensure!(entries == val, "{entries} entries, but {val} updates");
    copy.batch_execute("DROP SUBSCRIPTION sub")?;
    drop((copy, client));
    physical_health(&server, "hot", "id")
}
