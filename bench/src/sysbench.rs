//! sysbench as a load generator, from the machine's package.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use pgserver::Server;

use super::latency;
use super::pgbench::{Failure, Load, Outcome, Protocol, Tick, run_watched};
use super::scratch::Scratch;
use super::workload::sysbench::ROWS;

/// sysbench with a script of ours or one of its own, and with what all loads have in common.
pub fn command(script: impl AsRef<OsStr>, load: &Load) -> anyhow::Result<Command> {
    let prepared = match load.protocol {
        Protocol::Prepared => "auto",
        Protocol::Simple => "disable",
        Protocol::Extended => bail!("sysbench prepares its statements or uses the simple protocol"),
    };
    let mut sysbench = Command::new(program("sysbench", "sysbench")?);
    sysbench
        .arg(script)
        .args(["--histogram=on", &format!("--db-ps-mode={prepared}")])
        .args([
            format!("--threads={}", load.clients),
            format!("--time={}", load.seconds),
        ])
        .current_dir("/");
    Ok(sysbench)
}

/// Runs a load to its end and reads the report.
pub fn run(
    sysbench: Command,
    scratch: &Scratch,
    load: &Load,
    tick: &mut Tick,
) -> anyhow::Result<Outcome> {
    let (status, output) = run_watched(sysbench, scratch, load.seconds, tick)?;
    let outcome = read_report(&output).with_context(|| Failure {
        output: output.clone(),
    })?;
    ensure!(status.success(), Failure { output });
    Ok(outcome)
}

/// Makes sysbench's own table in the server's database.
pub fn prepare(server: &Server) -> anyhow::Result<()> {
    let mut sysbench = server.prepare_command(Command::new(program("sysbench", "sysbench")?));
    add_server(sysbench.arg("oltp_common"), server);
    let made = sysbench.args(["--rand-seed=1", "prepare"]).output()?;
    ensure!(
        made.status.success(),
        "sysbench could not make its table: {}",
        String::from_utf8_lossy(&made.stdout).trim_end()
    );
    Ok(())
}

/// Puts one of sysbench's own scripts on the server.
pub fn run_own(
    server: &Server,
    script: &str,
    options: &[&str],
    load: &Load,
    tick: &mut Tick,
) -> anyhow::Result<Outcome> {
    let scratch = Scratch::new(server.user())?;
    let mut sysbench = server.prepare_command(command(script, load)?);
    add_server(&mut sysbench, server);
    sysbench
        .env("PGOPTIONS", load.options())
        .args(options)
        .arg("run");
    run(sysbench, &scratch, load, tick)
}

fn add_server(sysbench: &mut Command, server: &Server) {
    sysbench
        .args(["--db-driver=pgsql", "--pgsql-user=postgres"])
        .arg(format!("--pgsql-host={}", server.host().display()))
        .arg(format!("--pgsql-port={}", server.port()))
        .arg("--pgsql-db=postgres")
        .arg(format!("--table-size={ROWS}"));
}

fn read_report(output: &str) -> anyhow::Result<Outcome> {
    let after = |name: &str| {
        let value = output
            .lines()
            .find_map(|line| line.trim().strip_prefix(name));
        value
            .and_then(|value| value.split_whitespace().next())
            .with_context(|| format!("no line \"{name}\" in sysbench's report"))
    };
    Ok(Outcome {
        scripts: vec![after("total number of events:")?.parse()?],
        failed: 0,
        // 40001, 40P01 and 23505: it rolls back and draws another transaction.
        retries: after("ignored errors:")?.parse()?,
        seconds: after("total time:")?.trim_end_matches('s').parse()?,
        latency: latency::from_sysbench(output)?,
        output: output.to_owned(),
    })
}

/// Where a program is, or which packages bring it.
pub fn program(name: &str, packages: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([Path::new("/usr/sbin").to_owned()]);
    places
        .map(|place| place.join(name))
        .find(|file| file.is_file())
        .with_context(|| {
            format!(
                "{name} is not installed, which this benchmark needs: apt-get install {packages}"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_sysbench() {
        let output = "Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       1.000 |****************************************  2468
SQL statistics:
    ignored errors:                      3      (1.50 per sec.)
General statistics:
    total time:                          2.0012s
    total number of events:              2468
";
        let outcome = read_report(output).unwrap();
        assert_eq!((outcome.acknowledged(), outcome.seconds), (2468, 2.0012));
        assert_eq!(outcome.retries, 3);
        assert!(read_report("FATAL: unable to connect").is_err());
    }

    #[test]
    fn a_program_that_is_missing_names_its_package() {
        let error = program("no-such-program", "a-package").unwrap_err();
        assert!(error.to_string().ends_with("apt-get install a-package"));
    }
}
