//! A foreign key's check that comes before the update of the row to which the key refers: its lock
//! is deferred, and no child without a parent is ever committed.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot, text,
};

const CHECK: &str = "INSERT INTO child (hot) VALUES (1)";
const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const REMOVE: &str = "DELETE FROM hot WHERE id = 1";

/// A server on which an update is expected of whoever checks row 1, which no child refers to.
/// `deadlock_timeout` is never over.
fn start(settings: &[(&str, &str)]) -> Result<(Server, Client)> {
    let settings = [settings, &[("deadlock_timeout", "10min")]].concat();
    let server = start_hot(2, &settings)?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE TABLE child (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                             hot int NOT NULL REFERENCES hot);
         CREATE TABLE other (id int PRIMARY KEY)",
    )?;
    let mut client = grouped(&server)?;
    client.batch_execute(BUMP)?;
    for _ in 0..4 {
        for statement in ["BEGIN", CHECK, BUMP, "COMMIT"] {
            client.batch_execute(statement)?;
        }
    }
    control.batch_execute("DELETE FROM child; UPDATE hot SET val = 0")?;
    Ok((server, control))
}

/// A transaction that has done that.
pub fn after(server: &Server, statements: &[&str]) -> Result<Client> {
    let mut client = grouped(server)?;
    client.batch_execute("BEGIN")?;
    for statement in statements {
        client.batch_execute(statement)?;
    }
    Ok(client)
}

/// Every increment belongs to a child.
fn belong(server: &Server) -> Result<()> {
    let open = int(
        &mut server.connect()?,
        "SELECT sum(val)::int8 - (SELECT count(*) FROM child) FROM hot",
    )?;
    ensure!(open == 0, "{open} increments without a child");
    physical_health(server, "hot", "id")?;
    physical_health(server, "child", "number")
}

/// No child without a parent, and so many children.
fn refer(control: &mut Client, children: i64) -> Result<()> {
    let (all, without) = (
        int(control, "SELECT count(*) FROM child")?,
        int(
            control,
            "SELECT count(*) FROM child WHERE NOT EXISTS (SELECT FROM hot WHERE id = hot)",
        )?,
    );
    ensure!(
        (all, without) == (children, 0),
        "{all} children, {without} without a parent"
    );
    Ok(())
}

#[test]
fn follows() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let followed = int(&mut control, "SELECT followed FROM txn.stats")?;
    let mut leader = after(&server, &[CHECK, BUMP])?;
    let mut second = after(
        &server,
        &[CHECK, CHECK, "DELETE FROM child WHERE number < 0"],
    )?;
    let third = after(&server, &[CHECK, BUMP])?;
    second.batch_execute(BUMP)?;
    expect_followed(&mut control, followed + 2)?;
    leader.batch_execute("COMMIT")?;
    let second = Background::run(second, "UPDATE hot SET val = val + 1 WHERE id = 2; COMMIT")?;
    let third = Background::run(third, "COMMIT")?;
    for background in [second, third] {
        background.end()?.1?;
    }
    drop((leader, control));
    dog.finish(belong(&server))
}

