//! Declared transactions: who goes when, what they find, and what those find who have declared
//! nothing.

mod arguments;
mod beyond;
mod choice;
mod deadlocks;
mod definitions;
mod ends;
mod errors;
mod load;
mod order;
mod partitions;
mod run;
mod undeclared;

use anyhow::Result;
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{start, wait_until};

/// A server with accounts 1 to `rows` of nothing.
fn bank(rows: u32, settings: &[(&str, &str)]) -> Result<Server> {
    let server = start(settings)?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE account (id int PRIMARY KEY, val bigint NOT NULL) USING txn_heap;
         INSERT INTO account SELECT id, 0 FROM generate_series(1, {rows}) id;
         CREATE PROCEDURE bump(a int, b int DEFAULT NULL) LANGUAGE plpgsql AS $$
         BEGIN
             UPDATE account SET val = val + 1 WHERE id = a;
             UPDATE account SET val = val + 1 WHERE id = b;
         END $$;
         SELECT txn.declare_procedure('bump(int, int)',
                                      writes => ARRAY['account($1)', 'account($2)'])"
    ))?;
    Ok(server)
}

/// A session whose transactions are of that level, validated if it is REPEATABLE READ.
fn session(server: &Server, level: &str) -> Result<Client> {
    let mut client = server.connect()?;
    client.batch_execute(&format!(
        "SET default_transaction_isolation = '{level}'; SET txn.range_occ = on"
    ))?;
    Ok(client)
}

const LEVELS: [&str; 2] = ["read committed", "repeatable read"];

/// Declares that the accounts are written.
fn declare(ids: &[i32]) -> String {
    let items: Vec<String> = ids.iter().map(|id| format!("'account({id})'")).collect();
    format!("SELECT txn.declare(ARRAY[{}])", items.join(", "))
}

fn update(id: i32) -> String {
    format!("UPDATE account SET val = val + 1 WHERE id = {id}")
}

/// Waits until that process waits for the end of another one's transaction in the lock manager.
fn wait_until_asleep(look: &mut Client, pid: i32) -> Result<()> {
    wait_until(
        look,
        &format!(
            "SELECT count(*) > 0 FROM pg_locks
             WHERE pid = {pid} AND locktype = 'virtualxid' AND NOT granted"
        ),
    )
}
