//! The named benchmarks: which variants of which workloads run side by side.

mod adverse;
mod defaults;
pub mod lane;
mod several_rows;
pub mod shapes;
mod sysbench;
pub mod tpcb;
mod tpcc;

use plotters::style::RGBColor;

use super::workload::{self, Tables, Workload};

/// What a variant runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// PostgreSQL without the library.
    Stock,
    /// PostgreSQL with the library loaded.
    Txn,
    MariaDb,
}

/// Which rows the clients update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All of them the same one.
    Hot,
    /// Each client its own.
    Different,
}

/// One variant: a line of a table, a curve of a plot.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    pub label: &'static str,
    pub system: System,
    pub workload: &'static Workload,
    pub rows: Rows,
    /// Settings of the sessions.
    pub settings: &'static [(&'static str, &'static str)],
}

/// Variants that are measured in turn, and how they are compared.
#[derive(Debug)]
pub struct Benchmark {
    pub name: &'static str,
    pub about: &'static str,
    /// It is run and reported together with others, by this name.
    pub family: Option<&'static str>,
    pub clients: &'static [usize],
    pub series: &'static [Series],
    /// Rates are given as multiples of this one.
    pub baseline: &'static str,
    /// The variant that does this work without contention: the U of H/U.
    pub ceiling: Option<&'static str>,
    pub standby: Option<Standby>,
    /// pgbench has a thread for each client, as many applications have, not a few for all.
    pub a_thread_each: bool,
}

/// A synchronous standby, for which every commit waits.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Standby {
    /// How long everything takes to it, and as long back.
    pub delay_ms: u64,
}

/// Of a variant: readable on light and on dark.
pub fn color_of(variant: &str) -> RGBColor {
    match variant {
        STOCK => RGBColor(214, 69, 80),
        QUEUE => RGBColor(224, 160, 48),
        GROUP => RGBColor(22, 163, 122),
        DIFFERENT => RGBColor(128, 138, 157),
        _ => RGBColor(120, 100, 200),
    }
}

/// Families, and what they are about.
pub static FAMILIES: &[(&str, &str)] = &[
    shapes::FAMILIES[0],
    shapes::FAMILIES[1],
    shapes::FAMILIES[2],
    shapes::FAMILIES[3],
    (tpcc::FAMILY, tpcc::ABOUT),
    (sysbench::FAMILY, sysbench::ABOUT),
    (lane::FAMILY, lane::ABOUT),
];

/// With more clients than that, none has a warehouse of its own: the database would not fit the
/// memory.
const MOST_WAREHOUSES: usize = 32;

impl Series {
    /// With these settings of the sessions in place of its own.
    const fn with(self, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self { settings, ..self }
    }

