//! YCSB as GeoTP measures it: reads and writes of single rows, some transactions over two nodes.

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use super::place::At;
use super::transaction::{Kind, Step, Transaction, parameters};
use super::workload::{Schema, Sizes, Table};

pub static SCHEMA: Schema = Schema {
    name: "ycsb",
    tables: &[Table {
        name: "usertable",
        columns: "id bigint NOT NULL, value bigint NOT NULL, filler text, locked timestamptz",
        key: "id",
        width: |sizes| sizes.rows,
    }],
    fill: include_str!("../../geo/ycsb.sql"),
    books: "SELECT sum(value)::bigint, count(*) - count(DISTINCT id) FROM usertable",
    columns: &["updates", "rows that are there twice"],
    held: ("usertable", "id"),
};
const UPDATES: usize = 0;

/// An operation on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    id: i64,
    writes: bool,
}

pub struct Ycsb {
    zipf: Zipf<f64>,
    nodes: usize,
    rows: i64,
    operations: usize,
    batches: usize,
    distributed: u32,
}

impl Ycsb {
    pub fn new(at: &At, sizes: &Sizes) -> anyhow::Result<Self> {
        Ok(Self {
            zipf: Zipf::new(sizes.rows as f64, at.theta)?,
            nodes: sizes.nodes,
            rows: sizes.rows,
            operations: at.operations,
            batches: at.batches,
            distributed: at.distributed,
        })
    }

    pub fn draw(&self, rng: &mut SmallRng) -> Transaction {
        let operations = self.operations(rng);
        let size = operations.len().div_ceil(self.batches).max(1);
        let steps = operations.chunks(size).flat_map(batch);
        let written = operations.iter().filter(|operation| operation.writes);
        Transaction {
            steps: steps.collect(),
            effects: written
                .map(|operation| ((operation.id / self.rows) as usize, UPDATES, 1))
                .collect(),
        }
    }

    /// On different rows, of one node or of two. Half of them write, by chance.
    fn operations(&self, rng: &mut SmallRng) -> Vec<Operation> {
        let first = rng.random_range(0..self.nodes);
        let is_distributed = self.nodes > 1 && rng.random_range(0..100) < self.distributed;
        let second = match is_distributed {
            true => (first + rng.random_range(1..self.nodes)) % self.nodes,
            false => first,
        };
        let mut operations: Vec<Operation> = Vec::new();
        while operations.len() < self.operations {
            // The first two are at each of the two nodes.
            let node = match operations.len() {
                0 => first,
                1 => second,
                _ if rng.random_bool(0.5) => second,
                _ => first,
            };
            let rank = (self.zipf.sample(rng) as i64 - 1).clamp(0, self.rows - 1);
            let id = node as i64 * self.rows + scatter(rank, self.rows);
            if operations.iter().all(|operation| operation.id != id) {
                let writes = rng.random_bool(0.5);
                operations.push(Operation { id, writes });
            }
        }
        operations
    }
}

/// Spreads ranks over the rows: frequent ones are not neighbours.
fn scatter(rank: i64, rows: i64) -> i64 {
    // Prime, and no divisor of a number of rows below it.
    const STEP: i64 = 1_000_003;
    match rows % STEP {
        0 => rank,
        _ => rank * STEP % rows,
    }
}

