//! Partitions: their keys are those of the partitioned table.

use anyhow::{Result, ensure};
use postgres::Client;
use txn_server_tests::{Background, int, sqlstate};

use super::bank;

fn make(control: &mut Client) -> Result<()> {
    control.batch_execute(
        "CREATE TABLE part (id int PRIMARY KEY, code int NOT NULL, val int) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10) USING txn_heap;
         CREATE TABLE part_2 (val int, code int NOT NULL, id int NOT NULL) USING txn_heap;
         ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES FROM (10) TO (1000);
         INSERT INTO part VALUES (1, 77, 0), (2, 1, 0), (11, 11, 0)",
    )?;
    Ok(())
}

/// Whether that waits while another transaction holds what it declares.
fn waits(
    control: &mut Client,
    mut holder: Client,
    declared: &str,
    writer: Client,
    sql: &str,
) -> Result<bool> {
    holder.batch_execute(&format!("BEGIN; SELECT txn.declare(ARRAY['{declared}'])"))?;
    let writer = Background::run(writer, sql)?;
    let look = format!("SELECT count(*) FROM txn.waits WHERE pid = {}", writer.pid);
    while !writer.is_finished() && int(control, &look)? == 0 {}
    let has_waited = !writer.is_finished();
    holder.batch_execute("COMMIT")?;
    writer.end()?.1?;
    Ok(has_waited)
}

/// A partition may have another range key: its rows are declared by that of the partitioned table.
#[test]
fn a_partition_with_another_key() -> Result<()> {
    let server = bank(1, &[])?;
    let mut control = server.connect()?;
    make(&mut control)?;
    let update = |id: i32| format!("UPDATE part SET val = val + 1 WHERE id = {id}");
    let mut case = |declared: &str, id: i32, expected: bool| {
        let (holder, writer) = (server.connect()?, server.connect()?);
        let has_waited = waits(&mut control, holder, declared, writer, &update(id))?;
        ensure!(has_waited == expected, "{declared}, {id}: {has_waited}");
        anyhow::Ok(())
    };
    let mut all = || {
        // The columns' numbers may differ.
        case("part(1)", 1, true)?;
        case("part_1(1)", 1, true)?;
        case("part(1)", 2, false)?;
        case("part(11)", 11, true)?;
        case("part_2(1)", 11, false)
    };
    all()?;
    server.connect()?.batch_execute(
        "CREATE UNIQUE INDEX other ON part_1 (code);
         ALTER TABLE part_1 REPLICA IDENTITY USING INDEX other",
    )?;
    all()?;
    // Both have declared rows of it, and neither waits for the other.
    let mut both = [server.connect()?, server.connect()?];
    for (id, client) in [1, 2].iter().zip(&mut both) {
        client.batch_execute(&format!(
            "SET txn.lane_beyond = error; SET lock_timeout = '20s';
             BEGIN; SELECT txn.declare(ARRAY['part({id})'])"
        ))?;
    }
    for (id, client) in [1, 2].iter().zip(&mut both) {
        client.batch_execute(&update(*id))?;
    }
    for client in &mut both {
        client.batch_execute("COMMIT")?;
    }
    // Which of the declared rows it reads there is not known, so nobody is refused for that.
    let mut reader = server.connect()?;
    let read = |declared: &str, id: i32| {
        format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL txn.range_occ = on;
             SET LOCAL txn.lane_beyond = error; SET LOCAL enable_seqscan = off;
             SELECT txn.declare(ARRAY['account(1)'], ARRAY['{declared}']);
             SELECT val FROM part WHERE code = 77 AND id = {id}; COMMIT"
        )
    };
    for (declared, id, expected) in [
        ("part(1)", 1, "00000"),
        ("part(2)", 1, "00000"),
        ("part(1)", 11, "55000"),
        ("account(2)", 1, "55000"),
    ] {
        let told = sqlstate(&reader.batch_execute(&read(declared, id)));
        ensure!(told == expected, "{declared}, {id}: {told}");
        if told != "00000" {
            reader.batch_execute("ROLLBACK")?;
        }
    }
    Ok(())
}

/// Where the partitioned table has no key, each partition is a table of its own.
#[test]
fn partitions_with_keys_of_their_own() -> Result<()> {
    let server = bank(1, &[])?;
    let mut control = server.connect()?;
    control.batch_execute(
        "CREATE TABLE log (id int, val int) PARTITION BY RANGE (id);
         CREATE TABLE log_1 PARTITION OF log (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)
             USING txn_heap;
         CREATE TABLE log_2 PARTITION OF log FOR VALUES FROM (10) TO (20) USING txn_heap;
         INSERT INTO log VALUES (1, 0), (2, 0), (11, 0)",
    )?;
    for (id, expected) in [(1, true), (2, false), (11, false)] {
        let update = format!("UPDATE log SET val = val + 1 WHERE id = {id}");
        let (holder, writer) = (server.connect()?, server.connect()?);
        let has_waited = waits(&mut control, holder, "log_1(1)", writer, &update)?;
        ensure!(has_waited == expected, "{id}: {has_waited}");
    }
    // The topmost table with a key counts, whichever of those below it is named.
    control.batch_execute(
        "CREATE TABLE log_3 PARTITION OF log (PRIMARY KEY (id)) FOR VALUES FROM (20) TO (40)
             PARTITION BY RANGE (id);
         CREATE TABLE log_3a PARTITION OF log_3 FOR VALUES FROM (20) TO (30) USING txn_heap;
         INSERT INTO log VALUES (21, 0), (22, 0)",
    )?;
    for declared in ["log_3(21)", "log_3a(21)"] {
        for (id, expected) in [(21, true), (22, false)] {
            let update = format!("UPDATE log SET val = val + 1 WHERE id = {id}");
            let (holder, writer) = (server.connect()?, server.connect()?);
            let has_waited = waits(&mut control, holder, declared, writer, &update)?;
            ensure!(has_waited == expected, "{declared}, {id}: {has_waited}");
        }
    }
    for item in ["log(1)", "log_2(11)"] {
        let told = control.batch_execute(&format!("BEGIN; SELECT txn.declare(ARRAY['{item}'])"));
        control.batch_execute("ROLLBACK")?;
        ensure!(sqlstate(&told) == "0A000", "{item}: {told:?}");
    }
    Ok(())
}

/// Keys of one partition may be those of another, so a right to one of them is not enough.
#[test]
fn a_right_to_a_partition_is_none_to_the_others() -> Result<()> {
    let server = bank(1, &[])?;
    let mut control = server.connect()?;
    make(&mut control)?;
    control.batch_execute(
        "CREATE ROLE little; GRANT SELECT, UPDATE ON part_1 TO little;
         CREATE ROLE much; GRANT SELECT, UPDATE ON part TO much",
    )?;
    for (role, item, told) in [
        ("little", "part_1(1)", "42501"),
        ("little", "part_1(11)", "42501"),
        ("little", "part(1)", "42501"),
        ("much", "part_1(1)", "00000"),
        ("much", "part(11)", "00000"),
    ] {
        for list in ["writes", "reads"] {
            let sql = format!(
                "BEGIN; SET LOCAL ROLE {role}; SELECT txn.declare({list} => ARRAY['{item}'])"
            );
            let answer = sqlstate(&control.batch_execute(&sql));
            control.batch_execute("ROLLBACK")?;
            ensure!(answer == told, "{answer} instead of {told}: {role}, {item}");
        }
    }
    Ok(())
}
