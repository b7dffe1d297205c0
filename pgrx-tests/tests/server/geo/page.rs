//! The set-up that docs/geo.md tells step by step, played with two stock servers.
use std::fs;

use anyhow::{Context, Result, ensure};
use pgserver::Server;
use txn_server_tests::{Block, blocks, int, read, start, start_stock, text};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/geo.md");

/// The part of the page under that heading.
fn section<'a>(page: &'a str, heading: &str) -> Result<&'a str> {
    let begin = page
        .find(&format!("\n{heading}\n"))
        .context("there is no such section")?
        + 1;
    let rest = &page[begin + heading.len()..];
    Ok(&rest[..rest.find("\n## ").unwrap_or(rest.len())])
}

/// The block that begins with that comment.
fn block<'a>(blocks: &'a [Block], comment: &str) -> Result<&'a str> {
    let is_it = |block: &&Block| block.text.starts_with(&format!("-- {comment}\n"));
    let mut found = blocks.iter().filter(is_it).map(|block| block.text.as_str());
    let first = found
        .next()
        .with_context(|| format!("no block is {comment}"))?;
    ensure!(found.next().is_none(), "two blocks are {comment}");
    Ok(first)
}

/// A node with the page's settings, which asks `app` for a password.
fn node(settings: &[(&str, &str)], sql: &str) -> Result<Server> {
    let node = start_stock(settings)?;
    node.connect()?.batch_execute("CREATE DATABASE bank")?;
    node.connect_as("postgres", "bank")?.batch_execute(sql)?;
    let path = node.data_dir().join("pg_hba.conf");
    let rules = fs::read_to_string(&path)?;
    fs::write(&path, format!("local all app scram-sha-256\n{rules}"))?;
    node.reload()?;
    Ok(node)
}

#[test]
fn the_page_sets_two_nodes_up() -> Result<()> {
    let page = fs::read_to_string(PAGE)?;
    let steps = blocks(section(&page, "## Set-up with two nodes")?);
    let settings: Vec<(&str, &str)> = steps
        .iter()
        .filter(|block| block.language.is_empty())
        .flat_map(|block| block.text.lines())
        .filter_map(|line| line.split_once(" = "))
        .collect();
    ensure!(
        settings == [("max_prepared_transactions", "200")],
        "{settings:?}"
    );
    let london = node(&settings, block(&steps, "at london")?)?;
    let paris = node(&settings, block(&steps, "at paris")?)?;
    let coordinator = start(&[])?;
    let mut sql = block(&steps, "at the coordinator, as superuser")?.replace(
        "CREATE EXTENSION txn;",
        "CREATE EXTENSION IF NOT EXISTS txn;",
    );
    for (name, node) in [("london", &london), ("paris", &paris)] {
        let shown = format!("host '{name}.example.com', port '5432'");
        ensure!(sql.matches(&shown).count() == 1, "not on the page: {shown}");
        let real = format!("host '{}', port '{}'", node.host().display(), node.port());
        sql = sql.replace(&shown, &real);
    }
    let mut control = coordinator.connect()?;
    control.batch_execute(&sql)?;
    let mut app = coordinator.connect_as("app", "postgres")?;
    app.batch_execute(block(&steps, "at the coordinator, as app")?)?;
    for (node, balance) in [(&london, 90), (&paris, 110)] {
        let mut client = node.connect_as("postgres", "bank")?;
        ensure!(int(&mut client, "SELECT balance FROM account")? == balance);
        let log = "SELECT count(*) FROM pg_prepared_xacts";
        ensure!(int(&mut client, log)? == 0);
    }
    let both = "SELECT string_agg(node || ' ' || wrapper, ', ' ORDER BY node) FROM txn.geo_nodes";
    ensure!(text(&mut control, both)? == "london txn_fdw, paris txn_fdw");
    let watched = blocks(section(&page, "## What to watch")?);
    let alarms = watched.iter().filter(|block| block.language == "sql");
    let alarms: String = alarms.map(|block| block.text.as_str()).collect();
    ensure!(alarms.contains("geo_decision"), "there are no alarms");
    control.batch_execute(&alarms)?;
    ensure!(read::<bool>(
        &mut control,
        "SELECT phase = 'ready' FROM txn.geo_resolver()"
    )?);
    Ok(())
}
