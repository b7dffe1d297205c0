//! Statements whose work is done by functions, procedures and blocks.
use super::super::draw::{At, Draw, GATE};
use super::super::functions::item;
use super::super::schedule::{Kind, Known, Log, Protocol, Step, Write};
use super::super::table::Table;
use super::write::target;

fn protocol(draw: &mut Draw) -> Protocol {
    *draw.one(&[Protocol::Simple, Protocol::Extended, Protocol::Prepared])
}

/// `SELECT function(key, bit, more)`
fn call(draw: &mut Draw, at: At, function: &str, more: &str) -> Option<(Table, Step)> {
    let (table, n, bit, _) = target(draw)?;
    let key = table.key(draw.base, n);
    let sql = format!(
        "SELECT {function}_{}({key}, {}{more}) AS o",
        table.name,
        1i64 << bit
    );
    let write = draw.write(&table, Some(n), bit, at, Known::Told);
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    step.writes.push(write);
    Some((table, step))
}

pub fn bump(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    Some(vec![call(draw, at, "bump", "")?.1])
}

pub fn pay(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let function = *draw.one(&["pay", "pay", "pay_and_query"]);
    Some(vec![call(draw, at, function, "")?.1])
}

pub fn attempt(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let fails = *draw.one(&[", true", ", false"]);
    Some(vec![call(draw, at, "try", fails)?.1])
}

pub fn cursor_loop(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    // A cursor of partitions that were pruned knows nothing of the others.
    if !draw.schema.tables.iter().all(Table::is_plain) {
        return None;
    }
    Some(vec![call(draw, at, "loop", "")?.1])
}

pub fn lock_and_bump(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    Some(vec![call(draw, at, "lock_and_bump", "")?.1])
}

/// An update, and a row in a foreign table, by one function.
pub fn take(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if at.mode.one_snapshot {
        return None;
    }
    let id = draw.next_id();
    let (_, mut step) = call(draw, at, "take", &format!(", {id}"))?;
    step.log = Some(Log::Remote);
    step.errors.push("P0002");
    Some(vec![step])
}

/// A remote write by a procedure that commits.
pub fn taking(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if !at.alone || at.mode.one_snapshot {
        return None;
    }
    let (table, n, bit, _) = target(draw)?;
    let key = table.key(draw.base, n);
    let write = draw.write(&table, Some(n), bit, at, Known::Certain);
    let mut step = draw.statement(at, String::new());
    step.sql = format!(
        "CALL taking_{}({key}, {}, {})",
        table.name,
        1i64 << bit,
        step.id
    );
    step.log = Some(Log::Remote);
    step.writes.push(write);
    Some(vec![step])
}

/// A procedure with COMMIT or ROLLBACK between two updates.
pub fn twice(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if !at.alone {
        return None;
    }
    let (table, n, bit, _) = target(draw)?;
    let (second, bit2) = (draw.row(&table), draw.bit()?);
    let keeps = draw.chance(0.6);
    let part = draw.unit(at.mode);
    let sql = format!(
        "CALL twice_{}({}, {}, {}, {}, {keeps})",
        table.name,
        table.key(draw.base, n),
        1i64 << bit,
        table.key(draw.base, second),
        1i64 << bit2
    );
    let first = Write {
        unit: part,
        ..draw.write(&table, Some(n), bit, at, Known::Certain)
    };
    let last = draw.write(&table, Some(second), bit2, at, Known::Certain);
    let mut step = draw.statement(at, sql);
    step.writes = vec![first, last];
    step.parts = vec![(part, keeps)];
    Some(vec![step])
}

/// DO with an update, perhaps in an EXCEPTION block.
pub fn block(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let update = format!(
        "UPDATE {} t SET val = t.val + {} WHERE {is}",
        table.name,
        1i64 << bit
    );
    let sql = match draw.chance(0.5) {
        true => format!("DO $$ BEGIN {update}; END $$"),
        false => format!(
            "DO $$ BEGIN BEGIN {update}; EXCEPTION WHEN division_by_zero THEN NULL; END; END $$"
        ),
    };
    let write = draw.write(&table, Some(n), bit, at, Known::Certain);
    let mut step = draw.statement(at, sql);
    step.writes.push(write);
    Some(vec![step])
}

fn gate(draw: &mut Draw) -> i32 {
    *draw.one(&[GATE, GATE, 0])
}

/// A function in SET or WHERE that writes down what it was called for.
pub fn noted(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let (name, bits) = (table.name, 1i64 << bit);
    let id = draw.next_id();
    let noted = format!(
        "noted({id}, {}, t.val, {})",
        item("", name, "t"),
        gate(draw)
    );
    let o = item("+", name, "t");
    let sql = match draw.rng_below(4) {
        0 => format!(
            "UPDATE {name} t SET val = t.val + {bits} WHERE {is} AND {noted} >= 0 RETURNING {o}"
        ),
        1 => format!(
            "INSERT INTO {name} AS t (n, {}, val) VALUES ({n}, {}, {bits}) ON CONFLICT ({}) DO UPDATE SET val = {noted} + excluded.val RETURNING {o}",
            table.key_columns(),
            table.key(draw.base, n),
            table.key_columns()
        ),
        _ => format!("UPDATE {name} t SET val = {noted} + {bits} WHERE {is} RETURNING {o}"),
    };
    let write = draw.write(&table, Some(n), bit, at, Known::Told);
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    step.writes.push(write);
    Some(vec![step])
}

