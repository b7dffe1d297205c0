//! What roles are told of rows that they may not read, and what they can take from others.
use anyhow::{Context, Result, ensure};
use pgserver::Server;
use postgres::Client;
use txn_server_tests::{Background, Watchdog, grouped, int, read, start, start_hot, text};

const ROLES: &str = "
    CREATE ROLE a LOGIN;
    CREATE ROLE b LOGIN;
    GRANT SELECT, UPDATE ON hot TO a, b";

/// A session of that role, for which each row that it updates by key becomes hot.
fn session_of(server: &Server, role: &str) -> Result<Client> {
    let mut client = server.connect_as(role, "postgres")?;
    client.batch_execute("SET txn.group_lock = on; SET txn.hot_threshold = 0")?;
    Ok(client)
}

/// A session of that role in whose transaction row `id` is updated.
fn using(server: &Server, role: &str, id: i32) -> Result<Client> {
    let mut client = session_of(server, role)?;
    client.batch_execute(&format!(
        "BEGIN; UPDATE hot SET val = val + 1 WHERE id = {id}"
    ))?;
    Ok(client)
}

#[test]
fn a_role_has_half_of_the_hot_rows_at_most() -> Result<()> {
    let server = start_hot(16, &[("txn.max_hot_rows", "4")])?;
    server.connect()?.batch_execute(ROLES)?;
    let dog = Watchdog::new(&server);
    dog.finish(share(&server))
}

fn share(server: &Server) -> Result<()> {
    let mut control = server.connect()?;
    let mut keys = || {
        let sql = "SELECT string_agg(key, ' ' ORDER BY key::int) FROM txn.hotspots";
        text(&mut control, sql)
    };
    let of_a: Vec<_> = (1..=3)
        .map(|id| using(server, "a", id))
        .collect::<Result<_>>()?;
    ensure!(keys()? == "1 2", "{}", keys()?);
    let of_b: Vec<_> = (4..=6)
        .map(|id| using(server, "b", id))
        .collect::<Result<_>>()?;
    ensure!(keys()? == "1 2 4 5", "{}", keys()?);
    // Nobody's rows make room while they are in use.
    let mut own = grouped(server)?;
    own.batch_execute("UPDATE hot SET val = val + 1 WHERE id = 7")?;
    ensure!(keys()? == "1 2 4 5", "{}", keys()?);
    // A role's share is used up: a row of its own makes room, not one of others.
    let mut of_a = of_a.into_iter();
    let mut end_of_next = || -> Result<()> {
        let mut client = of_a.next().context("there is another one")?;
        Ok(client.batch_execute("COMMIT")?)
    };
    end_of_next()?;
    let third = using(server, "a", 8)?;
    ensure!(keys()? == "2 4 5 8", "{}", keys()?);
    // There is no room: those make it who have more.
    end_of_next()?;
    own.batch_execute("BEGIN; UPDATE hot SET val = val + 1 WHERE id = 7")?;
    ensure!(keys()? == "4 5 7 8", "{}", keys()?);
    drop((of_b, third));
    Ok(())
}

/// The key of a row that others wait for is for those who may read it in every row.
#[test]
fn waits_do_not_tell_of_hidden_rows() -> Result<()> {
    let server = start_hot(1, &[])?;
    server.connect()?.batch_execute(&format!(
        "{ROLES}; REVOKE ALL ON hot FROM b; GRANT SELECT (id) ON hot TO b;
         CREATE ROLE c LOGIN BYPASSRLS; GRANT SELECT (id) ON hot TO c;
         ALTER TABLE hot ENABLE ROW LEVEL SECURITY; CREATE POLICY nothing ON hot USING (false)"
    ))?;
    let dog = Watchdog::new(&server);
    dog.finish(waits(&server))
}

fn waits(server: &Server) -> Result<()> {
    let mut holder = grouped(server)?;
    holder.batch_execute("BEGIN; SELECT val FROM hot WHERE id = 1 FOR UPDATE")?;
    let waiting = Background::run(
        grouped(server)?,
        "UPDATE hot SET val = val + 1 WHERE id = 1",
    )?;
    waiting.wait_until_blocked(&mut server.connect()?)?;
    let seen = |role: &str| -> Result<Option<String>> {
        let mut client = server.connect_as(role, "postgres")?;
        read(
            &mut client,
            "SELECT key FROM txn.waits WHERE relation = 'hot'::regclass",
        )
    };
    ensure!(seen("postgres")?.as_deref() == Some("1"));
    ensure!(seen("c")?.as_deref() == Some("1"), "c may read the key");
    ensure!(seen("a")?.is_none(), "a policy hides the row from a");
    ensure!(seen("b")?.is_none(), "a policy hides the row from b");
    holder.batch_execute("COMMIT")?;
    Ok(waiting.end()?.1?)
}

/// A change of a table's settings invalidates what sessions know of labels, and of no table.
#[test]
fn labels_invalidate_no_tables() -> Result<()> {
    let server = start(&[("wal_level", "replica")])?;
    let mut client = server.connect()?;
    client.batch_execute(
        "CREATE EXTENSION pg_walinspect;
         CREATE TABLE parent (id int PRIMARY KEY) PARTITION BY LIST (id);
         CREATE TABLE part PARTITION OF parent FOR VALUES IN (1)",
    )?;
    for table in ["parent", "part"] {
        let start = text(&mut client, "SELECT pg_current_wal_insert_lsn()::text")?;
        client.batch_execute(&format!("SELECT txn.set_table('{table}', 'group', 0)"))?;
        let said = text(
            &mut client,
            &format!(
                "SELECT string_agg(description, ' ') FROM pg_get_wal_records_info('{start}', \
                 pg_current_wal_flush_lsn()) WHERE resource_manager = 'Transaction'"
            ),
        )?;
        let of = |relation: i64| said.contains(&format!("relcache {relation}"));
        let own = int(
            &mut client,
            &format!("SELECT '{table}'::regclass::oid::int8"),
        )?;
        ensure!(of(3596), "sessions do not learn of the change: {said}");
        ensure!(!of(0) && !of(own), "tables are invalidated: {said}");
    }
    // The partition takes its parent's settings, and a session that knows it learns of a change.
    client.batch_execute("SELECT txn.set_table('part'); INSERT INTO part VALUES (1)")?;
    let mut detail = |sql: &str| -> Result<String> {
        client.batch_execute(sql)?;
        let said: Option<String> = read(
            &mut client,
            "SELECT detail FROM txn.explain_row('part', '1') WHERE condition = 'group locking is on'",
        )?;
        said.context("nothing is said of it")
    };
    let before = detail("SELECT 1")?;
    let after = detail("SELECT txn.set_table('parent', 'queue', 0)")?;
    ensure!(
        before != after && after.contains("queue"),
        "{before} and {after}"
    );
    Ok(())
}
