//! The named range benchmarks: an axis each, and the variants that are compared along it.

use super::axis::{At, Axes};
use super::mix::{Kind, MixScript, Sizes};
use super::variant::{self, HEAP, REPEATABLE_READ, REPEATABLE_READ_TXN_HEAP, SSI, Variant};

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
pub struct Place {
    /// By what differs between the places.
    pub label: String,
    /// The same on an axis.
    pub tick: String,
    pub at: At,
    pub scripts: Vec<MixScript>,
    pub variants: Vec<Variant>,
}

impl Benchmark {
    /// Its own places.
    pub fn axes(&self) -> Axes {
        Axes {
            scans: self.scans.to_vec(),
            clients: self.clients.to_vec(),
            skews: self.skews.to_vec(),
            ranges: self.ranges.to_vec(),
            slots: self.slots.to_vec(),
        }
    }

    /// Every combination of places on the axes. Fails when one of them is impossible.
    pub fn places(&self, axes: &Axes, sizes: Sizes) -> anyhow::Result<Vec<Place>> {
        let mut places = Vec::new();
        for &scan in &axes.scans {
            for &clients in &axes.clients {
                for &skew in &axes.skews {
                    for &ranges in &axes.ranges {
                        for &slots in &axes.slots {
                            let sizes = Sizes {
                                scan,
                                clients,
                                skew,
                                ..sizes
                            };
                            let at = At {
                                kind: self.kind,
                                sizes,
                                ranges,
                                slots,
                            };
                            places.push(self.place(axes, at)?);
                        }
                    }
                }
            }
        }
        Ok(places)
    }

    /// What the places differ in; empty when there are several such things.
    pub fn axis_name(&self, axes: &Axes) -> &'static str {
        match axes.varying(self.kind).as_slice() {
            [axis] => axis.name(),
            _ => "",
        }
    }

    fn place(&self, axes: &Axes, at: At) -> anyhow::Result<Place> {
        at.sizes.check(self.kind)?;
        let varying = axes.varying(self.kind);
        let labels: Vec<String> = varying.iter().map(|axis| axis.label(&at)).collect();
        let label = labels.join(", ");
        Ok(Place {
            tick: match varying.as_slice() {
                [axis] => axis.tick(&at),
                _ => label.clone(),
            },
            label,
            at,
            scripts: at.sizes.scripts(self.kind)?,
            variants: self.variants.iter().map(|variant| variant(&at)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
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
            let places = benchmark.places(&benchmark.axes(), SIZES).unwrap();
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
        names.extend(crate::bench::catalog::all().map(|other| other.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for benchmark in ALL {
            let places = benchmark.places(&benchmark.axes(), SIZES).unwrap();
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
            let axes = benchmark.axes();
            let places = benchmark.places(&axes, SIZES).unwrap();
            assert_eq!(
                (benchmark.axis_name(&axes), places[0].tick.as_str()),
                (axis, first)
            );
        }
    }

    #[test]
    fn places_are_all_combinations() {
        let axes = Axes {
            scans: vec![10, 100],
            skews: vec![0.0, 0.7],
            ..ALL[0].axes()
        };
        let places = ALL[0].places(&axes, SIZES).unwrap();
        let labels: Vec<_> = places.iter().map(|place| place.label.as_str()).collect();
        assert_eq!(ALL[0].axis_name(&axes), "");
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
        let none = Axes {
            scans: vec![2_000_000],
            ..axes
        };
        assert!(ALL[0].places(&none, SIZES).is_err());
    }
}
