//! What clients see, against what their isolation level promises: random transactions over lists,
//! registers and ranges, recorded and checked (crate `history`).
use std::time::Instant;

use anyhow::{Result, ensure};
use history::{Class, History, Level, Promise, Range, Step, Workload, check};
use txn_server_tests::history::{Recording, Scribe, TABLES, create, expect, expect_committed};
use txn_server_tests::{Worker, int, physical_health, start};

const CLIENTS: u32 = 8;
const TRANSACTIONS: u32 = 150;

/// What may go wrong without anything being wrong: a conflict, a deadlock, a key that is taken.
const RETRY: [&str; 3] = ["40001", "40P01", "23505"];

/// Records with the library loaded and nothing on, and holds it to the level, in real time too.
fn stock(level: Level, workload: Workload) -> Result<()> {
    let server = start(&[])?;
    let recording = Recording {
        workload,
        level,
        clients: CLIENTS,
        blind: 0,
        declares: 0,
        tables: "",
        transactions: TRANSACTIONS,
        settings: "",
    };
    let (history, tally) = recording.run(&server)?;
    tally.only(&RETRY)?;
    expect_committed(&history, 200)?;
    expect(
        &history,
        Promise {
            level,
            real_time: true,
        },
    )
}

#[test]
fn stock_read_committed() -> Result<()> {
    stock(Level::ReadCommitted, Workload::default())
}

/// Without removals: PostgreSQL lets a snapshot insert over a removal that it does not see.
#[test]
fn stock_repeatable_read() -> Result<()> {
    let mut workload = Workload::default();
    workload.weights.delete = 0;
    workload.weights.rekey = 0;
    stock(Level::RepeatableRead, workload)
}

#[test]
fn stock_serializable() -> Result<()> {
    stock(Level::Serializable, Workload::default())
}

/// Two transactions that each look for the other's row before either puts one there.
#[test]
fn the_write_skew_of_repeatable_read_is_found() -> Result<()> {
    let workload = Workload::default();
    let server = start(&[])?;
    create(&mut server.connect()?, &workload, 1)?;
    let began = Instant::now();
    let mut clients = Vec::new();
    for number in 0..2 {
        let worker = Worker::new(number as usize, server.connect()?);
        clients.push((worker, Scribe::new(number, began)));
    }
    let range = Range::half_open(1, 100);
    let scan = Step::Scan { table: 0, range };
    for (worker, scribe) in &mut clients {
        scribe.begin(worker, Level::RepeatableRead)?;
        scribe.step(worker, &scan)?;
    }
    for ((worker, scribe), key) in clients.iter_mut().zip(10..) {
        let value = 1000 + key as u64;
        let insert = Step::Insert {
            table: 0,
            key,
            value,
        };
        scribe.step(worker, &insert)?;
    }
    let mut history = History {
        initial: workload.initial(),
        transactions: Vec::new(),
    };
    for (mut worker, mut scribe) in clients {
        scribe.commit(&mut worker)?;
        history.transactions.extend(scribe.into_transactions());
    }
    expect(&history, Level::RepeatableRead.into())?;
    let verdict = check(&history, Level::Serializable.into())?;
    ensure!(verdict.has(Class::G2), "not found: {verdict}");
    Ok(())
}

/// Every row that is updated by its key is hot, and a tenth of the transactions roll back. Rows
/// stay. The history does not have the order in which rows of one key came and went. With so many
/// meetings the search for it may give up.
fn grouped(settings: &'static str) -> Result<()> {
    let server = start(&[("deadlock_timeout", "10ms")])?;
    let mut workload = Workload {
        seed: 1,
        rollbacks: 10,
        registers: 4,
        slots: 16,
        ..Workload::default()
    };
    workload.weights.delete = 0;
    workload.weights.rekey = 0;
    let recording = Recording {
        workload,
        level: Level::ReadCommitted,
        clients: 16,
        blind: 0,
        declares: 0,
        tables: "",
        transactions: TRANSACTIONS,
        settings,
    };
    let (history, tally) = recording.run(&server)?;
    tally.only(&RETRY)?;
    expect_committed(&history, 200)?;
    let promise = Promise {
        level: Level::ReadCommitted,
        real_time: true,
    };
    expect(&history, promise)?;
    let mut client = server.connect()?;
    for column in ["followed", "cascades"] {
        let total = int(&mut client, &format!("SELECT {column} FROM txn.stats"))?;
        ensure!(total > 0, "txn.stats.{column} is 0 after {tally:?}");
    }
    drop(client);
    for (table, key) in TABLES {
        physical_health(&server, table, key)?;
    }
    Ok(())
}

#[test]
fn groups_keep_read_committed() -> Result<()> {
    grouped("SET txn.group_lock = on; SET txn.hot_threshold = 0")
}

#[test]
fn groups_keep_read_committed_when_followers_read_at_once() -> Result<()> {
    grouped(
        "SET txn.group_lock = on; SET txn.hot_threshold = 0; \
         SET txn.follower_reads = immediate",
    )
}
