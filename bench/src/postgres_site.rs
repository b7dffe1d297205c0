//! PostgreSQL as a site: a server of our own, with the library or without.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use pgserver::{PgInstall, Server, ServerOptions, Standby, StopMode};
use postgres::Client;

use super::catalog::{self, System};
use super::old_snapshot::OldSnapshot;
use super::pgbench::{self, Load, Outcome};
use super::sample::{Sample, Sampler};
use super::scans::{INDEX_SCANS, without};
use super::script::{Script, Source};
use super::site::{Description, Findings, Site};
use super::workload::{self, Tables, Workload};
use super::{books, sysbench, tpcc};

/// Settings that every variant has.
pub const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
];

/// Far beyond what a VACUUM or a check takes: longer means damaged data.
pub const LIMIT: &str = "120s";

/// What the record tells of a server beside the settings that differ from their defaults.
const TOLD: &[&str] = &[
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "autovacuum",
    "wal_level",
];

pub struct PostgresSite {
    system: System,
    control: Client,
    /// What has been made beside our own.
    tables: Tables,
    /// Where commits have to go too. Before the server: it goes first.
    _standby: Option<Standby>,
    server: Server,
}

impl PostgresSite {
    /// Starts a server for up to `clients` clients, with these settings beside those of all, and
    /// loads the tables; with a synchronous standby beside it when asked for.
    pub fn start(
        install: &PgInstall,
        system: System,
        clients: usize,
        settings: &[(&str, &str)],
        standby: Option<catalog::Standby>,
    ) -> anyhow::Result<Self> {
        let base = if system == System::Txn {
            ServerOptions::default()
        } else {
            ServerOptions::stock()
        };
        let mut options = base.set("max_connections", clients + 20);
        for (name, value) in SETTINGS.iter().chain(settings) {
            options = options.set(*name, *value);
        }
        let server = Server::start(install, options)?;
        server
            .psql(workload::SCHEMA)
            .context("loading the tables")?;
        let control = server.connect()?;
        let standby = standby
            .map(|standby| attach(&server, standby))
            .transpose()?;
        let mut site = Self {
            system,
            server,
            control,
            tables: Tables::Ours,
            _standby: standby,
        };
        site.connect("postgres")?;
        Ok(site)
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The server, and a connection to it for its samples.
    pub fn sampled(&mut self) -> (&Server, Sampler<'_>) {
        (&self.server, Sampler::new(&mut self.control, self.system))
    }

    /// Makes the tables that only some workloads need, unless they are there.
    fn make(&mut self, tables: Tables) -> anyhow::Result<()> {
        if self.tables == tables {
            return Ok(());
        }
        match tables {
            Tables::Pgbench { scale } => self.make_pgbench(scale)?,
            Tables::Sysbench => sysbench::prepare(&self.server)?,
            Tables::Lane => {
                let made = self.server.psql(workload::lane::SCHEMA);
                made.context("making the lane's tables")?;
            }
            Tables::Ours | Tables::Tpcc { .. } => return Ok(()),
        }
        self.tables = tables;
        Ok(())
    }

    fn make_pgbench(&self, scale: u32) -> anyhow::Result<()> {
        let made = self
            .server
            .command("pgbench")
            .args(["--initialize", "--quiet", "--scale", &scale.to_string()])
            .output()?;
        ensure!(
            made.status.success(),
            "could not make pgbench's tables: {}",
            String::from_utf8_lossy(&made.stderr).trim_end()
        );
        Ok(())
    }

    /// Has the session of our own in that database, and nowhere else.
    fn connect(&mut self, database: &str) -> anyhow::Result<()> {
        self.control = self.server.connect_as("postgres", database)?;
        Ok(self
            .control
            .batch_execute(&format!("SET statement_timeout = '{LIMIT}'"))?)
    }
}

impl Site for PostgresSite {
    fn system(&self) -> System {
        self.system
    }

    fn describe(&mut self) -> anyhow::Result<Description> {
        describe(&mut self.control, self.system)
    }

    fn reset(&mut self, workload: &Workload, load: &Load) -> anyhow::Result<()> {
        if let Some(warehouses) = load.warehouses {
            self.connect("postgres")?;
            let is_ours = matches!(
                workload.tables,
                Tables::Tpcc {
                    of_txn_heap: true,
                    ..
                }
            );
            tpcc::copy(&self.server, self.system, warehouses, is_ours)?;
            self.tables = workload.tables;
            self.connect(load.database())?;
            self.control
                .batch_execute(workload.reset)
                .context("preparing the copy of the warehouses")?;
        } else {
            self.make(workload.tables)?;
            let limited = format!(
                "SET statement_timeout = '{LIMIT}';\n{}{}",
                workload::RESET,
                workload.reset
            );
            self.server
                .psql(&limited)
                .context("resetting the tables between two runs")?;
        }
        if self.system == System::Txn {
            self.control.execute("SELECT txn.stats_reset()", &[])?;
        }
        Ok(())
    }

