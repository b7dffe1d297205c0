//! Plain SQL over partitions at two nodes gives what it gives over local ones.
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postgres::{Client, Error};
use txn_server_tests::{int, sqlstate, text};

use super::Cluster;
use super::twin::Twin;

const READS: &str = include_str!("scripts/reads.sql");
const WRITES: &str = include_str!("scripts/writes.sql");
const TRIGGERS: &str = include_str!("scripts/triggers.sql");
const TYPES: &str = include_str!("scripts/types.sql");
const CURSORS: &str = include_str!("scripts/cursors.sql");
pub const BLOCKS: &str = include_str!("scripts/blocks.sql");

#[test]
fn reads() -> Result<()> {
    Twin::start()?.play(READS)
}

#[test]
fn reads_with_asynchronous_scans() -> Result<()> {
    Twin::with_options(&["ADD async_capable 'true'"])?.play(READS)
}

#[test]
fn reads_of_few_rows_at_a_time() -> Result<()> {
    Twin::with_options(&["ADD fetch_size '3'"])?.play(READS)
}

#[test]
fn reads_by_partition_and_by_generic_plans() -> Result<()> {
    Twin::with_settings(&[
        ("enable_partitionwise_join", "on"),
        ("enable_partitionwise_aggregate", "on"),
        ("plan_cache_mode", "force_generic_plan"),
        ("debug_parallel_query", "on"),
    ])?
    .play(READS)
}

/// What is scanned before in the same transaction does not matter.
#[test]
fn reads_in_one_transaction() -> Result<()> {
    let mut twin = Twin::start()?;
    let plain = super::twin::statements(READS).into_iter().filter(|sql| {
        let words = ["BEGIN", "COMMIT", "FETCH", "MOVE", "CLOSE", "DECLARE"];
        let fails = ["id - 3", "no such row", "nothing"];
        !words.iter().any(|word| sql.starts_with(word)) && !fails.iter().any(|it| sql.contains(it))
    });
    let script = plain.collect::<Vec<_>>().join("\n");
    twin.play(&format!("BEGIN;\n{script}\nCOMMIT;"))?;
    twin.play("SELECT count(*) FROM account;")
}

#[test]
fn writes() -> Result<()> {
    let mut twin = Twin::start()?;
    twin.play(WRITES)?;
    twin.cluster.wait_until_resolved()
}

#[test]
fn writes_in_batches() -> Result<()> {
    Twin::with_options(&["ADD batch_size '7'"])?.play(WRITES)
}

#[test]
fn writes_with_asynchronous_scans() -> Result<()> {
    Twin::with_options(&["ADD async_capable 'true'"])?.play(WRITES)
}

#[test]
fn triggers() -> Result<()> {
    Twin::start()?.play(TRIGGERS)
}

#[test]
fn types() -> Result<()> {
    Twin::start()?.play(TYPES)
}

#[test]
fn blocks() -> Result<()> {
    let mut twin = Twin::start()?;
    twin.play(BLOCKS)?;
    twin.cluster.wait_until_resolved()
}

/// A value that the column cannot have: the error tells where it was, as far out as it is caught.
#[test]
fn values_that_do_not_fit_their_column() -> Result<()> {
    let mut twin = Twin::start()?;
    let client = &mut twin.far;
    client.batch_execute("ALTER FOREIGN TABLE many ALTER COLUMN word TYPE int")?;
    let statements = [
        (
            "SELECT * FROM many m",
            "column \"word\" of foreign table \"m\"",
        ),
        (
            "UPDATE many SET id = id WHERE id = 1 RETURNING word",
            "column \"word\" of foreign table \"many\"",
        ),
        (
            "SELECT word, count(*) FROM many GROUP BY word",
            "column \"word\" of foreign table \"many\"",
        ),
        (
            "DO $$ BEGIN PERFORM word FROM many; END $$",
            "column \"word\" of foreign table \"many\"",
        ),
    ];
    for (sql, place) in statements {
        for _ in 0..2 {
            let told = client.simple_query(sql).map(drop);
            ensure!(sqlstate(&told) == "22P02", "{told:?}: {sql}");
            let error = told.err().context("it has failed")?;
            let context = error.as_db_error().and_then(|error| error.where_());
            let mut lines = context.unwrap_or_default().lines();
            ensure!(lines.next() == Some(place), "{context:?}: {sql}");
            let others = lines.filter(|line| line.contains("foreign table")).count();
            ensure!(others == 0, "{context:?}: {sql}");
        }
    }
    // It does not stay for the errors of others.
    let told = client.batch_execute("SELECT 1 / 0");
    let error = told.err().context("it has failed")?;
    let context = error.as_db_error().and_then(|error| error.where_());
    ensure!(context.is_none(), "{context:?}");
    Ok(())
}

