//! The versions of a history: who wrote each value, and whether others may see it.
use std::collections::{BTreeMap, HashMap};

use crate::model::{History, Object, Op, Value};

/// The writer of what was there before the first transaction.
pub const INITIAL: u32 = u32::MAX;

/// Transaction and operation, by their indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub transaction: u32,
    pub op: u32,
}

/// A value of an object.
pub struct Version {
    pub object: Object,
    /// `None`: a register before its first write.
    pub value: Option<Value>,
    /// Index of the transaction, or [`INITIAL`].
    pub writer: u32,
    /// Index of the writer's operation.
    pub op: u32,
    /// The last of its writer for the object, and not removed by it: what others may see. For an
    /// element of a list: the writer's last.
    pub last: bool,
}

/// A key of a table that had a row at some time; `slot` numbers the keys of all tables.
#[derive(Clone, Copy)]
pub struct UsedKey {
    pub key: i64,
    pub slot: u32,
}

/// All versions, and the keys that rows came and went under.
pub struct Store {
    pub versions: Vec<Version>,
    by_value: HashMap<Value, u32>,
    unset_registers: HashMap<u32, u32>,
    /// By table, sorted by key.
    keys: HashMap<u32, Vec<UsedKey>>,
    slots: Vec<Object>,
}

impl Store {
    /// The versions of all transactions; the keys only of those that count.
    pub fn new(history: &History, counted: &[bool]) -> Self {
        let mut store = Store {
            versions: Vec::new(),
            by_value: HashMap::new(),
            unset_registers: HashMap::new(),
            keys: HashMap::new(),
            slots: Vec::new(),
        };
        let mut used: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for row in &history.initial {
            used.entry(row.table).or_default().push(row.key);
            store.add(Object::Key(row.table, row.key), row.value, INITIAL, 0);
        }
        let mut latest: Vec<(Object, u32)> = Vec::new();
        for (number, transaction) in history.transactions.iter().enumerate() {
            latest.clear();
            for (op, event) in transaction.events.iter().enumerate() {
                if let Some((object, _)) = event.op.removed() {
                    store.supersede(&mut latest, object);
                }
                let Some((object, value)) = event.op.written() else {
                    continue;
                };
                if counted[number] && found_nothing(&event.op) {
                    continue;
                }
                store.supersede(&mut latest, object);
                latest.push((object, store.versions.len() as u32));
                store.add(object, value, number as u32, op as u32);
                if let (true, Object::Key(table, key)) = (counted[number], object) {
                    used.entry(table).or_default().push(key);
                }
            }
        }
        for (table, mut keys) in used {
            keys.sort_unstable();
            keys.dedup();
            let first = store.slots.len() as u32;
            let numbered = keys.iter().zip(first..);
            let numbered = numbered.map(|(&key, slot)| UsedKey { key, slot }).collect();
            store.keys.insert(table, numbered);
            let objects = keys.iter().map(|&key| Object::Key(table, key));
            store.slots.extend(objects);
        }
        store
    }

    fn add(&mut self, object: Object, value: Value, writer: u32, op: u32) {
        self.by_value.insert(value, self.versions.len() as u32);
        self.versions.push(Version {
            object,
            value: Some(value),
            writer,
            op,
            last: true,
        });
    }

    fn supersede(&mut self, latest: &mut Vec<(Object, u32)>, object: Object) {
        if let Some(place) = latest.iter().position(|(of, _)| *of == object) {
            let (_, version) = latest.swap_remove(place);
            self.versions[version as usize].last = false;
        }
    }

    /// The version with this value, if anybody wrote it.
    pub fn find(&self, value: Value) -> Option<u32> {
        self.by_value.get(&value).copied()
    }

    /// The version of a register before its first write.
    pub fn unset(&mut self, register: u32) -> u32 {
        let next = self.versions.len() as u32;
        let version = *self.unset_registers.entry(register).or_insert(next);
        if version == next {
            self.versions.push(Version {
                object: Object::Register(register),
                value: None,
                writer: INITIAL,
                op: 0,
                last: true,
            });
        }
        version
    }

    pub fn version(&self, id: u32) -> &Version {
        &self.versions[id as usize]
    }

    /// The keys of a table that were ever used, in order.
    pub fn used_keys(&self, table: u32) -> &[UsedKey] {
        self.keys.get(&table).map_or(&[], Vec::as_slice)
    }

    /// The number of a key, if it was ever used.
    pub fn slot(&self, object: Object) -> Option<u32> {
        let Object::Key(table, key) = object else {
            return None;
        };
        let keys = self.used_keys(table);
        let place = keys.binary_search_by_key(&key, |used| used.key).ok()?;
        Some(keys[place].slot)
    }

    /// The keys by their numbers.
    pub fn slots(&self) -> &[Object] {
        &self.slots
    }
}

fn found_nothing(op: &Op) -> bool {
    matches!(
        op,
        Op::Update { replaced: None, .. } | Op::Rekey { replaced: None, .. }
    )
}
