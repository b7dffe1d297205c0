//! The judge: whether what committed transactions read is what a replay in CSN order gives.

use std::collections::BTreeMap;

use crate::Csn;

pub type Key = i64;
pub type Row = (Key, u64);

/// A key range from the first to the second, and the rows that were seen in it.
pub type Scan = (Key, Key, Vec<Row>);

/// What a committed transaction did.
#[derive(Clone, Debug)]
pub struct Record {
    /// It comes after all transactions with smaller CSNs: its own CSN, or a reader's reading point.
    pub before: Csn,
    /// A writer's CSN, which decides among those at one position.
    pub csn: Csn,
    /// Only of transactions that were validated.
    pub reads: Vec<Scan>,
    pub writes: Vec<(Key, Option<u64>)>,
}

/// The first read that a replay contradicts.
pub fn violation(history: &[Record]) -> Option<String> {
    let mut writers: Vec<&Record> = history.iter().filter(|r| !r.writes.is_empty()).collect();
    writers.sort_by_key(|writer| (writer.before, writer.csn));
    if writers
        .windows(2)
        .any(|two| (two[0].before, two[0].csn) == (two[1].before, two[1].csn))
    {
        return Some("two transactions with one CSN".into());
    }
    let mut rows: BTreeMap<Key, u64> = BTreeMap::new();
    let mut readers: Vec<&Record> = history.iter().collect();
    readers.sort_by_key(|reader| (reader.before, reader.csn));
    let mut applied = 0;
    for reader in readers {
        while let Some(writer) = writers
            .get(applied)
            .filter(|w| (w.before, w.csn) < (reader.before, reader.csn))
        {
            for &(key, value) in &writer.writes {
                match value {
                    Some(value) => rows.insert(key, value),
                    None => rows.remove(&key),
                };
            }
            applied += 1;
        }
        for (low, high, read) in &reader.reads {
            let expected: Vec<Row> = rows.range(low..=high).map(|(&k, &v)| (k, v)).collect();
            if expected != *read {
                return Some(format!(
                    "{reader:?} should have read {expected:?} in {history:#?}"
                ));
            }
        }
    }
    None
}
