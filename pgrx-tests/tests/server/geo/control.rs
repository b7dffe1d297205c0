//! The checks find what they are for: with postgres_fdw, whose plain commits end at one node after
//! the other.
use anyhow::{Result, ensure};

use super::twin::Twin;
use super::{Cluster, transfer};

/// A transaction that one node refuses at its end is there at the other one, if that is told first:
/// so it is with one of the two that may refuse.
#[test]
fn a_torn_commit_is_found() -> Result<()> {
    let found = [torn(0)?, torn(1)?];
    let is_it = |error: &String| error.contains("transactions [1]");
    ensure!(found.iter().flatten().any(is_it), "{found:?}");
    Ok(())
}

/// What the check says when that node refuses.
fn torn(refusing: usize) -> Result<Option<String>> {
    let cluster = Cluster::stock(2)?;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                  BEGIN RAISE EXCEPTION 'refused'; END $$;
                  CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON trace
                  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()";
    cluster.node(refusing).connect()?.batch_execute(refuse)?;
    let sql = format!("BEGIN; {}; COMMIT", transfer(1));
    let told = cluster.session()?.batch_execute(&sql);
    ensure!(told.is_err(), "node {refusing} has refused nothing");
    Ok(cluster
        .all_or_nothing()
        .err()
        .map(|error| error.to_string()))
}

/// The scripts are what stock PostgreSQL does with foreign tables, too.
#[test]
fn the_scripts_hold_for_stock_foreign_tables() -> Result<()> {
    for script in [
        include_str!("scripts/reads.sql"),
        include_str!("scripts/writes.sql"),
        include_str!("scripts/triggers.sql"),
        include_str!("scripts/types.sql"),
        include_str!("scripts/blocks.sql"),
    ] {
        Twin::on(Cluster::stock(2)?, "")?.play(script)?;
    }
    Ok(())
}
