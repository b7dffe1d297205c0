//! A follower's statement that comes to one row by its key: it changes what it would change in stock
//! PostgreSQL, whose transaction would have waited for the predecessor before this statement.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, expect_followed, grouped, int, sqlstate, start_hot, text};

/// The update that the leader and its follower begin with. Each pair has a row of its own: one that
/// was refused lets it go back to waiting.
fn bump(pair: usize) -> String {
    format!("UPDATE hot SET val = val + 1 WHERE id = {pair}")
}

const ORDERS: &str = "
    CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL, shipped int NOT NULL DEFAULT 0);
    INSERT INTO orders SELECT id, 'new' FROM generate_series(1, 20) id;
    ANALYZE orders";

/// What the leader does before the row that both update, and the follower after it.
struct Case {
    leader: &'static str,
    follower: &'static str,
    /// The row of `orders` that both come to, and how often it is shipped in the end.
    row: i32,
    shipped: i64,
}

const CASES: &[Case] = &[
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 5",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 5 AND status = 'paid'",
        row: 5,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 5",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 5 AND status = 'new'",
        row: 5,
        shipped: 0,
    },
    Case {
        leader: "INSERT INTO orders VALUES (30, 'new')",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 30",
        row: 30,
        shipped: 1,
    },
    Case {
        leader: "DELETE FROM orders WHERE id = 6; INSERT INTO orders VALUES (6, 'new')",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 6",
        row: 6,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET id = 31 WHERE id = 7",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 31",
        row: 31,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 8",
        follower: "DO $$ BEGIN PERFORM FROM orders WHERE id = 8 AND status = 'paid' FOR UPDATE;
            IF FOUND THEN UPDATE orders SET shipped = shipped + 1 WHERE id = 8; END IF; END $$",
        row: 8,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 9",
        follower: "DO $$ BEGIN UPDATE orders SET shipped = shipped + 1 WHERE id = 9 AND status = 'paid'; END $$",
        row: 9,
        shipped: 1,
    },
];

/// The rows that it comes to become hot as well with `hot`.
fn run(server: &Server, pair: usize, case: &Case, hot: bool) -> Result<()> {
    let bump = bump(pair);
    let mut control = server.connect()?;
    control.batch_execute("DROP TABLE IF EXISTS orders")?;
    control.batch_execute(ORDERS)?;
    if hot {
        let mut warm = grouped(server)?;
        warm.batch_execute(&format!(
            "BEGIN; SELECT FROM orders WHERE id = {} FOR UPDATE; COMMIT",
            case.row
        ))?;
    }
    let threshold = if hot { "0" } else { "10000" };
    let (mut leader, mut follower) = (grouped(server)?, grouped(server)?);
    leader.batch_execute(&format!(
        "BEGIN; SET LOCAL txn.hot_threshold = {threshold}; {};
         SET LOCAL txn.hot_threshold = 0; {bump}",
        case.leader
    ))?;
    let before = int(&mut control, "SELECT followed FROM txn.stats")?;
    follower.batch_execute(&format!(
        "SET enable_seqscan = off; SET enable_bitmapscan = off;
         BEGIN; {bump}; SET LOCAL txn.hot_threshold = {threshold}"
    ))?;
    expect_followed(&mut control, before + 1)?;
    let background = Background::run(follower, case.follower)?;
    background.wait_until_blocked(&mut control)?;
    leader.batch_execute("COMMIT")?;
    let (mut follower, result) = background.end()?;
    let told = sqlstate(&result);
    follower.batch_execute(if told == "00000" {
        "COMMIT"
    } else {
        "ROLLBACK"
    })?;
    let shipped = text(
        &mut control,
        &format!("SELECT shipped FROM orders WHERE id = {}", case.row),
    )?;
    ensure!(
        told == "40001" || told == "00000" && shipped == case.shipped.to_string(),
        "{told}, and shipped {shipped} times"
    );
    // Whoever was refused comes to the same end when it tries again.
    if told == "40001" {
        follower.batch_execute(&format!("BEGIN; {bump}; {}; COMMIT", case.follower))?;
        let sql = format!("SELECT shipped FROM orders WHERE id = {}", case.row);
        let shipped = int(&mut control, &sql)?;
        ensure!(
            shipped == case.shipped,
            "shipped {shipped} times in the end"
        );
    }
    Ok(())
}

/// A follower finds a row that the predecessor has changed.
pub fn finds_its_row(server: &Server) -> Result<()> {
    server
        .connect()?
        .batch_execute("INSERT INTO hot VALUES (1000, 0)")?;
    run(server, 1000, &CASES[0], false)
}

#[test]
fn a_row_that_a_predecessor_has_changed_is_found_by_its_key() -> Result<()> {
    let server = start_hot(2 * CASES.len() as u32, &[])?;
    for (n, case) in CASES.iter().enumerate() {
        for hot in [false, true] {
            run(&server, 1 + 2 * n + usize::from(hot), case, hot)
                .with_context(|| format!("{}; {}; hot: {hot}", case.leader, case.follower))?;
        }
    }
    Ok(())
}

/// Nobody makes the row: the answer is that there is none, as soon as the predecessor has ended.
#[test]
fn a_row_that_is_not_there_is_no_error() -> Result<()> {
    let server = start_hot(2, &[])?;
    let bump = bump(1);
    let mut control = server.connect()?;
    control.batch_execute(ORDERS)?;
    let (mut leader, mut follower) = (grouped(&server)?, grouped(&server)?);
    leader.batch_execute(&format!("BEGIN; {bump}"))?;
    follower.batch_execute(&format!("BEGIN; {bump}"))?;
    let background = Background::run(follower, "UPDATE orders SET shipped = 1 WHERE id = 99")?;
    background.wait_until_blocked(&mut control)?;
    leader.batch_execute("COMMIT")?;
    let (mut follower, result) = background.end()?;
    result?;
    follower.batch_execute("UPDATE orders SET shipped = 1 WHERE id = 5; COMMIT")?;
    ensure!(int(&mut control, "SELECT sum(shipped) FROM orders")? == 1);
    ensure!(int(&mut control, "SELECT val FROM hot WHERE id = 1")? == 2);
    Ok(())
}
