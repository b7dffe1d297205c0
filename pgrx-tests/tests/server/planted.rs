//! The checks find what they are for. With a fault planted in the server the check fails, on a
//! schedule on which it passes without the fault. `txn.planted_fault` plants it, in a library with
//! the feature `planted_faults`.
use std::collections::BTreeSet;
use std::ops::Bound;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use history::{Event, History, Level, Op, Promise, Range, Step, Transaction, Workload, check};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::history::{Scribe, create};
use txn_server_tests::{
    Watchdog, Worker, expect_followed, grouped, local, physical_health, pid, read, start_hot, until,
};

use crate::{by_key, definitions, hot_chain, late_snapshot, validated_reads, visibility};

/// A fault, and the check that has to find it.
struct Case {
    fault: &'static str,
    settings: &'static [(&'static str, &'static str)],
    check: fn(&Server) -> Result<()>,
    /// What the check says then.
    finds: &'static str,
}

const TXN_HEAP: (&str, &str) = ("default_table_access_method", "txn_heap");
const ONE_SLOT: [(&str, &str); 3] = [
    TXN_HEAP,
    ("txn.range_buckets", "1"),
    ("txn.range_slots", "1"),
];

const ORDER_BY_HISTORY: Case = Case {
    fault: "commit_order_not_kept",
    settings: &[],
    check: |server| keeps_read_committed(&followed(server, Leader::Commits)?),
    finds: "saw list 0 without",
};
const ORDER_BY_HEALTH: Case = Case {
    fault: "commit_order_not_kept",
    settings: &[],
    check: |server| {
        followed(server, Leader::RollsBack)?;
        physical_health(server, "lists", "id")
    },
    finds: "table lists after the load",
};
const DOOMED_BY_HISTORY: Case = Case {
    fault: "doomed_follower_commits",
    settings: &[],
    check: |server| keeps_read_committed(&followed(server, Leader::RollsBack)?),
    finds: "saw list 0 without",
};
const DOOMED_BY_HEALTH: Case = Case {
    fault: "doomed_follower_commits",
    settings: &[],
    check: ORDER_BY_HEALTH.check,
    finds: "table lists after the load",
};
const READER: Case = Case {
    fault: "reader_not_dependent",
    settings: &[],
    check: |server| keeps_read_committed(&refused_by_its_condition(server)?),
    finds: "G1a",
};
const READ_GUARD: Case = Case {
    fault: "read_guard_off",
    settings: &[],
    check: |server| visibility::read_guard(server, grouped),
    finds: "did not wait",
};
const READS: Case = Case {
    fault: "reads_not_validated",
    settings: &[validated_reads::AT_ONCE],
    check: validated_reads::a_late_write_refuses,
    finds: "the reader was told 00000",
};
const MISSED_ROWS: Case = Case {
    fault: "missed_rows_forgotten",
    settings: &[],
    check: by_key::finds_its_row,
    finds: "did not wait",
};
const VERSIONS: Case = Case {
    fault: "versions_passed_over",
    settings: &[],
    check: hot_chain::a_cursor,
    finds: "FETCH gave []",
};
const LATE_SNAPSHOT: Case = Case {
    fault: "early_snapshot_kept",
    settings: &[],
    check: late_snapshot::follows_and_queries,
    finds: "the snapshot does not show",
};
const DEFINITIONS: Case = Case {
    fault: "definitions_forgotten",
    settings: &[],
    check: definitions::a_hidden_table,
    finds: "told 00000",
};
const EVICTION: Case = Case {
    fault: "eviction_ignored",
    settings: &ONE_SLOT,
    check: |server| is_serializable(&skew(server, Overwritten::Yes)?),
    finds: "G2",
};
const PREDICATE: Case = Case {
    fault: "predicate_narrowed",
    settings: &[TXN_HEAP],
    check: |server| is_serializable(&skew(server, Overwritten::No)?),
    finds: "G2",
};
const REGISTRATION: Case = Case {
    fault: "not_registered",
    settings: &[TXN_HEAP],
    check: |server| is_serializable(&skew(server, Overwritten::No)?),
    finds: "G2",
};

const ALL: [&Case; 14] = [
    &ORDER_BY_HISTORY,
    &ORDER_BY_HEALTH,
    &DOOMED_BY_HISTORY,
    &DOOMED_BY_HEALTH,
    &READER,
    &READ_GUARD,
    &READS,
    &MISSED_ROWS,
    &VERSIONS,
    &LATE_SNAPSHOT,
    &DEFINITIONS,
    &EVICTION,
    &PREDICATE,
    &REGISTRATION,
];

/// No check finds this one, because another one makes up for it:
/// `dependent::a_followers_own_check_is_enough`.
const MADE_UP_FOR: &str = "leader_does_not_restore";

/// The check passes without the fault and finds it.
fn is_found(case: &Case) -> Result<()> {
    checked(case, "none").context("without the fault")?;
    let Err(found) = checked(case, case.fault) else {
        bail!("{} is not found", case.fault);
    };
    let found = format!("{found:#}");
    ensure!(
        found.contains(case.finds),
        "not what it should find (\"{}\"): {found}",
        case.finds
    );
    Ok(())
}

