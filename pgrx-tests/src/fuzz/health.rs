//! After a schedule: what the tables hold, by every path, and whether they are sound.
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use postgres::{Client, SimpleQueryMessage};

use super::finding::Finding;
use super::observe;
use super::run::Stage;
use super::schedule::{Log, Schedule};
use super::schema::Schema;
use super::table::Table;

/// How long the extension may remember waits of sessions that have ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is in the tables at the end.
#[derive(Clone, Debug, Default)]
pub struct Final {
    pub rows: BTreeMap<(char, u32), i64>,
    /// What functions and statements wrote down of what they had seen.
    pub seen: Vec<(Option<usize>, String)>,
    /// Table, row, old and new value of each update.
    pub chain: Vec<(char, u32, i64, i64)>,
    pub logs: BTreeMap<&'static str, Vec<i64>>,
    /// All rows as text, to be compared with those of a replay.
    pub contents: Vec<String>,
    pub findings: Vec<Finding>,
}

/// The relations of a schema that amcheck looks at.
#[derive(Clone, Debug, Default)]
pub struct Relations {
    tables: Vec<String>,
    ours: Vec<String>,
    indexes: Vec<String>,
}

impl Relations {
    pub fn of(client: &mut Client) -> Result<Self> {
        let mut list = |sql: &str| -> Result<Vec<String>> {
            let rows = client.query(sql, &[])?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        };
        let of_method = |method: &str| {
            format!(
                "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_am a ON a.oid = c.relam \
                 WHERE relkind = 'r' AND relnamespace = 'fz'::regnamespace AND amname = '{method}'"
            )
        };
        Ok(Relations {
            tables: list(&of_method("heap"))?,
            ours: list(&of_method("txn_heap"))?,
            indexes: list(
                "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'i' AND relnamespace = 'fz'::regnamespace",
            )?,
        })
    }
}

/// Looks at everything.
pub fn look(client: &mut Client, schedule: &Schedule, relations: &Relations) -> Result<Final> {
    let mut found = Final::default();
    for table in &schedule.schema.tables {
        rows(client, schedule, table, &mut found)?;
    }
    notes(client, &mut found)?;
    found.contents = contents(client, &schedule.schema)?;
    checks(client, schedule, &mut found)?;
    amcheck(client, relations, &mut found)?;
    Ok(found)
}

/// VACUUM of all tables, by a session that can be given up: on a damaged page it may go on for
/// ever, and hear no signal but the server's end. A table known to be damaged is left alone.
pub fn vacuum(stage: &mut Stage, schedule: &Schedule, found: &mut Final) {
    if !found.findings.is_empty() {
        return;
    }
    let tables = schedule.schema.tables.iter();
    let tables: Vec<String> = tables.map(|table| table.name.to_string()).collect();
    if let Err(error) = stage.outside(0, &format!("VACUUM {}", tables.join(", "))) {
        found.finding("vacuum", format!("{error:#}"));
    }
}

impl Final {
    fn finding(&mut self, rule: &'static str, text: String) {
        self.findings.push(Finding {
            rule,
            text,
            step: None,
        });
    }
}

fn texts(client: &mut Client, sql: &str) -> Result<Vec<String>> {
    let messages = client.simple_query(sql).with_context(|| sql.to_owned())?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        })
        .collect())
}

/// Everything in the tables that does not depend on how often a statement was tried.
pub fn contents(client: &mut Client, schema: &Schema) -> Result<Vec<String>> {
    let mut tables: Vec<String> = schema
        .tables
        .iter()
        .map(|table| table.name.to_string())
        .collect();
    tables.extend([
        "chain".to_owned(),
        "ledger".to_owned(),
        "remote_t".to_owned(),
    ]);
    let texts = tables
        .iter()
        .map(|table| format!("SELECT '{table} ' || x::text FROM {table} x"));
    let sql = format!(
        "{} ORDER BY 1",
        texts.collect::<Vec<_>>().join(" UNION ALL ")
    );
    Ok(client
        .query(&sql, &[])?
        .iter()
        .map(|row| row.get(0))
        .collect())
}

/// All rows, by sequential scan, by the key's index in order, and by each key.
fn rows(client: &mut Client, schedule: &Schedule, table: &Table, found: &mut Final) -> Result<()> {
    let name = table.name;
    let o = format!("format('{name}:%s=%s', n, val)");
    let points: Vec<String> = (1..=table.rows + 2)
        .map(|n| {
            format!(
                "SELECT {o} AS o, n FROM {name} t WHERE {}",
                table.is("t", schedule.base, n)
            )
        })
        .collect();
    let sql = format!(
        "BEGIN; SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexonlyscan = off;
         SELECT coalesce(string_agg({o}, ',' ORDER BY n, val), '') FROM {name};
         SET LOCAL enable_indexscan = on; SET LOCAL enable_seqscan = off;
         SELECT coalesce(string_agg({o}, ',' ORDER BY n, val), '') FROM (SELECT n, val FROM {name} ORDER BY k) x;
         SELECT coalesce(string_agg(o, ',' ORDER BY n, o), '') FROM ({}) x;
         SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = on;
         SELECT coalesce(string_agg(o, ',' ORDER BY n, o), '') FROM ({}) x; COMMIT",
        points.join(" UNION ALL "),
        points.join(" UNION ALL ")
    );
    let lists = texts(client, &sql)?;
    let [by_scan, by_order, by_key, by_bitmap] = &lists[..] else {
        anyhow::bail!("{} answers to {sql}", lists.len());
    };
    let moved = schedule.steps.iter().flat_map(|step| &step.removes);
    let moved = moved.filter(|(table, _)| *table == name).count() > 0;
    let named = if moved { by_scan } else { by_key };
    let maps = if moved { by_scan } else { by_bitmap };
    if by_scan != by_order || by_scan != named || by_scan != maps {
        found.finding(
            "scans",
            format!("by sequential scan {by_scan}; by index in order {by_order}; by key {by_key}; by bitmap {by_bitmap}"),
        );
    }
    // A row that got another key may have been put in again by its old one.
    let is_moved = |n| {
        let mut removes = schedule.steps.iter().flat_map(|step| &step.removes);
        removes.any(|place| *place == (name, n))
    };
    for item in observe::read([by_scan.as_str()]).items {
        let before = found.rows.insert((item.table, item.n), item.value);
        if before.is_some() && !is_moved(item.n) {
            found.finding("scans", format!("row {} twice: {by_scan}", item.n));
        }
    }
    Ok(())
}

