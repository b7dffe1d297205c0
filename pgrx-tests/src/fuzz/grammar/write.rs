//! Statements that write rows.
use super::super::draw::{At, Draw};
use super::super::functions::item;
use super::super::schedule::{Known, Log, Protocol, Step};
use super::super::schema::Schema;
use super::super::table::{Shape, Table};

/// A table, one of its rows, a bit for it, and the condition that names the row.
pub(super) fn target(draw: &mut Draw) -> Option<(Table, u32, u32, String)> {
    let table = draw.table();
    let n = draw.row(&table);
    let bit = draw.bit()?;
    let is = table.is("t", draw.base, n);
    Some((table, n, bit, is))
}

fn protocol(draw: &mut Draw, at: At) -> Protocol {
    *draw.one(&[
        Protocol::Simple,
        if at.alone {
            Protocol::Block
        } else {
            Protocol::Simple
        },
        Protocol::Extended,
        Protocol::Prepared,
    ])
}

fn add(bit: u32) -> String {
    format!("val = t.val + {}", 1i64 << bit)
}

/// A statement that tells of the rows that it has written.
fn told(draw: &mut Draw, at: At, table: &Table, n: Option<u32>, bit: u32, sql: String) -> Step {
    let write = draw.write(table, n, bit, at, Known::Told);
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw, at);
    step.writes.push(write);
    step
}

pub fn plain(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let write = draw.write(&table, Some(n), bit, at, Known::Counted);
    let mut step = draw.statement(
        at,
        format!("UPDATE {} t SET {} WHERE {is}", table.name, add(bit)),
    );
    step.writes.push(write);
    Some(vec![step])
}

pub fn returning(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let o = item("+", table.name, "t");
    let sql = format!(
        "UPDATE {} t SET {} WHERE {is} RETURNING {o}",
        table.name,
        add(bit)
    );
    Some(vec![told(draw, at, &table, Some(n), bit, sql)])
}

pub fn parameter(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let write = draw.write(&table, Some(n), bit, at, Known::Counted);
    let mut step = draw.statement(
        at,
        format!(
            "UPDATE {} t SET val = t.val + $1::bigint WHERE {is}",
            table.name
        ),
    );
    step.parameter = Some(1 << bit);
    step.protocol = *draw.one(&[Protocol::Extended, Protocol::Prepared]);
    step.writes.push(write);
    Some(vec![step])
}

pub fn condition(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let o = item("+", table.name, "t");
    let more = *draw.one(&[
        "t.val = 0",
        "t.val & 3 = 0",
        "t.val <> 0",
        "bit_count(t.val::bit(64)) < 2",
        "is_fine(t.val)",
    ]);
    let sql = format!(
        "UPDATE {} t SET {} WHERE {is} AND {more} RETURNING {o}",
        table.name,
        add(bit)
    );
    Some(vec![told(draw, at, &table, Some(n), bit, sql)])
}

/// A row that its key names, if another statement has changed it.
pub fn changed(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, needed) = draw.written(at.session)?;
    let (bit, is) = (draw.bit()?, table.is("t", draw.base, n));
    let write = draw.write(&table, Some(n), bit, at, Known::Counted);
    let sql = format!(
        "UPDATE {} t SET {} WHERE {is} AND t.val & {} <> 0",
        table.name,
        add(bit),
        1i64 << needed
    );
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw, at);
    step.writes.push(write);
    step.needs = Some((table.name, n, needed));
    Some(vec![step])
}

pub fn join(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let o = item("+", table.name, "t");
    let other = draw.table();
    let m = draw.row(&other);
    let other_is = other.is("u", draw.base, m);
    let sql = match draw.chance(0.5) {
        true => format!(
            "UPDATE {} t SET {} FROM (VALUES ({n})) d (m) WHERE t.n = d.m AND {is} RETURNING {o}",
            table.name,
            add(bit)
        ),
        false => format!(
            "UPDATE {} t SET {} FROM {} u WHERE {other_is} AND {is} RETURNING {o}",
            table.name,
            add(bit),
            other.name
        ),
    };
    Some(vec![told(draw, at, &table, Some(n), bit, sql)])
}

