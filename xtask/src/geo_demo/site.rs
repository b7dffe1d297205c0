//! The tables of the demo, and what must hold for them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use pgserver::PgInstall;
use txn_server_tests::int;

use crate::bench::geo::cluster::{Cluster, Layout};

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
    CREATE TABLE account (id int NOT NULL, balance bigint NOT NULL, locked timestamptz)
        PARTITION BY RANGE (id);
    CREATE TABLE stock.account (id int NOT NULL, balance bigint NOT NULL, locked timestamptz)
        PARTITION BY RANGE (id)";

pub struct Site {
    pub cluster: Cluster,
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
        let layout = Layout {
            clients,
            rtt: &[rtt.to_vec()],
            nodes_have_library: false,
        };
        let cluster = Cluster::start(install, library_dir, &layout)?;
        let site = Self { cluster, rows };
        site.create()?;
        Ok(site)
    }

    fn create(&self) -> Result<()> {
        let mut sql = COORDINATOR.to_owned();
        for (number, node) in self.cluster.nodes().iter().enumerate() {
            let base = number as i32 * self.rows;
            let tables = NODE
                .replace(":balance", &BALANCE.to_string())
                .replace(":base", &base.to_string())
                .replace(":rows", &self.rows.to_string());
            node.psql(&tables)?;
            let rows = format!("FOR VALUES FROM ({base}) TO ({})", base + self.rows);
            sql += &format!(
                "; CREATE FOREIGN TABLE account_{number} PARTITION OF account {rows}
                     SERVER node{number} OPTIONS (table_name 'account', key 'id');
                 CREATE FOREIGN TABLE stock.account_{number} PARTITION OF stock.account {rows}
                     SERVER stock{number} OPTIONS (schema_name 'public', table_name 'account')"
            );
        }
        for coordinator in self.cluster.coordinators() {
            let made = coordinator?.batch_execute(&sql);
            made.with_context(|| sql.clone())?;
        }
        Ok(())
    }

    pub fn rows(&self) -> i32 {
        self.rows
    }

    /// Removes what the run before has left behind of old row versions. The sum of the balances.
    pub fn reset(&self) -> Result<i64> {
        for node in self.cluster.nodes() {
            node.connect()?.batch_execute("VACUUM account")?;
        }
        self.sum()
    }

    fn sum(&self) -> Result<i64> {
        let sum = "SELECT sum(balance) FROM account";
        let nodes = self.cluster.nodes().iter();
        nodes.map(|node| int(&mut node.connect()?, sum)).sum()
    }

    /// After a run: waits until nothing is in doubt, and fails if the balances are not `sum`.
    pub fn check(&self, sum: i64) -> Result<()> {
        self.cluster.settle()?;
        let found = self.sum()?;
        ensure!(found == sum, "the balances are {found} in all, not {sum}");
        Ok(())
    }
}
