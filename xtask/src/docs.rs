//! `cargo xtask docs`: the documents as a site, by mkdocs.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use pgserver::{cache_dir, lock_file};

use sha2::{Digest, Sha256};

use tooling::setup::{move_into_place, workshop};
use tooling::steps::Steps;
use tooling::tools::{checkout, output};

const PYTHON: &str = "python3 with pip builds the site (Debian: apt install python3-pip)";
const REQUIREMENTS: &str = "xtask/docs-requirements.txt";

#[derive(clap::Args)]
pub struct Args {
    /// Folder for the site
    #[arg(long, value_name = "FOLDER", default_value = "target/docs")]
    out: PathBuf,
}

/// Builds the site and says where it is. The network is used the first time only.
pub fn run(args: Args) -> Result<()> {
    build(&args.out)?;
    println!("{}", args.out.join("index.html").display());
    Ok(())
}

/// Builds the site in `out`. A dead link, or a page that the contents do not have, is an error.
pub fn build(out: &Path) -> Result<()> {
    let packages = provide()?;
    let out = std::path::absolute(out)?;
    let mut mkdocs = Command::new("python3");
    mkdocs
        .args(["-m", "mkdocs", "build", "--strict", "--clean", "--quiet"])
        .arg("--site-dir")
        .arg(out)
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(checkout());
    output(&mut mkdocs, PYTHON).context("the site has mistakes")?;
    Ok(())
}

/// The folder with mkdocs, which is put into the cache if need be.
fn provide() -> Result<PathBuf> {
    let requirements = checkout().join(REQUIREMENTS);
    let digest = Sha256::digest(std::fs::read(&requirements)?);
    let key: String = digest[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let place = cache_dir().join(format!("mkdocs-{key}"));
    let _lock = lock_file(&cache_dir().join("setup.lock"))?;
    if place.join("mkdocs").is_dir() {
        return Ok(place);
    }
    let steps = Steps::new(1);
    steps.next("downloading mkdocs");
    let workshop = workshop()?;
    let folder = workshop.path().join("packages");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet"])
        .args(["--disable-pip-version-check", "--no-deps", "--target"])
        .arg(&folder)
        .arg("--requirement")
        .arg(&requirements);
    output(&mut pip, PYTHON).context("could not download mkdocs")?;
    move_into_place(&folder, &place)?;
    Ok(place)
}
