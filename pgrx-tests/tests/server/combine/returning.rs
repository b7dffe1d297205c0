//! RETURNING of combined updates: each session gets the row as of its own update.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, ensure};
use pgserver::Server;
use postgres::{Client, SimpleQueryMessage};
use txn_server_tests::{
    Background, Load, Watchdog, Worker, grouped, int, physical_health, pid, sqlstate, start_hot,
    text,
};

use crate::stage::Stage;

use super::{BUMP, on_server};

const NEXT: &str = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val";
const NEXT_BY: &str = "UPDATE hot SET val = val + $1 WHERE id = 1 RETURNING val";

/// Runs a statement of the simple protocol; the values of its rows, with "|" between columns.
pub(super) fn rows(client: &mut Client, sql: &str) -> Result<Vec<String>, postgres::Error> {
    let messages = client.simple_query(sql)?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|n| row.get(n).unwrap_or("null"))
                .collect::<Vec<_>>()
                .join("|"),
        ),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}

type Returning = Background<Vec<String>>;

/// Sessions that wait for the row, each with one of these statements.
fn sessions(server: &Server, stage: &mut Stage, statements: &[&str]) -> Result<Vec<Returning>> {
    let mut waiting = Vec::new();
    for &sql in statements {
        waiting.push(start(grouped(server)?, sql)?);
        stage.wait_queued(waiting.len() as i32)?;
    }
    Ok(waiting)
}

/// Three sessions that wait for the row, each with that statement after what prepares it.
fn three(server: &Server, stage: &mut Stage, before: &[&str], sql: &str) -> Result<Vec<Returning>> {
    let waiting = (0..3)
        .map(|_| {
            let mut client = grouped(server)?;
            before
                .iter()
                .try_for_each(|sql| client.batch_execute(sql))?;
            start(client, sql)
        })
        .collect::<Result<Vec<_>>>()?;
    stage.wait_queued(3)?;
    Ok(waiting)
}

fn start(mut client: Client, sql: &str) -> Result<Returning> {
    let pid = pid(&mut client)?;
    let sql = sql.to_owned();
    Ok(Background::call(client, pid, move |client| {
        rows(client, &sql)
    }))
}

/// Lets the holder go on; what the sessions were returned, in the order in which they began to
/// wait.
fn returned(stage: &mut Stage, waiting: Vec<Returning>) -> Result<Vec<Vec<String>>> {
    stage.release()?;
    ensure!(stage.end()? == "00000");
    waiting
        .into_iter()
        .map(|session| session.end()?.1.map_err(|error| anyhow!("{error:?}")))
        .collect()
}

/// Lets the holder go on; the SQLSTATEs that the sessions were told, sorted.
fn told(stage: &mut Stage, waiting: Vec<Returning>) -> Result<Vec<String>> {
    stage.release()?;
    ensure!(stage.end()? == "00000");
    let mut told = waiting
        .into_iter()
        .map(|session| Ok(sqlstate(&session.end()?.1)))
        .collect::<Result<Vec<_>>>()?;
    told.sort();
    Ok(told)
}

/// The only row of each.
fn only(returned: Vec<Vec<String>>) -> Result<Vec<String>> {
    returned
        .into_iter()
        .map(|rows| {
            ensure!(rows.len() == 1, "{} rows were returned", rows.len());
            rows.into_iter().next().context("a row")
        })
        .collect()
}

