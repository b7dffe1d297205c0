//! A session that locks in the ordinary way gets a row that group-lock sessions never leave alone.
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postgres::Error;
use txn_server_tests::{Done, Load, Worker, int, physical_health, start_hot};

use super::{BUMP, GROUP};

const SATURATING: usize = 32;
const TURNS: usize = 15;

struct Locker {
    name: &'static str,
    grouped: bool,
    begin: &'static str,
    sql: &'static str,
    effects: i64,
}

const fn locker(name: &'static str, grouped: bool, sql: &'static str) -> Locker {
    Locker {
        name,
        grouped,
        begin: "BEGIN",
        sql,
        effects: 0,
    }
}

const LOCKERS: [Locker; 12] = [
    locker("FOR SHARE", true, "SELECT FROM hot WHERE id = 1 FOR SHARE"),
    locker(
        "FOR SHARE, off",
        false,
        "SELECT FROM hot WHERE id = 1 FOR SHARE",
    ),
    locker(
        "FOR KEY SHARE",
        true,
        "SELECT FROM hot WHERE id = 1 FOR KEY SHARE",
    ),
    locker(
        "FOR UPDATE",
        true,
        "SELECT FROM hot WHERE id = 1 FOR UPDATE",
    ),
    locker(
        "FOR UPDATE, off",
        false,
        "SELECT FROM hot WHERE id = 1 FOR UPDATE",
    ),
    locker("key update", true, "UPDATE hot SET id = 101 WHERE id = 1"),
    locker(
        "key update, off",
        false,
        "UPDATE hot SET id = 101 WHERE id = 1",
    ),
    locker("DELETE", true, "DELETE FROM hot WHERE id = 1"),
    locker("DELETE, off", false, "DELETE FROM hot WHERE id = 1"),
    locker("upsert", true, UPSERT),
    Locker {
        effects: 1,
        ..locker("UPDATE, off", false, BUMP)
    },
    Locker {
        begin: "BEGIN ISOLATION LEVEL REPEATABLE READ",
        ..locker("REPEATABLE READ", true, BUMP)
    },
];
const UPSERT: &str =
    "INSERT INTO hot VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1";

/// Locks, and gives it back: a rolled back change, too, has had its turn.
fn turn(worker: &mut Worker, locker: &Locker) -> Result<Done, Error> {
    worker.simple(locker.begin)?;
    worker.simple(locker.sql)?;
    match locker.effects {
        0 => worker.rollback(),
        effects => worker.commit(effects),
    }
}

fn everybody_gets_a_turn(
    setting: &'static str,
    saturate: fn(&mut Worker) -> Result<Done, Error>,
) -> Result<()> {
    let server = start_hot(1, &[])?;
    let waiting = AtomicUsize::new(LOCKERS.len());
    let saturating = AtomicUsize::new(0);
    let longest: Mutex<BTreeMap<&str, Duration>> = Mutex::default();
    let load = Load::new(&server, LOCKERS.len() + SATURATING, 3000).session(move |number| {
        let grouped = LOCKERS.get(number).is_none_or(|locker| locker.grouped);
        let group = if grouped { GROUP } else { "" };
        format!("SET statement_timeout = '60s'; {setting}; {group}")
    });
    let tally = load.run(|worker| {
        let Some(locker) = LOCKERS.get(worker.number) else {
            if worker.attempt == 1 {
                saturating.fetch_add(1, Ordering::Relaxed);
            }
            return match waiting.load(Ordering::Relaxed) {
                0 => Ok(Done::Committed(0)),
                _ => saturate(worker),
            };
        };
        if worker.attempt >= TURNS {
            return Ok(Done::Committed(0));
        }
        while saturating.load(Ordering::Relaxed) < SATURATING {
            sleep(Duration::from_millis(10));
        }
        let began = Instant::now();
        let done = turn(worker, locker);
        let waited = began.elapsed();
        let mut longest = longest.lock().unwrap();
        let entry = longest.entry(locker.name).or_default();
        *entry = waited.max(*entry);
        if worker.attempt + 1 == TURNS {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        done
    })?;
    eprintln!("longest turns: {:?}", longest.into_inner()?);
    // Some of the lockers roll back, and one is at REPEATABLE READ.
    tally.only(&["40001"])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot")?)?;
    ensure!(
        waiting.into_inner() == 0,
        "somebody has not had all its turns"
    );
    drop(client);
    physical_health(&server, "hot", "id")
}

#[test]
fn among_single_statements() -> Result<()> {
    everybody_gets_a_turn("", |worker| {
        worker.committing(1, |worker| worker.execute(BUMP, &[]))
    })
}

#[test]
fn among_functions() -> Result<()> {
    // They keep the row from the first one on.
    everybody_gets_a_turn("SET txn.brief_turn = 10000", |worker| {
        let call = "DO 'BEGIN UPDATE hot SET val = val + 1 WHERE id = 1; END'";
        worker.committing(1, |worker| worker.execute(call, &[]))
    })
}

#[test]
fn among_transaction_blocks() -> Result<()> {
    everybody_gets_a_turn("", |worker| {
        worker.begin()?;
        worker.execute(BUMP, &[])?;
        worker.commit(1)
    })
}
