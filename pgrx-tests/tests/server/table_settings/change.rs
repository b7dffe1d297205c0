//! Settings that change while transactions of the table run.
use anyhow::{Result, ensure};
use txn_server_tests::{
    Background, Load, int, physical_health, pid, sqlstate, start_hot, wait_until,
};

use super::{BUMP, CLIENTS, RETRY, in_block, labelled, on_server};

/// The settings of a session that has used the table are those of its next transaction, prepared
/// statements included.
#[test]
fn open_sessions_learn_of_a_change() -> Result<()> {
    let server = start_hot(1, &[])?;
    let mut control = server.connect()?;
    let mut session = server.connect()?;
    session.batch_execute("SET plan_cache_mode = force_generic_plan")?;
    let bump = session.prepare(BUMP)?;
    let mut updates = |label: &str| {
        control.batch_execute(label)?;
        session.execute(&bump, &[])?;
        int(&mut control, "SELECT sum(updates) FROM txn.hotspots")
    };
    ensure!(updates("SELECT 1")? == 0, "hot without settings");
    ensure!(
        updates("SELECT txn.set_table('hot', 'group', 0)")? == 1,
        "not hot with the table's settings"
    );
    ensure!(
        updates("BEGIN; SELECT txn.set_table('hot', 'off'); ROLLBACK")? == 2,
        "a change that was rolled back is in force"
    );
    ensure!(
        updates("SELECT txn.set_table('hot', 'off')")? == 2,
        "hot although switched off"
    );
    ensure!(
        updates("SELECT txn.set_table('hot', 'queue', 0)")? == 3,
        "not hot although switched on again"
    );
    ensure!(
        updates("SELECT txn.set_table('hot')")? == 3,
        "hot without settings"
    );
    Ok(())
}

/// The table is switched off with a leader, a follower and two waiters on its row: all end, in
/// order.
#[test]
fn switched_off_in_the_middle_of_a_group() -> Result<()> {
    for end in ["COMMIT", "ROLLBACK"] {
        on_server("'group', 0", |server| {
            let mut control = server.connect()?;
            let mut leader = in_block(server, BUMP)?;
            let mut follower = in_block(server, BUMP)?;
            let mut reserved = server.connect()?;
            reserved.batch_execute("BEGIN; SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
            let waiting = Background::run(server.connect()?, BUMP)?;
            waiting.wait_until_blocked(&mut control)?;
            control.batch_execute("SELECT txn.set_table('hot', 'off')")?;
            let ordinary = Background::run(server.connect()?, BUMP)?;
            ordinary.wait_until_blocked(&mut control)?;
            // Those in the group go on with other work.
            follower.batch_execute("UPDATE cold SET val = val + 1 WHERE id = 1")?;
            let locker = pid(&mut reserved)?;
            let reserved = Background::run(reserved, &format!("{BUMP}; COMMIT"))?;
            let waits = format!(
                "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = {locker} AND state = 'active' \
                 AND wait_event_type NOT IN ('Client', 'LWLock', 'IO')"
            );
            wait_until(&mut control, &waits)?;
            leader.batch_execute(end)?;
            let told = sqlstate(&follower.batch_execute("COMMIT"));
            let reserved = sqlstate(&reserved.end()?.1);
            let expected = if end == "COMMIT" { "00000" } else { "40001" };
            ensure!(
                told == expected && reserved == expected,
                "after {end}, the follower was told {told} and the locker {reserved}"
            );
            for session in [waiting, ordinary] {
                let told = sqlstate(&session.end()?.1);
                ensure!(told == "00000", "after {end}, a waiter was told {told}");
            }
            let val = int(&mut control, "SELECT val FROM hot WHERE id = 1")?;
            let expected = if end == "COMMIT" { 5 } else { 2 };
            ensure!(val == expected, "after {end}, the value is {val}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Nothing is lost and nobody hangs while the settings change all the time, for sessions of all
/// kinds.
#[test]
fn changed_under_load() -> Result<()> {
    let server = labelled("'group', 1")?;
    let load = Load::new(&server, CLIENTS, 150).session(|number| {
        match number % 3 {
            0 => "",
            1 => "SET txn.group_lock = on; SET txn.hot_threshold = 1",
            _ => "SET txn.queue_lock = on; SET txn.hot_threshold = 0",
        }
        .to_owned()
    });
    let settings = [
        "'off'",
        "'group', 0",
        "NULL",
        "'queue', 1",
        "'group', 1, 2, 'immediate'",
    ];
    let step = load.transactions() / 60;
    let tally = load.run_disturbed(
        |worker| {
            let own = worker.number as i32 + 1;
            match worker.attempt % 4 {
                0 => worker.committing(1, |worker| worker.execute(BUMP, &[]).map(drop)),
                1 => {
                    worker.begin()?;
                    worker.simple("SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
                    worker.execute(BUMP, &[])?;
                    worker.commit(1)
                }
                2 => worker.committing(1, |worker| {
                    worker.simple(
                        "INSERT INTO hot VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET val = hot.val + 1",
                    )
                }),
                _ => {
                    worker.begin()?;
                    worker.execute(BUMP, &[])?;
                    worker.execute("UPDATE cold SET val = val + 0 WHERE id = $1", &[&own])?;
                    match worker.chance(5) {
                        true => worker.rollback(),
                        false => worker.commit(1),
                    }
                }
            }
        },
        |running| {
            let mut client = server.connect()?;
            let mut changes = 0;
            while running.wait_for((changes + 1) * step) {
                let arguments = settings[changes % settings.len()];
                client.batch_execute(&format!("SELECT txn.set_table('hot', {arguments})"))?;
                changes += 1;
            }
            ensure!(changes >= settings.len(), "only {changes} changes");
            Ok(())
        },
    )?;
    tally.only(&RETRY)?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val) FROM hot")?)?;
    let followed = int(&mut client, "SELECT followed FROM txn.stats")?;
    ensure!(followed > 0, "nobody has followed: {tally:?}");
    drop(client);
    physical_health(&server, "hot", "id")?;
    physical_health(&server, "cold", "id")
}