#[test]
fn each_gets_the_row_as_of_its_own_update() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let simple = sessions(server, &mut stage, &[NEXT; 3])?;
        // The extended protocol, too: the row comes in binary format.
        let extended: Vec<_> = (0..3)
            .map(|_| {
                let mut client = grouped(server)?;
                let pid = pid(&mut client)?;
                Ok(Background::call(client, pid, |client| {
                    let row = client.query_one(NEXT, &[])?;
                    Ok(row.get::<_, i64>(0))
                }))
            })
            .collect::<Result<_>>()?;
        stage.wait_queued(6)?;
        let mut values = only(returned(&mut stage, simple)?)?;
        for session in extended {
            values.push(session.end()?.1?.to_string());
        }
        values.sort();
        ensure!(values == ["2", "3", "4", "5", "6", "7"], "{values:?}");
        ensure!(stage.val()? == 7, "the value is {}", stage.val()?);
        // Constants are parameters in the one protocol, and in the cached plans of the other are
        // not.
        ensure!(stage.combined()? == 4, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Values by reference, nulls, expressions, and columns that the statement does not set.
#[test]
fn rows_of_all_kinds_of_values() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "ALTER TABLE hot ADD name text DEFAULT 'Zoë', ADD price numeric DEFAULT 1.50, \
             ADD no uuid DEFAULT '00000000-0000-0000-0000-0000000000ff', ADD nothing int, \
             ADD is_sold bool DEFAULT true, ADD day date DEFAULT '2024-02-29', \
             ADD data jsonb DEFAULT '{\"n\": [1, null]}'",
        )?;
        let sql = "UPDATE hot SET val = val + 1, price = price * 2, name = name || '!' \
                   WHERE id = 1 RETURNING val, name, price, no, nothing, is_sold, day, data, \
                   coalesce(nothing, val) * 10, data -> 'n' ->> 0";
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = sessions(server, &mut stage, &[sql; 4])?;
        let mut all = only(returned(&mut stage, waiting)?)?;
        all.sort();
        let mut expected = Vec::new();
        for n in 1..=4 {
            let (marks, price) = ("!".repeat(n), 1.5 * f64::from(1 << n));
            expected.push(format!(
                "{0}|Zoë{marks}|{price:.2}|00000000-0000-0000-0000-0000000000ff|null|t|2024-02-29|\
                 {{\"n\": [1, null]}}|{0}0|1",
                n + 1
            ));
        }
        ensure!(all == expected, "{all:?}");
        ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// No row where the conditions do not hold, and an error belongs to the session that it concerns:
/// its update is not made.
#[test]
fn conditions_and_errors_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let few = "UPDATE hot SET val = val + 1 WHERE id = 1 AND val < 3 RETURNING val";
        let waiting = sessions(server, &mut stage, &[few; 4])?;
        let mut all = returned(&mut stage, waiting)?;
        all.sort();
        let none: Vec<String> = Vec::new();
        ensure!(
            all == [none.clone(), none, vec!["2".into()], vec!["3".into()]],
            "{all:?}"
        );
        ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);

        // The first that comes to 6 fails, and so do all after it.
        let failing = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING 12 / (6 - val)";
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = sessions(server, &mut stage, &[failing; 4])?;
        let told = told(&mut stage, waiting)?;
        ensure!(told == ["00000", "22012", "22012", "22012"], "{told:?}");
        ensure!(stage.val()? == 5, "the value is {}", stage.val()?);
        Ok(())
    })
}

/// What may not reach the client is not done by others: a row that is too long for the way back,
/// and text that the client's encoding has not.
#[test]
fn rows_that_cannot_be_told() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "ALTER TABLE hot ADD name text; UPDATE hot SET name = repeat('€', 200)",
        )?;
        let sql = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val, name";
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = sessions(server, &mut stage, &[sql; 3])?;
        for row in only(returned(&mut stage, waiting)?)? {
            ensure!(row.ends_with(&"€".repeat(200)), "{row}");
        }
        ensure!(stage.combined()? == 0, "{} combined", stage.combined()?);

        server
            .connect()?
            .batch_execute("UPDATE hot SET name = '€'")?;
        // Outside of ISO style, a time comes with the abbreviation of its zone.
        let time = "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING now()";
        // The client is told of the zone while it can be.
        let zone = "SET DateStyle = SQL; SET TimeZone = '<€€€>5'";
        let latin = "SET client_encoding = latin1";
        for (settings, sql) in [(&[latin][..], sql), (&[zone, latin], time)] {
            let mut stage = Stage::new(server, BUMP)?;
            let before = stage.val()?;
            let waiting = three(server, &mut stage, settings, sql)?;
            let codes = told(&mut stage, waiting)?;
            ensure!(codes == ["22P05"; 3], "{codes:?}");
            let val = stage.val()?;
            ensure!(val == before + 1, "{before}, then {val}");
        }
        Ok(())
    })
}

