//! Histories by hand.
use history::{Event, History, Op, Outcome, Range, Row, Time, Transaction, Value};

/// A transaction of these operations from one time to another.
pub fn at(invoked: Time, completed: Time, outcome: Outcome, ops: Vec<Op>) -> Transaction {
    Transaction {
        client: 0,
        invoked,
        completed,
        outcome,
        events: ops
            .into_iter()
            .map(|op| Event {
                invoked,
                completed,
                op,
            })
            .collect(),
    }
}

/// A committed transaction; all of them are at the same time.
pub fn tx(ops: Vec<Op>) -> Transaction {
    at(1, 9, Outcome::Committed, ops)
}

pub fn aborted(ops: Vec<Op>) -> Transaction {
    at(1, 9, Outcome::Aborted, ops)
}

pub fn unknown(ops: Vec<Op>) -> Transaction {
    at(1, 9, Outcome::Unknown, ops)
}

/// Numbers the clients; table 0 begins with `rows`.
pub fn history(rows: &[(i64, Value)], transactions: Vec<Transaction>) -> History {
    let row = |(key, value): &(i64, Value)| Row {
        table: 0,
        key: *key,
        value: *value,
    };
    let number = |(transaction, client): (Transaction, u32)| Transaction {
        client,
        ..transaction
    };
    History {
        initial: rows.iter().map(row).collect(),
        transactions: transactions.into_iter().zip(0..).map(number).collect(),
    }
}

pub fn append(list: u32, value: Value) -> Op {
    Op::Append { list, value }
}

pub fn list(list: u32, values: &[Value]) -> Op {
    Op::ReadList {
        list,
        values: values.to_vec(),
    }
}

/// A write over `replaced`; 0 is what a register holds at first.
pub fn write(register: u32, replaced: Value, value: Value) -> Op {
    Op::Write {
        register,
        value,
        replaced: (replaced > 0).then_some(replaced),
    }
}

pub fn read(register: u32, value: Value) -> Op {
    Op::Read {
        register,
        value: (value > 0).then_some(value),
    }
}

/// `lower <= key < upper`
pub fn scan(lower: i64, upper: i64, rows: &[(i64, Value)]) -> Op {
    Op::Scan {
        table: 0,
        range: Range::half_open(lower, upper),
        rows: rows.to_vec(),
    }
}

pub fn insert(key: i64, value: Value) -> Op {
    Op::Insert {
        table: 0,
        key,
        value,
    }
}

pub fn update(key: i64, replaced: Value, value: Value) -> Op {
    Op::Update {
        table: 0,
        key,
        value,
        replaced: (replaced > 0).then_some(replaced),
    }
}

pub fn delete(key: i64, removed: Value) -> Op {
    Op::Delete {
        table: 0,
        key,
        removed: (removed > 0).then_some(removed),
    }
}

pub fn rekey(from: i64, to: i64, replaced: Value, value: Value) -> Op {
    Op::Rekey {
        table: 0,
        from,
        to,
        value,
        replaced: (replaced > 0).then_some(replaced),
    }
}
