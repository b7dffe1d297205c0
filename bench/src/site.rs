//! Where loads run: a database system with the tables of the workloads.

use std::collections::BTreeMap;

use super::catalog::System;
use super::pgbench::{Load, Outcome};
use super::sample::Sample;
use super::workload::Workload;

/// A system under test. Only one of several is under load at a time.
pub trait Site {
    fn system(&self) -> System;

    /// Version and settings, for the record.
    fn describe(&mut self) -> anyhow::Result<Description>;

    /// Puts the tables back to how every run of `workload` by `load` finds them; makes those that
    /// only it needs. Fails when vacuuming them does not end.
    fn reset(&mut self, workload: &Workload, load: &Load) -> anyhow::Result<()>;

    /// Stops the server and starts it again, on its data. MariaDB's goes on.
    fn start_again(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Runs a load, and reports the hot row's state to `watch` while it does.
    fn run(&mut self, load: &Load, watch: &mut dyn FnMut(Sample)) -> anyhow::Result<Outcome>;

    /// Reads what the run has left in the tables.
    fn inspect(&mut self, workload: &Workload) -> anyhow::Result<Findings>;
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct Description {
    pub system: &'static str,
    pub version: String,
    /// What the extension's library says that it was built from; None without it.
    pub build: Option<String>,
    pub settings: BTreeMap<String, String>,
}

/// What the tables say after a run.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Findings {
    /// Committed effects of the workload.
    pub effect: i64,
    /// Zero in consistent data.
    pub imbalance: i64,
    /// Rows of the tables that are updated, read through their indexes and read in full.
    pub rows_by_index: i64,
    pub rows_by_scan: i64,
    /// What the audit's books say, and how often each of its conditions is violated; empty without
    /// an audit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub books: Vec<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<i64>,
    /// What `txn.stats` has counted during the run; empty without the library.
    pub counters: BTreeMap<String, i64>,
}
