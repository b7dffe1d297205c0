//! Reads beside running predecessors, validated before the commit: who misses what has been written
//! meanwhile does not commit.

use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Load, expect_followed, grouped, int, physical_health, pid, sqlstate, start_hot,
    text,
};

pub const AT_ONCE: (&str, &str) = ("txn.follower_reads_backoff", "0");
pub const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
pub const READ: &str = "SELECT price FROM item";

/// A server with hot rows and a table to read, and sessions for it.
pub fn start(settings: &[(&str, &str)]) -> Result<Server> {
    let settings = [&[("max_prepared_transactions", "64")], settings].concat();
    let server = start_hot(2, &settings)?;
    add_item(&server)?;
    Ok(server)
}

fn add_item(server: &Server) -> Result<()> {
    let item = "CREATE TABLE item (price int NOT NULL); INSERT INTO item VALUES (1)";
    Ok(server.connect()?.batch_execute(item)?)
}

/// The first reader of a table waits, and has it watched.
pub fn watch_item(server: &Server) -> Result<()> {
    let (mut leader, follower) = pair(server, BUMP)?;
    let follower = Background::run(follower, READ)?;
    follower.wait_until_blocked(&mut server.connect()?)?;
    leader.batch_execute("COMMIT")?;
    let (mut follower, result) = follower.end()?;
    result?;
    Ok(follower.batch_execute("COMMIT")?)
}

/// A transaction that has begun with those statements.
fn begun(server: &Server, statements: &str) -> Result<Client> {
    let mut client = grouped(server)?;
    client.batch_execute(&format!("BEGIN; {statements}"))?;
    Ok(client)
}

/// Two transactions that have updated the hot row, one on top of the other.
pub fn pair(server: &Server, leader: &str) -> Result<(Client, Client)> {
    let leader = begun(server, leader)?;
    let before = int(&mut server.connect()?, "SELECT followed FROM txn.stats")?;
    let follower = begun(server, BUMP)?;
    expect_followed(&mut server.connect()?, before + 1)?;
    Ok((leader, follower))
}

/// Commits the follower, which waits for `end` of the leader: what its client is told. `|` stands
/// between messages.
pub fn told(server: &Server, follower: Client, leader: &mut Client, end: &str) -> Result<String> {
    let background = Background::run(follower, "COMMIT")?;
    background.wait_until_blocked(&mut server.connect()?)?;
    for message in end.split('|') {
        leader.batch_execute(message)?;
    }
    Ok(sqlstate(&background.end()?.1))
}

/// What a follower that reads is told at its commit: the leader begins with `before`, and ends with
/// `after` the read.
fn outcome(server: &Server, before: &str, after: &str) -> Result<String> {
    let (mut leader, mut follower) = pair(server, before)?;
    let price: i32 = follower.query_one(READ, &[])?.get(0);
    ensure!(price == 1, "a price of {price}");
    told(server, follower, &mut leader, after)
}

/// A follower reads what its predecessor writes after that.
pub fn a_late_write_refuses(server: &Server) -> Result<()> {
    add_item(server)?;
    watch_item(server)?;
    let told = outcome(server, BUMP, "UPDATE item SET price = 2; COMMIT")?;
    ensure!(told == "40001", "the reader was told {told}");
    Ok(())
}