fn checked(case: &Case, fault: &str) -> Result<()> {
    let planted = [("txn.planted_fault", fault)];
    let server = start_hot(2, &[case.settings, &planted[..]].concat())?;
    let dog = Watchdog::new(&server);
    dog.finish((case.check)(&server))
}

/// How the transaction ends on which another has built.
enum Leader {
    Commits,
    RollsBack,
}

/// A client of a schedule.
struct Player {
    worker: Worker,
    scribe: Scribe,
    pid: i32,
    level: Level,
}

/// The clients of a schedule, on tables that are empty of what it writes.
struct Players {
    began: Instant,
    clients: u32,
    /// Those whose transactions belong to the history.
    players: Vec<Player>,
}

impl Players {
    fn new(server: &Server) -> Result<Self> {
        create(&mut server.connect()?, &Workload::default(), 1)?;
        Ok(Players {
            began: Instant::now(),
            clients: 0,
            players: Vec::new(),
        })
    }

    fn add(&mut self, mut client: Client, level: Level) -> Result<Player> {
        let number = self.clients;
        self.clients += 1;
        let pid = pid(&mut client)?;
        Ok(Player {
            worker: Worker::new(number as usize, client),
            scribe: Scribe::new(number, self.began),
            pid,
            level,
        })
    }

    fn into_history(self) -> History {
        let transactions = self.players.into_iter();
        History {
            initial: Workload::default().initial(),
            transactions: transactions
                .flat_map(|player| player.scribe.into_transactions())
                .collect(),
        }
    }
}

impl Player {
    fn begin(&mut self) -> Result<()> {
        Ok(self.scribe.begin(&mut self.worker, self.level)?)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        Ok(self.scribe.step(&mut self.worker, step)?)
    }

    /// COMMIT, whatever comes of it.
    fn commit(&mut self) {
        let committed = self.scribe.commit(&mut self.worker);
        if committed.is_err() {
            // It is over already.
            let _ = self.worker.simple("ROLLBACK");
        }
    }

    fn roll_back(&mut self) -> Result<()> {
        self.scribe.roll_back(&mut self.worker)?;
        Ok(())
    }

    /// A transaction of one step.
    fn run(&mut self, step: &Step) -> Result<()> {
        self.begin()?;
        self.step(step)?;
        self.commit();
        Ok(())
    }
}

/// Lets `waiter` commit; when it has, or waits, `meanwhile` happens.
fn commit_beside(
    control: &mut Client,
    waiter: &mut Player,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let waits = format!(
        "SELECT count(*) > 0 FROM txn.waits WHERE pid = {}",
        waiter.pid
    );
    thread::scope(|scope| {
        let commit = scope.spawn(|| waiter.commit());
        let settled = until(control, "the follower has committed or waits", |control| {
            Ok(commit.is_finished() || read(control, &waits)?)
        });
        settled.and(meanwhile())
    })
}

/// T2 builds on what T1 has appended, and wants to commit first.
fn followed(server: &Server, leader: Leader) -> Result<History> {
    let mut control = server.connect()?;
    let mut players = Players::new(server)?;
    let mut first = players.add(grouped(server)?, Level::ReadCommitted)?;
    let mut second = players.add(grouped(server)?, Level::ReadCommitted)?;
    let mut reader = players.add(server.connect()?, Level::ReadCommitted)?;
    first.begin()?;
    first.step(&Step::Append {
        list: 0,
        value: 1001,
    })?;
    second.begin()?;
    second.step(&Step::Append {
        list: 0,
        value: 1002,
    })?;
    expect_followed(&mut control, 1)?;
    commit_beside(&mut control, &mut second, || {
        reader.run(&Step::ReadList { list: 0 })?;
        match leader {
            Leader::Commits => first.commit(),
            Leader::RollsBack => first.roll_back()?,
        }
        Ok(())
    })?;
    reader.run(&Step::ReadList { list: 0 })?;
    players.players.extend([first, second, reader]);
    Ok(players.into_history())
}

/// T2's UPDATE comes to the row that T1 has changed, and its condition refuses it: T2 knows what T1
/// has written.
fn refused_by_its_condition(server: &Server) -> Result<History> {
    let mut control = server.connect()?;
    let mut players = Players::new(server)?;
    let mut first = players.add(grouped(server)?, Level::ReadCommitted)?;
    let mut second = players.add(grouped(server)?, Level::ReadCommitted)?;
    first.begin()?;
    let (register, value) = (0, 1001);
    first.step(&Step::Write { register, value })?;
    second.begin()?;
    let refused = "UPDATE registers SET val = 1002 WHERE id = 0 AND val IS DISTINCT FROM 1001";
    let rows = second.worker.execute(refused, &[])?;
    ensure!(rows == 0, "it was not refused");
    commit_beside(&mut control, &mut second, || first.roll_back())?;
    players.players.extend([first, second]);
    let mut history = players.into_history();
    let learned = Op::Read {
        register,
        value: Some(value),
    };
    learns(history.transactions.last_mut(), learned)?;
    Ok(history)
}

