//! Pages of `txn_heap` are pruned when their room gets short (`src/tam/prune.rs`), not as soon as
//! heap would: rows stay on their pages, and what nobody sees goes in the end.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::start;

const ROWS: i64 = 50;

/// One page, filled up to its reserve.
fn page(control: &mut Client, name: &str, access_method: &str) -> Result<()> {
    control.batch_execute(&format!(
        "CREATE TABLE {name} (id int PRIMARY KEY, v int, pad text) USING {access_method}
             WITH (fillfactor = 90, autovacuum_enabled = off);
         INSERT INTO {name} SELECT n, 0, repeat('x', 100) FROM generate_series(1, {ROWS}) n;
         SET enable_seqscan = off;
         SET enable_bitmapscan = off"
    ))?;
    Ok(())
}

/// Versions on the page, seen or not.
fn versions(control: &mut Client, name: &str) -> Result<i64> {
    let sql = format!(
        "SELECT count(*) FILTER (WHERE lp_flags = 1) FROM heap_page_items(get_raw_page('{name}', 0))"
    );
    Ok(control.query_one(&sql, &[])?.get(0))
}

/// The most and the mean number of dead versions while rows are updated one by one.
fn update(control: &mut Client, name: &str) -> Result<(i64, f64)> {
    let (mut most, mut sum) = (0, 0);
    for n in 0..500 {
        let id = 1 + n * 7 % ROWS;
        control.batch_execute(&format!("UPDATE {name} SET v = v + 1 WHERE id = {id}"))?;
        if n < 100 {
            continue; // it is not put off before rows have been seen to stay
        }
        let dead = versions(control, name)? - ROWS;
        most = most.max(dead);
        sum += dead;
    }
    let blocks = format!("SELECT pg_relation_size('{name}') / 8192");
    let blocks: i64 = control.query_one(&blocks, &[])?.get(0);
    ensure!(
        blocks == 1,
        "{name}: rows have left their page: {blocks} pages"
    );
    Ok((most, sum as f64 / 400.0))
}

#[test]
fn put_off_while_there_is_room() -> Result<()> {
    let server = start(&[("autovacuum", "off")])?;
    let mut control = server.connect()?;
    control.batch_execute("CREATE EXTENSION IF NOT EXISTS txn; CREATE EXTENSION pageinspect")?;
    page(&mut control, "of_heap", "heap")?;
    page(&mut control, "of_txn_heap", "txn_heap")?;
    let (most_of_heap, mean_of_heap) = update(&mut control, "of_heap")?;
    let (most, mean) = update(&mut control, "of_txn_heap")?;
    ensure!(
        mean > mean_of_heap + 1.0 && most > most_of_heap && most <= 12,
        "dead versions: {most}, on average {mean}; of heap {most_of_heap}, {mean_of_heap}"
    );
    // A reader comes upon a page with some dead versions.
    while versions(&mut control, "of_txn_heap")? < ROWS + 3 {
        control.batch_execute("UPDATE of_txn_heap SET v = v + 1 WHERE id = 5")?;
    }
    for n in 0..500 {
        let id = 1 + n % ROWS;
        control.batch_execute(&format!("SELECT FROM of_txn_heap WHERE id = {id}"))?;
    }
    let left = versions(&mut control, "of_txn_heap")?;
    ensure!(
        left == ROWS,
        "{left} versions of {ROWS} rows that are only read"
    );
    Ok(())
}

/// One statement whose rows leave their page together counts once, and what leaves while nothing is
/// put off does not count.
#[test]
fn put_off_again_after_many_rows_have_left() -> Result<()> {
    let server = start(&[("autovacuum", "off")])?;
    let mut control = server.connect()?;
    control.batch_execute("CREATE EXTENSION IF NOT EXISTS txn; CREATE EXTENSION pageinspect")?;
    let mut means = [0.0; 2];
    for (mean, access_method) in means.iter_mut().zip(["heap", "txn_heap"]) {
        let name = format!("of_{access_method}");
        page(&mut control, &name, access_method)?;
        update(&mut control, &name)?;
        for _ in 0..3 {
            control.batch_execute(&format!("UPDATE {name} SET v = v + 1"))?;
        }
        control.batch_execute(&format!("VACUUM FULL {name}"))?;
        update(&mut control, &name)?;
        *mean = update(&mut control, &name)?.1;
    }
    let [of_heap, of_txn_heap] = means;
    ensure!(
        of_txn_heap > of_heap + 1.0,
        "dead versions on average: {of_txn_heap}; of heap {of_heap}"
    );
    Ok(())
}

/// Rows that heap keeps on their pages stay there with `txn_heap`, but for a few until it has
/// learned that they stay. The cases:
/// - long rows among short ones;
/// - so many rows that a page runs out of line pointers;
/// - several rows of a page updated at once;
/// - rows that grow for a while.
#[test]
fn rows_stay_on_their_pages() -> Result<()> {
    let server = start(&[("autovacuum", "off")])?;
    let mut control = server.connect()?;
    let long_and_short = "SELECT n, 0, repeat('x', CASE n % 10 WHEN 0 THEN 1000 ELSE 30 END)
             FROM generate_series(1, 300) n";
    let few_of_many = "SELECT n, 0, '' FROM generate_series(1, 226) n";
    let alike = "SELECT n, 0, repeat('x', 100) FROM generate_series(1, 300) n";
    let one = |id: i64| format!("UPDATE t SET v = v + 1 WHERE id = {id}");
    let four = |id: i64| format!("UPDATE t SET v = v + 1 WHERE id BETWEEN {id} AND {id} + 3");
    let grows = |id: i64| {
        let length = if id % 5 == 0 { 500 } else { 100 };
        format!(
            "UPDATE t SET pad = repeat('x', {length}) WHERE id = {id};
             UPDATE t SET pad = repeat('x', 100) WHERE id = {id}"
        )
    };
    type Update<'a> = &'a dyn Fn(i64) -> String;
    let cases: [(i32, i64, &str, &str, Update); 4] = [
        (80, 300, long_and_short, "id < 0", &one),
        (100, 60, few_of_many, "id > 60", &one),
        (90, 296, alike, "id < 0", &four),
        (90, 300, alike, "id < 0", &grows),
    ];
    for (case, (fillfactor, rows, fill, delete, update)) in cases.into_iter().enumerate() {
        let mut pages = [0_i64; 2];
        for (pages, access_method) in pages.iter_mut().zip(["heap", "txn_heap"]) {
            control.batch_execute(&format!(
                "DROP TABLE IF EXISTS t;
                 CREATE TABLE t (id int, v int, pad text) USING {access_method}
                     WITH (fillfactor = {fillfactor}, autovacuum_enabled = off);
                 ALTER TABLE t ALTER pad SET STORAGE PLAIN;
                 INSERT INTO t {fill};
                 CREATE UNIQUE INDEX ON t (id);
                 DELETE FROM t WHERE {delete};
                 SET enable_seqscan = off;
                 SET enable_bitmapscan = off"
            ))?;
            for n in 0..3000 {
                for statement in update(1 + n * 7 % rows).split(';') {
                    control.batch_execute(statement)?;
                }
            }
            let size = "SELECT pg_relation_size('t') / 8192";
            *pages = control.query_one(size, &[])?.get(0);
        }
        let [of_heap, of_txn_heap] = pages;
        ensure!(
            of_txn_heap <= of_heap + 1,
            "case {case}: {of_heap} pages, {of_txn_heap}"
        );
    }
    Ok(())
}