#[test]
fn who_misses_a_write_of_a_predecessor_is_refused() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let write = "UPDATE item SET price = 1";
    for (before, after, wanted) in [
        (BUMP.to_owned(), "COMMIT".to_owned(), "00000"),
        (format!("{write}; {BUMP}"), "COMMIT".into(), "40001"),
        (format!("{BUMP}; {write}"), "COMMIT".into(), "40001"),
        (BUMP.into(), format!("{write}; COMMIT"), "40001"),
        (
            BUMP.into(),
            format!("SAVEPOINT s; {write}; RELEASE s; COMMIT"),
            "40001",
        ),
        (
            BUMP.into(),
            format!("SAVEPOINT s; {write}; ROLLBACK TO s; COMMIT"),
            "00000",
        ),
        (
            BUMP.into(),
            format!("DO $$ BEGIN {write}; END $$; COMMIT"),
            "40001",
        ),
        (
            BUMP.into(),
            "SELECT * FROM item FOR UPDATE; COMMIT".into(),
            "00000",
        ),
        (
            format!("{write}; {BUMP}"),
            "PREPARE TRANSACTION 'p'|COMMIT PREPARED 'p'".into(),
            "40001",
        ),
    ] {
        let found = outcome(&server, &before, &after)?;
        ensure!(found == wanted, "{before}, {after}: {found}");
    }
    let (validated, refused) = ("validated_reads", "refused_reads");
    let mut client = server.connect()?;
    for (counter, wanted) in [(validated, 9), (refused, 6)] {
        let count = int(&mut client, &format!("SELECT {counter} FROM txn.stats"))?;
        ensure!(count == wanted, "{counter}: {count}");
    }
    Ok(())
}

/// Somebody who has nothing to do with the hot row writes the table after the reader's snapshot.
/// The predecessor may have seen that, so the reader must not miss it.
#[test]
fn who_misses_a_write_of_anybody_is_refused() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let write = "UPDATE item SET price = 1";
    for (writes, wanted) in [
        (write.to_owned(), "40001"),
        (
            format!("BEGIN ISOLATION LEVEL SERIALIZABLE; {write}; COMMIT"),
            "40001",
        ),
        (format!("BEGIN; {write}; PREPARE TRANSACTION 'p'"), "40001"),
        (format!("BEGIN; {write}; ROLLBACK"), "00000"),
        (
            format!("BEGIN; SAVEPOINT s; {write}; ROLLBACK TO s; COMMIT"),
            "00000",
        ),
        ("UPDATE hot SET val = val + 1 WHERE id = 2".into(), "00000"),
        ("GRANT SELECT ON item TO PUBLIC".into(), "40001"),
        // It could hide one of the same name, as far as is known.
        ("CREATE TABLE other (price int)".into(), "40001"),
        ("CREATE TEMP TABLE other (price int)".into(), "00000"),
        ("COMMENT ON TABLE hot IS 'rows'".into(), "00000"),
        (
            "CREATE TABLE more (price int NOT NULL); INSERT INTO more VALUES (1);
             ALTER TABLE more INHERIT item"
                .into(),
            "40001",
        ),
    ] {
        let (mut leader, mut follower) = pair(&server, BUMP)?;
        follower.batch_execute(READ)?;
        server.connect()?.batch_execute(&writes)?;
        let found = told(&server, follower, &mut leader, "COMMIT")?;
        ensure!(found == wanted, "{writes}: {found}");
        if writes.contains("PREPARE") {
            // A reader that comes while the writer is prepared waits.
            let (mut leader, follower) = pair(&server, BUMP)?;
            let follower = Background::run(follower, READ)?;
            follower.wait_until_blocked(&mut server.connect()?)?;
            server.connect()?.batch_execute("COMMIT PREPARED 'p'")?;
            leader.batch_execute("COMMIT")?;
            follower.end()?.1?;
        }
    }
    Ok(())
}

/// What is read after the predecessors' end is as in stock PostgreSQL: whoever writes it later
/// refuses nobody. And what was read before it is settled by the next statement.
#[test]
fn a_write_after_the_predecessors_end_refuses_nobody() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let write = "UPDATE item SET price = 1";
    let (mut leader, mut follower) = pair(&server, BUMP)?;
    leader.batch_execute("COMMIT")?;
    follower.query_one(READ, &[])?;
    server.connect()?.batch_execute(write)?;
    follower.batch_execute("COMMIT")?;

    let (mut leader, mut follower) = pair(&server, BUMP)?;
    follower.query_one(READ, &[])?;
    leader.batch_execute("COMMIT")?;
    follower.batch_execute("INSERT INTO hot VALUES (100, 0)")?;
    server.connect()?.batch_execute(write)?;
    follower.batch_execute("COMMIT")?;
    Ok(())
}

