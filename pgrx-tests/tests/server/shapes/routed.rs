//! INSERT ... ON CONFLICT into partitioned tables: the executor opens a partition when the first
//! row comes that goes to it.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{
    Background, Watchdog, grouped, int, physical_health, sqlstate, start, start_hot, text,
};

use super::{Mix, RETRY, one_of};

/// `hot` has partitions of two levels with other orders of columns, one of them the default, and
/// columns that are gone.
fn start_routed() -> Result<Server> {
    let server = start(&[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE hot (gone text, id int, val bigint NOT NULL, PRIMARY KEY (id))
             PARTITION BY RANGE (id);
         CREATE TABLE hot_1 (val bigint NOT NULL, gone text, id int NOT NULL);
         ALTER TABLE hot ATTACH PARTITION hot_1 FOR VALUES FROM (1) TO (2);
         CREATE TABLE hot_more PARTITION OF hot FOR VALUES FROM (2) TO (9) PARTITION BY HASH (id);
         CREATE TABLE hot_2 (gone text, val bigint NOT NULL, id int NOT NULL);
         ALTER TABLE hot_more ATTACH PARTITION hot_2 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
         CREATE TABLE hot_rest PARTITION OF hot DEFAULT;
         ALTER TABLE hot DROP COLUMN gone;
         INSERT INTO hot VALUES (1, 0), (2, 0), (10, 0)",
    )?;
    Ok(server)
}

const PARTITIONS: [&str; 3] = ["hot_1", "hot_2", "hot_rest"];

fn upsert(id: i32) -> String {
    format!("INSERT INTO hot VALUES ({id}, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1")
}

fn followed(control: &mut Client) -> Result<i64> {
    int(control, "SELECT followed FROM txn.stats")
}

/// `sql` waits behind itself in another transaction, and does not follow.
fn waits_behind_itself(server: &Server, control: &mut Client, sql: &str) -> Result<()> {
    let mut leader = grouped(server)?;
    leader.batch_execute("BEGIN")?;
    leader.batch_execute(sql)?;
    let other = Background::run(grouped(server)?, sql)?;
    other
        .wait_until_blocked(control)
        .with_context(|| format!("it does not wait: {sql}"))?;
    leader.batch_execute("COMMIT")?;
    other.end()?.1?;
    ensure!(followed(control)? == 0, "it has followed: {sql}");
    Ok(())
}

/// Nothing but upserts, of rows in partitions of each kind.
#[test]
fn upserts_of_partitioned_rows() -> Result<()> {
    let server = start_routed()?;
    Mix::new(&server)
        .plain("INSERT INTO hot VALUES (2, 1) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1")
        .run(|worker| {
            one_of(
                worker,
                &[
                    "INSERT INTO hot (val, id) VALUES (1, 2)
                     ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val RETURNING val",
                    "INSERT INTO hot SELECT 2, 1 FROM (VALUES (1)) one (n) ORDER BY n + 1
                     ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val",
                    "WITH added AS (INSERT INTO hot VALUES (2, 1) ON CONFLICT (id)
                         DO UPDATE SET val = hot.val + excluded.val RETURNING val)
                     SELECT val FROM added",
                    "UPDATE hot SET val = val + 1 WHERE id = 2",
                ],
            )
        })?;
    physical_health(&server, "hot_2", "id")
}

/// Several rows in the order of their keys, in one statement and in several partitions.
#[test]
fn one_statement_in_several_partitions() -> Result<()> {
    let server = start_routed()?;
    Mix::new(&server)
        .plain("UPDATE hot SET val = val + 1 WHERE id = 10")
        .allow(&RETRY)
        .run(|worker| {
            one_of(
                worker,
                &["INSERT INTO hot SELECT id, 1 FROM (VALUES (1), (2), (10)) rows (id) ORDER BY id
                   ON CONFLICT (id) DO UPDATE SET val = hot.val + excluded.val"],
            )
        })?;
    for partition in PARTITIONS {
        physical_health(&server, partition, "id")?;
    }
    Ok(())
}

/// An upsert follows, and is followed, in a partition as in a table.
#[test]
fn an_upsert_follows_in_a_partition() -> Result<()> {
    let server = start_routed()?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    let result = (|| {
        for id in [1, 2, 10] {
            let mut clients = [grouped(&server)?, grouped(&server)?, grouped(&server)?];
            let before = followed(&mut control)?;
            for client in &mut clients {
                client.batch_execute("BEGIN")?;
                client.batch_execute(&upsert(id))?;
            }
            let now = followed(&mut control)?;
            ensure!(now == before + 2, "{} followed in {id}", now - before);
            for client in &mut clients {
                client.batch_execute("COMMIT")?;
            }
            let val = int(
                &mut control,
                &format!("SELECT val FROM hot WHERE id = {id}"),
            )?;
            ensure!(val == 3, "{val} in {id}");
        }
        Ok(())
    })();
    dog.finish(result)
}

/// What an upsert runs in a partition after it has come to the row is looked at, too: one with a
/// function of a user does not follow.
#[test]
fn a_partition_with_a_check_by_a_function_is_not_followed_in() -> Result<()> {
    let server = start_routed()?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE FUNCTION is_good(val bigint) RETURNS boolean IMMUTABLE LANGUAGE sql
             AS 'SELECT val >= 0';
         ALTER TABLE hot_1 ADD CHECK (is_good(val))",
    )?;
    let dog = Watchdog::new(&server);
    let result = (|| {
        waits_behind_itself(&server, &mut control, &upsert(1))?;
        ensure!(int(&mut control, "SELECT val FROM hot WHERE id = 1")? == 2);
        Ok(())
    })();
    dog.finish(result)
}

