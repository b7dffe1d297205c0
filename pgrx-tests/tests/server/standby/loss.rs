//! The primary is lost in mid-load, and a standby takes over.
use anyhow::{Context, Result, ensure};
use pgserver::{Server, Standby};
use txn_server_tests::{Load, Tally, grouped, int, local, physical_health, sqlstate};

use super::told::{Look, Told, marks};
use super::{AUTO, Cluster, wait_until_early};

/// Codes of a server that goes down, and of a connection that just breaks. 40001: one that was
/// followed has gone with its session. 40P01: a wait would have closed a cycle.
const GONE: [&str; 6] = ["lost", "57P01", "57P02", "57P03", "40001", "40P01"];
/// Transactions of the load before anything happens to it.
const SOME: usize = 1000;

/// At `level` of synchronous_commit, with standbys so many milliseconds away of which each commit
/// waits for `names`.
fn lost(level: &str, away: &[u64], names: &str) -> Result<()> {
    struck(level, away, names)?;
    cut_off(level, away, names)
}

/// All processes of the primary die at once, while data are under way.
fn struck(level: &str, away: &[u64], names: &str) -> Result<()> {
    let mut cluster = Cluster::start(away, names, &[("synchronous_commit", level)])?;
    let told = Told::default();
    let tally = cluster.load().run_disturbed(
        |worker| told.transaction(worker),
        |running| {
            wait_until_early(running, &mut local(&cluster.primary)?)?;
            ensure!(running.wait_for(SOME), "the load has ended");
            cluster.primary.kill9_all()
        },
    )?;
    let promoted = fail_over(cluster)?;
    succeed(&promoted, &told, &tally)
}

/// The standbys cannot be reached any more, and then the primary's postmaster dies.
fn cut_off(level: &str, away: &[u64], names: &str) -> Result<()> {
    let mut cluster = Cluster::start(away, names, &[("synchronous_commit", level)])?;
    let told = Told::default();
    let mut mark = None;
    let tally = cluster.load().run_disturbed(
        |worker| told.transaction(worker),
        |running| {
            let mut control = local(&cluster.primary)?;
            wait_until_early(running, &mut control)?;
            ensure!(running.wait_for(SOME), "the load has ended");
            if level == "remote_apply" {
                applied_before_told(&cluster)?;
            }
            if let [first, _, ..] = cluster.standbys.as_slice() {
                first.line()?.cut();
                let more = running.done() + SOME;
                ensure!(running.wait_for(more), "the load has ended");
            }
            let cut = cluster.cut(&told, &mut control);
            cluster.primary.kill9()?;
            mark = Some(cut?);
            Ok(())
        },
    )?;
    let (_, result) = mark
        .context("there was no update without a standby")?
        .end()?;
    ensure!(result.is_err(), "it was acknowledged by a dying server");
    let promoted = fail_over(cluster)?;
    ensure!(
        marks(&mut promoted.connect()?)? == 0,
        "the line was not cut"
    );
    succeed(&promoted, &told, &tally)
}

/// What was acknowledged or read at remote_apply is seen by the standby's sessions at once.
fn applied_before_told(cluster: &Cluster) -> Result<()> {
    let mut standby = cluster.standbys[0].server().connect()?;
    let mut reader = cluster.primary.connect()?;
    let mut writer = grouped(&cluster.primary)?;
    let touch = "UPDATE account SET autos = autos WHERE id = 1 RETURNING autos";
    for _ in 0..20 {
        let result = writer.query_one(touch, &[]);
        // Else one that it followed has rolled back.
        if sqlstate(&result) != "40001" {
            let written: i64 = result?.get(0);
            let applied = Look::at(&mut standby)?.autos;
            ensure!(
                written <= applied,
                "{written} acknowledged, {applied} applied"
            );
        }
        let read = Look::at(&mut reader)?.autos;
        let applied = Look::at(&mut standby)?.autos;
        ensure!(read <= applied, "{read} read, {applied} applied");
    }
    Ok(())
}

/// Promotes the standby that has received most.
fn fail_over(mut cluster: Cluster) -> Result<Server> {
    for standby in &mut cluster.standbys {
        standby.disconnect()?;
    }
    let received = |standby: &Standby| standby.received().unwrap_or(0);
    let furthest = cluster.standbys.into_iter().max_by_key(received);
    furthest.context("there is no standby")?.promote()
}

/// The new primary has all that anybody was told of, is sound, and goes on.
fn succeed(promoted: &Server, told: &Told, tally: &Tally) -> Result<()> {
    tally.only(&GONE)?;
    told.compare(&mut promoted.connect()?, tally)?;
    let before = int(
        &mut promoted.connect()?,
        "SELECT autos FROM account WHERE id = 1",
    )?;
    let more = Load::new(promoted, 16, 20)
        .grouped()
        .run(|worker| worker.committing(1, |worker| worker.execute(AUTO, &[])))?;
    more.only(&[])?;
    let mut client = promoted.connect()?;
    let look = Look::at(&mut client)?;
    look.is_consistent()?;
    more.explains(look.autos - before)?;
    let together = "SELECT followed + combined FROM txn.stats";
    ensure!(int(&mut client, together)? > 0, "nobody followed");
    drop(client);
    physical_health(promoted, "account", "id")?;
    physical_health(promoted, "ledger", "id")
}

#[test]
fn nothing_told_is_lost_at_remote_write() -> Result<()> {
    lost("remote_write", &[2], "a")
}

#[test]
fn nothing_told_is_lost_at_on() -> Result<()> {
    lost("on", &[2], "a")
}

#[test]
fn nothing_told_is_lost_at_remote_apply() -> Result<()> {
    lost("remote_apply", &[2], "a")
}

/// Either standby is enough; the one that is further has it.
#[test]
fn nothing_told_is_lost_with_a_quorum() -> Result<()> {
    lost("on", &[2, 4], "ANY 1 (a, b)")
}
