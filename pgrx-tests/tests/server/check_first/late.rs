//! The end of a transaction that has checked a foreign key: the lock that it takes there, and what
//! it must not do there.
use anyhow::{Result, ensure};
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, text,
};

use super::{BUMP, CHECK, REMOVE, after, belong, refer, start, start_cold};

/// A deferred lock waits at the commit for a transaction that has locked the row FOR UPDATE.
#[test]
fn locked_by_another() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let checks = after(&server, &[CHECK])?;
    let mut other = server.connect()?;
    other.batch_execute("BEGIN; SELECT FROM hot WHERE id = 1 FOR UPDATE")?;
    let commit = Background::run(checks, "COMMIT")?;
    commit.wait_until_blocked(&mut control)?;
    other.batch_execute("COMMIT")?;
    let (checks, told) = commit.end()?;
    told?;
    refer(&mut control, 1)?;
    drop((checks, other, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A late lock obeys `statement_timeout`, as the check would.
#[test]
fn a_late_lock_obeys_statement_timeout() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let mut checks = after(&server, &[CHECK])?;
    checks.batch_execute("SET LOCAL statement_timeout = '300ms'")?;
    let mut other = server.connect()?;
    other.batch_execute("BEGIN")?;
    other.batch_execute(REMOVE)?;
    let told = sqlstate(&checks.batch_execute("COMMIT"));
    ensure!(told == "57014", "{told}");
    other.batch_execute("ROLLBACK")?;
    refer(&mut control, 0)?;
    drop((checks, other, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// The end of a transaction reads no catalogs: somebody may have locked them.
#[test]
fn the_end_reads_no_catalogs() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    control.batch_execute("CREATE TABLE lab (id int PRIMARY KEY)")?;
    let mut client = grouped(&server)?;
    for _ in 0..6 {
        client.batch_execute(CHECK)?;
    }
    for end in ["ROLLBACK", "COMMIT"] {
        // This check has locked the row, because no update has followed the last ones.
        let mut checks = after(&server, &[CHECK])?;
        control.batch_execute("SELECT txn.set_table('lab', 'group')")?;
        checks.batch_execute("SELECT FROM lab")?;
        control.batch_execute("BEGIN; LOCK TABLE pg_seclabel")?;
        checks.batch_execute(end)?;
        control.batch_execute("ROLLBACK; SELECT txn.set_table('lab')")?;
    }
    drop((client, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A foreign server commits nothing of a transaction whose late lock is refused.
#[test]
fn nothing_is_committed_elsewhere() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let (host, port) = (server.host().display().to_string(), server.port());
    let user = text(&mut control, "SELECT current_user::text")?;
    let database = text(&mut control, "SELECT current_database()::text")?;
    control.batch_execute(&format!(
        "CREATE EXTENSION postgres_fdw;
         CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{host}', port '{port}', dbname '{database}');
         CREATE USER MAPPING FOR CURRENT_USER SERVER loop OPTIONS (user '{user}');
         CREATE FOREIGN TABLE remote (id int) SERVER loop OPTIONS (table_name 'other')"
    ))?;
    for order in [
        [CHECK, "INSERT INTO remote VALUES (1)"],
        ["INSERT INTO remote VALUES (1)", CHECK],
    ] {
        let mut checks = after(&server, &order)?;
        let mut other = server.connect()?;
        other.batch_execute(REMOVE)?;
        let told = sqlstate(&checks.batch_execute("COMMIT"));
        ensure!(told == "40001", "{told}");
        other.batch_execute("INSERT INTO hot VALUES (1, 0)")?;
        ensure!(
            int(&mut control, "SELECT count(*) FROM other")? == 0,
            "{order:?}"
        );
        refer(&mut control, 0)?;
        drop((checks, other));
    }
    drop(control);
    dog.finish(physical_health(&server, "hot", "id"))
}

/// A check at the commit of a transaction without a block locks at once: other extensions may have
/// committed elsewhere.
#[test]
fn a_deferrable_key_outside_of_a_block() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    control.batch_execute(
        "CREATE TABLE late (hot int REFERENCES hot DEFERRABLE INITIALLY DEFERRED);
         CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql
         AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER z AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION rest();
         SELECT pg_advisory_lock(1)",
    )?;
    let mut looks = server.connect()?;
    let insert = Background::run(grouped(&server)?, "INSERT INTO late VALUES (1)")?;
    insert.wait_until_blocked(&mut looks)?;
    let remove = Background::run(server.connect()?, REMOVE)?;
    remove.wait_until_blocked(&mut looks)?;
    control.batch_execute("SELECT pg_advisory_unlock(1)")?;
    insert.end()?.1?;
    let (_, told) = remove.end()?;
    ensure!(sqlstate(&told) == "23503", "{told:?}");
    drop((looks, control));
    dog.finish(physical_health(&server, "hot", "id"))
}

/// Transactions that have checked a row before it was hot, and now come to update it, tell that a
/// check is followed by an update.
#[test]
fn checks_of_a_row_that_becomes_hot() -> Result<()> {
    let (server, mut control) = start_cold(&[])?;
    let dog = Watchdog::new(&server);
    let checked = || {
        let mut client = grouped(&server)?;
        client.batch_execute("SET txn.hot_threshold = 1")?;
        for statement in ["BEGIN", CHECK] {
            client.batch_execute(statement)?;
        }
        anyhow::Ok(client)
    };
    let mut holder = checked()?;
    let pile = (0..5).map(|_| checked()).collect::<Result<Vec<_>>>()?;
    holder.batch_execute(BUMP)?;
    // It makes the row hot. It waits with the ticket, so that the row does not cool down.
    let mut session = grouped(&server)?;
    session.batch_execute("SET txn.hot_threshold = 1")?;
    let first = Background::run(session, &format!("BEGIN; {BUMP}; {CHECK}; COMMIT"))?;
    first.wait_until_blocked(&mut control)?;
    let mut waiting = vec![first];
    for client in pile {
        let update = Background::run(client, &format!("{BUMP}; COMMIT"))?;
        update.wait_until_blocked(&mut control)?;
        waiting.push(update);
    }
    let mut late = checked()?;
    holder.batch_execute("COMMIT")?;
    for update in waiting {
        update.end()?.1?;
    }
    let followed = int(&mut control, "SELECT followed FROM txn.stats")?;
    let mut leader = after(&server, &[BUMP, CHECK])?;
    late.batch_execute(BUMP)?;
    expect_followed(&mut control, followed + 1)?;
    for client in [&mut leader, &mut late] {
        client.batch_execute("COMMIT")?;
    }
    drop((holder, leader, late, control));
    dog.finish(belong(&server))
}
