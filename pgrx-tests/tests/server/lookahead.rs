//! Index scans of `txn_heap` look for several rows of a page at a time (`src/tam/fetch.rs`): they
//! find what heap's find, whatever happens to the page meanwhile.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::{Client, SimpleQueryMessage};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use txn_server_tests::{Watchdog, start};

const ROWS: i32 = 2000;
/// Of the two tables that are kept alike.
const NAMES: [&str; 2] = ["of_heap", "of_txn_heap"];
const SESSION: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off";

/// A server with two tables of the same rows.
fn alike(server: &Server) -> Result<()> {
    let mut control = server.connect()?;
    control.batch_execute("CREATE EXTENSION IF NOT EXISTS txn")?;
    for (name, access_method) in NAMES.iter().zip(["heap", "txn_heap"]) {
        control.batch_execute(&format!(
            "CREATE TABLE {name} (id int PRIMARY KEY, k int, v int, pad text) USING {access_method}
                 WITH (fillfactor = 80, autovacuum_enabled = off);
             INSERT INTO {name} SELECT n, n * 7919 % {ROWS}, 0, repeat('x', n % 50)
                 FROM generate_series(1, {ROWS}) n;
             CREATE INDEX ON {name} (k, id)"
        ))?;
    }
    both(&mut control, "VACUUM ANALYZE {t}")
}

/// A change to the rows whose keys are divisible by three, or not: the two kinds belong to
/// different sessions.
fn change(rng: &mut StdRng, by_three: bool) -> String {
    let sign = if by_three { "=" } else { "<>" };
    let from = rng.random_range(1..ROWS);
    let to = from + rng.random_range(0..60);
    let rows = format!("id BETWEEN {from} AND {to} AND id % 3 {sign} 0");
    match rng.random_range(0..8) {
        0..=2 => format!("UPDATE {{t}} SET v = v + 1 WHERE {rows}"),
        3 => format!("UPDATE {{t}} SET k = (k + 17) % {ROWS} WHERE {rows}"),
        4 => format!("UPDATE {{t}} SET pad = pad || 'yy' WHERE {rows}"),
        5 => format!("DELETE FROM {{t}} WHERE {rows}"),
        6 => format!("SELECT FROM {{t}} WHERE {rows} FOR NO KEY UPDATE"),
        _ => format!(
            "INSERT INTO {{t}} SELECT n, n % 100, 1, '' FROM generate_series({from}, {to}) n
             WHERE n % 3 {sign} 0 ON CONFLICT DO NOTHING"
        ),
    }
}

/// Does the same to both tables.
fn both(client: &mut Client, sql: &str) -> Result<()> {
    for name in NAMES {
        client.batch_execute(&sql.replace("{t}", name))?;
    }
    Ok(())
}

fn scan(rng: &mut StdRng) -> String {
    let from = rng.random_range(1..ROWS);
    let to = from + rng.random_range(0..1000);
    let all = "SELECT id, k, v, length(pad), ctid IS NULL FROM {t} WHERE";
    match rng.random_range(0..6) {
        0 | 1 => format!("{all} id BETWEEN {from} AND {to} ORDER BY id"),
        2 => format!("{all} id BETWEEN {from} AND {to} ORDER BY id DESC"),
        3 => format!("{all} k BETWEEN {from} AND {to} ORDER BY k, id"),
        4 => format!("SELECT id FROM {{t}} WHERE id BETWEEN {from} AND {to} ORDER BY id"),
        _ => format!(
            "SELECT o.n, i.id, i.v FROM generate_series({from}, {to}, 7) o(n)
             JOIN {{t}} i ON i.id BETWEEN o.n - 5 AND o.n + 5 AND i.v >= 0"
        ),
    }
}

fn rows(client: &mut Client, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
    let messages = client.simple_query(sql)?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let values = (0..row.len()).map(|n| row.get(n).map(str::to_owned));
            Some(values.collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// One transaction with a cursor on each of the tables, that moves about while rows change. Returns
/// how many rows it has seen.
fn compare(rng: &mut StdRng, reader: &mut Client, writer: &mut Client) -> Result<usize> {
    let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][rng.random_range(0..3)];
    reader.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))?;
    let scan = scan(rng);
    if rng.random_bool(0.3) {
        both(reader, &change(rng, true))?;
    }
    for name in NAMES {
        let sql = scan.replace("{t}", name);
        reader.batch_execute(&format!("DECLARE c_{name} SCROLL CURSOR FOR {sql}"))?;
    }
    let mut seen = 0;
    for step in 0..rng.random_range(1..30) {
        let count = rng.random_range(1..60);
        let direction = ["FORWARD", "FORWARD", "BACKWARD"][rng.random_range(0..3)];
        let mut fetch = |name| rows(reader, &format!("FETCH {direction} {count} FROM c_{name}"));
        let (heaps, ours) = (fetch(NAMES[0])?, fetch(NAMES[1])?);
        ensure!(
            heaps == ours,
            "{level}, {scan}, step {step}, {direction} {count}: {heaps:?}, but txn_heap {ours:?}"
        );
        seen += ours.len();
        match rng.random_range(0..10) {
            0..=3 => both(writer, &change(rng, false))?,
            // Cleaning an index may wait for the cursor's pin of a page of it.
            4 => both(writer, "VACUUM (INDEX_CLEANUP off) {t}")?,
            5 => both(reader, &change(rng, true))?,
            6 => {
                reader.batch_execute("SAVEPOINT s")?;
                both(reader, &change(rng, true))?;
                reader.batch_execute("ROLLBACK TO s")?;
            }
            7 => {
                writer.batch_execute("BEGIN")?;
                both(writer, &change(rng, false))?;
                writer.batch_execute("ROLLBACK")?;
            }
            _ => {}
        }
    }
    reader.batch_execute(["COMMIT", "ROLLBACK"][rng.random_range(0..2)])?;
    Ok(seen)
}

#[test]
fn scans_find_what_heaps_find() -> Result<()> {
    let server = start(&[])?;
    let dog = Watchdog::new(&server);
    let result = (|| {
        alike(&server)?;
        let mut reader = server.connect()?;
        let mut writer = server.connect()?;
        reader.batch_execute(SESSION)?;
        for seed in 0..400 {
            let mut rng = StdRng::seed_from_u64(seed);
            let group = ["off", "on"][rng.random_range(0..2)];
            let setting = format!("SET txn.group_lock = {group}; SET txn.hot_threshold = 0");
            reader.batch_execute(&setting)?;
            writer.batch_execute(&setting)?;
            both(&mut writer, "VACUUM {t}")?;
            let seen = compare(&mut rng, &mut reader, &mut writer);
            seen.map_err(|error| error.context(format!("seed {seed}")))?;
            dog.progress();
        }
        let all = "SELECT id, k, v, pad FROM {t} ORDER BY id";
        let mut every = |name| rows(&mut reader, &all.replace("{t}", name));
        ensure!(every(NAMES[0])? == every(NAMES[1])?);
        Ok(())
    })();
    dog.finish(result)
}
