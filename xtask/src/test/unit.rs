//! The checks of the sources, and the tests that need no extension.
use anyhow::Result;

use super::Context;
use super::libtest;
use super::tally::Tally;
use crate::check;
use tooling::tools::cargo;

/// Packages whose tests run here; those of the server tests are a kind of their own.
const PACKAGES: [&str; 11] = [
    "geo",
    "history",
    "hotrow",
    "keyrange",
    "lane",
    "lookahead",
    "pgserver",
    "tooling",
    "txn-bench",
    "txn-top",
    "xtask",
];

pub fn run(context: &Context) -> Result<Tally> {
    let mut tally = check::run(context.install, |name| {
        name != "tree" && context.wants(name)
    })?;
    // All at once: with the features that xtask has them built with.
    let mut tests = cargo();
    tests
        .arg("test")
        .args(PACKAGES.map(|package| format!("--package={package}")))
        .env("TXN_PG_CONFIG", &context.install.pg_config);
    tally += libtest::run(tests, context.filter, &[], "unit")?;
    Ok(tally)
}