/// A transaction that catches its refusal is refused again, although it depends on nobody any more.
#[test]
fn a_refusal_that_is_caught_is_not_forgotten() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let other = "SELECT val FROM hot WHERE id = 2";
    for caught in [
        format!("SAVEPOINT t; {other}"),
        "DO $$ BEGIN PERFORM val FROM hot WHERE id = 2; EXCEPTION WHEN OTHERS THEN END $$"
            .to_owned(),
    ] {
        let (mut leader, mut follower) = pair(&server, BUMP)?;
        follower.batch_execute(READ)?;
        let waits = Background::run(follower, &caught)?;
        waits.wait_until_blocked(&mut server.connect()?)?;
        leader.batch_execute("UPDATE item SET price = 1; COMMIT")?;
        let (mut follower, result) = waits.end()?;
        if result.is_err() {
            follower.batch_execute("ROLLBACK TO t")?;
            let told = sqlstate(&follower.batch_execute("INSERT INTO hot VALUES (0, 0)"));
            ensure!(told == "40001", "{caught}: goes on with {told}");
            follower.batch_execute("ROLLBACK TO t")?;
        }
        let told = sqlstate(&follower.batch_execute("COMMIT"));
        ensure!(told == "40001", "{caught}: {told}");
    }
    Ok(())
}

/// A SELECT that waits because of one table is not refused because of another that it could have
/// read at once.
#[test]
fn who_has_waited_is_not_refused() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let (mut leader, follower) = pair(&server, BUMP)?;
    let waits = Background::run(follower, "SELECT * FROM item, hot")?;
    waits.wait_until_blocked(&mut server.connect()?)?;
    leader.batch_execute("UPDATE item SET price = 1; COMMIT")?;
    let (mut follower, result) = waits.end()?;
    result?;
    Ok(follower.batch_execute("COMMIT")?)
}

/// The wait before another hot row ends the dependency: what was read is asked for there.
#[test]
fn whoever_depends_on_nobody_any_more_has_been_validated() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let (mut leader, mut follower) = pair(&server, BUMP)?;
    follower.batch_execute(READ)?;
    let waits = Background::run(follower, "UPDATE hot SET val = val + 1 WHERE id = 2")?;
    waits.wait_until_blocked(&mut server.connect()?)?;
    leader.batch_execute("UPDATE item SET price = 1; COMMIT")?;
    let told = sqlstate(&waits.end()?.1);
    ensure!(told == "40001", "{told}");
    Ok(())
}

/// What was read stays to be validated when the update of the hot row is rolled back.
#[test]
fn a_savepoint_that_is_rolled_back_leaves_the_reads() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    for (write, wanted) in [("UPDATE item SET price = 1; ", "40001"), ("", "00000")] {
        let (mut leader, mut follower) = pair(&server, BUMP)?;
        follower.batch_execute("ROLLBACK")?;
        let before = int(&mut server.connect()?, "SELECT followed FROM txn.stats")?;
        follower.batch_execute(&format!("BEGIN; SAVEPOINT s; {BUMP}"))?;
        expect_followed(&mut server.connect()?, before + 1)?;
        follower.batch_execute(&format!("{READ}; ROLLBACK TO s"))?;
        let found = told(&server, follower, &mut leader, &format!("{write}COMMIT"))?;
        ensure!(found == wanted, "{write}: {found}");
    }
    Ok(())
}

