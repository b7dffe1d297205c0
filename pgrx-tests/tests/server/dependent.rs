//! What a transaction that depends on a running predecessor runs, sees and lets out: everything
//! else waits. And what a leader's look at a version that somebody has built on may do to it:
//! nothing.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Background, grouped, int, physical_health, sqlstate, start_hot, text};

const BUMP: &str = "UPDATE hot SET val = val + 1 WHERE id = 1";
const TOTAL: &str = "
    CREATE FUNCTION total() RETURNS bigint STABLE LANGUAGE plpgsql AS
        $$ BEGIN RETURN (SELECT sum(val) FROM hot); END $$;
    CREATE FUNCTION guarded_total() RETURNS bigint STABLE LANGUAGE plpgsql AS $$
    DECLARE x bigint;
    BEGIN
        BEGIN
            SELECT sum(val) INTO STRICT x FROM hot;
        EXCEPTION WHEN no_data_found THEN x := 0;
        END;
        RETURN x;
    END $$;";

/// A leader that has added 10 to the hot row `id = 1`, and a session that may follow. Both
/// transactions are open.
struct Pair {
    leader: Client,
    follower: Client,
    control: Client,
}

impl Pair {
    /// The follower has added 1 on top of the leader's version.
    fn following(server: &Server) -> Result<Self> {
        let mut pair = Pair::leading(server)?;
        let before = pair.followed()?;
        pair.follower
            .batch_execute("UPDATE hot SET val = val + 1 WHERE id = 1")?;
        ensure!(pair.followed()? == before + 1, "nobody has followed");
        Ok(pair)
    }

    /// The follower has not come to the row yet.
    fn leading(server: &Server) -> Result<Self> {
        let mut pair = Pair {
            leader: grouped(server)?,
            follower: grouped(server)?,
            control: server.connect()?,
        };
        pair.leader
            .batch_execute("BEGIN; UPDATE hot SET val = val + 10 WHERE id = 1")?;
        pair.follower.batch_execute("BEGIN")?;
        Ok(pair)
    }

    fn followed(&mut self) -> Result<i64> {
        int(&mut self.control, "SELECT followed FROM txn.stats")
    }

    /// Runs `sql` in the follower, which has to wait, and ends the leader by `end`. What the client
    /// was told, and the session.
    fn waits(mut self, sql: &str, end: &str) -> Result<(String, Client)> {
        let background = Background::run(self.follower, sql)?;
        background
            .wait_until_blocked(&mut self.control)
            .with_context(|| format!("it has to wait: {sql}"))?;
        self.leader.batch_execute(end)?;
        let (client, result) = background.end()?;
        Ok((sqlstate(&result), client))
    }
}

