//! pg_dump of a database whose transactions are validated, and what READ ONLY transactions may
//! read.
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::NoTls;
use txn_server_tests::{int, sqlstate, start, text};

use super::{TABLES, validated};

/// Tables of both access methods, also as partitions of one.
const BOTH: &str = "
    CREATE TABLE plain (id int PRIMARY KEY, v int) USING heap;
    INSERT INTO plain SELECT n, n FROM generate_series(1, 50) n;
    CREATE TABLE parts (id serial PRIMARY KEY, v int) PARTITION BY RANGE (id);
    CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
    CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (10) TO (100) USING heap;
    INSERT INTO parts (v) SELECT n FROM generate_series(1, 20) n;
    CREATE MATERIALIZED VIEW sums USING heap AS SELECT sum(v) FROM plain";

const FOR_ALL: &str = "
    ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read';
    ALTER DATABASE postgres SET txn.range_occ = on";

const COUNTS: &str = "SELECT concat_ws(' ', (SELECT sum(v) FROM t), (SELECT sum(v) FROM plain), \
    (SELECT sum(v) FROM parts), (SELECT sum FROM sums), nextval('parts_id_seq'))";

fn dump(server: &Server, arguments: &[&str]) -> Result<String> {
    let mut command = server.command("pg_dump");
    let output = command.args(arguments).output();
    let output = output.context("could not run pg_dump")?;
    ensure!(
        output.status.success(),
        "pg_dump {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn with_both() -> Result<Server> {
    let server = start(&[])?;
    let mut client = server.connect()?;
    client.batch_execute(TABLES)?;
    client.batch_execute(BOTH)?;
    client.batch_execute("CREATE DATABASE restored")?;
    client.batch_execute(FOR_ALL)?;
    Ok(server)
}

#[test]
fn a_database_of_validated_transactions_is_dumped() -> Result<()> {
    let server = with_both()?;
    let mut client = server.connect()?;
    ensure!(text(&mut client, "SELECT current_setting('txn.range_occ')")? == "on");
    let ways: [&[&str]; 3] = [&[], &["--serializable-deferrable"], &["--inserts"]];
    for arguments in ways {
        let sql = dump(&server, arguments)?;
        client.batch_execute("DROP DATABASE IF EXISTS restored WITH (FORCE)")?;
        client.batch_execute("CREATE DATABASE restored")?;
        server.psql(&format!("\\connect restored\n{sql}"))?;
        let found = text(&mut server.connect_as("postgres", "restored")?, COUNTS)?;
        ensure!(found == "210 1275 210 1275 21", "{arguments:?}: {found}");
    }
    let folder = std::env::temp_dir().join(format!("txn_dump_{}", std::process::id()));
    let target = format!("--file={}", folder.display());
    let told = dump(&server, &["--format=directory", "--jobs=2", &target]);
    let files = fs::read_dir(&folder).map(Iterator::count);
    let _ = fs::remove_dir_all(&folder);
    told?;
    ensure!(files? > 4, "the dump lacks tables");
    Ok(())
}

#[test]
fn read_only_transactions_read_tables_of_other_access_methods() -> Result<()> {
    const SCAN: &str = "SELECT count(*) FROM plain";
    let server = with_both()?;
    let notices = Arc::new(AtomicU32::new(0));
    let counted = notices.clone();
    let mut config = server.config("postgres", "postgres");
    config.notice_callback(move |notice| {
        let is_ours = notice.message().contains("\"plain\" is not validated");
        counted.fetch_add(u32::from(is_ours), Relaxed);
    });
    let mut client = config.connect(NoTls)?;
    let all = [
        "BEGIN READ ONLY",
        "BEGIN; SET TRANSACTION READ ONLY",
        "BEGIN READ ONLY; SAVEPOINT q",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1",
    ];
    for begin in all {
        notices.store(0, Relaxed);
        let both = "SELECT count(*) FROM t; SELECT count(*) FROM parts";
        client.batch_execute(&format!(
            "{begin}; {SCAN}; {both}; SAVEPOINT p; {SCAN}; ROLLBACK TO p; COMMIT"
        ))?;
        let notices = notices.load(Relaxed);
        ensure!(notices == 1, "{begin}: {notices} notices");
    }
    // Those that may still write, or could.
    for others in [
        format!("BEGIN; {SCAN}"),
        format!("BEGIN; SAVEPOINT p; SET TRANSACTION READ ONLY; {SCAN}"),
        format!("BEGIN; SELECT count(*) FROM t; SET TRANSACTION READ ONLY; {SCAN}"),
        format!("BEGIN; SELECT 1; SAVEPOINT p; SET LOCAL transaction_read_only = on; {SCAN}"),
    ] {
        let told = sqlstate(&client.batch_execute(&others));
        ensure!(told == "0A000", "{others}: {told}");
        client.batch_execute("ROLLBACK")?;
    }
    Ok(())
}

/// It has its snapshot long before it comes to a table; others fill the rings meanwhile.
#[test]
fn a_reader_that_begins_with_the_catalogs_needs_no_history() -> Result<()> {
    let server = start(&[("txn.range_slots", "4")])?;
    server.connect()?.batch_execute(TABLES)?;
    let mut reader = validated(&server)?;
    let mut writer = server.connect()?;
    for begin in ["BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY"] {
        reader.batch_execute(&format!("{begin}; SELECT count(*) FROM pg_class"))?;
        let before = int(&mut writer, "SELECT sum(v) FROM t")?;
        for _ in 0..20 {
            writer.batch_execute("UPDATE t SET v = v + 1 WHERE id IN (20, 50)")?;
        }
        let found = int(&mut reader, "SELECT sum(v) FROM t")?;
        ensure!(found == before, "{begin}: {found}");
        ensure!(int(&mut reader, "SELECT sum(v) FROM flag")? == 0);
        reader.batch_execute("COMMIT")?;
    }
    Ok(())
}
