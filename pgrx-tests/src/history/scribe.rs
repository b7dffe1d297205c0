//! Writes down one client's transactions.
use std::time::Instant;

use history::{Event, Level, Op, Outcome, Plan, Step, Time, Transaction};
use postgres::Error;

use super::declare::declaration;
use super::sql::{execute, unanswered};
use crate::load::broken;
use crate::{Done, Worker};

/// One client's transactions so far. What fails is written down as well.
pub struct Scribe {
    client: u32,
    began: Instant,
    transactions: Vec<Transaction>,
}

impl Scribe {
    /// For client `client`; times count from `began`, the same for all clients.
    pub fn new(client: u32, began: Instant) -> Self {
        Scribe {
            client,
            began,
            transactions: Vec::new(),
        }
    }

    /// The whole of a transaction, which declares keys in `declares` percent of the cases.
    pub fn run(
        &mut self,
        worker: &mut Worker,
        level: Level,
        declares: u32,
        plan: &Plan,
    ) -> Result<Done, Error> {
        self.begin(worker, level)?;
        if declares > 0 && worker.chance(declares) {
            let declaration = declaration(worker, plan);
            worker.simple(&declaration)?;
        }
        for step in &plan.steps {
            self.step(worker, step)?;
        }
        match plan.roll_back {
            true => self.roll_back(worker),
            false => self.commit(worker),
        }
    }

    pub fn begin(&mut self, worker: &mut Worker, level: Level) -> Result<(), Error> {
        let level = match level {
            Level::ReadCommitted => "READ COMMITTED",
            Level::RepeatableRead => "REPEATABLE READ",
            Level::Serializable => "SERIALIZABLE",
        };
        let invoked = self.now();
        worker.simple(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        self.transactions.push(Transaction {
            client: self.client,
            invoked,
            completed: invoked,
            // Until COMMIT was answered.
            outcome: Outcome::Aborted,
            events: Vec::new(),
        });
        Ok(())
    }

    /// One operation of the transaction that was begun.
    pub fn step(&mut self, worker: &mut Worker, step: &Step) -> Result<(), Error> {
        let invoked = self.now();
        let result = execute(worker, step);
        let completed = self.now();
        let mut note = |op: Op| {
            if let Some(transaction) = self.transactions.last_mut() {
                transaction.events.push(Event {
                    invoked,
                    completed,
                    op,
                });
                transaction.completed = completed;
            }
        };
        match result {
            Ok(op) => note(op),
            Err(error) => {
                unanswered(step).map(note);
                return Err(error);
            }
        }
        Ok(())
    }

    /// COMMIT; a connection that breaks in it leaves the outcome unknown.
    pub fn commit(&mut self, worker: &mut Worker) -> Result<Done, Error> {
        let result = worker.commit(1);
        self.end(match &result {
            Ok(_) => Outcome::Committed,
            Err(error) if broken(error) => Outcome::Unknown,
            Err(_) => Outcome::Aborted,
        });
        result
    }

    pub fn roll_back(&mut self, worker: &mut Worker) -> Result<Done, Error> {
        let result = worker.rollback();
        self.end(Outcome::Aborted);
        result
    }

    pub fn into_transactions(self) -> Vec<Transaction> {
        self.transactions
    }

    fn end(&mut self, outcome: Outcome) {
        let completed = self.now();
        if let Some(transaction) = self.transactions.last_mut() {
            transaction.outcome = outcome;
            transaction.completed = completed;
        }
    }

    fn now(&self) -> Time {
        self.began.elapsed().as_nanos() as Time
    }
}