/// A transaction comes to its own row again by an upsert that is routed there: nobody follows from
/// then on, and if somebody has, it is refused.
#[test]
fn own_row_again_by_a_routed_upsert() -> Result<()> {
    let server = start_routed()?;
    let dog = Watchdog::new(&server);
    let mut control = server.connect()?;
    let result = (|| {
        for (id, partition) in [1, 2, 10].into_iter().zip(PARTITIONS) {
            let bump = format!("UPDATE hot SET val = val + 1 WHERE id = {id}");
            let mut one = grouped(&server)?;
            one.batch_execute("BEGIN")?;
            one.batch_execute(&bump)?;
            one.batch_execute(&upsert(id))?;
            let two = Background::run(grouped(&server)?, &bump)?;
            two.wait_until_blocked(&mut control)
                .with_context(|| format!("{partition}: it has followed"))?;
            one.batch_execute("COMMIT")?;
            two.end()?.1?;

            let (mut one, mut two) = (grouped(&server)?, grouped(&server)?);
            one.batch_execute("BEGIN")?;
            one.batch_execute(&bump)?;
            two.batch_execute("BEGIN")?;
            two.batch_execute(&bump)?;
            let told = sqlstate(&one.batch_execute(&upsert(id)));
            ensure!(told == "40001", "{partition}: {told}");
            one.batch_execute("ROLLBACK")?;
            let told = sqlstate(&two.batch_execute("COMMIT"));
            ensure!(told == "40001", "{partition}: the follower was told {told}");
            let val = int(
                &mut control,
                &format!("SELECT val FROM hot WHERE id = {id}"),
            )?;
            ensure!(val == 3, "{partition}: {val}");
        }
        Ok(())
    })();
    dog.finish(result)?;
    drop(control);
    for partition in PARTITIONS {
        physical_health(&server, partition, "id")?;
    }
    Ok(())
}

/// A row for which there is no partition is refused as ever, and the session goes on.
#[test]
fn no_partition_for_a_row() -> Result<()> {
    let server = start_routed()?;
    server.connect()?.batch_execute("DROP TABLE hot_rest")?;
    let mut client = grouped(&server)?;
    client.batch_execute("BEGIN")?;
    client.batch_execute(&upsert(1))?;
    client.batch_execute("SAVEPOINT s")?;
    let told = sqlstate(&client.batch_execute(&upsert(10)));
    ensure!(told == "23514", "{told}");
    client.batch_execute("ROLLBACK TO s")?;
    client.batch_execute(&upsert(2))?;
    client.batch_execute("COMMIT")?;
    let rows = text(
        &mut client,
        "SELECT string_agg(id || ':' || val, ' ' ORDER BY id) FROM hot",
    )?;
    ensure!(rows == "1:1 2:1", "{rows}");
    Ok(())
}

/// `hot` with so many partitions that a statement that names all is not noticed in most of them.
fn start_many() -> Result<(Server, i32)> {
    const COUNT: i32 = 150;
    let server = start_hot(0, &[])?;
    let mut control = server.connect()?;
    control.batch_execute(
        "DROP TABLE hot;
         CREATE TABLE hot (id int PRIMARY KEY, val bigint NOT NULL) PARTITION BY LIST (id)",
    )?;
    for id in 0..COUNT {
        control.batch_execute(&format!(
            "CREATE TABLE hot_{id} PARTITION OF hot FOR VALUES IN ({id})"
        ))?;
    }
    control.batch_execute(&format!(
        "INSERT INTO hot SELECT id, 0 FROM generate_series(0, {COUNT} - 1) id"
    ))?;
    Ok((server, COUNT - 1))
}

