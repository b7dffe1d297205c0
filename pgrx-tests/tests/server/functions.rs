//! Hot rows updated in functions and procedures, and many settings over one pooled connection.
use anyhow::{Context, Result, ensure};
use txn_server_tests::{
    Background, Load, expect_followed, grouped, int, physical_health, sqlstate, start, start_hot,
};

/// 40001: one that was followed has rolled back. 40P01: a wait would have closed a cycle.
const RETRY: [&str; 2] = ["40001", "40P01"];

#[test]
fn sql_and_plpgsql_functions() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "CREATE FUNCTION bump_sql(hot_id int) RETURNS bigint LANGUAGE sql
             AS $$ UPDATE hot SET val = val + 1 WHERE id = hot_id RETURNING val $$;
         CREATE FUNCTION bump(hot_id int) RETURNS bigint LANGUAGE plpgsql AS $$
         DECLARE seen bigint;
         BEGIN
             UPDATE hot SET val = val + 1 WHERE id = hot_id RETURNING val INTO STRICT seen;
             RETURN seen;
         END $$;
         CREATE FUNCTION bump_guarded(hot_id int) RETURNS bigint LANGUAGE plpgsql AS $$
         BEGIN
             RETURN bump(hot_id);
         EXCEPTION WHEN division_by_zero THEN
             RETURN NULL;
         END $$",
    )?;
    let load = Load::new(&server, 64, 40).grouped().session(|number| {
        // Half of them let others follow, however soon they end.
        let brief_turn = [0, 50][number % 2];
        format!(
            "SET txn.group_lock = on; SET txn.hot_threshold = 1;
             SET txn.brief_turn = {brief_turn}"
        )
    });
    let tally = load.run(|worker| {
        let function = ["bump_sql", "bump", "bump_guarded"][worker.number % 3];
        let sql = format!("SELECT {function}(1)");
        worker.committing(1, |worker| worker.query(&sql, &[]))
    })?;
    tally.only(&[])?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}

/// A deferred trigger refuses what a function has made of an uncommitted version. The client hears
/// of it only when that version is committed, though it sends no COMMIT.
#[test]
fn deferred_triggers_refuse_what_is_committed() -> Result<()> {
    let server = start_hot(1, &[])?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE TABLE taken (val bigint);
         CREATE FUNCTION check_late() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.val > 5 THEN
                 RAISE EXCEPTION 'too much';
             END IF;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON taken
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_late();
         CREATE FUNCTION take() RETURNS void LANGUAGE plpgsql AS $$
         DECLARE seen bigint;
         BEGIN
             UPDATE hot SET val = val + 1 WHERE id = 1 RETURNING val INTO STRICT seen;
             INSERT INTO taken VALUES (seen);
         END $$;
         CREATE PROCEDURE take_and_commit() LANGUAGE plpgsql AS
         $$ BEGIN PERFORM take(); COMMIT; END $$",
    )?;
    let mut followed = 0;
    for call in ["SELECT take()", "CALL take_and_commit()"] {
        for (end, told) in [("ROLLBACK", "40001"), ("COMMIT", "P0001")] {
            let mut first = grouped(&server)?;
            first.batch_execute("BEGIN; UPDATE hot SET val = 10 WHERE id = 1")?;
            let second = Background::run(grouped(&server)?, call)?;
            second.wait_until_blocked(&mut control).context(call)?;
            followed += 1;
            expect_followed(&mut control, followed)?;
            first.batch_execute(end)?;
            let answer = sqlstate(&second.end()?.1);
            ensure!(answer == told, "{answer} instead of {told}: {call}, {end}");
            control.batch_execute("UPDATE hot SET val = 0")?;
        }
    }
    drop(control);
    physical_health(&server, "hot", "id")
}

