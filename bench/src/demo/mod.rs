//! `cargo xtask demo`: stock PostgreSQL against the extension on a hot row, side by side and
//! checked.

mod plot;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::catalog::{self, Benchmark, GROUP};
use crate::common::Common;
use crate::pgbench::Protocol;
use crate::plan::{Bench, Measured};
use crate::prepare;
use crate::record::Record;
use crate::runner::Plan;
use tooling::files::{write, write_json};
use tooling::tools::checkout;
use txn_top::text::thousands;

#[derive(clap::Args)]
pub struct Args {
    /// What every client does: update one row, or update one row and insert into a ledger
    #[arg(long, value_enum, default_value = "hot")]
    workload: Choice,
    /// Numbers of clients to run with
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    clients: Vec<usize>,
    /// Seconds of each run
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// How often every variant runs at every number of clients
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these variants (their labels, with commas between)
    #[arg(long, value_delimiter = ',')]
    variants: Vec<String>,
    /// pgbench's query protocol
    #[arg(long, value_enum, default_value = "prepared")]
    protocol: Protocol,
    /// Folder for report.html and result.json [default: demo-report in the checkout]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Do not open the report in a browser at the end
    #[arg(long)]
    no_open: bool,
    /// Use the extension as it is installed: neither build nor install it
    #[arg(long)]
    no_install: bool,
    /// Print all that pgbench said when a run fails
    #[arg(long)]
    raw: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Choice {
    /// UPDATE of one row, each its own transaction
    Hot,
    /// UPDATE of one row and INSERT into a ledger in one transaction
    Ledger,
}

impl Choice {
    fn benchmark(self) -> &'static Benchmark {
        match self {
            Self::Hot => &catalog::HOT_ROW,
            Self::Ledger => &catalog::HOT_LEDGER,
        }
    }
}

/// Runs the demo. A run whose data is wrong is an error.
pub fn run(args: Args, pg_config: Option<PathBuf>) -> anyhow::Result<()> {
    let benchmark = args.workload.benchmark();
    let common = Common {
        clients: args.clients,
        seconds: args.seconds,
        rounds: args.rounds,
        protocol: args.protocol,
        variants: args.variants,
        raw: args.raw,
        warehouses: None,
    };
    let plan = Plan::new(benchmark, &common)?;
    let install = prepare(
        pg_config.as_deref(),
        plan.extent().needs_library && !args.no_install,
    )?;
    println!(
        "{}\nvariants in turn, the data checked after every run\n",
        benchmark.about
    );
    let record = plan.measure(&install)?;

    println!("\n{}\n", record.text());
    if let Some(headline) = headline(&record) {
        println!("{headline}");
    }
    println!("{}", checked(&record));
    let out = args.out.unwrap_or_else(|| checkout().join("demo-report"));
    let report = out.join("report.html");
    write_json(&record, &out.join("result.json"))?;
    write(&report, &report::render(&record)?)?;
    println!("report: {}", report.display());
    if !args.no_open {
        open(&report);
    }
    Ok(())
}

/// What the largest number of clients gains, in one sentence. None without group lock.
fn headline(record: &Record) -> Option<String> {
    let line = record.summary.iter().rfind(|line| line.variant == GROUP)?;
    let rate = thousands(line.tps.median);
    let mut text = format!(
        "With {} clients, group lock commits {rate} per second",
        line.clients
    );
    if let Some(ratio) = line.to_baseline {
        text += &format!(", {:.1} times stock PostgreSQL", ratio.median);
    }
    if let Some(share) = line.to_ceiling {
        text += &format!(
            " and {:.0} % of the rate on different rows",
            share.median * 100.0
        );
    }
    Some(text + ".")
}

fn checked(record: &Record) -> String {
    let effects: i64 = record.runs.iter().map(|run| run.findings.effect).sum();
    format!(
        "Checked: {} runs, {} acknowledged transactions, every one in the data, none twice.",
        record.runs.len(),
        thousands(effects as f64)
    )
}

/// Shows the report where there is a desktop; elsewhere its path has been printed.
fn open(report: &Path) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let desktop = ["DISPLAY", "WAYLAND_DISPLAY"];
    if cfg!(target_os = "macos") || desktop.iter().any(|name| std::env::var_os(name).is_some()) {
        let mut command = Command::new(opener);
        command
            .arg(report)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().ok();
    }
}
