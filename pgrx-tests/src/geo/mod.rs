//! A coordinator and data nodes, each node behind a line that can be slow, cut and broken.

mod stopped;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use pgserver::{Line, Server};
use postgres::{Client, NoTls};
pub use stopped::{POINTS, Stopped};

use crate::{Watchdog, int, local, start, start_stock, until};

/// What a session is told beside the results of its statements.
pub type Notices = Arc<Mutex<Vec<String>>>;
/// Setting and value.
pub type Settings<'a> = &'a [(&'a str, &'a str)];

const NODE: &str = include_str!("node.sql");
const COORDINATOR: &str = include_str!("coordinator.sql");

/// The sum of the balances that each node begins with.
pub const NODE_SUM: i64 = 1013;

/// A coordinator and its nodes. Node i has the accounts i * 1000 to i * 1000 + 9, and is the
/// server `node<i>` of the coordinator, reached through its line.
pub struct Cluster {
    pub dog: Arc<Watchdog>,
    pub coordinator: Server,
    pub lines: Vec<Line>,
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start(nodes: usize) -> Result<Self> {
        Self::with(nodes, &[], &[])
    }

    /// A cluster with settings of the coordinator and of all nodes, whose resolver looks ten times
    /// a second unless they say otherwise.
    pub fn with(nodes: usize, coordinator: Settings, node: Settings) -> Result<Self> {
        let mut settings = vec![("txn.geo_resolver_interval", "100ms")];
        settings.extend(coordinator);
        let coordinator = start(&settings)?;
        Self::of(coordinator, nodes, node, "txn_fdw")
    }

    /// Without the extension: foreign tables of postgres_fdw.
    pub fn stock(nodes: usize) -> Result<Self> {
        let coordinator = start_stock(&[])?;
        let mut client = coordinator.connect()?;
        client.batch_execute("CREATE EXTENSION postgres_fdw")?;
        Self::of(coordinator, nodes, &[], "postgres_fdw")
    }

    /// Nodes and foreign tables of that wrapper for a coordinator.
    pub fn of(coordinator: Server, nodes: usize, node: Settings, wrapper: &str) -> Result<Self> {
        let mut settings = vec![
            ("max_prepared_transactions", "64"),
            ("log_statement", "all"),
        ];
        settings.extend(node);
        let nodes = (0..nodes).map(|_| start_stock(&settings));
        Self::between(coordinator, nodes.collect::<Result<_>>()?, wrapper)
    }

    /// Foreign tables of that wrapper at the coordinator, for tables that are made at the nodes.
    pub fn between(coordinator: Server, nodes: Vec<Server>, wrapper: &str) -> Result<Self> {
        let lines = nodes.iter().map(Line::to).collect::<Result<_>>()?;
        let cluster = Cluster {
            dog: Arc::new(Watchdog::new(&coordinator)),
            coordinator,
            lines,
            nodes,
        };
        cluster.create(wrapper)?;
        Ok(cluster)
    }