/// A check waits for nobody and nobody for it, beside a leader that goes on, updates again, and
/// ends one way or the other.
#[test]
fn without_an_update() -> Result<()> {
    for end in ["COMMIT", "ROLLBACK"] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut leader = after(&server, &[BUMP])?;
        let mut checks = after(&server, &[CHECK])?;
        leader.batch_execute(BUMP)?;
        checks.batch_execute("SELECT count(*) FROM other; COMMIT")?;
        let mut others = after(&server, &[CHECK])?;
        leader.batch_execute(end)?;
        grouped(&server)?.batch_execute(BUMP)?;
        others.batch_execute("COMMIT")?;
        let val = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
        ensure!(val == if end == "COMMIT" { 3 } else { 1 }, "{val}, {end}");
        refer(&mut control, 2)?;
        drop((leader, checks, others, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// After an update that comes to nothing the lock is taken, or still deferred: others update the
/// row, and none loses a parent.
#[test]
fn an_update_of_nothing() -> Result<()> {
    for (nothing, is_locked) in [
        // It looks for the row, and so locks it.
        (
            &["UPDATE hot SET val = 0 WHERE id = 1 AND val < 0"][..],
            true,
        ),
        (&["SAVEPOINT s", BUMP, "ROLLBACK TO s"], false),
        (
            &[
                "DO 'BEGIN UPDATE hot SET val = 1 / (val - val) WHERE id = 1; EXCEPTION WHEN OTHERS THEN END'",
            ],
            false,
        ),
    ] {
        for removed in if is_locked {
            &[false][..]
        } else {
            &[false, true]
        } {
            let (server, mut control) = start(&[])?;
            let dog = Watchdog::new(&server);
            let mut checks = after(&server, &[CHECK])?;
            for statement in nothing {
                checks.batch_execute(statement)?;
            }
            grouped(&server)?.batch_execute(if *removed { REMOVE } else { BUMP })?;
            let told = sqlstate(&checks.batch_execute("COMMIT"));
            ensure!(
                told == if *removed { "40001" } else { "00000" },
                "{told} after {nothing:?}"
            );
            refer(&mut control, i64::from(!*removed))?;
            drop((checks, control));
            dog.finish(physical_health(&server, "hot", "id"))?;
        }
    }
    Ok(())
}

/// A transaction that removes the row between another's check and commit does not wait, with group
/// lock or without. The child is refused with 40001.
#[test]
fn a_row_that_is_removed() -> Result<()> {
    for way in [REMOVE, "UPDATE hot SET id = 7 WHERE id = 1"] {
        for in_group in [false, true] {
            for ends_first in [false, true] {
                let (server, mut control) = start(&[])?;
                let dog = Watchdog::new(&server);
                let mut checks = after(&server, &[CHECK])?;
                let mut other = if in_group {
                    grouped(&server)?
                } else {
                    server.connect()?
                };
                other.batch_execute("BEGIN")?;
                other.batch_execute(way)?;
                if ends_first {
                    other.batch_execute("COMMIT")?;
                }
                let commit = Background::run(checks, "COMMIT")?;
                if !ends_first {
                    commit.wait_until_blocked(&mut control)?;
                    other.batch_execute("COMMIT")?;
                }
                let told;
                (checks, told) = commit.end()?;
                let told = sqlstate(&told);
                ensure!(told == "40001", "{told} after {way}");
                refer(&mut control, 0)?;
                drop((checks, other, control));
                dog.finish(physical_health(&server, "hot", "id"))?;
            }
        }
    }
    Ok(())
}

/// The row is held from the update on, or from PREPARE TRANSACTION on: whoever removes it waits,
/// and sees the child.
#[test]
fn holds_the_row() -> Result<()> {
    for (holds, ends) in [
        (&[BUMP][..], "COMMIT"),
        (&["PREPARE TRANSACTION 'held'"], "COMMIT PREPARED 'held'"),
        (
            &[BUMP, "PREPARE TRANSACTION 'held'"],
            "COMMIT PREPARED 'held'",
        ),
        // A utility command may remove rows itself.
        (&["CREATE TABLE new (a int)"], "COMMIT"),
        (
            &["SAVEPOINT s", "ALTER TABLE other ADD a int", "RELEASE s"],
            "COMMIT",
        ),
    ] {
        let (server, mut control) = start(&[("max_prepared_transactions", "3")])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        for statement in holds {
            checks.batch_execute(statement)?;
        }
        let other = Background::run(server.connect()?, REMOVE)?;
        other.wait_until_blocked(&mut control)?;
        checks.batch_execute(ends)?;
        let (other, told) = other.end()?;
        let told = sqlstate(&told);
        ensure!(told == "23503", "{told} after {holds:?}");
        refer(&mut control, 1)?;
        drop((checks, other, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// The transaction may remove the row itself, once it has no children.
#[test]
fn its_own_removal() -> Result<()> {
    for statements in [
        &["DELETE FROM child", REMOVE][..],
        &["UPDATE child SET hot = 2", REMOVE],
        &["DELETE FROM child", "UPDATE hot SET id = 7 WHERE id = 1"],
        &["DELETE FROM child", BUMP, REMOVE],
        &["TRUNCATE hot, child"],
        &["DROP TABLE child", REMOVE],
        &[
            "DROP TABLE child, hot",
            "CREATE TABLE hot (id int PRIMARY KEY, val int)",
            "CREATE TABLE child (hot int REFERENCES hot)",
        ],
        &["SAVEPOINT s", "DELETE FROM child", REMOVE, "RELEASE s"],
        &[
            "SAVEPOINT s",
            "SAVEPOINT t",
            "DELETE FROM child",
            BUMP,
            "RELEASE t",
            REMOVE,
            "RELEASE s",
        ],
        &[
            "SET LOCAL txn.group_lock = off",
            "DELETE FROM child",
            REMOVE,
        ],
        &[
            "SELECT set_config('txn.group_lock', 'off', true)",
            "DELETE FROM child",
            REMOVE,
        ],
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        for statement in statements {
            checks.batch_execute(statement)?;
        }
        let told = sqlstate(&checks.batch_execute("COMMIT"));
        ensure!(told == "00000", "{told} after {statements:?}");
        let rows = int(&mut control, "SELECT count(*) FROM hot WHERE id = 1")?;
        ensure!(rows == 0, "the row is there after {statements:?}");
        drop((checks, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// What a savepoint has taken back: the removal by the transaction itself, and with it the lock; or
/// the check.
#[test]
fn savepoints() -> Result<()> {
    for (statements, expected) in [
        (
            &["SAVEPOINT s", "DELETE FROM child", REMOVE, "ROLLBACK TO s"][..],
            "40001",
        ),
        (
            &[
                "SAVEPOINT s",
                "LOCK TABLE other",
                "CREATE TABLE a ()",
                "ROLLBACK TO s",
            ],
            "40001",
        ),
        (&["SAVEPOINT s", BUMP, "ROLLBACK TO s"], "40001"),
        (&["ROLLBACK TO before"], "00000"),
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &["SAVEPOINT before", CHECK])?;
        for statement in statements {
            checks.batch_execute(statement)?;
        }
        server.connect()?.batch_execute(REMOVE)?;
        let told = sqlstate(&checks.batch_execute("COMMIT"));
        ensure!(told == expected, "{told} after {statements:?}");
        refer(&mut control, 0)?;
        drop((checks, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// A row that has been removed and inserted again is as good.
#[test]
fn a_row_that_is_back() -> Result<()> {
    for updates in [false, true] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        let mut other = server.connect()?;
        other.batch_execute(REMOVE)?;
        other.batch_execute("INSERT INTO hot VALUES (1, 0)")?;
        if updates {
            checks.batch_execute(BUMP)?;
        }
        checks.batch_execute("COMMIT")?;
        refer(&mut control, 1)?;
        drop((checks, other, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

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

/// A transaction that has checked a row does not depend on the row's leader; once it has updated
/// the row, it does.
#[test]
fn beside_a_leader_that_rolls_back() -> Result<()> {
    let (server, control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let mut leader = after(&server, &[BUMP])?;
    let mut checks = after(&server, &[CHECK])?;
    leader.batch_execute("ROLLBACK")?;
    checks.batch_execute(BUMP)?;
    checks.batch_execute("COMMIT")?;
    leader.batch_execute("BEGIN")?;
    leader.batch_execute(BUMP)?;
    let mut follows = after(&server, &[CHECK, BUMP])?;
    leader.batch_execute("ROLLBACK")?;
    let told = sqlstate(&follows.batch_execute("COMMIT"));
    drop((leader, checks, follows, control));
    ensure!(told == "40001", "{told}");
    dog.finish(belong(&server))
}

/// A follower's check of another hot row, whose update follows, too.
#[test]
fn a_second_row() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let (check_two, bump_two) = (
        "INSERT INTO child (hot) VALUES (2)",
        "UPDATE hot SET val = val + 1 WHERE id = 2",
    );
    let mut client = grouped(&server)?;
    for _ in 0..5 {
        for statement in ["BEGIN", check_two, bump_two, "COMMIT"] {
            client.batch_execute(statement)?;
        }
    }
    let both = [CHECK, BUMP, check_two, bump_two];
    let followed = int(&mut control, "SELECT followed FROM txn.stats")?;
    let mut leader = after(&server, &both)?;
    let second = after(&server, &both)?;
    expect_followed(&mut control, followed + 2)?;
    let second = Background::run(second, "COMMIT")?;
    leader.batch_execute("COMMIT")?;
    second.end()?.1?;
    drop((leader, client, control));
    dog.finish(belong(&server))
}

/// A trigger that updates the row comes after the check, also where INSERT is a transaction of its
/// own.
#[test]
fn a_trigger_updates() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    control.batch_execute(
        "CREATE FUNCTION bump() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN UPDATE hot SET val = val + 1 WHERE id = new.hot; RETURN NULL; END';
         CREATE TRIGGER bump AFTER INSERT ON child FOR EACH ROW EXECUTE FUNCTION bump()",
    )?;
    let tickets = int(&mut control, "SELECT tickets FROM txn.stats")?;
    let mut client = grouped(&server)?;
    for _ in 0..5 {
        client.batch_execute(CHECK)?;
    }
    let tickets = int(&mut control, "SELECT tickets FROM txn.stats")? - tickets;
    ensure!(tickets == 5, "{tickets} tickets");
    drop((client, control));
    dog.finish(belong(&server))
}

/// Foreign keys to other columns than the key by which hot rows are known lock the row at once.
#[test]
fn another_key() -> Result<()> {
    for (columns, changed) in [("code", "code = 'z'"), ("id, code", "code = 'z'")] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let (child, values) = match columns {
            "code" => ("code text", "'x'"),
            _ => ("id int, code text", "1, 'x'"),
        };
        control.batch_execute(&format!(
            "ALTER TABLE hot ADD code text UNIQUE, ADD UNIQUE (id, code);
             UPDATE hot SET code = 'x' WHERE id = 1;
             CREATE TABLE coded ({child}, FOREIGN KEY ({columns}) REFERENCES hot ({columns}))"
        ))?;
        grouped(&server)?.batch_execute(BUMP)?;
        for updates in [false, true] {
            let mut checks = after(&server, &[&format!("INSERT INTO coded VALUES ({values})")])?;
            if updates {
                checks.batch_execute(BUMP)?;
            }
            let other = Background::run(
                server.connect()?,
                &format!("UPDATE hot SET {changed} WHERE id = 1"),
            )?;
            other.wait_until_blocked(&mut control)?;
            checks.batch_execute("COMMIT")?;
            let (other, told) = other.end()?;
            let told = sqlstate(&told);
            ensure!(told == "23503", "{told}, ({columns}), updates: {updates}");
            drop((checks, other));
        }
        drop(control);
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// An update that finds no row, because another transaction has removed it, is refused, also if the
/// row is back then.
#[test]
fn an_update_that_finds_none() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    let mut other = server.connect()?;
    let checks = after(&server, &[CHECK])?;
    other.batch_execute("BEGIN")?;
    other.batch_execute(REMOVE)?;
    other.batch_execute("INSERT INTO hot VALUES (1, 100)")?;
    let update = Background::run(checks, BUMP)?;
    update.wait_until_blocked(&mut control)?;
    other.batch_execute("COMMIT")?;
    let (checks, told) = update.end()?;
    ensure!(sqlstate(&told) == "40001", "{told:?}");
    drop(checks);
    let mut checks = after(&server, &[CHECK])?;
    other.batch_execute("UPDATE hot SET id = 13 WHERE id = 1")?;
    let told = sqlstate(&checks.batch_execute(BUMP));
    ensure!(told == "40001", "{told}");
    drop((checks, other));
    refer(&mut control, 0)?;
    drop(control);
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

/// The transaction changes the key itself, after its own update; or updates the row in a way that
/// is not noted, in its last command.
#[test]
fn its_own_changes() -> Result<()> {
    for statements in [
        &[
            "BEGIN",
            CHECK,
            BUMP,
            "DELETE FROM child",
            "UPDATE hot SET id = 77 WHERE id = 1",
            "COMMIT",
        ][..],
        &[
            "INSERT INTO child (hot) VALUES (1); SELECT FROM hot WHERE id = 1 FOR SHARE; UPDATE hot SET val = val + 1 WHERE id = 1",
        ],
        &["INSERT INTO child (hot) VALUES (1); UPDATE hot SET val = val + 1 WHERE id <= 2"],
        &[
            "BEGIN",
            CHECK,
            "WITH d AS (DELETE FROM other) UPDATE hot SET val = val + 1 WHERE id = 1",
            "COMMIT",
        ],
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut client = grouped(&server)?;
        for statement in statements {
            let told = sqlstate(&client.batch_execute(statement));
            ensure!(told == "00000", "{told}: {statement}");
        }
        let without =
            "SELECT count(*) FROM child WHERE NOT EXISTS (SELECT FROM hot WHERE id = hot)";
        ensure!(int(&mut control, without)? == 0);
        drop((client, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
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

/// Rows of the table that other transactions remove are none of the check's business.
#[test]
fn other_rows_that_are_removed() -> Result<()> {
    for (before, statement) in [
        (&[CHECK][..], "UPDATE hot SET val = val + 1 WHERE id >= 1"),
        (&[CHECK], "UPDATE hot SET val = val + 1 WHERE id IN (2, 3)"),
        (&[CHECK], "SELECT FROM hot WHERE id IN (2, 3) FOR UPDATE"),
        (
            &["SAVEPOINT s", CHECK, BUMP],
            "UPDATE hot SET val = val + 1 WHERE id IN (2, 3)",
        ),
        (
            &[CHECK, "SAVEPOINT s", "CREATE TEMP TABLE new ()"],
            "SELECT FROM hot WHERE id IN (2, 3) FOR UPDATE",
        ),
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        control.batch_execute("INSERT INTO hot VALUES (3, 0)")?;
        let checks = after(&server, before)?;
        let mut other = server.connect()?;
        other.batch_execute("BEGIN; DELETE FROM hot WHERE id = 2")?;
        let waits = Background::run(checks, statement)?;
        waits.wait_until_blocked(&mut control)?;
        other.batch_execute("COMMIT")?;
        let (mut checks, told) = waits.end()?;
        ensure!(
            sqlstate(&told) == "00000",
            "{told:?}: {statement} after {before:?}"
        );
        checks.batch_execute("COMMIT")?;
        refer(&mut control, 1)?;
        drop((checks, other, control));
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// Whatever way the transaction comes to the row that another one has removed: it does not go on as
/// if the row had never been there.
#[test]
fn a_removed_row_is_not_taken_for_none() -> Result<()> {
    for statement in [
        "WITH u AS (UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val) SELECT count(*) FROM u",
        "INSERT INTO hot VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET val = hot.val + 5",
        "INSERT INTO hot VALUES (1, 5)",
        "MERGE INTO hot USING (VALUES (1)) s (n) ON id = n
            WHEN MATCHED THEN UPDATE SET val = val + 1 WHEN NOT MATCHED THEN INSERT VALUES (n, 1)",
    ] {
        let (server, mut control) = start(&[])?;
        let dog = Watchdog::new(&server);
        let mut checks = after(&server, &[CHECK])?;
        server.connect()?.batch_execute(REMOVE)?;
        let told = sqlstate(&checks.batch_execute(statement));
        ensure!(told == "40001", "{told}: {statement}");
        drop(checks);
        refer(&mut control, 0)?;
        drop(control);
        dog.finish(physical_health(&server, "hot", "id"))?;
    }
    Ok(())
}

/// A check at the commit of a transaction without a block locks at once: other extensions may have
/// committed elsewhere.
#[test]
fn a_deferrable_key_outside_of_a_block() -> Result<()> {
    let (server, mut control) = start(&[])?;
    let dog = Watchdog::new(&server);
    control.batch_execute(
        "CREATE TABLE late (hot int REFERENCES hot DEFERRABLE INITIALLY DEFERRED);
         CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
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
