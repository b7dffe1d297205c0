//! `cargo xtask test`: every kind of test, one verdict.
mod beside;
pub mod libtest;
mod package;
mod regress;
mod server;
pub mod tally;
mod tap;
mod unit;

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use pgserver::PgInstall;

use tally::Tally;
use tooling::{install, setup};

#[derive(clap::Args)]
pub struct Args {
    /// Which tests to run [default: all]
    #[arg(value_enum)]
    kinds: Vec<Kind>,
    /// Only tests whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// sql and isolation: take what comes out as the expected output (review it!)
    #[arg(long)]
    accept: bool,
    /// server: how many tests run at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    lanes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The checks of `cargo xtask check`, and the tests of the pure crates and of the tooling
    Unit,
    /// The SQL surface, by pg_regress
    Sql,
    /// Races of two and three sessions, by isolationtester and stop events
    Isolation,
    /// The Debian package and the source archive
    Package,
    /// Real servers under load, faults and crashes
    Server,
}

/// What the kinds of tests have in common.
struct Context<'a> {
    install: &'a PgInstall,
    filter: Option<&'a str>,
    accept: bool,
    lanes: u32,
}

impl Context<'_> {
    /// Whether the test `name` is asked for.
    fn wants(&self, name: &str) -> bool {
        self.filter.is_none_or(|text| name.contains(text))
    }
}

const NO_TEST: &str = "no test has such a name";

/// Runs the tests; `true` when all that ran have passed, and some ran.
pub fn run(args: Args, pg_config: Option<&Path>) -> Result<bool> {
    let kinds = if args.kinds.is_empty() {
        Kind::value_variants()
    } else {
        &args.kinds
    };
    let prepared = setup::for_tests(pg_config).and_then(|install| {
        if kinds.contains(&Kind::Sql) {
            install::install_release(&install)?;
        } else if kinds
            .iter()
            .any(|kind| [Kind::Isolation, Kind::Server].contains(kind))
        {
            install::install_scripts(&install)?;
        }
        Ok(install)
    });
    let mut total = Tally::default();
    match prepared {
        Ok(install) => {
            let context = Context {
                install: &install,
                filter: args.filter.as_deref(),
                accept: args.accept,
                lanes: args.lanes,
            };
            let (beside, here) = beside::split(kinds);
            let beside = beside::start(&beside, context.filter);
            for kind in here {
                total += run_kind(kind, &context);
            }
            total += beside.finish();
            if total.is_empty() {
                total.fail(NO_TEST);
            }
        }
        Err(error) => total.fail(&format!("preparing the tests: {error:#}")),
    }
    Ok(total.verdict())
}

fn run_kind(kind: Kind, context: &Context) -> Tally {
    println!("== {} tests", name(kind));
    let began = Instant::now();
    let result = match kind {
        Kind::Unit => unit::run(context),
        Kind::Sql => regress::sql(context),
        Kind::Isolation => regress::isolation(context),
        Kind::Package => package::run(context),
        Kind::Server => server::run(context),
    };
    let mut tally = result.unwrap_or_else(|error| {
        let mut tally = Tally::default();
        tally.fail(&format!("{error:#}"));
        tally
    });
    tally.prefix(name(kind));
    println!(
        "== {}: {} ok, {} not ok, {:.0} s\n",
        name(kind),
        tally.passed,
        tally.failures.len(),
        began.elapsed().as_secs_f64()
    );
    tally
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unit => "unit",
        Kind::Sql => "sql",
        Kind::Isolation => "isolation",
        Kind::Package => "package",
        Kind::Server => "server",
    }
}