/// Each way in which a session can come to a version of its own: PostgreSQL sets a hint on it by
/// mistake if somebody has built on it.
#[test]
fn a_look_at_a_followed_version_does_no_harm() -> Result<()> {
    let looks = [
        "SELECT * FROM hot WHERE id = 1",
        "SELECT sum(val) FROM hot",
        "SELECT currtid2('hot', ctid) FROM hot",
        "SELECT * FROM look",
        "DO $$ DECLARE t tid; BEGIN t := currtid2('hot', '(0,1)'); END $$",
        "SELECT 'hot'::text @#@ '(0,1)'::tid",
        "SELECT * FROM hot WHERE ctid >= '(0,1)'",
        "SELECT 1 FROM hot WHERE id = 1 FOR KEY SHARE",
        "INSERT INTO child VALUES (1)",
        "COPY hot TO '/dev/null'",
        "SELECT * FROM pgrowlocks('hot')",
        "SELECT * FROM pgstattuple('hot')",
        "SET LOCAL debug_parallel_query = on; SELECT sum(val) FROM hot",
        "DECLARE c SCROLL CURSOR FOR SELECT * FROM hot; FETCH ALL c; FETCH BACKWARD ALL c",
        "SAVEPOINT s; SELECT sum(val) FROM hot; ROLLBACK TO s",
        "SET LOCAL txn.group_lock = off; SELECT sum(val) FROM hot",
        "ANALYZE hot",
    ];
    for method in ["heap", "txn_heap"] {
        let server = start_hot(0, &[])?;
        server.connect()?.batch_execute(&format!(
            "CREATE EXTENSION pgrowlocks; CREATE EXTENSION pgstattuple;
             DROP TABLE hot;
             CREATE TABLE hot (id int PRIMARY KEY, val bigint NOT NULL) USING {method};
             INSERT INTO hot SELECT id, 0 FROM generate_series(1, 20) id;
             CREATE TABLE child (hot int REFERENCES hot);
             CREATE VIEW look AS SELECT currtid2('hot'::text, '(0,1)'::tid);
             CREATE OPERATOR @#@ (FUNCTION = currtid2, LEFTARG = text, RIGHTARG = tid)"
        ))?;
        // Those two want heap itself.
        let for_method = |look: &&&str| method == "heap" || !look.contains("* FROM pg");
        for (n, look) in looks.iter().filter(for_method).enumerate() {
            let mut pair = Pair::following(&server)?;
            pair.leader
                .batch_execute(look)
                .with_context(|| format!("{method}: {look}"))?;
            pair.leader.batch_execute("COMMIT")?;
            pair.follower
                .batch_execute("COMMIT")
                .with_context(|| format!("{method}: behind {look}"))?;
            let val = int(&mut pair.control, "SELECT val FROM hot WHERE id = 1")?;
            ensure!(val == 11 * (n as i64 + 1), "{method}: {val} after {look}");
        }
        physical_health(&server, "hot", "id")?;
    }
    Ok(())
}

/// A follower takes the mistaken hint back by itself: its leader, with a planted fault, does not.
#[test]
fn a_followers_own_check_is_enough() -> Result<()> {
    let fault = ("txn.planted_fault", "leader_does_not_restore");
    for method in ["heap", "txn_heap"] {
        let server = start_hot(2, &[fault, ("default_table_access_method", method)])?;
        let mut pair = Pair::following(&server)?;
        pair.control.batch_execute("CREATE EXTENSION pageinspect")?;
        // The version that is the leader's (10) and has the follower's id as its xmax.
        let hinted = "SELECT count(*) FROM heap_page_items(get_raw_page('hot', 0)) base
             JOIN heap_page_items(get_raw_page('hot', 0)) built ON built.t_xmin = base.t_xmax
             WHERE base.t_infomask & 2048 <> 0";
        ensure!(int(&mut pair.control, hinted)? == 0, "there is a hint");
        pair.leader.batch_execute("SELECT sum(val) FROM hot")?;
        ensure!(int(&mut pair.control, hinted)? == 1, "there is no hint");
        pair.leader.batch_execute("COMMIT")?;
        pair.follower.batch_execute("COMMIT")?;
        let val = int(&mut pair.control, "SELECT val FROM hot WHERE id = 1")?;
        ensure!(val == 11, "{method}: {val}");
        drop(pair);
        physical_health(&server, "hot", "id")?;
    }
    Ok(())
}