/// What RETURNING gives goes to disk beyond work_mem, as other rows do.
#[test]
fn returning_of_many_rows() -> Result<()> {
    let mut twin = Twin::start()?;
    for client in [&mut twin.far, &mut twin.near] {
        client.batch_execute("SET work_mem = '64kB'; SET log_temp_files = 0")?;
    }
    let files = |twin: &Twin| -> Result<usize> {
        Ok(twin
            .cluster
            .coordinator
            .log()?
            .matches("temporary file:")
            .count())
    };
    let before = files(&twin)?;
    let update = "UPDATE many SET word = repeat('x', 300) WHERE id <= 500 RETURNING id";
    ensure!(twin.far.query(update, &[])?.len() == 500);
    ensure!(files(&twin)? == before, "these rows are small enough");
    let update = "UPDATE many SET word = repeat('x', 300) RETURNING id, word";
    ensure!(twin.far.query(update, &[])?.len() == 1000);
    ensure!(files(&twin)? > before, "all rows were in memory");
    twin.near.batch_execute(update)?;
    twin.play(
        "UPDATE many m SET word = 'y' FROM many o WHERE o.id = m.id + 1 RETURNING m.id, o.word;
UPDATE many SET word = 'z' WHERE id % 2 = 0 RETURNING *, tableoid IS NOT NULL;
DELETE FROM many WHERE id > 10 RETURNING length(word);
UPDATE account SET balance = 1 RETURNING id, balance, owner;
DELETE FROM account WHERE id % 2 = 0 RETURNING 1;
SELECT * FROM many ORDER BY id;",
    )?;
    twin.cluster.wait_until_resolved()
}

/// Rows that are larger than a block of memory, of unlike sizes, and on disk.
#[test]
fn large_rows() -> Result<()> {
    let mut twin = Twin::start()?;
    for client in [&mut twin.far, &mut twin.near] {
        client.batch_execute("SET work_mem = '64kB'; SET enable_material = off")?;
    }
    twin.play(
        "UPDATE many SET word = repeat(chr(97 + id % 26), 9000 + id * 7919 % 30000) WHERE id <= 60;
UPDATE many SET word = word || '!' WHERE id <= 60 RETURNING id, length(word), md5(word), word;
SELECT id, word FROM many WHERE id <= 60 ORDER BY id;
SELECT a.id, md5(b.word) FROM (VALUES (3), (2), (1)) a(id)
    CROSS JOIN LATERAL (SELECT word FROM many WHERE id <= 60 OFFSET 0) b ORDER BY 1, 2;",
    )?;
    twin.cluster.wait_until_resolved()
}

/// Savepoints and handlers are rolled back while rows of statements around them are still to be
/// read, or to come.
#[test]
fn cursors() -> Result<()> {
    let mut twin = Twin::start()?;
    twin.cluster.line(1).set_delay(Duration::from_millis(2));
    twin.play(CURSORS)?;
    twin.cluster.wait_until_resolved()
}

/// Statements of the extended protocol, whose parameters come in binary.
#[test]
fn parameters_and_portals() -> Result<()> {
    let mut twin = Twin::start()?;
    let near = extended(&mut twin.near)?;
    let far = extended(&mut twin.far)?;
    ensure!(near == far, "{near:?} and {far:?}");
    ensure!(near.len() == 16, "{near:?}");
    Ok(())
}