/// `exit_on_error` ends a session at its own errors only.
#[test]
fn sessions_that_exit_on_errors() -> Result<()> {
    on_server(|server| {
        let divide = |by: i32| {
            format!("UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING 12 / (val - val + {by})")
        };
        let mut stage = Stage::new(server, BUMP)?;
        let mut first = grouped(server)?;
        first.batch_execute("SET exit_on_error = on")?;
        let first = start(first, &divide(1))?;
        stage.wait_queued(1)?;
        let second = start(grouped(server)?, &divide(0))?;
        stage.wait_queued(2)?;
        stage.release()?;
        ensure!(stage.end()? == "00000");
        let told = [sqlstate(&first.end()?.1), sqlstate(&second.end()?.1)];
        ensure!(told == ["00000", "22012"], "{told:?}");
        Ok(())
    })
}

/// An index that summarizes pages learns of the last value.
#[test]
fn indexes_that_summarize() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "CREATE INDEX by_val ON hot USING brin (val); SELECT brin_summarize_new_values('by_val')",
        )?;
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = sessions(server, &mut stage, &[NEXT; 4])?;
        returned(&mut stage, waiting)?;
        let found = "SET enable_seqscan = off; SELECT count(*) FROM hot WHERE val = 5";
        ensure!(rows(&mut server.connect()?, found)? == ["1"]);
        Ok(())
    })
}

/// A statement that EXECUTE runs, or that another one comes after, is its session's own.
#[test]
fn prepared_by_name() -> Result<()> {
    on_server(|server| {
        let mut stage = Stage::new(server, BUMP)?;
        let prepare = format!("PREPARE next AS {NEXT}");
        let waiting = three(server, &mut stage, &[&prepare], "EXECUTE next")?;
        let mut values = only(returned(&mut stage, waiting)?)?;
        values.sort();
        ensure!(values == ["2", "3", "4"], "{values:?}");
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = three(server, &mut stage, &[], &format!("{NEXT}; SELECT 1 / 0"))?;
        for code in told(&mut stage, waiting)? {
            ensure!(["22012", "40001"].contains(&code.as_str()), "told {code}");
        }
        ensure!(stage.val()? == 5, "the value is {}", stage.val()?);
        ensure!(stage.combined()? == 0, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Times are those of each session's own transaction, whoever makes the update.
#[test]
fn times_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        server
            .connect()?
            .batch_execute("ALTER TABLE hot ADD at timestamptz, ADD day date")?;
        let touch = "UPDATE hot SET val = val + 1, at = now(), day = current_date WHERE id = 1 \
                     RETURNING at, transaction_timestamp(), statement_timestamp(), day";
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = sessions(server, &mut stage, &[touch; 4])?;
        let mut expected = Vec::new();
        for session in &waiting {
            let sql = format!(
                "SELECT concat_ws('|', xact_start, xact_start, query_start, xact_start::date) \
                 FROM pg_stat_activity WHERE pid = {}",
                session.pid
            );
            expected.push(text(&mut stage.control, &sql)?);
        }
        let all = only(returned(&mut stage, waiting)?)?;
        ensure!(all == expected, "{all:?} instead of {expected:?}");
        ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);
        // The last one's time is in the table.
        let at = text(&mut stage.control, "SELECT at::text FROM hot")?;
        let row = expected.iter().find(|row| row.starts_with(&at));
        ensure!(row.is_some(), "{at} is nobody's time");
        Ok(())
    })
}

