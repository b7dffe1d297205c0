//! Foreign keys' checks whose lock is deferred, where the row is removed and comes back: the lock
//! is looked for where the statement looks, so that no update gets lost without a word.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Background, Watchdog, grouped, int, physical_health, sqlstate, start_hot};

use crate::check_first::after;

const CHECK: &str = "INSERT INTO child VALUES (1)";
const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const REMOVE: &str = "DELETE FROM hot WHERE id = 1";
const PUT_BACK: &str = "INSERT INTO hot (id, val) VALUES (1, 50)";

fn start() -> Result<(Server, Client)> {
    let server = start_hot(2, &[("deadlock_timeout", "10min")])?;
    let mut control = server.connect()?;
    control.batch_execute("CREATE TABLE child (hot int NOT NULL REFERENCES hot)")?;
    let mut client = grouped(&server)?;
    client.batch_execute(BUMP)?;
    client.batch_execute("UPDATE hot SET val = val + 1 WHERE id = 2")?;
    Ok((server, control))
}

fn finish<const N: usize>(
    server: &Server,
    dog: Watchdog,
    mut control: Client,
    clients: [Client; N],
) -> Result<()> {
    drop(clients);
    let children = int(&mut control, "SELECT count(*) FROM child")?;
    ensure!(children == 0, "{children} children");
    drop(control);
    dog.finish(physical_health(server, "hot", "id"))
}

/// The row that the check has found gets another key, and another row gets its.
#[test]
fn another_row_with_its_key() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut other = server.connect()?;
    for update in [BUMP, "UPDATE hot SET val = val + 1 WHERE id < 2"] {
        let checks = after(&server, &[CHECK])?;
        other.batch_execute("BEGIN")?;
        other.batch_execute("UPDATE hot SET id = 100 WHERE id = 1")?;
        other.batch_execute(PUT_BACK)?;
        let update = Background::run(checks, update)?;
        update.wait_until_blocked(&mut control)?;
        other.batch_execute("COMMIT")?;
        let (mut checks, told) = update.end()?;
        let told = sqlstate(&told);
        ensure!(told == "40001", "{told}");
        checks.batch_execute("ROLLBACK")?;
        other.batch_execute("DELETE FROM hot WHERE id = 100")?;
    }
    finish(&server, dog, control, [other])
}

/// The lock of another row is awaited before a statement that has its snapshot. Meanwhile the row
/// is removed and comes back.
#[test]
fn a_statement_that_has_waited_for_a_lock() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let (mut first, mut second) = (server.connect()?, server.connect()?);
    for update in [
        "WITH u AS (UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING 1) SELECT * FROM u",
        "MERGE INTO hot USING (VALUES (1)) s (n) ON id = n WHEN MATCHED THEN UPDATE SET val = val + 1",
    ] {
        let checks = after(&server, &["INSERT INTO child VALUES (2)", CHECK])?;
        first.batch_execute("BEGIN")?;
        first.batch_execute("DELETE FROM hot WHERE id = 2")?;
        let update = Background::run(checks, update)?;
        update.wait_until_blocked(&mut control)?;
        second.batch_execute(REMOVE)?;
        second.batch_execute(PUT_BACK)?;
        first.batch_execute("ROLLBACK")?;
        let (mut checks, told) = update.end()?;
        let told = sqlstate(&told);
        ensure!(told == "40001", "{told}");
        checks.batch_execute("ROLLBACK")?;
    }
    finish(&server, dog, control, [first, second])
}

