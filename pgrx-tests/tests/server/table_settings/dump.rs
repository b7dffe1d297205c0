//! Settings of tables in dumps.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{start, start_stock, text};

fn dump(server: &Server, arguments: &[&str]) -> Result<String> {
    let output = server
        .command("pg_dump")
        .args(arguments)
        .output()
        .context("could not run pg_dump")?;
    ensure!(
        output.status.success(),
        "pg_dump: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn with_settings() -> Result<Server> {
    let server = start(&[])?;
    server.connect()?.batch_execute(
        "CREATE TABLE \"An account\" (id int PRIMARY KEY, val int);
         CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY LIST (id);
         CREATE TABLE part PARTITION OF parts DEFAULT;
         SELECT txn.set_table('\"An account\"', 'group', 3, 4, 'immediate');
         SELECT txn.set_table('parts', 'queue');
         SELECT txn.set_table('part', group_size => 9)",
    )?;
    server
        .connect()?
        .batch_execute("CREATE DATABASE restored")?;
    Ok(server)
}

const SETTINGS: &str = "SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM txn.tables t";

#[test]
fn restored_with_their_tables() -> Result<()> {
    let server = with_settings()?;
    let before = text(&mut server.connect()?, SETTINGS)?;
    let sql = dump(&server, &[])?;
    server.psql(&format!("\\connect restored\n{sql}"))?;
    let mut restored = server.connect_as("postgres", "restored")?;
    let after = text(&mut restored, SETTINGS)?;
    ensure!(
        before == after && before.contains("immediate"),
        "{before} became {after}"
    );
    Ok(())
}

/// A server without the library refuses the labels, says so, and takes everything else.
#[test]
fn restored_without_the_library() -> Result<()> {
    let server = with_settings()?;
    let tables = ["--table=\"An account\"", "--no-owner"];
    let sql = dump(&server, &tables)?;
    let stock = start_stock(&[])?;
    let refused = stock.psql(&sql).err().context("stock takes our label")?;
    ensure!(
        format!("{refused:#}").contains("security label provider \"txn\" is not loaded"),
        "{refused:#}"
    );
    stock
        .connect()?
        .batch_execute("DROP TABLE \"An account\"")?;
    let sql = dump(&server, &[tables[0], tables[1], "--no-security-labels"])?;
    stock.psql(&sql)?;
    Ok(())
}