pub fn view(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let o = item("+", table.name, "t");
    let sql = format!(
        "UPDATE v{} t SET {} WHERE {is} RETURNING {o}",
        table.name,
        add(bit)
    );
    Some(vec![told(draw, at, &table, Some(n), bit, sql)])
}

pub fn every_row(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, _, bit, _) = target(draw)?;
    let o = item("+", table.name, "t");
    let condition = *draw.one(&["", " WHERE t.n > 0", " WHERE t.n IN (1, 2)"]);
    let sql = format!(
        "UPDATE {} t SET {}{condition} RETURNING {o}",
        table.name,
        add(bit)
    );
    Some(vec![told(draw, at, &table, None, bit, sql)])
}

pub fn with(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let o = item("+", table.name, "t");
    let update = format!(
        "UPDATE {} t SET {} WHERE {is} RETURNING {o} AS o",
        table.name,
        add(bit)
    );
    let sql = match draw.chance(0.5) {
        true => format!("WITH w AS ({update}) SELECT o FROM w"),
        false => format!(
            "WITH w AS ({update}), x AS (INSERT INTO seen SELECT {}, replace(o, '+', '') FROM w) SELECT o FROM w",
            draw.next_id()
        ),
    };
    Some(vec![told(draw, at, &table, Some(n), bit, sql)])
}

/// The columns of the key, as a conflict's target.
fn values(table: &Table, base: u32, n: u32) -> (String, String) {
    (
        format!("n, {}", table.key_columns()),
        format!("{n}, {}", table.key(base, n)),
    )
}

pub fn upsert(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, _) = target(draw)?;
    let n = if draw.chance(0.25) { table.rows + 1 } else { n };
    let (columns, values) = values(&table, draw.base, n);
    let o = item("+", table.name, "t");
    let mut sql = format!(
        "INSERT INTO {} AS t ({columns}, val) VALUES ({values}, {}) ON CONFLICT ",
        table.name,
        1i64 << bit
    );
    sql += &match draw.chance(0.8) {
        true => format!(
            "({}) DO UPDATE SET val = t.val + excluded.val RETURNING {o}",
            table.key_columns()
        ),
        false => format!("DO NOTHING RETURNING {o}"),
    };
    Some(vec![told(draw, at, &table, Some(n), bit, sql)])
}

pub fn merge(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let write = draw.write(&table, Some(n), bit, at, Known::Counted);
    let mut step = draw.statement(
        at,
        format!(
            "MERGE INTO {} t USING (VALUES ({n})) d (m) ON t.n = d.m AND {is} WHEN MATCHED THEN UPDATE SET val = t.val + {}",
            table.name,
            1i64 << bit
        ),
    );
    step.writes.push(write);
    Some(vec![step])
}

pub fn by_tid(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    if !table.is_plain() {
        return None;
    }
    let o = item("+", table.name, "t");
    let name = table.name;
    let sql = format!(
        "UPDATE {name} t SET {} WHERE t.ctid = ANY (ARRAY(SELECT t.ctid FROM {name} t WHERE {is})) RETURNING {o}",
        add(bit)
    );
    Some(vec![told(draw, at, &table, Some(n), bit, sql)])
}

pub fn insert(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, _, bit, _) = target(draw)?;
    let n = table.rows + 1 + u32::from(draw.chance(0.5));
    let (columns, values) = values(&table, draw.base, n);
    let o = item("+", table.name, "t");
    let sql = format!(
        "INSERT INTO {} AS t ({columns}, val) VALUES ({values}, {}) RETURNING {o}",
        table.name,
        1i64 << bit
    );
    let mut step = told(draw, at, &table, Some(n), bit, sql);
    step.errors.push("23505");
    Some(vec![step])
}

