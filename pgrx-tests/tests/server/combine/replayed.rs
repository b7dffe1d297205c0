//! A crowd of sessions with settings of their own runs random statements on one row. Each is told
//! the whole row as of its own update, which has a number in it: one after the other in that order,
//! without group locking, they return the same.

use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use postgres::{Client, Error, SimpleQueryMessage};
use rand::Rng;
use rand::rngs::SmallRng;
use txn_server_tests::{Load, Watchdog, Worker, int, physical_health, start_hot};

/// Settings on which something depends that a statement below computes.
const SETTINGS: [(&str, &[&str]); 4] = [
    ("TimeZone", &["UTC", "UTC", "Asia/Tokyo"]),
    ("DateStyle", &["ISO", "ISO", "German"]),
    ("extra_float_digits", &["1", "-5"]),
    ("quote_all_identifiers", &["off", "on"]),
];

/// What a column becomes. `#` is a random number.
const ASSIGNMENTS: [&str; 30] = [
    "a = a + #",
    "a = (a * 3 + #) % 1000",
    "a = greatest(a - #, 0)",
    "a = coalesce(nullif(a, #), 7)",
    "a = CASE WHEN a > # THEN 0 ELSE a + 1 END",
    "a = abs(#) - mod(a, 5)",
    "b = round((b % 100) * 1.# + 0.5, 2)",
    "b = 100 / #",
    "b = NULL",
    "b = least(#.25, b)",
    "c = a::text || '-#'",
    "c = coalesce(b::text, 'none')",
    "c = f::text",
    "c = e::text",
    "c = h::text",
    "c = quote_ident('a#')",
    "c = d ->> 'n'",
    "c = '#'",
    "d = jsonb_set(d, '{n}', to_jsonb((d ->> 'n')::bigint + #))",
    "d = d || '{\"k\": [#, null]}'",
    "d = d - 'k'",
    "d = jsonb_set(d, '{e}', to_jsonb(e))",
    "e = now()",
    "e = '2024-02-29 12:00'",
    "f = f / 3 + #",
    "g = a IN (1, 2, 3, #)",
    "g = d ? 'k'",
    "g = c < '#'",
    "h = current_date",
    "h = e::date - #",
];
const CONDITIONS: [&str; 6] = [
    "",
    "",
    " AND a < 9#",
    " AND b IS DISTINCT FROM #",
    " AND NOT (c = '#' AND g)",
    " AND (e <= now() OR h > '2024-01-01')",
];
const RETURNED: [&str; 3] = ["hot.*", "a, b * 2, c, d, e, g", "hot.*, e::date, upper(c)"];

/// A statement that has committed: its number, what it was told, and the settings and the time with
/// which it ran.
struct Told {
    number: i64,
    sql: String,
    row: Vec<Option<String>>,
    settings: String,
    time: String,
}

fn settings(rng: &mut SmallRng) -> String {
    SETTINGS
        .iter()
        .map(|(name, values)| {
            let value = values[rng.random_range(0..values.len())];
            format!("SET {name} = '{value}'; ")
        })
        .collect()
}

fn with_numbers(template: &str, rng: &mut SmallRng) -> String {
    let mut text = String::new();
    for part in template.split('#') {
        if !text.is_empty() {
            text += &rng.random_range(0..4).to_string();
        }
        text += part;
    }
    text
}

/// Statement number `round` of all sessions, but for its numbers.
fn statement(round: usize, rng: &mut SmallRng) -> String {
    let chosen = |n: usize| ASSIGNMENTS[(round * 7 + n * 11) % ASSIGNMENTS.len()];
    let mut set = "SET val = val + 1".to_owned();
    let mut columns = Vec::new();
    for template in (0..1 + round % 3).map(chosen) {
        if !columns.contains(&&template[..1]) {
            columns.push(&template[..1]);
            set += ", ";
            set += &with_numbers(template, rng);
        }
    }
    let condition = with_numbers(CONDITIONS[round % CONDITIONS.len()], rng);
    let returned = RETURNED[round / 2 % RETURNED.len()];
    format!("UPDATE hot {set} WHERE id = 1{condition} RETURNING val, now(), {returned}")
}

/// The only row of a statement, as text.
fn row(client: &mut Client, sql: &str) -> Result<Option<Vec<Option<String>>>, Error> {
    Ok(client.simple_query(sql)?.into_iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else {
            return None;
        };
        Some(
            (0..row.len())
                .map(|n| row.get(n).map(str::to_owned))
                .collect(),
        )
    }))
}

fn transaction(
    worker: &mut Worker,
    told: &Mutex<Vec<Told>>,
) -> Result<txn_server_tests::Done, Error> {
    let settings = settings(&mut worker.rng);
    worker.simple(&settings)?;
    // All sessions are at about the same statement.
    let sql = statement(worker.attempt / 8, &mut worker.rng);
    let found;
    let done = if worker.chance(15) {
        worker.begin()?;
        found = row(&mut worker.client, &sql)?;
        if worker.chance(30) {
            return worker.rollback();
        }
        worker.commit(i64::from(found.is_some()))?
    } else {
        found = row(&mut worker.client, &sql)?;
        txn_server_tests::Done::Committed(i64::from(found.is_some()))
    };
    if let Some(mut row) = found {
        let time = row.remove(1).unwrap_or_default();
        let number = row[0].as_deref().and_then(|val| val.parse().ok());
        if let Ok(mut told) = told.lock() {
            told.push(Told {
                number: number.unwrap_or(0),
                sql,
                row,
                settings,
                time,
            });
        }
    }
    Ok(done)
}

#[test]
fn crowds_are_told_what_they_would_be_told_one_by_one() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD a int DEFAULT 1, ADD b numeric DEFAULT 1, ADD c text DEFAULT 'c', \
         ADD d jsonb DEFAULT '{\"n\": 0}', ADD e timestamptz DEFAULT '2024-01-01 UTC', \
         ADD f float8 DEFAULT 1, ADD g bool DEFAULT false, ADD h date DEFAULT '2024-01-01'; \
         CREATE TABLE before AS SELECT * FROM hot",
    )?;
    let dog = Watchdog::new(&server);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let result = Load::new(&server, 32, 360)
        .grouped()
        .moves("combined")
        .run(move |worker| transaction(worker, &tell));
    let tally = dog.finish(result)?;
    // Division by zero, a number from what is none, a date from text that is none.
    tally.only(&["40001", "40P01", "22012", "22P02", "23502"])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot")?)?;
    let mut told = told.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
    told.sort_by_key(|told| told.number);
    client.batch_execute("DELETE FROM hot; INSERT INTO hot SELECT * FROM before")?;
    for (n, told) in told.iter().enumerate() {
        ensure!(
            told.number == n as i64 + 1,
            "number {} follows {n}",
            told.number
        );
        client.batch_execute(&told.settings)?;
        let time = format!("'{}'::timestamptz", told.time);
        let sql = told
            .sql
            .replace("RETURNING val, now(),", "RETURNING val,")
            .replace("now()", &time)
            .replace("current_date", &format!("{time}::date"));
        let one_by_one = row(&mut client, &sql)?;
        ensure!(
            one_by_one.as_ref() == Some(&told.row),
            "number {}, {}{}: {:?} in the crowd, {one_by_one:?} one by one",
            told.number,
            told.settings,
            told.sql,
            told.row
        );
    }
    drop((client, told));
    physical_health(&server, "hot", "id")
}
