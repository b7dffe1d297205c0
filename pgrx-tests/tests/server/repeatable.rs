//! REPEATABLE READ and SERIALIZABLE transactions on a hot row: who comes to it first queues, and is
//! not refused.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::error::SqlState;
use txn_server_tests::{Load, grouped, int, join, physical_health, start_hot, wait_until};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val";
const LEVELS: [&str; 3] = ["REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"];

fn sessions(settings: &'static str) -> impl Fn(usize) -> String + Sync {
    move |_| format!("SET txn.group_lock = on; SET txn.hot_threshold = 0; {settings}")
}

/// Transactions of the first `levels` of `LEVELS`, one statement each or with another one after it.
/// Nobody is refused, and nothing is lost.
fn nobody_is_refused(server: &Server, levels: usize, settings: &'static str) -> Result<()> {
    server.connect()?.batch_execute(
        "CREATE TABLE note (client int PRIMARY KEY, val bigint NOT NULL);
         INSERT INTO note SELECT n, 0 FROM generate_series(0, 23) n",
    )?;
    // The row is hot before two come to it at once.
    grouped(server)?.batch_execute("UPDATE hot SET val = val WHERE id = 1")?;
    let load = Load::new(server, 24, 40).session(sessions(settings));
    let tally = load.moves("ticket_waits").run(|worker| {
        let level = LEVELS[worker.number % levels];
        if worker.chance(30) {
            worker.simple(&format!(
                "SET default_transaction_isolation = '{}'",
                level.to_lowercase()
            ))?;
            return worker.committing(1, |worker| worker.query(BUMP, &[]));
        }
        worker.simple(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        if worker.chance(20) {
            worker.query("SELECT val FROM hot WHERE id = 1 FOR UPDATE", &[])?;
        }
        worker.query(BUMP, &[])?;
        if worker.chance(50) {
            let note = "UPDATE note SET val = val + 1 WHERE client = $1";
            worker.execute(note, &[&(worker.number as i32)])?;
        }
        match worker.chance(10) {
            true => worker.rollback(),
            false => worker.commit(1),
        }
    })?;
    // READ COMMITTED sessions follow each other, and a leader may roll back.
    let allowed: &[&str] = if levels == 3 { &["40001"] } else { &[] };
    tally.only(allowed)?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot WHERE id = 1")?)?;
    drop(client);
    physical_health(server, "hot", "id")
}

#[test]
fn repeatable_read() -> Result<()> {
    nobody_is_refused(&start_hot(2, &[])?, 1, "")
}

#[test]
fn serializable_too() -> Result<()> {
    nobody_is_refused(&start_hot(2, &[])?, 2, "")
}

#[test]
fn beside_followers() -> Result<()> {
    nobody_is_refused(&start_hot(2, &[])?, 3, "")
}

#[test]
fn validated() -> Result<()> {
    let server = start_hot(2, &[("default_table_access_method", "txn_heap")])?;
    nobody_is_refused(&server, 1, "SET txn.range_occ = on")
}

/// Runs `before` in a transaction that may not get another snapshot after it, lets somebody else
/// write, and updates the hot row.
fn keeps_its_snapshot(before: &str) -> Result<()> {
    is_refused_behind(1, &start_hot(2, &[])?, before)
}

/// Fails unless a transaction is refused that has run `before` and comes to the hot row after so
/// many updates of somebody else.
pub fn is_refused_behind(updates: i64, server: &Server, before: &str) -> Result<()> {
    let mut other = grouped(server)?;
    let mut client = grouped(server)?;
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    client.batch_execute(before)?;
    (0..updates).try_for_each(|_| other.batch_execute(BUMP))?;
    let refused = client.execute(BUMP, &[]).err();
    let code = refused.as_ref().and_then(|error| error.code());
    ensure!(
        code == Some(&SqlState::T_R_SERIALIZATION_FAILURE),
        "after {before}: {refused:?}"
    );
    Ok(())
}

#[test]
fn who_has_read_keeps_the_snapshot() -> Result<()> {
    keeps_its_snapshot("SELECT 1")
}

#[test]
fn who_has_written_keeps_the_snapshot() -> Result<()> {
    keeps_its_snapshot("UPDATE hot SET val = 7 WHERE id = 2")
}

#[test]
fn who_has_called_keeps_the_snapshot() -> Result<()> {
    keeps_its_snapshot("DO 'BEGIN PERFORM 1; END'")
}

#[test]
fn who_has_an_open_cursor_keeps_the_snapshot() -> Result<()> {
    keeps_its_snapshot("DECLARE c CURSOR FOR SELECT * FROM hot")
}

/// Hotlock was off when the snapshot was used.
#[test]
fn who_has_read_before_keeps_the_snapshot() -> Result<()> {
    keeps_its_snapshot("SET LOCAL txn.group_lock = off; SELECT 1; SET LOCAL txn.group_lock = on")
}

/// In psql, which knows the functions for large objects already: `before`, and then in a
/// transaction of that level `look`, somebody else's update of the row, and its own.
fn by_fast_path(server: &Server, before: &str, level: &str, look: &str) -> Result<Option<String>> {
    let script = format!(
        "SET txn.group_lock = on;
SET txn.hot_threshold = 0;
\\lo_export 4711 /dev/null
\\set ON_ERROR_STOP off
{before}
\\set ON_ERROR_STOP on
BEGIN ISOLATION LEVEL {level};
{look}
\\! psql -XAtqc '{BUMP}' > /dev/null
{BUMP};
COMMIT;"
    );
    Ok(server.psql(&script).err().map(|error| error.to_string()))
}

/// psql reads and writes large objects by the fast path, which calls no hook of a statement.
#[test]
fn who_has_used_a_large_object_keeps_the_snapshot() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.psql("SELECT lo_from_bytea(4711, 'abc')")?;
    let failed = "DO 'BEGIN PERFORM 1 / 0; END';";
    for level in &LEVELS[..2] {
        for before in ["", failed] {
            let unused = by_fast_path(&server, before, level, "")?;
            ensure!(unused.is_none(), "{level}, {before}: {unused:?}");
            for look in ["\\lo_export 4711 /dev/null", "\\lo_import /dev/null"] {
                let refused = by_fast_path(&server, before, level, look)?;
                ensure!(
                    refused
                        .as_ref()
                        .is_some_and(|text| text.contains("could not serialize")),
                    "{level}, {before}, {look}: {refused:?}"
                );
            }
        }
    }
    Ok(())
}

