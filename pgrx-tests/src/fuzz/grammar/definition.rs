//! Statements that change definitions, and those that tell which one they have used.
use super::super::draw::{At, Draw};
use super::super::functions::item;
use super::super::schedule::{Known, Protocol, Step};
use super::write::target;

/// What the first statement of a transaction that reads this table reads it for: PostgreSQL hears
/// of changed definitions when a transaction begins, and when it locks what it had not locked.
pub const FROM_EPOCH: &str = " FROM epoch";

fn protocol(draw: &mut Draw) -> Protocol {
    *draw.one(&[Protocol::Simple, Protocol::Extended, Protocol::Prepared])
}

/// Another body for the function `defined`: from its commit on, that returns the step's number.
pub fn redefine(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    // Only its owner may replace it.
    if at.mode.app_role {
        return None;
    }
    let mut step = draw.statement(at, String::new());
    let volatility = *draw.one(&["VOLATILE", "STABLE", "IMMUTABLE"]);
    step.sql = format!(
        "CREATE OR REPLACE FUNCTION defined() RETURNS text LANGUAGE sql {volatility} \
         AS $$SELECT '!{}'::text$$",
        step.id
    );
    step.defines = true;
    // "tuple concurrently updated": two replace it at a time.
    step.errors.push("XX000");
    Some(vec![step])
}

/// What the function is, told by a read, or by an update of a row.
pub fn defined(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let function = *draw.one(&["defined()", "calls_defined()"]);
    let mut step = match draw.chance(0.6) {
        true => draw.statement(at, format!("SELECT {function} AS o{FROM_EPOCH}")),
        false => {
            let (table, n, bit, is) = target(draw)?;
            let write = draw.write(&table, Some(n), bit, at, Known::Told);
            let name = table.name;
            let sql = format!(
                "UPDATE {name} t SET val = t.val + {} WHERE {is} RETURNING {} || ',' || {function}",
                1i64 << bit,
                item("+", name, "t")
            );
            let mut step = draw.statement(at, sql);
            step.writes.push(write);
            step
        }
    };
    step.protocol = protocol(draw);
    Some(vec![step])
}

/// A change of a table that leaves what its rows say as it is.
pub fn alter(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if at.mode.app_role {
        return None;
    }
    let name = draw.table().name;
    let (base, id) = (draw.base, draw.next_id());
    let sql = match draw.rng_below(6) {
        0 => format!("CREATE INDEX {name}_more_{base}_{id} ON {name} (ix)"),
        1 => format!("ALTER TABLE {name} ADD COLUMN IF NOT EXISTS more int DEFAULT {id}"),
        2 => format!("ALTER TABLE {name} DROP COLUMN IF EXISTS more"),
        3 => format!("ALTER TABLE {name} ADD CONSTRAINT {name}_more_{base}_{id} CHECK (val >= 0)"),
        4 => format!("COMMENT ON TABLE {name} IS '{id}'"),
        _ => format!("ANALYZE {name}"),
    };
    let mut step = draw.statement(at, sql);
    // A cursor is open on the table.
    step.errors.push("55006");
    Some(vec![step])
}
