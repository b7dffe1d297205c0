//! A client of a coordinator: prepared statements, each sent by itself.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use postgres::types::ToSql;
use postgres::{Client, Config, Error, NoTls, Statement};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::draws::Draws;
use super::load;
use super::transaction::{Kind, Step, Transaction, Value};
use super::workload::{Schema, Sizes};

/// Says that the next statement is the last one.
const LAST: &str = "SET LOCAL txn.geo_last = on";

/// How sessions of a variant work.
pub struct Manner {
    /// What each says first.
    pub settings: String,
    /// Before the last statement of a block it says that it is the last one.
    pub tells_last: bool,
}

pub struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
    tells_last: bool,
    draws: Draws,
    rng: SmallRng,
    transaction: Transaction,
    books: Vec<i64>,
    /// Of a node's books.
    columns: usize,
}

/// The random numbers of a client; all variants of a round draw alike.
pub fn random(round: usize, client: usize) -> SmallRng {
    SmallRng::seed_from_u64(round as u64 ^ ((client as u64) << 32))
}

impl Session {
    /// A session that is connected to all nodes.
    pub fn new(
        config: &Config,
        manner: &Manner,
        (schema, sizes): (&Schema, &Sizes),
        draws: Draws,
        rng: SmallRng,
    ) -> Result<Self> {
        let mut client = config.connect(NoTls)?;
        client.batch_execute(&manner.settings)?;
        client
            .batch_execute(&first_look(schema, sizes))
            .context("the first look at the nodes")?;
        Ok(Self {
            client,
            statements: HashMap::new(),
            tells_last: manner.tells_last,
            draws,
            rng,
            transaction: Transaction {
                steps: Vec::new(),
                effects: Vec::new(),
            },
            books: Vec::new(),
            columns: schema.columns.len(),
        })
    }

    fn run(&mut self) -> Result<Result<(), Error>> {
        let steps = &self.transaction.steps;
        let is_block = steps.len() > 1;
        let mut results = Vec::new();
        if is_block && let Err(error) = self.client.batch_execute("BEGIN") {
            return Ok(Err(error));
        }
        for (number, step) in steps.iter().enumerate() {
            let is_last = number + 1 == steps.len();
            if is_block
                && is_last
                && self.tells_last
                && let Err(error) = self.client.batch_execute(LAST)
            {
                return Ok(Err(error));
            }
            match send(&mut self.client, &mut self.statements, step, &results)? {
                Ok(result) => results.push(result),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(match is_block {
            true => self.client.batch_execute("COMMIT"),
            false => Ok(()),
        })
    }
}

impl load::Client for Session {
    fn draw(&mut self) {
        self.transaction = self.draws.draw(&mut self.rng);
    }

    fn attempt(&mut self) -> Result<Result<(), Error>> {
        let outcome = self.run()?;
        if outcome.is_ok() {
            self.transaction.apply(&mut self.books, self.columns);
        }
        Ok(outcome)
    }

    fn roll_back(&mut self) -> Result<()> {
        Ok(self.client.batch_execute("ROLLBACK")?)
    }

    fn effects(&self) -> Vec<i64> {
        self.books.clone()
    }
}

/// What a step returns, 0 if nothing. The outer error: it has done something else than it must.
fn send(
    client: &mut Client,
    statements: &mut HashMap<String, Statement>,
    step: &Step,
    results: &[i64],
) -> Result<Result<i64, Error>> {
    let statement = match statements.get(&step.sql) {
        Some(statement) => statement.clone(),
        None => match client.prepare(&step.sql) {
            Ok(statement) => {
                statements.insert(step.sql.clone(), statement.clone());
                statement
            }
            Err(error) => return Ok(Err(error)),
        },
    };
    let value = |value: &Value| match value {
        Value::Number(number) => *number,
        Value::From(step) => results[*step],
    };
    let values: Vec<i64> = step.values.iter().map(value).collect();
    let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
    let (found, result) = match step.kind {
        Kind::Writes(_) => match client.execute(&statement, &values) {
            Ok(rows) => (rows as usize, 0),
            Err(error) => return Ok(Err(error)),
        },
        Kind::Reads(_) | Kind::Returns => match client.query(&statement, &values) {
            Ok(rows) if step.kind == Kind::Returns && rows.len() == 1 => (1, rows[0].get(0)),
            Ok(rows) => (rows.len(), 0),
            Err(error) => return Ok(Err(error)),
        },
    };
    let wanted = match step.kind {
        Kind::Reads(rows) | Kind::Writes(rows) => rows,
        Kind::Returns => 1,
    };
    ensure!(
        found == wanted,
        "{found} rows and not {wanted}: {}",
        step.sql
    );
    Ok(Ok(result))
}

/// Reads a row of each node.
fn first_look(schema: &Schema, sizes: &Sizes) -> String {
    let table = &schema.tables[0];
    let firsts = (0..sizes.nodes as i64).map(|node| (node * (table.width)(sizes)).to_string());
    let firsts: Vec<String> = firsts.collect();
    let (name, key, firsts) = (table.name, table.key, firsts.join(", "));
    format!("SELECT * FROM {name} WHERE {key} IN ({firsts})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::place::DEFAULT;
    use crate::geo::workload::Kind;

    #[test]
    fn all_variants_of_a_round_draw_alike() {
        let sizes = Sizes {
            nodes: 4,
            rows: 1000,
            warehouses: 1,
        };
        let drawn = |round, client| {
            let draws = Draws::new(&DEFAULT, &sizes, client).unwrap();
            let mut rng = random(round, client);
            (0..20).map(|_| draws.draw(&mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, 5), drawn(1, 5));
        assert!(drawn(1, 5) != drawn(2, 5) && drawn(1, 5) != drawn(1, 6));
        assert_eq!(
            first_look(Kind::Ycsb.schema(), &sizes),
            "SELECT * FROM usertable WHERE id IN (0, 1000, 2000, 3000)"
        );
    }
}
