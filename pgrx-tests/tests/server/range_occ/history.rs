//! Random transactions, validated, against Serializable; and the proof that their workload would
//! show what is missing.
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, bail, ensure};
use history::{Class, History, Level, Op, Promise, Workload, check};
use pgserver::Server;
use txn_server_tests::history::{Recording, TABLES, expect, expect_committed};
use txn_server_tests::{int, physical_health, start};

/// The tables are small: without these every read would be one of the whole table.
const VALIDATED: &str = "SET txn.range_occ = on; SET enable_seqscan = off";
const STOCK: &str = "SET enable_seqscan = off";

/// The errors after which a client tries again:
/// - 40001: the validation refuses, or PostgreSQL itself for a row that was updated after the
///   snapshot;
/// - 40P01: transactions that change rows in any order are in a deadlock;
/// - 23505: a key is taken.
const RETRY: [&str; 3] = ["40001", "40P01", "23505"];

const PROMISE: Promise = Promise {
    level: Level::Serializable,
    real_time: true,
};

/// With the exclusion window: who stands before others need not stand where it did in time.
const ANY_TIME: Promise = Promise {
    level: Level::Serializable,
    real_time: false,
};

/// A server with the exclusion window, as it is by default.
fn server(settings: &[(&str, &str)]) -> Result<Server> {
    let mut all = vec![("default_table_access_method", "txn_heap")];
    all.extend(settings);
    start(&all)
}

/// A server without.
fn strict_server(settings: &[(&str, &str)]) -> Result<Server> {
    server(&[settings, &[("txn.range_window", "off")]].concat())
}

fn recording(seed: u64) -> Recording {
    Recording {
        workload: Workload {
            seed,
            ..Workload::default()
        },
        level: Level::RepeatableRead,
        clients: 8,
        blind: 0,
        declares: 0,
        transactions: 150,
        tables: "",
        settings: VALIDATED,
    }
}

/// Records and checks, with the exclusion window and without; so many have to commit, and these
/// counters of `txn.stats` have to move.
fn run(
    settings: &[(&str, &str)],
    recording: &Recording,
    committed: usize,
    moves: &[&str],
) -> Result<()> {
    for promise in [ANY_TIME, PROMISE] {
        let server = match promise.real_time {
            false => server(settings)?,
            true => strict_server(settings)?,
        };
        record(&server, recording, committed, promise)?;
        moved(&server, moves)?;
        healthy(&server)?;
    }
    Ok(())
}

fn record(
    server: &Server,
    recording: &Recording,
    committed: usize,
    promise: Promise,
) -> Result<()> {
    let (mut history, tally) = recording.run(server)?;
    tally.only(&RETRY)?;
    expect_committed(&history, committed)?;
    let everybody = recording.clients + recording.blind;
    readers_stand_where_they_like(&mut history, everybody);
    expect(&history, promise)?;
    moved(server, &["range_validated"])
}

/// Fails unless these counters of `txn.stats` have moved.
fn moved(server: &Server, counters: &[&str]) -> Result<()> {
    let mut client = server.connect()?;
    for counter in counters {
        let moved = int(&mut client, &format!("SELECT {counter} FROM txn.stats"))?;
        ensure!(moved > 0, "txn.stats.{counter} has not moved");
    }
    Ok(())
}

/// A transaction that only reads may stand before transactions that it missed, as they had not
/// ended, and so before others that had. So it is not held to the time of its beginning. All others
/// are, and so is the client `last`, which reads everything in the end.
fn readers_stand_where_they_like(history: &mut History, last: u32) {
    for transaction in &mut history.transactions {
        let has_written = transaction.events.iter().any(|event| match event.op {
            Op::Update { replaced, .. } | Op::Rekey { replaced, .. } => replaced.is_some(),
            Op::Delete { removed, .. } => removed.is_some(),
            ref op => !op.is_read(),
        });
        if !has_written && transaction.client != last {
            transaction.invoked = 0;
        }
    }
}

fn healthy(server: &Server) -> Result<()> {
    for (table, key) in TABLES {
        physical_health(server, table, key)?;
    }
    Ok(())
}

#[test]
fn ranges_of_one_key() -> Result<()> {
    let tables = "SELECT txn.partition_by_range(t, width => 1) FROM unnest('{lists, registers, ranges_0}'::regclass[]) t";
    let recording = Recording {
        tables,
        ..recording(1)
    };
    run(&[], &recording, 200, &[])
}

#[test]
fn ranges_by_default() -> Result<()> {
    run(&[], &recording(2), 200, &[])
}

#[test]
fn one_range() -> Result<()> {
    let tables = "SELECT txn.partition_by_range(t, ranges => 1) FROM unnest('{lists, registers, ranges_0}'::regclass[]) t";
    let recording = Recording {
        tables,
        ..recording(3)
    };
    run(&[], &recording, 200, &[])
}

/// Ranges as wide as the scans are.
#[test]
fn ranges_of_some_keys() -> Result<()> {
    let tables = "SELECT txn.partition_by_range('ranges_0', width => 4 * 4294967296)";
    let recording = Recording {
        tables,
        ..recording(4)
    };
    run(&[], &recording, 200, &[])
}

/// A transaction that may have missed what was overwritten fails.
#[test]
fn rings_that_overflow() -> Result<()> {
    let rings = [("txn.range_buckets", "2"), ("txn.range_slots", "2")];
    run(&rings, &recording(5), 30, &["range_history_lost"])
}

