//! Transactions that update rows in the same order never deadlock in PostgreSQL. They must not with
//! followers either, who could be at the next row before their predecessors.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::{Client, Error};
use rand::Rng;
use txn_server_tests::{
    Background, Load, Watchdog, Worker, grouped, int, physical_health, start_hot,
};

/// Transactions in one order, of which none may be refused. Each is what `transaction` does between
/// BEGIN and COMMIT; it adds as much to `hot` as it returns.
fn are_never_refused<F>(server: &Server, settings: &'static str, transaction: F) -> Result<()>
where
    F: Fn(&mut Worker) -> Result<i64, Error> + Sync,
{
    let tally = Load::new(server, 24, 40)
        .session(move |_| format!("SET txn.group_lock = on; {settings}"))
        .moves("followed")
        .run(|worker| {
            worker.begin()?;
            let effects = transaction(worker)?;
            worker.commit(effects)
        })?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val)::bigint FROM hot")?)?;
    drop(client);
    physical_health(server, "hot", "id")
}

/// Each transaction updates `changes` of `rows` rows, in ascending order.
fn ascending(rows: i32, changes: i32, settings: &'static str) -> Result<()> {
    let server = start_hot(rows as u32, &[])?;
    contend(
        &server,
        "UPDATE hot SET val = val WHERE id = 1",
        "UPDATE hot SET val = val WHERE id = 1",
    )?;
    are_never_refused(&server, settings, |worker| {
        let mut id = 0;
        for left in (0..changes).rev() {
            id = worker.rng.random_range(id + 1..=rows - left);
            worker.execute("UPDATE hot SET val = val + 1 WHERE id = $1", &[&id])?;
        }
        Ok(i64::from(changes))
    })
}

/// Lets a member of a hot row wait for somebody else, so that the table is known as one where that
/// happens.
fn contend(server: &Server, held: &str, wanted: &str) -> Result<()> {
    let mut control = server.connect()?;
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(held)?;
    let mut waiter = grouped(server)?;
    waiter.batch_execute("SET txn.hot_threshold = 1000; BEGIN")?;
    let waiter = Background::run(waiter, wanted)?;
    waiter.wait_until_blocked(&mut control)?;
    holder.batch_execute("COMMIT")?;
    waiter.end()?.0.batch_execute("ROLLBACK")?;
    Ok(())
}

#[test]
fn every_row_hot() -> Result<()> {
    ascending(9, 3, "SET txn.hot_threshold = 0")
}

#[test]
fn every_row_hot_and_followers_read_at_once() -> Result<()> {
    ascending(
        9,
        3,
        "SET txn.hot_threshold = 0; SET txn.follower_reads = immediate",
    )
}

/// Rows become hot and cool down, and most are not hot.
#[test]
fn some_rows_hot() -> Result<()> {
    ascending(9, 3, "SET txn.hot_threshold = 4")
}

#[test]
fn some_rows_hot_and_followers_read_at_once() -> Result<()> {
    ascending(
        9,
        3,
        "SET txn.hot_threshold = 4; SET txn.follower_reads = immediate",
    )
}

/// More hot rows than a transaction can be a member of: the others are locked the ordinary way.
#[test]
fn twelve_hot_rows_in_a_transaction() -> Result<()> {
    ascending(14, 12, "SET txn.hot_threshold = 0")
}

/// Statements of several rows look at their own versions again: their followers leave MultiXacts.
#[test]
fn several_rows_in_a_statement() -> Result<()> {
    let server = start_hot(7, &[])?;
    let settings =
        "SET txn.hot_threshold = 0; SET enable_seqscan = off; SET enable_bitmapscan = off";
    are_never_refused(&server, settings, |worker| {
        let first: i32 = worker.rng.random_range(1..=3);
        let three = "UPDATE hot SET val = val + 1 WHERE id IN ($1, $1 + 1, $1 + 2)";
        worker.execute(three, &[&first])?;
        worker.execute(
            "UPDATE hot SET val = val + 1 WHERE id IN ($1 + 3, $1 + 4)",
            &[&first],
        )?;
        Ok(5)
    })
}

