//! What is compared: isolation levels, table access methods and settings.

use plotters::style::RGBColor;

use super::axis::At;
use super::division::Division;
use super::mix::Kind;
use super::tpcc;

/// A server on which variants run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ServerKind {
    /// Whether the extension is loaded.
    pub library: bool,
    pub access_method: &'static str,
    /// Settings beside those that all servers have.
    pub settings: Vec<(&'static str, String)>,
}

/// A line of a table, a curve of a plot.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Variant {
    pub label: &'static str,
    pub server: ServerKind,
    /// Settings of the sessions.
    pub session: Vec<(&'static str, &'static str)>,
    /// Whether its transactions are validated by range OCC.
    pub validated: bool,
    /// Of the tables, before each run.
    pub divisions: Vec<(&'static str, Division)>,
}

pub const REPEATABLE_READ: &str = "REPEATABLE READ";
pub const REPEATABLE_READ_TXN_HEAP: &str = "REPEATABLE READ on txn_heap";
pub const SSI: &str = "SSI";
pub const SSI_MORE_LOCKS: &str = "SSI with 4096 locks";
pub const RANGE_OCC: &str = "range OCC";
pub const RANGE_OCC_WINDOW: &str = "range OCC with window";
pub const ONE_RANGE: &str = "one range";
pub const HEAP: &str = "heap";
pub const HEAP_AGAIN: &str = "heap, another server";
pub const HEAP_WITH_LIBRARY: &str = "heap with the library";
pub const TXN_HEAP: &str = "txn_heap";

/// Values with a space need a backslash in PGOPTIONS.
const LEVEL: &str = "default_transaction_isolation";
const AT_REPEATABLE_READ: (&str, &str) = (LEVEL, "repeatable\\ read");
const AT_SERIALIZABLE: (&str, &str) = (LEVEL, "serializable");
const AT_READ_COMMITTED: (&str, &str) = (LEVEL, "read\\ committed");
const RANGE_OCC_ON: (&str, &str) = ("txn.range_occ", "on");

fn heap(label: &'static str, level: (&'static str, &'static str)) -> Variant {
    Variant {
        label,
        server: ServerKind {
            library: false,
            access_method: "heap",
            settings: Vec::new(),
        },
        session: vec![level],
        validated: false,
        divisions: Vec::new(),
    }
}

/// A table that was never partitioned has ranges of so many integers.
const DEFAULT_WIDTH: u64 = 1024;

/// The floor: as many checks as snapshot isolation makes, which is not serializable.
pub fn repeatable_read(_: &At) -> Variant {
    heap(REPEATABLE_READ, AT_REPEATABLE_READ)
}

/// PostgreSQL's SERIALIZABLE as it is.
pub fn ssi(_: &At) -> Variant {
    heap(SSI, AT_SERIALIZABLE)
}

/// PostgreSQL's SERIALIZABLE with room for the locks of long scans: a relation's locks are not made
/// one before there are 2048 of them.
pub fn ssi_with_more_locks(_: &At) -> Variant {
    let mut variant = heap(SSI_MORE_LOCKS, AT_SERIALIZABLE);
    let setting = ("max_pred_locks_per_transaction", "4096".to_owned());
    variant.server.settings.push(setting);
    variant
}

/// Validated transactions on tables divided like that.
fn validated(label: &'static str, divisions: Vec<(&'static str, Division)>) -> Variant {
    Variant {
        label,
        server: ServerKind {
            library: true,
            access_method: "txn_heap",
            settings: Vec::new(),
        },
        session: vec![AT_REPEATABLE_READ, RANGE_OCC_ON],
        validated: true,
        divisions,
    }
}

/// Range OCC without an exclusion window, with the ranges and the slots of that place.
pub fn range_occ(at: &At) -> Variant {
    let divisions = match (at.kind, at.ranges) {
        (Kind::Tpcc, ranges) => tpcc::divisions(at.sizes.warehouses, ranges),
        (_, 0) => vec![("ycsb", Division::Width(DEFAULT_WIDTH))],
        (_, ranges) => vec![("ycsb", Division::Ranges(ranges))],
    };
    let mut variant = validated(RANGE_OCC, divisions);
    variant.server.settings.push(window(false));
    if at.slots > 0 {
        let slots = ("txn.range_slots", at.slots.to_string());
        variant.server.settings.push(slots);
    }
    variant
}

