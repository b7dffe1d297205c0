//! The axes along which range benchmarks go, and places on them.

use super::mix::{Kind, Sizes};

/// Places on each of the axes.
#[derive(Clone, Debug)]
pub struct Axes {
    pub scans: Vec<u64>,
    pub clients: Vec<usize>,
    pub skews: Vec<f64>,
    /// Numbers of ranges; 0 is as many as without a division of our own.
    pub ranges: Vec<u64>,
    /// Slots of each ring; 0 is the default.
    pub slots: Vec<u32>,
}

/// One place on all of them.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct At {
    #[serde(skip)]
    pub kind: Kind,
    #[serde(flatten)]
    pub sizes: Sizes,
    /// 0 is the default.
    pub ranges: u64,
    /// 0 is the default.
    pub slots: u32,
}

/// Something that differs between places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Scan,
    Clients,
    Skew,
    Ranges,
    Slots,
}

impl Axis {
    pub fn name(self) -> &'static str {
        match self {
            Axis::Scan => "keys of a scan",
            Axis::Clients => "clients",
            Axis::Skew => "exponent of Zipf's law",
            Axis::Ranges => "ranges",
            Axis::Slots => "slots",
        }
    }

    /// The place on this axis, in short.
    pub fn tick(self, at: &At) -> String {
        match self {
            Axis::Scan => at.sizes.scan.to_string(),
            Axis::Clients => at.sizes.clients.to_string(),
            Axis::Skew if at.sizes.skew == 0.0 => "uniform".to_owned(),
            Axis::Skew => at.sizes.skew.to_string(),
            Axis::Ranges if at.ranges == 0 => "default".to_owned(),
            Axis::Ranges => at.ranges.to_string(),
            Axis::Slots if at.slots == 0 => "default".to_owned(),
            Axis::Slots => at.slots.to_string(),
        }
    }

    /// The same in words.
    pub fn label(self, at: &At) -> String {
        let tick = self.tick(at);
        match self {
            Axis::Scan => format!("{tick} keys"),
            Axis::Clients if at.sizes.clients == 1 => "1 client".to_owned(),
            Axis::Clients => format!("{tick} clients"),
            Axis::Skew if at.sizes.skew == 0.0 => tick,
            Axis::Skew => format!("Zipf {tick}"),
            Axis::Ranges if at.ranges == 1 => "1 range".to_owned(),
            Axis::Ranges => format!("{tick} ranges"),
            Axis::Slots if at.slots == 1 => "1 slot".to_owned(),
            Axis::Slots => format!("{tick} slots"),
        }
    }
}

impl Axes {
    /// What tells the places from each other; when there is only one, the scan, or the clients
    /// where nothing is scanned.
    pub fn varying(&self, kind: Kind) -> Vec<Axis> {
        let several = [
            (Axis::Scan, self.scans.len() > 1),
            (Axis::Clients, self.clients.len() > 1),
            (Axis::Skew, self.skews.len() > 1),
            (Axis::Ranges, self.ranges.len() > 1),
            (Axis::Slots, self.slots.len() > 1),
        ];
        let varying = several.iter().filter(|(_, several)| *several);
        let varying: Vec<Axis> = varying.map(|(axis, _)| *axis).collect();
        match (varying.is_empty(), kind) {
            (false, _) => varying,
            (true, Kind::Points) => vec![Axis::Clients],
            (true, _) => vec![Axis::Scan],
        }
    }
}
