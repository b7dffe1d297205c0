//! Scans of a thousand keys beside point writers elsewhere in the table, which was never divided:
//! whatever the key's type, nobody is refused.
use anyhow::{Context, Result};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Watchdog, int, read, start};

use super::validated;

/// Transactions that scan, and for each of them those that write: more than a ring keeps, of many
/// rows and of one.
const SCANS: usize = 3;
const POINTS: usize = 60;

/// A table `keyed` by one column, of which the n-th key is given; the first thousand keys are read.
fn by_one_column(typ: &str, key: &str) -> Result<()> {
    by_one_column_with(&[("autovacuum", "off")], typ, key, "")
}

/// As `by_one_column`, with other settings, and after `more` has been done.
fn by_one_column_with(settings: &[(&str, &str)], typ: &str, key: &str, more: &str) -> Result<()> {
    let server = start(settings)?;
    let mut control = server.connect()?;
    control.batch_execute(&format!(
        "SET default_table_access_method = txn_heap;
         CREATE TABLE keyed (k {typ} PRIMARY KEY, v int NOT NULL);
         INSERT INTO keyed SELECT {key}, 0 FROM generate_series(1, 2000) n;
         {more};
         ANALYZE keyed"
    ))?;
    let sql = "SELECT string_agg(quote_literal(k), ' ' ORDER BY k) FROM \
               (SELECT k FROM keyed ORDER BY k OFFSET 999) later";
    let later: String = read(&mut control, sql)?;
    let later: Vec<&str> = later
        .split("' '")
        .map(|key| key.trim_matches('\''))
        .collect();
    // An image has 127 bits of a uuid: the bound is one that is read.
    let (last, later) = later.split_first().context("there are a thousand more")?;
    let write = |n: usize| format!("k = '{}'", later[n % later.len()]);
    finish(&server, &format!("k <= '{last}'"), &write)
}

/// As `by_one_column`, for a key of several columns, of which only the last one tells the keys
/// apart.
fn by_columns(columns: &str, constant: &str, last: &str) -> Result<()> {
    let server = start(&[("autovacuum", "off")])?;
    let names: Vec<&str> = columns.split(", ").collect();
    let typed = names.join(" int, ");
    let values = "1, ".repeat(names.len() - 1);
    server.connect()?.batch_execute(&format!(
        "SET default_table_access_method = txn_heap;
         CREATE TABLE keyed ({typed} int, v int NOT NULL, PRIMARY KEY ({columns}));
         INSERT INTO keyed SELECT {values} n, 0 FROM generate_series(1, 2000) n;
         ANALYZE keyed"
    ))?;
    let write = |n: usize| format!("{constant} AND {last} = {}", 1001 + n);
    finish(&server, &format!("{constant} AND {last} <= 1000"), &write)
}

fn finish(server: &Server, scan: &str, write: &dyn Fn(usize) -> String) -> Result<()> {
    let dog = Watchdog::new(server);
    dog.finish(scans(server, scan, write))
}

fn scans(server: &Server, scan: &str, write: &dyn Fn(usize) -> String) -> Result<()> {
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE TABLE total (id int PRIMARY KEY, v int8 NOT NULL) USING txn_heap; \
         INSERT INTO total VALUES (1, 0)",
    )?;
    let mut points = server.connect()?;
    let mut point = |n: usize| {
        let sql = format!("UPDATE keyed SET v = v + 1 WHERE {}", write(n));
        points.batch_execute(&sql)
    };
    let mut client = validated(server)?;
    for round in 0..SCANS {
        scan_once(&mut client, scan, &mut |half| {
            // As many rows once, and one row as many times.
            (0..POINTS).try_for_each(|n| point(round * POINTS + half * 400 + n))?;
            Ok((0..POINTS).try_for_each(|_| point(900))?)
        })
        .with_context(|| format!("transaction {round} of those that scan"))?;
    }
    let lost = int(&mut control, "SELECT range_history_lost FROM txn.stats")?;
    anyhow::ensure!(lost == 0, "{lost} were refused for want of history");
    Ok(())
}

/// One that reads twice and writes what it has read, with others' writes after each read.
fn scan_once(
    client: &mut Client,
    scan: &str,
    others: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<()> {
    let sum = format!("SELECT count(*) + sum(v) FROM keyed WHERE {scan}");
    client.batch_execute("BEGIN")?;
    for half in 0..2 {
        anyhow::ensure!(int(client, &sum)? == 1000, "the scan is of other rows");
        others(half)?;
    }
    client.batch_execute("UPDATE total SET v = v + 1000 WHERE id = 1; COMMIT")?;
    Ok(())
}

/// The load is one that rings alone do not keep: where versions cannot be looked at, it is refused.
#[test]
fn versions_that_may_be_gone_do_not_tell() -> Result<()> {
    let settings = [("autovacuum", "off"), ("old_snapshot_threshold", "1h")];
    refuses(by_one_column_with(&settings, "numeric", "n / 8.0", ""))
}

/// So it is in a table with more pages that VACUUM has not marked than a transaction looks at.
#[test]
fn versions_on_too_many_pages_do_not_tell() -> Result<()> {
    let settings = [("autovacuum", "off")];
    // Two rows fill a page.
    let more = "ALTER TABLE keyed ADD pad text; ALTER TABLE keyed ALTER pad SET STORAGE plain;
                INSERT INTO keyed SELECT 1000 + n / 8.0, 0, repeat('x', 3500)
                    FROM generate_series(1, 4400) n";
    refuses(by_one_column_with(&settings, "numeric", "n / 8.0", more))
}

fn refuses(end: Result<()>) -> Result<()> {
    let error = end.err().context("it was not refused")?;
    let said = format!("{error:?}");
    anyhow::ensure!(said.contains("history of concurrent writes"), "{said}");
    Ok(())
}

#[test]
fn serial_keys() -> Result<()> {
    by_one_column("int8", "n")
}

#[test]
fn numeric_keys() -> Result<()> {
    by_one_column("numeric", "n / 8.0")
}

#[test]
fn float_keys() -> Result<()> {
    by_one_column("float8", "n / 8.0")
}

#[test]
fn texts_with_a_common_beginning() -> Result<()> {
    by_one_column(
        "text COLLATE \"C\"",
        "'ORD-' || lpad((n * 5000)::text, 9, '0')",
    )
}

#[test]
fn random_uuids() -> Result<()> {
    by_one_column("uuid", "md5(n::text)::uuid")
}

#[test]
fn uuids_in_order_of_time() -> Result<()> {
    by_one_column(
        "uuid",
        "('0190a1b2-' || lpad(to_hex(n), 4, '0') || '-7000-8000-' || left(md5(n::text), 12))::uuid",
    )
}

#[test]
fn times() -> Result<()> {
    by_one_column(
        "timestamptz",
        "'2024-01-01 00:00:00+00'::timestamptz + n * interval '1 second'",
    )
}

#[test]
fn one_large_tenant() -> Result<()> {
    by_columns("tenant, id", "tenant = 1", "id")
}

#[test]
fn orders_of_a_district() -> Result<()> {
    by_columns(
        "warehouse, district, number",
        "warehouse = 1 AND district = 1",
        "number",
    )
}