fn extended(client: &mut Client) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let update = client.prepare("UPDATE account SET balance = balance + $1 WHERE id = $2")?;
    let read = client.prepare("SELECT id, balance FROM account WHERE id >= $1 ORDER BY id")?;
    // A plan of its own five times, and then a generic one.
    for round in 0..7i64 {
        for id in [round as i32, 1001] {
            found.push(client.execute(&update, &[&round, &id])?.to_string());
        }
    }
    let mut block = client.transaction()?;
    let portal = block.bind(&read, &[&5i32])?;
    let mut rows = Vec::new();
    for most in [2, 3, 0] {
        let some = block.query_portal(&portal, most)?;
        rows.extend(
            some.iter()
                .map(|row| (row.get::<_, i32>(0), row.get::<_, i64>(1))),
        );
    }
    block.commit()?;
    found.push(format!("{rows:?}"));
    let none = client.query("SELECT id FROM account WHERE id = $1", &[&None::<i32>])?;
    found.push(none.len().to_string());
    Ok(found)
}

/// COPY into the partitioned table and into a partition; a row that fails leaves none of them.
#[test]
fn copy_from() -> Result<()> {
    let mut twin = Twin::start()?;
    let rows: String = (300..600)
        .flat_map(|k| [k, 1000 + k])
        .map(|id| format!("{id}\t{}\tcopied\t\\N\n", id * 2))
        .collect();
    let bad = format!(
        "{}3\t1\tthere is one\t\\N\n",
        rows.replace("\tcopied", "\tlost")
    );
    let runs = [
        ("account", rows.as_str(), "00000"),
        ("account", bad.as_str(), "23505"),
        ("account_0", "700\t1\t\\N\t2001-02-03\n", "00000"),
        ("account", "99999\t1\t\\N\t\\N\n", "23514"),
        ("account", "701\tno number\t\\N\t\\N\n", "22P02"),
        ("account", "", "00000"),
    ];
    for (table, rows, expected) in runs {
        for client in [&mut twin.far, &mut twin.near] {
            let told = sqlstate(&copy_in(client, table, rows));
            ensure!(told == expected, "{told} instead of {expected}");
        }
        twin.play("SELECT * FROM account ORDER BY id;")?;
    }
    let count = int(&mut twin.far, "SELECT count(*) FROM account")?;
    ensure!(count == 621, "{count} rows");
    twin.cluster.wait_until_resolved()
}

fn copy_in(client: &mut Client, table: &str, rows: &str) -> Result<u64, Error> {
    let mut copy = client.copy_in(&format!("COPY {table} FROM STDIN"))?;
    // An error comes with the end at the latest.
    let _ = copy.write_all(rows.as_bytes());
    copy.finish()
}

/// A row of a node that gets the key of another node: it moves, or the statement fails. It never
/// stays where nobody looks for it.
#[test]
fn an_update_that_moves_a_row_to_another_node() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    let update = "UPDATE account SET id = id + 1000 WHERE id = 5 RETURNING tableoid::regclass";
    client.batch_execute("DELETE FROM account WHERE id = 1005")?;
    let told = client.simple_query(update);
    let ids = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM account WHERE id % 1000 = 5";
    let seen = text(&mut client, ids)?;
    let expected = if told.is_ok() { "1005" } else { "5" };
    ensure!(seen == expected, "{seen} instead of {expected}: {told:?}");
    for (node, ids) in [(0, [4, 5]), (1, [1004, 1005])] {
        for id in ids {
            let at_node = text(
                &mut cluster.node(node).connect()?,
                &format!("SELECT id FROM account WHERE id = {id}"),
            )?;
            let through_us = text(
                &mut client,
                &format!("SELECT id FROM account WHERE id = {id}"),
            )?;
            ensure!(at_node == through_us, "row {id}: {at_node}, {through_us}");
        }
    }
    Ok(())
}