/// Nobody follows any more when the transaction has come to its own row again, in a partition that
/// comes last.
#[test]
fn own_row_again_in_the_last_of_many_partitions() -> Result<()> {
    let (server, last) = start_many()?;
    let mut control = server.connect()?;
    let all = [
        "UPDATE hot SET val = val + 1".to_owned(),
        format!(
            "INSERT INTO hot SELECT id, 1 FROM generate_series(0, {last}) id
             ON CONFLICT (id) DO UPDATE SET val = hot.val + 1"
        ),
    ];
    let bump = format!("UPDATE hot SET val = val + 1 WHERE id = {last}");
    let val = format!("SELECT val FROM hot WHERE id = {last}");
    let dog = Watchdog::new(&server);
    let result = (|| {
        for (n, all) in all.iter().enumerate() {
            let mut one = grouped(&server)?;
            one.batch_execute("BEGIN")?;
            one.batch_execute(&bump)?;
            one.batch_execute(all)?;
            let two = Background::run(grouped(&server)?, &bump)?;
            two.wait_until_blocked(&mut control)
                .with_context(|| format!("it has followed: {all}"))?;
            one.batch_execute("COMMIT")?;
            two.end()?.1?;
            let val = int(&mut control, &val)?;
            ensure!(val == 3 * (n as i64 + 1), "{val} after {all}");
        }
        Ok(())
    })();
    dog.finish(result)
}

/// A statement that names all of many partitions, and comes to another row than the one that
/// somebody has followed in, is not refused.
#[test]
fn another_row_of_many_partitions() -> Result<()> {
    let (server, last) = start_many()?;
    let dog = Watchdog::new(&server);
    let result = (|| {
        let (mut one, mut two) = (grouped(&server)?, grouped(&server)?);
        one.batch_execute(
            "SET plan_cache_mode = force_generic_plan;
             PREPARE u (int) AS UPDATE hot SET val = val + 1 WHERE id = $1;
             PREPARE l (int) AS SELECT val FROM hot WHERE id = $1 FOR UPDATE; BEGIN",
        )?;
        let bump = format!("UPDATE hot SET val = val + 1 WHERE id = {last}");
        one.batch_execute(&bump)?;
        two.batch_execute("BEGIN")?;
        two.batch_execute(&bump)?;
        ensure!(
            followed(&mut server.connect()?)? == 1,
            "nobody has followed"
        );
        one.batch_execute("EXECUTE u(3); EXECUTE l(4); COMMIT")?;
        two.batch_execute("COMMIT")?;
        Ok(())
    })();
    dog.finish(result)
}

/// The partition has a label, the partitioned table and the session do not use group locking.
#[test]
fn an_upsert_into_a_partition_with_a_label() -> Result<()> {
    let server = start_routed()?;
    let mut control = server.connect()?;
    control.batch_execute("SELECT txn.set_table('hot_1', 'group', 0)")?;
    let dog = Watchdog::new(&server);
    let result = (|| {
        let (mut one, mut two) = (server.connect()?, server.connect()?);
        for client in [&mut one, &mut two] {
            client.batch_execute("BEGIN")?;
            client.batch_execute(&upsert(1))?;
        }
        ensure!(followed(&mut control)? == 1, "nobody has followed");
        one.batch_execute("COMMIT")?;
        two.batch_execute("COMMIT")?;
        ensure!(int(&mut control, "SELECT val FROM hot WHERE id = 1")? == 2);
        Ok(())
    })();
    dog.finish(result)
}

/// The bounds of a partition are compared with by a function of a user's: nobody follows there.
#[test]
fn bounds_by_an_operator_class_of_a_users() -> Result<()> {
    let server = start_routed()?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE FUNCTION hashed(val int, seed bigint) RETURNS bigint IMMUTABLE LANGUAGE sql
             AS 'SELECT val + seed';
         CREATE OPERATOR CLASS own_ops FOR TYPE int USING hash AS
             OPERATOR 1 =, FUNCTION 2 hashed(int, bigint);
         CREATE TABLE own (id int PRIMARY KEY, val int NOT NULL) PARTITION BY HASH (id own_ops);
         CREATE TABLE own_0 PARTITION OF own FOR VALUES WITH (MODULUS 1, REMAINDER 0);
         INSERT INTO own VALUES (1, 0)",
    )?;
    let dog = Watchdog::new(&server);
    let result = (|| {
        let all = [
            "UPDATE own SET val = val + 1 WHERE id = 1",
            "INSERT INTO own VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET val = own.val + 1",
        ];
        for sql in all {
            waits_behind_itself(&server, &mut control, sql)?;
        }
        ensure!(int(&mut control, "SELECT val FROM own")? == 4);
        Ok(())
    })();
    dog.finish(result)
}
