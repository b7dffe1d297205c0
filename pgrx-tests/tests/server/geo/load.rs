//! Many clients that transfer money between nodes, undisturbed and with faults: each transfer is
//! everywhere or nowhere, as its client was told.
use std::sync::Arc;

use anyhow::{Result, ensure};
use pgserver::signal;
use postgres::Error;
use rand::Rng;
use txn_server_tests::{Done, Load, Running, Tally, Worker, int};

use super::{Cluster, Settings};

/// Short, so that deadlocks over two nodes end soon.
const LOCK_TIMEOUT: (&str, &str) = ("txn.geo_lock_timeout", "500ms");

/// What a transfer between nodes may fail with if nothing is broken: deadlocks, at one node and
/// over two.
const WAITS: [&str; 2] = ["40P01", "55P03"];

/// With faults: connections of the client, and those of the coordinator to the nodes.
const GONE: [&str; 12] = [
    "lost", "57P01", "57P02", "57P03", "08000", "08001", "08003", "08004", "08006", "40P01",
    "55P03", "25P02",
];

/// A transfer between random accounts of both nodes, in either order, some of which roll back.
pub fn transact(worker: &mut Worker) -> Result<Done, Error> {
    let number = (worker.number * 1_000_000 + worker.attempt) as i64;
    let mut accounts = [
        worker.rng.random_range(0..10),
        worker.rng.random_range(1000..1010),
    ];
    if worker.chance(20) {
        accounts.swap(0, 1);
    }
    worker.begin()?;
    for (account, amount) in [(accounts[0], -1i64), (accounts[1], 1)] {
        let update = "UPDATE account SET balance = balance + $1 WHERE id = $2";
        worker.execute(update, &[&amount, &account])?;
    }
    if worker.chance(20) {
        let both = "account WHERE id % 1000 = 99";
        worker.simple(&format!(
            "SAVEPOINT a; INSERT INTO trace_1 VALUES ({number}); DELETE FROM {both}; \
             INSERT INTO trace_0 VALUES ({number}); ROLLBACK TO a"
        ))?;
    }
    for table in ["trace_0", "trace_1", "ledger"] {
        worker.execute(&format!("INSERT INTO {table} VALUES ($1)"), &[&number])?;
    }
    match worker.chance(10) {
        true => worker.rollback(),
        false => worker.commit(1),
    }
}

/// The account of a load: all or nothing, and as the clients were told.
fn settle(cluster: &Cluster, tally: &Tally, errors: &[&str]) -> Result<()> {
    tally.only(errors)?;
    tally.explains(cluster.committed()?.len() as i64)
}

/// The resolver looks all the time, and leaves alone what is alive.
fn beside_the_resolver(settings: Settings) -> Result<()> {
    let mut all = vec![("txn.geo_resolver_interval", "10ms"), LOCK_TIMEOUT];
    all.extend(settings);
    let cluster = Cluster::with(2, &all, &[])?;
    let tally = Load::new(&cluster.coordinator, 16, 40).run(|worker| {
        cluster.dog.progress();
        transact(worker)
    })?;
    ensure!(tally.in_doubt == 0, "a connection broke: {tally:?}");
    settle(&cluster, &tally, &WAITS)
}

#[test]
fn the_resolver_touches_no_live_transaction() -> Result<()> {
    beside_the_resolver(&[])
}

/// Clients of one coordinator that are told of their commits before these are on disk.
#[test]
fn with_asynchronous_commits_at_the_coordinator() -> Result<()> {
    beside_the_resolver(&[("synchronous_commit", "off")])
}

/// Transactions of one node, of two, and of none, in the same sessions.
#[test]
fn short_transactions_beside() -> Result<()> {
    let cluster = Cluster::with(2, &[LOCK_TIMEOUT], &[])?;
    let tally = Load::new(&cluster.coordinator, 12, 40).run(|worker| match worker.below(4) {
        0 => {
            cluster.dog.progress();
            let id = worker.rng.random_range(0..2) * 1000 + worker.rng.random_range(0..10);
            let sql = "UPDATE account SET balance = balance WHERE id = $1";
            worker.execute(sql, &[&id])?;
            Ok(Done::Committed(0))
        }
        1 => {
            let count: i64 = worker.query("SELECT count(*) FROM account", &[])?[0].get(0);
            assert_eq!(count, 20);
            Ok(Done::Committed(0))
        }
        _ => transact(worker),
    })?;
    settle(&cluster, &tally, &WAITS)
}

/// Faults, each after so many more transactions, while the load goes on.
fn disturbed(
    cluster: &mut Cluster,
    mut strike: impl FnMut(&mut Cluster, usize) -> Result<()>,
) -> Result<()> {
    const SOME: usize = 60;
    const STRIKES: usize = 4;
    let load = Load::endless(&cluster.coordinator, 8);
    let dog = Arc::clone(&cluster.dog);
    let transact = |worker: &mut Worker| {
        dog.progress();
        transact(worker)
    };
    let tally = load.run_disturbed(transact, |running: &Running| {
        for number in 0..STRIKES {
            let more = running.done() + SOME;
            ensure!(running.wait_for(more), "the load has ended");
            strike(cluster, number)?;
        }
        let more = running.done() + SOME;
        ensure!(running.wait_for(more), "the load has ended");
        Ok(())
    })?;
    settle(cluster, &tally, &GONE)
}

fn cluster() -> Result<Cluster> {
    Cluster::with(2, &[LOCK_TIMEOUT, ("txn.geo_apply_timeout", "2s")], &[])
}

#[test]
fn the_coordinator_is_killed() -> Result<()> {
    disturbed(&mut cluster()?, |cluster, _| cluster.kill_coordinator())
}

#[test]
fn nodes_are_killed() -> Result<()> {
    disturbed(&mut cluster()?, |cluster, number| {
        cluster.kill_node(number % 2, true)
    })
}

#[test]
fn lines_are_cut_and_broken() -> Result<()> {
    disturbed(&mut cluster()?, |cluster, number| {
        let line = cluster.line(number % 2);
        line.cut();
        std::thread::sleep(std::time::Duration::from_millis(300));
        if number >= 2 {
            line.break_connections();
        }
        line.heal();
        Ok(())
    })
}

#[test]
fn backends_are_killed() -> Result<()> {
    disturbed(&mut cluster()?, |cluster, number| {
        let server = match number % 2 {
            0 => &cluster.coordinator,
            _ => cluster.node(0),
        };
        let victim = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                      AND backend_type = 'client backend' ORDER BY random() LIMIT 1";
        let pid = int(&mut server.connect()?, victim)?;
        ensure!(pid > 0, "there is no backend to kill");
        signal(pid as i32, libc::SIGKILL)
    })
}
