//! The coordinator, the nodes behind their lines, and what must hold for the data.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pgserver::{Line, PgInstall, Server, ServerOptions};
use postgres::{Client, Config};
use txn_server_tests::int;

use crate::bench::catalog::System;
use crate::bench::postgres_site::describe;
use crate::bench::site::Description;

/// How long nodes may take after a run until nothing is in doubt any more.
const PATIENCE: Duration = Duration::from_secs(60);
/// The balance of each row in the beginning.
const BALANCE: i64 = 100;

/// Rows `0` to `rows - 1`, counted from `:base`. The trigger runs when the row is locked.
const NODE: &str = "
    CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, locked timestamptz);
    INSERT INTO account SELECT :base + k, :balance, NULL FROM generate_series(0, :rows - 1) k;
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN NEW.locked = clock_timestamp(); RETURN NEW; END $$;
    CREATE TRIGGER note BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION note();
    VACUUM ANALYZE account";

const COORDINATOR: &str = "
    CREATE EXTENSION postgres_fdw;
    CREATE SCHEMA stock;
    CREATE TABLE account (id int NOT NULL, balance bigint NOT NULL, locked timestamptz)
        PARTITION BY RANGE (id);
    CREATE TABLE stock.account (id int NOT NULL, balance bigint NOT NULL, locked timestamptz)
        PARTITION BY RANGE (id)";

/// Locks end as they do with txn_fdw, whose setting txn.geo_lock_timeout the servers do not know.
const STOCK_OPTIONS: &str = "-c lock_timeout=5s";

pub struct Site {
    lines: Vec<Line>,
    nodes: Vec<Server>,
    coordinator: Server,
    rows: i32,
}

impl Site {
    /// Starts all servers and makes the tables; a node for each round-trip time in milliseconds.
    pub fn start(
        install: &PgInstall,
        library_dir: Option<&Path>,
        clients: usize,
        rtt: &[f64],
        rows: i32,
    ) -> Result<Self> {
        let connections = 2 * clients + 30;
        let options = ServerOptions {
            library_dir: library_dir.map(Path::to_owned),
            ..ServerOptions::default()
        };
        let coordinator = Server::start(install, options.set("max_connections", connections))?;
        let node = ServerOptions::stock()
            .set("max_connections", connections)
            .set("max_prepared_transactions", connections)
            .set("track_commit_timestamp", "on")
            // Both rows of a statement are locked in the order of their keys.
            .set("enable_bitmapscan", "off")
            .set("enable_seqscan", "off");
        let nodes = rtt.iter().map(|_| Server::start(install, node.clone()));
        let nodes: Vec<Server> = nodes.collect::<Result<_>>()?;
        let lines = nodes
            .iter()
            .zip(rtt)
            .map(|(node, rtt)| Line::with_delay(node, Duration::from_secs_f64(rtt / 2000.0)));
        let site = Self {
            lines: lines.collect::<Result<_>>()?,
            nodes,
            coordinator,
            rows,
        };
        site.create()?;
        Ok(site)
    }

    fn create(&self) -> Result<()> {
        let mut client = self.coordinator.connect()?;
        client.batch_execute(COORDINATOR)?;
        for (number, (node, line)) in self.nodes.iter().zip(&self.lines).enumerate() {
            let base = number as i32 * self.rows;
            let tables = NODE
                .replace(":balance", &BALANCE.to_string())
                .replace(":base", &base.to_string())
                .replace(":rows", &self.rows.to_string());
            node.psql(&tables)?;
            let place = format!(
                "host '{}', port '{}', dbname 'postgres'",
                line.host().display(),
                line.port()
            );
            let rows = format!("FOR VALUES FROM ({base}) TO ({})", base + self.rows);
            let sql = format!(
                "CREATE SERVER node{number} FOREIGN DATA WRAPPER txn_fdw OPTIONS ({place});
                 CREATE SERVER stock{number} FOREIGN DATA WRAPPER postgres_fdw
                     OPTIONS ({place}, options '{STOCK_OPTIONS}');
                 CREATE USER MAPPING FOR PUBLIC SERVER node{number} OPTIONS (user 'postgres');
                 CREATE USER MAPPING FOR PUBLIC SERVER stock{number} OPTIONS (user 'postgres');
                 CREATE FOREIGN TABLE account_{number} PARTITION OF account {rows}
                     SERVER node{number} OPTIONS (table_name 'account', key 'id');
                 CREATE FOREIGN TABLE stock.account_{number} PARTITION OF stock.account {rows}
                     SERVER stock{number} OPTIONS (schema_name 'public', table_name 'account')"
            );
            client.batch_execute(&sql).with_context(|| sql.clone())?;
        }
        Ok(())
    }

