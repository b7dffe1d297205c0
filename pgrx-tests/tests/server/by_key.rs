//! A follower's statement that comes to one row by its key: it changes what it would change in
//! stock PostgreSQL, which would have let the predecessor end before this statement.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{Background, expect_followed, grouped, int, sqlstate, start_hot};

/// The update that the leader and its follower begin with. Each pair has a row of its own: one that
/// was refused lets it go back to waiting.
fn bump(pair: usize) -> String {
    format!("UPDATE hot SET val = val + 1 WHERE id = {pair}")
}

const ORDERS: &str = "
    DROP FUNCTION IF EXISTS visit() CASCADE;
    DROP TABLE IF EXISTS orders, visits, visited;
    CREATE TABLE orders (id int PRIMARY KEY, status text NOT NULL, shipped int NOT NULL DEFAULT 0);
    INSERT INTO orders SELECT id, 'new' FROM generate_series(1, 20) id;
    CREATE TABLE visits (id int PRIMARY KEY, n int NOT NULL);
    INSERT INTO visits SELECT id, 0 FROM generate_series(1, 20) id;
    CREATE FUNCTION visit() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN UPDATE visits SET n = n + 1 WHERE id = 5; RETURN NULL; END $$;
    CREATE TABLE visited (LIKE orders INCLUDING ALL);
    INSERT INTO visited TABLE orders;
    CREATE TRIGGER visit BEFORE UPDATE ON visited FOR EACH STATEMENT EXECUTE FUNCTION visit();
    ANALYZE orders, visits, visited";

/// What the leader does before the row that both update, and the follower after it.
struct Case {
    leader: &'static str,
    follower: &'static str,
    table: &'static str,
    /// The row of the table that both come to, and how often it is shipped in the end.
    row: i32,
    shipped: i64,
}

const CASES: &[Case] = &[
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 5",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 5 AND status = 'paid'",
        table: "orders",
        row: 5,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 5",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 5 AND status = 'new'",
        table: "orders",
        row: 5,
        shipped: 0,
    },
    Case {
        leader: "INSERT INTO orders VALUES (30, 'new')",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 30",
        table: "orders",
        row: 30,
        shipped: 1,
    },
    Case {
        leader: "DELETE FROM orders WHERE id = 6; INSERT INTO orders VALUES (6, 'new')",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 6",
        table: "orders",
        row: 6,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET id = 31 WHERE id = 7",
        follower: "UPDATE orders SET shipped = shipped + 1 WHERE id = 31",
        table: "orders",
        row: 31,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 8",
        follower: "DO $$ BEGIN PERFORM FROM orders WHERE id = 8 AND status = 'paid' FOR UPDATE;
            IF FOUND THEN UPDATE orders SET shipped = shipped + 1 WHERE id = 8; END IF; END $$",
        table: "orders",
        row: 8,
        shipped: 1,
    },
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 9",
        follower: "DO $$ BEGIN
            UPDATE orders SET shipped = shipped + 1 WHERE id = 9 AND status = 'paid'; END $$",
        table: "orders",
        row: 9,
        shipped: 1,
    },
    // The trigger updates a row by its key, too.
    Case {
        leader: "UPDATE visited SET status = 'paid' WHERE id = 10",
        follower: "UPDATE visited SET shipped = shipped + 1 WHERE id = 10 AND status = 'paid'",
        table: "visited",
        row: 10,
        shipped: 1,
    },
    // Another statement by key runs while the cursor is open.
    Case {
        leader: "UPDATE orders SET status = 'paid' WHERE id = 12",
        follower: "DO $$ DECLARE c refcursor; found_id int; BEGIN
            OPEN c FOR SELECT id FROM orders WHERE id = 12 AND status = 'paid' FOR UPDATE;
            UPDATE visits SET n = n + 1 WHERE id = 6;
            FETCH c INTO found_id;
            IF found_id IS NOT NULL THEN
                UPDATE orders SET shipped = shipped + 1 WHERE id = 12;
            END IF;
            END $$",
        table: "orders",
        row: 12,
        shipped: 1,
    },
];

/// The rows that it comes to become hot as well with `hot`.
fn run(server: &Server, pair: usize, case: &Case, hot: bool) -> Result<()> {
    let bump = bump(pair);
    let mut control = server.connect()?;
    control.batch_execute(ORDERS)?;
    if hot {
        let mut warm = grouped(server)?;
        warm.batch_execute(&format!(
            "BEGIN; SELECT FROM {} WHERE id = {} FOR UPDATE; COMMIT",
            case.table, case.row
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
    if told == "40001" && case.shipped > 0 {
        follower.batch_execute(&format!("BEGIN; {bump}; {}; COMMIT", case.follower))?;
    } else {
        ensure!(told == "00000", "told {told}");
    }
    let shipped = format!("SELECT shipped FROM {} WHERE id = {}", case.table, case.row);
    let shipped = int(&mut control, &shipped)?;
    ensure!(shipped == case.shipped, "shipped {shipped} times");
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
