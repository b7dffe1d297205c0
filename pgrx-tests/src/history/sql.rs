//! Operations as SQL.
use std::ops::Bound;

use history::{Op, Range, Step, Value};
use postgres::types::ToSql;
use postgres::{Error, Row};

use crate::Worker;

/// Executes one step in the worker's transaction.
pub fn execute(worker: &mut Worker, step: &Step) -> Result<Op, Error> {
    Ok(match *step {
        Step::Append { list, value } => {
            let sql = "UPDATE lists SET vals = vals || $2::bigint WHERE id = $1";
            worker.execute(sql, &[&(list as i32), &(value as i64)])?;
            Op::Append { list, value }
        }
        Step::ReadList { list } => read_list(worker, list)?,
        Step::Write { register, value } => {
            let sql = "UPDATE registers SET prev = val, val = $2 WHERE id = $1 RETURNING prev";
            let replaced = told(worker, sql, &[&(register as i32), &(value as i64)])?;
            Op::Write {
                register,
                value,
                replaced,
            }
        }
        Step::Read { register } => {
            let sql = "SELECT val FROM registers WHERE id = $1";
            let value = told(worker, sql, &[&(register as i32)])?;
            Op::Read { register, value }
        }
        Step::Scan { table, range } => {
            let rows = scan(worker, table, range)?;
            Op::Scan { table, range, rows }
        }
        Step::Insert { table, key, value } => {
            insert(worker, table, key, value)?;
            Op::Insert { table, key, value }
        }
        Step::Upsert { table, key, value } => Op::Upsert {
            table,
            key,
            value,
            replaced: upsert(worker, table, key, value)?,
        },
        Step::Update { table, key, value } => Op::Update {
            table,
            key,
            value,
            replaced: update(worker, table, key, value)?,
        },
        Step::Delete { table, key } => Op::Delete {
            table,
            key,
            removed: delete(worker, table, key)?,
        },
        Step::Rekey {
            table,
            from,
            to,
            value,
        } => Op::Rekey {
            table,
            from,
            to,
            value,
            replaced: rekey(worker, table, (from, to), value)?,
        },
    })
}

/// What `step` may have written if its answer did not come.
pub fn unanswered(step: &Step) -> Option<Op> {
    let op = match *step {
        Step::Append { list, value } => Op::Append { list, value },
        Step::Write { register, value } => Op::Write {
            register,
            value,
            replaced: None,
        },
        Step::Insert { table, key, value }
        | Step::Upsert { table, key, value }
        | Step::Update { table, key, value }
        | Step::Rekey {
            table,
            to: key,
            value,
            ..
        } => Op::Insert { table, key, value },
        Step::ReadList { .. } | Step::Read { .. } | Step::Scan { .. } | Step::Delete { .. } => {
            return None;
        }
    };
    Some(op)
}

fn read_list(worker: &mut Worker, list: u32) -> Result<Op, Error> {
    let rows = worker.query("SELECT vals FROM lists WHERE id = $1", &[&(list as i32)])?;
    let values: Vec<i64> = rows[0].get(0);
    Ok(Op::ReadList {
        list,
        values: values.into_iter().map(|value| value as Value).collect(),
    })
}

fn insert(worker: &mut Worker, table: u32, key: i64, value: Value) -> Result<(), Error> {
    let sql = format!("INSERT INTO ranges_{table} (key, val) VALUES ($1, $2)");
    worker.execute(&sql, &[&key, &(value as i64)])?;
    Ok(())
}

/// What it has replaced.
fn upsert(worker: &mut Worker, table: u32, key: i64, value: Value) -> Result<Option<Value>, Error> {
    let sql = format!(
        "INSERT INTO ranges_{table} AS r (key, val) VALUES ($1, $2) ON CONFLICT (key) \
         DO UPDATE SET prev = r.val, val = excluded.val RETURNING prev"
    );
    told(worker, &sql, &[&key, &(value as i64)])
}

/// What it has replaced, if the row was there.
fn update(worker: &mut Worker, table: u32, key: i64, value: Value) -> Result<Option<Value>, Error> {
    let sql =
        format!("UPDATE ranges_{table} SET prev = val, val = $2 WHERE key = $1 RETURNING prev");
    told(worker, &sql, &[&key, &(value as i64)])
}

/// What it has removed.
fn delete(worker: &mut Worker, table: u32, key: i64) -> Result<Option<Value>, Error> {
    let sql = format!("DELETE FROM ranges_{table} WHERE key = $1 RETURNING val");
    told(worker, &sql, &[&key])
}

/// What it has replaced, if the row was there.
fn rekey(
    worker: &mut Worker,
    table: u32,
    (from, to): (i64, i64),
    value: Value,
) -> Result<Option<Value>, Error> {
    let sql = format!(
        "UPDATE ranges_{table} SET key = $2, prev = val, val = $3 WHERE key = $1 RETURNING prev"
    );
    told(worker, &sql, &[&from, &to, &(value as i64)])
}

/// `first` of what the statement returns.
fn told(
    worker: &mut Worker,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<Value>, Error> {
    Ok(first(&worker.query(sql, values)?))
}

/// The value of the first row, if there is one and it is not null.
fn first(rows: &[Row]) -> Option<Value> {
    rows.first()?
        .get::<_, Option<i64>>(0)
        .map(|value| value as Value)
}

fn scan(worker: &mut Worker, table: u32, range: Range) -> Result<Vec<(i64, Value)>, Error> {
    let mut conditions = Vec::new();
    let mut bounds: Vec<i64> = Vec::new();
    let sides = [(range.lower, ">=", ">"), (range.upper, "<=", "<")];
    for (bound, including, excluding) in sides {
        let (operator, key) = match bound {
            Bound::Included(key) => (including, key),
            Bound::Excluded(key) => (excluding, key),
            Bound::Unbounded => continue,
        };
        bounds.push(key);
        conditions.push(format!("key {operator} ${}", bounds.len()));
    }
    let filter = match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    };
    let sql = format!("SELECT key, val FROM ranges_{table}{filter} ORDER BY key");
    let parameters: Vec<&(dyn ToSql + Sync)> = bounds.iter().map(|key| key as _).collect();
    let rows = worker.query(&sql, &parameters)?;
    Ok(rows
        .iter()
        .map(|row| (row.get(0), row.get::<_, i64>(1) as Value))
        .collect())
}
