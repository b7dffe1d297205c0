//! What sessions of the standby see, and whether it is the primary's double.
use anyhow::{Result, ensure};
use pgserver::{Server, Standby};
use postgres::Client;
use txn_server_tests::{int, local, physical_health, read, sqlstate, text};

use super::told::{Look, Told};
use super::{AUTO, Cluster, wait_until_early};

/// Rows as they lie in their pages, with all that is in WAL: not hint bits, nor command ids.
const VERSIONS: &str = "
    SELECT concat_ws(' ', block, lp, lp_off, lp_flags, lp_len, t_xmin, t_xmax, t_ctid, t_infomask2,
                     t_infomask & ~x'0f00'::int, t_data)
    FROM generate_series(0, pg_relation_size('TABLE') / 8192 - 1) AS block,
         heap_page_items(get_raw_page('TABLE', block))
    ORDER BY block, lp";
/// Rows as a query shows them.
const ROWS: &str = "SELECT concat_ws(' ', ctid, xmin, t) FROM TABLE t ORDER BY t.ctid";

/// Once the standby has caught up it has the same rows at the same places, written by the same
/// transactions. The physical check finds nothing on either side. The load is over.
pub fn same_rows(primary: &Server, standby: &Standby) -> Result<()> {
    let mut client = primary.connect()?;
    client.batch_execute(
        "CREATE EXTENSION IF NOT EXISTS pageinspect; CREATE EXTENSION IF NOT EXISTS amcheck",
    )?;
    standby.wait_until_caught_up(primary)?;
    let mut copy = standby.server().connect()?;
    for table in ["account", "ledger"] {
        for sql in [ROWS, VERSIONS].map(|sql| sql.replace("TABLE", table)) {
            let (ours, its) = (lines(&mut client, &sql)?, lines(&mut copy, &sql)?);
            let differ = ours.iter().zip(&its).find(|(ours, its)| ours != its);
            ensure!(
                differ.is_none() && ours.len() == its.len() && !ours.is_empty(),
                "table {table} has {} lines, and {} on the standby; the first that differ: {differ:?}",
                ours.len(),
                its.len()
            );
        }
        let found = format!("SELECT count(*) FROM verify_heapam('{table}')");
        ensure!(int(&mut copy, &found)? == 0, "{table} is damaged");
        copy.batch_execute(&format!("SELECT bt_index_check('{table}_pkey', true)"))?;
    }
    Ok(())
}

fn lines(client: &mut Client, sql: &str) -> Result<Vec<String>> {
    let rows = client.query(sql, &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Every page that WAL changes is compared with the primary's when it is replayed; sums are right
/// at every moment.
#[test]
fn the_standby_is_the_primarys_double() -> Result<()> {
    let cluster = Cluster::start(&[2], "a", &[("wal_consistency_checking", "all")])?;
    let standby = cluster.standbys[0].server();
    let told = Told::default();
    let tally = cluster.load().run_disturbed(
        |worker| told.transaction(worker),
        |running| {
            wait_until_early(running, &mut local(&cluster.primary)?)?;
            let mut client = standby.connect()?;
            let mut last = 0;
            let end = running.done() + 1000;
            while running.done() < end {
                ensure!(!running.over(), "the load has ended");
                for level in ["READ COMMITTED", "REPEATABLE READ"] {
                    client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))?;
                    for look in [Look::at(&mut client)?, Look::at(&mut client)?] {
                        look.is_consistent()?;
                        ensure!(look.autos >= last, "{} after {last}", look.autos);
                        last = look.autos;
                    }
                    client.batch_execute("COMMIT")?;
                }
            }
            ensure!(last > 0, "the standby shows nothing");
            read_only(standby)
        },
    )?;
    // 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
    tally.only(&["40001", "40P01"])?;
    told.compare(&mut cluster.primary.connect()?, &tally)?;
    same_rows(&cluster.primary, &cluster.standbys[0])?;
    // VACUUM and all that it does to pages goes the same way.
    physical_health(&cluster.primary, "account", "id")?;
    physical_health(&cluster.primary, "ledger", "id")?;
    same_rows(&cluster.primary, &cluster.standbys[0])?;
    let log = standby.log()?;
    ensure!(
        !log.contains("FATAL") && !log.contains("PANIC"),
        "the standby's log:\n{log}"
    );
    Ok(())
}

/// The settings change nothing on a standby, whose errors are PostgreSQL's.
fn read_only(standby: &Server) -> Result<()> {
    let mut client = standby.connect()?;
    for view in ["hotspots", "waits"] {
        let rows = int(&mut client, &format!("SELECT count(*) FROM txn.{view}"))?;
        ensure!(rows == 0, "txn.{view} has {rows} rows");
    }
    let used = "SELECT promotions + followed + combined + early_commits FROM txn.stats";
    ensure!(int(&mut client, used)? == 0, "txn.stats counts");
    client.batch_execute("SET txn.group_lock = on; SET txn.hot_threshold = 0")?;
    for (statement, name) in [
        (AUTO, "UPDATE"),
        ("DELETE FROM account WHERE id = 1", "DELETE"),
        (
            "INSERT INTO account VALUES (1, 0, 0) ON CONFLICT (id) DO UPDATE SET balance = 0",
            "INSERT",
        ),
        (
            "SELECT * FROM account WHERE id = 1 FOR UPDATE",
            "SELECT FOR UPDATE",
        ),
    ] {
        let result = client.batch_execute(statement);
        ensure!(sqlstate(&result) == "25006", "{statement}: {result:?}");
        let message = result
            .unwrap_err()
            .as_db_error()
            .map(|e| e.message().to_owned());
        let expected = format!("cannot execute {name} in a read-only transaction");
        ensure!(message.as_deref() == Some(&expected), "{message:?}");
        Look::at(&mut client)?.is_consistent()?;
    }
    let met: Vec<Option<bool>> = client
        .query("SELECT met FROM txn.explain_row('account', '1')", &[])?
        .iter()
        .map(|row| row.get(0))
        .collect();
    ensure!(!met.is_empty(), "txn.explain_row has no answer");
    ensure!(read::<bool>(&mut client, "SELECT pg_is_in_recovery()")?);
    ensure!(text(&mut client, "current_setting('txn.group_lock')")? == "on");
    Ok(())
}
