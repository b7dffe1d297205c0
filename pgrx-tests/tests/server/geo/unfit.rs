//! Tables of the extension that are not as the library has them: of another version, or changed.
use anyhow::{Context, Result, ensure};
use txn_server_tests::{sqlstate, text, wait_until};

use super::{Cluster, transfer};

/// A change, and what undoes it.
const CHANGES: [(&str, &str); 6] = [
    (
        "ALTER TABLE txn.geo_decision ADD COLUMN more int",
        "ALTER TABLE txn.geo_decision DROP COLUMN more",
    ),
    (
        "ALTER TABLE txn.geo_decision RENAME COLUMN xid TO id",
        "ALTER TABLE txn.geo_decision RENAME COLUMN id TO xid",
    ),
    (
        "ALTER TABLE txn.geo_decision ALTER COLUMN timeline TYPE bigint",
        "ALTER TABLE txn.geo_decision ALTER COLUMN timeline TYPE integer",
    ),
    (
        "ALTER TABLE txn.geo_decision RENAME TO geo_other",
        "ALTER TABLE txn.geo_other RENAME TO geo_decision",
    ),
    (
        "ALTER TABLE txn.geo_coordinator RENAME COLUMN directory TO folder",
        "ALTER TABLE txn.geo_coordinator RENAME COLUMN folder TO directory",
    ),
    (
        "ALTER TABLE txn.geo_coordinator ADD COLUMN more int",
        "ALTER TABLE txn.geo_coordinator DROP COLUMN more",
    ),
];

/// Nothing is prepared, nobody crashes, and it goes on when the tables fit again.
#[test]
fn tables_that_do_not_fit_the_library() -> Result<()> {
    let cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute(&format!("BEGIN; {}; COMMIT", transfer(1)))?;
    cluster.expect_committed(&[1])?;
    let started = text(&mut client, "SELECT pg_postmaster_start_time()")?;
    let mut expected = vec![1];
    for (number, (change, undo)) in (2..).zip(CHANGES) {
        client.batch_execute(change)?;
        let gone = "SELECT phase = 'absent' FROM txn.geo_resolver()";
        // Only the resolver looks at the other table.
        if change.contains("geo_coordinator") {
            wait_until(&mut client, gone).context(change)?;
        }
        for _ in 0..2 {
            let sql = format!("BEGIN; {}; COMMIT", transfer(number));
            let told = client.batch_execute(&sql);
            ensure!(sqlstate(&told) == "55000", "{told:?}: {change}");
            let error = told.err().context("it has failed")?;
            let hint = error.as_db_error().and_then(|error| error.hint());
            ensure!(
                hint.is_some_and(|hint| hint.contains("ALTER EXTENSION txn UPDATE")),
                "{error:?}: {change}"
            );
            client.batch_execute("ROLLBACK")?;
            // By now the resolver has seen it, too.
            wait_until(&mut client, gone).context(change)?;
        }
        client.batch_execute(undo)?;
        client
            .batch_execute(&format!("BEGIN; {}; COMMIT", transfer(number)))
            .context(undo)?;
        expected.push(number);
        cluster.expect_committed(&expected)?;
    }
    let since = text(&mut client, "SELECT pg_postmaster_start_time()")?;
    ensure!(since == started, "the server has crashed");
    Ok(())
}

/// Columns are known by their names: those that were dropped, and the order, do not matter.
#[test]
fn columns_in_another_order() -> Result<()> {
    let mut cluster = Cluster::start(2)?;
    let mut client = cluster.session()?;
    client.batch_execute(
        "ALTER TABLE txn.geo_decision DROP COLUMN mapping, DROP COLUMN system;
         ALTER TABLE txn.geo_decision ADD COLUMN system text NOT NULL,
             ADD COLUMN mapping oid NOT NULL",
    )?;
    let stopped = cluster.stop_at("geo_decided", 1)?;
    cluster.kill_coordinator()?;
    drop(stopped);
    cluster.expect_committed(&[1])
}
