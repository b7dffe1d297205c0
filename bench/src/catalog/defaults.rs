//! The benchmarks behind the defaults of `txn.hot_threshold` and `txn.group_size`. A table's own
//! settings (txn.set_table) are the same decisions, so these are measured by the sessions'
//! settings.

use super::{BASE, Benchmark, STOCK, loaded, stock};
use crate::workload;

macro_rules! threshold {
    ($value:literal) => {
        loaded(concat!("hot_threshold ", $value), &workload::HOT_LEDGER)
            .with(&[("txn.group_lock", "on"), ("txn.hot_threshold", $value)])
    };
}

pub static THRESHOLD: Benchmark = Benchmark {
    name: "threshold",
    about: "from how many waiters on a row is worth a ticket queue (txn.hot_threshold)",
    clients: &[2, 4, 8, 16, 64],
    series: &[
        stock(STOCK, &workload::HOT_LEDGER),
        threshold!("0"),
        threshold!("1"),
        threshold!("2"),
        threshold!("4"),
        threshold!("8"),
        threshold!("16"),
    ],
    baseline: STOCK,
    ..BASE
};

macro_rules! group_size {
    ($value:literal, $rollbacks:literal, $workload:path) => {
        loaded(concat!("group_size ", $value, ", ", $rollbacks), &$workload)
            .with(&[("txn.group_lock", "on"), ("txn.group_size", $value)])
    };
}

pub static GROUP_SIZE: Benchmark = Benchmark {
    name: "group-size",
    about: "how many transactions may follow each other, with and without rollbacks (txn.group_size)",
    clients: &[64, 256],
    series: &[
        group_size!("8", "0 % rollbacks", workload::NO_ROLLBACKS),
        group_size!("32", "0 % rollbacks", workload::NO_ROLLBACKS),
        group_size!("256", "0 % rollbacks", workload::NO_ROLLBACKS),
        group_size!("1024", "0 % rollbacks", workload::NO_ROLLBACKS),
        group_size!("8", "5 % rollbacks", workload::ROLLBACKS_5),
        group_size!("32", "5 % rollbacks", workload::ROLLBACKS_5),
        group_size!("256", "5 % rollbacks", workload::ROLLBACKS_5),
        group_size!("1024", "5 % rollbacks", workload::ROLLBACKS_5),
    ],
    baseline: "group_size 256, 0 % rollbacks",
    ..BASE
};
