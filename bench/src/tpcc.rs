//! The databases of TPC-C on a server: one that is loaded once for each number of warehouses, and
//! the copy that a run works on.

use anyhow::Context;
use pgserver::Server;

use super::catalog::System;
use super::pgbench::TPCC_DATABASE;
use super::workload::tpcc::LOAD;

/// More than what all servers have: the tables are in memory.
pub const SETTINGS: &[(&str, &str)] = &[("shared_buffers", "4GB")];

/// Makes a new copy of so many warehouses as they were loaded, in shared memory. Its pages are in
/// WAL since the last checkpoint: the run need not write them there in full.
pub fn copy(
    server: &Server,
    system: System,
    warehouses: usize,
    of_txn_heap: bool,
) -> anyhow::Result<()> {
    let ours = if of_txn_heap { "_ours" } else { "" };
    let loaded = format!("{TPCC_DATABASE}_{warehouses}{ours}");
    let known = server
        .connect()?
        .query_opt("SELECT FROM pg_database WHERE datname = $1", &[&loaded])?;
    if known.is_none() {
        load(server, system, &loaded, warehouses, of_txn_heap)
            .with_context(|| format!("loading {warehouses} warehouses"))?;
    }
    server
        .psql(&format!(
            "SET client_min_messages = warning;
             DROP DATABASE IF EXISTS {TPCC_DATABASE};
             CHECKPOINT;
             CREATE DATABASE {TPCC_DATABASE} TEMPLATE {loaded} STRATEGY wal_log;
             \\connect {TPCC_DATABASE}
             SELECT count(pg_prewarm(oid::regclass)) FROM pg_class
             WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace;"
        ))
        .with_context(|| format!("copying {warehouses} warehouses"))?;
    Ok(())
}

fn load(
    server: &Server,
    system: System,
    database: &str,
    warehouses: usize,
    of_txn_heap: bool,
) -> anyhow::Result<()> {
    let method = match of_txn_heap {
        true => "SET default_table_access_method = txn_heap;",
        false => "",
    };
    let library = match system {
        System::Txn => "CREATE EXTENSION txn;",
        _ => "",
    };
    server.psql(&format!(
        "CREATE DATABASE {database};\n\\connect {database}\n{library}\nCREATE EXTENSION pg_prewarm;
         \\set warehouses {warehouses}\n{method}\n{LOAD}"
    ))?;
    Ok(())
}
