//! Followers and subscriptions that apply changes before the commit (`streaming = parallel`).
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, Load, Watchdog, grouped, int, start_hot, text, wait_until};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const NOTE: &str = "INSERT INTO journal (note) VALUES (repeat('x', 1000))";
const JOURNAL: &str =
    "CREATE TABLE journal (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)";

/// With little memory for decoding, a walsender streams a transaction early.
fn publisher(wal_level: &str) -> Result<Server> {
    let settings = [
        ("wal_level", wal_level),
        ("logical_decoding_work_mem", "64kB"),
    ];
    let server = start_hot(2, &settings)?;
    server.connect()?.batch_execute(JOURNAL)?;
    Ok(server)
}

/// A follower that goes on to write lets its predecessors end, but only where changes are decoded.
#[test]
fn followers_stay_small_where_they_are_decoded() -> Result<()> {
    for (wal_level, waits) in [("logical", true), ("replica", false)] {
        let server = publisher(wal_level)?;
        let dog = Watchdog::new(&server);
        dog.finish(stay_small(&server, waits))?;
    }
    Ok(())
}

fn stay_small(server: &Server, waits: bool) -> Result<()> {
    let mut control = server.connect()?;
    let (mut leader, mut follower) = (grouped(server)?, grouped(server)?);
    leader.batch_execute(&format!("BEGIN; {BUMP}"))?;
    follower.batch_execute(&format!("BEGIN; {BUMP}"))?;
    ensure!(int(&mut control, "SELECT followed FROM txn.stats")? == 1);
    let noting = Background::run(follower, NOTE)?;
    if waits {
        wait_until(
            &mut control,
            "SELECT count(*) = 1 FROM txn.waits WHERE reason = 'stream'",
        )?;
    } else {
        while !noting.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    leader.batch_execute("COMMIT")?;
    let (mut follower, result) = noting.end()?;
    result?;
    follower.batch_execute("COMMIT")?;
    // A transaction that has written much does not follow.
    leader.batch_execute(&format!("BEGIN; {BUMP}"))?;
    follower.batch_execute(&format!("BEGIN; {NOTE}"))?;
    let late = Background::run(follower, BUMP)?;
    if waits {
        late.wait_until_blocked(&mut control)?;
    } else {
        while !late.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    leader.batch_execute("COMMIT")?;
    let (mut follower, result) = late.end()?;
    result?;
    follower.batch_execute("COMMIT")?;
    let followed = int(&mut control, "SELECT followed FROM txn.stats")?;
    ensure!(followed == if waits { 1 } else { 2 }, "{followed} followed");
    Ok(())
}

/// The subscriber gets what the publisher has, without a deadlock of its workers.
#[test]
fn a_subscription_that_streams_in_parallel_does_not_deadlock() -> Result<()> {
    let server = publisher("logical")?;
    let subscriber = start_hot(2, &[])?;
    subscriber.connect()?.batch_execute(JOURNAL)?;
    server
        .connect()?
        .batch_execute("CREATE PUBLICATION p FOR TABLE hot, journal")?;
    let mut copy = subscriber.connect()?;
    copy.batch_execute("TRUNCATE hot")?;
    copy.batch_execute(&format!(
        "CREATE SUBSCRIPTION s CONNECTION \
         'host={} port={} user=postgres dbname=postgres' PUBLICATION p WITH (streaming = parallel)",
        server.host().display(),
        server.port()
    ))?;
    let dog = Watchdog::new(&subscriber);
    let result = apply(&server, &mut copy);
    copy.batch_execute("DROP SUBSCRIPTION s")?;
    dog.finish(result)?;
    let log = subscriber.log()?;
    ensure!(!log.contains("deadlock detected"), "workers deadlocked");
    Ok(())
}

fn apply(server: &Server, copy: &mut postgres::Client) -> Result<()> {
    wait_until(
        copy,
        "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel",
    )?;
    let tally = Load::new(server, 8, 20).grouped().run(|worker| {
        worker.begin()?;
        worker.execute(BUMP, &[])?;
        for _ in 0..100 {
            worker.execute(NOTE, &[])?;
        }
        worker.commit(1)
    })?;
    // 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
    tally.only(&["40001", "40P01"])?;
    let mut client = server.connect()?;
    ensure!(
        int(&mut client, "SELECT followed FROM txn.stats")? > 0,
        "nobody followed"
    );
    ensure!(
        int(
            &mut client,
            "SELECT sum(stream_txns)::int8 FROM pg_stat_replication_slots"
        )? > 0,
        "nothing was streamed"
    );
    let sums = "SELECT (SELECT sum(val) FROM hot) || ' ' || (SELECT count(*) FROM journal)";
    let ours = text(&mut client, sums)?;
    wait_until(copy, &format!("SELECT ({sums}) = '{ours}'"))
}
