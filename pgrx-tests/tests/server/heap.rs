//! Hot rows where the heap makes it hard: pages that are full, versions that nobody may prune,
//! values out of line, an index on the updated column.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Done, Load, Worker, int, physical_health, start_hot};

/// 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
const RETRY: [&str; 2] = ["40001", "40P01"];

fn bump(worker: &mut Worker, sql: &str) -> Result<Done, postgres::Error> {
    worker.begin()?;
    worker.execute(sql, &[])?;
    match worker.chance(5) {
        true => worker.rollback(),
        false => worker.commit(1),
    }
}

/// The counter `moves` of `txn.stats` has to grow.
fn count(server: &Server, sql: &str, moves: &'static str) -> Result<()> {
    let tally = Load::new(server, 48, 50)
        .grouped()
        .moves(moves)
        .run(|worker| bump(worker, sql))?;
    tally.only(&RETRY)?;
    tally.explains(int(
        &mut server.connect()?,
        "SELECT val FROM hot WHERE id = 1",
    )?)
}

/// Four versions fill a page: most updates find no room beside the version they build on.
#[test]
fn versions_that_fill_their_page() -> Result<()> {
    let server = start_hot(4, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN body text; UPDATE hot SET body = repeat('x', 1900)",
    )?;
    count(
        &server,
        "UPDATE hot SET val = val + 1 WHERE id = 1",
        "followed",
    )?;
    physical_health(&server, "hot", "id")
}

/// Nobody follows who writes values out of line.
#[test]
fn values_out_of_line_that_change() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD COLUMN body text;
         ALTER TABLE hot ALTER COLUMN body SET STORAGE EXTERNAL;
         UPDATE hot SET body = repeat('x', 3000)",
    )?;
    count(
        &server,
        "UPDATE hot SET val = val + 1, body = repeat(val::text, 2000) WHERE id = 1",
        "tickets",
    )?;
    physical_health(&server, "hot", "id")
}

/// Nobody follows who changes what is in an index.
#[test]
fn an_index_on_the_updated_column() -> Result<()> {
    let server = start_hot(2, &[])?;
    server
        .connect()?
        .batch_execute("CREATE INDEX ON hot (val)")?;
    count(
        &server,
        "UPDATE hot SET val = val + 1 WHERE id = 1",
        "tickets",
    )?;
    physical_health(&server, "hot", "id")
}

/// A summarizing index does not stop a HOT update, but wants to be told of it.
#[test]
fn a_brin_index_on_the_updated_column() -> Result<()> {
    let server = start_hot(2, &[])?;
    server
        .connect()?
        .batch_execute("CREATE INDEX ON hot USING brin (val)")?;
    count(
        &server,
        "UPDATE hot SET val = val + 1 WHERE id = 1",
        "followed",
    )?;
    let mut client = server.connect()?;
    client.batch_execute("SET enable_seqscan = off")?;
    let found = int(&mut client, "SELECT count(*) FROM hot WHERE val > 0")?;
    ensure!(found == 1, "the index finds {found} rows");
    drop(client);
    physical_health(&server, "hot", "id")
}

/// A snapshot from before the load: no version may be pruned, and the chain spills over pages.
#[test]
fn an_old_snapshot_stays_open() -> Result<()> {
    let server = start_hot(2, &[])?;
    let mut old = server.connect()?;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT val FROM hot")?;
    count(
        &server,
        "UPDATE hot SET val = val + 1 WHERE id = 1",
        "followed",
    )?;
    let seen = int(&mut old, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(seen == 0, "the old snapshot sees {seen}");
    drop(old);
    physical_health(&server, "hot", "id")
}
