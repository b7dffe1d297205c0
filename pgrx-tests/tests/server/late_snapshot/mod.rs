//! REPEATABLE READ transactions whose first statement builds on a version that their snapshot does
//! not show: they follow as at READ COMMITTED, and what they read afterwards is of one moment,
//! after their predecessors' commits.
use anyhow::{Context, Result, anyhow, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Load, expect_followed, grouped, int, physical_health, pid, sqlstate, start_hot,
    wait_until,
};

mod old_plans;

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";

/// A server with four hot rows, and `seen (n)`, whose only row is 0.
fn start() -> Result<Server> {
    let server = start_hot(4, &[("max_prepared_transactions", "4")])?;
    prepare(&server, 4)?;
    Ok(server)
}

fn prepare(server: &Server, rows: i32) -> Result<()> {
    let mut client = grouped(server)?;
    client.batch_execute(
        "CREATE TABLE seen (n bigint NOT NULL); INSERT INTO seen VALUES (0);
         CREATE TABLE told (n bigint)",
    )?;
    // The rows are hot before anybody comes to them.
    for id in 1..=rows {
        client.batch_execute(&format!("UPDATE hot SET val = val WHERE id = {id}"))?;
    }
    Ok(())
}

/// A session that has updated the hot row in a transaction of that kind.
fn updated(server: &Server, begin: &str) -> Result<Client> {
    let mut client = grouped(server)?;
    client.batch_execute(begin)?;
    client.batch_execute(BUMP)?;
    Ok(client)
}

/// All sessions update the row first, and some go on. Of 100 transactions `singles` are one
/// statement. Nobody is refused but for predecessors that roll back.
fn load(level: &str, singles: u32, rollbacks: u32, moves: &'static str) -> Result<()> {
    let server = start()?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE TABLE note (client int PRIMARY KEY, val bigint NOT NULL);
         INSERT INTO note SELECT n, 0 FROM generate_series(0, 23) n",
    )?;
    let settings = format!(
        "SET txn.group_lock = on; SET txn.hot_threshold = 0;
         SET default_transaction_isolation = '{level}'"
    );
    let load = Load::new(&server, 24, 60).session(move |_| settings.clone());
    let tally = load.moves(moves).run(|worker| {
        if worker.chance(singles) {
            return worker.committing(1, |worker| worker.execute(BUMP, &[]));
        }
        worker.begin()?;
        worker.execute(BUMP, &[])?;
        if worker.chance(30) {
            // The row as this transaction has it, and a balance that all keep.
            worker.query("SELECT val FROM hot WHERE id = 1", &[])?;
        }
        if worker.chance(30) {
            let note = "UPDATE note SET val = val + 1 WHERE client = $1";
            worker.execute(note, &[&(worker.number as i32)])?;
        }
        match worker.chance(rollbacks) {
            true => worker.rollback(),
            false => worker.commit(1),
        }
    })?;
    let allowed: &[&str] = if rollbacks > 0 { &["40001"] } else { &[] };
    tally.only(allowed)?;
    tally.explains(int(&mut control, "SELECT val FROM hot WHERE id = 1")?)?;
    drop(control);
    physical_health(&server, "hot", "id")
}

#[test]
fn nobody_is_refused() -> Result<()> {
    load("repeatable read", 20, 0, "followed")
}

#[test]
fn single_statements_are_combined() -> Result<()> {
    load("repeatable read", 80, 0, "combined")
}

#[test]
fn only_those_behind_a_rollback_are() -> Result<()> {
    load("repeatable read", 20, 10, "followed")
}

/// SSI orders transactions by their snapshots: at SERIALIZABLE nobody follows.
#[test]
fn serializable_transactions_wait() -> Result<()> {
    let server = start()?;
    let mut leader = updated(&server, "BEGIN")?;
    let follower = Background::run(
        grouped(&server)?,
        &format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {BUMP}"),
    )?;
    follower.wait_until_blocked(&mut server.connect()?)?;
    leader.batch_execute("COMMIT")?;
    let (mut client, result) = follower.end()?;
    result?;
    client.batch_execute("COMMIT")?;
    Ok(())
}

