//! The axes along which range benchmarks go, and places on them.

use super::mix::{Kind, Sizes};
use crate::axis::{self, count};

/// One place on all of them.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct At {
    #[serde(skip)]
    pub kind: Kind,
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Numbers of ranges; 0 is as many as without a division of our own.
    pub ranges: u64,
    /// Slots of each ring; 0 is the default.
    pub slots: u32,
}

pub type Axis = axis::Axis<At>;

const SCAN: Axis = Axis {
    name: "keys of a scan",
    tick: |at| at.sizes.scan.to_string(),
    label: |at| format!("{} keys", at.sizes.scan),
};
const CLIENTS: Axis = Axis {
    name: "clients",
    tick: |at| at.sizes.clients.to_string(),
    label: |at| count(at.sizes.clients as u64, "client", "clients"),
};
const SKEW: Axis = Axis {
    name: "exponent of Zipf's law",
    tick: |at| match at.sizes.skew {
        0.0 => "uniform".to_owned(),
        skew => skew.to_string(),
    },
    label: |at| match at.sizes.skew {
        0.0 => "uniform".to_owned(),
        skew => format!("Zipf {skew}"),
    },
};
const RANGES: Axis = Axis {
    name: "ranges",
    tick: |at| or_default(at.ranges),
    label: |at| match at.ranges {
        1 => "1 range".to_owned(),
        ranges => or_default(ranges) + " ranges",
    },
};
const SLOTS: Axis = Axis {
    name: "slots",
    tick: |at| or_default(at.slots.into()),
    label: |at| match at.slots {
        1 => "1 slot".to_owned(),
        slots => or_default(slots.into()) + " slots",
    },
};

fn or_default(number: u64) -> String {
    match number {
        0 => "default".to_owned(),
        number => number.to_string(),
    }
}

/// In which places differ; when there is only one, the scan, or the clients where nothing is
/// scanned.
pub fn varying(kind: Kind, places: &[At]) -> Vec<&'static Axis> {
    static ALL: [Axis; 5] = [SCAN, CLIENTS, SKEW, RANGES, SLOTS];
    let last_resort = match kind {
        Kind::Points => &ALL[1],
        _ => &ALL[0],
    };
    Axis::varying(&ALL, places, last_resort)
}
