//! pgbench's own TPC-B, unmodified.

use super::*;

pub const WAIT: &[(&str, &str)] = &[("txn.group_lock", "on"), ("txn.follower_reads", "wait")];
pub const IMMEDIATE: &[(&str, &str)] = &[
    ("txn.group_lock", "on"),
    ("txn.follower_reads", "immediate"),
];

const fn ways_to_read(workload: &'static Workload) -> [Series; 3] {
    [
        stock(STOCK, workload),
        loaded("group lock wait", workload).with(WAIT),
        loaded("group lock immediate", workload).with(IMMEDIATE),
    ]
}

pub static TPCB_1: Benchmark = Benchmark {
    name: "tpcb-1",
    about: "pgbench's TPC-B at scale 1: one branch, ten tellers; txn.follower_reads = wait and immediate",
    clients: &[1, 16, 64],
    series: &ways_to_read(&workload::TPCB_1),
    ..BASE
};

pub static TPCB_10: Benchmark = Benchmark {
    name: "tpcb-10",
    about: "the same at scale 10",
    clients: &[1, 16, 64],
    series: &ways_to_read(&workload::TPCB_10),
    ..BASE
};
