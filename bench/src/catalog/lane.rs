//! Declared transactions beside what people do instead, by skew and share of writes.

use super::*;
use crate::workload::lane::{self, Ways};
use crate::workload::tpcc::{PROCEDURES, declared, tpcc};

pub const FAMILY: &str = "lane";
pub const ABOUT: &str = "declared transactions: the benchmarks lane-*";

pub const FOR_UPDATE: &str = "sorted FOR UPDATE";
pub const LANE: &str = "lane";
pub const ALL_KEYS: &str = "lane, all keys, range OCC";
pub const OCC: &str = "range OCC";
pub const ADVISORY: &str = "sorted advisory locks";
pub const ROLLBACKS: &str = "lane, rollbacks";
const UNDECLARED: &str = "undeclared";

const REPEATABLE_READ: &[(&str, &str)] = &[("default_transaction_isolation", "repeatable\\ read")];
const SERIALIZABLE: &[(&str, &str)] = &[("default_transaction_isolation", "serializable")];
const VALIDATED: &[(&str, &str)] = &[
    ("default_transaction_isolation", "repeatable\\ read"),
    ("txn.range_occ", "on"),
];
const UNDECLARED_VALIDATED: &[(&str, &str)] = &[
    ("default_transaction_isolation", "repeatable\\ read"),
    ("txn.range_occ", "on"),
    ("txn.lane", "off"),
];
const UNFLUSHED: &[(&str, &str)] = &[("synchronous_commit", "off")];
const UNFLUSHED_VALIDATED: &[(&str, &str)] = &[
    ("default_transaction_isolation", "repeatable\\ read"),
    ("txn.range_occ", "on"),
    ("synchronous_commit", "off"),
];

const fn ours(
    label: &'static str,
    workload: &'static Workload,
    settings: &'static [(&'static str, &'static str)],
) -> Series {
    Series {
        settings,
        ..group(label, workload)
    }
}

const fn theirs(
    label: &'static str,
    workload: &'static Workload,
    settings: &'static [(&'static str, &'static str)],
) -> Series {
    Series {
        settings,
        ..stock(label, workload)
    }
}

const fn all(ways: &'static Ways) -> [Series; 8] {
    [
        theirs(FOR_UPDATE, &ways.for_update, &[]),
        theirs(ADVISORY, &ways.advisory, &[]),
        theirs("REPEATABLE READ", &ways.plain, REPEATABLE_READ),
        theirs("SSI", &ways.plain, SERIALIZABLE),
        ours(OCC, &ways.plain, VALIDATED),
        ours("group lock, undeclared", &ways.plain, GROUP_ON),
        ours(LANE, &ways.writes, &[]),
        ours(ALL_KEYS, &ways.all, VALIDATED),
    ]
}

macro_rules! tpcc {
    ($name:ident, $warehouses:literal) => {
        static $name: Benchmark = {
            static STOCK: Workload = tpcc("tpcc-procedures", PROCEDURES, $warehouses);
            static OURS: Workload = declared("tpcc-declared", $warehouses);
            Benchmark {
                name: concat!("lane-tpcc-", $warehouses),
                about: concat!(
                    "TPC-C by procedures that declare some of their rows, warehouses: ",
                    $warehouses
                ),
                family: Some(FAMILY),
                clients: &[16, 64],
                series: &[
                    theirs(FOR_UPDATE, &STOCK, &[]),
                    theirs("REPEATABLE READ", &STOCK, REPEATABLE_READ),
                    theirs("SSI", &STOCK, SERIALIZABLE),
                    ours("group lock, undeclared", &STOCK, GROUP_ON),
                    ours(OCC, &OURS, UNDECLARED_VALIDATED),
                    ours(LANE, &OURS, &[]),
                    ours("lane, range OCC", &OURS, VALIDATED),
                ],
                baseline: FOR_UPDATE,
                ..BASE
            }
        };
    };
}

tpcc!(TPCC_1, 1);
tpcc!(TPCC_4, 4);
tpcc!(TPCC_10, 10);