/// What a follower runs after its update, and what reads there with the transaction's snapshot. The
/// statement puts what it has read into `told`.
const READERS: &[(&str, &str)] = &[
    ("a query", "INSERT INTO told SELECT n FROM seen"),
    (
        "a block",
        "DO 'BEGIN INSERT INTO told SELECT n FROM seen; END'",
    ),
    ("a procedure", "CALL tell()"),
    ("EXECUTE", "EXECUTE tell"),
    (
        "COPY",
        "COPY (SELECT n FROM seen) TO '/tmp/txn_told'; COPY told FROM '/tmp/txn_told'",
    ),
    (
        "a cursor",
        "DECLARE c CURSOR FOR SELECT n FROM seen; MOVE c; CLOSE c; INSERT INTO told TABLE seen",
    ),
    (
        "a savepoint",
        "SAVEPOINT a; INSERT INTO told SELECT n FROM seen; RELEASE a",
    ),
    (
        "a savepoint that is rolled back",
        "SAVEPOINT a; SELECT n FROM seen; ROLLBACK TO a; INSERT INTO told SELECT n FROM seen",
    ),
    (
        "an error that is caught",
        "DO 'BEGIN PERFORM 1 / 0; EXCEPTION WHEN OTHERS THEN NULL; END';
         INSERT INTO told SELECT n FROM seen",
    ),
    (
        "a table of its own",
        "CREATE TABLE own AS TABLE seen; INSERT INTO told TABLE own",
    ),
    ("a function in a plan", "SELECT tells() WHERE tells() > 0"),
];

/// The follower's next command waits for the leader, and reads what others have committed before
/// the leader. All that it reads later is of the same moment.
#[test]
fn what_follows_reads_after_the_predecessors() -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    other.batch_execute(
        "CREATE PROCEDURE tell() LANGUAGE sql AS 'INSERT INTO told SELECT n FROM seen';
         CREATE FUNCTION tells() RETURNS bigint LANGUAGE plpgsql AS
             'BEGIN INSERT INTO told SELECT n FROM seen; RETURN 1; END'",
    )?;
    for (what, reader) in READERS {
        follows_and_reads(&server, reader).context(*what)?;
        other.batch_execute("DROP TABLE IF EXISTS own")?;
    }
    drop(other);
    physical_health(&server, "hot", "id")
}

/// `follows_and_reads` with a query, on a server with two rows.
pub fn follows_and_queries(server: &Server) -> Result<()> {
    prepare(server, 2)?;
    follows_and_reads(server, READERS[0].1)
}

fn follows_and_reads(server: &Server, reader: &str) -> Result<()> {
    let mut other = server.connect()?;
    other.batch_execute("UPDATE seen SET n = 0; TRUNCATE told")?;
    let before = int(&mut other, "SELECT val FROM hot WHERE id = 1")?;
    let mut leader = updated(server, "BEGIN")?;
    let mut follower = grouped(server)?;
    let own = pid(&mut follower)?;
    follower.batch_execute("PREPARE tell AS INSERT INTO told SELECT n FROM seen")?;
    follower.batch_execute(BEGIN)?;
    follower.batch_execute(BUMP)?;
    other.batch_execute("UPDATE seen SET n = 1")?;
    let reading = Background::call(follower, own, {
        let reader = reader.to_owned();
        move |follower| follower.batch_execute(&reader)
    });
    reading.wait_until_blocked(&mut other)?;
    other.batch_execute("UPDATE seen SET n = 2")?;
    leader.batch_execute("COMMIT")?;
    let (mut follower, result) = reading.end()?;
    result?;
    other.batch_execute("UPDATE seen SET n = 3")?;
    ensure!(
        int(&mut follower, "SELECT n FROM seen")? == 2,
        "another moment"
    );
    let told = int(&mut follower, "SELECT min(n) FROM told")?;
    ensure!(told == 2, "told {told}");
    let val = int(
        &mut follower,
        "SELECT sum(val)::bigint FROM hot WHERE id = 1",
    )?;
    ensure!(val == before + 2, "its own row is {val} after {before}");
    follower.batch_execute("COMMIT")?;
    Ok(())
}

/// In the extended protocol a statement is planned, and its arguments are bound, before it starts.
#[test]
fn a_bound_statement_reads_after_the_predecessors() -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    let mut leader = updated(&server, "BEGIN")?;
    let mut follower = grouped(&server)?;
    let read = follower.prepare("SELECT n FROM seen WHERE n >= $1")?;
    follower.batch_execute(BEGIN)?;
    ensure!(follower.execute("UPDATE hot SET val = val + $1 WHERE id = 1", &[&5_i64])? == 1);
    other.batch_execute("UPDATE seen SET n = 1")?;
    leader.batch_execute("COMMIT")?;
    let n: i64 = follower.query_one(&read, &[&0_i64])?.get(0);
    ensure!(n == 1, "read {n}");
    follower.batch_execute("COMMIT")?;
    expect_followed(&mut other, 1)
}

