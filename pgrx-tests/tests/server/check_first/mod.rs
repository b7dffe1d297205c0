//! A foreign key's check that comes before the update of the row to which the key refers: its lock
//! is deferred, and no child without a parent is ever committed.
mod late;
mod queue;
mod removed;

use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, expect_followed, grouped, int, physical_health, sqlstate, start_hot,
};

const CHECK: &str = "INSERT INTO child (hot) VALUES (1)";
const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const REMOVE: &str = "DELETE FROM hot WHERE id = 1";

/// A server on which no row is hot yet. `deadlock_timeout` is never over.
fn start_cold(settings: &[(&str, &str)]) -> Result<(Server, Client)> {
    let settings = [settings, &[("deadlock_timeout", "10min")]].concat();
    let server = start_hot(2, &settings)?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE TABLE child (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                             hot int NOT NULL REFERENCES hot);
         CREATE TABLE other (id int PRIMARY KEY)",
    )?;
    Ok((server, control))
}

/// A server on which an update is expected of whoever checks row 1, which no child refers to.
/// `deadlock_timeout` is never over.
fn start(settings: &[(&str, &str)]) -> Result<(Server, Client)> {
    let (server, mut control) = start_cold(settings)?;
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
                "DO 'BEGIN UPDATE hot SET val = 1 / (val - val) WHERE id = 1; \
                 EXCEPTION WHEN OTHERS THEN END'",
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
            "INSERT INTO child (hot) VALUES (1); SELECT FROM hot WHERE id = 1 FOR SHARE; \
             UPDATE hot SET val = val + 1 WHERE id = 1",
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
