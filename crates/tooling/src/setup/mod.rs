//! Everything that is needed, once, in the cache.
mod download;
mod libclang;
mod postgres;
mod typos;

pub use download::{move_into_place, unzip, workshop};
pub use typos::typos;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use pgserver::{PgInstall, cache_dir, lock_file};

use crate::tools::compiler_headers;

/// The PostgreSQL of `--pg-config`, else the cached one; an error when there is none.
pub fn find(pg_config: Option<&Path>) -> Result<PgInstall> {
    match pg_config {
        Some(path) => PgInstall::from_pg_config(path),
        None => PgInstall::from_env(),
    }
}

/// Provides what is missing and returns the PostgreSQL in use. A second call does nothing.
pub fn run(pg_config: Option<&Path>) -> Result<PgInstall> {
    compiler_headers()?;
    let _lock = lock_file(&cache_dir().join("setup.lock"))?;
    if pg_config.is_none() {
        postgres::provide()?;
    }
    let install = find(pg_config)?;
    libclang::provide()?;
    Ok(install)
}

/// Sets up what the tests of this checkout need: without a PostgreSQL that was chosen they have one
/// of their own.
pub fn for_tests(pg_config: Option<&Path>) -> Result<PgInstall> {
    let install = run(pg_config)?;
    match pg_config {
        Some(_) => Ok(install),
        None => {
            let _lock = lock_file(&cache_dir().join("setup.lock"))?;
            postgres::of_checkout()
        }
    }
}

/// The environment in which cargo builds the extension against `install`. A checkout's own has the
/// headers of the cached one, which need not be read once more.
pub fn build_environment(install: &PgInstall) -> Result<Vec<(&'static str, OsString)>> {
    let pg_config = match postgres::is_of_checkout(&install.pg_config) {
        true => PgInstall::cached_pg_config(),
        false => install.pg_config.clone(),
    };
    let mut environment = vec![("PGRX_PG_CONFIG_PATH", pg_config.into())];
    environment.extend(libclang::environment()?);
    Ok(environment)
}
