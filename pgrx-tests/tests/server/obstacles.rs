//! What keeps updates from following is counted for each row, and told.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, Watchdog, grouped, pid, start_hot, text};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const FOR_UPDATE: &str = "SELECT FROM hot WHERE id = 1 FOR UPDATE";

fn start() -> Result<Server> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD more int, ADD UNIQUE (more);
         ALTER TABLE hot ADD idx int; CREATE INDEX ON hot (idx);
         CREATE TABLE child (hot int REFERENCES hot);
         CREATE FUNCTION shown(bigint) RETURNS bigint LANGUAGE plpgsql AS
            'BEGIN RETURN (SELECT count(*) FROM child) + $1; END'",
    )?;
    Ok(server)
}

/// Each statement of the second session, beside a first one that has done some and goes on with
/// others once that waits.
#[test]
fn each_is_counted_and_told() -> Result<()> {
    for (obstacle, first, second) in [
        (
            "subtransaction",
            &[BUMP][..],
            &["BEGIN", FOR_UPDATE, "SAVEPOINT s", BUMP, "COMMIT"][..],
        ),
        (
            "subtransaction",
            &[FOR_UPDATE, "SAVEPOINT s", BUMP, "RELEASE s"],
            &["BEGIN", BUMP, "COMMIT"],
        ),
        (
            "statement",
            &[BUMP],
            &["UPDATE hot SET val = shown(val) WHERE id = 1"],
        ),
        (
            "locked before",
            &[BUMP],
            &[
                "BEGIN",
                "SELECT FROM hot WHERE id = 1 FOR KEY SHARE",
                BUMP,
                "COMMIT",
            ],
        ),
        (
            "unique key",
            &[BUMP],
            &["UPDATE hot SET id = 1, more = 2 WHERE id = 1"],
        ),
        ("second change", &[BUMP, BUMP], &["BEGIN", BUMP, "COMMIT"]),
        (
            "isolation level",
            &[BUMP],
            &[
                "BEGIN ISOLATION LEVEL REPEATABLE READ",
                "SELECT 1 FROM child",
                BUMP,
                "COMMIT",
            ],
        ),
        (
            "group ended",
            &["SET LOCAL txn.group_size = 1", BUMP],
            &["SET txn.group_size = 1", "BEGIN", BUMP, "COMMIT"],
        ),
        (
            "page",
            &[BUMP],
            &["BEGIN", "UPDATE hot SET idx = 1 WHERE id = 1", "COMMIT"],
        ),
    ] {
        one(obstacle, first, second).context(obstacle)?;
    }
    Ok(())
}

fn one(obstacle: &str, first: &[&str], second: &[&str]) -> Result<()> {
    let server = start()?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    grouped(&server)?.batch_execute(BUMP)?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("BEGIN")?;
    for statement in first {
        leader.batch_execute(statement)?;
    }
    let second: Vec<String> = second.iter().map(|sql| (*sql).to_owned()).collect();
    let mut client = grouped(&server)?;
    let pid = pid(&mut client)?;
    let other = Background::call(client, pid, move |client| {
        // What it is refused is not what this is about.
        let done = second.iter().try_for_each(|sql| client.batch_execute(sql));
        done.or_else(|_| client.batch_execute("ROLLBACK"))
    });
    other.wait_until_blocked(&mut control)?;
    leader.batch_execute("COMMIT")?;
    other.end()?.1?;
    let told = text(
        &mut control,
        "SELECT obstacles FROM txn.hotspots WHERE key = '1'",
    )?;
    let detail = text(
        &mut control,
        "SELECT detail FROM txn.explain_row('hot', '1') WHERE condition = 'updates have followed each other' AND NOT met",
    )?;
    drop((leader, control));
    dog.finish(Ok(()))?;
    ensure!(told.starts_with(obstacle), "{told}");
    ensure!(
        detail.contains(&format!("In the way: {told}. ")),
        "{detail}"
    );
    Ok(())
}

/// A row in whose way nothing is has none.
#[test]
fn none_where_all_follow() -> Result<()> {
    let server = start()?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("BEGIN")?;
    leader.batch_execute(BUMP)?;
    let mut follower = grouped(&server)?;
    follower.batch_execute("BEGIN")?;
    follower.batch_execute(BUMP)?;
    leader.batch_execute("COMMIT")?;
    follower.batch_execute("COMMIT")?;
    grouped(&server)?.batch_execute(BUMP)?;
    let told = text(
        &mut control,
        "SELECT coalesce(obstacles, 'none') || ', ' || met || ', ' || detail
         FROM txn.hotspots, txn.explain_row('hot', '1') WHERE condition = 'updates have followed each other'",
    )?;
    drop((leader, follower, control));
    dog.finish(Ok(()))?;
    ensure!(
        told == "none, true, 1 of 3 updates have followed.",
        "{told}"
    );
    Ok(())
}
