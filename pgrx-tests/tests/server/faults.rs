//! A short fault run; `cargo xtask faults` runs as long as one likes.
use anyhow::{Result, ensure};
use pgserver::PgInstall;
use txn_server_tests::faults::{Fault, Limit, Options, run};

#[test]
fn a_few_cycles() -> Result<()> {
    let faults = Fault::ALL.map(|(fault, _)| fault);
    let options = Options {
        seed: 16,
        first: 0,
        limit: Limit::Cycles(25),
        clients: 24,
        // Only root can have a disk that is full.
        faults: faults
            .into_iter()
            .filter(|fault| *fault != Fault::DiskFull)
            .collect(),
        library_dir: None,
    };
    let report = run(&PgInstall::from_env()?, &options, |cycle, kept| {
        println!("{cycle:?}");
        if let Some(kept) = kept {
            println!("kept: {}", kept.display());
        }
        true
    })?;
    ensure!(report.failed == 0, "{}", report.summary());
    ensure!(report.count(Fault::KillBackend) >= 3, "too few kills");
    ensure!(report.count(Fault::KillPostmaster) >= 2, "too few kills");
    Ok(())
}