/// The follower's base is taken while it is at a savepoint: it is refused, and again when it has
/// rolled back to the savepoint, because it does not see its own update any more.
#[test]
fn a_base_that_was_taken_refuses_its_follower_again() -> Result<()> {
    let fault = ("txn.planted_fault", "leader_does_not_restore");
    let server = start_hot(2, &[fault])?;
    let mut pair = Pair::following(&server)?;
    pair.follower.batch_execute("SAVEPOINT s")?;
    pair.leader
        .batch_execute("SELECT sum(val) FROM hot; COMMIT")?;
    pair.control
        .batch_execute("UPDATE hot SET val = val + 100 WHERE id = 1")?;
    for _ in 0..2 {
        let told = sqlstate(&pair.follower.batch_execute("SELECT val FROM hot"));
        ensure!(told == "40001", "{told}");
        pair.follower.batch_execute("ROLLBACK TO s")?;
    }
    let told = sqlstate(&pair.follower.batch_execute("COMMIT"));
    ensure!(told == "40001", "{told} at the end");
    let val = int(&mut pair.control, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(val == 110, "{val}");
    Ok(())
}

/// A leader that changes its own followed version in PostgreSQL's way, because its setting is off
/// by then: the follower's base is taken, and the follower does not commit.
#[test]
fn a_base_that_was_taken_refuses_its_follower() -> Result<()> {
    let takes = [
        "UPDATE hot SET val = val + 100 WHERE id = 1",
        "DELETE FROM hot WHERE id = 1; INSERT INTO hot VALUES (1, 110)",
        "SELECT 1 FROM hot WHERE id = 1 FOR UPDATE",
    ];
    for take in takes {
        let server = start_hot(2, &[])?;
        let mut pair = Pair::following(&server)?;
        let taken = pair
            .leader
            .batch_execute(&format!("SET LOCAL txn.group_lock = off; {take}"));
        let end = if taken.is_ok() { "COMMIT" } else { "ROLLBACK" };
        pair.leader.batch_execute(end)?;
        let told = sqlstate(&pair.follower.batch_execute("COMMIT"));
        // Either the leader is refused, and with it the follower that has built on its version; or
        // the follower is.
        ensure!(told == "40001", "{told} behind {take}");
        drop(pair);
        physical_health(&server, "hot", "id")?;
    }
    Ok(())
}

/// Statements behind a follow that read the row's table in one way or another: none sees the row
/// twice.
#[test]
fn a_follower_sees_its_row_once() -> Result<()> {
    let server = start_hot(0, &[])?;
    server.connect()?.batch_execute(&format!(
        "INSERT INTO hot VALUES (1, 100), (2, 100); {TOTAL}
         CREATE FUNCTION is_total(x bigint) RETURNS bool STABLE LANGUAGE sql
             AS $$ SELECT total() = x $$;
         CREATE FUNCTION total_now() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN NEW.total := total(); RETURN NEW; END $$;
         CREATE FUNCTION pretends() RETURNS bigint IMMUTABLE LANGUAGE sql AS $$ SELECT total() $$;
         CREATE DOMAIN checked AS bigint CHECK (guarded_total() = 211);
         CREATE TABLE note (total bigint);
         CREATE TABLE by_check (x int CHECK (is_total(211)));
         CREATE TABLE by_default (x int, total bigint DEFAULT guarded_total());
         CREATE TABLE by_domain (x checked);
         CREATE TABLE by_trigger (x int, total bigint);
         CREATE TRIGGER now BEFORE INSERT ON by_trigger FOR EACH ROW EXECUTE FUNCTION total_now();
         CREATE PROCEDURE notes() LANGUAGE plpgsql AS $$
         DECLARE t bigint;
         BEGIN
             t := guarded_total();
             INSERT INTO note VALUES (t);
         END $$"
    ))?;
    let reads = [
        "INSERT INTO note SELECT total()",
        "INSERT INTO note VALUES (guarded_total())",
        "INSERT INTO by_check VALUES (1); INSERT INTO note VALUES (211)",
        "INSERT INTO by_default VALUES (1); INSERT INTO note SELECT total FROM by_default",
        "INSERT INTO by_domain VALUES (1); INSERT INTO note VALUES (211)",
        "INSERT INTO by_trigger VALUES (1); INSERT INTO note SELECT total FROM by_trigger",
        "DO $$ DECLARE t bigint; BEGIN t := guarded_total(); INSERT INTO note VALUES (t); END $$",
        "DO $$ DECLARE t bigint := total(); BEGIN INSERT INTO note VALUES (t); END $$",
        "CALL notes()",
        "INSERT INTO note SELECT pretends()",
        "DECLARE c CURSOR FOR SELECT 1 WHERE total() = 211; FETCH c; INSERT INTO note VALUES (211)",
        "COPY hot TO '/dev/null'; INSERT INTO note SELECT sum(val) FROM hot",
        "EXECUTE by_name(1)",
    ];
    for reads_of in ["wait", "immediate"] {
        for read in reads {
            let context = || format!("{reads_of}: {read}");
            let mut control = server.connect()?;
            control.batch_execute(
                "UPDATE hot SET val = 100; TRUNCATE note, by_check, by_default, by_domain, by_trigger",
            )?;
            let mut pair = Pair::leading(&server)?;
            pair.follower.batch_execute(&format!(
                "ROLLBACK; SET txn.follower_reads = {reads_of};
                 PREPARE by_name AS INSERT INTO note SELECT total() WHERE $1 = 1;
                 BEGIN; UPDATE hot SET val = val + 1 WHERE id = 1"
            ))?;
            let (told, mut follower) = pair
                .waits(&format!("{read}; COMMIT"), "COMMIT")
                .with_context(context)?;
            ensure!(told == "00000", "{told}: {}", context());
            follower.batch_execute("DEALLOCATE ALL")?;
            let total = text(
                &mut control,
                "SELECT string_agg(total::text, ' ') FROM note",
            )?;
            ensure!(total == "211", "a total of {total}: {}", context());
        }
    }
    physical_health(&server, "hot", "id")
}

/// A nested statement that can neither wait (its caller's snapshot is older) nor see its
/// predecessor as ended is refused.
#[test]
fn a_callers_stale_snapshot_is_refused() -> Result<()> {
    let server = start_hot(0, &[])?;
    server.connect()?.batch_execute(&format!(
        "INSERT INTO hot VALUES (1, 100), (2, 100); {TOTAL}
         CREATE TABLE note (total bigint);
         CREATE FUNCTION bump() RETURNS bigint LANGUAGE sql
             AS $$ UPDATE hot SET val = val + 1 WHERE id = 1; SELECT 0::bigint $$;
         CREATE FUNCTION both_in_one() RETURNS void LANGUAGE plpgsql AS $$
         DECLARE t bigint;
         BEGIN
             t := bump() + total();
             INSERT INTO note VALUES (t);
         END $$"
    ))?;
    // Stock PostgreSQL gives 210: `total` reads with the snapshot of the expression that has called
    // `bump` before.
    for _ in 0..3 {
        server
            .connect()?
            .batch_execute("TRUNCATE note; UPDATE hot SET val = 100")?;
        let pair = Pair::leading(&server)?;
        let (told, mut follower) = pair.waits("SELECT both_in_one(); COMMIT", "COMMIT")?;
        if told == "00000" {
            let total = int(&mut follower, "SELECT total FROM note")?;
            ensure!(total == 200 || total == 210, "a total of {total}");
        } else {
            ensure!(told == "40001", "{told}");
        }
    }
    physical_health(&server, "hot", "id")
}

/// A function that is evaluated on a version leaves a trace of its values: only of committed ones.
#[test]
fn functions_see_committed_values_only() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE seen (val bigint);
         CREATE FUNCTION note(v bigint) RETURNS bigint LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO seen VALUES (v); RETURN v; END $$;
         CREATE FUNCTION note_new() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO seen VALUES (OLD.val); RETURN NEW; END $$",
    )?;
    let statements = [
        "UPDATE hot SET val = note(val) + 1 WHERE id = 1",
        "UPDATE hot SET val = val + 1 WHERE id = 1 AND note(val) >= 0",
        "UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING note(val)",
        "INSERT INTO hot VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET val = note(hot.val) + 1",
    ];
    for statement in statements {
        let pair = Pair::leading(&server)?;
        let (told, mut follower) = pair.waits(&format!("{statement}; COMMIT"), "ROLLBACK")?;
        ensure!(told == "00000", "{told}: {statement}");
        let dirty = "SELECT count(*) FROM seen WHERE val >= 10";
        ensure!(
            int(&mut follower, dirty)? == 0,
            "of a rolled back value: {statement}"
        );
    }
    server.connect()?.batch_execute(
        "CREATE TRIGGER n BEFORE UPDATE ON hot FOR EACH ROW EXECUTE FUNCTION note_new()",
    )?;
    let pair = Pair::leading(&server)?;
    let update = "UPDATE hot SET val = val + 1 WHERE id = 1; COMMIT";
    let (told, mut follower) = pair.waits(update, "ROLLBACK")?;
    ensure!(["00000", "40001"].contains(&told.as_str()), "{told}");
    follower.batch_execute("ROLLBACK")?;
    let dirty = "SELECT count(*) FROM seen WHERE val >= 10";
    ensure!(
        int(&mut follower, dirty)? == 0,
        "a trigger's note of a rolled back value"
    );
    drop(follower);
    physical_health(&server, "hot", "id")
}