pub fn delete(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    let n = if draw.chance(0.3) {
        draw.row(&table)
    } else {
        table.rows
    };
    let is = table.is("t", draw.base, n);
    let o = item("-", table.name, "t");
    let sql = match draw.chance(0.7) {
        true => format!("DELETE FROM {} t WHERE {is} RETURNING {o}", table.name),
        false => format!(
            "MERGE INTO {} t USING (VALUES ({n})) d (m) ON t.n = d.m AND {is} WHEN MATCHED THEN DELETE",
            table.name
        ),
    };
    let mut step = draw.statement(at, sql);
    step.errors.push("23503");
    step.removes.push((table.name, n));
    Some(vec![step])
}

pub fn other_key(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, _, bit, _) = target(draw)?;
    // An insert at the old key is a second row of that number, which the ledger's CHECK does not
    // allow.
    let is_checked = table.name == 'a' && draw.schema.ledger_check;
    if table.shape == Shape::Partitioned || is_checked {
        return None;
    }
    let n = table.rows;
    let (is, moved) = (table.is("t", draw.base, n), table.key(draw.base, n + 500));
    let o = item("+", table.name, "t");
    let sql = format!(
        "UPDATE {} t SET ({}, val) = (SELECT {moved}, t.val + {}) WHERE {is} RETURNING {o}",
        table.name,
        table.key_columns(),
        1i64 << bit
    );
    let mut step = told(draw, at, &table, Some(n), bit, sql);
    step.errors.extend(["23503", "23505"]);
    step.removes.push((table.name, n));
    Some(vec![step])
}

/// The row that the ledger refers to, as its columns.
fn referred(schema: &Schema, base: u32, n: u32) -> (&'static str, String) {
    let table = &schema.tables[0];
    let columns = match table.key_columns() {
        "k" => "tag, r",
        _ => "tag, r, r2",
    };
    (columns, table.key(base, n))
}

pub fn ledger(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let first = draw.schema.tables[0].clone();
    let n = draw.row(&first);
    let (columns, key) = referred(draw.schema, draw.base, n);
    let mut step = draw.statement(at, String::new());
    step.sql = format!("INSERT INTO ledger ({columns}) VALUES ({}, {key})", step.id);
    step.log = Some(Log::Ledger);
    step.errors.push("23503");
    Some(vec![step])
}

pub fn copy_in(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let first = draw.schema.tables[0].clone();
    if !matches!(first.key.type_name(), "int" | "bigint" | "numeric") || first.key_columns() != "k"
    {
        return None;
    }
    let n = draw.row(&first);
    let (columns, key) = referred(draw.schema, draw.base, n);
    let mut step = draw.statement(at, String::new());
    // A file is for superusers only.
    step.sql = match at.mode.app_role {
        true => format!("INSERT INTO ledger ({columns}) VALUES ({}, {key})", step.id),
        false => format!(
            "COPY ledger ({columns}) FROM PROGRAM 'echo {},{key}' (DELIMITER ',')",
            step.id
        ),
    };
    step.log = Some(Log::Ledger);
    step.errors.push("23503");
    Some(vec![step])
}

/// A default with a function that reads.
pub fn default(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let id = draw.next_id();
    let mut step = draw.statement(
        at,
        format!("INSERT INTO defaulted (step) VALUES ({id}) RETURNING o"),
    );
    step.protocol = protocol(draw, at);
    Some(vec![step])
}

/// The row of which there are many versions.
pub fn churned(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, _, bit, _) = target(draw)?;
    if table.rows < 2 {
        return None;
    }
    let is = table.is("t", draw.base, 2);
    let write = draw.write(&table, Some(2), bit, at, Known::Counted);
    let mut step = draw.statement(
        at,
        format!("UPDATE {} t SET {} WHERE {is}", table.name, add(bit)),
    );
    step.writes.push(write);
    Some(vec![step])
}
