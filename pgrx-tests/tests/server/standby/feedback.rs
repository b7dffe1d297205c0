//! At remote_apply each commit record asks the standbys to report when they have applied it,
//! however early the row is released.
use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Watchdog, grouped, int, text};

use super::{AUTO, Cluster};

/// What the commit records say that came of `body`.
fn records(control: &mut Client, body: impl FnOnce() -> Result<()>) -> Result<Vec<String>> {
    let start = text(control, "SELECT pg_current_wal_insert_lsn()::text")?;
    body()?;
    let rows = control.query(
        &format!(
            "SELECT description FROM pg_get_wal_records_info('{start}', pg_current_wal_flush_lsn()) \
             WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT'"
        ),
        &[],
    )?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

#[test]
fn remote_apply_asks_for_feedback() -> Result<()> {
    let cluster = Cluster::start(&[2], "a", &[])?;
    let dog = Watchdog::new(&cluster.primary);
    dog.finish(ask(&cluster))
}

fn ask(cluster: &Cluster) -> Result<()> {
    let mut control = cluster.primary.connect()?;
    control.batch_execute("CREATE EXTENSION pg_walinspect")?;
    let mut copy = cluster.standbys[0].server().connect()?;
    let session = |level: &str| {
        let mut client = grouped(&cluster.primary)?;
        client.batch_execute(&format!("SET synchronous_commit = {level}"))?;
        anyhow::Ok(client)
    };
    let mut done = 0;
    for (level, wants) in [("remote_apply", true), ("on", false)] {
        let (mut leader, mut follower) = (session(level)?, session(level)?);
        let early = int(&mut control, "SELECT early_commits FROM txn.stats")?;
        let said = records(&mut control, || {
            leader.batch_execute(AUTO)?;
            done += 1;
            if wants {
                let applied = int(&mut copy, "SELECT balance FROM account WHERE id = 1")?;
                ensure!(applied == done, "{applied} applied of {done}");
            }
            leader.batch_execute(&format!("BEGIN; {AUTO}"))?;
            follower.batch_execute(&format!("BEGIN; {AUTO}"))?;
            leader.batch_execute("COMMIT")?;
            follower.batch_execute("COMMIT")?;
            done += 2;
            if wants {
                let applied = int(&mut copy, "SELECT balance FROM account WHERE id = 1")?;
                ensure!(applied == done, "{applied} applied of {done}");
            }
            Ok(())
        })?;
        ensure!(said.len() == 3, "{} commits: {said:?}", said.len());
        let asks = |said: &String| said.contains("apply_feedback");
        ensure!(
            said.iter().all(|one| asks(one) == wants),
            "{level}: {said:?}"
        );
        let early = int(&mut control, "SELECT early_commits FROM txn.stats")? - early;
        ensure!(early == 3, "{early} of 3 commits released their row early");
    }
    ensure!(
        int(&mut control, "SELECT followed FROM txn.stats")? == 2,
        "nobody followed"
    );
    Ok(())
}
