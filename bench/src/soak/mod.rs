//! `cargo xtask soak`: a mixed load for as long as one likes, with samples of memory and CPU time,
//! which have to be flat.

mod load;
mod parts;
mod processes;
mod sample;
mod trend;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;
use serde::Serialize;
use txn_server_tests::{int, physical_health, quiet};

use crate::catalog::System;
use crate::postgres_site::describe;
use crate::site::Description;
use crate::workload::{MOST_CLIENTS, SCHEMA};
use load::Load;
use parts::{FEWEST_CLIENTS, Outcome, wrong_data};
use sample::{Sample, Sampler, trends};
use tooling::files::write_json;
use tooling::install::{Variant, build_library, install_release, publish};
use tooling::interrupt;
use tooling::machine::Machine;
use tooling::progress::Progress;
use tooling::setup;
use tooling::tools::checkout;
use trend::Trend;
use txn_top::text::thousands;

#[derive(clap::Args)]
pub struct Args {
    /// Minutes under load, after the warm-up
    #[arg(long, value_name = "N", default_value_t = 60)]
    minutes: u64,
    /// Transactions per second of all clients together [default: as many as they can]
    #[arg(long, value_name = "TPS")]
    rate: Option<f64>,
    /// Clients of the load
    #[arg(long, value_name = "C", default_value_t = 32)]
    clients: usize,
    /// With the control file and the SQL that are installed; the library is built in any case
    #[arg(long)]
    no_install: bool,
    /// Where the samples are written as JSON [default: bench/results/soak-<day>.json in the
    /// checkout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What makes memory meaningful: few buffers, all of them in use after the warm-up.
const SETTINGS: &[(&str, &str)] = &[("shared_buffers", "16MB"), ("max_wal_size", "1GB")];

/// How long hot rows may take to cool down when nobody wants them any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// The load must not end before the last sample, so it goes on for so many seconds.
const AFTER_LAST_SAMPLE: u64 = 10;

/// What is written as JSON.
#[derive(Serialize)]
struct Record {
    machine: Machine,
    server: Description,
    minutes: u64,
    warm_up_seconds: u64,
    rate: Option<f64>,
    clients: usize,
    trends: Vec<Trend>,
    /// None when the load did not come to its end.
    told: Option<Outcome>,
    /// All that was found wrong.
    wrong: Vec<String>,
    samples: Vec<Sample>,
}

/// Runs the load; `true` when the data is right and nothing was left in use.
pub fn run(args: Args, pg_config: Option<&Path>) -> Result<bool> {
    if args.minutes == 0 || args.rate.is_some_and(|rate| rate <= 0.0) {
        bail!("a soak takes at least one minute, and a rate above 0");
    }
    if !(FEWEST_CLIENTS..=MOST_CLIENTS).contains(&args.clients) {
        bail!("the number of clients must be from {FEWEST_CLIENTS} to {MOST_CLIENTS}");
    }
    interrupt::watch()?;
    let install = setup::run(pg_config)?;
    if !args.no_install {
        install_release(&install)?;
    }
    let library = publish(&build_library(Variant::Release, &install)?)?;
    let record = measure(&install, library.path(), &args)?;
    println!("{}", render(&record.trends));
    if let (Some(last), Some(told)) = (record.samples.last(), &record.told) {
        println!(
            "{} transactions, {} retries, {} rows became hot, {} cooled down",
            thousands(last.committed as f64),
            thousands(told.retries as f64),
            thousands(last.counter("promotions") as f64),
            thousands(last.counter("coolings") as f64),
        );
    }
    let out = args.out.unwrap_or_else(|| {
        let folder = checkout().join("bench/results");
        folder.join(record.machine.file_name("soak"))
    });
    write_json(&record, &out)?;
    println!("samples: {}", out.display());
    for wrong in &record.wrong {
        println!("WRONG: {wrong}");
    }
    Ok(record.wrong.is_empty())
}

fn measure(install: &PgInstall, library_dir: &Path, args: &Args) -> Result<Record> {
    let mut options = ServerOptions {
        library_dir: Some(library_dir.to_owned()),
        ..ServerOptions::default()
    };
    options = options.set("max_connections", args.clients + 20);
    for (name, value) in SETTINGS {
        options = options.set(*name, *value);
    }
    let server = Server::start(install, options)?;
    server.psql(SCHEMA).context("loading the tables")?;
    let mut control = server.connect()?;
    let description = describe(&mut control, System::Txn)?;
    let warm_up_seconds = warm_up(args.minutes);
    let machine = Machine::look();
    // However it ends, the samples are kept.
    let mut samples = Vec::new();
    let (told, wrong) = match observe(&server, &mut control, args, warm_up_seconds, &mut samples) {
        Ok(told) => {
            let wrong = inspect(&server, control, &told);
            (Some(told), wrong)
        }
        Err(error) => (None, vec![format!("{error:#}")]),
    };
    Ok(Record {
        machine,
        server: description,
        minutes: args.minutes,
        warm_up_seconds,
        rate: args.rate,
        clients: args.clients,
        trends: trends(&samples),
        told,
        wrong,
        samples,
    })
}

/// All that is wrong after the load: with the data, with what is left in use, with the table's
/// pages.
fn inspect(server: &Server, mut control: Client, told: &Outcome) -> Vec<String> {
    let mut wrong = wrong_data(told, |sql| int(&mut control, sql))
        .unwrap_or_else(|error| vec![format!("{error:#}")]);
    let left = quiet(&mut control).and_then(|()| cool(&mut control));
    // The physical check wants to be alone.
    drop(control);
    let checks = [left, physical_health(server, "hot", "id")];
    let failed = checks.into_iter().filter_map(Result::err);
    wrong.extend(failed.map(|error| format!("{error:#}")));
    wrong
}

/// A tenth of the time under load, and at most five minutes.
fn warm_up(minutes: u64) -> u64 {
    (minutes * 60 / 10).min(300)
}

/// Seconds between two samples: a minute, and less when there would be fewer than 20 of them.
fn interval(minutes: u64) -> u64 {
    (minutes * 60 / 20).clamp(1, 60)
}

/// Puts the load on the server, takes `samples` while it runs, and says what the clients were told.
fn observe(
    server: &Server,
    control: &mut Client,
    args: &Args,
    warm_up: u64,
    samples: &mut Vec<Sample>,
) -> Result<Outcome> {
    let interval = interval(args.minutes);
    let count = (warm_up + args.minutes * 60) / interval;
    let progress = Progress::new(count as usize)?;
    let seconds = count * interval + AFTER_LAST_SAMPLE;
    let mut load = Load::start(server, args.clients, args.rate, seconds)?;
    progress.begin(format!("{} clients", args.clients));
    let began = Instant::now();
    let mut sampler = Sampler::new(server, control, warm_up as f64);
    for number in 1..=count {
        while began.elapsed() < Duration::from_secs(number * interval) {
            interrupt::check()?;
            load.check()?;
            sleep(Duration::from_millis(50));
        }
        let sample = sampler.take()?;
        progress.tell(sample.line(samples.last()));
        progress.end();
        samples.push(sample);
    }
    load.finish()
}

/// Waits until no row is hot any more. Reading `txn.hotspots` removes those that nobody has wanted
/// for a while.
fn cool(control: &mut Client) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let hot = int(control, "SELECT count(*) FROM txn.hotspots")?;
        let used = int(control, "SELECT hot_rows FROM txn.stats")?;
        if (hot, used) == (0, 0) {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{} s after the load {used} hot rows are in use, {hot} of them in this database",
            PATIENCE.as_secs()
        );
        sleep(Duration::from_millis(200));
    }
}

fn render(trends: &[Trend]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["", "first third", "last third", "change", "per hour", "±"]);
    for trend in trends {
        let unit = |value: f64| {
            format!("{} {}", rounded(value), trend.unit)
                .trim_end()
                .to_owned()
        };
        table.add_row([
            trend.what.to_owned(),
            unit(trend.first_third),
            unit(trend.last_third),
            trend
                .change()
                .map_or_else(String::new, |change| format!("{change:+.1} %")),
            format!(
                "{}{}",
                sign(trend.per_hour.slope),
                unit(trend.per_hour.slope.abs())
            ),
            unit(2.0 * trend.per_hour.standard_error),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn sign(value: f64) -> char {
    if value < 0.0 { '-' } else { '+' }
}

/// With a digit after the point where that matters.
fn rounded(value: f64) -> String {
    if value.abs() < 1000.0 {
        format!("{value:.1}")
    } else {
        thousands(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_has_a_sample_each_minute_and_a_short_run_enough_for_a_trend() {
        assert_eq!((interval(60), warm_up(60)), (60, 300));
        assert_eq!((interval(1), warm_up(1)), (3, 6));
        assert_eq!((interval(10), warm_up(10)), (30, 60));
    }
}