    fn create(&self, wrapper: &str) -> Result<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            let base = number * 1000;
            node.connect()?
                .batch_execute(&NODE.replace(":base", &base.to_string()))?;
        }
        self.attach(&self.coordinator, wrapper)
    }

    /// Foreign tables of that wrapper for the nodes' tables, and the local ones, at a coordinator.
    pub fn attach(&self, coordinator: &Server, wrapper: &str) -> Result<()> {
        let mut client = coordinator.connect()?;
        client.batch_execute(COORDINATOR)?;
        for (number, line) in self.lines.iter().enumerate() {
            let base = number * 1000;
            let (host, port) = (line.host(), line.port());
            let key = match wrapper {
                "txn_fdw" => ", key 'id'",
                _ => "",
            };
            let sql = format!(
                "CREATE SERVER node{number} FOREIGN DATA WRAPPER {wrapper}
                     OPTIONS (host '{}', port '{port}', dbname 'postgres');
                 CREATE USER MAPPING FOR PUBLIC SERVER node{number} OPTIONS (user 'postgres');
                 CREATE FOREIGN TABLE account_{number} PARTITION OF account
                     FOR VALUES FROM ({base}) TO ({base} + 1000)
                     SERVER node{number} OPTIONS (table_name 'account'{key});
                 CREATE FOREIGN TABLE trace_{number} (number bigint)
                     SERVER node{number} OPTIONS (table_name 'trace')",
                host.display()
            );
            client.batch_execute(&sql).with_context(|| sql.clone())?;
        }
        Ok(())
    }

    /// A session at the coordinator.
    pub fn session(&self) -> Result<Client> {
        self.dog.progress();
        self.coordinator.connect()
    }

    pub fn node(&self, number: usize) -> &Server {
        &self.nodes[number]
    }

    pub fn line(&self, number: usize) -> &Line {
        &self.lines[number]
    }

    /// Kills a node, and starts it again unless that is left to the test.
    pub fn kill_node(&mut self, number: usize, starts_again: bool) -> Result<()> {
        self.dog.progress();
        self.nodes[number].kill9_all()?;
        match starts_again {
            true => self.start_node(number),
            false => Ok(()),
        }
    }

    pub fn start_node(&mut self, number: usize) -> Result<()> {
        self.dog.progress();
        self.nodes[number].start_again()
    }

    /// Kills all of the coordinator at once and starts it again.
    pub fn kill_coordinator(&mut self) -> Result<()> {
        self.dog.progress();
        self.coordinator.kill9_all()?;
        self.coordinator.start_again()
    }

    /// What the nodes themselves say.
    pub fn balance_sum_at_nodes(&self) -> Result<i64> {
        let sums = self.nodes.iter().map(|node| {
            let mut client = node.connect()?;
            int(&mut client, "SELECT sum(balance) FROM account")
        });
        sums.sum()
    }

    /// Our transactions that are prepared: at which node, and the gid.
    pub fn prepared(&self) -> Result<Vec<(usize, String)>> {
        let sql = "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'txn/%' ORDER BY gid";
        let mut found = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let rows = node.connect()?.query(sql, &[])?;
            found.extend(rows.iter().map(|row| (number, row.get(0))));
        }
        Ok(found)
    }

    /// How often that node has been asked to prepare one of ours.
    pub fn asked_to_prepare(&self, node: usize) -> Result<usize> {
        let log = self.nodes[node].log()?;
        Ok(log.matches(": PREPARE TRANSACTION 'txn/").count())
    }

    /// Waits until the resolver has looked at all nodes so many times more.
    pub fn wait_for_passes(&self, passes: i64) -> Result<()> {
        self.dog.progress();
        let mut client = local(&self.coordinator)?;
        let sql = "SELECT max(passes) FROM txn.geo_resolver()";
        let before = int(&mut client, sql)?;
        until(&mut client, "the resolver has looked", |client| {
            Ok(int(client, sql)? >= before + passes)
        })
    }

    /// Waits until nothing is in doubt any more, at the nodes and at the coordinator.
    pub fn wait_until_resolved(&self) -> Result<()> {
        self.dog.progress();
        let mut client = self.coordinator.connect()?;
        until(&mut client, "nothing is prepared and decided", |client| {
            let left = int(client, "SELECT count(*) FROM txn.geo_decision")?;
            Ok(left == 0 && self.prepared()?.is_empty())
        })
        .with_context(|| format!("prepared: {:?}", self.prepared()))?;
        self.dog.progress();
        Ok(())
    }

    /// Waits until at least one of ours is prepared at that node.
    pub fn wait_until_prepared(&self, node: usize) -> Result<()> {
        let mut client = self.nodes[node].connect()?;
        until(&mut client, "a transaction is prepared", |_| {
            Ok(self.prepared()?.iter().any(|(at, _)| *at == node))
        })
    }

    /// After all transactions have ended: the numbers of those that have committed. An error if
    /// one has committed at some places only, or if money is lost.
    pub fn committed(&self) -> Result<BTreeSet<i64>> {
        self.wait_until_resolved()?;
        self.all_or_nothing()
    }

    /// What `committed` gives, of what there is now.
    pub fn all_or_nothing(&self) -> Result<BTreeSet<i64>> {
        let ledger = numbers(&mut self.coordinator.connect()?, "ledger")?;
        for (number, node) in self.nodes.iter().enumerate().take(2) {
            let trace = numbers(&mut node.connect()?, "trace")?;
            let torn: Vec<_> = trace.symmetric_difference(&ledger).take(9).collect();
            ensure!(
                torn.is_empty(),
                "transactions {torn:?} have committed either at node {number} or at the \
                 coordinator, not at both"
            );
        }
        let sum = self.balance_sum_at_nodes()?;
        let right = NODE_SUM * self.nodes.len() as i64;
        ensure!(sum == right, "the balances are {sum} in all, not {right}");
        Ok(ledger)
    }

    /// Fails unless the transfers that have committed are exactly these.
    pub fn expect_committed(&self, expected: &[i64]) -> Result<()> {
        let found = self.committed()?;
        ensure!(
            found.iter().eq(expected),
            "{found:?} have committed, not {expected:?}"
        );
        Ok(())
    }
}

fn numbers(client: &mut Client, table: &str) -> Result<BTreeSet<i64>> {
    let rows = client.query(&format!("SELECT number FROM {table}"), &[])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The statements of a transfer from node 0 to node 1, which leaves its number at both and at the
/// coordinator.
pub fn transfer(number: i64) -> String {
    let row = number % 10;
    format!(
        "UPDATE account SET balance = balance - 1 WHERE id = {row};
         INSERT INTO trace_0 VALUES ({number});
         UPDATE account SET balance = balance + 1 WHERE id = 1000 + {row};
         INSERT INTO trace_1 VALUES ({number});
         INSERT INTO ledger VALUES ({number})"
    )
}

/// A session with what it is told beside the results: severity, SQLSTATE and message.
pub fn listening(server: &Server) -> Result<(Client, Notices)> {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&notices);
    let mut config = server.config("postgres", "postgres");
    config.notice_callback(move |notice| {
        let code = notice.code().code();
        let line = format!("{} {code} {}", notice.severity(), notice.message());
        told.lock().expect("nobody panics with it").push(line);
    });
    Ok((config.connect(NoTls)?, notices))
}
