//! A server with the tables of a range benchmark.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;

use super::mix::{Books, Data, MixScript};
use super::record::SharedMemory;
use super::variant::{Division, ServerKind, Variant};
use crate::bench::catalog::System;
use crate::bench::pgbench::{self, Ended, Load};
use crate::bench::postgres_site::{self, INDEX_SCANS, counters, describe, without};
use crate::bench::site::Description;

/// The same for every variant, beside what all benchmarks have. Validated transactions have no parallel plans, so nobody has.
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
    /// Starts a server for up to `clients` clients of these variants, and makes and fills the tables.
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
        site.balance = site.read_books()?;
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

    /// Compares the books with what was committed of each script since the last time. Fails when they differ.
    pub fn audit(&mut self, scripts: &[MixScript], committed: &[u64]) -> anyhow::Result<()> {
        let now = self.read_books()?;
        let before = std::mem::replace(&mut self.balance, now);
        let faults = faults(&self.books, scripts, committed, &before, &self.balance);
        ensure!(faults.is_empty(), "WRONG DATA. {}", faults.join("; "));
        Ok(())
    }

    /// The books, by index and by full scans. Fails when they differ.
    fn read_books(&mut self) -> anyhow::Result<Vec<i64>> {
        let Self { control, books, .. } = self;
        let mut read = |ways: &[&str]| {
            without(control, ways, |control| {
                let row = control.query_one(books.sql, &[])?;
                Ok((0..row.len()).map(|n| row.get(n)).collect::<Vec<i64>>())
            })
        };
        let by_index = read(&["seqscan"])?;
        let by_scan = read(INDEX_SCANS)?;
        ensure!(
            by_index == by_scan,
            "WRONG DATA. {:?} are {by_index:?} by index and {by_scan:?} by full scans",
            books.columns
        );
        Ok(by_index)
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

/// Fails when the extension lacks a setting that the variant uses. PostgreSQL itself would only remove it from its
/// configuration, and measure something else.
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

/// What has changed in the books in another way than the committed transactions of each script should have changed it, in words.
fn faults(
    books: &Books,
    scripts: &[MixScript],
    committed: &[u64],
    before: &[i64],
    after: &[i64],
) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, column) in books.columns.iter().enumerate() {
        let effects = scripts.iter().map(|script| script.effects[index]);
        let expected: i64 = effects
            .zip(committed)
            .map(|(effect, committed)| effect * *committed as i64)
            .sum();
        let found = after[index] - before[index];
        if found != expected {
            faults.push(format!(
                "{column}: changed by {found}, but the transactions that were told COMMIT change it by {expected}"
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::range::mix::Class;

    #[test]
    fn one_update_too_few_or_too_many_is_a_fault() {
        let books = Books {
            sql: "",
            columns: &["values", "rows"],
        };
        let script = |effects| MixScript {
            name: "",
            class: Class::Point,
            weight: 1,
            effects,
            text: String::new(),
        };
        let scripts = [script(&[2, 0]), script(&[1, 0])];
        let faults = |after| faults(&books, &scripts, &[10, 3], &[100, 50], after);
        assert!(faults(&[123, 50]).is_empty());
        assert_eq!(faults(&[122, 50]).len(), 1);
        assert_eq!(faults(&[124, 50]).len(), 1);
        assert_eq!(faults(&[120, 51]).len(), 2);
    }
}
