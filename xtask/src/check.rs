//! `cargo xtask check`: what can be said about the sources without running them.
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pgserver::PgInstall;
use serde_json::Value;
use spdx::{Expression, LicenseReq};

use crate::test::libtest;
use crate::test::tally::Tally;
use tooling::setup;
use tooling::tools::{cargo, output};

/// In the profile of the library under test: PostgreSQL's headers are read once for both.
const CLIPPY_OF_TXN: [&str; 5] = ["clippy", "--profile", "checked", "--package", "txn"];
const DENY_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

/// Licences that a library of this project may have.
const LICENCES: [&str; 9] = [
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "PostgreSQL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Runs the checks whose name `wants` says yes to. Each counts as one test.
pub fn run(install: &PgInstall, wants: impl Fn(&str) -> bool) -> Result<Tally> {
    let environment = setup::build_environment(install)?;
    let mut tally = Tally::default();
    let mut check = |name: &str, check: &dyn Fn() -> Result<()>| {
        if wants(name) {
            let result = check();
            println!("{name}: {}", if result.is_ok() { "ok" } else { "FAILED" });
            tally.record(result.is_ok(), name);
            if let Err(error) = result {
                tally.explain(name, &format!("{error:#}"));
            }
        }
    };
    let run = |arguments: &[&str], last: &[&str]| {
        let mut command = cargo();
        command.args(arguments).args(last);
        succeeds(command.envs(environment.iter().cloned()))
    };
    check("fmt", &|| run(&["fmt", "--all", "--check"], &[]));
    check("typos", &|| match setup::typos()? {
        Some(mut typos) => succeeds(&mut typos),
        None => {
            println!("typos comes as a program for Linux on x86-64 only");
            Ok(())
        }
    });
    check("licences", &licences);
    check("clippy", &|| {
        let others = ["clippy", "--workspace", "--exclude", "txn", "--all-targets"];
        run(&others, &DENY_WARNINGS)
    });
    check("clippy of txn", &|| {
        run(&CLIPPY_OF_TXN, &DENY_WARNINGS)?;
        let features = ["--features", "stop_events,planted_faults", "--all-targets"];
        run(&[&CLIPPY_OF_TXN[..], &features].concat(), &DENY_WARNINGS)
    });
    check("tree", &|| {
        let mut tests = cargo();
        tests.args(["test", "--package", "xtask"]);
        let tally = libtest::run(tests, Some("tree::"), &[], "tree")?;
        let failures = tally.failures.join(", ");
        ensure!(tally.passed > 0 && failures.is_empty(), "{failures}");
        Ok(())
    });
    Ok(tally)
}

fn succeeds(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("could not run {program}"))?;
    ensure!(status.success(), "{program} says so above");
    Ok(())
}

/// Every library comes from the registry, under a licence that is in the list.
fn licences() -> Result<()> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--locked"]);
    metadata.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = output(&mut metadata, "cargo lists the libraries")?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let wrong: Vec<String> = packages.iter().filter_map(what_is_wrong).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join(", "));
    Ok(())
}

fn what_is_wrong(package: &Value) -> Option<String> {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let (name, source, licence) = (text("name"), text("source"), text("license"));
    if !source.is_empty() && !source.starts_with("registry+") {
        return Some(format!("{name} comes from {source}"));
    }
    let may_be_used = |licence: &LicenseReq| {
        let id = licence.license.id();
        id.is_some_and(|id| LICENCES.contains(&id.name))
    };
    // Some write `MIT/Apache-2.0`.
    let expression = Expression::parse_mode(&licence, spdx::ParseMode::LAX);
    let is_allowed = expression.is_ok_and(|expression| expression.evaluate(may_be_used));
    (!is_allowed).then(|| format!("{name} is under {licence:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_and_sources_are_looked_at() {
        let package = |source: Value, licence: &str| {
            let package = serde_json::json!({"name": "x", "source": source, "license": licence});
            what_is_wrong(&package)
        };
        let registry = || Value::from("registry+index");
        assert_eq!(package(registry(), "MIT OR GPL-3.0-only"), None);
        assert_eq!(package(registry(), "MIT/Apache-2.0"), None);
        assert_eq!(package(Value::Null, "PostgreSQL"), None);
        assert!(package(registry(), "GPL-3.0-only").is_some());
        assert!(package(registry(), "MIT AND GPL-3.0-only").is_some());
        assert!(package(registry(), "").is_some());
        assert!(package(Value::from("git+somewhere"), "MIT").is_some());
    }
}
