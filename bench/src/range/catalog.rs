//! The named range benchmarks: an axis each, and the variants that are compared along it.

use super::axis::{At, varying};
use super::mix::{Kind, Sizes};
use super::script::MixScript;
use super::variant::{self, HEAP, REPEATABLE_READ, REPEATABLE_READ_TXN_HEAP, SSI, Variant};
use crate::axis::{label, replace};

#[derive(Debug)]
pub struct Benchmark {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
    pub scans: &'static [u64],
    pub clients: &'static [usize],
    pub skews: &'static [f64],
    pub ranges: &'static [u64],
    pub slots: &'static [u32],
    pub variants: &'static [fn(&At) -> Variant],
    /// Rates are also given as multiples of these.
    pub baselines: &'static [&'static str],
}

const BASE: Benchmark = Benchmark {
    name: "",
    about: "",
    kind: Kind::Hybrid,
    scans: &[1000],
    clients: &[16],
    skews: &[0.0],
    ranges: &[0],
    slots: &[0],
    variants: &[
        variant::repeatable_read,
        variant::repeatable_read_on_txn_heap,
        variant::ssi,
        variant::ssi_with_more_locks,
        variant::range_occ,
        variant::range_occ_with_window,
        variant::one_range,
    ],
    baselines: &[REPEATABLE_READ, REPEATABLE_READ_TXN_HEAP, SSI],
};
/// Where the others would be the same at every place.
const FOUR: &[fn(&At) -> Variant] = &[
    variant::repeatable_read,
    variant::repeatable_read_on_txn_heap,
    variant::ssi,
    variant::range_occ,
];

pub static ALL: &[Benchmark] = &[
    Benchmark {
        name: "range",
        about: "90 % point transactions, 10 % bulk transactions with a scan of 10 to 10,000 keys",
        scans: &[10, 100, 1000, 10_000],
        ..BASE
    },
    Benchmark {
        name: "range-clients",
        about: "the same with scans of 1000 keys, over the number of clients",
        clients: &[1, 4, 16, 64],
        ..BASE
    },
    Benchmark {
        name: "range-skew",
        about: "the same with keys drawn by Zipf's law",
        skews: &[0.0, 0.7, 0.88, 1.04],
        ..BASE
    },
    Benchmark {
        name: "range-ranges",
        about: "the same over the number of ranges",
        ranges: &[1, 16, 256, 4096, 65_536, 262_144],
        variants: FOUR,
        ..BASE
    },
    Benchmark {
        name: "range-ring",
        about: "scans of 10,000 keys, over the number of slots that remember the writes to a range",
        scans: &[10_000],
        slots: &[4, 8, 16, 32, 64, 128],
        variants: FOUR,
        ..BASE
    },
    Benchmark {
        name: "range-reads",
        about: "bulk transactions that only read",
        kind: Kind::BulkReads,
        scans: &[1000, 10_000],
        ..BASE
    },
    Benchmark {
        name: "range-disjoint",
        about: "each client reads and writes keys of its own",
        kind: Kind::Disjoint,
        scans: &[1000, 10_000],
        ..BASE
    },
    Benchmark {
        name: "range-off",
        about: "point transactions at READ COMMITTED: what registering every write costs",
        kind: Kind::Points,
        variants: &[
            variant::heap_off,
            variant::heap_again,
            variant::heap_with_library_off,
            variant::txn_heap_off,
        ],
        baselines: &[HEAP],
        ..BASE
    },
    Benchmark {
        name: "range-tpcc",
        about: "TPC-C's New-Order and Payment, and a reward for the best of 300 or 3000 customers",
        kind: Kind::Tpcc,
        scans: &[300, 3000],
        ..BASE
    },
];

/// One place of the axes: a load, and the variants that run it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Place {
    /// By what differs between the places.
    #[serde(rename = "place")]
    pub label: String,
    /// The label on an axis.
    pub tick: String,
    pub at: At,
    pub scripts: Vec<MixScript>,
    pub variants: Vec<Variant>,
}