/// A foreign key's check must not be ahead of a predecessor that is going to lock or delete the
/// row.
#[test]
fn checks_of_foreign_keys() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE parent (id int PRIMARY KEY, val int NOT NULL);
         CREATE TABLE child (id serial PRIMARY KEY, parent int NOT NULL REFERENCES parent);
         INSERT INTO parent SELECT i, 0 FROM generate_series(1, 5) i",
    )?;
    let lock = "SELECT FROM parent WHERE id = 1 FOR UPDATE";
    contend(&server, "INSERT INTO child (parent) VALUES (1)", lock)?;
    are_never_refused(&server, "SET txn.hot_threshold = 0", |worker| {
        let parent: i32 = worker.rng.random_range(1..=5);
        worker.execute("UPDATE hot SET val = val + 1 WHERE id = 1", &[])?;
        if worker.chance(50) {
            worker.execute("INSERT INTO child (parent) VALUES ($1)", &[&parent])?;
        } else {
            worker.query(
                "SELECT val FROM parent WHERE id = $1 FOR UPDATE",
                &[&parent],
            )?;
            worker.execute("UPDATE parent SET val = val + 1 WHERE id = $1", &[&parent])?;
        }
        Ok(1)
    })
}

/// Nor the insert of a value that a predecessor is going to insert.
#[test]
fn inserts_of_the_same_value() -> Result<()> {
    let server = start_hot(1, &[])?;
    server
        .connect()?
        .batch_execute("CREATE TABLE day (id int PRIMARY KEY, n int NOT NULL)")?;
    let insert = "INSERT INTO day VALUES (0, 0)";
    let bump = "UPDATE hot SET val = val WHERE id = 1";
    contend(
        &server,
        insert,
        &format!("SET LOCAL txn.hot_threshold = 0; {bump}; {insert}"),
    )?;
    are_never_refused(&server, "SET txn.hot_threshold = 0", |worker| {
        let day = worker.attempt as i32 + 1;
        worker.execute("UPDATE hot SET val = val + 1 WHERE id = 1", &[])?;
        let insert = if worker.chance(50) {
            "INSERT INTO day VALUES ($1, 1) ON CONFLICT DO NOTHING"
        } else {
            "INSERT INTO day VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = day.n + 1"
        };
        worker.execute(insert, &[&day])?;
        Ok(1)
    })
}

const ONE: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const TWO: &str = "UPDATE hot SET val = val + 1 WHERE id = 2";

/// A transaction has updated row 1, and another one has followed it there.
struct Followed {
    server: Server,
    control: Client,
    first: Client,
    second: Client,
}

impl Followed {
    fn start() -> Result<Self> {
        Self::after("")
    }

    /// After `setup`.
    fn after(setup: &str) -> Result<Self> {
        let server = start_hot(2, &[])?;
        let mut control = server.connect()?;
        control.batch_execute(setup)?;
        grouped(&server)?.batch_execute("UPDATE hot SET val = val WHERE id = 2")?;
        let begin = || -> Result<Client> {
            let mut client = grouped(&server)?;
            client.batch_execute("BEGIN")?;
            client.batch_execute(ONE)?;
            Ok(client)
        };
        let (first, second) = (begin()?, begin()?);
        Ok(Followed {
            server,
            control,
            first,
            second,
        })
    }

    fn finish(mut self, second: Client) -> Result<()> {
        for mut client in [self.first, second] {
            client.batch_execute("COMMIT")?;
        }
        for id in [1, 2] {
            let val = int(
                &mut self.control,
                &format!("SELECT val FROM hot WHERE id = {id}"),
            )?;
            ensure!(val == 2, "row {id}: {val}");
        }
        drop((self.control, self.second));
        physical_health(&self.server, "hot", "id")
    }
}

/// A follower goes on to the next row when its predecessor has updated that, not when it has ended.
#[test]
fn behind_the_predecessors_update() -> Result<()> {
    let mut scene = Followed::start()?;
    let dog = Watchdog::new(&scene.server);
    let second = Background::run(scene.second, TWO)?;
    second.wait_until_blocked(&mut scene.control)?;
    scene.first.batch_execute(TWO)?;
    let (second, told) = second.end()?;
    told?;
    scene.second = scene.server.connect()?;
    dog.finish(scene.finish(second))
}

/// What a predecessor has updated in a savepoint it may roll back: the follower waits on.
#[test]
fn behind_a_predecessors_savepoint() -> Result<()> {
    let mut scene = Followed::start()?;
    let dog = Watchdog::new(&scene.server);
    let second = Background::run(scene.second, TWO)?;
    second.wait_until_blocked(&mut scene.control)?;
    scene.first.batch_execute("SAVEPOINT s")?;
    scene.first.batch_execute(TWO)?;
    scene.first.batch_execute("ROLLBACK TO s")?;
    scene.first.batch_execute(TWO)?;
    scene.first.batch_execute("COMMIT")?;
    let (second, told) = second.end()?;
    told?;
    scene.first = scene.server.connect()?;
    scene.second = scene.server.connect()?;
    dog.finish(scene.finish(second))
}