/// Most only read, and every scan is of a whole table: they are validated by what they have copied
/// of the rings.
fn reading(seed: u64) -> Recording {
    let mut recording = recording(seed);
    recording.workload.read_only = 70;
    Recording {
        settings: "SET txn.range_occ = on",
        blind: 2,
        ..recording
    }
}

#[test]
fn readers_of_whole_tables_beside_overflow() -> Result<()> {
    let rings = [("txn.range_buckets", "4"), ("txn.range_slots", "4")];
    run(&rings, &reading(31), 200, &[])
}

/// With the exclusion window; some have to stand before others that they missed.
fn window(settings: &[(&str, &str)], recording: &Recording, committed: usize) -> Result<()> {
    let server = server(settings)?;
    record(&server, recording, committed, ANY_TIME)?;
    moved(&server, &["range_moved"])?;
    healthy(&server)
}

#[test]
fn a_window_over_ranges_by_default() -> Result<()> {
    window(&[], &recording(21), 200)
}

#[test]
fn a_window_over_ranges_of_one_key() -> Result<()> {
    let tables = "SELECT txn.partition_by_range(t, width => 1) FROM unnest('{lists, registers, ranges_0}'::regclass[]) t";
    let recording = Recording {
        tables,
        ..recording(22)
    };
    window(&[], &recording, 200)
}

#[test]
fn a_window_over_rings_that_overflow() -> Result<()> {
    let rings = [("txn.range_buckets", "2"), ("txn.range_slots", "8")];
    window(&rings, &recording(23), 30)
}

#[test]
fn a_window_and_readers_of_whole_tables_beside_overflow() -> Result<()> {
    let rings = [("txn.range_buckets", "4"), ("txn.range_slots", "16")];
    window(&rings, &reading(32), 100)
}

#[test]
fn a_window_beside_blind_writers() -> Result<()> {
    let recording = Recording {
        blind: 3,
        ..recording(24)
    };
    window(&[], &recording, 200)
}

/// Beside writers at READ COMMITTED that read nothing.
#[test]
fn beside_blind_writers() -> Result<()> {
    let recording = Recording {
        blind: 3,
        ..recording(6)
    };
    run(&[], &recording, 200, &[])
}

#[test]
fn beside_blind_writers_and_overflow() -> Result<()> {
    let rings = [("txn.range_buckets", "1"), ("txn.range_slots", "8")];
    let recording = Recording {
        blind: 3,
        ..recording(7)
    };
    run(&rings, &recording, 30, &[])
}

/// Blind writers that follow each other on hot rows.
#[test]
fn beside_groups() -> Result<()> {
    let recording = Recording {
        blind: 4,
        settings: "SET txn.range_occ = on; SET enable_seqscan = off; SET txn.group_lock = on; SET txn.hot_threshold = 0",
        ..recording(8)
    };
    let soon = [("deadlock_timeout", "10ms")];
    run(&soon, &recording, 200, &["followed"])
}

/// Narrow scans and single rows only, many of them: what is refused for nothing shows as well.
/// Declarations, complete ones and wrong ones, change nothing about the promise.
#[test]
fn with_declarations() -> Result<()> {
    let recording = Recording {
        declares: 70,
        blind: 2,
        ..recording(31)
    };
    run(
        &[],
        &recording,
        200,
        &["lane_taken", "lane_waits", "lane_drains"],
    )
}

#[test]
fn narrow_scans() -> Result<()> {
    let mut recording = recording(9);
    recording.workload.widths = vec![1, 2];
    recording.workload.slots = 256;
    recording.workload.registers = 64;
    recording.workload.lists = 32;
    run(&[], &recording, 700, &[])
}

/// What sessions know of tables is thrown away all the time.
#[test]
fn in_a_storm_of_invalidations() -> Result<()> {
    let server = server(&[])?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let storm = scope.spawn(|| -> Result<usize> {
            let mut client = server.connect()?;
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                for (table, _) in TABLES {
                    // The tables may not be there yet.
                    let there = format!("SELECT (to_regclass('{table}') IS NOT NULL)::int");
                    if int(&mut client, &there)? == 1 {
                        let column = if table == "lists" { "vals" } else { "val" };
                        let target = rounds % 100;
                        client.batch_execute(&format!(
                            "ANALYZE {table}; \
                             ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS {target}"
                        ))?;
                    }
                }
                rounds += 1;
            }
            Ok(rounds)
        });
        let result = record(&server, &recording(10), 100, ANY_TIME);
        over.store(true, Ordering::Relaxed);
        match storm.join() {
            Ok(rounds) => ensure!(rounds? > 1, "there was no storm"),
            Err(_) => bail!("the storm panicked"),
        }
        result
    })?;
    healthy(&server)
}

/// Without validation the load has cycles of dependencies: the search for them needs the whole
/// history.
#[test]
fn stock_repeatable_read_does_not_pass() -> Result<()> {
    let mut seen = Vec::new();
    for seed in 1..=5 {
        let server = server(&[])?;
        let mut recording = recording(seed);
        recording.settings = STOCK;
        // PostgreSQL lets a snapshot insert over a removal that it does not see.
        recording.workload.weights.delete = 0;
        recording.workload.weights.rekey = 0;
        let (history, tally) = recording.run(&server)?;
        tally.only(&RETRY)?;
        expect(&history, Level::RepeatableRead.into())?;
        let verdict = check(&history, PROMISE)?;
        if verdict.has(Class::G2) || verdict.has(Class::G2Item) {
            return Ok(());
        }
        seen.push(verdict.to_string());
    }
    bail!("no write skew was found: {seen:?}")
}
