//! What a predecessor defines holds for the statements of those behind it: stock PostgreSQL would
//! have let it end before these were analyzed.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, expect_followed, grouped, int, sqlstate, start_hot};

fn bump(pair: usize) -> String {
    format!("UPDATE hot SET val = val + 1 WHERE id = {pair}")
}

const TABLES: &str = "
    DROP SCHEMA IF EXISTS nearer CASCADE;
    DROP TABLE IF EXISTS parent, seen, closed CASCADE;
    CREATE SCHEMA nearer;
    CREATE TABLE parent (n bigint);
    INSERT INTO parent VALUES (1);
    CREATE TABLE seen (n bigint);
    CREATE TABLE closed (n bigint);
    CREATE OR REPLACE FUNCTION price() RETURNS int LANGUAGE sql AS 'SELECT 1';
    DO $$ BEGIN CREATE ROLE bob; CREATE ROLE keepers; EXCEPTION WHEN OTHERS THEN NULL; END $$;
    GRANT ALL ON SCHEMA nearer TO bob;
    GRANT ALL ON hot TO bob;
    GRANT INSERT ON seen TO keepers;
    GRANT keepers TO bob";

struct Case {
    leader: &'static str,
    follower: &'static str,
    /// It waits for the leader before it runs.
    waits: bool,
    /// What the follower is told, and again if it was refused.
    told: &'static [&'static str],
    /// What is seen in the end.
    seen: (&'static str, i64),
}

const REFUSED: &[&str] = &["40001", "00000"];
const ROWS: &str = "SELECT sum(n)::bigint FROM public.seen";

const HIDDEN: Case = Case {
    leader: "CREATE TABLE nearer.seen (n bigint); GRANT ALL ON nearer.seen TO bob",
    follower: "INSERT INTO seen VALUES (7)",
    waits: false,
    told: REFUSED,
    seen: ("SELECT sum(n)::bigint FROM nearer.seen", 7),
};

