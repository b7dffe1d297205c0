//! sysbench's own scripts on a table of its own, with keys that are skewed or uniform. Debian's
//! build knows no Zipf's law.

use super::{Effect, Tables, Workload, counter};
use crate::script::{Script, Source};

/// Rows of its table.
pub const ROWS: i64 = 100_000;

/// A fifth of all draws are row 1 (of so many rows): x^7.2 of a uniform x.
const PARETO: &[&str] = &["--rand-type=pareto", "--rand-pareto-h=0.2"];
/// Three of four draws are one of a hundredth of the rows; what sysbench does unless told.
const SPECIAL: &[&str] = &[
    "--rand-type=special",
    "--rand-spec-pct=1",
    "--rand-spec-res=75",
];
const UNIFORM: &[&str] = &["--rand-type=uniform"];

macro_rules! sysbench {
    ($name:literal, $script:literal, $options:ident) => {
        Workload {
            effect: "SELECT 0::bigint",
            effect_is: Effect::NotInTheTables,
            count_rows: "SELECT count(*) FROM sbtest1 WHERE id BETWEEN 1 AND 100000",
            rows: ROWS,
            tables: Tables::Sysbench,
            reset: include_str!("../../sysbench-reset.sql"),
            ..counter(
                $name,
                &[Script {
                    name: $script,
                    source: Source::Sysbench($options),
                    weight: 1,
                }],
            )
        }
    };
}

/// The column that is updated is incremented by one each time.
macro_rules! incremented {
    ($workload:expr) => {
        Workload {
            effect: "SELECT (SELECT sum(k) FROM sbtest1) - (SELECT sum(k) FROM sbtest1_loaded)",
            effect_is: Effect::Exactly,
            ..$workload
        }
    };
}

pub static READ_WRITE_PARETO: Workload =
    sysbench!("sysbench-read-write-pareto", "oltp_read_write", PARETO);
pub static READ_WRITE_SPECIAL: Workload =
    sysbench!("sysbench-read-write-special", "oltp_read_write", SPECIAL);
pub static READ_WRITE_UNIFORM: Workload =
    sysbench!("sysbench-read-write-uniform", "oltp_read_write", UNIFORM);
pub static UPDATE_NON_INDEX_PARETO: Workload =
    sysbench!("sysbench-non-index-pareto", "oltp_update_non_index", PARETO);
pub static UPDATE_NON_INDEX_SPECIAL: Workload = sysbench!(
    "sysbench-non-index-special",
    "oltp_update_non_index",
    SPECIAL
);
pub static UPDATE_NON_INDEX_UNIFORM: Workload = sysbench!(
    "sysbench-non-index-uniform",
    "oltp_update_non_index",
    UNIFORM
);
pub static UPDATE_INDEX_PARETO: Workload = incremented!(sysbench!(
    "sysbench-index-pareto",
    "oltp_update_index",
    PARETO
));
pub static UPDATE_INDEX_SPECIAL: Workload = incremented!(sysbench!(
    "sysbench-index-special",
    "oltp_update_index",
    SPECIAL
));
pub static UPDATE_INDEX_UNIFORM: Workload = incremented!(sysbench!(
    "sysbench-index-uniform",
    "oltp_update_index",
    UNIFORM
));