impl Benchmark {
    /// Its own places, with sizes that are the same at all of them.
    pub fn own(&self, sizes: Sizes) -> Vec<At> {
        let mut places = vec![At {
            kind: self.kind,
            sizes,
            ranges: 0,
            slots: 0,
        }];
        replace(&mut places, self.scans, |at, scan| at.sizes.scan = scan);
        replace(&mut places, self.clients, |at, clients| {
            at.sizes.clients = clients
        });
        replace(&mut places, self.skews, |at, skew| at.sizes.skew = skew);
        replace(&mut places, self.ranges, |at, ranges| at.ranges = ranges);
        replace(&mut places, self.slots, |at, slots| at.slots = slots);
        places
    }

    /// What runs at these places. Fails when one of them is impossible.
    pub fn places(&self, all: &[At]) -> anyhow::Result<Vec<Place>> {
        let varying = varying(self.kind, all);
        let place = |at: &At| {
            at.sizes.check(self.kind)?;
            let label = label(&varying, at);
            Ok(Place {
                tick: match varying.as_slice() {
                    [axis] => (axis.tick)(at),
                    _ => label.clone(),
                },
                label,
                at: *at,
                scripts: at.sizes.scripts(self.kind)?,
                variants: self.variants.iter().map(|variant| variant(at)).collect(),
            })
        };
        all.iter().map(place).collect()
    }

    /// What the places differ in; empty when there are several such things.
    pub fn axis_name(&self, all: &[At]) -> &'static str {
        match varying(self.kind, all).as_slice() {
            [axis] => axis.name,
            _ => "",
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const SIZES: Sizes = Sizes {
        rows: 1_000_000,
        row_bytes: 100,
        warehouses: 2,
        scan: 1,
        clients: 1,
        skew: 0.0,
        bulk: 10,
    };

    #[test]
    fn every_benchmark_has_places_and_its_baselines_are_variants() {
        for benchmark in ALL {
            let places = benchmark.places(&benchmark.own(SIZES)).unwrap();
            assert!(!places.is_empty(), "{}", benchmark.name);
            for place in places {
                let count = |label| {
                    let same = |variant: &&Variant| variant.label == label;
                    place.variants.iter().filter(same).count()
                };
                let labels = place.variants.iter().map(|variant| variant.label);
                for label in labels.chain(benchmark.baselines.iter().copied()) {
                    assert_eq!(count(label), 1, "{}: {label}", benchmark.name);
                }
            }
        }
    }

    #[test]
    fn names_and_places_are_told_apart() {
        let mut names: Vec<_> = ALL.iter().map(|benchmark| benchmark.name).collect();
        names.extend(crate::catalog::all().map(|other| other.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for benchmark in ALL {
            let places = benchmark.places(&benchmark.own(SIZES)).unwrap();
            let mut labels: Vec<_> = places.iter().map(|place| &place.label).collect();
            labels.sort_unstable();
            labels.dedup();
            assert_eq!(labels.len(), places.len(), "{}", benchmark.name);
        }
    }

    #[test]
    fn a_single_axis_gives_its_name_to_the_plots_and_numbers_to_the_places() {
        for (name, axis, first) in [
            ("range", "keys of a scan", "10"),
            ("range-clients", "clients", "1"),
            ("range-skew", "exponent of Zipf's law", "uniform"),
            ("range-off", "clients", "16"),
        ] {
            let benchmark = ALL.iter().find(|one| one.name == name).unwrap();
            let own = benchmark.own(SIZES);
            let places = benchmark.places(&own).unwrap();
            assert_eq!(
                (benchmark.axis_name(&own), places[0].tick.as_str()),
                (axis, first)
            );
        }
    }

    #[test]
    fn places_are_all_combinations() {
        let mut all = ALL[0].own(SIZES);
        all.truncate(2);
        replace(&mut all, &[0.0, 0.7], |at, skew| at.sizes.skew = skew);
        let places = ALL[0].places(&all).unwrap();
        let labels: Vec<_> = places.iter().map(|place| place.label.as_str()).collect();
        assert_eq!(ALL[0].axis_name(&all), "");
        assert_eq!(places[0].tick, labels[0]);
        assert_eq!(
            labels,
            [
                "10 keys, uniform",
                "10 keys, Zipf 0.7",
                "100 keys, uniform",
                "100 keys, Zipf 0.7"
            ]
        );
        all[0].sizes.scan = 2_000_000;
        assert!(ALL[0].places(&all).is_err());
    }
}
