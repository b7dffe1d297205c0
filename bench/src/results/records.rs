//! What the page is made of: records of all ages, as far as it shows them.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;

use crate::archive::{self, Content};
use crate::geo::{At, Sizes};
use crate::stats::Spread;

/// A file of `bench/results`, by its name without the ending.
pub struct File {
    pub name: String,
    pub record: Record,
}

/// What a file may hold, told apart by what only one of them has.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Record {
    #[serde(skip)]
    Family(Vec<Plain>),
    Hammer(Hammer),
    Range(Range),
    Geo(Geo),
    Plain(Plain),
    Counted(Counted),
    /// Of another form: the page only names it.
    Other(Other),
}

/// Where and when, and from which source.
#[derive(Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub system: String,
    /// Up to 0.2.0 it was called `commit`.
    #[serde(alias = "commit")]
    pub checkout: String,
    pub time: String,
}

#[derive(Deserialize)]
pub struct System {
    pub system: String,
    pub version: String,
    pub build: Option<String>,
}

#[derive(Deserialize)]
pub struct Plain {
    pub benchmark: String,
    pub about: String,
    pub machine: Machine,
    pub systems: Vec<System>,
    pub protocol: String,
    pub seconds: u64,
    pub rounds: usize,
    pub baseline: String,
    pub ceiling: Option<String>,
    pub summary: Vec<Line>,
    pub runs: Vec<Run>,
}

#[derive(Deserialize)]
pub struct Run {
    pub round: usize,
    pub variant: String,
    pub clients: usize,
    pub tps: f64,
}

#[derive(Deserialize)]
pub struct Line {
    pub variant: String,
    pub clients: usize,
    pub tps: Spread,
    pub all_tps: Option<Spread>,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub to_baseline: Option<Spread>,
    pub to_ceiling: Option<Spread>,
    pub retries: u64,
}

#[derive(Deserialize)]
pub struct Hammer {
    pub benchmark: String,
    pub about: String,
    pub machine: Machine,
    pub systems: Vec<System>,
    /// Its version.
    pub hammerdb: String,
    pub ramp_up_minutes: u64,
    pub minutes: u64,
    pub rounds: usize,
    pub baseline: String,
    pub summary: Vec<HammerLine>,
}

#[derive(Deserialize)]
pub struct HammerLine {
    pub variant: String,
    pub clients: usize,
    pub warehouses: usize,
    pub nopm: Spread,
    pub to_baseline: Option<Spread>,
    pub to_ceiling: Option<Spread>,
    pub failed: u64,
}

#[derive(Deserialize)]
pub struct Range {
    pub benchmark: String,
    pub about: String,
    pub machine: Machine,
    pub servers: Vec<Server>,
    pub protocol: String,
    pub seconds: u64,
    pub rounds: usize,
    pub baselines: Vec<String>,
    pub places: Vec<Place>,
    pub summary: Vec<RangeLine>,
}

#[derive(Deserialize)]
pub struct Server {
    pub description: System,
}

#[derive(Deserialize)]
pub struct Place {
    pub at: BTreeMap<String, serde_json::Number>,
}

#[derive(Deserialize)]
pub struct RangeLine {
    pub place: String,
    pub variant: String,
    pub class: String,
    pub tps: Spread,
    pub refused: Spread,
    pub ratios: BTreeMap<String, Spread>,
}

#[derive(Deserialize)]
pub struct Geo {
    pub benchmark: String,
    pub about: String,
    pub machine: Machine,
    pub servers: Vec<System>,
    pub protocol: String,
    pub seconds: u64,
    pub rounds: usize,
    pub rtt_ms: Vec<Vec<f64>>,
    pub sizes: Sizes,
    pub baselines: Vec<String>,
    pub places: Vec<GeoPlace>,
    pub summary: Vec<GeoLine>,
}

#[derive(Deserialize)]
pub struct GeoPlace {
    pub at: At,
}

#[derive(Deserialize)]
pub struct GeoLine {
    pub place: String,
    pub variant: String,
    pub tps: Spread,
    pub refused: Spread,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub trips: Spread,
    pub hold_p50_ms: Vec<Option<f64>>,
    pub ratios: BTreeMap<String, Spread>,
}

#[derive(Deserialize)]
pub struct Counted {
    pub benchmark: String,
    pub machine: Machine,
    pub counted_by: String,
    pub systems: Vec<System>,
    pub protocol: String,
    pub lines: Vec<CountedLine>,
}

#[derive(Deserialize)]
pub struct CountedLine {
    pub workload: String,
    pub variant: String,
    pub rounds: Vec<f64>,
    pub to_stock: f64,
}

#[derive(Deserialize)]
pub struct Other {
    pub about: Option<String>,
}

impl Plain {
    /// Of each round with that variant and so many clients: its number and its rate.
    pub fn rates(&self, variant: &str, clients: usize) -> Vec<(usize, f64)> {
        let runs = self.runs.iter();
        runs.filter(|run| run.variant == variant && run.clients == clients)
            .map(|run| (run.round, run.tps))
            .collect()
    }
}

impl Record {
    pub fn of(content: Content) -> serde_json::Result<Self> {
        match content {
            Content::One(record) => serde_json::from_value(record),
            Content::Several(records) => records
                .into_iter()
                .map(serde_json::from_value)
                .collect::<Result<_, _>>()
                .map(Record::Family),
        }
    }
}

/// All records of that benchmark, also those of a family.
pub fn of_benchmark<'a>(files: &'a [File], benchmark: &str) -> impl Iterator<Item = &'a Plain> {
    let of_file = |file: &'a File| match &file.record {
        Record::Plain(record) => std::slice::from_ref(record),
        Record::Family(records) => records.as_slice(),
        _ => &[],
    };
    let all = files.iter().flat_map(of_file);
    all.filter(move |record| record.benchmark == benchmark)
}

/// The records of the checkout, by name.
pub fn read() -> anyhow::Result<Vec<File>> {
    let files = archive::in_folder(&archive::folder())?.into_iter();
    files
        .map(|(name, content)| {
            let record = Record::of(content).with_context(|| format!("reading {name}"))?;
            Ok(File { name, record })
        })
        .collect()
}
