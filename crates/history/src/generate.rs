//! Random transactions, the same for the same seed and client.
use std::ops::{Bound, RangeInclusive};

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::model::{Op, Range, Row, Value};

/// An operation that is still to be executed: an [`Op`] without its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Append {
        list: u32,
        value: Value,
    },
    ReadList {
        list: u32,
    },
    Write {
        register: u32,
        value: Value,
    },
    Read {
        register: u32,
    },
    Scan {
        table: u32,
        range: Range,
    },
    Insert {
        table: u32,
        key: i64,
        value: Value,
    },
    Upsert {
        table: u32,
        key: i64,
        value: Value,
    },
    Update {
        table: u32,
        key: i64,
        value: Value,
    },
    Delete {
        table: u32,
        key: i64,
    },
    Rekey {
        table: u32,
        from: i64,
        to: i64,
        value: Value,
    },
}

impl Op {
    /// The operation without its result.
    pub fn step(&self) -> Step {
        match *self {
            Op::Append { list, value } => Step::Append { list, value },
            Op::ReadList { list, .. } => Step::ReadList { list },
            Op::Write {
                register, value, ..
            } => Step::Write { register, value },
            Op::Read { register, .. } => Step::Read { register },
            Op::Scan { table, range, .. } => Step::Scan { table, range },
            Op::Insert { table, key, value } => Step::Insert { table, key, value },
            Op::Upsert {
                table, key, value, ..
            } => Step::Upsert { table, key, value },
            Op::Update {
                table, key, value, ..
            } => Step::Update { table, key, value },
            Op::Delete { table, key, .. } => Step::Delete { table, key },
            Op::Rekey {
                table,
                from,
                to,
                value,
                ..
            } => Step::Rekey {
                table,
                from,
                to,
                value,
            },
        }
    }
}

/// A transaction that is still to be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Ends with ROLLBACK.
    pub roll_back: bool,
}

/// How often each operation is drawn, relative to the others. Read-only transactions draw among
/// the reads.
#[derive(Clone, Debug)]
pub struct Weights {
    pub append: u32,
    pub read_list: u32,
    pub write: u32,
    pub read: u32,
    pub scan: u32,
    pub insert: u32,
    pub upsert: u32,
    pub update: u32,
    pub delete: u32,
    pub rekey: u32,
}

/// A kind of operation.
#[derive(Clone, Copy)]
enum Kind {
    Append,
    ReadList,
    Write,
    Read,
    Scan,
    Insert,
    Upsert,
    Update,
    Delete,
    Rekey,
}

/// How many of the kinds of operations are reads.
const READS: usize = 3;

impl Weights {
    /// All kinds of operations with their weights, the reads first.
    fn kinds(&self) -> [(Kind, u32); 10] {
        [
            (Kind::ReadList, self.read_list),
            (Kind::Read, self.read),
            (Kind::Scan, self.scan),
            (Kind::Append, self.append),
            (Kind::Write, self.write),
            (Kind::Insert, self.insert),
            (Kind::Upsert, self.upsert),
            (Kind::Update, self.update),
            (Kind::Delete, self.delete),
            (Kind::Rekey, self.rekey),
        ]
    }
}

/// What the random transactions are like. A table's keys lie in `slots`. Each has one key that is
/// used again and again, and a few rare ones behind it: so rows come and go within every range.
#[derive(Clone, Debug)]
pub struct Workload {
    pub seed: u64,
    pub lists: u32,
    /// A client goes on to new lists after so many transactions: what is read of lists grows with
    /// the square of their length.
    pub list_life: u32,
    pub registers: u32,
    pub tables: u32,
    pub slots: u32,
    /// Operations per transaction.
    pub length: RangeInclusive<usize>,
    pub weights: Weights,
    /// Widths of scans in slots; 0 is the whole table, 1 half the time one key.
    pub widths: Vec<u32>,
    /// Percentage of transactions that only read.
    pub read_only: u32,
    /// Percentage of transactions that roll back.
    pub rollbacks: u32,
    /// Further keys of each slot.
    pub rare_keys: u32,
    /// Percentage of operations on a key that take one of those.
    pub rare: u32,
}

impl Default for Workload {
    fn default() -> Self {
        Workload {
            seed: 0,
            lists: 4,
            list_life: 100,
            registers: 8,
            tables: 1,
            slots: 32,
            length: 1..=5,
            weights: Weights {
                append: 3,
                read_list: 3,
                write: 2,
                read: 3,
                scan: 4,
                insert: 2,
                upsert: 1,
                update: 2,
                delete: 2,
                rekey: 1,
            },
            widths: vec![1, 4, 8, 0],
            read_only: 20,
            rollbacks: 5,
            rare_keys: 8,
            rare: 20,
        }
    }
}

/// The first key of `slot`: the one that is used again.
fn key_of(slot: u32) -> i64 {
    i64::from(slot) << 32
}

