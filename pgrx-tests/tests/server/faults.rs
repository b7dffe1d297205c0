//! A short fault run; `cargo xtask faults` runs as long as one likes.
use anyhow::{Context, Result, ensure};
use pgserver::PgInstall;
use txn_server_tests::faults::{Aim, Fault, Limit, Options, Plan, ReplicaKind, run};

const CYCLES: u64 = 8;
const CLIENTS: usize = 24;

/// Whether these cycles have something of everything.
fn is_mixed(seed: u64, faults: &[Fault]) -> bool {
    let plans: Vec<Plan> = (0..CYCLES)
        .map(|cycle| Plan::draw(seed, cycle, CLIENTS, faults))
        .collect();
    let strikes = || plans.iter().flat_map(|plan| &plan.strikes);
    let is_aimed_at = |name| {
        let at_it = |aim| [Aim::Point(name), Aim::Behind(name)].contains(&aim);
        strikes().any(|strike| at_it(strike.aim))
    };
    let kills = |kill| strikes().filter(|strike| strike.fault == kill).count();
    let replicas = [
        ReplicaKind::None,
        ReplicaKind::Slot,
        ReplicaKind::Standby,
        ReplicaKind::SynchronousStandby,
    ];
    let tables = ["heap", "txn_heap"];
    replicas.map(|kind| plans.iter().any(|plan| plan.replica == kind)) == [true; 4]
        && tables.map(|name| {
            plans
                .iter()
                .filter(|plan| plan.access_method == name)
                .count()
                >= 3
        }) == [true; 2]
        && [
            "ticket_given",
            "passing_ticket",
            "visible",
            "rolling_back",
            "doomed",
        ]
        .map(is_aimed_at)
            == [true; 5]
        && kills(Fault::KillBackend) >= 3
        && kills(Fault::KillPostmaster) >= 2
}

#[test]
fn a_few_cycles() -> Result<()> {
    // Only root can have a disk that is full.
    let faults = Fault::ALL.map(|(fault, _)| fault);
    let faults: Vec<Fault> = faults
        .into_iter()
        .filter(|fault| *fault != Fault::DiskFull)
        .collect();
    let seed = (16..100_000).find(|&seed| is_mixed(seed, &faults));
    let options = Options {
        seed: seed.context("no seed has everything")?,
        first: 0,
        limit: Limit::Cycles(CYCLES),
        clients: CLIENTS,
        faults,
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
    for counter in ["followed", "cascades", "early_commits", "range_validated"] {
        let moved = report.cycles.iter().any(|cycle| cycle.stats[counter] > 0);
        ensure!(moved, "txn.stats.{counter} has not moved in any cycle");
    }
    Ok(())
}