/// Errors wait for the values of which they may come, whatever their class.
#[test]
fn errors_of_every_class_wait() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "ALTER TABLE hot ADD bar text NOT NULL DEFAULT '';
         CREATE FUNCTION refuse(code text) RETURNS void LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = code; END $$",
    )?;
    // 10 of the leader's make the text too long: 54000, and XX000 or 53200 for larger ones.
    let by_value = [
        "UPDATE hot SET bar = repeat(repeat('x', 1000000), (val * 200)::int) WHERE id = 1",
        "UPDATE hot SET bar = (10 / (10 - val))::text WHERE id = 1",
        "UPDATE hot SET bar = lpad('x', (val * 107374182)::int) WHERE id = 1",
    ];
    for statement in by_value {
        let (told, _) = Pair::leading(&server)?.waits(statement, "ROLLBACK")?;
        ensure!(told == "40001", "{told}: {statement}");
    }
    for code in [
        "54000", "XX000", "F0000", "53000", "58000", "57000", "40002", "22012",
    ] {
        let raise = format!("SELECT refuse('{code}')");
        let (told, _) = Pair::following(&server)?.waits(&raise, "ROLLBACK")?;
        ensure!(told == "40001", "{told} instead of 40001: {raise}");
        let (told, _) = Pair::following(&server)?.waits(&raise, "COMMIT")?;
        ensure!(told == code, "{told} instead of {code}");
    }
    physical_health(&server, "hot", "id")
}

