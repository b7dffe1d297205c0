//! A few hundred schedules of the fuzzer; `cargo xtask fuzz` runs as many as one likes.
use anyhow::{Result, ensure};
use pgserver::PgInstall;
use txn_server_tests::fuzz::{Limit, Options, run};

/// The same schedules each time: how many there are does not depend on speed.
const SCHEDULES: u64 = 400;

#[test]
fn nothing_that_stock_could_not_do() -> Result<()> {
    let options = Options {
        seed: 16_000,
        limit: Limit::Schedules(SCHEDULES),
        library_dir: None,
        shrink: 60,
        keep: 5,
        replay: true,
    };
    let report = run(&PgInstall::from_env()?, &options, |_, failure| {
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
    for figure in ["followed", "cascades", "snapshot_waits", "range_validated"] {
        let count = report.stats.get(figure).copied().unwrap_or(0);
        ensure!(count > 0, "txn.stats.{figure} is 0: {}", report.summary());
    }
    ensure!(
        report.replays.same > 0,
        "nothing was compared with stock: {:?}",
        report.replays
    );
    Ok(())
}
