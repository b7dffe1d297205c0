//! The physical check after a load: a broken order of commit is not a wrong answer but damage that
//! a count by index does not see and VACUUM never finishes with.
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pgserver::Server;
use postgres::Client;

use crate::{int, text};

/// How long sessions may take to end after their client has left.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks `table`, whose unique column is `key`:
/// - every path finds one version per row;
/// - heap and indexes are clean;
/// - VACUUM and VACUUM FREEZE come to an end;
/// - no session, wait or group is left behind.
pub fn physical_health(server: &Server, table: &str, key: &str) -> Result<()> {
    let mut client = server.connect()?;
    quiet(&mut client)?;
    client.batch_execute(
        "CREATE EXTENSION IF NOT EXISTS amcheck; CREATE EXTENSION IF NOT EXISTS pg_visibility",
    )?;
    check(&mut client, table, key).with_context(|| format!("table {table} after the load"))?;
    for vacuum in ["VACUUM", "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING)"] {
        client.batch_execute("SET statement_timeout = '60s'")?;
        client
            .batch_execute(&format!("{vacuum} {table}"))
            .with_context(|| format!("{vacuum} {table} does not end"))?;
        client.batch_execute("RESET statement_timeout")?;
        check(&mut client, table, key).with_context(|| format!("table {table} after {vacuum}"))?;
    }
    for function in ["pg_check_visible", "pg_check_frozen"] {
        let sql = format!("SELECT count(*) FROM {function}('{table}')");
        ensure!(
            int(&mut client, &sql)? == 0,
            "{function} finds tuples in {table}"
        );
    }
    Ok(())
}

fn check(client: &mut Client, table: &str, key: &str) -> Result<()> {
    let mut counts = Vec::new();
    for (how, off) in [
        (
            "sequential scan",
            "enable_indexscan, enable_indexonlyscan, enable_bitmapscan",
        ),
        (
            "index scan",
            "enable_seqscan, enable_indexonlyscan, enable_bitmapscan",
        ),
        (
            "index-only scan",
            "enable_seqscan, enable_indexscan, enable_bitmapscan",
        ),
        (
            "bitmap scan",
            "enable_seqscan, enable_indexscan, enable_indexonlyscan",
        ),
    ] {
        for setting in off.split(", ") {
            client.batch_execute(&format!("SET {setting} = off"))?;
        }
        let sql = format!("SELECT count({key}) FROM {table} WHERE {key} IS NOT NULL");
        counts.push((how, int(client, &sql)?));
        client.batch_execute("RESET ALL")?;
    }
    let distinct = int(
        client,
        &format!("SELECT count(DISTINCT {key}) FROM {table}"),
    )?;
    ensure!(
        counts.iter().all(|(_, count)| *count == distinct),
        "{distinct} rows, but {counts:?}"
    );
    let indexes = client.query(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class i ON i.oid = indexrelid \
         JOIN pg_am ON pg_am.oid = i.relam \
         WHERE indrelid = $1::text::regclass AND amname = 'btree' AND indisvalid",
        &[&table],
    )?;
    for index in indexes {
        let index: String = index.get(0);
        client
            .batch_execute(&format!("SELECT bt_index_check('{index}', true)"))
            .with_context(|| format!("bt_index_check of {index}"))?;
    }
    // amcheck refuses tables of txn_heap, whose pages are heap's: for it this one is a heap table
    // for a moment.
    client.batch_execute(&format!(
        "BEGIN; UPDATE pg_class SET relam = (SELECT oid FROM pg_am WHERE amname = 'heap') \
         WHERE oid = '{table}'::regclass"
    ))?;
    let found = text(
        client,
        &format!(
            "SELECT string_agg(blkno || '/' || offnum || ' ' || msg, '; ') \
             FROM verify_heapam('{table}')"
        ),
    )?;
    client.batch_execute("ROLLBACK")?;
    ensure!(found.is_empty(), "verify_heapam of {table}: {found}");
    Ok(())
}

/// Waits until the load's sessions have ended; fails if one does not, or if the extension still
/// knows of a wait or of a running group.
pub fn quiet(client: &mut Client) -> Result<()> {
    let others = "SELECT string_agg(pid || ' ' || state || ' ' || query, '; ') \
                  FROM pg_stat_activity \
                  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    wait_until_empty(client, others).context("sessions are left behind")?;
    let prepared = "SELECT string_agg(gid, ' ') FROM pg_prepared_xacts";
    let prepared = text(client, prepared)?;
    ensure!(
        prepared.is_empty(),
        "prepared transactions are left behind: {prepared}"
    );
    let loaded = "SELECT count(*) FROM pg_extension WHERE extname = 'txn'";
    if int(client, loaded)? == 0 {
        return Ok(());
    }
    for (view, wrong) in [
        ("txn.waits", "true"),
        ("txn.hotspots", "waiting > 0 OR running > 0"),
    ] {
        let sql = format!("SELECT string_agg(v::text, '; ') FROM {view} v WHERE {wrong}");
        wait_until_empty(client, &sql)
            .with_context(|| format!("nobody runs any more, but see {view}"))?;
    }
    Ok(())
}

/// Waits until `sql` gives nothing.
fn wait_until_empty(client: &mut Client, sql: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        let left = text(client, sql)?;
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            bail!("after {} s there is still: {left}", PATIENCE.as_secs());
        }
        sleep(Duration::from_millis(20));
    }
}
