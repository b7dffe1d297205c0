//! Format, lints, and the tests that need no extension.
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Context;
use super::libtest;
use super::tally::Tally;
use crate::setup;
use crate::tools::cargo;

/// Packages whose tests run here; those of the server tests are a kind of their own.
const PACKAGES: [&str; 6] = [
    "history",
    "hotrow",
    "keyrange",
    "lookahead",
    "pgserver",
    "xtask",
];

/// Each counts as one test.
const CHECKS: [(&str, &[&str]); 3] = [
    ("fmt", &["fmt", "--all", "--check"]),
    (
        "clippy",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    ),
    (
        "clippy with stop_events and planted_faults",
        &[
            "clippy",
            "--package",
            "txn",
            "--features",
            "stop_events,planted_faults",
            "--",
            "-D",
            "warnings",
        ],
    ),
];

pub fn run(context: &Context) -> Result<Tally> {
    let environment = setup::build_environment(context.install)?;
    let mut tally = Tally::default();
    for (name, arguments) in CHECKS {
        if !context.wants(name) {
            continue;
        }
        let mut command: Command = cargo();
        command.args(arguments).envs(environment.iter().cloned());
        let status = command.status().context("could not run cargo")?;
        println!("{name}: {}", if status.success() { "ok" } else { "FAILED" });
        tally.record(status.success(), name);
    }
    for package in PACKAGES {
        let mut command = cargo();
        command
            .args(["test", "--package", package])
            .env("TXN_PG_CONFIG", &context.install.pg_config);
        tally += libtest::run(command, context.filter, &[], package)?;
    }
    Ok(tally)
}