    pub fn rows(&self) -> i32 {
        self.rows
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// How clients connect to the coordinator.
    pub fn config(&self) -> Config {
        self.coordinator.config("postgres", "postgres")
    }

    /// Whether the extension has the setting `txn.geo_schedule`.
    pub fn can_schedule(&self) -> Result<bool> {
        let mut client = self.coordinator.connect()?;
        Ok(client.simple_query("SHOW txn.geo_schedule").is_ok())
    }

    /// The round trips in milliseconds that the coordinator has measured, for those nodes of which
    /// it has.
    pub fn believed_rtt(&self) -> Result<Vec<Option<f64>>> {
        let mut client = self.coordinator.connect()?;
        let number = |number| format!("node{number}");
        let read = |number| -> Result<Option<f64>> {
            let sql = "SELECT round_trip_ms::float8 FROM txn.geo_nodes WHERE node = $1";
            let row = client.query_opt(sql, &[&number])?;
            Ok(row.and_then(|row| row.get(0)))
        };
        (0..self.nodes.len()).map(number).map(read).collect()
    }

    pub fn describe(&self) -> Result<Vec<Description>> {
        let mut coordinator = describe(&mut self.coordinator.connect()?, System::Txn)?;
        coordinator.system = "coordinator: PostgreSQL with txn";
        let mut all = vec![coordinator];
        if let Some(node) = self.nodes.first() {
            let mut node = describe(&mut node.connect()?, System::Stock)?;
            node.system = "each node: PostgreSQL";
            all.push(node);
        }
        Ok(all)
    }

    /// Removes what the run before has left behind of old row versions. The sum of the balances.
    pub fn reset(&self) -> Result<i64> {
        for node in &self.nodes {
            node.connect()?.batch_execute("VACUUM account")?;
        }
        self.sum()
    }

    fn sum(&self) -> Result<i64> {
        let sums = self
            .nodes
            .iter()
            .map(|node| int(&mut node.connect()?, "SELECT sum(balance) FROM account"));
        sums.sum()
    }

    /// After a run: waits until nothing is in doubt, and fails if the balances are not `sum`.
    pub fn check(&self, sum: i64) -> Result<()> {
        let mut client = self.coordinator.connect()?;
        let began = Instant::now();
        loop {
            client.batch_execute("SELECT txn.geo_wake()")?;
            let decided = int(&mut client, "SELECT count(*) FROM txn.geo_decision")?;
            let prepared = self.prepared()?;
            if decided == 0 && prepared == 0 {
                break;
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{prepared} transactions are still prepared and {decided} decided after {} s",
                PATIENCE.as_secs()
            );
            sleep(Duration::from_millis(50));
        }
        let found = self.sum()?;
        ensure!(found == sum, "the balances are {found} in all, not {sum}");
        Ok(())
    }

    fn prepared(&self) -> Result<i64> {
        let count = |client: &mut Client| int(client, "SELECT count(*) FROM pg_prepared_xacts");
        let counts = self.nodes.iter().map(|node| count(&mut node.connect()?));
        counts.sum()
    }
}
