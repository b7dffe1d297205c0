//! `cargo xtask geo-demo`: transactions over distant nodes. How long rows stay locked, and what
//! that does to rate and latency, for each way to commit; the data is checked after every run.

mod form;
mod load;
mod record;
mod report;
mod schema;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::geo::Sizes;
use crate::geo::cluster::Layout;
use crate::geo::place::{check_rtt, check_theta};
use crate::geo::site::Site;
use crate::geo::variant::Variant;
use crate::latency::Latency;
use crate::rounds::{Turn, in_rounds};
use form::Form;
use load::Load;
use record::{BASELINE, Hold, Record, Run, summary};
use schema::SCHEMA;
use tooling::files::{write, write_json};
use tooling::install::{Variant as Build, build_library, install_scripts, publish};
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;
use tooling::setup;
use tooling::tools::checkout;

#[derive(clap::Args)]
pub struct Args {
    /// Round-trip times to the nodes in milliseconds; each is a node
    #[arg(long, value_delimiter = ',', default_value = "10,100")]
    rtt: Vec<f64>,
    /// Clients at the coordinator
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How often every variant runs
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Percent of the transactions that are over two nodes
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    distributed: u32,
    /// Skew of the rows within a node (Zipf)
    #[arg(long, default_value_t = 0.9)]
    theta: f64,
    /// Rows at each node
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(i32).range(2..))]
    rows: i32,
    /// Blocks of two UPDATEs, as one message and as four, in place of one UPDATE of two rows
    #[arg(long)]
    statements: bool,
    /// The variants
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "postgres_fdw,classic,early,scheduled"
    )]
    variants: Vec<Variant>,
    /// Folder for report.html and result.json [default: geo-demo-report in the checkout]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// With the extension as it is installed: neither build the library nor copy its SQL
    #[arg(long)]
    no_install: bool,
}

impl Args {
    fn check(&self) -> Result<()> {
        ensure!(!self.rtt.is_empty(), "there has to be a node");
        check_rtt(&self.rtt)?;
        check_theta(self.theta)?;
        ensure!(
            self.rounds > 0 && self.seconds > 0 && self.clients > 0,
            "rounds, seconds and clients are at least 1"
        );
        ensure!(
            i32::try_from(self.rtt.len()).is_ok_and(|nodes| nodes.checked_mul(self.rows).is_some()),
            "that are too many rows"
        );
        Ok(())
    }

    fn forms(&self) -> &'static [Form] {
        match self.statements {
            true => &[Form::Message, Form::Messages],
            false => &[Form::Statement],
        }
    }
}

/// Runs the demo; `true` when the data was right after every run.
pub fn run(args: Args, pg_config: Option<&Path>) -> Result<bool> {
    args.check()?;
    interrupt::watch()?;
    let install = setup::run(pg_config)?;
    let library = match args.no_install {
        true => None,
        false => {
            install_scripts(&install)?;
            Some(publish(&build_library(Build::Release, &install)?)?)
        }
    };
    let library = library.as_ref().map(|folder| folder.path());
    let layout = Layout {
        clients: args.clients,
        rtt: std::slice::from_ref(&args.rtt),
        nodes_have_library: false,
    };
    let sizes = Sizes {
        nodes: args.rtt.len(),
        rows: args.rows.into(),
        warehouses: 0,
    };
    let site = Site::start(&install, library, &layout, sizes, &[&SCHEMA])?;
    let record = measure(&site, &args)?;
    println!("\n{}\n", report::sheet(&record).text());
    for note in report::notes(&record) {
        println!("{note}");
    }
    let out = args
        .out
        .unwrap_or_else(|| checkout().join("geo-demo-report"));
    write_json(&record, &out.join("result.json"))?;
    let page = out.join("report.html");
    write(&page, &report::render(&record)?)?;
    println!("report: {}", page.display());
    Ok(record.runs.iter().all(|run| run.wrong.is_none()))
}

fn measure(site: &Site, args: &Args) -> Result<Record> {
    let abilities = site.cluster.abilities()?;
    let is_there = |variant: &Variant| variant.settings(&abilities).is_some();
    let wanted = args.variants.iter().copied();
    let (variants, left_out): (Vec<Variant>, Vec<Variant>) = wanted.partition(is_there);
    let machine = Machine::look();
    let servers = site.cluster.describe()?;
    let steps = variants.len() * args.forms().len() * args.rounds;
    let progress = Progress::new(steps)?;
    let all = |_: &Form| variants.clone();
    let run = |turn, form: &Form, variant: &Variant| {
        let what = || format!("{}, {}", variant.name(), form.name());
        progress.begin(what());
        let settings = variant.settings(&abilities).unwrap_or_default();
        run_once(site, args, *variant, *form, turn, settings).with_context(what)
    };
    let runs = in_rounds(&progress, args.rounds, args.forms(), all, run)?;
    drop(progress);
    let settings = variants
        .iter()
        .filter_map(|variant| Some((variant.name(), variant.settings(&abilities)?)));
    Ok(Record {
        benchmark: "geo-demo",
        about: "Clients of a coordinator move money between rows of its nodes. All variants in \
                turn, the data checked after every run."
            .to_owned(),
        machine,
        servers,
        rtt_ms: args.rtt.clone(),
        clients: args.clients,
        seconds: args.seconds,
        rounds: args.rounds,
        distributed_percent: args.distributed,
        theta: args.theta,
        rows: args.rows,
        baseline: BASELINE,
        settings: settings.collect(),
        left_out,
        scripts: args
            .forms()
            .iter()
            .map(|form| form.messages(1, 2).join("\n"))
            .collect(),
        summary: summary(&runs, args.forms(), args.rtt.len()),
        runs,
    })
}

fn run_once(
    site: &Site,
    args: &Args,
    variant: Variant,
    form: Form,
    turn: Turn,
    settings: String,
) -> Result<Run> {
    let before = site.reset(&SCHEMA)?;
    let load = Load {
        site,
        settings,
        form,
        clients: args.clients,
        seconds: args.seconds,
        distributed: args.distributed,
        theta: args.theta,
        // All variants of a round draw alike.
        seed: turn.round as u64,
    };
    let (seen, watched) = load.run()?;
    let believed = site.cluster.believed_rtt()?;
    let wrong = site.check(&SCHEMA, &before, &seen.effects).err();
    let wrong = wrong.map(|error| format!("{error:#}"));
    let nodes = watched
        .holds
        .iter()
        .zip(&args.rtt)
        .zip(believed)
        .enumerate();
    let holds = nodes.map(|(node, ((hold, rtt), believed))| Hold {
        node,
        rtt_ms: *rtt,
        believed_rtt_ms: believed,
        samples: hold.len(),
        ms: Latency::from(hold),
    });
    Ok(Run {
        turn,
        variant,
        form,
        tps: seen.transactions as f64 / args.seconds as f64,
        transactions: seen.transactions,
        latency_ms: Latency::from(&seen.latency),
        refusals: seen.refusals,
        holds: holds.collect(),
        sum: before.iter().sum(),
        wrong,
    })
}
