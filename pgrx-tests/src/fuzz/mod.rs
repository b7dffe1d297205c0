//! The differential fuzzer of `cargo xtask fuzz`: schedules drawn from seeds, run on a server with
//! the extension, judged by what stock PostgreSQL allows. See the README of this folder.

mod account;
mod compose;
mod draw;
mod errors;
mod finding;
mod functions;
mod grammar;
mod health;
mod judge;
mod observe;
mod order;
mod replay;
mod report;
mod run;
mod schedule;
mod schema;
mod server;
mod session;
mod shrink;
mod site;
mod table;
mod theme;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use pgserver::PgInstall;

pub use finding::Finding;
pub use report::{Failure, Report};
use schedule::Schedule;
use site::Site;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The first schedule; the next ones have the numbers after it.
    pub seed: u64,
    pub limit: Limit,
    /// `TXN_LIBRARY_DIR` when unset.
    pub library_dir: Option<PathBuf>,
    /// Runs of smaller schedules for each failing one.
    pub shrink: usize,
    /// Failures that are shrunk and kept of each rule; further ones are counted.
    pub keep: usize,
    /// Only schedules with a statement that contains one of these, or a table's summary.
    pub only: Vec<String>,
    /// With none of the extension's settings on: what is found then is wrong with the fuzzer.
    pub off: bool,
    /// Replays committed transactions on a server without the library.
    pub replay: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Limit {
    Schedules(u64),
    Time(Duration),
}

/// Runs the schedules. `watch` is told of each schedule's number and of a failure, and says whether
/// to go on.
pub fn run(
    install: &PgInstall,
    options: &Options,
    mut watch: impl FnMut(&Report, Option<&Failure>) -> bool,
) -> Result<Report> {
    let began = Instant::now();
    let mut site = Site::start(install, options)?;
    let mut report = Report {
        library: site.library()?,
        first_seed: options.seed,
        ..Report::default()
    };
    for seed in options.seed.. {
        let over = match options.limit {
            Limit::Schedules(schedules) => report.schedules >= schedules,
            Limit::Time(time) => began.elapsed() >= time,
        };
        if over {
            break;
        }
        let mut schedule = compose::schedule(seed, site.abilities);
        if !schedule.mentions(&options.only) {
            continue;
        }
        if options.off {
            schedule = compose::switched_off(schedule);
        }
        let (run, findings) = site.attempt(&schedule, &mut report)?;
        report.last_seed = seed;
        report.schedules += 1;
        report.seconds = began.elapsed().as_secs_f64();
        let failure = match findings.is_empty() {
            true => None,
            false => Some(fail(
                &mut site,
                options,
                &mut report,
                &schedule,
                run,
                findings,
            )?),
        };
        if !watch(&report, failure.as_ref()) {
            break;
        }
    }
    site.add_stats(&mut report)?;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Counts the failure, makes its schedule small and writes it down.
fn fail(
    site: &mut Site,
    options: &Options,
    report: &mut Report,
    schedule: &Schedule,
    run: run::Run,
    findings: Vec<Finding>,
) -> Result<Failure> {
    report.failed += 1;
    let rules: BTreeSet<_> = findings.iter().map(|finding| finding.rule).collect();
    for rule in rules {
        let seeds = report.rules.entry(rule.to_owned()).or_default();
        seeds.push(schedule.seed);
    }
    let kept = report.failures.iter();
    let kept = kept.filter(|failure| failure.findings[0].rule == findings[0].rule);
    let keeps = kept.count() < options.keep;
    let (mut smallest, mut shown) = (schedule.clone(), (run, findings.clone()));
    if keeps {
        let rule = findings[0].rule;
        let mut scratch = Report::default();
        let mut broken = None;
        smallest = shrink::shrink(schedule, options.shrink, |smaller| {
            site.forget_tables();
            match site.attempt(smaller, &mut scratch) {
                Ok((run, findings)) if findings.iter().any(|finding| finding.rule == rule) => {
                    shown = (run, findings);
                    true
                }
                Ok(_) => false,
                Err(error) => {
                    broken = Some(error);
                    false
                }
            }
        });
        if let Some(error) = broken {
            return Err(error);
        }
    }
    let failure = Failure {
        seed: schedule.seed,
        steps: schedule.steps.len(),
        shrunk_to: smallest.steps.len(),
        transcript: report::transcript(&smallest, &shown.0, &shown.1),
        findings,
    };
    if keeps {
        report.failures.push(failure.clone());
    }
    Ok(failure)
}
