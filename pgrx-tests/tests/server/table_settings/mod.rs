//! Settings of a table, with those of the sessions off or different.
use anyhow::{Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Load, Tally, Watchdog, int, physical_health, sqlstate, start_hot, text,
};

mod change;
mod dump;

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
/// 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
const RETRY: [&str; 2] = ["40001", "40P01"];
const CLIENTS: usize = 32;

/// A server with the tables `hot` and `cold`, alike, and what `arguments` of txn.set_table say for
/// `hot`.
fn labelled(arguments: &str) -> Result<Server> {
    let server = start_hot(CLIENTS as u32, &[])?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE cold (LIKE hot INCLUDING ALL);
         INSERT INTO cold TABLE hot;
         ALTER DATABASE postgres SET txn.log_hotspots = on;
         SELECT txn.set_table('hot', {arguments})"
    ))?;
    Ok(server)
}

/// Every client updates row 1 of `hot` in transaction blocks, with a row of its own in `cold`.
/// Between the blocks it updates row 1 of `cold` alone. Both tables have to add up.
fn both_tables(server: &Server, session: &'static str) -> Result<Tally> {
    let tally = Load::new(server, CLIENTS, 60)
        .session(move |_| session.to_owned())
        .run(|worker| {
            if worker.attempt % 3 == 2 {
                let sql = "UPDATE cold SET val = val + 1 WHERE id = 1";
                return worker.committing(1, |worker| worker.execute(sql, &[]).map(drop));
            }
            let own = worker.number as i32 + 1;
            worker.begin()?;
            worker.execute(BUMP, &[])?;
            worker.execute("UPDATE cold SET val = val + 0 WHERE id = $1", &[&own])?;
            match worker.chance(3) {
                true => worker.rollback(),
                false => worker.commit(1),
            }
        })?;
    tally.only(&RETRY)?;
    let mut client = server.connect()?;
    let sum = "(SELECT sum(val) FROM hot) + (SELECT sum(val) FROM cold)";
    tally.explains(int(&mut client, sum)?)?;
    drop(client);
    physical_health(server, "hot", "id")?;
    physical_health(server, "cold", "id")?;
    Ok(tally)
}

/// A total of txn.stats.
fn total(server: &Server, column: &str) -> Result<i64> {
    int(
        &mut server.connect()?,
        &format!("SELECT {column} FROM txn.stats"),
    )
}

/// The tables that have had hot rows, in the words of the server log.
fn hot_tables(server: &Server) -> Result<Vec<&'static str>> {
    let log = server.log()?;
    let found = ["hot", "cold"].into_iter();
    Ok(found
        .filter(|name| log.contains(&format!("of table \"{name}\" is hot now")))
        .collect())
}

#[test]
fn one_table_is_switched_on() -> Result<()> {
    let server = labelled("'group', hot_threshold => 1")?;
    both_tables(&server, "")?;
    let followed = total(&server, "followed")?;
    ensure!(followed > 0, "nobody has followed on the table");
    let tables = hot_tables(&server)?;
    ensure!(tables == ["hot"], "hot rows in {tables:?}");
    Ok(())
}

#[test]
fn one_table_is_switched_off() -> Result<()> {
    let server = labelled("'off'")?;
    both_tables(
        &server,
        "SET txn.group_lock = on; SET txn.hot_threshold = 1",
    )?;
    let tables = hot_tables(&server)?;
    ensure!(tables == ["cold"], "hot rows in {tables:?}");
    Ok(())
}

#[test]
fn one_table_queues() -> Result<()> {
    let server = labelled("'queue', hot_threshold => 1")?;
    both_tables(&server, "")?;
    let (tickets, followed) = (total(&server, "tickets")?, total(&server, "followed")?);
    ensure!(
        tickets > 0 && followed == 0,
        "{tickets} tickets, {followed} followed"
    );
    Ok(())
}

#[test]
fn the_table_has_a_threshold_of_its_own() -> Result<()> {
    let server = labelled("'group', hot_threshold => 10000")?;
    both_tables(&server, "SET txn.hot_threshold = 0")?;
    let promotions = total(&server, "promotions")?;
    ensure!(promotions == 0, "{promotions} rows became hot");
    Ok(())
}

/// Groups of one: the next transaction waits for the one before.
#[test]
fn the_table_has_a_group_size_of_its_own() -> Result<()> {
    let server = labelled("'group', 1, group_size => 1")?;
    both_tables(&server, "")?;
    let (groups, followed) = (total(&server, "groups")?, total(&server, "followed")?);
    ensure!(
        groups > 0 && followed == 0,
        "{groups} groups, {followed} followed"
    );
    Ok(())
}

/// Runs `scenario` on a server with the label.
fn on_server(arguments: &str, scenario: impl FnOnce(&Server) -> Result<()>) -> Result<()> {
    let server = labelled(arguments)?;
    let dog = Watchdog::new(&server);
    dog.finish(scenario(&server))?;
    physical_health(&server, "hot", "id")
}

/// A session that has run `sql` in a transaction block.
fn in_block(server: &Server, sql: &str) -> Result<Client> {
    let mut client = server.connect()?;
    client.batch_execute(&format!("BEGIN; {sql}"))?;
    Ok(client)
}