/// Makes the foreign table `remote` of the table `there`, and functions and a procedure that write
/// there. Gives the call of dblink that does so, too.
fn make_remote(server: &Server, control: &mut Client) -> Result<String> {
    let (host, port) = (server.host().display().to_string(), server.port());
    let user = text(control, "SELECT current_user::text")?;
    let database = text(control, "SELECT current_database()::text")?;
    control.batch_execute(&format!(
        "CREATE EXTENSION postgres_fdw; CREATE EXTENSION dblink;
         CREATE TABLE there (val bigint);
         CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{host}', port '{port}', dbname '{database}');
         CREATE USER MAPPING FOR CURRENT_USER SERVER loop OPTIONS (user '{user}');
         CREATE FOREIGN TABLE remote (val bigint) SERVER loop OPTIONS (table_name 'there');
         CREATE FUNCTION take() RETURNS bigint LANGUAGE plpgsql AS $$
         DECLARE v bigint;
         BEGIN
             INSERT INTO remote VALUES (0);
             {BUMP} RETURNING val INTO STRICT v;
             RETURN v;
         END $$;
         CREATE PROCEDURE take_and_commit() LANGUAGE plpgsql AS $$
         BEGIN
             INSERT INTO remote VALUES (0);
             {BUMP};
             COMMIT;
         END $$;
         CREATE FUNCTION tell(v bigint) RETURNS text LANGUAGE sql AS $$ SELECT
             dblink_exec('host={host} port={port} dbname={database} user={user}',
                         'INSERT INTO there VALUES (' || v || ')') $$"
    ))?;
    Ok(format!(
        "dblink_exec('host={host} port={port} dbname={database} user={user}', \
         'INSERT INTO there VALUES (1)')"
    ))
}

