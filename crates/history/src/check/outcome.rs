//! Which transactions have to be taken for committed.
use std::collections::HashMap;

use crate::model::{History, Object, Op, Outcome, Transaction, Value};

/// The transactions with an unknown outcome.
pub struct Unknown<'a> {
    history: &'a History,
    writers: HashMap<Value, usize>,
    /// Those for which it is a guess: nobody saw one of their values, but they removed rows.
    pub undecided: Vec<usize>,
}

/// For every transaction whether it counts as committed. An unknown outcome does if a transaction
/// that counts saw one of its values: if nobody did, the history of the others is the same without
/// it, unless it removed rows. Then what was seen later makes the guess.
pub fn resolve(history: &History) -> (Vec<bool>, Unknown<'_>) {
    let transactions = &history.transactions;
    let mut counted: Vec<bool> = transactions
        .iter()
        .map(|transaction| transaction.outcome == Outcome::Committed)
        .collect();
    let all: Vec<usize> = indexes(transactions, Outcome::Unknown).collect();
    let mut unknown = Unknown {
        history,
        writers: HashMap::new(),
        undecided: Vec::new(),
    };
    for &one in &all {
        let events = &transactions[one].events;
        let written = events.iter().filter_map(|event| event.op.written());
        unknown
            .writers
            .extend(written.map(|(_, value)| (value, one)));
    }
    unknown.complete(&mut counted);
    let removes = |one: &usize| {
        let mut events = transactions[*one].events.iter();
        events.any(|event| event.op.removed().is_some())
    };
    unknown.undecided = all
        .into_iter()
        .filter(|one| !counted[*one] && removes(one))
        .collect();
    for &one in &unknown.undecided {
        counted[one] = likely_committed(history, &transactions[one]);
    }
    unknown.complete(&mut counted);
    (counted, unknown)
}

impl Unknown<'_> {
    /// Adds the unknown transactions whose values those that count saw.
    pub fn complete(&self, counted: &mut [bool]) {
        if self.writers.is_empty() {
            return;
        }
        let mut pending: Vec<usize> = (0..counted.len()).filter(|one| counted[*one]).collect();
        while let Some(reader) = pending.pop() {
            for event in &self.history.transactions[reader].events {
                event.op.for_each_seen(|value| {
                    if let Some(&writer) = self.writers.get(&value)
                        && !counted[writer]
                    {
                        counted[writer] = true;
                        pending.push(writer);
                    }
                });
            }
        }
    }
}

fn indexes(transactions: &[Transaction], outcome: Outcome) -> impl Iterator<Item = usize> {
    let numbered = transactions.iter().enumerate();
    numbered
        .filter(move |(_, transaction)| transaction.outcome == outcome)
        .map(|(one, _)| one)
}

/// Whether committed transactions saw later that the rows which `unknown` removed were gone, and
/// none of them saw one later or replaced it itself.
fn likely_committed(history: &History, unknown: &Transaction) -> bool {
    let removed: Vec<(Object, Value)> = unknown
        .events
        .iter()
        .filter_map(|event| event.op.removed())
        .collect();
    let committed = history.transactions.iter();
    let committed = committed.filter(|other| other.outcome == Outcome::Committed);
    let mut gone = false;
    for event in committed.flat_map(|other| &other.events) {
        let later = event.invoked > unknown.completed;
        if !later && event.op.is_read() {
            continue;
        }
        let mut seen = false;
        let mut see = |value| seen |= removed.iter().any(|(_, removed)| *removed == value);
        event.op.for_each_seen(&mut see);
        if seen {
            return false;
        }
        gone |= later && removed.iter().any(|(object, _)| covers(&event.op, *object));
    }
    gone
}

/// Whether `op` would have noticed a row with this key, if it had found one.
fn covers(op: &Op, object: Object) -> bool {
    match (op, object) {
        (Op::Scan { table, range, .. }, Object::Key(of, key)) => {
            *table == of && range.contains(key)
        }
        (Op::Insert { .. } | Op::Upsert { .. } | Op::Rekey { .. }, _) => {
            op.written().is_some_and(|(written, _)| written == object)
        }
        _ => false,
    }
}