/// A plan that was made before the wait does not know what others have defined meanwhile: it keeps
/// the snapshot that does not, either.
#[test]
fn an_old_plan_keeps_the_snapshot() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE parted (n int) PARTITION BY LIST (n);
         CREATE TABLE one PARTITION OF parted FOR VALUES IN (1);
         INSERT INTO parted VALUES (1)",
    )?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("BEGIN")?;
    leader.execute(BUMP, &[])?;
    let mut client = grouped(&server)?;
    let count = "UPDATE hot SET val = (SELECT count(*) FROM parted) WHERE id = 1";
    let waiting = std::thread::spawn(move || {
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        client.batch_execute(count)
    });
    let mut other = server.connect()?;
    wait_until(&mut other, "SELECT count(*) = 1 FROM txn.waits")?;
    other.batch_execute(
        "CREATE TABLE two (n int);
         INSERT INTO two VALUES (2);
         ALTER TABLE parted ATTACH PARTITION two FOR VALUES IN (2)",
    )?;
    leader.batch_execute("COMMIT")?;
    let refused = join(waiting, "the update")?.err();
    let code = refused.as_ref().and_then(|error| error.code());
    ensure!(
        code == Some(&SqlState::T_R_SERIALIZATION_FAILURE),
        "{refused:?}"
    );
    Ok(())
}

/// A transaction that would be refused anyway is refused at once, and does not wait for the row.
#[test]
fn nobody_waits_for_what_is_forbidden() -> Result<()> {
    let server = start_hot(2, &[])?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("CREATE ROLE nobody")?;
    leader.batch_execute("BEGIN")?;
    leader.execute(BUMP, &[])?;
    let mut client = grouped(&server)?;
    for (begin, code) in [
        ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "25006"),
        (
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL ROLE nobody",
            "42501",
        ),
        ("BEGIN; SET LOCAL ROLE nobody", "42501"),
    ] {
        client.batch_execute("SET statement_timeout = '40s'")?;
        client.batch_execute(begin)?;
        let refused = client.batch_execute(BUMP).err();
        let found = refused.as_ref().and_then(|error| error.code());
        ensure!(
            found.is_some_and(|found| found.code() == code),
            "{begin}: {refused:?}"
        );
        client.batch_execute("ROLLBACK")?;
    }
    Ok(())
}
