//! `cargo xtask setup`, `install` and `pg-config`: what puts things in place, and says where.
use std::path::Path;

use anyhow::Result;
use tooling::install::install_release;
use tooling::setup;

/// Provides what is missing, and says what is in use.
pub fn set_up(pg_config: Option<&Path>) -> Result<()> {
    let install = setup::run(pg_config)?;
    println!(
        "PostgreSQL {} ({})",
        install.version,
        install.pg_config.display()
    );
    println!("ready: try `cargo xtask demo`");
    Ok(())
}

/// Prints the path of the pg_config in use.
pub fn pg_config(pg_config: Option<&Path>) -> Result<()> {
    println!("{}", setup::find(pg_config)?.pg_config.display());
    Ok(())
}

/// Sets up what is missing, builds the release and installs it.
pub fn run(pg_config: Option<&Path>) -> Result<()> {
    let install = setup::run(pg_config)?;
    install_release(&install)?;
    println!(
        "installed txn into PostgreSQL {} ({})\n\
         to use it: shared_preload_libraries = 'txn' in postgresql.conf, a restart, and \
         CREATE EXTENSION txn",
        install.version,
        install.pkglibdir.display()
    );
    Ok(())
}