/// A follower reads another table: `waits` says whether its predecessor has to end first.
fn follower_reads(server: &Server, session: &str, updates: &str, waits: bool) -> Result<()> {
    let mut control = server.connect()?;
    let mut leader = in_block(server, updates)?;
    let follower = in_block(server, &format!("{session}; {updates}"))?;
    let reading = Background::run(follower, "SELECT * FROM pg_class WHERE relname = 'hot'")?;
    if waits {
        reading.wait_until_blocked(&mut control)?;
        leader.batch_execute("COMMIT")?;
        let (mut follower, result) = reading.end()?;
        result?;
        follower.batch_execute("COMMIT")?;
    } else {
        let (follower, result) = reading.end()?;
        result?;
        let commit = Background::run(follower, "COMMIT")?;
        commit.wait_until_blocked(&mut control)?;
        leader.batch_execute("COMMIT")?;
        commit.end()?.1?;
    }
    Ok(())
}

#[test]
fn the_table_says_what_followers_see() -> Result<()> {
    let wait = "SET LOCAL txn.follower_reads = wait";
    let immediate = "SET LOCAL txn.follower_reads = immediate";
    on_server("'group', 0, follower_reads => 'immediate'", |server| {
        follower_reads(server, wait, BUMP, false)?;
        // One that waits is enough.
        server
            .connect()?
            .batch_execute("SELECT txn.set_table('cold', 'group', 0)")?;
        let both = &format!("{BUMP}; UPDATE cold SET val = val + 1 WHERE id = 1");
        follower_reads(server, wait, both, true)?;
        follower_reads(server, immediate, both, false)
    })?;
    on_server("'group', 0, follower_reads => 'wait'", |server| {
        follower_reads(server, immediate, BUMP, true)
    })
}

/// What a follower computes from an uncommitted version is no answer, wherever in the statement it
/// is computed: the session does not know before that its function will use such a table.
#[test]
fn errors_on_uncommitted_data_wait_for_its_writer() -> Result<()> {
    on_server("'group', 0", |server| {
        let mut control = server.connect()?;
        control.batch_execute(
            "CREATE FUNCTION share() RETURNS bigint LANGUAGE plpgsql AS $$
             DECLARE
                 found bigint;
             BEGIN
                 UPDATE hot SET val = val WHERE id = 1 RETURNING val INTO found;
                 RETURN 100 / (found - 1);
             END $$;
             CREATE PROCEDURE shares() LANGUAGE plpgsql AS $$
             DECLARE
                 found bigint;
             BEGIN
                 COMMIT;
                 UPDATE hot SET val = val WHERE id = 1 RETURNING val INTO found;
                 found := 100 / (found - 1);
             END $$",
        )?;
        let block = "DO $$
             DECLARE
                 found bigint;
             BEGIN
                 UPDATE hot SET val = val WHERE id = 1 RETURNING val INTO found;
                 found := 100 / (found - 1);
             END $$";
        for statement in ["SELECT share()", "CALL shares()", block] {
            for (end, told) in [("ROLLBACK", "40001"), ("COMMIT", "22012")] {
                control.batch_execute("UPDATE hot SET val = 0 WHERE id = 1")?;
                let mut leader = in_block(server, BUMP)?;
                let asking = Background::run(server.connect()?, statement)?;
                asking.wait_until_blocked(&mut control)?;
                leader.batch_execute(end)?;
                let code = sqlstate(&asking.end()?.1);
                ensure!(code == told, "{statement}, after {end}: told {code}");
            }
        }
        let val = text(&mut control, "SELECT val FROM hot WHERE id = 1")?;
        ensure!(val == "1", "the value is {val}");
        Ok(())
    })
}

/// A cycle through a hot row and a row of a table without settings is refused at once, as with the
/// session's settings on.
#[test]
fn circles_through_other_tables_are_refused() -> Result<()> {
    let server = start_hot(1, &[("deadlock_timeout", "10min")])?;
    let dog = Watchdog::new(&server);
    dog.finish((|| {
        let mut control = server.connect()?;
        control.batch_execute(
            "CREATE TABLE cold (LIKE hot INCLUDING ALL); INSERT INTO cold TABLE hot;
             SELECT txn.set_table('hot', 'group', 0)",
        )?;
        let other = "UPDATE cold SET val = val + 1 WHERE id = 1";
        let mut leader = in_block(&server, BUMP)?;
        let follower = in_block(&server, &format!("{BUMP}; {other}"))?;
        // It commits after the leader, and has the row that the leader wants.
        let commit = Background::run(follower, "COMMIT")?;
        commit.wait_until_blocked(&mut control)?;
        let told = sqlstate(&leader.batch_execute(other));
        ensure!(told == "40P01", "the leader was told {told}");
        leader.batch_execute("ROLLBACK")?;
        let told = sqlstate(&commit.end()?.1);
        ensure!(told == "40001", "the follower was told {told}");
        Ok(())
    })())?;
    physical_health(&server, "hot", "id")
}