/// psql reads large objects by the fast path, which calls no hook of a statement.
#[test]
fn a_large_object_is_read_after_the_predecessors() -> Result<()> {
    let server = start()?;
    server.psql("SELECT lo_from_bytea(4711, 'old')")?;
    let mut other = server.connect()?;
    let mut leader = updated(&server, "BEGIN")?;
    leader.batch_execute("SELECT lo_put(4711, 0, 'new')")?;
    let script = format!(
        "SET txn.group_lock = on; SET txn.hot_threshold = 0;
\\lo_export 4711 /dev/null
{BEGIN};
{BUMP};
\\lo_export 4711 /tmp/txn_large_object
\\! cat /tmp/txn_large_object
COMMIT;"
    );
    let told = std::thread::scope(|scope| {
        let reader = scope.spawn(|| server.psql(&script));
        wait_until(
            &mut other,
            "SELECT count(*) = 1 FROM txn.waits WHERE reason = 'read'",
        )?;
        leader.batch_execute("COMMIT")?;
        reader
            .join()
            .map_err(|_| anyhow!("psql's thread has panicked"))?
    })?;
    ensure!(told.contains("new"), "{told}");
    Ok(())
}

/// The follower has read nothing but the row: it can commit as soon as its predecessor has.
#[test]
fn a_rollback_ahead_refuses() -> Result<()> {
    let server = start()?;
    let next = [
        "COMMIT",
        "SELECT n FROM seen",
        "LOCK TABLE seen",
        "PREPARE TRANSACTION 'p'",
    ];
    // Each pair has a row of its own: one that was refused lets it go back to waiting.
    for (n, after) in next.iter().enumerate() {
        let bump = format!("UPDATE hot SET val = val + 1 WHERE id = {}", n + 1);
        let mut leader = grouped(&server)?;
        leader.batch_execute(&format!("BEGIN; {bump}"))?;
        let mut follower = grouped(&server)?;
        follower.batch_execute(&format!("{BEGIN}; {bump}"))?;
        leader.batch_execute("ROLLBACK")?;
        let told = sqlstate(&follower.batch_execute(after));
        ensure!(told == "40001", "{after}: {told}");
        follower.batch_execute("ROLLBACK")?;
    }
    let mut client = server.connect()?;
    ensure!(int(&mut client, "SELECT sum(val)::bigint FROM hot")? == 0);
    Ok(())
}

/// REPEATABLE READ transactions lead as well, and keep their snapshot if it shows the row that they
/// have built on.
#[test]
fn a_leader_keeps_its_snapshot() -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    let mut leader = updated(&server, BEGIN)?;
    other.batch_execute("UPDATE seen SET n = 1")?;
    let mut follower = updated(&server, BEGIN)?;
    expect_followed(&mut other, 1)?;
    ensure!(int(&mut leader, "SELECT n FROM seen")? == 0);
    leader.batch_execute("COMMIT")?;
    other.batch_execute("UPDATE seen SET n = 2")?;
    ensure!(int(&mut follower, "SELECT n FROM seen")? == 2);
    follower.batch_execute("PREPARE TRANSACTION 'p'")?;
    other.batch_execute("COMMIT PREPARED 'p'")?;
    ensure!(int(&mut other, "SELECT val FROM hot WHERE id = 1")? == 2);
    Ok(())
}

/// The row's last version does not meet the statement's condition: nothing is updated, and the
/// transaction reads what has made it so.
#[test]
fn a_condition_is_asked_of_the_last_version() -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    other.batch_execute("UPDATE hot SET val = 1 WHERE id = 1")?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("BEGIN; UPDATE hot SET val = val - 1 WHERE id = 1 AND val > 0")?;
    let take = format!("{BEGIN}; UPDATE hot SET val = val - 1 WHERE id = 1 AND val > 0");
    let follower = Background::run(grouped(&server)?, &take)?;
    follower.wait_until_blocked(&mut other)?;
    // What comes next may not change the row before the follower's snapshot shows it.
    let next = Background::run(
        grouped(&server)?,
        "UPDATE hot SET val = val + 10 WHERE id = 1",
    )?;
    next.wait_until_blocked(&mut other)?;
    leader.batch_execute("COMMIT")?;
    let (mut follower, taken) = follower.end()?;
    taken?;
    next.wait_until_blocked(&mut other)?;
    ensure!(int(&mut follower, "SELECT val FROM hot WHERE id = 1")? == 0);
    follower.batch_execute("COMMIT")?;
    let (next, done) = next.end()?;
    done?;
    ensure!(int(&mut other, "SELECT val FROM hot WHERE id = 1")? == 10);
    drop((leader, follower, other, next));
    physical_health(&server, "hot", "id")
}

