//! `cargo xtask check`: what can be said about the sources without running them.
use std::process::Command;

use anyhow::{Context, Result};
use pgserver::PgInstall;

use crate::setup::{self, tools};
use crate::test::tally::Tally;
use crate::tools::cargo;

/// One check: cargo with arguments, or a program of the cache.
enum Run {
    Cargo(&'static [&'static str]),
    Tool(tools::Tool, &'static [&'static str]),
}

const CHECKS: [(&str, Run); 6] = [
    ("fmt", Run::Cargo(&["fmt", "--all", "--check"])),
    ("typos", Run::Tool(tools::Tool::Typos, &[])),
    (
        "deny",
        Run::Tool(
            tools::Tool::Deny,
            &["--offline", "check", "licenses", "bans", "sources"],
        ),
    ),
    (
        "clippy",
        Run::Cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
    ),
    (
        "clippy with stop_events and planted_faults",
        Run::Cargo(&[
            "clippy",
            "--package",
            "txn",
            "--features",
            "stop_events,planted_faults",
            "--",
            "-D",
            "warnings",
        ]),
    ),
    (
        "tree",
        Run::Cargo(&["test", "--quiet", "--package", "xtask", "tree::"]),
    ),
];

/// Runs the checks whose name `wants` says yes to. Each counts as one test.
pub fn run(install: &PgInstall, wants: impl Fn(&str) -> bool) -> Result<Tally> {
    let environment = setup::build_environment(install)?;
    let mut tally = Tally::default();
    for (name, run) in CHECKS.iter().filter(|(name, _)| wants(name)) {
        let mut command: Command = match run {
            Run::Cargo(arguments) => {
                let mut command = cargo();
                command.args(*arguments);
                command
            }
            Run::Tool(tool, arguments) => {
                let mut command = tool.command()?;
                command.args(*arguments);
                command
            }
        };
        let status = command
            .envs(environment.iter().cloned())
            .status()
            .with_context(|| format!("could not run {name}"))?;
        println!("{name}: {}", if status.success() { "ok" } else { "FAILED" });
        tally.record(status.success(), name);
    }
    Ok(tally)
}
