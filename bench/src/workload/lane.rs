//! YCSB's read-modify-write of ten keys of a million, drawn by Zipf's law: undeclared, declared,
//! and with what people do instead.

use super::{Effect, Tables, Workload, counter};
use crate::script::{Script, Source};

/// What makes the tables and procedures.
pub const SCHEMA: &str = include_str!("../../lane/schema.sql");
/// Rows of the table.
const ROWS: i64 = 1_000_000;

/// A workload whose script's name has these parts, and that adds so many to the sum of the table
/// with each transaction.
macro_rules! lane {
    ($draw:literal, $writes:literal, [$($part:literal)+]) => {
        Workload {
            effect: concat!(
                "SELECT ((SELECT sum(val) FROM lane_row)
                  - (SELECT val FROM lane_total))::bigint / ",
                $writes
            ),
            effect_is: Effect::Exactly,
            count_rows: "SELECT count(*) FROM lane_row WHERE id BETWEEN 1 AND 1000000",
            rows: ROWS,
            tables: Tables::Lane,
            reset: include_str!("../../lane/reset.sql"),
            ..counter(
                concat!("lane-", $($part,)+ "-zipf-", $draw),
                &[Script {
                    name: concat!("lane-", $($part,)+ "-zipf-", $draw),
                    source: Source::Text(concat!(
                        include_str!(concat!("../../lane/draw-", $draw, ".sql")),
                        include_str!(concat!("../../lane/", $($part,)+ ".sql"))
                    )),
                    weight: 1,
                }],
            )
        }
    };
}

/// The ways to do the same work.
pub struct Ways {
    pub plain: Workload,
    pub for_update: Workload,
    pub advisory: Workload,
    /// Writes are declared.
    pub writes: Workload,
    /// Writes and reads are.
    pub all: Workload,
}

macro_rules! ways {
    ($draw:literal, $writes:literal) => {
        Ways {
            plain: lane!($draw, $writes, ["call-plain-" $writes]),
            for_update: lane!($draw, $writes, ["call-for-update-" $writes]),
            advisory: lane!($draw, $writes, ["call-advisory-" $writes]),
            writes: lane!($draw, $writes, ["call-writes-" $writes]),
            all: lane!($draw, $writes, ["call-all-" $writes]),
        }
    };
}

pub static ZIPF_05: Ways = ways!(0.5, 5);
pub static ZIPF_09: Ways = ways!(0.9, 5);
pub static ZIPF_12: Ways = ways!(1.2, 5);
pub static ZIPF_12_FEW: Ways = ways!(1.2, 2);
pub static ZIPF_12_ONLY: Ways = ways!(1.2, 10);
/// Of so many of a hundred transactions nothing is declared: the server runs them again.
pub static RUN_10: Workload = lane!(1.2, 5, ["call-some-run-10-" 5]);
pub static RUN_50: Workload = lane!(1.2, 5, ["call-some-run-50-" 5]);
pub static RUN_100: Workload = lane!(1.2, 5, ["call-run-" 5]);
/// Ten rows of each client's own.
pub static ALONE_PLAIN: Workload = lane!("alone", 5, ["call-plain-" 5]);
pub static ALONE_ALL: Workload = lane!("alone", 5, ["call-all-" 5]);
pub static ALONE_FOR_UPDATE: Workload = lane!("alone", 5, ["call-for-update-" 5]);

/// One in five rolls back.
macro_rules! with_rollbacks {
    ($part:literal) => {
        Workload {
            scripts: &[
                Script {
                    name: concat!("lane-", $part, "-zipf-1.2"),
                    source: Source::Text(concat!(
                        include_str!("../../lane/draw-1.2.sql"),
                        include_str!(concat!("../../lane/", $part, "-5.sql"))
                    )),
                    weight: 4,
                },
                Script {
                    name: concat!("lane-", $part, "-rollback-zipf-1.2"),
                    source: Source::Text(concat!(
                        include_str!("../../lane/draw-1.2.sql"),
                        include_str!(concat!("../../lane/", $part, "-rollback-5.sql"))
                    )),
                    weight: 1,
                },
            ],
            name: concat!("lane-", $part, "-rollbacks-zipf-1.2"),
            ..lane!(1.2, 5, [$part "-" 5])
        }
    };
}

pub static ROLLBACKS: Workload = with_rollbacks!("call-writes");
pub static ROLLBACKS_FOR_UPDATE: Workload = with_rollbacks!("call-for-update");
pub static STATEMENTS: Workload = lane!(1.2, 5, ["statements-declare"]);
pub static STATEMENTS_FOR_UPDATE: Workload = lane!(1.2, 5, ["statements-for-update"]);