/// A write of a transaction before the predecessor, in another row's list.
#[test]
fn a_predecessors_predecessor_in_another_row_counts() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let other = "UPDATE hot SET val = val + 1 WHERE id = 2";
    for reads_first in [true, false] {
        let mut first = begun(&server, &format!("{other}; UPDATE item SET price = 1"))?;
        let (mut second, mut third) = pair(&server, BUMP)?;
        if reads_first {
            third.batch_execute(READ)?;
        }
        let followed = int(&mut server.connect()?, "SELECT followed FROM txn.stats")?;
        second.batch_execute(other)?;
        expect_followed(&mut server.connect()?, followed + 1)?;
        if !reads_first {
            third.batch_execute(READ)?;
        }
        let waits = Background::run(third, "COMMIT")?;
        waits.wait_until_blocked(&mut server.connect()?)?;
        first.batch_execute("COMMIT")?;
        second.batch_execute("COMMIT")?;
        let told = sqlstate(&waits.end()?.1);
        ensure!(told == "40001", "{told}");
    }
    Ok(())
}

/// Nobody is told when a prepared transaction before the predecessor ends: it is waited for.
#[test]
fn a_prepared_predecessors_predecessor_is_waited_for() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    let before = int(&mut server.connect()?, "SELECT followed FROM txn.stats")?;
    let (mut first, mut second) = pair(&server, &format!("UPDATE item SET price = 2; {BUMP}"))?;
    let third = begun(&server, BUMP)?;
    expect_followed(&mut server.connect()?, before + 2)?;
    first.batch_execute("PREPARE TRANSACTION 'p'")?;
    let third = Background::run(third, &format!("CREATE TEMP TABLE seen AS {READ}"))?;
    // CREATE TABLE AS would wait anyway; so does a SELECT.
    third.wait_until_blocked(&mut server.connect()?)?;
    let mut fourth = begun(&server, BUMP)?;
    let fourth_pid = pid(&mut fourth)?;
    let fourth = Background::call(fourth, fourth_pid, |client| client.query(READ, &[]));
    fourth.wait_until_blocked(&mut server.connect()?)?;
    first.batch_execute("COMMIT PREPARED 'p'")?;
    second.batch_execute("COMMIT")?;
    let (mut third, result) = third.end()?;
    result?;
    ensure!(text(&mut third, "SELECT price::text FROM seen")? == "2");
    third.batch_execute("COMMIT")?;
    let (mut fourth, rows) = fourth.end()?;
    let price: i32 = rows?.first().context("a row")?.get(0);
    ensure!(price == 2, "a price of {price}");
    fourth.batch_execute("COMMIT")?;
    drop((first, second, third, fourth));
    physical_health(&server, "hot", "id")
}

/// What does not wait when `follower_reads` is `validated`, and what does.
#[test]
fn only_plain_reads_of_other_tables_go_on() -> Result<()> {
    let server = start(&[AT_ONCE])?;
    watch_item(&server)?;
    server.connect()?.batch_execute(
        "CREATE VIEW cheap AS SELECT * FROM item WHERE price < 10;
         CREATE SEQUENCE numbers;
         CREATE TABLE parted (price int) PARTITION BY LIST (price);
         CREATE TABLE one PARTITION OF parted FOR VALUES IN (1);
         CREATE MATERIALIZED VIEW kept AS SELECT * FROM item;
         CREATE FUNCTION prices() RETURNS bigint LANGUAGE plpgsql AS
             $$ BEGIN RETURN (SELECT sum(price) FROM item); END $$",
    )?;
    for (read, waits) in [
        (READ, false),
        ("SELECT * FROM cheap ORDER BY price", false),
        (
            "SELECT count(*), max(i.price) FROM item i JOIN item j USING (price)",
            false,
        ),
        (
            "WITH i AS MATERIALIZED (SELECT * FROM item) SELECT * FROM i",
            true,
        ),
        ("SAVEPOINT s; SELECT price FROM item; RELEASE s", false),
        (
            "SELECT price, count(*) FROM (SELECT DISTINCT price FROM item) i GROUP BY price",
            false,
        ),
        (
            "SELECT price, (SELECT max(price) FROM item) FROM item",
            true,
        ),
        ("SELECT val FROM hot WHERE id = 2", true),
        ("SELECT * FROM item, hot", true),
        ("SELECT last_value FROM numbers", true),
        ("SELECT * FROM parted", true),
        ("SELECT * FROM kept", true),
        ("SELECT prices()", true),
        ("SELECT relname FROM pg_class LIMIT 1", true),
        ("SELECT price FROM item FOR UPDATE", true),
        ("INSERT INTO item SELECT price FROM item", true),
        ("DECLARE c CURSOR FOR SELECT price FROM item", true),
        (
            "SET LOCAL txn.follower_reads = wait; SELECT price FROM item",
            true,
        ),
    ] {
        let (mut leader, follower) = pair(&server, BUMP)?;
        let background = Background::run(follower, read)?;
        if waits {
            let context = || format!("it has to wait: {read}");
            let mut control = server.connect()?;
            background
                .wait_until_blocked(&mut control)
                .with_context(context)?;
            leader.batch_execute("COMMIT")?;
        }
        let (follower, result) = background.end()?;
        result.with_context(|| read.to_owned())?;
        let mut follower = follower;
        if waits {
            follower.batch_execute("COMMIT")?;
        } else {
            let told = told(&server, follower, &mut leader, "COMMIT")?;
            ensure!(told == "00000", "{read}: {told}");
        }
    }
    Ok(())
}

