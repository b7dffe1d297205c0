//! kill -9: what was confirmed is there after recovery, what was not is there as a whole or not.
use anyhow::{Result, ensure};
use pgserver::signal;
use txn_server_tests::{Load, int, physical_health, start, start_hot};

/// Codes of a server that goes down or comes up, and of a connection that just breaks. 40001: one
/// that was followed has gone with its session. 40P01: a wait would have closed a cycle.
const GONE: [&str; 6] = ["lost", "57P01", "57P02", "57P03", "40001", "40P01"];

#[test]
fn server_killed_under_load() -> Result<()> {
    let mut server = start_hot(1, &[])?;
    let load = Load::new(&server, 64, 100).grouped();
    let third = load.transactions() / 3;
    let tally = load.run_disturbed(
        |worker| {
            if worker.number % 2 == 0 {
                let bump = "UPDATE hot SET val = val + 1 WHERE id = 1";
                return worker.committing(1, |worker| worker.execute(bump, &[]));
            }
            worker.begin()?;
            worker.execute("UPDATE hot SET val = val + 1 WHERE id = 1", &[])?;
            match worker.chance(5) {
                true => worker.rollback(),
                false => worker.commit(1),
            }
        },
        |running| {
            for crash in 1..=2 {
                ensure!(
                    running.wait_for(crash * third),
                    "the load ended before crash {crash}"
                );
                server.kill9()?;
                server.start_again()?;
            }
            Ok(())
        },
    )?;
    tally.only(&GONE)?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}

#[test]
fn ledger_and_balance_survive_together() -> Result<()> {
    let mut server = start(&[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
         CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                              account int NOT NULL REFERENCES account, amount bigint NOT NULL);
         INSERT INTO account VALUES (1, 0)",
    )?;
    let load = Load::new(&server, 48, 60).grouped();
    let half = load.transactions() / 2;
    let tally = load.run_disturbed(
        |worker| {
            worker.begin()?;
            worker.execute("UPDATE account SET balance = balance + 3 WHERE id = 1", &[])?;
            worker.execute("INSERT INTO ledger (account, amount) VALUES (1, 3)", &[])?;
            worker.commit(1)
        },
        |running| {
            ensure!(running.wait_for(half), "the load ended before the crash");
            server.kill9()?;
            server.start_again()
        },
    )?;
    tally.only(&GONE)?;
    let mut client = server.connect()?;
    let rows = int(&mut client, "SELECT count(*) FROM ledger")?;
    tally.explains(rows)?;
    let balance = int(&mut client, "SELECT balance FROM account")?;
    ensure!(
        balance == 3 * rows,
        "balance {balance} with {rows} rows of 3"
    );
    drop(client);
    physical_health(&server, "account", "id")?;
    physical_health(&server, "ledger", "id")
}

/// PostgreSQL restarts all of itself when a backend dies so; shared memory starts anew.
#[test]
fn backend_killed_under_load() -> Result<()> {
    let server = start_hot(1, &[])?;
    let load = Load::new(&server, 48, 80).grouped();
    let third = load.transactions() / 3;
    let tally = load.run_disturbed(
        |worker| {
            worker.begin()?;
            worker.execute("UPDATE hot SET val = val + 1 WHERE id = 1", &[])?;
            worker.commit(1)
        },
        |running| {
            for crash in 1..=2 {
                ensure!(
                    running.wait_for(crash * third),
                    "the load ended before crash {crash}"
                );
                let victim = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                              AND backend_type = 'client backend' ORDER BY random() LIMIT 1";
                let pid = int(&mut server.connect()?, victim)?;
                ensure!(pid > 0, "there is no backend to kill");
                signal(pid as i32, libc::SIGKILL)?;
            }
            Ok(())
        },
    )?;
    tally.only(&GONE)?;
    tally.explains(int(&mut server.connect()?, "SELECT val FROM hot")?)?;
    physical_health(&server, "hot", "id")
}
