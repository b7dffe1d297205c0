//! Servers with the settings of these tests, and single values read from them.
use anyhow::{Context, Result};
use pgserver::{PgInstall, Server, ServerOptions};
use postgres::Client;
use postgres::types::FromSqlOwned;

use crate::watchdog::guard;

/// A server with the extension and, on top of what all tests need, `settings`.
pub fn start(settings: &[(&str, &str)]) -> Result<Server> {
    start_with(ServerOptions::default(), settings)
}

/// A server as of `start`, without the library.
pub fn start_stock(settings: &[(&str, &str)]) -> Result<Server> {
    start_with(ServerOptions::stock(), settings)
}

fn start_with(options: ServerOptions, settings: &[(&str, &str)]) -> Result<Server> {
    let options = options
        .set("max_connections", 200)
        .set("max_prepared_transactions", 50)
        // Long queues go on in the lock manager at once: its part is tested, too.
        .set("deadlock_timeout", "100ms");
    let options = settings
        .iter()
        .fold(options, |options, (name, value)| options.set(*name, value));
    let server = Server::start(&PgInstall::from_env()?, options)?;
    guard(&server);
    Ok(server)
}

/// The one value that `sql` gives.
pub fn read<T: FromSqlOwned>(client: &mut Client, sql: &str) -> Result<T> {
    let row = client.query_one(sql, &[]).with_context(|| sql.to_owned())?;
    row.try_get(0).with_context(|| sql.to_owned())
}

/// The one number that `sql` gives, of whatever integer type; null is 0.
pub fn int(client: &mut Client, sql: &str) -> Result<i64> {
    read(client, &format!("SELECT coalesce(({sql})::bigint, 0)"))
}

/// The one value that `sql` gives, as text; null is empty.
pub fn text(client: &mut Client, sql: &str) -> Result<String> {
    read(client, &format!("SELECT coalesce(({sql})::text, '')"))
}

/// A server with a table `hot (id, val)` of `rows` zeroes, ids from 1.
pub fn start_hot(rows: u32, settings: &[(&str, &str)]) -> Result<Server> {
    let server = start(settings)?;
    server.connect()?.batch_execute(&format!(
        "CREATE TABLE hot (id int PRIMARY KEY, val bigint NOT NULL);
         INSERT INTO hot SELECT id, 0 FROM generate_series(1, {rows}) id"
    ))?;
    Ok(server)
}