/// A predecessor that has updated the next row in a savepoint is waited for to its end, by an
/// UPDATE and by other statements.
#[test]
fn behind_a_version_in_a_savepoint() -> Result<()> {
    let upsert = "INSERT INTO hot VALUES (2, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1";
    for statement in [TWO, upsert, "SELECT val FROM hot WHERE id = 2 FOR UPDATE"] {
        let mut scene = Followed::start()?;
        let dog = Watchdog::new(&scene.server);
        scene.first.batch_execute("SAVEPOINT s")?;
        // A version that is updated again is closed to followers.
        scene.first.batch_execute(TWO)?;
        scene.first.batch_execute(TWO)?;
        let second = Background::run(scene.second, statement)?;
        second.wait_until_blocked(&mut scene.control)?;
        scene.first.batch_execute("ROLLBACK TO s")?;
        scene.first.batch_execute(TWO)?;
        scene.first.batch_execute("COMMIT")?;
        let (mut second, told) = second.end()?;
        told.with_context(|| statement.to_owned())?;
        if statement.starts_with("SELECT") {
            second.batch_execute(TWO)?;
        }
        scene.first = scene.server.connect()?;
        scene.second = scene.server.connect()?;
        dog.finish(scene.finish(second))?;
    }
    Ok(())
}

/// A follower that must not queue at the next row comes to it in heap's way. Its predecessor has
/// the ticket there, and has not updated yet.
#[test]
fn without_a_place_in_the_queue() -> Result<()> {
    let mut scene = Followed::after(
        "CREATE TABLE cold (id int PRIMARY KEY, val int);
         INSERT INTO cold SELECT id, 0 FROM generate_series(1, 100) id;
         CREATE FUNCTION slow() RETURNS bool LANGUAGE plpgsql AS
         $$BEGIN PERFORM count(*) FROM pg_class; RETURN true; END$$",
    )?;
    let dog = Watchdog::new(&scene.server);
    let mut holder = scene.server.connect()?;
    holder.batch_execute("BEGIN; UPDATE hot SET val = val WHERE id = 2")?;
    // More rows than a session remembers one by one.
    scene.second.batch_execute("SET txn.hot_threshold = 1000")?;
    for id in 1..=66 {
        scene
            .second
            .batch_execute(&format!("UPDATE cold SET val = 1 WHERE id = {id}"))?;
    }
    let second = Background::run(scene.second, TWO)?;
    second.wait_until_blocked(&mut scene.control)?;
    let first = Background::run(scene.first, &format!("{TWO} AND slow()"))?;
    first.wait_until_blocked(&mut scene.control)?;
    holder.batch_execute("COMMIT")?;
    let (mut first, told) = first.end()?;
    told?;
    first.batch_execute("COMMIT")?;
    let (second, told) = second.end()?;
    told?;
    scene.first = scene.server.connect()?;
    scene.second = scene.server.connect()?;
    drop((holder, first));
    dog.finish(scene.finish(second))
}

/// Nobody waits for a row that all take after a hot one, as each lets its predecessors end before.
/// It becomes hot even so.
#[test]
fn rows_after_hot_ones_become_hot() -> Result<()> {
    let server = start_hot(2, &[])?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    let begin = || -> Result<Client> {
        let mut client = grouped(&server)?;
        client.batch_execute("SET txn.hot_threshold = 1; BEGIN")?;
        Ok(client)
    };
    let (mut before, first) = (begin()?, begin()?);
    before.batch_execute(ONE)?;
    let first = Background::run(first, ONE)?;
    first.wait_until_blocked(&mut control)?;
    before.batch_execute("COMMIT")?;
    let (mut first, told) = first.end()?;
    told?;
    let (mut second, mut third) = (begin()?, begin()?);
    second.batch_execute(ONE)?;
    third.batch_execute(ONE)?;
    let second = Background::run(second, TWO)?;
    second.wait_until_blocked(&mut control)?;
    let third = Background::run(third, TWO)?;
    third.wait_until_blocked(&mut control)?;
    first.batch_execute("COMMIT")?;
    let (mut second, told) = second.end()?;
    told?;
    second.batch_execute("COMMIT")?;
    let (mut third, told) = third.end()?;
    told?;
    let hot = int(
        &mut control,
        "SELECT count(*) FROM txn.hotspots WHERE key LIKE '%2%'",
    )?;
    ensure!(hot == 1, "row 2 is not hot");
    third.batch_execute("COMMIT")?;
    drop((before, first, second, third, control));
    dog.finish(physical_health(&server, "hot", "id"))
}
