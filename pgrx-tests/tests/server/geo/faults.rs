//! A short fault run of distributed transactions; `cargo xtask geo-faults` runs as long as one
//! likes.
use anyhow::{Context, Result, ensure};
use pgserver::PgInstall;
use txn_server_tests::geo_faults::{Fault, Options, Plan, run};

const CYCLES: u64 = 5;

/// Whether each cycle has another fault, and these are among them.
fn is_mixed(seed: u64, faults: &[Fault]) -> bool {
    let mut drawn: Vec<Fault> = (0..CYCLES)
        .map(|cycle| Plan::draw(seed, cycle, faults).fault)
        .collect();
    drawn.sort();
    drawn.dedup();
    let wanted = [Fault::KillCoordinator, Fault::CutPrepare, Fault::Stop];
    drawn.len() == CYCLES as usize && wanted.iter().all(|fault| drawn.contains(fault))
}

#[test]
fn a_few_cycles() -> Result<()> {
    let faults = Fault::ALL.map(|(fault, _)| fault).to_vec();
    let seed = (1..100_000).find(|&seed| is_mixed(seed, &faults));
    let options = Options {
        seed: seed.context("no seed has everything")?,
        first: 0,
        cycles: CYCLES,
        faults,
        library_dir: None,
        is_control: false,
    };
    let report = run(&PgInstall::from_env()?, &options, |cycle, kept| {
        println!("{cycle:?}");
        if let Some(kept) = kept {
            println!("kept: {}", kept.display());
        }
        true
    });
    ensure!(report.failed == 0, "{}", report.summary());
    Ok(())
}