    /// By this name.
    const fn named(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    /// Each client with rows of its own.
    const fn apart(self) -> Self {
        let rows = Rows::Different;
        Self { rows, ..self }
    }

    /// On MariaDB.
    const fn on_mariadb(self) -> Self {
        let system = System::MariaDb;
        Self { system, ..self }
    }

    /// TPC-C's warehouses with so many clients; None for all other workloads.
    pub fn warehouses(&self, clients: usize) -> Option<usize> {
        match (self.workload.tables, self.rows) {
            (Tables::Tpcc { warehouses, .. }, Rows::Hot) => Some(warehouses),
            (Tables::Tpcc { .. }, Rows::Different) => Some(clients),
            _ => None,
        }
    }

    /// Whether it is measured with so many clients.
    pub fn runs_with(&self, clients: usize) -> bool {
        self.warehouses(clients)
            .is_none_or(|warehouses| warehouses <= MOST_WAREHOUSES)
    }
}

pub const STOCK: &str = "stock";
/// The library is loaded and nothing of it is on.
pub const OFF: &str = "group lock off";
pub const QUEUE: &str = "queue lock";
pub const GROUP: &str = "group lock";
pub const DIFFERENT: &str = "different rows (U)";
pub const A_WAREHOUSE_EACH: &str = "a warehouse each (U)";

pub const GROUP_ON: &[(&str, &str)] = &[("txn.group_lock", "on")];
const GROUP_ALONE: &[(&str, &str)] = &[("txn.group_lock", "on"), ("txn.combine_updates", "off")];
const QUEUE_ON: &[(&str, &str)] = &[("txn.queue_lock", "on")];
/// A commit takes 2 ms.
pub const SLOW: &[(&str, &str)] = &[("commit_delay", "2000"), ("commit_siblings", "0")];
const SLOW_GROUP: &[(&str, &str)] = &[
    ("commit_delay", "2000"),
    ("commit_siblings", "0"),
    ("txn.group_lock", "on"),
];

/// On PostgreSQL without the library.
const fn stock(label: &'static str, workload: &'static Workload) -> Series {
    Series {
        label,
        system: System::Stock,
        workload,
        rows: Rows::Hot,
        settings: &[],
    }
}

/// With the library, and nothing of it on but by settings.
const fn loaded(label: &'static str, workload: &'static Workload) -> Series {
    Series {
        system: System::Txn,
        ..stock(label, workload)
    }
}

const fn group(label: &'static str, workload: &'static Workload) -> Series {
    loaded(label, workload).with(GROUP_ON)
}

const fn queue(workload: &'static Workload) -> Series {
    loaded(QUEUE, workload).with(QUEUE_ON)
}

const fn different(workload: &'static Workload) -> Series {
    stock(DIFFERENT, workload).apart()
}

/// The four variants of the demo.
const fn four_ways(workload: &'static Workload) -> [Series; 4] {
    [
        stock(STOCK, workload),
        queue(workload),
        group(GROUP, workload),
        different(workload),
    ]
}

/// Stock, group lock, and each client with a row of its own.
const fn three_ways(workload: &'static Workload) -> [Series; 3] {
    [
        stock(STOCK, workload),
        group(GROUP, workload),
        different(workload),
    ]
}

/// These three where a commit takes 2 ms.
const fn slow_ways(workload: &'static Workload) -> [Series; 3] {
    let [stock, group, different] = three_ways(workload);
    [
        stock.with(SLOW),
        group.with(SLOW_GROUP),
        different.with(SLOW),
    ]
}

/// Stock, the library with group lock off and on.
const fn off_and_on(workload: &'static Workload) -> [Series; 3] {
    [
        stock(STOCK, workload),
        loaded(OFF, workload),
        group(GROUP, workload),
    ]
}

/// These and a ceiling.
const fn off_on_and(workload: &'static Workload, ceiling: Series) -> [Series; 4] {
    let [stock, off, on] = off_and_on(workload);
    [stock, off, on, ceiling]
}

/// What most benchmarks have in common.
const BASE: Benchmark = Benchmark {
    name: "",
    about: "",
    family: None,
    clients: &[],
    series: &[],
    baseline: STOCK,
    ceiling: None,
    standby: None,
    a_thread_each: false,
};

pub static HOT_ROW: Benchmark = Benchmark {
    name: "hot-row",
    about: "UPDATE of one row by every client, each its own transaction",
    clients: &[1, 16, 64, 256, 1024],
    series: &four_ways(&workload::HOT_ROW),
    ceiling: Some(DIFFERENT),
    ..BASE
};

pub static HOT_LEDGER: Benchmark = Benchmark {
    name: "hot-ledger",
    about: "UPDATE of one row and INSERT into a ledger, in one transaction",
    clients: &[1, 16, 64, 256, 1024],
    series: &four_ways(&workload::HOT_LEDGER),
    ceiling: Some(DIFFERENT),
    ..BASE
};

static FOREIGN_KEY: Benchmark = Benchmark {
    name: "foreign-key",
    about: "the same with a foreign key from the ledger to the hot row",
    clients: &[16, 64, 256],
    series: &four_ways(&workload::FOREIGN_KEY),
    ceiling: Some(DIFFERENT),
    ..BASE
};

static UPSERT: Benchmark = Benchmark {
    name: "upsert",
    about: "INSERT ... ON CONFLICT DO UPDATE of one row by every client",
    clients: &[16, 64, 256],
    series: &four_ways(&workload::UPSERT),
    ceiling: Some(DIFFERENT),
    ..BASE
};

static THINK_TIME: Benchmark = Benchmark {
    name: "think-time",
    about: "UPDATE of one row, and 5 ms of the client's own before its COMMIT",
    clients: &[16, 64, 256],
    series: &four_ways(&workload::THINK_TIME),
    ceiling: Some(DIFFERENT),
    ..BASE
};

static COMBINING: Benchmark = Benchmark {
    name: "combining",
    about: "the hot row with and without combining single-statement updates",
    clients: &[16, 64, 256],
    series: &[
        group("each its own version", &workload::HOT_ROW).with(GROUP_ALONE),
        group(GROUP, &workload::HOT_ROW),
        different(&workload::HOT_ROW),
    ],
    baseline: "each its own version",
    ceiling: Some(DIFFERENT),
    ..BASE
};

static COMMIT_LATENCY: Benchmark = Benchmark {
    name: "commit-latency",
    about: "the hot row where a commit takes 2 ms (commit_delay = 2000, commit_siblings = 0)",
    clients: &[64, 256],
    series: &slow_ways(&workload::HOT_ROW),
    ceiling: Some(DIFFERENT),
    ..BASE
};

static UNIFORM: Benchmark = Benchmark {
    name: "uniform",
    about: "different rows: what group lock costs where nothing is hot",
    clients: &[1, 64],
    series: &[
        stock(STOCK, &workload::HOT_ROW).apart(),
        group(GROUP, &workload::HOT_ROW).apart(),
    ],
    ..BASE
};

static ALTERNATIVES: Benchmark = Benchmark {
    name: "alternatives",
    about: "what people do instead: advisory lock, FOR UPDATE, slots with SKIP LOCKED, a journal",
    clients: &[64, 256],
    series: &[
        stock(STOCK, &workload::HOT_ROW),
        stock("advisory lock first", &workload::ADVISORY_FIRST),
        stock("FOR UPDATE first", &workload::FOR_UPDATE_FIRST),
        stock("64 slots SKIP LOCKED", &workload::SLOTS),
        stock("insert journal", &workload::JOURNAL),
        group(GROUP, &workload::HOT_ROW),
        different(&workload::HOT_ROW),
    ],
    ceiling: Some(DIFFERENT),
    ..BASE
};

static MARIADB: Benchmark = Benchmark {
    name: "mariadb",
    about: "the hot row against MariaDB's InnoDB, flush at commit, driven by sysbench",
    clients: &[1, 16, 64, 256],
    series: &[
        stock("MariaDB", &workload::HOT_ROW).on_mariadb(),
        group(GROUP, &workload::HOT_ROW),
        different(&workload::HOT_ROW)
            .named("MariaDB different rows")
            .on_mariadb(),
    ],
    baseline: "MariaDB",
    ..BASE
};

const fn replicated(name: &'static str, about: &'static str, delay_ms: u64) -> Benchmark {
    Benchmark {
        name,
        about,
        clients: &[16, 64, 256],
        series: &const { three_ways(&workload::HOT_ROW) },
        ceiling: Some(DIFFERENT),
        standby: Some(Standby { delay_ms }),
        ..BASE
    }
}

static STANDBY: Benchmark = replicated(
    "standby",
    "the hot row where every commit waits for a synchronous standby on the same machine",
    0,
);

static STANDBY_1_MS: Benchmark = replicated(
    "standby-1ms",
    "the same with 1 ms to the standby and 1 ms back",
    1,
);

static STANDBY_5_MS: Benchmark = replicated(
    "standby-5ms",
    "the same with 5 ms to the standby and 5 ms back",
    5,
);

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Benchmark> {
    let families = shapes::ALL.iter().chain(tpcc::ALL).chain(sysbench::ALL);
    let families = families.chain(lane::ALL);
    SINGLE.iter().chain(families).copied()
}

static SINGLE: &[&Benchmark] = &[
    &HOT_ROW,
    &HOT_LEDGER,
    &FOREIGN_KEY,
    &UPSERT,
    &THINK_TIME,
    &COMBINING,
    &COMMIT_LATENCY,
    &UNIFORM,
    &several_rows::ROWS_8,
    &several_rows::ROWS_64,
    &several_rows::ZIPF,
    &tpcb::TPCB_1,
    &tpcb::TPCB_10,
    &adverse::ROLLBACKS,
    &adverse::OLD_SNAPSHOT,
    &adverse::NON_HOT,
    &ALTERNATIVES,
    &MARIADB,
    &STANDBY,
    &STANDBY_1_MS,
    &STANDBY_5_MS,
    &defaults::THRESHOLD,
    &defaults::GROUP_SIZE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_benchmarks_and_every_benchmark_s_family_is_listed() {
        for (family, _) in FAMILIES {
            assert!(all().any(|benchmark| benchmark.family == Some(family)));
        }
        let families = all().filter_map(|benchmark| benchmark.family);
        for family in families {
            assert!(FAMILIES.iter().any(|(name, _)| *name == family), "{family}");
        }
    }

    /// pgbench's threads count the transactions of several scripts without a lock.
    #[test]
    fn a_thread_for_each_client_is_asked_for_with_a_single_script() {
        let mut all = all().filter(|benchmark| benchmark.a_thread_each);
        let has_one = |series: &Series| series.workload.scripts.len() == 1;
        assert!(all.all(|benchmark| benchmark.series.iter().all(has_one)));
    }

    #[test]
    fn a_client_has_a_warehouse_of_its_own_while_there_are_not_too_many() {
        let tpcc = tpcc::ALL[1];
        let warehouses = |series: &Series| (series.warehouses(16), series.runs_with(64));
        let found: Vec<_> = tpcc.series.iter().map(warehouses).collect();
        let (shared, own) = ((Some(2), true), (Some(16), false));
        assert_eq!(found, [shared, shared, shared, own]);
        assert_eq!(HOT_ROW.series[0].warehouses(16), None);
        assert!(HOT_ROW.series[3].runs_with(1024));
    }

    #[test]
    fn names_are_there_once_and_comparisons_name_variants_that_exist_once() {
        let mut names: Vec<&str> = all().map(|benchmark| benchmark.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for benchmark in all() {
            let count = |label| {
                benchmark
                    .series
                    .iter()
                    .filter(|series| series.label == label)
                    .count()
            };
            assert_eq!(count(benchmark.baseline), 1, "{}", benchmark.name);
            assert!(
                benchmark.ceiling.is_none_or(|label| count(label) == 1),
                "{}",
                benchmark.name
            );
            assert!(
                benchmark
                    .series
                    .iter()
                    .all(|series| count(series.label) == 1)
            );
        }
    }
}
