//! `cargo xtask`: everything one does with this project, as commands. See xtask/README.md.

mod bench;
mod check;
mod docs;
mod faults;
mod fuzz;
mod geo_faults;
mod install;
mod package;
mod pg;
mod test;
#[cfg(test)]
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tooling::setup;

/// Set up, try, test and measure the PostgreSQL extension txn
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    /// pg_config of the PostgreSQL 16 to use [default: the one that `setup` has put into the cache]
    #[arg(long, global = true, value_name = "PATH", env = "TXN_PG_CONFIG")]
    pg_config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Put what is needed to build and run into the cache: PostgreSQL 16, libclang
    Setup,
    /// Print the path of the pg_config in use
    PgConfig,
    /// Build the release and install it into the PostgreSQL in use
    Install,
    /// Build a Debian package, and a source archive for PGXN
    Package(package::Args),
    /// Build the documents as a site
    Docs(docs::Args),
    /// A throwaway server with the extension
    #[command(subcommand)]
    Pg(pg::Command),
    /// Watch hot rows, waits and rates of any server with the extension
    Top(txn_top::Args),
    /// Compare stock PostgreSQL with queue lock and group lock on a hot row, in a few minutes
    #[command(disable_help_flag = true)]
    Demo(bench::Args),
    /// Transactions over distant nodes, by every way to commit: locks, rate, latency
    #[command(disable_help_flag = true)]
    GeoDemo(bench::Args),
    /// Format, lints, spelling, licences, and the limits of the tree, in under a minute
    Check,
    /// Run the tests, all or one kind
    Test(test::Args),
    /// Servers under load struck by faults drawn from a seed, for as long as you like
    Faults(faults::Args),
    /// A coordinator and nodes under load struck by faults drawn from a seed
    GeoFaults(geo_faults::Args),
    /// Schedules of statements drawn from seeds, judged by what stock PostgreSQL allows
    Fuzz(fuzz::Args),
    /// A mixed load for an hour or so: whether memory and CPU stay as they are
    #[command(disable_help_flag = true)]
    Soak(bench::Args),
    /// Run a benchmark by name
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// False when something was tested and has failed.
fn run(cli: Cli) -> Result<bool> {
    let pg_config = cli.pg_config.filter(|path| !path.as_os_str().is_empty());
    let chosen = pg_config.as_deref();
    let done = match cli.command {
        Command::Setup => install::set_up(chosen),
        Command::PgConfig => install::pg_config(chosen),
        Command::Install => install::run(chosen),
        Command::Package(args) => package::run(args, chosen),
        Command::Docs(args) => docs::run(args),
        Command::Pg(command) => pg::run(command, chosen),
        Command::Top(args) => txn_top::run(args, pg::throwaway),
        Command::Demo(args) => bench::run("demo", args, chosen),
        Command::GeoDemo(args) => bench::run("geo-demo", args, chosen),
        Command::GeoFaults(args) => return geo_faults::run(args, chosen),
        Command::Check => {
            let tally = check::run(&setup::run(chosen)?, |_| true)?;
            return Ok(tally.verdict());
        }
        Command::Test(args) => return test::run(args, chosen),
        Command::Faults(args) => return faults::run(args, chosen),
        Command::Fuzz(args) => return fuzz::run(args, chosen),
        Command::Soak(args) => bench::run("soak", args, chosen),
        Command::Bench(args) => bench::run("bench", args, chosen),
    };
    done.map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_different_parts_do_not_clash() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
