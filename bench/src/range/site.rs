//! A server with the tables of a range benchmark.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;

use super::division::Division;
use super::record::SharedMemory;
use super::script::{Data, MixScript};
use super::variant::{ServerKind, Variant};
use crate::books::Books;
use crate::catalog::System;
use crate::pgbench::{self, Ended, Load};
use crate::postgres_site::{self, counters, describe};
use crate::site::Description;

/// Settings that every variant has, beside those of all benchmarks. Validated transactions have no
/// parallel plans, so no variant has.
const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "2GB"),
    ("max_parallel_workers_per_gather", "0"),
];

pub struct RangeSite {
    pub kind: ServerKind,
    control: Client,
    tables: &'static [&'static str],
    books: Books,
    /// What the books said last.
    balance: Vec<i64>,
    /// How the tables are divided into ranges.
    divided: Vec<(&'static str, Division)>,
    server: Server,
}

impl RangeSite {
    /// Starts a server for up to `clients` clients of these variants, and makes and fills the
    /// tables.
    pub fn start(
        install: &PgInstall,
        kind: ServerKind,
        variants: &[&Variant],
        data: &Data,
        clients: usize,
    ) -> anyhow::Result<Self> {
        let base = if kind.library {
            ServerOptions::default()
        } else {
            ServerOptions::stock()
        };
        let mut options = base.set("max_connections", clients + 20);
        let settings = postgres_site::SETTINGS.iter().chain(SETTINGS);
        for (name, value) in settings {
            options = options.set(*name, *value);
        }
        for (name, value) in &kind.settings {
            options = options.set(*name, value);
        }
        let server = Server::start(install, options)?;
        let mut control = server.connect()?;
        for variant in variants {
            check_settings(&mut control, variant)?;
        }
        server
            .psql(&format!(
                "\\set access_method {}\n{}",
                kind.access_method, data.schema
            ))
            .context("loading the tables")?;
        control.batch_execute(&format!(
            "SET statement_timeout = '{}'",
            postgres_site::LIMIT
        ))?;
        let mut site = Self {
            kind,
            control,
            tables: data.tables,
            books: data.books,
            balance: Vec::new(),
            divided: Vec::new(),
            server,
        };
        site.balance = site.books.read(&mut site.control)?;
        Ok(site)
    }

    /// Divides the tables as the variant wants them, and vacuums them.
    pub fn reset(&mut self, variant: &Variant) -> anyhow::Result<()> {
        for (table, division) in &variant.divisions {
            if self.divided.contains(&(*table, *division)) {
                continue;
            }
            let argument = match division {
                Division::Ranges(ranges) => format!("ranges => {ranges}"),
                Division::Width(width) => format!("width => {width}"),
            };
            self.control
                .execute(
                    &format!("SELECT txn.partition_by_range('{table}', {argument})"),
                    &[],
                )
                .with_context(|| format!("dividing table {table} ({argument})"))?;
            self.divided.retain(|(divided, _)| divided != table);
            self.divided.push((table, *division));
        }
        for table in self.tables {
            self.control
                .batch_execute(&format!("VACUUM {table}"))
                .with_context(|| format!("vacuuming {table} between two runs"))?;
        }
        if self.kind.library {
            self.control.execute("SELECT txn.stats_reset()", &[])?;
        }
        Ok(())
    }

    pub fn run(&mut self, load: &Load) -> anyhow::Result<Ended> {
        pgbench::drive(&self.server, load, &mut || Ok(())).map_err(|error| {
            match postgres_site::log_end(&self.server) {
                Some(log) => error.context(format!("the server's log ends with\n{log}\ncause")),
                None => error,
            }
        })
    }

    /// Compares the books with what was committed of each script since the last time. Fails when
    /// they differ.
    pub fn audit(&mut self, scripts: &[MixScript], committed: &[u64]) -> anyhow::Result<()> {
        let now = self.books.read(&mut self.control)?;
        let changed: Vec<i64> = now.iter().zip(&self.balance).map(|(a, b)| a - b).collect();
        self.balance = now;
        let effects = scripts.iter().map(|script| script.effects);
        let faults = self.books.faults(effects, committed, &changed);
        ensure!(faults.is_empty(), "WRONG DATA. {}", faults.join("; "));
        Ok(())
    }

    /// What the library has counted since the last reset; empty without it.
    pub fn counters(&mut self) -> anyhow::Result<BTreeMap<String, i64>> {
        match self.kind.library {
            true => counters(&mut self.control),
            false => Ok(BTreeMap::new()),
        }
    }

    pub fn describe(&mut self) -> anyhow::Result<Description> {
        let system = match self.kind.library {
            true => System::Txn,
            false => System::Stock,
        };
        describe(&mut self.control, system)
    }

    /// What the extension's shared memory takes; None without it.
    pub fn shared_memory(&mut self) -> anyhow::Result<Option<SharedMemory>> {
        if !self.kind.library {
            return Ok(None);
        }
        let row = self.control.query_one(
            "SELECT (SELECT sum(allocated_size)::bigint FROM pg_shmem_allocations WHERE name LIKE 'txn%'), range_memory
             FROM txn.stats",
            &[],
        )?;
        Ok(Some(SharedMemory {
            bytes: row.get(0),
            range_occ: row.get(1),
        }))
    }
}

/// Fails when the extension lacks a setting that the variant uses. PostgreSQL itself would only
/// remove it from its configuration, and measure something else.
fn check_settings(control: &mut Client, variant: &Variant) -> anyhow::Result<()> {
    for name in variant.own_settings() {
        let known = control.query_opt("SELECT 1 FROM pg_settings WHERE name = $1", &[&name])?;
        ensure!(
            known.is_some(),
            "variant \"{}\" needs the setting {name}, which the extension of this PostgreSQL does not have",
            variant.label
        );
    }
    Ok(())
}