/// The transaction has learned that while it ran.
fn learns(transaction: Option<&mut Transaction>, op: Op) -> Result<()> {
    let transaction = transaction.context("a transaction")?;
    transaction.events.push(Event {
        invoked: transaction.invoked,
        completed: transaction.completed,
        op,
    });
    Ok(())
}

/// Whether a third transaction overwrites what T2 has registered.
#[derive(PartialEq, Eq)]
enum Overwritten {
    Yes,
    No,
}

/// T1 and T2 look at a range each and see nothing, and each inserts a row where the other has
/// looked: T2 as the last key of its range.
fn skew(server: &Server, overwritten: Overwritten) -> Result<History> {
    let mut players = Players::new(server)?;
    let mut validated = || -> Result<Player> {
        let mut client = server.connect()?;
        client.batch_execute("SET txn.range_occ = on; SET enable_seqscan = off")?;
        players.add(client, Level::RepeatableRead)
    };
    let (mut first, mut second) = (validated()?, validated()?);
    let (mut third, mut reader) = (validated()?, validated()?);
    let table = 0;
    let scan = |first, last| Step::Scan {
        table,
        range: Range {
            lower: Bound::Included(first),
            upper: Bound::Included(last),
        },
    };
    let insert = |key, value| Step::Insert { table, key, value };
    for (player, step) in [(&mut first, scan(1, 10)), (&mut second, scan(21, 30))] {
        player.begin()?;
        player.step(&step)?;
    }
    second.step(&insert(10, 1010))?;
    second.commit();
    if overwritten == Overwritten::Yes {
        third.run(&insert(50, 1050))?;
    }
    first.step(&insert(25, 1025))?;
    first.commit();
    reader.run(&scan(1, 50))?;
    players.players.extend([first, second, third, reader]);
    Ok(players.into_history())
}

fn keeps_read_committed(history: &History) -> Result<()> {
    let promise = Promise {
        level: Level::ReadCommitted,
        real_time: true,
    };
    keeps(history, promise)
}

fn is_serializable(history: &History) -> Result<()> {
    keeps(history, Promise::STRICT)
}

fn keeps(history: &History, promise: Promise) -> Result<()> {
    let verdict = check(history, promise)?;
    ensure!(verdict.holds(), "{promise:?}: {verdict}");
    Ok(())
}

#[test]
fn a_commit_before_its_predecessor_is_found_by_the_history() -> Result<()> {
    is_found(&ORDER_BY_HISTORY)
}

#[test]
fn a_commit_before_its_predecessor_is_found_by_the_physical_check() -> Result<()> {
    is_found(&ORDER_BY_HEALTH)
}

#[test]
fn a_doomed_follower_that_commits_is_found_by_the_history() -> Result<()> {
    is_found(&DOOMED_BY_HISTORY)
}

#[test]
fn a_doomed_follower_that_commits_is_found_by_the_physical_check() -> Result<()> {
    is_found(&DOOMED_BY_HEALTH)
}

#[test]
fn a_reader_that_does_not_depend_on_its_writer_is_found_by_the_history() -> Result<()> {
    is_found(&READER)
}

#[test]
fn a_read_guard_that_is_off_is_found_by_the_test_of_visibility() -> Result<()> {
    is_found(&READ_GUARD)
}

#[test]
fn reads_that_are_not_validated_are_found() -> Result<()> {
    is_found(&READS)
}

#[test]
fn a_row_that_is_missed_is_found() -> Result<()> {
    is_found(&MISSED_ROWS)
}

#[test]
fn versions_that_are_passed_over_are_found() -> Result<()> {
    is_found(&VERSIONS)
}

#[test]
fn definitions_that_are_forgotten_are_found() -> Result<()> {
    is_found(&DEFINITIONS)
}

#[test]
fn a_snapshot_that_is_not_taken_again_is_found() -> Result<()> {
    is_found(&LATE_SNAPSHOT)
}

#[test]
fn an_eviction_that_is_ignored_is_found_by_the_history() -> Result<()> {
    is_found(&EVICTION)
}

#[test]
fn a_predicate_that_is_narrowed_is_found_by_the_history() -> Result<()> {
    is_found(&PREDICATE)
}

#[test]
fn a_write_that_is_not_registered_is_found_by_the_history() -> Result<()> {
    is_found(&REGISTRATION)
}

/// No fault is without a check that finds it.
#[test]
fn every_fault_has_its_check() -> Result<()> {
    let server = start_hot(1, &[])?;
    let known = "SELECT enumvals::text[] FROM pg_settings WHERE name = 'txn.planted_fault'";
    let known: Vec<String> = read(&mut local(&server)?, known)
        .context("the library has to be built with --features planted_faults")?;
    let known = known
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "none");
    let found = ALL.iter().map(|case| case.fault).chain([MADE_UP_FOR]);
    let (known, found): (BTreeSet<_>, BTreeSet<_>) = (known.collect(), found.collect());
    ensure!(known == found, "{known:?}, but {found:?} are looked for");
    Ok(())
}