/// The transactions and the server of range OCC, but nothing is validated: apart from what scans of
/// txn_heap gain, range OCC differs from it by validation only.
pub fn repeatable_read_on_txn_heap(at: &At) -> Variant {
    Variant {
        label: REPEATABLE_READ_TXN_HEAP,
        session: vec![AT_REPEATABLE_READ],
        validated: false,
        ..range_occ(at)
    }
}

/// Range OCC with an exclusion window.
pub fn range_occ_with_window(at: &At) -> Variant {
    let mut variant = range_occ(at);
    variant.label = RANGE_OCC_WINDOW;
    variant.server.settings.push(window(true));
    variant
}

fn window(is_on: bool) -> (&'static str, String) {
    ("txn.range_window", is_on.to_string())
}

/// Validation against everything that was written, as without ranges. Its one ring is the largest
/// that there can be. So transactions are refused for what they have read, not for lost history.
pub fn one_range(at: &At) -> Variant {
    let tables = match at.kind {
        Kind::Tpcc => tpcc::TABLES,
        _ => &["ycsb"],
    };
    let whole = tables.iter().map(|table| (*table, Division::Ranges(1)));
    let mut variant = validated(ONE_RANGE, whole.collect());
    variant.server.settings = vec![
        ("txn.range_buckets", "32".to_owned()),
        ("txn.range_slots", "4096".to_owned()),
        window(false),
    ];
    variant
}

/// Stock PostgreSQL, where nothing is to be serializable.
pub fn heap_off(_: &At) -> Variant {
    heap(HEAP, AT_READ_COMMITTED)
}

/// Stock PostgreSQL on a server that differs in its name alone: how far apart two servers are that
/// should be equal.
pub fn heap_again(_: &At) -> Variant {
    let mut variant = heap(HEAP_AGAIN, AT_READ_COMMITTED);
    let name = ("cluster_name", "again".to_owned());
    variant.server.settings.push(name);
    variant
}

/// Stock PostgreSQL with the library loaded.
pub fn heap_with_library_off(_: &At) -> Variant {
    let mut variant = heap(HEAP_WITH_LIBRARY, AT_READ_COMMITTED);
    variant.server.library = true;
    variant
}

/// The library with tables of txn_heap, where every writer registers what it writes.
pub fn txn_heap_off(_: &At) -> Variant {
    let mut variant = heap(TXN_HEAP, AT_READ_COMMITTED);
    variant.server.library = true;
    variant.server.access_method = "txn_heap";
    variant
}

impl Variant {
    /// Names of the extension's settings that it uses.
    pub fn own_settings(&self) -> impl Iterator<Item = &str> {
        let names = self.server.settings.iter().map(|(name, _)| *name);
        names
            .chain(self.session.iter().map(|(name, _)| *name))
            .filter(|name| name.starts_with("txn."))
    }
}

/// Readable on light and on dark.
pub fn color_of(variant: &str) -> RGBColor {
    match variant {
        REPEATABLE_READ | HEAP => RGBColor(128, 138, 157),
        REPEATABLE_READ_TXN_HEAP => RGBColor(170, 136, 104),
        SSI => RGBColor(214, 69, 80),
        SSI_MORE_LOCKS => RGBColor(224, 160, 48),
        RANGE_OCC | TXN_HEAP => RGBColor(22, 163, 122),
        RANGE_OCC_WINDOW => RGBColor(8, 90, 140),
        ONE_RANGE => RGBColor(91, 141, 239),
        HEAP_WITH_LIBRARY => RGBColor(120, 100, 200),
        _ => RGBColor(217, 119, 87),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::catalog::ALL;
    use crate::range::catalog::tests::SIZES;

    #[test]
    fn what_is_not_validated_on_txn_heap_differs_from_range_occ_in_that_alone() {
        for benchmark in ALL {
            for place in benchmark.places(&benchmark.own(SIZES)).unwrap_or_default() {
                let of = |label| place.variants.iter().find(|one| one.label == label);
                let (Some(plain), Some(range_occ)) = (of(REPEATABLE_READ_TXN_HEAP), of(RANGE_OCC))
                else {
                    assert_eq!(benchmark.name, "range-off");
                    continue;
                };
                let validated = Variant {
                    label: RANGE_OCC,
                    session: vec![AT_REPEATABLE_READ, RANGE_OCC_ON],
                    validated: true,
                    ..plain.clone()
                };
                assert_eq!(validated, *range_occ);
                assert_eq!(plain.session, [AT_REPEATABLE_READ]);
                assert!(!plain.validated);
            }
        }
    }
}
