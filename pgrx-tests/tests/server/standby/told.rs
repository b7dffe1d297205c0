//! What the clients of the load do, what they are told, and whether it is so.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use anyhow::{Result, ensure};
use postgres::Error;
use postgres::error::SqlState;
use rand::Rng;
use txn_server_tests::{Done, Tally, Worker, int};

use super::AUTO;

/// The first clients of the load only read.
pub const READERS: usize = 6;

/// Answers to a COMMIT that has failed.
const RETRY: [SqlState; 2] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
];

/// Both tables, in one snapshot.
const LOOK: &str = "
    SELECT balance, autos, (SELECT coalesce(sum(amount), 0)::bigint FROM ledger),
           (SELECT count(*) FROM ledger),
           ARRAY(SELECT id FROM ledger ORDER BY seq DESC LIMIT 20),
           (SELECT autos FROM account WHERE id = 2)
    FROM account WHERE id = 1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    Failed,
    /// COMMIT was sent, and not answered.
    InDoubt,
}

/// The most that a completed reader has been told.
#[derive(Debug, Default)]
struct Seen {
    reads: usize,
    autos: i64,
    rows: i64,
    ids: BTreeSet<i64>,
}

#[derive(Default)]
pub struct Told {
    /// No standby can be reached.
    away: AtomicBool,
    /// Updates made while none could be reached that have reached one since.
    marks: AtomicI64,
    /// Of the transactions that insert into the ledger, by the id of their row.
    fates: Mutex<BTreeMap<i64, Fate>>,
    seen: Mutex<Seen>,
    wrong: Mutex<Vec<String>>,
}

pub struct Look {
    balance: i64,
    pub autos: i64,
    sum: i64,
    rows: i64,
    newest: Vec<i64>,
    marks: i64,
}

impl Look {
    /// Looks at both tables with any client.
    pub fn at(client: &mut impl postgres::GenericClient) -> Result<Self, Error> {
        let row = client.query_one(LOOK, &[])?;
        Ok(Look {
            balance: row.get(0),
            autos: row.get(1),
            sum: row.get(2),
            rows: row.get(3),
            newest: row.get(4),
            marks: row.get(5),
        })
    }

    pub fn is_consistent(&self) -> Result<()> {
        ensure!(
            self.balance == self.autos + self.sum,
            "balance {} with {} single updates and a ledger of {}",
            self.balance,
            self.autos,
            self.sum
        );
        Ok(())
    }
}

impl Told {
    /// From now on nobody may be told of a new commit.
    pub fn away(&self) {
        self.away.store(true, Ordering::SeqCst);
    }

    /// From now on that is so no more, and the row of marks may have one more.
    pub fn back(&self) {
        self.marks.fetch_add(1, Ordering::SeqCst);
        self.away.store(false, Ordering::SeqCst);
    }

    fn is_away(&self) -> bool {
        self.away.load(Ordering::SeqCst)
    }

    fn wrong(&self, text: impl Into<String>) {
        let mut wrong = self.wrong.lock().expect("nobody panics with it");
        wrong.push(text.into());
    }

    /// Error if a client was told something that cannot be.
    pub fn check(&self) -> Result<()> {
        let wrong = self.wrong.lock().expect("nobody panics with it");
        ensure!(
            wrong.is_empty(),
            "{} wrong answers, the first: {}",
            wrong.len(),
            wrong[0]
        );
        Ok(())
    }

    /// One transaction of a client of the load.
    pub fn transaction(&self, worker: &mut Worker) -> Result<Done, Error> {
        let away = self.is_away();
        let done = match worker.number {
            reader if reader < READERS => self.read(worker),
            single if single % 2 == 0 => worker.committing(1, |worker| worker.execute(AUTO, &[])),
            _ => self.spend(worker),
        };
        if away && matches!(done, Ok(Done::Committed(1))) && self.is_away() {
            self.wrong("a transaction was acknowledged that no standby has");
        }
        done
    }

