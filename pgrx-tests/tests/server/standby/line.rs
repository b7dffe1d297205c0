//! The line to the standby is cut for a while.
use anyhow::{Result, ensure};
use txn_server_tests::{local, physical_health, wait_until};

use super::replica::same_rows;
use super::told::{Told, marks};
use super::{Cluster, wait_until_early};

/// Transactions of the load between two events.
const SOME: usize = 500;

/// While no standby answers nobody is told anything, and then all goes on: in the same connection
/// after a short failure, in a new one after a failure so long that either side has given up.
#[test]
fn everything_goes_on_when_the_standby_is_back() -> Result<()> {
    let cluster = Cluster::start(
        &[2],
        "a",
        &[("wal_sender_timeout", "2s"), ("wal_receiver_timeout", "2s")],
    )?;
    let told = Told::default();
    let tally = cluster.load().run_disturbed(
        |worker| told.transaction(worker),
        |running| {
            let mut control = local(&cluster.primary)?;
            wait_until_early(running, &mut control)?;
            for given_up in [false, true] {
                let more = running.done() + SOME;
                ensure!(running.wait_for(more), "the load has ended");
                let cut = cluster.cut(&told, &mut control);
                if given_up {
                    let alone = "SELECT count(*) = 0 FROM pg_stat_replication";
                    wait_until(&mut control, alone)?;
                }
                told.back();
                cluster.standbys[0].line()?.heal();
                cut?.end()?.1?;
            }
            let more = running.done() + SOME;
            ensure!(running.wait_for(more), "the load has ended");
            Ok(())
        },
    )?;
    // 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
    tally.only(&["40001", "40P01"])?;
    ensure!(tally.in_doubt == 0, "a connection broke: {tally:?}");
    let mut client = cluster.primary.connect()?;
    told.compare(&mut client, &tally)?;
    ensure!(marks(&mut client)? == 2, "an update is missing");
    drop(client);
    physical_health(&cluster.primary, "account", "id")?;
    physical_health(&cluster.primary, "ledger", "id")?;
    same_rows(&cluster.primary, &cluster.standbys[0])
}