const CASES: &[Case] = &[
    Case {
        leader: "CREATE TABLE child () INHERITS (parent); INSERT INTO child VALUES (5)",
        follower: "INSERT INTO seen SELECT sum(n) FROM parent",
        waits: true,
        told: REFUSED,
        seen: (ROWS, 6),
    },
    Case {
        leader: "CREATE OR REPLACE FUNCTION price() RETURNS int LANGUAGE sql AS 'SELECT 2'",
        follower: "INSERT INTO seen SELECT price() FROM parent",
        waits: true,
        told: REFUSED,
        seen: (ROWS, 2),
    },
    HIDDEN,
    Case {
        leader: "REVOKE INSERT ON seen FROM keepers",
        follower: "INSERT INTO seen VALUES (7)",
        waits: false,
        told: &["40001", "42501"],
        seen: ("SELECT count(*) FROM seen", 0),
    },
    // Roles are in all databases.
    Case {
        leader: "REVOKE keepers FROM bob",
        follower: "INSERT INTO seen VALUES (7)",
        waits: false,
        told: &["40001", "42501"],
        seen: ("SELECT count(*) FROM seen", 0),
    },
    // A caught refusal is one.
    Case {
        leader: "CREATE TABLE nearer.seen (n bigint); GRANT ALL ON nearer.seen TO bob",
        follower: "DO $$ BEGIN INSERT INTO seen SELECT 7 FROM seen;
            EXCEPTION WHEN serialization_failure THEN NULL; END $$; INSERT INTO seen VALUES (7)",
        waits: true,
        told: REFUSED,
        seen: ("SELECT sum(n)::bigint FROM nearer.seen", 7),
    },
    // Its analysis has failed, which comes by no hook, and it has caught that.
    Case {
        leader: "CREATE TABLE nearer.late (n bigint); GRANT ALL ON nearer.late TO bob",
        follower: "DO $$ BEGIN INSERT INTO late VALUES (7);
            EXCEPTION WHEN undefined_table THEN NULL; END $$",
        waits: false,
        told: REFUSED,
        seen: ("SELECT sum(n)::bigint FROM nearer.late", 7),
    },
    Case {
        leader: "GRANT INSERT ON closed TO bob",
        follower: "INSERT INTO closed VALUES (7)",
        waits: true,
        told: REFUSED,
        seen: ("SELECT sum(n)::bigint FROM closed", 7),
    },
    // Commands that hold a statement which has been analyzed with them.
    Case {
        leader: "CREATE TABLE nearer.seen (n bigint); GRANT ALL ON nearer.seen TO bob",
        follower: "CREATE TABLE nearer.kept AS SELECT 7::bigint AS n, count(*) AS seen FROM seen;
            INSERT INTO seen SELECT n FROM nearer.kept",
        waits: true,
        told: REFUSED,
        seen: ("SELECT sum(n)::bigint FROM nearer.seen", 7),
    },
    Case {
        leader: "CREATE TABLE nearer.seen (n bigint); GRANT ALL ON nearer.seen TO bob",
        follower: "EXPLAIN ANALYZE INSERT INTO seen VALUES (7)",
        waits: true,
        told: REFUSED,
        seen: ("SELECT sum(n)::bigint FROM nearer.seen", 7),
    },
    // EXPLAIN ANALYZE makes the table without a command of its own.
    Case {
        leader: "EXPLAIN ANALYZE CREATE TABLE nearer.seen AS SELECT 1::bigint AS n;
            GRANT ALL ON nearer.seen TO bob",
        follower: "INSERT INTO seen VALUES (7)",
        waits: false,
        told: REFUSED,
        seen: ("SELECT sum(n)::bigint FROM nearer.seen", 8),
    },
    // What nobody else's statements depend on.
    Case {
        leader: "DROP TABLE IF EXISTS draft; CREATE TEMP TABLE draft (id serial, n int);
            ALTER TABLE draft ADD COLUMN more int; CREATE TEMP SEQUENCE numbers;
            CREATE TEMP VIEW drafts AS TABLE draft; DROP VIEW drafts; ALTER TABLE draft RENAME TO old;
            DROP TABLE old; DROP SEQUENCE numbers; COMMENT ON TABLE parent IS 'of many';
            CREATE INDEX ON parent (n); ANALYZE parent; TRUNCATE parent",
        follower: "INSERT INTO seen VALUES (7)",
        waits: false,
        told: &["00000"],
        seen: (ROWS, 7),
    },
    Case {
        leader: "CREATE TEMP TABLE draft AS SELECT 1; DROP TABLE draft",
        follower: "INSERT INTO seen SELECT sum(n) FROM parent",
        waits: true,
        told: &["00000"],
        seen: (ROWS, 1),
    },
];

fn run(server: &Server, pair: usize, case: &Case) -> Result<()> {
    let bump = bump(pair);
    let mut control = server.connect()?;
    control.batch_execute(TABLES)?;
    if case.waits {
        control.batch_execute("GRANT ALL ON parent, seen TO bob")?;
    }
    let (mut leader, mut follower) = (grouped(server)?, grouped(server)?);
    leader.batch_execute(&format!("BEGIN; {bump}"))?;
    let before = int(&mut control, "SELECT followed FROM txn.stats")?;
    follower.batch_execute("SET ROLE bob; SET search_path = nearer, public")?;
    follower.batch_execute(&format!("BEGIN; {bump}"))?;
    expect_followed(&mut control, before + 1)?;
    leader.batch_execute(case.leader)?;
    let (mut follower, mut result) = if case.waits {
        let background = Background::run(follower, case.follower)?;
        background.wait_until_blocked(&mut control)?;
        leader.batch_execute("COMMIT")?;
        background.end()?
    } else {
        let result = follower.batch_execute(case.follower);
        leader.batch_execute("COMMIT")?;
        (follower, result)
    };
    if result.is_ok() {
        result = follower.batch_execute("COMMIT");
    } else {
        follower.batch_execute("ROLLBACK")?;
    }
    let mut told = vec![sqlstate(&result)];
    if told[0] == "40001" {
        let again = follower.batch_execute(&format!("BEGIN; {bump}; {}; COMMIT", case.follower));
        told.push(sqlstate(&again));
    }
    ensure!(told == case.told, "told {}", told.join(", then "));
    let (sql, wanted) = case.seen;
    let seen = int(&mut control, sql)?;
    ensure!(seen == wanted, "{seen} seen");
    Ok(())
}