/// What depends on the time zone is only done for sessions with the same one.
#[test]
fn time_zones_are_each_ones_own() -> Result<()> {
    on_server(|server| {
        server
            .connect()?
            .batch_execute("ALTER TABLE hot ADD at timestamp")?;
        let zones = ["Asia/Tokyo", "Asia/Tokyo", "UTC", "America/Lima", "UTC"];
        let sql = "UPDATE hot SET val = val + 1, at = now() WHERE id = 1 RETURNING at, now()::date";
        let mut stage = Stage::new(server, BUMP)?;
        let mut waiting = Vec::new();
        let mut expected = Vec::new();
        for zone in zones {
            let mut client = grouped(server)?;
            client.batch_execute(&format!("SET TimeZone = '{zone}'"))?;
            let session = start(client, sql)?;
            stage.wait_queued(waiting.len() as i32 + 1)?;
            let here = format!(
                "SELECT concat_ws('|', xact_start AT TIME ZONE '{zone}', \
                 (xact_start AT TIME ZONE '{zone}')::date) \
                 FROM pg_stat_activity WHERE pid = {}",
                session.pid
            );
            expected.push(text(&mut stage.control, &here)?);
            waiting.push(session);
        }
        let all = only(returned(&mut stage, waiting)?)?;
        ensure!(all == expected, "{all:?} instead of {expected:?}");
        Ok(())
    })
}

/// A counter in a document, and functions that look at nothing but their arguments.
#[test]
fn documents_and_functions() -> Result<()> {
    on_server(|server| {
        server.connect()?.batch_execute(
            "ALTER TABLE hot ADD data jsonb DEFAULT '{\"n\": 0}', ADD price numeric DEFAULT 10",
        )?;
        let sql = "UPDATE hot SET \
                     data = jsonb_set(data, '{n}', to_jsonb((data ->> 'n')::bigint + 1)), \
                     price = greatest(round(price * 1.1, 1), abs(-3)), \
                     val = nullif(val, -1) + 1 \
                   WHERE id = 1 AND val IN (1, 2, 3, 4, 5) AND data ? 'n' RETURNING data, price";
        let mut stage = Stage::new(server, BUMP)?;
        let waiting = sessions(server, &mut stage, &[sql; 4])?;
        let mut all = only(returned(&mut stage, waiting)?)?;
        all.sort();
        ensure!(
            all == [
                "{\"n\": 1}|11.0",
                "{\"n\": 2}|12.1",
                "{\"n\": 3}|13.3",
                "{\"n\": 4}|14.6"
            ],
            "{all:?}"
        );
        ensure!(stage.combined()? == 3, "{} combined", stage.combined()?);
        Ok(())
    })
}

/// Sessions that number what they do: no number is given twice, and none is left out.
#[test]
fn a_crowd_takes_numbers() -> Result<()> {
    let server = start_hot(1, &[])?;
    let dog = Watchdog::new(&server);
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&numbers);
    let result = Load::new(&server, 48, 100)
        .grouped()
        .moves("combined")
        .run(move |worker| {
            let take = |worker: &mut Worker| {
                let rows = match worker.attempt % 2 {
                    0 => worker.query(NEXT, &[])?,
                    _ => worker.query(NEXT_BY, &[&1i64])?,
                };
                Ok(rows[0].get::<_, i64>(0))
            };
            let mut number = 0;
            let done = if worker.chance(10) {
                worker.begin()?;
                number = take(worker)?;
                worker.commit(1)?
            } else {
                worker.committing(1, |worker| {
                    number = take(worker)?;
                    Ok(())
                })?
            };
            if let Ok(mut taken) = taken.lock() {
                taken.push(number);
            }
            Ok(done)
        });
    let tally = dog.finish(result)?;
    tally.only(&["40001"])?;
    let last = int(&mut server.connect()?, "SELECT val FROM hot")?;
    tally.explains(last)?;
    let mut taken = numbers.lock().map_err(|_| anyhow!("poisoned"))?;
    taken.sort();
    ensure!(
        taken.iter().copied().eq(1..=last),
        "{last} numbers were taken, and told were {taken:?}"
    );
    drop(taken);
    physical_health(&server, "hot", "id")
}
