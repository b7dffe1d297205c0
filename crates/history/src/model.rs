//! A recorded history: what clients asked, what they were told, and when.
use std::collections::HashSet;
use std::fmt;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

/// What is written. No two writes of a history write the same value.
pub type Value = u64;

/// Nanoseconds since the recording began, on one clock for all clients.
pub type Time = u64;

/// The whole of a recording. Lists begin empty, registers without a value, tables with `initial`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The rows that were there before the first transaction.
    pub initial: Vec<Row>,
    /// In any order.
    pub transactions: Vec<Transaction>,
}

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub table: u32,
    pub key: i64,
    pub value: Value,
}

/// One transaction as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// The client that ran it, for reports.
    pub client: u32,
    /// Before the first statement was sent.
    pub invoked: Time,
    /// After the answer to COMMIT or ROLLBACK, or when the connection was found broken.
    pub completed: Time,
    pub outcome: Outcome,
    /// In the order of their execution. Of a transaction that did not commit only its writes count.
    /// So a write whose answer never came belongs in here too, with any result.
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Committed,
    /// Rolled back, for whatever reason.
    Aborted,
    /// The connection broke in COMMIT.
    Unknown,
}

/// One operation with its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub invoked: Time,
    pub completed: Time,
    #[serde(flatten)]
    pub op: Op,
}

/// An operation and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Adds `value` to the end of a list.
    Append { list: u32, value: Value },
    /// The whole list.
    ReadList { list: u32, values: Vec<Value> },
    /// Sets a register; `replaced` is what it held, `None` before its first write.
    Write {
        register: u32,
        value: Value,
        replaced: Option<Value>,
    },
    /// What a register holds.
    Read { register: u32, value: Option<Value> },
    /// The rows of a range of keys, by key.
    Scan {
        table: u32,
        range: Range,
        rows: Vec<(i64, Value)>,
    },
    /// A new row; the key was free. (One that fails for a taken key aborts its transaction.)
    Insert { table: u32, key: i64, value: Value },
    /// A new row, or else a new value; `replaced` tells which.
    Upsert {
        table: u32,
        key: i64,
        value: Value,
        replaced: Option<Value>,
    },
    /// A new value for the row `key`; `replaced` is `None` if there was none.
    Update {
        table: u32,
        key: i64,
        value: Value,
        replaced: Option<Value>,
    },
    /// Removes the row `key`; `removed` is `None` if there was none.
    Delete {
        table: u32,
        key: i64,
        removed: Option<Value>,
    },
    /// Moves the row `from` to the free key `to` with a new value; `replaced` is `None` if there
    /// was no row.
    Rekey {
        table: u32,
        from: i64,
        to: i64,
        value: Value,
        replaced: Option<Value>,
    },
}

/// A range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub lower: Bound<i64>,
    pub upper: Bound<i64>,
}

impl Range {
    /// All keys.
    pub const WHOLE: Range = Range {
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
    };

    /// One key.
    pub fn point(key: i64) -> Self {
        Range {
            lower: Bound::Included(key),
            upper: Bound::Included(key),
        }
    }

    /// `lower <= key < upper`
    pub fn half_open(lower: i64, upper: i64) -> Self {
        Range {
            lower: Bound::Included(lower),
            upper: Bound::Excluded(upper),
        }
    }

    pub fn contains(&self, key: i64) -> bool {
        !self.above(key) && !self.below(key)
    }

    /// Whether the range begins above `key`.
    pub(crate) fn above(&self, key: i64) -> bool {
        match self.lower {
            Bound::Included(lower) => key < lower,
            Bound::Excluded(lower) => key <= lower,
            Bound::Unbounded => false,
        }
    }

    /// Whether the range ends below `key`.
    pub(crate) fn below(&self, key: i64) -> bool {
        match self.upper {
            Bound::Included(upper) => key > upper,
            Bound::Excluded(upper) => key >= upper,
            Bound::Unbounded => false,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.lower {
            Bound::Included(key) => write!(f, "[{key}")?,
            Bound::Excluded(key) => write!(f, "({key}")?,
            Bound::Unbounded => write!(f, "(-")?,
        }
        match self.upper {
            Bound::Included(key) => write!(f, ", {key}]"),
            Bound::Excluded(key) => write!(f, ", {key})"),
            Bound::Unbounded => write!(f, ", -)"),
        }
    }
}

/// What an operation is about: something with versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    List(u32),
    Register(u32),
    /// A key of a table, whether there is a row or not.
    Key(u32, i64),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Object::List(list) => write!(f, "list {list}"),
            Object::Register(register) => write!(f, "register {register}"),
            Object::Key(table, key) => write!(f, "key {key} of table {table}"),
        }
    }
}

impl Op {
    /// The object that gets a new value, if one does.
    pub fn written(&self) -> Option<(Object, Value)> {
        match *self {
            Op::Append { list, value } => Some((Object::List(list), value)),
            Op::Write {
                register, value, ..
            } => Some((Object::Register(register), value)),
            Op::Insert { table, key, value }
            | Op::Upsert {
                table, key, value, ..
            } => Some((Object::Key(table, key), value)),
            // Without `replaced` nothing was written, or, in what did not commit, who knows.
            Op::Update {
                table, key, value, ..
            } => Some((Object::Key(table, key), value)),
            Op::Rekey {
                table, to, value, ..
            } => Some((Object::Key(table, to), value)),
            Op::ReadList { .. } | Op::Read { .. } | Op::Scan { .. } | Op::Delete { .. } => None,
        }
    }

    /// The key that loses its row, if one does, and the row's value.
    pub fn removed(&self) -> Option<(Object, Value)> {
        match *self {
            Op::Delete {
                table,
                key,
                removed,
            } => Some((Object::Key(table, key), removed?)),
            Op::Rekey {
                table,
                from,
                replaced,
                ..
            } => Some((Object::Key(table, from), replaced?)),
            _ => None,
        }
    }

    /// Whether it changes nothing, whatever it finds.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Op::ReadList { .. } | Op::Read { .. } | Op::Scan { .. }
        )
    }

    /// Calls `see` with every value of the result.
    pub fn for_each_seen(&self, mut see: impl FnMut(Value)) {
        match self {
            Op::Append { .. } | Op::Insert { .. } => {}
            Op::ReadList { values, .. } => values.iter().copied().for_each(see),
            Op::Scan { rows, .. } => rows.iter().for_each(|(_, value)| see(*value)),
            Op::Read { value, .. } => value.iter().copied().for_each(see),
            Op::Write { replaced, .. }
            | Op::Upsert { replaced, .. }
            | Op::Update { replaced, .. }
            | Op::Rekey { replaced, .. } => replaced.iter().copied().for_each(see),
            Op::Delete { removed, .. } => removed.iter().copied().for_each(see),
        }
    }
}

impl History {
    /// The first value that is written twice, which makes a history useless.
    pub fn repeated_value(&self) -> Option<Value> {
        let mut values = HashSet::new();
        let initial = self.initial.iter().map(|row| row.value);
        let written = self
            .transactions
            .iter()
            .flat_map(|transaction| &transaction.events)
            .filter_map(|event| Some(event.op.written()?.1));
        initial.chain(written).find(|value| !values.insert(*value))
    }
}
