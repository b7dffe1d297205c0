//! Standbys of real servers, without the extension: the line to them, and what is left when the
//! primary is lost.
use std::time::{Duration, Instant};

use anyhow::Result;
use pgserver::{PgInstall, Server, ServerOptions, Standby};

const DELAY: Duration = Duration::from_millis(20);
const SYNC_REP: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND state = 'active'";

fn primary() -> Result<Server> {
    let server = Server::start(
        &PgInstall::from_env()?,
        ServerOptions::stock().set("shared_buffers", "16MB"),
    )?;
    server.psql("CREATE TABLE t (a int)")?;
    Ok(server)
}

#[test]
fn a_commit_takes_a_round_trip_and_is_there_after_the_loss_of_the_primary() -> Result<()> {
    let mut primary = primary()?;
    let standby = Standby::attach(&primary, "a", DELAY)?;
    primary.set_synchronous_standbys("a")?;
    let mut client = primary.connect()?;
    for _ in 0..3 {
        let began = Instant::now();
        client.batch_execute("INSERT INTO t VALUES (1)")?;
        assert!(began.elapsed() >= 2 * DELAY);
    }
    standby.wait_until_caught_up(&primary)?;
    assert_eq!(standby.server().psql("SELECT count(*) FROM t")?, "3\n");
    assert!(
        standby
            .server()
            .psql("INSERT INTO t VALUES (1)")
            .unwrap_err()
            .to_string()
            .contains("read-only transaction")
    );
    primary.kill9_all()?;
    drop(client);
    let promoted = standby.promote()?;
    promoted.psql("INSERT INTO t VALUES (2)")?;
    assert_eq!(promoted.psql("SELECT sum(a) FROM t")?, "5\n");
    Ok(())
}

#[test]
fn one_of_two_standbys_is_enough_until_both_are_cut_off() -> Result<()> {
    let mut primary = primary()?;
    let mut first = Standby::attach(&primary, "a", DELAY)?;
    let mut second = Standby::attach(&primary, "b", DELAY)?;
    primary.set_synchronous_standbys("ANY 1 (a, b)")?;
    first.line()?.cut();
    primary.psql("INSERT INTO t VALUES (1)")?;
    second.line()?.cut();
    let mut client = primary.connect()?;
    let waiting = std::thread::spawn(move || client.batch_execute("INSERT INTO t VALUES (2)"));
    while primary.psql(SYNC_REP)? != "1\n" {
        assert!(!waiting.is_finished(), "nobody has confirmed it");
    }
    first.line()?.heal();
    waiting.join().expect("it does not panic")?;
    primary.kill9()?;
    first.disconnect()?;
    second.disconnect()?;
    assert!(first.received()? > second.received()?);
    assert_eq!(first.promote()?.psql("SELECT sum(a) FROM t")?, "3\n");
    Ok(())
}

#[test]
fn without_names_nobody_waits() -> Result<()> {
    let primary = primary()?;
    primary.set_synchronous_standbys("nobody")?;
    let mut client = primary.connect()?;
    let waiting = std::thread::spawn(move || client.batch_execute("INSERT INTO t VALUES (1)"));
    while primary.psql(SYNC_REP)? != "1\n" {
        assert!(!waiting.is_finished(), "nobody has confirmed it");
    }
    primary.set_synchronous_standbys("")?;
    waiting.join().expect("it does not panic")?;
    Ok(())
}