/// Every transaction gets a number from the hot row; some write it down in `mark`, with or without
/// a savepoint or another hot row before, or prepared. Whoever counts the marks and commits has
/// counted those with smaller numbers, and its own.
fn counts_all_before(server: &Server) -> Result<()> {
    server.connect()?.batch_execute(
        "CREATE TABLE mark (val bigint NOT NULL);
         CREATE TABLE counted (val bigint NOT NULL, marks bigint NOT NULL)",
    )?;
    let load = Load::new(server, 32, 60)
        .session(|_| "SET txn.group_lock = on; SET txn.hot_threshold = 0".to_owned())
        .moves("refused_reads");
    let tally = load.run(|worker| {
        worker.begin()?;
        if worker.chance(10) {
            worker.simple("UPDATE hot SET val = val + 1 WHERE id = 2")?;
        }
        let number = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val";
        let val: i64 = worker.query(number, &[])?[0].get(0);
        let marks = worker.chance(10);
        let mark = "INSERT INTO mark VALUES ($1)";
        let early = worker.chance(50);
        if marks && early {
            worker.execute(mark, &[&val])?;
        }
        let count: i64 = worker.query("SELECT count(*) FROM mark", &[])?[0].get(0);
        if marks && !early {
            worker.execute(mark, &[&val])?;
        }
        let own = i64::from(marks && early);
        let counted = "INSERT INTO counted VALUES ($1, $2)";
        worker.execute(counted, &[&val, &(count - own)])?;
        if worker.chance(5) {
            return worker.rollback();
        }
        if worker.chance(5) {
            worker.simple(&format!("PREPARE TRANSACTION 'p{val}'"))?;
            return worker.committing(1, |worker| {
                worker.simple(&format!("COMMIT PREPARED 'p{val}'"))
            });
        }
        worker.commit(1)
    })?;
    tally.only(&["40001", "40P01"])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot WHERE id = 1")?)?;
    let wrong = text(
        &mut client,
        "SELECT coalesce(string_agg(format('%s counted %s of %s', val, marks, there), ', '), '')
         FROM (SELECT val, marks, (SELECT count(*) FROM mark m WHERE m.val < c.val) AS there
               FROM counted c) c WHERE marks <> there",
    )?;
    ensure!(wrong.is_empty(), "missed a mark: {wrong}");
    drop(client);
    physical_health(server, "hot", "id")
}

#[test]
fn a_crowd_counts_all_before() -> Result<()> {
    counts_all_before(&start(&[AT_ONCE])?)
}