/// What happens outside of the transaction happens only once its predecessors have committed: in
/// each kind of transaction, and whether the foreign server was used before or after the follow.
#[test]
fn effects_outside_wait() -> Result<()> {
    let server = start_hot(1, &[])?;
    let mut control = server.connect()?;
    let dblink = make_remote(&server, &mut control)?;
    let remote = "INSERT INTO remote VALUES (0)";
    let statements = [
        "SELECT take()".to_owned(),
        format!("DO $$ BEGIN {remote}; {BUMP}; END $$"),
        "CALL take_and_commit()".to_owned(),
        format!("{remote}; {BUMP}"),
        format!("BEGIN; {remote}; {BUMP}; COMMIT"),
        format!("{BUMP}; {remote}"),
        format!("{BUMP} RETURNING tell(val)"),
        format!("DO $$ DECLARE t text; BEGIN {BUMP}; t := {dblink}; END $$"),
        format!("DO $$ BEGIN {BUMP}; IF {dblink} = 'INSERT 0 1' THEN NULL; END IF; END $$"),
        format!(
            "DO $$ DECLARE n int := 0; BEGIN WHILE n < 1 OR {dblink} IS NULL LOOP n := n + 1; \
             {BUMP}; END LOOP; END $$"
        ),
        format!("BEGIN; {BUMP}; SELECT {dblink}; COMMIT"),
        format!("BEGIN; DECLARE c CURSOR FOR SELECT {dblink}; {BUMP}; FETCH c; COMMIT"),
        format!(
            "BEGIN; {BUMP}; COPY (SELECT 1) TO PROGRAM 'cat > /dev/null'; SELECT {dblink}; COMMIT"
        ),
    ];
    for statement in statements {
        control.batch_execute("TRUNCATE there")?;
        let mut pair = Pair::leading(&server)?;
        pair.follower.batch_execute("ROLLBACK")?;
        let (told, mut follower) = pair.waits(&statement, "ROLLBACK")?;
        follower.batch_execute("ROLLBACK")?;
        let there = int(&mut control, "SELECT count(*) FROM there")?;
        let fine = (told == "40001" && there == 0) || (told == "00000" && there == 1);
        ensure!(fine, "{told}, and {there} rows are there: {statement}");
    }
    drop(control);
    physical_health(&server, "hot", "id")
}

/// What is left to the commit may tell of uncommitted values. It waits, also where no command asks
/// for the commit.
#[test]
fn deferred_checks_wait_without_a_block() -> Result<()> {
    let ways = [
        format!("INSERT INTO note VALUES (7); {BUMP}"),
        format!("INSERT INTO note VALUES (7); {BUMP}; SELECT 1"),
        format!("DO $$ BEGIN INSERT INTO note VALUES (7); {BUMP}; END $$"),
        "CALL bump()".to_owned(),
        format!("COPY note FROM PROGRAM 'echo 7'; {BUMP}"),
    ];
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE note (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO note VALUES (7);
         CREATE PROCEDURE bump() LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO note VALUES (7); {BUMP}; END $$"
    ))?;
    for way in ways {
        let mut pair = Pair::leading(&server)?;
        let before = pair.followed()?;
        pair.follower.batch_execute("ROLLBACK")?;
        let follower = Background::run(pair.follower, &way)?;
        follower
            .wait_until_blocked(&mut pair.control)
            .with_context(|| format!("it has to wait: {way}"))?;
        let followed = int(&mut pair.control, "SELECT followed FROM txn.stats")?;
        ensure!(followed == before + 1, "nobody has followed: {way}");
        pair.leader.batch_execute("ROLLBACK")?;
        let told = sqlstate(&follower.end()?.1);
        ensure!(told == "40001", "{told}: {way}");
    }
    physical_health(&server, "hot", "id")
}