/// A follower writes to a table that its predecessor has hidden behind a new one.
pub fn a_hidden_table(server: &Server) -> Result<()> {
    server
        .connect()?
        .batch_execute("INSERT INTO hot VALUES (1000, 0)")?;
    run(server, 1000, &HIDDEN)
}

#[test]
fn what_a_predecessor_defines_holds_for_its_followers() -> Result<()> {
    let server = start_hot(CASES.len() as u32, &[])?;
    for (n, case) in CASES.iter().enumerate() {
        run(&server, 1 + n, case).with_context(|| format!("{}; {}", case.leader, case.follower))?;
    }
    Ok(())
}

/// As in a block whose client goes back to a savepoint.
#[test]
fn a_name_that_was_not_there_yet() -> Result<()> {
    let server = start_hot(1, &[])?;
    let bump = bump(1);
    let (mut leader, mut follower) = (grouped(&server)?, grouped(&server)?);
    leader.batch_execute(&format!("BEGIN; {bump}; CREATE TABLE late (n int)"))?;
    follower.batch_execute(&format!("BEGIN; {bump}; SAVEPOINT s"))?;
    let told = follower.batch_execute("INSERT INTO late VALUES (7)");
    ensure!(sqlstate(&told) == "42P01", "{told:?}");
    follower.batch_execute("ROLLBACK TO s")?;
    leader.batch_execute("COMMIT")?;
    let told = follower.batch_execute("COMMIT");
    ensure!(sqlstate(&told) == "40001", "{told:?}");
    Ok(())
}

/// Nor does what others define before, or after the predecessors' end if the follower has asked.
#[test]
fn definitions_of_another_time_refuse_nobody() -> Result<()> {
    let server = start_hot(1, &[])?;
    let bump = bump(1);
    let mut control = server.connect()?;
    control.batch_execute(TABLES)?;
    let (mut leader, mut follower) = (grouped(&server)?, grouped(&server)?);
    leader.batch_execute(&format!("BEGIN; {bump}"))?;
    control.batch_execute("CREATE TABLE nearer.before (n int)")?;
    follower.batch_execute(&format!("BEGIN; {bump}; INSERT INTO seen VALUES (7)"))?;
    leader.batch_execute("COMMIT")?;
    // It reads, and so lets its predecessors end.
    follower.batch_execute("TABLE seen")?;
    control.batch_execute("CREATE TABLE nearer.after (n int)")?;
    follower.batch_execute("INSERT INTO seen VALUES (8); COMMIT")?;
    ensure!(int(&mut control, ROWS)? == 15);
    Ok(())
}

/// A commit of DDL that takes long (it waits for a standby) makes others wait for the row; it does
/// not refuse them all the time.
#[test]
fn while_definitions_are_committed_nobody_follows() -> Result<()> {
    let settings = [
        ("synchronous_standby_names", "nobody"),
        ("synchronous_commit", "local"),
    ];
    let server = start_hot(1, &settings)?;
    let bump = bump(1);
    let mut control = server.connect()?;
    control.batch_execute(TABLES)?;
    let mut definer = server.connect()?;
    definer.batch_execute("SET synchronous_commit = on")?;
    let definer = Background::run(definer, "CREATE TABLE late (n int)")?;
    definer.wait_until_blocked(&mut control)?;
    let (mut leader, follower) = (grouped(&server)?, grouped(&server)?);
    leader.batch_execute(&format!("BEGIN; {bump}"))?;
    let follower = Background::run(
        follower,
        &format!("BEGIN; {bump}; INSERT INTO seen VALUES (7); COMMIT"),
    )?;
    follower.wait_until_blocked(&mut control)?;
    leader.batch_execute("COMMIT")?;
    follower.end()?.1?;
    ensure!(int(&mut control, ROWS)? == 7);
    ensure!(int(&mut control, "SELECT followed FROM txn.stats")? == 0);
    control.execute("SELECT pg_cancel_backend($1)", &[&definer.pid])?;
    definer.end()?.1?;
    Ok(())
}
