//! Statements that read or lock rows.
use super::super::draw::{At, Draw};
use super::super::functions::{item, listing};
use super::super::schedule::{Known, Protocol, Step};

fn protocol(draw: &mut Draw) -> Protocol {
    *draw.one(&[
        Protocol::Simple,
        Protocol::Simple,
        Protocol::Extended,
        Protocol::Prepared,
    ])
}

pub fn point(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    let n = draw.row(&table);
    let is = table.is("t", draw.base, n);
    let from = if draw.chance(0.2) { "v" } else { "" };
    let sql = format!(
        "SELECT {} AS o FROM {from}{} t WHERE {is}",
        item("", table.name, "t"),
        table.name
    );
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    step.snapshot = true;
    Some(vec![step])
}

pub fn whole(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    let from = if draw.chance(0.2) { "v" } else { "" };
    let order = *draw.one(&["", " ORDER BY k", " ORDER BY val, n", " WHERE n > 0"]);
    let sql = format!(
        "SELECT {} AS o FROM {from}{} t{order}",
        item("", table.name, "t"),
        table.name
    );
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    step.snapshot = true;
    step.whole.push(table.name);
    Some(vec![step])
}

pub fn two_tables(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let tables: Vec<char> = draw.schema.tables.iter().map(|table| table.name).collect();
    let lists: Vec<String> = tables
        .iter()
        .map(|table| format!("{} AS o", listing(*table)))
        .collect();
    // One bracket, because it is one snapshot.
    let sql = format!(
        "SELECT '[' || replace(replace(string_agg(o, ','), '[', ''), ']', '') || ']' AS o FROM (SELECT {}) u",
        lists.join(" UNION ALL SELECT ")
    );
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    Some(vec![step])
}

pub fn function(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let t = draw.table().name;
    let list = *draw.one(&["list", "sql_list", "volatile_list", "guarded_list"]);
    let sql = match draw.rng_below(4) {
        0 => format!("SELECT o FROM (SELECT {list}_{t}() AS o OFFSET 0) x"),
        1 => format!("SELECT * FROM {list}_{t}() AS o"),
        2 => format!("SELECT max({list}_{t}()) AS o FROM generate_series(1, 1)"),
        _ => format!("SELECT {list}_{t}() AS o"),
    };
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    Some(vec![step])
}

pub fn lock(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    let n = draw.row(&table);
    let condition = match draw.chance(0.7) {
        true => table.is("t", draw.base, n),
        false => "t.n > 0".to_owned(),
    };
    let strength = *draw.one(&["UPDATE", "UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"]);
    let wait = *draw.one(&["", "", "", " NOWAIT", " SKIP LOCKED"]);
    let sql = format!(
        "SELECT {} AS o FROM {} t WHERE {condition} ORDER BY t.n FOR {strength}{wait}",
        item("?", table.name, "t"),
        table.name
    );
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    if wait == " NOWAIT" {
        step.errors.push("55P03");
    }
    Some(vec![step])
}

/// Built-in functions that run SQL or read tables by themselves.
pub fn built_in(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let t = draw.table().name;
    let words = format!("SELECT to_tsvector(''simple'', format(''r%sv%s'', n, val)) FROM {t}");
    // A word for each row: r1v5.
    let by_words = format!(
        "SELECT '[*{t},' || coalesce(string_agg(regexp_replace(word, 'r(\\d+)v(\\d+)', '{t}:\\1=\\2'), ','), '') || ']' AS o \
         FROM ts_stat('{words}')"
    );
    let by_xml = format!(
        "SELECT '[*{t},' || array_to_string(ARRAY(SELECT format('{t}:%s=%s', m[1], m[2]) FROM \
         regexp_matches(query_to_xml('SELECT n, val FROM {t}', true, true, '')::text, '<n>(\\d+)</n>\\s*<val>(\\d+)</val>', 'g') m), ',') || ']' AS o"
    );
    let sql = match draw.abilities.xml && draw.chance(0.5) {
        true => by_xml,
        false => by_words,
    };
    let mut step = draw.statement(at, sql);
    step.protocol = protocol(draw);
    Some(vec![step])
}

