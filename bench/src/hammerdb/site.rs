//! Servers with HammerDB's schema: built once for each number of warehouses, copied for each run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use pgserver::{
    PgInstall, Server, ServerOptions, StopMode, cache_dir, copy_data, lock_file, make_readable_dir,
};
use postgres::Client;

use super::cli::Hammer;
use crate::catalog::System;
use crate::postgres_site::{SETTINGS, counters, describe};
use crate::sample::Sampler;
use crate::scans::INDEX_SCANS;
use crate::site::Description;

const SUPERUSER: &str = "postgres";
/// HammerDB's name for it (bench/hammerdb/connect.tcl).
const DATABASE: &str = "tpcc";

/// What `d_next_o_id` is in the beginning, and how many districts a warehouse has.
const FIRST_ORDER: i64 = 3001;
const DISTRICTS: i64 = 10;

/// Of all variants. Room for 32 warehouses, all of which are in memory: a page read out of order
/// costs what others do. The statistics stay those of the load: an ANALYZE in the middle of a run
/// had Stock-Level read all of a warehouse's stock, or all orders of a district.
const SAME_FOR_ALL: [(&str, &str); 3] = [
    ("shared_buffers", "6GB"),
    ("random_page_cost", "1.1"),
    ("autovacuum_analyze_threshold", "2000000000"),
];

/// The data folder of a stopped server with so many warehouses; built when it is not in the cache.
pub fn built(install: &PgInstall, hammer: &Hammer, warehouses: usize) -> anyhow::Result<PathBuf> {
    let name = format!(
        "{warehouses}-warehouses-{}-{:08x}",
        install.version,
        hammer.schema_hash()?
    );
    let cache = cache_dir().join("hammerdb");
    make_readable_dir(&cache)?;
    let _lock = lock_file(&cache.join(format!("{name}.lock")))?;
    let folder = cache.join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    println!("building {warehouses} warehouses in {}", folder.display());
    // A folder of that name is complete.
    let unfinished = cache.join(format!("{name}.new"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    let options = ServerOptions {
        data_dir: Some(unfinished.clone()),
        ..ServerOptions::stock()
    };
    // Every run copies its WAL too.
    let options = options.set("max_wal_size", "128MB").set("fsync", "off");
    let mut server = Server::start(install, options)?;
    hammer.build(&server, warehouses)?;
    let mut client = server.connect_as(SUPERUSER, DATABASE)?;
    client.batch_execute("VACUUM ANALYZE")?;
    check_warehouses(&mut client, warehouses)?;
    drop(client);
    let violations = hammer.violations(&server, "")?;
    ensure!(
        violations.is_empty(),
        "HammerDB has built a schema that violates TPC-C's conditions: {}",
        violations.join("; ")
    );
    server.stop(StopMode::Fast)?;
    drop(server);
    fs::rename(&unfinished, &folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn check_warehouses(client: &mut Client, warehouses: usize) -> anyhow::Result<()> {
    let found: i64 = client
        .query_one("SELECT count(*) FROM warehouse", &[])?
        .get(0);
    ensure!(
        found == warehouses as i64,
        "there are {found} warehouses, but there should be {warehouses}"
    );
    Ok(())
}

/// A server on a copy of such a folder.
pub struct Site {
    control: Client,
    system: System,
    warehouses: usize,
    before: Statistics,
    pub server: Server,
}

/// Of `pg_stat_database`.
#[derive(Clone, Copy)]
struct Statistics {
    rollbacks: i64,
    deadlocks: i64,
}

/// What a run has left.
pub struct Findings {
    pub orders: i64,
    pub rollbacks: i64,
    pub deadlocks: i64,
    pub counters: BTreeMap<String, i64>,
}

impl Site {
    /// Starts a server with these settings for up to `clients` clients on a copy of `data`.
    pub fn start(
        install: &PgInstall,
        data: &Path,
        system: System,
        settings: impl Iterator<Item = &'static (&'static str, &'static str)>,
        clients: usize,
        warehouses: usize,
    ) -> anyhow::Result<Self> {
        let mut options = ServerOptions {
            preload: system == System::Txn,
            create_extension: false,
            ..ServerOptions::default()
        };
        for (name, value) in SETTINGS.iter().chain(&SAME_FOR_ALL).chain(settings) {
            options = options.set(*name, *value);
        }
        let options = options.set("max_connections", clients + 20);
        let server = Server::start_on(install, options, |_, user, folder| {
            copy_data(user, data, folder)?;
            // What is still to be written must not meet the WAL that is measured.
            let sync = Command::new("sync")
                .arg("--file-system")
                .arg(folder)
                .status();
            ensure!(sync.context("cannot run sync")?.success(), "sync failed");
            Ok(())
        })?;
        let mut control = server.connect_as(SUPERUSER, DATABASE)?;
        if system == System::Txn {
            control.batch_execute("CREATE EXTENSION txn")?;
        }
        Ok(Self {
            before: statistics(&mut control)?,
            control,
            system,
            warehouses,
            server,
        })
    }

    /// Reads the hot row's state while the server is under load.
    pub fn sampler(&mut self) -> (Sampler<'_>, &Server) {
        (Sampler::new(&mut self.control, self.system), &self.server)
    }

    pub fn describe(&mut self) -> anyhow::Result<Description> {
        describe(&mut self.control, self.system)
    }

    /// Reads what a run has left; fails when that violates one of TPC-C's conditions, by index or
    /// by full scans.
    pub fn inspect(&mut self, hammer: &Hammer) -> anyhow::Result<Findings> {
        for ways in [&["seqscan"], INDEX_SCANS] {
            let off: Vec<String> = ways
                .iter()
                .map(|way| format!("-c enable_{way}=off"))
                .collect();
            let violations = hammer.violations(&self.server, &off.join(" "))?;
            ensure!(
                violations.is_empty(),
                "WRONG DATA. Violated without {}: {}",
                ways.join(", "),
                violations.join("; ")
            );
        }
        check_warehouses(&mut self.control, self.warehouses)?;
        let numbers: i64 = self
            .control
            .query_one("SELECT sum(d_next_o_id) FROM district", &[])?
            .get(0);
        let after = statistics(&mut self.control)?;
        Ok(Findings {
            orders: numbers - FIRST_ORDER * DISTRICTS * self.warehouses as i64,
            rollbacks: after.rollbacks - self.before.rollbacks,
            deadlocks: after.deadlocks - self.before.deadlocks,
            counters: match self.system {
                System::Txn => counters(&mut self.control)?,
                _ => BTreeMap::new(),
            },
        })
    }
}

fn statistics(control: &mut Client) -> anyhow::Result<Statistics> {
    let row = control.query_one(
        "SELECT xact_rollback, deadlocks FROM pg_stat_database WHERE datname = current_database()",
        &[],
    )?;
    Ok(Statistics {
        rollbacks: row.get(0),
        deadlocks: row.get(1),
    })
}
