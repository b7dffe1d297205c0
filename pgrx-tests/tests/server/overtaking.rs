//! Transactions that update rows in the same order never deadlock in PostgreSQL. They must not with
//! followers either, who could be at the next row before their predecessors.
use anyhow::Result;
use pgserver::Server;
use postgres::Error;
use rand::Rng;
use txn_server_tests::{Background, Load, Worker, grouped, int, physical_health, start_hot};

/// Transactions in one order, of which none may be refused. Each is what `transaction` does between BEGIN and COMMIT; it
/// adds as much to `hot` as it returns.
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

/// Lets a member of a hot row wait for somebody else, so that the table is known as one where that happens.
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

/// A foreign key's check must not be ahead of a predecessor that is going to lock or delete the row.
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
