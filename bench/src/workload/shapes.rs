//! The shapes of transactions that applications and ORMs write, each around one hot row or two.

use crate::pgbench::Protocol;

use super::{
    COUNT_OF_LEDGER, COUNT_OF_POSTINGS, FOREIGN_KEY_IMBALANCE, LEDGER_IMBALANCE, Script, Source,
    Workload, counter,
};

const RESET: &str = include_str!("../../shapes/reset.sql");

/// A workload whose script is in `bench/shapes`.
macro_rules! shape {
    ($name:literal) => {
        Workload {
            reset: RESET,
            ..counter(
                $name,
                &[Script {
                    name: $name,
                    source: Source::Text(include_str!(concat!("../../shapes/", $name, ".sql"))),
                    weight: 1,
                }],
            )
        }
    };
}

/// Twice as much is added to table `hot` as there are transactions.
const SUM_OF_PAIRS: &str = "SELECT (sum(val) / 2)::bigint FROM hot";

pub static INSERT_FIRST: Workload = Workload {
    effect: COUNT_OF_POSTINGS,
    imbalance: Some(FOREIGN_KEY_IMBALANCE),
    ..shape!("insert-first")
};
pub static ANY_ORDER: Workload = Workload {
    effect: SUM_OF_PAIRS,
    ..shape!("any-order")
};
pub static REPEATABLE_READ: Workload = shape!("repeatable-read");
pub static SERIALIZABLE: Workload = shape!("serializable");
pub static SAVEPOINT: Workload = shape!("savepoint");
pub static ONE_ORDER: Workload = Workload {
    effect: SUM_OF_PAIRS,
    ..shape!("one-order")
};
pub static READ_AFTER: Workload = shape!("read-after");
pub static PROCEDURE: Workload = Workload {
    effect: COUNT_OF_LEDGER,
    imbalance: Some(LEDGER_IMBALANCE),
    ..shape!("procedure")
};
pub static FOR_UPDATE: Workload = Workload {
    effect: COUNT_OF_LEDGER,
    imbalance: Some(LEDGER_IMBALANCE),
    ..shape!("for-update")
};
pub static NUMBER: Workload = Workload {
    imbalance: Some(
        "SELECT (SELECT sum(val) FROM hot)::bigint - (SELECT count(*) FROM numbered)
              + (SELECT count(*) FROM (SELECT max(number) - count(*) AS gaps FROM numbered GROUP BY series) g WHERE gaps <> 0)",
    ),
    ..shape!("number")
};
pub static EXCEPTION_BLOCK: Workload = shape!("exception-block");
pub static RETURNING: Workload = shape!("returning");
pub static NOW: Workload = Workload {
    effect: "SELECT sum(val)::bigint FROM kinds",
    count_rows: "SELECT count(*) FROM kinds WHERE id > 0",
    ..shape!("now")
};
pub static JSONB: Workload = Workload {
    effect: "SELECT sum(val)::bigint FROM kinds",
    count_rows: "SELECT count(*) FROM kinds WHERE id > 0",
    ..shape!("jsonb")
};
pub static TRIGGER: Workload = Workload {
    effect: "SELECT sum(val)::bigint FROM watched",
    imbalance: Some("SELECT count(*) FROM watched WHERE val > 0 AND at IS NULL"),
    count_rows: "SELECT count(*) FROM watched WHERE id > 0",
    ..shape!("trigger")
};
pub static GUARDED: Workload = shape!("guarded");
pub static UPDATE_FIRST: Workload = Workload {
    effect: COUNT_OF_POSTINGS,
    imbalance: Some(FOREIGN_KEY_IMBALANCE),
    ..counter("update-first", super::FOREIGN_KEY.scripts)
};
/// As drivers and poolers send a statement that they do not prepare.
pub static UNNAMED: Workload = Workload {
    protocol: Some(Protocol::Extended),
    ..counter("unnamed", super::HOT_ROW.scripts)
};
/// Numbers in the text of the statement, as frameworks write them that do not use parameters.
pub static LITERALS: Workload = Workload {
    effect: "SELECT sum(val)::bigint FROM kinds",
    count_rows: "SELECT count(*) FROM kinds WHERE id > 0",
    protocol: Some(Protocol::Simple),
    ..shape!("literals")
};
pub static BLOCK: Workload = counter("block", super::NO_ROLLBACKS.scripts);
