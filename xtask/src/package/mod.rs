//! `cargo xtask package`: a Debian package of the release, and a source archive for PGXN.
pub mod archive;
pub mod deb;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use tooling::tools::checkout;
use tooling::{install, setup};

#[derive(clap::Args)]
pub struct Args {
    /// Folder for the packages
    #[arg(long, value_name = "FOLDER", default_value = "target/package")]
    out: PathBuf,
}

/// Builds the release and writes both packages.
pub fn run(args: Args, pg_config: Option<&Path>) -> Result<()> {
    let install = setup::run(pg_config)?;
    let library = install::build_library(install::Variant::Release, &install)?;
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("could not create {}", args.out.display()))?;
    for package in [deb::build(&library, &args.out)?, archive::build(&args.out)?] {
        println!("{}", package.display());
    }
    Ok(())
}

/// The extension's version, as in `txn.control`.
pub fn version() -> Result<String> {
    let control = std::fs::read_to_string(checkout().join("txn.control"))?;
    let version = install::default_version(&control);
    Ok(version
        .context("txn.control names no default_version")?
        .to_owned())
}
