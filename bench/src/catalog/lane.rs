//! Declared transactions beside what people do instead, by skew and share of writes.

use super::*;
use crate::workload::lane::{self, Ways};
use crate::workload::tpcc::{DECLARE, DECLARE_WAREHOUSE, PROCEDURES, declared, tpcc};

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

const fn all(ways: &'static Ways) -> [Series; 8] {
    [
        stock(FOR_UPDATE, &ways.for_update),
        stock(ADVISORY, &ways.advisory),
        stock("REPEATABLE READ", &ways.plain).with(REPEATABLE_READ),
        stock("SSI", &ways.plain).with(SERIALIZABLE),
        loaded(OCC, &ways.plain).with(VALIDATED),
        group("group lock, undeclared", &ways.plain),
        loaded(LANE, &ways.writes),
        loaded(ALL_KEYS, &ways.all).with(VALIDATED),
    ]
}

macro_rules! tpcc {
    ($name:ident, $warehouses:literal) => {
        static $name: Benchmark = {
            static STOCK: Workload = tpcc("tpcc-procedures", PROCEDURES, $warehouses);
            static OURS: Workload = declared("tpcc-declared", $warehouses, DECLARE);
            static ALL: Workload =
                declared("tpcc-declared-warehouse", $warehouses, DECLARE_WAREHOUSE);
            Benchmark {
                name: concat!("lane-tpcc-", $warehouses),
                about: concat!(
                    "TPC-C by procedures that declare some of their rows, warehouses: ",
                    $warehouses
                ),
                family: Some(FAMILY),
                clients: &[16, 64],
                series: &[
                    stock(FOR_UPDATE, &STOCK),
                    stock("REPEATABLE READ", &STOCK).with(REPEATABLE_READ),
                    stock("SSI", &STOCK).with(SERIALIZABLE),
                    group("group lock, undeclared", &STOCK),
                    loaded(OCC, &OURS).with(UNDECLARED_VALIDATED),
                    loaded(LANE, &OURS),
                    loaded("lane, range OCC", &ALL).with(VALIDATED),
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
                    stock(FOR_UPDATE, &lane::STATEMENTS_FOR_UPDATE),
                    loaded(LANE, &lane::STATEMENTS),
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
                    stock(FOR_UPDATE, &lane::ZIPF_12.for_update),
                    loaded(ALL_KEYS, &lane::ZIPF_12.all).with(VALIDATED),
                    loaded("10 of 100 by txn.run", &lane::RUN_10).with(VALIDATED),
                    loaded("50 of 100 by txn.run", &lane::RUN_50).with(VALIDATED),
                    loaded("all by txn.run", &lane::RUN_100).with(VALIDATED),
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
                    loaded(LANE, &lane::ZIPF_12.writes),
                    loaded(ROLLBACKS, &lane::ROLLBACKS),
                    stock("sorted FOR UPDATE, rollbacks", &lane::ROLLBACKS_FOR_UPDATE),
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
                    loaded(UNDECLARED, &lane::ALONE_PLAIN).with(UNFLUSHED),
                    loaded("lane, all keys", &lane::ALONE_ALL).with(UNFLUSHED),
                    loaded("undeclared, range OCC", &lane::ALONE_PLAIN).with(UNFLUSHED_VALIDATED),
                    loaded(ALL_KEYS, &lane::ALONE_ALL).with(UNFLUSHED_VALIDATED),
                    stock(FOR_UPDATE, &lane::ALONE_FOR_UPDATE).with(UNFLUSHED),
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
                    stock(FOR_UPDATE, &lane::ZIPF_12.for_update),
                    loaded(LANE, &lane::ZIPF_12.writes),
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
