//! The commands of the package `txn-bench`, which is built when one of them is asked for.
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, Result};
use tooling::tools::{cargo, checkout, target};

/// Words for the command as it stands in `bench/src/main.rs`.
#[derive(clap::Args)]
pub struct Args {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    words: Vec<OsString>,
}

/// Has cargo build the benchmarks and become them. Returns only if that fails.
pub fn run(command: &str, args: Args, pg_config: Option<&Path>) -> Result<()> {
    if !target().join("load/txn-bench").exists() {
        eprintln!("building the benchmarks, which takes some minutes the first time");
    }
    let mut benchmarks = cargo();
    benchmarks
        .args(["run", "--quiet", "--profile=load", "--package=txn-bench"])
        .arg(format!(
            "--manifest-path={}/Cargo.toml",
            checkout().display()
        ))
        .args(["--", command])
        .args(args.words)
        .current_dir(std::env::current_dir()?);
    if let Some(path) = pg_config {
        benchmarks.env("TXN_PG_CONFIG", path);
    }
    // What is typed at the terminal has to reach them alone.
    Err(benchmarks.exec()).context("could not run cargo")
}
