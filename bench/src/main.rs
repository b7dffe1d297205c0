//! The benchmarks' program: `cargo xtask bench`, `demo`, `geo-demo` and `soak` build and run it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use txn_bench::{demo, geo_demo, soak};

/// Measure the PostgreSQL extension txn
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
    /// Run a benchmark by name
    Bench(Box<txn_bench::Args>),
    /// Compare stock PostgreSQL with queue lock and group lock on a hot row, in a few minutes
    Demo(demo::Args),
    /// Transactions over distant nodes, by every way to commit: locks, rate, latency
    GeoDemo(geo_demo::Args),
    /// A mixed load for an hour or so: whether memory and CPU stay as they are
    Soak(soak::Args),
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
fn run(cli: Cli) -> anyhow::Result<bool> {
    let pg_config = cli.pg_config.filter(|path| !path.as_os_str().is_empty());
    let chosen = pg_config.as_deref();
    let done = match cli.command {
        Command::Bench(args) => txn_bench::run(*args, pg_config),
        Command::Demo(args) => demo::run(args, pg_config),
        Command::GeoDemo(args) => return geo_demo::run(args, chosen),
        Command::Soak(args) => return soak::run(args, chosen),
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