/// A batch as an application sends it: a SELECT of all that it reads, an UPDATE of all that it
/// writes.
fn batch(operations: &[Operation]) -> Vec<Step> {
    let ids = |writes: bool| -> Vec<i64> {
        let some = operations.iter().filter(|one| one.writes == writes);
        some.map(|one| one.id).collect()
    };
    let (read, written) = (ids(false), ids(true));
    let mut steps = Vec::new();
    if !read.is_empty() {
        let sql = format!(
            "SELECT id, value FROM usertable WHERE id IN ({})",
            parameters(1, read.len())
        );
        steps.push(Step::new(Kind::Reads(read.len()), sql, &read));
    }
    if !written.is_empty() {
        let sql = format!(
            "UPDATE usertable SET value = value + 1 WHERE id IN ({})",
            parameters(1, written.len())
        );
        steps.push(Step::new(Kind::Writes(written.len()), sql, &written));
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;
    use crate::geo::place::DEFAULT;
    use crate::geo::transaction::Value;

    const SIZES: Sizes = Sizes {
        nodes: 4,
        rows: 1000,
        warehouses: 1,
    };

    fn drawn(at: At, count: usize) -> Vec<Transaction> {
        let ycsb = Ycsb::new(&at, &SIZES).unwrap();
        let mut rng = SmallRng::seed_from_u64(7);
        (0..count).map(|_| ycsb.draw(&mut rng)).collect()
    }

    fn ids(transaction: &Transaction) -> Vec<i64> {
        let values = transaction.steps.iter().flat_map(|step| &step.values);
        values
            .map(|value| match value {
                Value::Number(id) => *id,
                Value::From(_) => panic!("no results"),
            })
            .collect()
    }

    #[test]
    fn as_many_are_over_two_nodes_as_asked_for() {
        for distributed in [0, 20, 100] {
            let at = At {
                distributed,
                ..DEFAULT
            };
            let all = drawn(at, 4000);
            let nodes = |transaction: &Transaction| -> usize {
                let nodes: BTreeSet<i64> = ids(transaction).iter().map(|id| id / 1000).collect();
                nodes.len()
            };
            assert!(all.iter().all(|one| [1, 2].contains(&nodes(one))));
            let two = all.iter().filter(|one| nodes(one) == 2).count() as f64 / 40.0;
            assert!((two - f64::from(distributed)).abs() < 3.0, "{two}");
        }
    }

    #[test]
    fn rows_differ_and_half_are_written() {
        let at = At {
            operations: 25,
            theta: 1.5,
            ..DEFAULT
        };
        let mut written = 0;
        for transaction in drawn(at, 400) {
            let ids = ids(&transaction);
            let once: BTreeSet<i64> = ids.iter().copied().collect();
            assert_eq!((ids.len(), once.len()), (25, 25));
            assert!(once.iter().all(|id| (0..4000).contains(id)));
            written += transaction.effects.len();
        }
        assert!((4700..5300).contains(&written), "{written}");
    }

    #[test]
    fn batches_have_a_read_and_a_write_at_most() {
        let at = At {
            operations: 6,
            batches: 3,
            ..DEFAULT
        };
        for transaction in drawn(at, 100) {
            assert!((3..=6).contains(&transaction.steps.len()));
            assert!(transaction.steps.iter().all(|step| step.values.len() <= 2));
        }
        let single = drawn(DEFAULT, 100);
        assert!(single.iter().all(|one| one.steps.len() <= 2));
    }

    #[test]
    fn effects_are_at_the_nodes_of_the_written_rows() {
        for transaction in drawn(DEFAULT, 100) {
            let mut books = Vec::new();
            transaction.apply(&mut books, 2);
            let writes = transaction.steps.iter().filter_map(|step| match step.kind {
                Kind::Writes(rows) => Some(rows as i64),
                _ => None,
            });
            assert_eq!(books.iter().sum::<i64>(), writes.sum::<i64>());
        }
    }

    #[test]
    fn ranks_are_scattered_over_all_rows() {
        for rows in [2, 1000, 100_000, 1_000_003] {
            let all: BTreeSet<i64> = (0..rows.min(2000))
                .map(|rank| scatter(rank, rows))
                .collect();
            assert_eq!(all.len() as i64, rows.min(2000));
            assert!(all.iter().all(|row| (0..rows).contains(row)));
        }
    }

    #[test]
    fn more_skew_means_more_of_the_first_row() {
        let share = |theta| {
            let at = At { theta, ..DEFAULT };
            let all = drawn(at, 1000);
            let hot = all
                .iter()
                .filter(|one| ids(one).iter().any(|id| id % 1000 == 0));
            hot.count()
        };
        assert!(share(0.3) < share(0.9) && share(0.9) < share(1.5));
    }
}
