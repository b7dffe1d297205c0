//! `txn-top`: see README.md.

use std::process::ExitCode;

use clap::Parser;

/// Watch hot rows, waits and rates of a server with the extension txn
#[derive(Parser)]
#[command(name = "txn-top", version)]
struct Cli {
    #[command(flatten)]
    args: txn_top::Args,
}

fn main() -> ExitCode {
    match txn_top::run(Cli::parse().args, || txn_top::config("")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