/// What was read is written.
pub fn noted(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    let id = draw.next_id();
    let n = draw.row(&table);
    let is = table.is("t", draw.base, n);
    let sql = match draw.chance(0.5) {
        true => format!(
            "INSERT INTO seen SELECT {id}, {} RETURNING o",
            listing(table.name)
        ),
        false => format!(
            "INSERT INTO seen SELECT {id}, {} FROM {} t WHERE {is} RETURNING o",
            item("", table.name, "t"),
            table.name
        ),
    };
    let mut step = draw.statement(at, sql);
    step.snapshot = true;
    Some(vec![step])
}

pub fn copy_out(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    let sql = format!(
        "COPY (SELECT {} FROM {} t) TO STDOUT",
        item("", table.name, "t"),
        table.name
    );
    let mut step = draw.statement(at, sql);
    step.protocol = Protocol::CopyOut;
    step.snapshot = true;
    step.whole.push(table.name);
    Some(vec![step])
}

/// A cursor, and what it has to tell later.
pub fn cursor(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    if at.alone {
        return None;
    }
    let table = draw.table();
    let hold = *draw.one(&["", "", " WITH HOLD"]);
    let name = format!("c{}", draw.next_id());
    let declare = format!(
        "DECLARE {name} CURSOR{hold} FOR SELECT {} AS o FROM {} t",
        item("~", table.name, "t"),
        table.name
    );
    let first = draw.statement(at, declare);
    let mut second = draw.statement(at, format!("FETCH ALL FROM {name}"));
    second.errors.push("34000");
    Some(vec![first, second])
}

pub fn current_of(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    if at.alone || !table.is_plain() {
        return None;
    }
    let n = draw.row(&table);
    let bit = draw.bit()?;
    let is = table.is("t", draw.base, n);
    let name = format!("c{}", draw.next_id());
    let lock = *draw.one(&[" FOR UPDATE", " FOR UPDATE", ""]);
    let t = table.name;
    let first = draw.statement(
        at,
        format!(
            "DECLARE {name} CURSOR FOR SELECT {} AS o FROM {t} t WHERE {is}{lock}",
            item("?", t, "t")
        ),
    );
    let mut second = draw.statement(at, format!("FETCH {name}"));
    second.errors.push("34000");
    let write = draw.write(&table, Some(n), bit, at, Known::Told);
    let o = item("+", t, "t");
    let sql = format!(
        "UPDATE {t} t SET val = t.val + {} WHERE CURRENT OF {name} RETURNING {o}",
        1i64 << bit
    );
    let mut third = draw.statement(at, sql);
    third.errors.extend(["34000", "24000"]);
    third.writes.push(write);
    Some(vec![first, second, third])
}

/// A look at the last version of rows by their places, in ways that a statement's text does not
/// show.
pub fn latest_tid(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let table = draw.table();
    if !table.is_plain() || at.mode.validated {
        return None;
    }
    let t = table.name;
    let tid = *draw.one(&["(0,1)", "(0,2)", "(0,3)", "(0,4)"]);
    let sql = match draw.rng_below(6) {
        0 => format!(
            "SELECT count(*) FROM (SELECT currtid2('{t}'::text, format('(0,%s)', i)::tid) FROM generate_series(1, 12) i OFFSET 0) x"
        ),
        1 => format!("SELECT * FROM look_{t}"),
        2 => format!(
            "DO $$ DECLARE x tid; BEGIN FOR i IN 1..8 LOOP x := currtid2('{t}', format('(0,%s)', i)::tid); END LOOP; END $$"
        ),
        3 => format!("SELECT '{t}'::text @#@ '{tid}'::tid"),
        4 => {
            format!("SELECT '{t}'::text @#@ format('(0,%s)', i)::tid FROM generate_series(1, 8) i")
        }
        _ => format!(
            "SELECT {} AS o FROM {t} t WHERE ctid = '{tid}'",
            item("?", t, "t")
        ),
    };
    Some(vec![draw.statement(at, sql)])
}

pub fn views_of_ours(draw: &mut Draw, at: At) -> Option<Vec<Step>> {
    let t = draw.table().name;
    let sql = *draw.one(&[
        "SELECT count(*) FROM txn.hotspots",
        "SELECT count(*) FROM txn.waits",
        "SELECT count(*) FROM txn.my_predicates",
        "SELECT count(*) FROM pg_locks",
    ]);
    let sql = match draw.chance(0.2) {
        true => format!("SELECT pg_relation_size('{t}')"),
        false => sql.to_owned(),
    };
    Some(vec![draw.statement(at, sql)])
}