    /// The hot row and the ledger in one transaction, some of which roll back.
    fn spend(&self, worker: &mut Worker) -> Result<Done, Error> {
        let id = (worker.number * 1_000_000 + worker.attempt) as i64;
        let amount = worker.rng.random_range(1..10i64);
        worker.begin()?;
        let update = "UPDATE account SET balance = balance + $1 WHERE id = 1";
        worker.execute(update, &[&amount])?;
        let insert = "INSERT INTO ledger (id, amount) VALUES ($1, $2)";
        worker.execute(insert, &[&id, &amount])?;
        if worker.chance(10) {
            return worker.rollback();
        }
        let tell = |fate| {
            self.fates
                .lock()
                .expect("nobody panics with it")
                .insert(id, fate)
        };
        tell(Fate::InDoubt);
        let result = worker.commit(1);
        match &result {
            Ok(_) => tell(Fate::Acknowledged),
            Err(error) if error.code().is_some_and(|code| RETRY.contains(code)) => {
                tell(Fate::Failed)
            }
            Err(_) => None,
        };
        result
    }

    /// A statement of its own, or two in a block at either level.
    fn read(&self, worker: &mut Worker) -> Result<Done, Error> {
        let looks = match worker.number % 3 {
            0 => vec![Look::at(&mut worker.client)?],
            level => {
                let level = ["READ COMMITTED", "REPEATABLE READ"][level - 1];
                worker.simple(&format!("BEGIN ISOLATION LEVEL {level}"))?;
                let looks = [Look::at(&mut worker.client)?, Look::at(&mut worker.client)?];
                worker.commit(0)?;
                looks.into()
            }
        };
        for look in looks {
            self.see(&look);
        }
        Ok(Done::Committed(0))
    }

    /// A reader has completed.
    fn see(&self, look: &Look) {
        if look.marks > self.marks.load(Ordering::SeqCst) {
            self.wrong("a reader was told of a transaction that no standby has");
        }
        if let Err(error) = look.is_consistent() {
            self.wrong(error.to_string());
        }
        let mut seen = self.seen.lock().expect("nobody panics with it");
        seen.reads += 1;
        seen.autos = seen.autos.max(look.autos);
        seen.rows = seen.rows.max(look.rows);
        seen.ids.extend(&look.newest);
    }

    /// Compares with what a server has after the load, of which `tally` is the account.
    pub fn compare(&self, client: &mut postgres::Client, tally: &Tally) -> Result<()> {
        self.check()?;
        let look = Look::at(client)?;
        look.is_consistent()?;
        tally.explains(look.autos + look.rows)?;
        let ids = client.query("SELECT id FROM ledger", &[])?;
        let ids: BTreeSet<i64> = ids.iter().map(|row| row.get(0)).collect();
        ensure!(ids.len() as i64 == look.rows, "ids are there twice");
        let fates = self.fates.lock().expect("nobody panics with it");
        for (id, fate) in fates.iter() {
            ensure!(
                *fate == Fate::InDoubt || ids.contains(id) == (*fate == Fate::Acknowledged),
                "transaction {id}: {fate:?}"
            );
        }
        let strange = ids.iter().find(|id| !fates.contains_key(id));
        ensure!(strange.is_none(), "nobody has committed {strange:?}");
        let seen = self.seen.lock().expect("nobody panics with it");
        ensure!(seen.reads > 0, "nobody has read");
        ensure!(
            seen.autos <= look.autos && seen.rows <= look.rows,
            "readers were told of {} single updates and {} rows; there are {} and {}",
            seen.autos,
            seen.rows,
            look.autos,
            look.rows
        );
        let lost = seen.ids.difference(&ids).next();
        ensure!(lost.is_none(), "a reader was told of row {lost:?}");
        Ok(())
    }
}

/// How often the row that is updated while no standby can be reached has been.
pub fn marks(client: &mut postgres::Client) -> Result<i64> {
    int(client, "SELECT autos FROM account WHERE id = 2")
}