#[test]
fn analyze_and_import() -> Result<()> {
    let mut twin = Twin::start()?;
    let client = &mut twin.far;
    client.batch_execute("ANALYZE far.account_0, far.many, far.account")?;
    let rows = int(
        client,
        "SELECT reltuples::bigint FROM pg_class WHERE oid = 'far.many'::regclass",
    )?;
    ensure!(rows == 1000, "ANALYZE has found {rows} rows");
    client.batch_execute(
        "CREATE SCHEMA a; CREATE SCHEMA b; CREATE SCHEMA c;
         IMPORT FOREIGN SCHEMA public FROM SERVER node0 INTO a;
         IMPORT FOREIGN SCHEMA public LIMIT TO (many, trace) FROM SERVER node0 INTO b;
         IMPORT FOREIGN SCHEMA public EXCEPT (many) FROM SERVER node1 INTO c",
    )?;
    let tables = "SELECT string_agg(nspname || '.' || relname, ' ' ORDER BY nspname, relname)
                  FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
                  WHERE relkind = 'f' AND nspname IN ('a', 'b', 'c')";
    let found = text(client, tables)?;
    let expected = "a.account a.kinds a.many a.trace b.many b.trace c.account c.kinds c.trace";
    ensure!(found == expected, "{found}");
    ensure!(int(client, "SELECT count(*) FROM b.many")? == 1000);
    client.batch_execute("INSERT INTO c.trace VALUES (1); INSERT INTO a.trace VALUES (1)")?;
    ensure!(
        int(
            client,
            "SELECT count(*) FROM a.trace JOIN c.trace USING (number)"
        )? == 1
    );
    twin.cluster.wait_until_resolved()
}

/// What goes to the node is one statement where postgres_fdw pushes it down, and plain EXPLAIN runs
/// nothing.
#[test]
fn explain_shows_what_goes_to_the_node() -> Result<()> {
    let mut twin = Twin::start()?;
    // A join is pushed down where it costs less; local ones are not considered.
    twin.far.batch_execute(
        "SET enable_mergejoin = off; SET enable_hashjoin = off; SET enable_nestloop = off",
    )?;
    let plans = [
        ("SELECT count(*) FROM account_0", "count(*)"),
        (
            "SELECT a.id FROM account_0 a JOIN many m USING (id)",
            "INNER JOIN",
        ),
        ("SELECT id FROM account_0 ORDER BY id LIMIT 3", "LIMIT 3"),
        (
            "UPDATE account_0 SET balance = 0 WHERE id = 1",
            "UPDATE public.account SET balance",
        ),
        (
            "UPDATE account SET balance = 0 WHERE id = 1001",
            "UPDATE public.account SET balance",
        ),
        ("DELETE FROM account_1", "DELETE FROM public.account"),
        (
            "INSERT INTO account_1 VALUES (1500)",
            "INSERT INTO public.account",
        ),
    ];
    for (sql, part) in plans {
        let plan = explain(&mut twin.far, "VERBOSE, COSTS off", sql)?;
        let remote: Vec<_> = plan
            .lines()
            .filter(|line| line.contains("Remote SQL"))
            .collect();
        ensure!(
            remote.len() == 1 && remote[0].contains(part),
            "{part} is not in the plan of {sql}:\n{plan}"
        );
    }
    twin.play("SELECT * FROM account ORDER BY id;")?;
    let sql = "UPDATE account SET balance = 1 WHERE id IN (1, 1001) RETURNING id";
    let plan = explain(&mut twin.far, "ANALYZE, VERBOSE, BUFFERS", sql)?;
    ensure!(plan.contains("Foreign Update on far.account_1"), "{plan}");
    twin.near.simple_query(sql)?;
    twin.play("SELECT * FROM account ORDER BY id;")
}

fn explain(client: &mut Client, options: &str, sql: &str) -> Result<String> {
    let rows = client
        .query(&format!("EXPLAIN ({options}) {sql}"), &[])
        .with_context(|| sql.to_owned())?;
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok(lines.join("\n"))
}
