//! `cargo xtask pg-config`, and the choice of the PostgreSQL in use.
use std::path::Path;

use anyhow::Result;
use pgserver::PgInstall;

/// The PostgreSQL of `--pg-config`, else the cached one; an error when there is none.
pub fn find(pg_config: Option<&Path>) -> Result<PgInstall> {
    match pg_config {
        Some(path) => PgInstall::from_pg_config(path),
        None => PgInstall::from_env(),
    }
}

/// Prints the path of its pg_config.
pub fn run(pg_config: Option<&Path>) -> Result<()> {
    println!("{}", find(pg_config)?.pg_config.display());
    Ok(())
}
