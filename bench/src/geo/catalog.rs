//! The named benchmarks: places, and the variants that are compared there.

use super::place::{At, DEFAULT};
use super::variant::Variant;
use super::workload::Kind;

#[derive(Debug)]
pub struct Benchmark {
    pub name: &'static str,
    pub about: &'static str,
    pub places: &'static [At],
    pub variants: &'static [Variant],
}

/// Rates are given as multiples of these, where they are there.
pub const BASELINES: [Variant; 3] = [Variant::Classic, Variant::PostgresFdw, Variant::Xa];

const USUAL: &[Variant] = &[
    Variant::PostgresFdw,
    Variant::Classic,
    Variant::Early,
    Variant::Scheduled,
    Variant::Forecast,
];
const WITH_XA: &[Variant] = &[
    Variant::PostgresFdw,
    Variant::Classic,
    Variant::Early,
    Variant::Scheduled,
    Variant::Forecast,
    Variant::Admission,
    Variant::Xa,
];
const WITH_DEFER: &[Variant] = &[
    Variant::PostgresFdw,
    Variant::Classic,
    Variant::Early,
    Variant::Scheduled,
    Variant::Forecast,
    Variant::Defer,
];
const OURS: &[Variant] = &[
    Variant::Classic,
    Variant::Early,
    Variant::Scheduled,
    Variant::Forecast,
    Variant::Admission,
    Variant::Defer,
    Variant::Decided,
];

const fn ycsb(distributed: u32, theta: f64) -> At {
    At {
        distributed,
        theta,
        ..DEFAULT
    }
}

const fn clients(clients: usize) -> At {
    At { clients, ..DEFAULT }
}

const fn operations(operations: usize) -> At {
    At {
        operations,
        ..DEFAULT
    }
}

/// Each operation is a statement.
const fn statements(distributed: u32, theta: f64) -> At {
    At {
        batches: DEFAULT.operations,
        ..ycsb(distributed, theta)
    }
}

const fn batches(batches: usize, theta: f64) -> At {
    At {
        operations: 6,
        batches,
        theta,
        ..DEFAULT
    }
}

const fn round_trips(rtt_mean: f64, rtt_deviation: f64, jitter: u32) -> At {
    At {
        rtt_mean,
        rtt_deviation,
        jitter,
        ..DEFAULT
    }
}

const fn change(change: u64) -> At {
    At { change, ..DEFAULT }
}

const fn coordinators(coordinators: usize) -> At {
    At {
        coordinators,
        ..DEFAULT
    }
}

const fn group_lock(on: bool) -> At {
    At {
        theta: 1.5,
        group_lock: Some(on),
        ..DEFAULT
    }
}

const fn tpcc(kind: Kind, distributed: u32) -> At {
    At {
        kind,
        distributed,
        ..DEFAULT
    }
}

pub static ALL: &[Benchmark] = &[
    Benchmark {
        name: "geo",
        about: "the headlines: YCSB over four nodes, a quarter to three quarters of it distributed",
        places: &[ycsb(25, 0.9), ycsb(75, 0.9), ycsb(25, 1.5), ycsb(50, 1.5)],
        variants: WITH_XA,
    },
    Benchmark {
        name: "geo-tpcc",
        about: "TPC-C's Payment and New-Order over four nodes, as many remote as in TPC-C",
        places: &[tpcc(Kind::Payment, 15), tpcc(Kind::NewOrder, 10)],
        variants: &[
            Variant::PostgresFdw,
            Variant::Classic,
            Variant::Early,
            Variant::Scheduled,
            Variant::Forecast,
            Variant::Defer,
            Variant::Xa,
        ],
    },
    Benchmark {
        name: "geo-ablation",
        about: "YCSB, half distributed, high skew: what each part of the coordinator does",
        places: &[ycsb(50, 0.9), ycsb(50, 1.5), statements(50, 0.9)],
        variants: OURS,
    },
    Benchmark {
        name: "geo-share",
        about: "YCSB over the share of distributed transactions",
        places: &[
            ycsb(0, 0.9),
            ycsb(20, 0.9),
            ycsb(50, 0.9),
            ycsb(75, 0.9),
            ycsb(100, 0.9),
        ],
        variants: USUAL,
    },
    Benchmark {
        name: "geo-skew",
        about: "YCSB over the skew; at 0.3 next to nothing conflicts",
        places: &[ycsb(20, 0.3), ycsb(20, 0.9), ycsb(20, 1.5)],
        variants: USUAL,
    },
    Benchmark {
        name: "geo-clients",
        about: "YCSB over the number of clients",
        places: &[clients(16), clients(64), clients(256)],
        variants: USUAL,
    },
    Benchmark {
        name: "geo-operations",
        about: "YCSB over the operations of a transaction",
        places: &[
            operations(5),
            operations(10),
            operations(15),
            operations(25),
        ],
        variants: USUAL,
    },
    Benchmark {
        name: "geo-batches",
        about: "YCSB with six operations, sent in one to six batches",
        places: &[
            batches(1, 0.3),
            batches(3, 0.3),
            batches(6, 0.3),
            batches(1, 0.9),
            batches(3, 0.9),
            batches(6, 0.9),
        ],
        variants: WITH_DEFER,
    },
    Benchmark {
        name: "geo-rtt",
        about: "YCSB over mean, deviation and jitter of the round trips",
        places: &[
            round_trips(50.0, 25.0, 0),
            round_trips(100.0, 10.0, 0),
            round_trips(100.0, 50.0, 0),
            round_trips(100.0, 70.0, 0),
            round_trips(100.0, 50.0, 20),
        ],
        variants: USUAL,
    },
    Benchmark {
        name: "geo-change",
        about: "YCSB while the nodes change their round trips; --seconds 160 sees four of them",
        places: &[change(0), change(40)],
        variants: USUAL,
    },
    Benchmark {
        name: "geo-coordinators",
        about: "YCSB at one coordinator, and at two, to which other nodes are near",
        places: &[coordinators(1), coordinators(2)],
        variants: USUAL,
    },
    Benchmark {
        name: "geo-locks",
        about: "YCSB with high skew at nodes that have txn, group lock off and on",
        places: &[group_lock(false), group_lock(true)],
        variants: USUAL,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::place::labels;

    #[test]
    fn places_of_a_benchmark_differ() {
        for benchmark in ALL {
            let mut labels = labels(benchmark.places);
            labels.sort_unstable();
            labels.dedup();
            assert_eq!(labels.len(), benchmark.places.len(), "{}", benchmark.name);
        }
    }

    #[test]
    fn nodes_of_a_benchmark_all_have_the_extension_or_none_has() {
        for benchmark in ALL {
            let has = benchmark.places.iter().map(|at| at.group_lock.is_some());
            let has: Vec<bool> = has.collect();
            assert!(has.windows(2).all(|two| two[0] == two[1]));
        }
    }
}
