//! Every kind of statement that can touch a hot row, by many sessions at once.

mod again;
mod beside;
mod decoding;
mod fairness;
mod keys;
mod locks;
mod references;
mod routed;
mod rows;
mod tables;
mod together;
mod triggers;
mod upserts;

use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::{Error, SimpleQueryMessage};
use rand::Rng;
use txn_server_tests::{Done, Load, Running, Worker, int};

const GROUP: &str = "SET txn.group_lock = on; SET txn.hot_threshold = 1";
/// Where transactions roll back: 40001 for who has followed one, 40P01 for a wait that would have
/// closed a cycle.
const RETRY: [&str; 2] = ["40001", "40P01"];
const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

/// Sessions with all settings, the feature off among them.
fn settings(number: usize) -> String {
    match number % 8 {
        3 | 7 => "SET txn.group_lock = off".to_owned(),
        5 => "SET txn.queue_lock = on; SET txn.hot_threshold = 1".to_owned(),
        6 => format!("{GROUP}; SET txn.follower_reads = immediate"),
        _ => GROUP.to_owned(),
    }
}

/// A load in which each transaction is either a plain update of the hot row or one of the shape
/// under test: first without rollbacks, when nobody has to try again, then with them. Somebody has
/// to follow in each.
struct Mix<'a> {
    server: &'a Server,
    plain: &'static str,
    value: &'static str,
    codes: &'static [&'static str],
    blocks: bool,
    follows: bool,
}

impl<'a> Mix<'a> {
    fn new(server: &'a Server) -> Self {
        Mix {
            server,
            plain: BUMP,
            value: "SELECT sum(val) FROM hot",
            codes: &[],
            blocks: false,
            follows: true,
        }
    }

    /// What the plain sessions run.
    fn plain(self, plain: &'static str) -> Self {
        Mix { plain, ..self }
    }

    /// What has to grow by the confirmed effects.
    fn value(self, value: &'static str) -> Self {
        Mix { value, ..self }
    }

    /// SQLSTATEs that are right even if nobody rolls back.
    fn allow(self, codes: &'static [&'static str]) -> Self {
        Mix { codes, ..self }
    }

    /// The shape has several statements: always in a transaction block.
    fn in_blocks(self) -> Self {
        Mix {
            blocks: true,
            ..self
        }
    }

    /// The table is one whose rows are updated one after the other: no transaction has to follow.
    fn in_turn(self) -> Self {
        Mix {
            follows: false,
            ..self
        }
    }

    /// Runs `shape`, which returns its effects.
    fn run(&self, shape: impl Fn(&mut Worker) -> Result<i64, Error> + Sync) -> Result<()> {
        self.run_beside(shape, |_| Ok(()))
    }

    /// As `run`, with `disturb` beside each load.
    fn run_beside(
        &self,
        shape: impl Fn(&mut Worker) -> Result<i64, Error> + Sync,
        disturb: impl Fn(&Running) -> Result<()>,
    ) -> Result<()> {
        for rollbacks in [0, 10] {
            let before = int(&mut self.server.connect()?, self.value)?;
            let mut load = Load::new(self.server, 24, 20).session(settings);
            if self.follows {
                load = load.moves("followed");
            }
            let transaction = |worker: &mut Worker| {
                let plain = worker.chance(40);
                let alone = (plain || !self.blocks) && worker.chance(50);
                if !alone {
                    worker.begin()?;
                }
                let effects = match plain {
                    true => either(worker, self.plain)?,
                    false => shape(worker)?,
                };
                if alone {
                    return Ok(Done::Committed(effects));
                }
                match worker.chance(rollbacks) {
                    true => worker.rollback(),
                    false => worker.commit(effects),
                }
            };
            let tally = load.run_disturbed(transaction, &disturb)?;
            let retry: &[&str] = if rollbacks > 0 { &RETRY } else { &[] };
            let context = || format!("with {rollbacks} % rollbacks");
            tally
                .only(&[self.codes, retry].concat())
                .with_context(context)?;
            let after = int(&mut self.server.connect()?, self.value)?;
            tally.explains(after - before).with_context(context)?;
        }
        Ok(())
    }
}

/// Runs one statement in either protocol; the number of rows.
fn either(worker: &mut Worker, sql: &str) -> Result<i64, Error> {
    if worker.chance(50) {
        return worker.execute(sql, &[]).map(|rows| rows as i64);
    }
    let answer = worker.client.simple_query(sql)?;
    let rows = answer.iter().map(|message| match message {
        SimpleQueryMessage::CommandComplete(rows) => *rows as i64,
        _ => 0,
    });
    Ok(rows.sum())
}

/// One of the statements, at random.
fn one_of(worker: &mut Worker, statements: &[&str]) -> Result<i64, Error> {
    let n = worker.rng.random_range(0..statements.len());
    either(worker, statements[n])
}

/// Fails unless `sql` gives zero.
fn none(server: &Server, sql: &str) -> Result<()> {
    let found = int(&mut server.connect()?, sql)?;
    ensure!(found == 0, "{found} of: {sql}");
    Ok(())
}
