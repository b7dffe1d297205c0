//! What applications and ORMs write: each shape of a transaction on stock PostgreSQL, with group
//! lock, and on different rows.

use super::*;
use crate::workload::shapes;

pub const PLAIN: &str = "shapes";
/// A commit takes 2 ms.
pub const SLOW_COMMITS: &str = "shapes-2ms";
/// Every commit waits for a synchronous standby.
pub const REPLICATED: &str = "shapes-standby";
/// pgbench has a thread for each client.
pub const A_THREAD_EACH: &str = "shapes-threads";

/// The families, and what they are about.
pub const FAMILIES: [(&str, &str); 4] = [
    (
        PLAIN,
        "what applications write: one table over the benchmarks shape-*",
    ),
    (SLOW_COMMITS, "the same where a commit takes 2 ms"),
    (
        REPLICATED,
        "the same with a synchronous standby, 1 ms there and 1 ms back",
    ),
    (
        A_THREAD_EACH,
        "the same, and pgbench has a thread for each client",
    ),
];

const MANY: &[usize] = &[64, 256];
/// Stock has deadlocks that end one by one, each after a second: with 256 clients it does not end.
const FEW: &[usize] = &[64];

/// All benchmarks of each shape.
macro_rules! shapes {
    ($($name:literal, $about:literal, $workload:path, $clients:expr;)*) => {
        pub static ALL: &[&Benchmark] = &[
            $(&Benchmark {
                name: concat!("shape-", $name),
                about: $about,
                family: Some(PLAIN),
                clients: $clients,
                series: &const { three_ways(&$workload) },
                ceiling: Some(DIFFERENT),
                ..BASE
            },)*
            $(&Benchmark {
                name: concat!("shape-", $name, "-2ms"),
                about: concat!($about, ", where a commit takes 2 ms"),
                family: Some(SLOW_COMMITS),
                clients: $clients,
                series: &const { slow_ways(&$workload) },
                ceiling: Some(DIFFERENT),
                ..BASE
            },)*
            $(&Benchmark {
                name: concat!("shape-", $name, "-standby"),
                about: concat!($about, ", with a synchronous standby, 1 ms there and back each"),
                family: Some(REPLICATED),
                clients: $clients,
                series: &const { three_ways(&$workload) },
                ceiling: Some(DIFFERENT),
                standby: Some(Standby { delay_ms: 1 }),
                ..BASE
            },)*
            $(&Benchmark {
                name: concat!("shape-", $name, "-threads"),
                about: concat!($about, ", pgbench with a thread for each client"),
                family: Some(A_THREAD_EACH),
                clients: &[64],
                series: &const { three_ways(&$workload) },
                ceiling: Some(DIFFERENT),
                a_thread_each: true,
                ..BASE
            },)*
        ];
    };
}

shapes! {
    "insert-first", "a ledger with a foreign key, INSERT first", shapes::INSERT_FIRST, MANY;
    "any-order", "a transfer between two hot rows, in any order", shapes::ANY_ORDER, FEW;
    "repeatable-read", "UPDATE in a block at REPEATABLE READ", shapes::REPEATABLE_READ, MANY;
    "serializable", "UPDATE in a block at SERIALIZABLE", shapes::SERIALIZABLE, MANY;
    "savepoint", "a savepoint around the UPDATE", shapes::SAVEPOINT, MANY;
    "one-order", "a transfer between two hot rows, in one order", shapes::ONE_ORDER, MANY;
    "read-after", "another table is read after the UPDATE", shapes::READ_AFTER, MANY;
    "procedure", "a procedure: UPDATE, INSERT", shapes::PROCEDURE, MANY;
    "for-update", "SELECT FOR UPDATE, UPDATE, INSERT", shapes::FOR_UPDATE, MANY;
    "number", "a number from a counter, and INSERT of the row that has it", shapes::NUMBER, MANY;
    "exception-block", "a function with an EXCEPTION block", shapes::EXCEPTION_BLOCK, MANY;
    "update-first", "a ledger with a foreign key, UPDATE first", shapes::UPDATE_FIRST, MANY;
    "returning", "autocommit, RETURNING", shapes::RETURNING, MANY;
    "now", "autocommit, at = now()", shapes::NOW, MANY;
    "jsonb", "autocommit, a counter in a jsonb", shapes::JSONB, MANY;
    "trigger", "autocommit, BEFORE trigger that sets a column", shapes::TRIGGER, MANY;
    "guarded", "autocommit, with a condition on the value", shapes::GUARDED, MANY;
    "unnamed", "autocommit, unnamed statement of the extended protocol", shapes::UNNAMED, MANY;
    "literals", "autocommit, simple protocol, numbers as literals that differ",
        shapes::LITERALS, MANY;
    "block", "UPDATE in a block", shapes::BLOCK, MANY;
}
