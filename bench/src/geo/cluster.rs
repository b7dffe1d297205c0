//! Coordinators, and the nodes behind their lines.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pgserver::{Line, PgInstall, Server, ServerOptions};
use postgres::{Client, Config};
use txn_server_tests::int;

use crate::catalog::System;
use crate::postgres_site::describe;
use crate::site::Description;

/// How long nodes may take after a run until nothing is in doubt any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Locks end as they do with txn_fdw, whose setting txn.geo_lock_timeout other clients do not know.
pub const LOCK_OPTION: &str = "-c lock_timeout=5s";

/// What is started.
pub struct Layout<'a> {
    pub clients: usize,
    /// Round-trip times in milliseconds: for each coordinator, one to each node.
    pub rtt: &'a [Vec<f64>],
    /// Nodes have the extension, too.
    pub nodes_have_library: bool,
}

pub struct Cluster {
    coordinators: Vec<Coordinator>,
    /// Of clients that go to the nodes by themselves, from where the first coordinator is.
    direct: Vec<Line>,
    nodes: Vec<Server>,
}

/// A coordinator, and its lines to the nodes.
struct Coordinator {
    lines: Vec<Line>,
    server: Server,
}

impl Cluster {
    /// Starts all servers. Each coordinator knows node `n` as server `node<n>` of txn_fdw and as
    /// server `stock<n>` of postgres_fdw.
    pub fn start(install: &PgInstall, library_dir: Option<&Path>, layout: &Layout) -> Result<Self> {
        let connections = 2 * layout.clients + 30;
        let with_library = || ServerOptions {
            library_dir: library_dir.map(Path::to_owned),
            ..ServerOptions::default()
        };
        let node = match layout.nodes_have_library {
            true => with_library(),
            false => ServerOptions::stock(),
        };
        let node = node
            .set("max_connections", connections)
            .set("max_prepared_transactions", connections)
            .set("track_commit_timestamp", "on")
            // All rows of a statement are locked in the order of their keys.
            .set("enable_bitmapscan", "off")
            .set("enable_seqscan", "off");
        let nodes = layout.rtt.first().map_or(0, Vec::len);
        let nodes = (0..nodes).map(|_| Server::start(install, node.clone()));
        let nodes: Vec<Server> = nodes.collect::<Result<_>>()?;
        let coordinator = |rtt: &Vec<f64>| -> Result<Coordinator> {
            let options = with_library().set("max_connections", connections);
            let coordinator = Coordinator {
                lines: lines(&nodes, rtt)?,
                server: Server::start(install, options)?,
            };
            coordinator.create_servers()?;
            Ok(coordinator)
        };
        let coordinators = layout.rtt.iter().map(coordinator);
        Ok(Self {
            coordinators: coordinators.collect::<Result<_>>()?,
            direct: match layout.rtt.first() {
                Some(rtt) => lines(&nodes, rtt)?,
                None => Vec::new(),
            },
            nodes,
        })
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// How the client of that number connects to its coordinator, when so many coordinators are in
    /// use.
    pub fn config(&self, client: usize, in_use: usize) -> Config {
        let coordinator = &self.coordinators[client % in_use.clamp(1, self.coordinators.len())];
        coordinator.server.config("postgres", "postgres")
    }

    /// Superusers' connections to all coordinators.
    pub fn coordinators(&self) -> impl Iterator<Item = Result<Client>> {
        self.coordinators.iter().map(|one| one.server.connect())
    }

    /// The lines of clients that go to the nodes by themselves, from the first coordinator's place.
    pub fn direct(&self) -> &[Line] {
        &self.direct
    }

    /// From now on these are the round-trip times in milliseconds, and each way takes up to so many
    /// percent longer, by chance.
    pub fn set_rtt(&self, rtt: &[Vec<f64>], jitter: u32) {
        let direct = rtt.first().map(|rtt| (&self.direct, rtt));
        let lines = self.coordinators.iter().map(|one| &one.lines).zip(rtt);
        for (lines, rtt) in lines.chain(direct) {
            for (line, rtt) in lines.iter().zip(rtt) {
                line.set_delay(one_way(*rtt));
                line.set_jitter(one_way(*rtt) * jitter / 100);
            }
        }
    }

    /// Bursts to each node, over all lines.
    pub fn bursts(&self) -> Vec<u64> {
        let to = |node: usize| {
            let lines = self.coordinators.iter().map(|one| &one.lines);
            let lines = lines.chain([&self.direct]);
            lines.map(|lines| lines[node].bursts().0).sum()
        };
        (0..self.nodes.len()).map(to).collect()
    }

    /// What the coordinators' extension can be told.
    pub fn abilities(&self) -> Result<Abilities> {
        let coordinator = self.coordinators.first().context("no coordinator")?;
        let rows = coordinator.server.connect()?.query(
            "SELECT name, coalesce(enumvals, '{}') FROM pg_settings WHERE name LIKE 'txn.geo%'",
            &[],
        )?;
        let settings = rows.iter().map(|row| (row.get(0), row.get(1)));
        Ok(Abilities(settings.collect()))
    }

    /// The round trips in milliseconds that the first coordinator has measured, for those nodes of
    /// which it has.
    pub fn believed_rtt(&self) -> Result<Vec<Option<f64>>> {
        let coordinator = self.coordinators.first().context("no coordinator")?;
        let mut client = coordinator.server.connect()?;
        let read = |node| -> Result<Option<f64>> {
            let sql = "SELECT round_trip_ms::float8 FROM txn.geo_nodes WHERE node = $1";
            let row = client.query_opt(sql, &[&format!("node{node}")])?;
            Ok(row.and_then(|row| row.get(0)))
        };
        (0..self.nodes.len()).map(read).collect()
    }

    /// Version and settings, for the record.
    pub fn describe(&self) -> Result<Vec<Description>> {
        let mut all = Vec::new();
        if let Some(coordinator) = self.coordinators.first() {
            let mut one = describe(&mut coordinator.server.connect()?, System::Txn)?;
            one.system = "coordinator: PostgreSQL with txn";
            all.push(one);
        }
        if let Some(node) = self.nodes.first() {
            let mut one = describe(&mut node.connect()?, System::Stock)?;
            one.system = match one.build {
                Some(_) => "each node: PostgreSQL with txn",
                None => "each node: PostgreSQL",
            };
            all.push(one);
        }
        Ok(all)
    }

    /// After a run: waits until nothing is in doubt.
    pub fn settle(&self) -> Result<()> {
        let mut clients: Vec<Client> = self.coordinators().collect::<Result<_>>()?;
        let began = Instant::now();
        loop {
            let mut decided = 0;
            for client in &mut clients {
                client.batch_execute("SELECT txn.geo_wake()")?;
                decided += int(client, "SELECT count(*) FROM txn.geo_decision")?;
            }
            let prepared = self.prepared()?;
            if decided == 0 && prepared == 0 {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{prepared} transactions are still prepared and {decided} decided after {} s",
                PATIENCE.as_secs()
            );
            sleep(Duration::from_millis(50));
        }
    }

    /// Rolls back what other clients than coordinators have prepared at the nodes, once nobody will
    /// end it.
    pub fn roll_back_strangers(&self) -> Result<()> {
        let strangers = "SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts
                         WHERE gid NOT LIKE 'txn/%'";
        for node in &self.nodes {
            let mut client = node.connect()?;
            for row in client.query(strangers, &[])? {
                client.batch_execute(row.get(0))?;
            }
        }
        Ok(())
    }

    fn prepared(&self) -> Result<i64> {
        let count = |client: &mut Client| int(client, "SELECT count(*) FROM pg_prepared_xacts");
        let counts = self.nodes.iter().map(|node| count(&mut node.connect()?));
        counts.sum()
    }
}

impl Coordinator {
    fn create_servers(&self) -> Result<()> {
        let mut sql = "CREATE EXTENSION postgres_fdw; CREATE SCHEMA stock".to_owned();
        for (number, line) in self.lines.iter().enumerate() {
            let place = format!(
                "host '{}', port '{}', dbname 'postgres'",
                line.host().display(),
                line.port()
            );
            sql += &format!(
                "; CREATE SERVER node{number} FOREIGN DATA WRAPPER txn_fdw OPTIONS ({place});
                 CREATE SERVER stock{number} FOREIGN DATA WRAPPER postgres_fdw
                     OPTIONS ({place}, options '{LOCK_OPTION}');
                 CREATE USER MAPPING FOR PUBLIC SERVER node{number} OPTIONS (user 'postgres');
                 CREATE USER MAPPING FOR PUBLIC SERVER stock{number} OPTIONS (user 'postgres')"
            );
        }
        let made = self.server.connect()?.batch_execute(&sql);
        made.with_context(|| sql.clone())
    }
}

fn lines(nodes: &[Server], rtt: &[f64]) -> Result<Vec<Line>> {
    let lines = nodes.iter().zip(rtt);
    lines
        .map(|(node, rtt)| Line::with_delay(node, one_way(*rtt)))
        .collect()
}

fn one_way(rtt: f64) -> Duration {
    Duration::from_secs_f64(rtt / 2000.0)
}

/// The settings of an extension by name, with the values that each may have; none where it may have
/// any.
pub struct Abilities(BTreeMap<String, Vec<String>>);

impl Abilities {
    #[cfg(test)]
    pub fn of(settings: &[(&str, &[&str])]) -> Self {
        let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let settings = settings.iter();
        Self(
            settings
                .map(|(name, values)| ((*name).to_owned(), owned(values)))
                .collect(),
        )
    }

    /// Whether there is that setting, and may have that value.
    pub fn knows(&self, name: &str, value: &str) -> bool {
        let values = self.0.get(name);
        values.is_some_and(|values| {
            values.is_empty() || values.iter().any(|possible| possible == value)
        })
    }
}
