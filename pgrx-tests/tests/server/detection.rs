//! A row becomes hot by itself when it is fought over, cools down by itself, and PostgreSQL's own
//! statistics stay right.
use anyhow::{Result, ensure};
use pgserver::Server;
use txn_server_tests::{
    Background, Load, Watchdog, int, physical_health, start_hot, text, wait_until,
};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";

#[test]
fn hot_when_fought_over_and_cool_again() -> Result<()> {
    let server = start_hot(2, &[("txn.log_hotspots", "on")])?;
    let dog = Watchdog::new(&server);
    let result = heat_and_cool(&server, &dog);
    dog.finish(result)?;
    let log = server.log()?;
    for line in [
        "row (1) of table \"hot\" is hot now",
        "row (1) of table \"hot\" is not hot any more",
        " updates, ",
    ] {
        ensure!(log.contains(line), "the log does not say {line:?}");
    }
    Ok(())
}

fn heat_and_cool(server: &Server, dog: &Watchdog) -> Result<()> {
    let mut control = server.connect()?;
    let mut holder = server.connect()?;
    holder.batch_execute("BEGIN")?;
    holder.batch_execute(BUMP)?;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut session = server.connect()?;
        session.batch_execute("SET txn.group_lock = on")?;
        waiting.push(Background::run(session, BUMP)?);
    }
    wait_until(&mut control, "SELECT count(*) = 1 FROM txn.hotspots")?;
    let row = text(
        &mut control,
        "SELECT relation || ' ' || key FROM txn.hotspots",
    )?;
    ensure!(
        row.starts_with("hot ") && row.contains('1'),
        "txn.hotspots shows {row:?}"
    );
    wait_until(&mut control, "SELECT sum(waiting) > 0 FROM txn.hotspots")?;
    holder.batch_execute("COMMIT")?;
    for session in waiting {
        session.end()?.1?;
    }
    dog.progress();
    ensure!(
        int(&mut control, "SELECT val FROM hot WHERE id = 1")? == 9,
        "an update is lost"
    );
    ensure!(
        int(&mut control, "SELECT promotions FROM txn.stats")? > 0,
        "no promotion counted"
    );
    wait_until(&mut control, "SELECT count(*) = 0 FROM txn.hotspots")?;
    ensure!(
        int(&mut control, "SELECT coolings FROM txn.stats")? > 0,
        "no cooling counted"
    );
    Ok(())
}

/// An upsert waits for a row, the row is deleted, and the upsert inserts it. Then it does not wait
/// for that row any longer, though its transaction goes on to wait for another one.
#[test]
fn who_waits_no_longer_does_not_count() -> Result<()> {
    let server = start_hot(2, &[])?;
    let dog = Watchdog::new(&server);
    let result = wait_twice(&server);
    dog.finish(result)
}

fn wait_twice(server: &Server) -> Result<()> {
    const UPSERT: &str =
        "INSERT INTO hot VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1";
    const OTHER: &str = "UPDATE hot SET val = val + 1 WHERE id = 2";
    let mut control = server.connect()?;
    let mut holder = server.connect()?;
    let counting = |sql: &str| {
        let mut session = server.connect()?;
        session.batch_execute("SET txn.group_lock = on; SET txn.hot_threshold = 2")?;
        Background::run(session, sql)
    };
    holder.batch_execute(&format!("BEGIN; {BUMP}"))?;
    let first = counting(&format!("BEGIN; {UPSERT}"))?;
    first.wait_until_blocked(&mut control)?;
    holder.batch_execute("DELETE FROM hot WHERE id = 1; COMMIT")?;
    let (session, result) = first.end()?;
    result?;
    holder.batch_execute(&format!("BEGIN; {OTHER}"))?;
    let second = Background::run(session, OTHER)?;
    second.wait_until_blocked(&mut control)?;
    holder.batch_execute("COMMIT")?;
    let (mut session, result) = second.end()?;
    result?;
    session.batch_execute("COMMIT")?;
    holder.batch_execute(&format!("BEGIN; {BUMP}"))?;
    let alone = counting(BUMP)?;
    alone.wait_until_blocked(&mut control)?;
    let hot = int(&mut control, "SELECT count(*) FROM txn.hotspots")?;
    ensure!(
        hot == 0,
        "one waiter has made the row hot for which two are wanted"
    );
    holder.batch_execute("COMMIT")?;
    Ok(alone.end()?.1?)
}

#[test]
fn cold_without_a_fight() -> Result<()> {
    let server = start_hot(2, &[])?;
    let tally = Load::new(&server, 1, 500)
        .session(|_| "SET txn.group_lock = on".to_owned())
        .run(|worker| worker.committing(1, |worker| worker.execute(BUMP, &[])))?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    ensure!(
        int(&mut client, "SELECT promotions FROM txn.stats")? == 0,
        "a lone client's row is hot"
    );
    ensure!(
        int(&mut client, "SELECT count(*) FROM txn.hotspots")? == 0,
        "a row is hot"
    );
    tally.explains(int(&mut client, "SELECT val FROM hot WHERE id = 1")?)
}

/// Updates and HOT updates are counted once each, by whichever way they went into the heap.
#[test]
fn table_statistics_add_up() -> Result<()> {
    let server = start_hot(1, &[])?;
    let tally = Load::new(&server, 48, 40).grouped().run(|worker| {
        worker.begin()?;
        worker.execute(BUMP, &[])?;
        worker.commit(1)
    })?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    let updates = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'hot'";
    let done = tally.acknowledged;
    // The last sessions report as they end.
    wait_until(&mut client, &format!("SELECT ({updates}) >= {done}"))?;
    let counted = int(&mut client, updates)?;
    ensure!(counted == done, "{counted} updates counted of {done}");
    let hot = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'hot'";
    let hot = int(&mut client, hot)?;
    ensure!(hot > 0 && hot <= done, "{hot} HOT updates of {done}");
    let live = int(
        &mut client,
        "SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'hot'",
    )?;
    ensure!(live == 1, "{live} live rows instead of one");
    drop(client);
    physical_health(&server, "hot", "id")
}
