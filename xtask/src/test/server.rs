//! The tests of pgrx-tests: real servers, a few at a time, with the checked library.
use anyhow::Result;

use super::Context;
use super::libtest;
use super::tally::Tally;
use tooling::install::{Variant, build_library, publish};
use tooling::tools::cargo;

const PACKAGE: &str = "txn-server-tests";

pub fn run(context: &Context) -> Result<Tally> {
    let library = publish(&build_library(Variant::Checked, context.install)?)?;
    let mut command = cargo();
    // With the features and in the profile in which xtask has its dependencies built already.
    command
        .args(["test", "--package", PACKAGE, "--package", "xtask"])
        .args(["--lib", "--test", "server"])
        .env("TXN_PG_CONFIG", &context.install.pg_config)
        .env("TXN_LIBRARY_DIR", library.path());
    let lanes = format!("--test-threads={}", context.lanes);
    libtest::run(command, context.filter, &[&lanes], PACKAGE)
}
