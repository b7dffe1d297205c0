//! What group lock does not like.

use super::*;

pub static ROLLBACKS: Benchmark = Benchmark {
    name: "rollbacks",
    about: "0, 1, 5, 10 and 20 % of the transactions roll back, 40001 retried",
    clients: &[64],
    series: &[
        group(NO_ROLLBACKS, &workload::NO_ROLLBACKS),
        stock("stock 0 %", &workload::NO_ROLLBACKS),
        group("group lock 1 %", &workload::ROLLBACKS_1),
        stock("stock 1 %", &workload::ROLLBACKS_1),
        group("group lock 5 %", &workload::ROLLBACKS_5),
        stock("stock 5 %", &workload::ROLLBACKS_5),
        group("group lock 10 %", &workload::ROLLBACKS_10),
        stock("stock 10 %", &workload::ROLLBACKS_10),
        group("group lock 20 %", &workload::ROLLBACKS_20),
        stock("stock 20 %", &workload::ROLLBACKS_20),
    ],
    baseline: NO_ROLLBACKS,
    ..BASE
};
const NO_ROLLBACKS: &str = "group lock 0 %";

pub static OLD_SNAPSHOT: Benchmark = Benchmark {
    name: "old-snapshot",
    about: "the hot row while another session holds a snapshot open all the time (--seconds 120)",
    clients: &[16, 64],
    series: &[
        stock(STOCK, &workload::OLD_SNAPSHOT),
        group(GROUP, &workload::OLD_SNAPSHOT),
    ],
    ..BASE
};

pub static NON_HOT: Benchmark = Benchmark {
    name: "non-hot",
    about: "the hot row where an indexed column is updated and pages are full (fillfactor 100)",
    clients: &[16, 64],
    series: &three_ways(&workload::NON_HOT),
    ceiling: Some(DIFFERENT),
    ..BASE
};
