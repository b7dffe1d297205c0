//! Declared transactions beside what people do instead, by skew and share of writes.

use super::*;
use crate::bench::workload::lane::{self, Ways};

pub const FAMILY: &str = "lane";
pub const ABOUT: &str = "declared transactions: the benchmarks lane-*";

const FOR_UPDATE: &str = "sorted FOR UPDATE";
const LANE: &str = "lane";

const REPEATABLE_READ: &[(&str, &str)] = &[("default_transaction_isolation", "repeatable\\ read")];
const SERIALIZABLE: &[(&str, &str)] = &[("default_transaction_isolation", "serializable")];
const VALIDATED: &[(&str, &str)] = &[
    ("default_transaction_isolation", "repeatable\\ read"),
    ("txn.range_occ", "on"),
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
        theirs("sorted advisory locks", &ways.advisory, &[]),
        theirs("REPEATABLE READ", &ways.plain, REPEATABLE_READ),
        theirs("SSI", &ways.plain, SERIALIZABLE),
        ours("range OCC", &ways.plain, VALIDATED),
        ours("group lock, undeclared", &ways.plain, GROUP_ON),
        ours(LANE, &ways.writes, &[]),
        ours("lane, all keys, range OCC", &ways.all, VALIDATED),
    ]
}

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
