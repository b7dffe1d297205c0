//! What the operations mean: a database with one user. The checker is tested against it.
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::generate::Step;
use crate::model::{History, Object, Op, Range, Value};

/// The contents of all lists, registers and tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Shared, so that a snapshot is cheap.
    lists: BTreeMap<u32, Arc<Vec<Value>>>,
    /// Registers and rows.
    values: BTreeMap<Object, Value>,
}

/// The key of a new row is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTaken;

impl State {
    /// What there is before the first transaction of `history`.
    pub fn initial(history: &History) -> Self {
        let rows = history.initial.iter();
        State {
            lists: BTreeMap::new(),
            values: rows
                .map(|row| (Object::Key(row.table, row.key), row.value))
                .collect(),
        }
    }

    /// Executes `step`. After an error the state is as before.
    pub fn apply(&mut self, step: &Step) -> Result<Op, KeyTaken> {
        Ok(match *step {
            Step::Append { list, value } => {
                Arc::make_mut(self.lists.entry(list).or_default()).push(value);
                Op::Append { list, value }
            }
            Step::ReadList { list } => Op::ReadList {
                list,
                values: self
                    .lists
                    .get(&list)
                    .map_or_else(Vec::new, |values| values.to_vec()),
            },
            Step::Write { register, value } => Op::Write {
                register,
                value,
                replaced: self.values.insert(Object::Register(register), value),
            },
            Step::Read { register } => Op::Read {
                register,
                value: self.values.get(&Object::Register(register)).copied(),
            },
            Step::Scan { table, range } => Op::Scan {
                table,
                range,
                rows: self.scan(table, range),
            },
            Step::Insert { table, key, value } => {
                self.free(Object::Key(table, key))?;
                self.values.insert(Object::Key(table, key), value);
                Op::Insert { table, key, value }
            }
            Step::Upsert { table, key, value } => Op::Upsert {
                table,
                key,
                value,
                replaced: self.values.insert(Object::Key(table, key), value),
            },
            Step::Update { table, key, value } => {
                let row = self.values.get_mut(&Object::Key(table, key));
                Op::Update {
                    table,
                    key,
                    value,
                    replaced: row.map(|row| std::mem::replace(row, value)),
                }
            }
            Step::Delete { table, key } => Op::Delete {
                table,
                key,
                removed: self.values.remove(&Object::Key(table, key)),
            },
            Step::Rekey {
                table,
                from,
                to,
                value,
            } => Op::Rekey {
                table,
                from,
                to,
                value,
                replaced: self.rekey(table, from, to, value)?,
            },
        })
    }

    /// The rows of that table in that range, in the order of their keys.
    fn scan(&self, table: u32, range: Range) -> Vec<(i64, Value)> {
        let keys = Object::Key(table, i64::MIN)..=Object::Key(table, i64::MAX);
        let rows = self.values.range(keys);
        rows.filter_map(|(object, value)| match object {
            Object::Key(_, key) if range.contains(*key) => Some((*key, *value)),
            _ => None,
        })
        .collect()
    }

    /// Gives the row with the key `from` the key `to` and that value. The value that it had, if
    /// there is such a row.
    fn rekey(
        &mut self,
        table: u32,
        from: i64,
        to: i64,
        value: Value,
    ) -> Result<Option<Value>, KeyTaken> {
        if self.values.contains_key(&Object::Key(table, from)) {
            self.free(Object::Key(table, to))?;
        }
        let replaced = self.values.remove(&Object::Key(table, from));
        if replaced.is_some() {
            self.values.insert(Object::Key(table, to), value);
        }
        Ok(replaced)
    }

    /// Makes `object` what it is in `other`.
    pub fn take_over(&mut self, object: Object, other: &State) {
        match object {
            Object::List(list) => {
                let values = other.lists.get(&list).cloned().unwrap_or_default();
                self.lists.insert(list, values);
            }
            _ => match other.values.get(&object) {
                Some(value) => drop(self.values.insert(object, *value)),
                None => drop(self.values.remove(&object)),
            },
        }
    }

    /// Whether `object` is the same in both.
    pub fn same(&self, object: Object, other: &State) -> bool {
        match object {
            Object::List(list) => {
                let length =
                    |state: &State| state.lists.get(&list).map_or(0, |values| values.len());
                length(self) == length(other)
            }
            _ => self.values.get(&object) == other.values.get(&object),
        }
    }

    fn free(&self, object: Object) -> Result<(), KeyTaken> {
        match self.values.contains_key(&object) {
            true => Err(KeyTaken),
            false => Ok(()),
        }
    }
}