/// A second check of the row that finds none is to be tried again, as the first one's lock is. So
/// is COPY of a row with its key.
#[test]
fn a_row_that_is_removed_between() -> Result<()> {
    let (server, control) = start()?;
    let dog = Watchdog::new(&server);
    let mut other = server.connect()?;
    let mut checks = after(&server, &[CHECK])?;
    other.batch_execute(REMOVE)?;
    let told = sqlstate(&checks.batch_execute(CHECK));
    ensure!(told == "40001", "{told}");
    checks.batch_execute("ROLLBACK")?;
    other.batch_execute(PUT_BACK)?;
    checks.batch_execute("BEGIN")?;
    checks.batch_execute(CHECK)?;
    other.batch_execute(REMOVE)?;
    let copy = "COPY hot (id, val) FROM PROGRAM 'echo 1,5' WITH (FORMAT csv)";
    let told = sqlstate(&checks.batch_execute(copy));
    ensure!(told == "40001", "{told}");
    checks.batch_execute("ROLLBACK")?;
    finish(&server, dog, control, [checks, other])
}

/// Where nobody follows, no lock is deferred: there is no reason to retry that stock does not have.
#[test]
fn queue_lock_defers_nothing() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    let mut checks = server.connect()?;
    checks.batch_execute("SET txn.queue_lock = on")?;
    checks.batch_execute("BEGIN")?;
    checks.batch_execute(CHECK)?;
    let remove = Background::run(server.connect()?, REMOVE)?;
    remove.wait_until_blocked(&mut control)?;
    checks.batch_execute(BUMP)?;
    checks.batch_execute("COMMIT")?;
    let (other, told) = remove.end()?;
    let told = sqlstate(&told);
    ensure!(told == "23503", "{told}");
    control.batch_execute("DELETE FROM child")?;
    finish(&server, dog, control, [checks, other])
}

/// A key that is stored out of line is gone with its row.
#[test]
fn a_key_out_of_line() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    control.batch_execute(
        "CREATE TABLE named (name text PRIMARY KEY, val int DEFAULT 0);
         ALTER TABLE named ALTER name SET STORAGE EXTERNAL;
         CREATE TABLE of_named (name text REFERENCES named);
         INSERT INTO named SELECT string_agg(md5(g::text), '') FROM generate_series(1, 80) g;",
    )?;
    grouped(&server)?.batch_execute("UPDATE named SET val = 1")?;
    let mut older = server.connect()?;
    older.batch_execute("BEGIN")?;
    older.batch_execute("CREATE TABLE t ()")?;
    let mut checks = after(&server, &["INSERT INTO of_named SELECT name FROM named"])?;
    older.batch_execute("DELETE FROM named")?;
    older.batch_execute("COMMIT")?;
    control.batch_execute("VACUUM named")?;
    let told = sqlstate(&checks.batch_execute("COMMIT"));
    ensure!(told == "40001", "{told}");
    finish(&server, dog, control, [older, checks])
}

/// More partitions than a statement can watch: it takes the locks first, and removes what it likes.
#[test]
fn more_partitions_than_are_watched() -> Result<()> {
    let (server, mut control) = start()?;
    let dog = Watchdog::new(&server);
    control.batch_execute(
        "CREATE TABLE parted (id int PRIMARY KEY, val int DEFAULT 0) PARTITION BY RANGE (id);
         DO $$ BEGIN FOR n IN 1..140 LOOP
             EXECUTE format('CREATE TABLE part_%s PARTITION OF parted FOR VALUES FROM (%s) TO (%s)', n, n, n + 1);
         END LOOP; END $$;
         INSERT INTO parted SELECT generate_series(1, 140);
         CREATE TABLE of_part (id int REFERENCES part_140 ON DELETE CASCADE);",
    )?;
    grouped(&server)?.batch_execute("UPDATE part_140 SET val = 1 WHERE id = 140")?;
    let mut checks = after(&server, &["INSERT INTO of_part VALUES (140)"])?;
    checks
        .batch_execute("DELETE FROM parted WHERE val >= 0")
        .context("its own removal")?;
    checks.batch_execute("COMMIT")?;
    let left = int(&mut control, "SELECT count(*) FROM of_part")?;
    ensure!(left == 0, "{left}");
    finish(&server, dog, control, [checks])
}