macro_rules! lane {
    ($($name:literal, $about:literal, $ways:path;)*) => {
        pub static ALL: &[&Benchmark] = &[
            $(&Benchmark {
                name: concat!("lane-", $name),
                about: $about,
                family: Some(FAMILY),
                clients: &[4, 16, 64],
                series: &const { all(&$ways) },
                baseline: FOR_UPDATE,
                ..BASE
            },)*
            &Benchmark {
                name: "lane-statements",
                about: "ten keys of a million, Zipf 1.2, five written, as statements of a client",
                family: Some(FAMILY),
                clients: &[4, 16, 64],
                series: &[
                    theirs(FOR_UPDATE, &lane::STATEMENTS_FOR_UPDATE, &[]),
                    ours(LANE, &lane::STATEMENTS, &[]),
                ],
                baseline: FOR_UPDATE,
                ..BASE
            },
            &Benchmark {
                name: "lane-undeclared",
                about: "the same, all declared, but of some transactions, which txn.run runs again",
                family: Some(FAMILY),
                clients: &[16, 64],
                series: &[
                    theirs(FOR_UPDATE, &lane::ZIPF_12.for_update, &[]),
                    ours(ALL_KEYS, &lane::ZIPF_12.all, VALIDATED),
                    ours("10 of 100 by txn.run", &lane::RUN_10, VALIDATED),
                    ours("50 of 100 by txn.run", &lane::RUN_50, VALIDATED),
                    ours("all by txn.run", &lane::RUN_100, VALIDATED),
                ],
                baseline: ALL_KEYS,
                ..BASE
            },
            &Benchmark {
                name: "lane-rollbacks",
                about: "the same by a procedure, one of five transactions rolls back",
                family: Some(FAMILY),
                clients: &[16, 64],
                series: &[
                    ours(LANE, &lane::ZIPF_12.writes, &[]),
                    ours(ROLLBACKS, &lane::ROLLBACKS, &[]),
                    theirs("sorted FOR UPDATE, rollbacks", &lane::ROLLBACKS_FOR_UPDATE, &[]),
                ],
                baseline: LANE,
                ..BASE
            },
            &Benchmark {
                name: "lane-alone",
                about: "ten keys of each client's own, without a flush: what a declaration costs",
                family: Some(FAMILY),
                clients: &[1],
                series: &[
                    ours(UNDECLARED, &lane::ALONE_PLAIN, UNFLUSHED),
                    ours("lane, all keys", &lane::ALONE_ALL, UNFLUSHED),
                    ours("undeclared, range OCC", &lane::ALONE_PLAIN, UNFLUSHED_VALIDATED),
                    ours(ALL_KEYS, &lane::ALONE_ALL, UNFLUSHED_VALIDATED),
                    theirs(FOR_UPDATE, &lane::ALONE_FOR_UPDATE, UNFLUSHED),
                ],
                baseline: UNDECLARED,
                ..BASE
            },
            &TPCC_1,
            &TPCC_4,
            &TPCC_10,
            &Benchmark {
                name: "lane-standby",
                about: "the same at Zipf 1.2 with a synchronous standby, 1 ms there and 1 ms back",
                family: Some(FAMILY),
                clients: &[64],
                series: &[
                    theirs(FOR_UPDATE, &lane::ZIPF_12.for_update, &[]),
                    ours(LANE, &lane::ZIPF_12.writes, &[]),
                ],
                baseline: FOR_UPDATE,
                standby: Some(Standby { delay_ms: 1 }),
                ..BASE
            },
        ];
    };
}

lane! {
    "zipf-0.5", "ten keys of a million, Zipf 0.5, five written, by a procedure", lane::ZIPF_05;
    "zipf-0.9", "ten keys of a million, Zipf 0.9, five written, by a procedure", lane::ZIPF_09;
    "zipf-1.2", "ten keys of a million, Zipf 1.2, five written, by a procedure", lane::ZIPF_12;
    "zipf-1.2-few-writes", "ten keys of a million, Zipf 1.2, two written, by a procedure",
    lane::ZIPF_12_FEW;
    "zipf-1.2-writes", "ten keys of a million, Zipf 1.2, all written, by a procedure",
    lane::ZIPF_12_ONLY;
}
