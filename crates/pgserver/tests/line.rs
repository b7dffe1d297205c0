//! A line to a real server, without the extension.
use std::time::Duration;

use anyhow::Result;
use pgserver::{Line, PgInstall, Server, ServerOptions};
use postgres::NoTls;

fn server() -> Result<Server> {
    let options = ServerOptions::stock().set("shared_buffers", "16MB");
    Server::start(&PgInstall::from_env()?, options)
}

#[test]
fn a_statement_is_a_burst_each_way_however_large() -> Result<()> {
    let server = server()?;
    let line = Line::with_delay(&server, Duration::from_millis(5))?;
    let other = Line::to(&server)?;
    assert_ne!(line.port(), other.port());
    let mut client = line.config("postgres", "postgres").connect(NoTls)?;
    line.reset_counts();
    client.batch_execute("SELECT 1")?;
    assert_eq!(line.bursts(), (1, 1));
    client.simple_query("SELECT repeat('x', 1000) FROM generate_series(1, 1000)")?;
    assert_eq!(line.bursts(), (2, 2));
    // Parse and Describe, then Bind and Execute.
    client.query("SELECT 1", &[])?;
    assert_eq!(line.bursts(), (4, 4));
    assert_eq!((other.bursts(), other.connections()), ((0, 0), 0));
    Ok(())
}

#[test]
fn libpq_reaches_the_server_through_it() -> Result<()> {
    let server = server()?;
    let line = Line::to(&server)?;
    let mut psql = server.command("psql");
    psql.env("PGHOST", line.host())
        .env("PGPORT", line.port().to_string());
    let output = psql.args(["-XAtqc", "SELECT 42"]).output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
    assert_eq!(line.connections(), 1);
    Ok(())
}

#[test]
fn it_outlives_a_restart_of_its_server() -> Result<()> {
    let mut server = server()?;
    let line = Line::to(&server)?;
    let mut client = line.config("postgres", "postgres").connect(NoTls)?;
    client.batch_execute("CREATE TABLE t (a int)")?;
    line.cut();
    let waiting = std::thread::spawn(move || client.batch_execute("INSERT INTO t VALUES (1)"));
    server.kill9_all()?;
    server.start_again()?;
    assert!(!waiting.is_finished(), "the line was cut");
    line.heal();
    assert!(waiting.join().expect("it does not panic").is_err());
    let mut client = line.config("postgres", "postgres").connect(NoTls)?;
    let row = client.query_one("SELECT count(*) FROM t", &[])?;
    assert_eq!(row.get::<_, i64>(0), 0);
    Ok(())
}