impl Workload {
    /// The rows to begin with: one in every second slot.
    pub fn initial(&self) -> Vec<Row> {
        let slots = || (0..self.slots).step_by(2);
        let places = (0..self.tables).flat_map(|table| slots().map(move |slot| (table, slot)));
        let numbered = places.zip(1..);
        numbered
            .map(|((table, slot), value)| Row {
                table,
                key: key_of(slot),
                value,
            })
            .collect()
    }

    /// The number of lists that so many transactions of each client use.
    pub fn lists_used(&self, transactions: u32) -> u32 {
        (transactions / self.list_life + 1) * self.lists
    }

    /// Reads of everything, for a last transaction after all others: what nobody reads after it
    /// was written tells little. `transactions` is the number of each client's.
    pub fn last_reads(&self, transactions: u32) -> Plan {
        let lists = (0..self.lists_used(transactions)).map(|list| Step::ReadList { list });
        let registers = (0..self.registers).map(|register| Step::Read { register });
        let tables = (0..self.tables).map(|table| Step::Scan {
            table,
            range: Range::WHOLE,
        });
        Plan {
            steps: lists.chain(registers).chain(tables).collect(),
            roll_back: false,
        }
    }

    /// The transactions of one client, without end.
    pub fn client(&self, number: u32) -> Client<'_> {
        let seed = self.seed ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Client {
            workload: self,
            rng: SmallRng::seed_from_u64(seed),
            // Fits a signed integer of 64 bits, and is above the values of the first rows.
            values: (u64::from(number) + 1) << 32,
            transactions: 0,
        }
    }
}

/// The source of one client's transactions: an endless iterator.
pub struct Client<'a> {
    workload: &'a Workload,
    rng: SmallRng,
    values: Value,
    transactions: u32,
}

impl Iterator for Client<'_> {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        let length = self.rng.random_range(self.workload.length.clone());
        let read_only = self.chance(self.workload.read_only);
        let steps = (0..length).map(|_| self.step(read_only)).collect();
        self.transactions += 1;
        Some(Plan {
            steps,
            roll_back: self.chance(self.workload.rollbacks),
        })
    }
}

impl Client<'_> {
    fn step(&mut self, read_only: bool) -> Step {
        let kinds = self.workload.weights.kinds();
        let kinds = if read_only {
            &kinds[..READS]
        } else {
            &kinds[..]
        };
        let table = self.below(self.workload.tables);
        let kind = kinds.choose_weighted(&mut self.rng, |kind| kind.1);
        match kind.expect("some weight is not zero").0 {
            Kind::ReadList => Step::ReadList { list: self.list() },
            Kind::Read => Step::Read {
                register: self.below(self.workload.registers),
            },
            Kind::Scan => Step::Scan {
                table,
                range: self.range(),
            },
            Kind::Append => Step::Append {
                list: self.list(),
                value: self.value(),
            },
            Kind::Write => Step::Write {
                register: self.below(self.workload.registers),
                value: self.value(),
            },
            Kind::Insert => Step::Insert {
                table,
                key: self.key(),
                value: self.value(),
            },
            Kind::Upsert => Step::Upsert {
                table,
                key: self.key(),
                value: self.value(),
            },
            Kind::Update => Step::Update {
                table,
                key: self.key(),
                value: self.value(),
            },
            Kind::Delete => Step::Delete {
                table,
                key: self.key(),
            },
            Kind::Rekey => {
                let (from, value) = (self.key(), self.value());
                let to = loop {
                    let key = self.key();
                    if key != from {
                        break key;
                    }
                };
                Step::Rekey {
                    table,
                    from,
                    to,
                    value,
                }
            }
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.rng.random_range(0..limit.max(1))
    }

    fn value(&mut self) -> Value {
        self.values += 1;
        self.values
    }

    fn list(&mut self) -> u32 {
        let generation = self.transactions / self.workload.list_life;
        generation * self.workload.lists + self.below(self.workload.lists)
    }

    fn key(&mut self) -> i64 {
        let key = key_of(self.below(self.workload.slots));
        match self.chance(self.workload.rare) {
            true => key + 1 + i64::from(self.below(self.workload.rare_keys)),
            false => key,
        }
    }

    fn range(&mut self) -> Range {
        let width = *self.workload.widths.choose(&mut self.rng).unwrap_or(&0);
        let slot = self.below(self.workload.slots);
        let (first, end) = (key_of(slot), key_of(slot + width));
        match (width, self.below(4)) {
            (0, _) => Range::WHOLE,
            (1, 0 | 1) => Range::point(first),
            (_, 0) => Range {
                lower: Bound::Excluded(first),
                upper: Bound::Included(end),
            },
            (_, 1) => Range {
                lower: Bound::Included(first),
                upper: Bound::Unbounded,
            },
            (_, 2) => Range {
                lower: Bound::Unbounded,
                upper: Bound::Excluded(end),
            },
            _ => Range::half_open(first, end),
        }
    }
}