/// A function that reads nothing, in WHERE, behind the gate.
pub fn stable(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let (name, bits) = (table.name, 1i64 << bit);
    let o = item("+", name, "t");
    let gate = gate(draw);
    let sql = format!(
        "UPDATE {name} t SET val = t.val + {bits} WHERE {is} AND stable_note(t.val, {gate}) >= 0 RETURNING {o}"
    );
    let write = draw.write(&table, Some(n), bit, at, Known::Told);
    let mut step = draw.statement(at, sql);
    step.writes.push(write);
    Some(vec![step])
}

/// An error that tells of a value.
pub fn complain(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let (name, bits) = (table.name, 1i64 << bit);
    let code = *draw.one(&[
        "P0001", "23514", "22012", "54000", "53400", "58030", "F0000", "XX000",
    ]);
    let complain = format!("complain({}, t.val, '{code}')", item("?", name, "t"));
    let o = item("+", name, "t");
    let sql = match draw.rng_below(3) {
        0 => format!(
            "UPDATE {name} t SET val = t.val + {bits} WHERE {is} AND {complain} >= 0 RETURNING {o}"
        ),
        _ => format!("UPDATE {name} t SET val = {complain} + {bits} WHERE {is} RETURNING {o}"),
    };
    let write = draw.write(&table, Some(n), bit, at, Known::Told);
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    step.errors.push(code);
    step.writes.push(write);
    Some(vec![step])
}

/// An error of PostgreSQL's own that comes if the value is not 0.
pub fn natural(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let (table, n, bit, is) = target(draw)?;
    let (name, bits) = (table.name, 1i64 << bit);
    let (code, set) = *draw.one(&[
        (
            "54000",
            "w = repeat('xxxx', CASE WHEN t.val <> 0 THEN 1000000000 ELSE 1 END)",
        ),
        (
            "22012",
            "w = (1 / (CASE WHEN t.val <> 0 THEN 0 ELSE 1 END))::text",
        ),
        (
            "23514",
            "w = CASE WHEN t.val <> 0 THEN 'bad' ELSE 'good' END",
        ),
        (
            "22P02",
            "w = (CASE WHEN t.val <> 0 THEN 'x' ELSE '1' END)::int::text",
        ),
        (
            "22003",
            "ix = (CASE WHEN t.val <> 0 THEN 99999999999 ELSE 0 END)::int",
        ),
    ]);
    let o = item("+", name, "t");
    let sql = format!("UPDATE {name} t SET {set}, val = t.val + {bits} WHERE {is} RETURNING {o}");
    let write = draw.write(&table, Some(n), bit, at, Known::Told);
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    step.errors.push(code);
    step.blames = Some((name, n));
    step.writes.push(write);
    Some(vec![step])
}

/// DO whose expressions read, and keep what they have read.
pub fn block_reads(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let t = draw.table().name;
    let id = draw.next_id();
    let list = *draw.one(&[
        "list",
        "guarded_list",
        "sql_list",
        "volatile_list",
        "immutable_list",
    ]);
    let sql = match draw.rng_below(3) {
        0 => format!(
            "DO $$ DECLARE x text; BEGIN x := {list}_{t}(); INSERT INTO seen VALUES ({id}, x); END $$"
        ),
        1 => format!("INSERT INTO seen VALUES ({id}, {list}_{t}()) RETURNING o"),
        _ => format!("INSERT INTO seen SELECT {id}, {list}_{t}() RETURNING o"),
    };
    Some(vec![draw.statement(at, sql)])
}

/// Many short transactions, in a table that nobody reads.
pub fn noise(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if at.mode.validated || !draw.schema.range {
        return None;
    }
    let mut step = draw.step(at.session, usize::MAX, Kind::Outside);
    step.sql = "CALL noise(40)".to_owned();
    at.alone.then(|| vec![step])
}

/// Many short transactions on one row.
pub fn burst(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if !at.alone || at.mode.one_snapshot || !draw.schema.range {
        return None;
    }
    let table = draw.table();
    // The counter of row 1 tells how many writes have come to it.
    let n = draw.rng_below(table.rows - 1) + 2;
    let sql = format!("CALL burst('{}', {n}, 40)", table.name);
    Some(vec![draw.statement(at, sql)])
}

/// A write that has nothing to do with anybody, in a transaction that goes on.
pub fn idle(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if at.alone || at.mode.validated {
        return None;
    }
    let mut step = draw.statement(at, "INSERT INTO noise (m) VALUES ('x')".to_owned());
    step.aside = true;
    Some(vec![step])
}

/// Settings that change within a transaction.
pub fn settings(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if at.mode.one_snapshot {
        return None;
    }
    let set = *draw.one(&[
        "SET txn.group_lock = off",
        "SET LOCAL enable_seqscan = off",
        "SET LOCAL enable_indexscan = off",
        "SET txn.early_visibility = off",
        "SET synchronous_commit = off",
    ]);
    (!at.alone).then(|| vec![draw.statement(at, set.to_owned())])
}