    fn start_again(&mut self) -> anyhow::Result<()> {
        self.server.stop(StopMode::Fast)?;
        self.server.start_again()?;
        self.connect("postgres")
    }

    fn run(&mut self, load: &Load, watch: &mut dyn FnMut(Sample)) -> anyhow::Result<Outcome> {
        let old_snapshot = load
            .old_snapshot
            .then(|| OldSnapshot::open(&self.server))
            .transpose()?;
        let (server, mut sampler) = self.sampled();
        let mut tick = || {
            if let Some(sample) = sampler.sample()? {
                watch(sample);
            }
            Ok(())
        };
        let outcome = match load.scripts {
            [
                Script {
                    name,
                    source: Source::Sysbench(options),
                    ..
                },
            ] => sysbench::run_own(server, name, options, load, &mut tick),
            _ => pgbench::run(server, load, &mut tick),
        };
        let outcome = outcome.map_err(|error| match log_end(server) {
            Some(log) => error.context(format!("the server's log ends with\n{log}\ncause")),
            None => error,
        })?;
        old_snapshot.map_or(Ok(()), OldSnapshot::close)?;
        Ok(outcome)
    }

    fn inspect(&mut self, workload: &Workload) -> anyhow::Result<Findings> {
        Ok(Findings {
            counters: match self.system {
                System::Txn => counters(&mut self.control)?,
                _ => BTreeMap::new(),
            },
            books: match workload.audit {
                Some(audit) => audit.books.read(&mut self.control)?,
                None => Vec::new(),
            },
            conditions: match workload.audit {
                Some(audit) => books::row(&mut self.control, audit.conditions)?,
                None => Vec::new(),
            },
            effect: number(&mut self.control, workload.effect)?,
            imbalance: workload
                .imbalance
                .map_or(Ok(0), |sql| number(&mut self.control, sql))?,
            rows_by_index: without(&mut self.control, &["seqscan"], |control| {
                number(control, workload.count_rows)
            })?,
            rows_by_scan: without(&mut self.control, INDEX_SCANS, |control| {
                number(control, workload.count_rows)
            })?,
        })
    }
}

fn number(control: &mut Client, sql: &str) -> anyhow::Result<i64> {
    Ok(control
        .query_one(sql, &[])
        .with_context(|| format!("reading \"{sql}\""))?
        .get(0))
}

/// What the library has counted since the last reset, without what is still zero.
pub fn counters(control: &mut Client) -> anyhow::Result<BTreeMap<String, i64>> {
    let counters = control.query(
        "SELECT name, value::bigint
         FROM txn.stats, jsonb_each_text(to_jsonb(stats)) AS counter (name, value)
         WHERE name <> 'stats_reset' AND value <> '0'",
        &[],
    )?;
    Ok(counters
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect())
}

/// The server's version and settings, for the record.
pub fn describe(control: &mut Client, system: System) -> anyhow::Result<Description> {
    let server = control.query_one(
        "SELECT current_setting('server_version'), current_setting('txn.build_id', true)",
        &[],
    )?;
    let told: Vec<String> = TOLD.iter().map(|name| (*name).to_owned()).collect();
    let settings = control.query(
        "SELECT name, current_setting(name) FROM pg_settings
         WHERE name = ANY ($1) OR (name LIKE 'txn.%' AND name <> 'txn.build_id')
            OR (source = 'configuration file' AND context IN ('postmaster', 'sighup')
                AND name NOT LIKE 'unix%' AND name NOT LIKE 'log%')",
        &[&told],
    )?;
    Ok(Description {
        system: if system == System::Txn {
            "PostgreSQL with txn"
        } else {
            "PostgreSQL"
        },
        version: server.get(0),
        build: server.get(1),
        settings: settings
            .iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect(),
    })
}

/// Starts the standby and makes the server's commits wait for it.
fn attach(server: &Server, standby: catalog::Standby) -> anyhow::Result<Standby> {
    let delay = Duration::from_millis(standby.delay_ms);
    let standby = Standby::attach(server, "standby", delay)?;
    server.set_synchronous_standbys("standby")?;
    Ok(standby)
}

/// The last lines of what the server has said since it was ready; None when it was quiet.
pub fn log_end(server: &Server) -> Option<String> {
    let log = server.log().ok()?;
    let lines = log
        .lines()
        .skip_while(|line| !line.contains("ready to accept"))
        .skip(1);
    let lines: Vec<&str> = lines.collect();
    let last = &lines[lines.len().saturating_sub(10)..];
    (!last.is_empty()).then(|| last.join("\n"))
}
