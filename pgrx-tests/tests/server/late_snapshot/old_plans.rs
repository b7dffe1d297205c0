//! What has been analyzed or planned before the late snapshot is taken.

use anyhow::{Context, Result, anyhow, ensure};
use txn_server_tests::{Background, expect_followed, grouped, int, pid, sqlstate};

use super::{BEGIN, BUMP, start, updated};

/// Prepared statements whose plan is there before the transaction begins: neither the planner nor a
/// simple portal comes first. All note what they read in `told`.
const PREPARED: [&str; 3] = [
    "INSERT INTO told SELECT n FROM seen",
    "WITH x AS (INSERT INTO told SELECT n FROM seen RETURNING n) SELECT n FROM x",
    "INSERT INTO ruled VALUES (1)",
];

#[test]
fn a_cached_plan_reads_after_the_predecessors() -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    other.batch_execute(
        "CREATE TABLE ruled (n int);
         CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO told SELECT n FROM seen",
    )?;
    for statement in PREPARED {
        other.batch_execute("UPDATE seen SET n = 0")?;
        let mut follower = grouped(&server)?;
        let prepared = follower.prepare(statement)?;
        follower.query(&prepared, &[])?;
        other.batch_execute("TRUNCATE told")?;
        let mut leader = updated(&server, "BEGIN")?;
        follower.batch_execute(BEGIN)?;
        follower.batch_execute(BUMP)?;
        other.batch_execute("UPDATE seen SET n = 1")?;
        leader.batch_execute("COMMIT")?;
        follower
            .query(&prepared, &[])
            .with_context(|| statement.to_owned())?;
        follower.batch_execute("COMMIT")?;
        let told = int(&mut other, "SELECT n FROM told")?;
        ensure!(told == 1, "{statement} has read {told}");
    }
    expect_followed(&mut other, PREPARED.len() as i64)
}

/// What a follower runs next, and what others define while it waits: it would read half of what
/// they have committed. `prepared` has been planned before the transaction began.
struct Redefined {
    statement: &'static str,
    prepared: bool,
    meanwhile: &'static str,
}

const REDEFINED: [Redefined; 3] = [
    Redefined {
        statement: "SELECT count(*) FROM parted",
        prepared: true,
        meanwhile:
            "CREATE TABLE two (n int); INSERT INTO two VALUES (2); INSERT INTO one VALUES (1);
            ALTER TABLE parted ATTACH PARTITION two FOR VALUES IN (2)",
    },
    Redefined {
        statement: "DECLARE c CURSOR FOR SELECT n FROM seen",
        prepared: false,
        meanwhile: "CREATE TABLE ahead.seen AS SELECT 7 AS n; UPDATE public.seen SET n = 1",
    },
    Redefined {
        statement: "SELECT n FROM seen",
        prepared: false,
        meanwhile: "CREATE TABLE first.seen AS SELECT 8 AS n; UPDATE ahead.seen SET n = 1",
    },
];

#[test]
fn who_was_analyzed_before_a_change_is_refused() -> Result<()> {
    let server = start()?;
    let mut other = server.connect()?;
    other.batch_execute(
        "CREATE SCHEMA ahead; CREATE SCHEMA first;
         CREATE TABLE parted (n int) PARTITION BY LIST (n);
         CREATE TABLE one PARTITION OF parted FOR VALUES IN (1)",
    )?;
    for case in REDEFINED {
        let mut follower = grouped(&server)?;
        follower
            .batch_execute("SET search_path = first, ahead, public; SET enable_seqscan = off")?;
        let prepared = follower.prepare(case.statement);
        if case.prepared {
            follower.query(prepared.as_ref().map_err(|error| anyhow!("{error}"))?, &[])?;
        }
        let mut leader = updated(&server, "BEGIN")?;
        let own = pid(&mut follower)?;
        follower.batch_execute(BEGIN)?;
        follower.batch_execute(BUMP)?;
        let reading = Background::call(follower, own, move |follower| match prepared {
            Ok(statement) if case.prepared => follower.query(&statement, &[]).map(|_| ()),
            _ => follower.batch_execute(case.statement),
        });
        reading.wait_until_blocked(&mut other)?;
        other.batch_execute(&format!("BEGIN; {}; COMMIT", case.meanwhile))?;
        leader.batch_execute("COMMIT")?;
        let (_, result) = reading.end()?;
        let told = sqlstate(&result);
        ensure!(told == "40001", "{}: told {told}", case.statement);
    }
    Ok(())
}
