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

const CLIENTS: &[usize] = &[64, 256];

/// All benchmarks of each shape.
macro_rules! shapes {
    ($($name:literal, $about:literal, $workload:path;)*) => {
        pub static ALL: &[&Benchmark] = &[
            $(&Benchmark {
                name: concat!("shape-", $name),
                about: $about,
                family: Some(PLAIN),
                clients: CLIENTS,
                series: &const { three_ways(&$workload) },
                ceiling: Some(DIFFERENT),
                ..BASE
            },)*
            $(&Benchmark {
                name: concat!("shape-", $name, "-2ms"),
                about: concat!($about, ", where a commit takes 2 ms"),
                family: Some(SLOW_COMMITS),
                clients: CLIENTS,
                series: &const { slow_ways(&$workload) },
                ceiling: Some(DIFFERENT),
                ..BASE
            },)*
            $(&Benchmark {
                name: concat!("shape-", $name, "-standby"),
                about: concat!($about, ", with a synchronous standby, 1 ms there and back each"),
                family: Some(REPLICATED),
                clients: CLIENTS,
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
    "insert-first", "a ledger with a foreign key, INSERT first", shapes::INSERT_FIRST;
    "any-order", "a transfer between two hot rows, in any order", shapes::ANY_ORDER;
    "repeatable-read", "UPDATE in a block at REPEATABLE READ", shapes::REPEATABLE_READ;
    "serializable", "UPDATE in a block at SERIALIZABLE", shapes::SERIALIZABLE;
    "savepoint", "a savepoint around the UPDATE", shapes::SAVEPOINT;
    "one-order", "a transfer between two hot rows, in one order", shapes::ONE_ORDER;
    "read-after", "another table is read after the UPDATE", shapes::READ_AFTER;
    "procedure", "a procedure: UPDATE, INSERT", shapes::PROCEDURE;
    "for-update", "SELECT FOR UPDATE, UPDATE, INSERT", shapes::FOR_UPDATE;
    "number", "a number from a counter, and INSERT of the row that has it", shapes::NUMBER;
    "exception-block", "a function with an EXCEPTION block", shapes::EXCEPTION_BLOCK;
    "update-first", "a ledger with a foreign key, UPDATE first", shapes::UPDATE_FIRST;
    "returning", "autocommit, RETURNING", shapes::RETURNING;
    "now", "autocommit, at = now()", shapes::NOW;
    "jsonb", "autocommit, a counter in a jsonb", shapes::JSONB;
    "trigger", "autocommit, BEFORE trigger that sets a column", shapes::TRIGGER;
    "guarded", "autocommit, with a condition on the value", shapes::GUARDED;
    "unnamed", "autocommit, unnamed statement of the extended protocol", shapes::UNNAMED;
    "literals", "autocommit, simple protocol, numbers as literals that differ", shapes::LITERALS;
    "block", "UPDATE in a block", shapes::BLOCK;
}
