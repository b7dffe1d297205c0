//! Loads of validated transactions: a rule that only whole ranges show is kept, and nobody is
//! refused for nothing.
use anyhow::{Result, ensure};
use txn_server_tests::{Load, int, start};

const SETTINGS: [(&str, &str); 1] = [("default_table_access_method", "txn_heap")];
const VALIDATED: &str = "SET default_transaction_isolation = 'repeatable read'; SET txn.range_occ = on; SET enable_seqscan = off";

const CLIENTS: usize = 8;
/// The width of a range by default.
const RANGE: i32 = 1024;

/// Each client works in a range of its own. Nothing is overwritten, however long one of them has to
/// wait for its turn.
#[test]
fn disjoint_ranges_are_never_refused() -> Result<()> {
    let rings = [("txn.range_buckets", "64"), ("txn.range_slots", "1024")];
    let server = start(&[&SETTINGS[..], &rings].concat())?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL);
         INSERT INTO t SELECT n * 2, 0 FROM generate_series(0, {}) n",
        CLIENTS as i32 * RANGE / 2 - 1
    ))?;
    let load = Load::new(&server, CLIENTS, 60).session(|_| VALIDATED.to_owned());
    let tally = load.run(|worker| {
        let first = worker.number as i32 * RANGE;
        let last = first + RANGE - 1;
        let step = worker.attempt as i32 * 2;
        worker.begin()?;
        let scan = "SELECT count(*), sum(v) FROM t WHERE id BETWEEN $1 AND $2";
        worker.query(scan, &[&first, &last])?;
        worker.execute("INSERT INTO t VALUES ($1, 0)", &[&(first + step + 1)])?;
        worker.execute("UPDATE t SET v = v + 1 WHERE id = $1", &[&(first + step)])?;
        worker.execute("DELETE FROM t WHERE id = $1", &[&(last - 1 - step)])?;
        worker.query(scan, &[&first, &last])?;
        worker.commit(1)
    })?;
    tally.only(&[])?;
    let updated = int(&mut server.connect()?, "SELECT sum(v) FROM t")?;
    tally.explains(updated)
}

/// No more than so many rows in a range: each counts before it adds one.
#[test]
fn a_rule_about_ranges_is_kept() -> Result<()> {
    const MOST: i64 = 20;
    const RANGES: usize = 4;
    let server = start(&SETTINGS)?;
    server
        .connect()?
        .batch_execute("CREATE TABLE t (id int PRIMARY KEY)")?;
    let load = Load::new(&server, CLIENTS, 60).session(|_| VALIDATED.to_owned());
    let tally = load.run(|worker| {
        let first = ((worker.attempt + worker.number) % RANGES) as i32 * RANGE;
        worker.begin()?;
        let scan = "SELECT count(*) FROM t WHERE id >= $1 AND id < $2";
        let rows = worker.query(scan, &[&first, &(first + RANGE)])?;
        if rows[0].get::<_, i64>(0) >= MOST {
            return worker.rollback();
        }
        let id = first + (worker.attempt * CLIENTS + worker.number) as i32;
        worker.execute("INSERT INTO t VALUES ($1)", &[&id])?;
        worker.commit(1)
    })?;
    // The validation refuses who has missed a row of its range.
    tally.only(&["40001"])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT count(*) FROM t")?)?;
    let fullest = "SELECT max(n) FROM (SELECT count(*) AS n FROM t GROUP BY id / 1024) s";
    let fullest = int(&mut client, fullest)?;
    ensure!(fullest <= MOST, "{fullest} rows in a range");
    ensure!(fullest > 0, "nobody has come through");
    Ok(())
}