/// The heart of TPC-C's new order: a number from a hot row, under which the order is filed. The
/// numbers have no gap and no double, though one order in twenty is taken back.
#[test]
fn order_numbers_are_dense() -> Result<()> {
    let server = start(&[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE warehouse (id int PRIMARY KEY, ytd bigint NOT NULL);
         CREATE TABLE district (id int PRIMARY KEY, next_order int NOT NULL);
         CREATE TABLE orders (district int, number int, PRIMARY KEY (district, number));
         INSERT INTO warehouse VALUES (1, 0);
         INSERT INTO district SELECT id, 1 FROM generate_series(1, 2) id;
         CREATE FUNCTION new_order(d int, fails boolean) RETURNS int LANGUAGE plpgsql AS $$
         DECLARE ours int;
         BEGIN
             UPDATE warehouse SET ytd = ytd + 1 WHERE id = 1;
             UPDATE district SET next_order = next_order + 1 WHERE id = d
                 RETURNING next_order - 1 INTO STRICT ours;
             INSERT INTO orders VALUES (d, ours);
             IF fails THEN
                 RAISE EXCEPTION 'no such item';
             END IF;
             RETURN ours;
         END $$",
    )?;
    let tally = Load::new(&server, 64, 40).grouped().run(|worker| {
        let district = if worker.chance(50) { 1 } else { 2 };
        let fails = worker.chance(5);
        let call = "SELECT new_order($1, $2)";
        worker.committing(1, |worker| worker.query(call, &[&district, &fails]))
    })?;
    // P0001: some fail on purpose, so that those who have followed them try again.
    tally.only(&["P0001", "40001", "40P01"])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT count(*) FROM orders")?)?;
    tally.explains(int(&mut client, "SELECT ytd FROM warehouse")?)?;
    let gaps = "SELECT count(*) FROM district d WHERE next_order - 1 <> \
                    (SELECT count(*) FROM orders WHERE district = d.id) \
                OR next_order - 1 <> (SELECT coalesce(max(number), 0) FROM orders \
                                      WHERE district = d.id)";
    ensure!(
        int(&mut client, gaps)? == 0,
        "the order numbers of a district are not 1 ... n"
    );
    drop(client);
    physical_health(&server, "district", "id")?;
    physical_health(&server, "warehouse", "id")
}

#[test]
fn procedures_that_commit() -> Result<()> {
    let server = start_hot(2, &[])?;
    server.connect()?.batch_execute(
        "CREATE PROCEDURE bump_in_two_transactions() LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE hot SET val = val + 1 WHERE id = 1;
             COMMIT;
             UPDATE hot SET val = val + 1 WHERE id = 2;
             ROLLBACK;
             UPDATE hot SET val = val + 1 WHERE id = 2;
         END $$",
    )?;
    let tally = Load::new(&server, 48, 30).grouped().run(|worker| {
        worker.committing(1, |worker| worker.simple("CALL bump_in_two_transactions()"))
    })?;
    // The last part may be told to try again after the first one is committed.
    tally.only(&RETRY)?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot WHERE id = 2")?)?;
    let first = int(&mut client, "SELECT val FROM hot WHERE id = 1")?;
    ensure!(
        first >= tally.acknowledged && first <= 48 * 30,
        "row 1 has {first} after {tally:?}"
    );
    drop(client);
    physical_health(&server, "hot", "id")
}

/// A pooler in transaction mode: each transaction of a connection is another client's.
#[test]
fn settings_belong_to_the_transaction() -> Result<()> {
    let server = start_hot(1, &[])?;
    let tally = Load::new(&server, 32, 60).run(|worker| {
        let settings = [
            "SET LOCAL txn.group_lock = on; SET LOCAL txn.hot_threshold = 1",
            "SET LOCAL txn.queue_lock = on; SET LOCAL txn.hot_threshold = 0",
            "SET LOCAL txn.group_lock = on; SET LOCAL txn.follower_reads = immediate;
             SET LOCAL txn.hot_threshold = 0",
            "SET LOCAL txn.group_lock = off",
        ];
        let mine = settings[(worker.number + worker.attempt) % settings.len()];
        if worker.attempt % 7 == 6 {
            worker.simple("DISCARD ALL")?;
        }
        worker.begin()?;
        worker.simple(mine)?;
        worker.simple("UPDATE hot SET val = val + 1 WHERE id = 1")?;
        if worker.chance(5) {
            // What the next client of this connection does has nothing to do with it.
            return worker.rollback();
        }
        worker.commit(1)
    })?;
    tally.only(&RETRY)?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT val FROM hot")?)?;
    let grouped = int(&mut client, "SELECT tickets FROM txn.stats")?;
    ensure!(grouped > 0, "no session has ever taken a ticket");
    drop(client);
    physical_health(&server, "hot", "id")
}

/// Leaves a cursor's row locked between its FETCH and its update. (A cursor locks the row in the
/// ordinary way: nobody follows.)
#[test]
fn cursors_for_update() -> Result<()> {
    let server = start_hot(1, &[])?;
    let load = Load::new(&server, 24, 30).grouped().moves("tickets");
    let tally = load.run(|worker| {
        if worker.number % 2 == 0 {
            let bump = "UPDATE hot SET val = val + 1 WHERE id = $1";
            return worker.committing(1, |worker| worker.execute(bump, &[&1]));
        }
        worker.simple("BEGIN; DECLARE c CURSOR FOR SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
        worker.simple("FETCH c; UPDATE hot SET val = val + 1 WHERE CURRENT OF c")?;
        match worker.chance(5) {
            true => worker.rollback(),
            false => worker.commit(1),
        }
    })?;
    tally.only(&RETRY)?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}

/// An error is held back until the version it came from is certain, in the innermost statement
/// only: if that wait fails, the statements around it do not wait again. (elog.c has room for five
/// errors on top of each other; the sixth is a PANIC.)
#[test]
fn an_error_deep_in_functions() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(
        "CREATE FUNCTION deep(n int) RETURNS void LANGUAGE plpgsql AS $$
         BEGIN
             IF n > 0 THEN
                 PERFORM deep(n - 1);
             ELSE
                 UPDATE hot SET val = val + 1 WHERE id = 1;
                 RAISE EXCEPTION 'out of stock';
             END IF;
         END $$",
    )?;
    let mut leader = grouped(&server)?;
    leader.batch_execute("BEGIN; UPDATE hot SET val = val + 1 WHERE id = 1")?;
    let mut follower = grouped(&server)?;
    for timeout in ["lock_timeout", "txn.hot_wait_timeout"] {
        follower.batch_execute(&format!("SET {timeout} = '50ms'; BEGIN"))?;
        let told = follower.batch_execute("SELECT deep(20)");
        ensure!(sqlstate(&told) == "55P03", "{timeout}: {told:?}");
        follower.batch_execute(&format!("ROLLBACK; RESET {timeout}"))?;
    }
    leader.batch_execute("COMMIT")?;
    let told = follower.batch_execute("SELECT deep(20)");
    ensure!(sqlstate(&told) == "P0001", "{told:?}");
    drop((leader, follower));
    physical_health(&server, "hot", "id")
}