fn notes(client: &mut Client, found: &mut Final) -> Result<()> {
    for row in client.query("SELECT step, coalesce(o, '') FROM seen UNION ALL SELECT step, coalesce(o, '') FROM defaulted", &[])? {
        let step: Option<i32> = row.get(0);
        found.seen.push((step.map(|step| step as usize), row.get(1)));
    }
    for row in client.query("SELECT t, n, old, new FROM chain", &[])? {
        let table: String = row.get(0);
        let n: i32 = row.get(1);
        let table = table.chars().next().unwrap_or('?');
        found.chain.push((table, n as u32, row.get(2), row.get(3)));
    }
    for log in Log::ALL {
        let rows = client.query(
            &format!("SELECT tag::bigint FROM {} ORDER BY 1", log.table()),
            &[],
        )?;
        found
            .logs
            .insert(log.table(), rows.iter().map(|row| row.get(0)).collect());
    }
    Ok(())
}

/// Constraints and counters of the tables' own.
fn checks(client: &mut Client, schedule: &Schedule, found: &mut Final) -> Result<()> {
    let schema = &schedule.schema;
    let (mine, other) = match schema.tables[0].key_columns() {
        "k" => ("(l.r)", "(t.k)"),
        _ => ("(l.r, l.r2)", "(t.k, t.k2)"),
    };
    let sql = format!(
        "SELECT count(*)::text FROM ledger l WHERE NOT EXISTS (SELECT FROM a t WHERE {other} = {mine} OFFSET 0)"
    );
    let orphans = texts(client, &sql)?.concat();
    if orphans != "0" {
        found.finding(
            "foreign key",
            format!("{orphans} rows of the ledger refer to nothing"),
        );
    }
    for table in &schema.tables {
        let mut removed = schedule.steps.iter().flat_map(|step| &step.removes);
        if !table.counted || removed.any(|place| *place == (table.name, 1)) {
            continue;
        }
        let sql = format!(
            "SELECT format('row %s of {} has count %s and value %s', n, cnt, val) FROM {} WHERE n = 1 AND cnt <> bit_count(val::bit(64))",
            table.name, table.name
        );
        let wrong = texts(client, &sql)?;
        if !wrong.is_empty() {
            found.finding("counter", wrong.join("; "));
        }
    }
    Ok(())
}

fn amcheck(client: &mut Client, relations: &Relations, found: &mut Final) -> Result<()> {
    let checks: Vec<String> = relations
        .indexes
        .iter()
        .map(|index| format!("bt_index_check('{index}', true)"))
        .collect();
    if let Err(error) = client.batch_execute(&format!("SELECT {}", checks.join(", "))) {
        found.finding("amcheck", super::report::said(&error));
    }
    let ours: Vec<String> = relations
        .ours
        .iter()
        .map(|name| format!("'{name}'::regclass"))
        .collect();
    // amcheck refuses tables of txn_heap, whose pages are heap's: for it they are heap tables for a
    // moment.
    let disguise = match ours.is_empty() {
        true => String::new(),
        false => format!(
            "UPDATE pg_class SET relam = (SELECT oid FROM pg_am WHERE amname = 'heap') WHERE oid IN ({});",
            ours.join(", ")
        ),
    };
    let heaps: Vec<String> = relations
        .tables
        .iter()
        .chain(&relations.ours)
        .map(|table| format!("SELECT '{table} ' || blkno || '/' || offnum || ' ' || msg FROM verify_heapam('{table}')"))
        .collect();
    let sql = format!("BEGIN; {disguise} {}; ROLLBACK", heaps.join(" UNION ALL "));
    match texts(client, &sql) {
        Ok(told) if told.is_empty() => {}
        Ok(told) => found.finding("amcheck", told.join("; ")),
        Err(error) => {
            client.batch_execute("ROLLBACK")?;
            found.finding("amcheck", format!("{error:#}"));
        }
    }
    Ok(())
}

/// The extension knows of no wait and of no running group any more.
pub fn quiet(client: &mut Client, found: &mut Final) -> Result<()> {
    let began = Instant::now();
    loop {
        let left = texts(
            client,
            "SELECT v::text FROM txn.waits v UNION ALL SELECT v::text FROM txn.hotspots v WHERE waiting > 0 OR running > 0",
        )?;
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            found.finding("left behind", left.join("; "));
            return Ok(());
        }
        sleep(Duration::from_millis(5));
    }
}
