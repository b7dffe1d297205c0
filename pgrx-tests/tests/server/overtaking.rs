//! Transactions that update rows in the same order never deadlock in PostgreSQL. They must not with
//! followers either, who could be at the next row before their predecessors.
use anyhow::Result;
use pgserver::Server;
use rand::Rng;
use txn_server_tests::{Background, Load, Tally, grouped, int, physical_health, start_hot};

/// Each transaction updates `changes` of `rows` rows, in ascending order.
fn ascending(server: &Server, rows: i32, changes: i32, settings: &'static str) -> Result<Tally> {
    Load::new(server, 24, 40)
        .session(move |_| format!("SET txn.group_lock = on; {settings}"))
        .run(|worker| {
            worker.begin()?;
            let mut id = 0;
            for left in (0..changes).rev() {
                id = worker.rng.random_range(id + 1..=rows - left);
                worker.execute("UPDATE hot SET val = val + 1 WHERE id = $1", &[&id])?;
            }
            worker.commit(i64::from(changes))
        })
}

fn are_never_refused(rows: u32, changes: i32, settings: &'static str) -> Result<()> {
    let server = start_hot(rows, &[])?;
    contend(&server)?;
    let tally = ascending(&server, rows as i32, changes, settings)?;
    tally.only(&[])?;
    let mut client = server.connect()?;
    tally.explains(int(&mut client, "SELECT sum(val)::bigint FROM hot")?)?;
    drop(client);
    physical_health(&server, "hot", "id")
}

/// Somebody waits for a row of the table, so that it is known as one where that happens.
fn contend(server: &Server) -> Result<()> {
    let mut control = server.connect()?;
    let mut holder = grouped(server)?;
    holder.batch_execute("BEGIN; UPDATE hot SET val = val WHERE id = 1")?;
    let mut waiter = grouped(server)?;
    waiter.batch_execute("SET txn.hot_threshold = 1000")?;
    let waiter = Background::run(waiter, "UPDATE hot SET val = val WHERE id = 1")?;
    waiter.wait_until_blocked(&mut control)?;
    holder.batch_execute("COMMIT")?;
    Ok(waiter.end()?.1?)
}

#[test]
fn every_row_hot() -> Result<()> {
    are_never_refused(9, 3, "SET txn.hot_threshold = 0")
}

#[test]
fn every_row_hot_and_followers_read_at_once() -> Result<()> {
    are_never_refused(
        9,
        3,
        "SET txn.hot_threshold = 0; SET txn.follower_reads = immediate",
    )
}

/// Rows become hot and cool down, and most are not hot.
#[test]
fn some_rows_hot() -> Result<()> {
    are_never_refused(9, 3, "SET txn.hot_threshold = 4")
}

#[test]
fn some_rows_hot_and_followers_read_at_once() -> Result<()> {
    are_never_refused(
        9,
        3,
        "SET txn.hot_threshold = 4; SET txn.follower_reads = immediate",
    )
}

/// More hot rows than a transaction can be a member of: the others are locked the ordinary way.
#[test]
fn twelve_hot_rows_in_a_transaction() -> Result<()> {
    are_never_refused(14, 12, "SET txn.hot_threshold = 0")
}
