//! One client of a load.
use std::collections::HashMap;

use postgres::types::ToSql;
use postgres::{Client, Error, Row, Statement};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How a transaction of a load ended, if it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Confirmed, with this many effects.
    Committed(i64),
    /// Rolled back because the workload wanted it.
    RolledBack,
}

/// A client with its connection, its own random numbers, and what is at stake in its COMMIT.
pub struct Worker {
    /// 0, 1, 2 ... in the load.
    pub number: usize,
    /// 0, 1, 2 ... of this worker's transactions.
    pub attempt: usize,
    pub rng: SmallRng,
    pub client: Client,
    statements: HashMap<String, Statement>,
    committing: bool,
    at_stake: i64,
}

impl Worker {
    /// Client `number` with its connection.
    pub fn new(number: usize, client: Client) -> Self {
        Worker {
            number,
            attempt: 0,
            rng: SmallRng::seed_from_u64(number as u64),
            client,
            statements: HashMap::new(),
            committing: false,
            at_stake: 0,
        }
    }

    pub(crate) fn reconnected(&mut self, client: Client) {
        self.client = client;
        self.statements.clear();
    }

    /// The effects that were being committed when the transaction failed.
    pub(crate) fn take_stake(&mut self) -> i64 {
        let committing = std::mem::take(&mut self.committing);
        let stake = std::mem::take(&mut self.at_stake);
        if committing { stake } else { 0 }
    }

    /// True in `percent` of the calls.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.rng.random_range(0..limit)
    }

    /// Runs `sql` in the simple protocol.
    pub fn simple(&mut self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql)
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Runs `sql` as a prepared statement of this connection; the number of rows.
    pub fn execute(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<u64, Error> {
        let statement = self.statement(sql)?;
        self.client.execute(&statement, params)
    }

    /// As `execute`, and returns the rows.
    pub fn query(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        let statement = self.statement(sql)?;
        self.client.query(&statement, params)
    }

    pub fn begin(&mut self) -> Result<(), Error> {
        self.simple("BEGIN")
    }

    pub fn rollback(&mut self) -> Result<Done, Error> {
        self.simple("ROLLBACK")?;
        Ok(Done::RolledBack)
    }

    /// COMMIT of a transaction with `effects`.
    pub fn commit(&mut self, effects: i64) -> Result<Done, Error> {
        self.committing(effects, |worker| worker.simple("COMMIT"))
    }

    /// Runs what commits by itself (a single statement, a procedure) with `effects`: if its
    /// connection breaks, they are in doubt.
    pub fn committing<T>(
        &mut self,
        effects: i64,
        run: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Done, Error> {
        self.committing = true;
        self.at_stake = effects;
        run(self)?;
        self.committing = false;
        Ok(Done::Committed(effects))
    }
}