/// What another session, without group lock, does to the row, and what the transaction is told. The
/// transaction has the ticket meanwhile, and has not come to the row yet.
const MEANWHILE: &[(&str, &str)] = &[
    ("UPDATE hot SET val = 10 WHERE id = 1", "00000"),
    (
        "UPDATE hot SET val = 10 WHERE id = 1; UPDATE hot SET val = 11 WHERE id = 1",
        "00000",
    ),
    (
        "DELETE FROM hot WHERE id = 1; INSERT INTO hot VALUES (1, 10)",
        "40001",
    ),
    (
        "UPDATE hot SET id = 7 WHERE id = 1; INSERT INTO hot VALUES (1, 10)",
        "40001",
    ),
];

#[test]
fn a_change_that_nobody_queued_for_is_built_on() -> Result<()> {
    for (change, wanted) in MEANWHILE {
        meanwhile(change, wanted).context(*change)?;
    }
    Ok(())
}

fn meanwhile(change: &str, wanted: &str) -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    grouped(&server)?.batch_execute(BUMP)?;
    other.batch_execute("SELECT pg_advisory_lock(hashtext('txn.ticket_taken'))")?;
    let mut client = grouped(&server)?;
    client.batch_execute("SET txn.stop_at = 'ticket_taken'")?;
    let update = Background::run(client, &format!("{BEGIN}; {BUMP}"))?;
    update.wait_until_blocked(&mut other)?;
    other.batch_execute(&format!("BEGIN; UPDATE seen SET n = 1; {change}; COMMIT"))?;
    other.batch_execute("SELECT pg_advisory_unlock_all()")?;
    let (mut client, result) = update.end()?;
    let told = sqlstate(&result);
    ensure!(told == wanted, "told {told}");
    if wanted == "00000" {
        let val = int(&mut other, "SELECT val FROM hot WHERE id = 1")?;
        ensure!(int(&mut client, "SELECT n FROM seen")? == 1);
        ensure!(int(&mut client, "SELECT val FROM hot WHERE id = 1")? == val + 1);
        client.batch_execute("COMMIT")?;
    } else {
        client.batch_execute("ROLLBACK")?;
    }
    drop((client, other));
    physical_health(&server, "hot", "id")
}

/// A statement of which each step is measured, and tables whose triggers or CHECKs call functions,
/// are the executor's own. These transactions wait as at SERIALIZABLE, and are not refused. Their
/// functions read with the snapshot that they have then.
const NOT_SIMPLE: [(&str, &str); 4] = [
    ("measured", "hot"),
    ("", "after_row"),
    ("", "after_statement"),
    ("", "checked"),
];

#[test]
fn what_is_not_simple_waits() -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    other.batch_execute(
        "CREATE TABLE after_row (id int PRIMARY KEY, val bigint NOT NULL);
         CREATE TABLE after_statement (LIKE after_row INCLUDING ALL);
         CREATE FUNCTION noted(bigint) RETURNS bool LANGUAGE plpgsql AS
             'BEGIN INSERT INTO told SELECT n FROM seen; RETURN true; END';
         CREATE TABLE checked (LIKE after_row INCLUDING ALL, CHECK (noted(val)));
         INSERT INTO after_row VALUES (1, 0);
         INSERT INTO after_statement VALUES (1, 0);
         INSERT INTO checked VALUES (1, 0);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO told SELECT n FROM seen; RETURN NULL; END';
         CREATE TRIGGER note AFTER UPDATE ON after_row
             FOR EACH ROW EXECUTE FUNCTION note();
         CREATE TRIGGER note AFTER UPDATE ON after_statement
             FOR EACH STATEMENT EXECUTE FUNCTION note()",
    )?;
    for (settings, table) in NOT_SIMPLE {
        other.batch_execute("UPDATE seen SET n = 0; TRUNCATE told")?;
        let measured = match settings {
            "measured" => {
                "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;
                 SET auto_explain.log_analyze = on"
            }
            _ => "",
        };
        let bump = format!("UPDATE {table} SET val = val + 1 WHERE id = 1");
        let mut leader = grouped(&server)?;
        leader.batch_execute(&bump)?;
        leader.batch_execute(&format!("BEGIN; {bump}; UPDATE seen SET n = 1"))?;
        let mut client = grouped(&server)?;
        client.batch_execute(measured)?;
        let update = Background::run(client, &format!("{BEGIN}; {bump}"))?;
        update.wait_until_blocked(&mut other)?;
        leader.batch_execute("COMMIT")?;
        let (mut client, result) = update.end()?;
        result.with_context(|| format!("{settings} {table}"))?;
        let told = int(
            &mut client,
            "SELECT coalesce(min(n), 1) FROM told WHERE xmin = pg_current_xact_id()::xid",
        )?;
        ensure!(told == 1, "{table}: told {told}");
        client.batch_execute("COMMIT")?;
    }
    Ok(())
}
