//! A few hundred schedules of the fuzzer; `cargo xtask fuzz` runs as many as one likes.
use anyhow::{Result, ensure};
use pgserver::PgInstall;
use txn_server_tests::fuzz::{Limit, Options, Report, run};

/// Each run has these schedules: how many there are does not depend on speed.
const SCHEDULES: u64 = 400;

fn options(seed: u64, schedules: u64) -> Options {
    Options {
        seed,
        limit: Limit::Schedules(schedules),
        library_dir: None,
        shrink: 60,
        keep: 2,
        only: Vec::new(),
        off: false,
        replay: true,
    }
}

fn play(options: &Options) -> Result<Report> {
    let report = run(&PgInstall::from_env()?, options, |_, failure| {
        if let Some(failure) = failure {
            println!("{}", failure.transcript);
        }
        true
    })?;
    ensure!(
        report.failed == 0,
        "{}: {:?}",
        report.summary(),
        report.rules
    );
    ensure!(
        !options.replay || report.replays.same > 0,
        "nothing was compared with stock PostgreSQL: {:?}",
        report.replays
    );
    Ok(report)
}

#[test]
fn nothing_that_stock_could_not_do() -> Result<()> {
    let report = play(&options(16_000, SCHEDULES))?;
    for figure in ["followed", "cascades", "snapshot_waits", "range_validated"] {
        let count = report.stats.get(figure).copied().unwrap_or(0);
        ensure!(count > 0, "txn.stats.{figure} is 0: {}", report.summary());
    }
    Ok(())
}

/// The rules are those of stock PostgreSQL.
#[test]
fn stock_breaks_no_rule() -> Result<()> {
    play(&Options {
        off: true,
        ..options(16_000, SCHEDULES / 4)
    })?;
    Ok(())
}
