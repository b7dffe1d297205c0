//! The tables of a workload over the nodes, and what must hold for them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pgserver::PgInstall;

use super::cluster::{Cluster, Layout};
use super::load::{Clock, Watch};
use super::place::At;
use super::workload::{Schema, Sizes};

/// How long we look at what the coordinators send without any client.
const IDLE: Duration = Duration::from_secs(1);

pub struct Site {
    pub cluster: Cluster,
    pub sizes: Sizes,
    /// Round-trip times where a place has no others.
    rtt: Vec<Vec<f64>>,
}

impl Site {
    /// Starts all servers, with the library of that folder if it is not the installed one, and
    /// fills the tables.
    pub fn start(
        install: &PgInstall,
        library_dir: Option<&Path>,
        layout: &Layout,
        sizes: Sizes,
        schemas: &[&Schema],
    ) -> Result<Self> {
        let site = Self {
            cluster: Cluster::start(install, library_dir, layout)?,
            sizes,
            rtt: layout.rtt.to_vec(),
        };
        for schema in schemas {
            let made = site.create(schema);
            made.with_context(|| format!("making the tables of {}", schema.name))?;
        }
        Ok(site)
    }

    fn create(&self, schema: &Schema) -> Result<()> {
        for (number, node) in self.cluster.nodes().iter().enumerate() {
            node.psql(&(self.sizes.variables(number) + schema.fill))?;
        }
        let tables = foreign_tables(schema, &self.sizes);
        for coordinator in self.cluster.coordinators() {
            coordinator?.batch_execute(&tables)?;
        }
        Ok(())
    }

    /// Makes lines and nodes what the place wants.
    pub fn arrange(&self, at: &At) -> Result<()> {
        self.cluster.set_rtt(&at.round_trips(&self.rtt), at.jitter);
        if let Some(on) = at.group_lock {
            for node in self.cluster.nodes() {
                let value = if on { "on" } else { "off" };
                let set = format!("ALTER SYSTEM SET txn.group_lock = {value}");
                node.connect()?.batch_execute(&set)?;
                node.reload()?;
            }
        }
        Ok(())
    }

    /// Gives each node the round trip of the next one, as often as the place says, until the run is
    /// over.
    pub fn change(&self, at: &At, clock: &Clock) {
        let mut rtt = at.round_trips(&self.rtt);
        let every = Duration::from_secs(at.change);
        let mut next = clock.begin + every;
        while !every.is_zero() && clock.wait(next) {
            rtt.iter_mut().for_each(|one| one.rotate_left(1));
            self.cluster.set_rtt(&rtt, at.jitter);
            next += every;
        }
    }

    /// Removes what the run before has left behind of old row versions. The books of all nodes, one
    /// node after the other.
    pub fn reset(&self, schema: &Schema) -> Result<Vec<i64>> {
        let names: Vec<&str> = schema.tables.iter().map(|table| table.name).collect();
        for node in self.cluster.nodes() {
            let vacuum = format!("VACUUM {}", names.join(", "));
            node.connect()?.batch_execute(&vacuum)?;
        }
        self.books(schema)
    }

    fn books(&self, schema: &Schema) -> Result<Vec<i64>> {
        let mut books = Vec::new();
        for node in self.cluster.nodes() {
            let row = node.connect()?.query_one(schema.books, &[])?;
            books.extend((0..row.len()).map(|column| row.get::<_, i64>(column)));
        }
        Ok(books)
    }

    /// After a run: waits until nothing is in doubt, and fails unless the books have grown by what
    /// was acknowledged.
    pub fn check(&self, schema: &Schema, before: &[i64], effects: &[i64]) -> Result<()> {
        self.cluster.settle()?;
        compare(schema.columns, before, &self.books(schema)?, effects)
    }

    /// What is watched of its nodes while clients run; held rows `every` so often.
    pub fn watch(&self, schema: &Schema, every: Duration) -> Watch<'_> {
        let (table, key) = schema.held;
        Watch {
            cluster: &self.cluster,
            table,
            key,
            every,
        }
    }

    /// Bursts to each node in a second without clients: the coordinators' own.
    pub fn idle_bursts(&self) -> Vec<f64> {
        let before = self.cluster.bursts();
        let began = Instant::now();
        std::thread::sleep(IDLE);
        let seconds = began.elapsed().as_secs_f64();
        let after = self.cluster.bursts().into_iter();
        let bursts = after.zip(before).map(|(after, before)| after - before);
        bursts.map(|bursts| bursts as f64 / seconds).collect()
    }
}

/// Fails unless the books of all nodes, which have these columns, have grown by what was
/// acknowledged.
fn compare(columns: &[&str], before: &[i64], after: &[i64], effects: &[i64]) -> Result<()> {
    ensure!(
        before.len() == after.len() && effects.len() <= after.len(),
        "there are {} figures of {} nodes",
        after.len(),
        before.len() / columns.len().max(1)
    );
    let mut wrong = Vec::new();
    for (at, (before, after)) in before.iter().zip(after).enumerate() {
        let (found, told) = (after - before, effects.get(at).copied().unwrap_or(0));
        if found != told {
            let (node, column) = (at / columns.len(), columns[at % columns.len()]);
            wrong.push(format!(
                "node {node}, {column}: {found}, and {told} by what was acknowledged"
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

/// The tables as a coordinator has them: those of txn_fdw in `public`, those of postgres_fdw in
/// `stock`.
fn foreign_tables(schema: &Schema, sizes: &Sizes) -> String {
    let mut sql = String::new();
    for table in schema.tables {
        let name = table.name;
        let first = table.key.split(',').next().unwrap_or(table.key);
        for (folder, server, options) in [
            ("public", "node", format!(", key '{}'", table.key)),
            ("stock", "stock", String::new()),
        ] {
            sql += &format!(
                "CREATE TABLE {folder}.{name} ({}) PARTITION BY RANGE ({first});\n",
                table.columns
            );
            for node in 0..sizes.nodes as i64 {
                let width = (table.width)(sizes);
                let (from, to) = (node * width, (node + 1) * width);
                sql += &format!(
                    "CREATE FOREIGN TABLE {folder}.{name}_{node} PARTITION OF {folder}.{name} \
                     FOR VALUES FROM ({from}) TO ({to}) SERVER {server}{node} \
                     OPTIONS (schema_name 'public', table_name '{name}', \
                     batch_size '100'{options});\n"
                );
            }
        }
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::workload::Kind;

    const COLUMNS: [&str; 2] = ["updates", "orders"];

    #[test]
    fn books_must_grow_by_what_was_acknowledged() {
        let before = [5, 7, 100, 0];
        let after = [6, 7, 103, 2];
        compare(&COLUMNS, &before, &after, &[1, 0, 3, 2]).unwrap();
        // Nothing was acknowledged at the second node.
        assert!(compare(&COLUMNS, &before, &after, &[1]).is_err());
    }

    #[test]
    fn planted_errors_are_found() {
        let (before, after, told) = ([0; 4], [10, 2, 10, 2], [10, 2, 10, 2]);
        compare(&COLUMNS, &before, &after, &told).unwrap();
        let mut lost = after;
        lost[3] -= 1;
        let error = compare(&COLUMNS, &before, &lost, &told).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node 1, orders: 1, and 2 by what was acknowledged"
        );
        let mut twice = after;
        twice[0] += 1;
        assert!(compare(&COLUMNS, &before, &twice, &told).is_err());
        // One node has it and the other does not: the sum over the nodes is right.
        let moved = [11, 2, 9, 2];
        assert!(compare(&COLUMNS, &before, &moved, &told).is_err());
        assert!(compare(&COLUMNS, &before, &after[..2], &told).is_err());
    }

    #[test]
    fn partitions_have_the_rows_of_their_nodes() {
        let sizes = Sizes {
            nodes: 2,
            rows: 1000,
            warehouses: 3,
        };
        let sql = foreign_tables(Kind::Ycsb.schema(), &sizes);
        for part in [
            "public.usertable_1 PARTITION OF public.usertable FOR VALUES FROM (1000) TO (2000) \
             SERVER node1",
            "stock.usertable_0 PARTITION OF stock.usertable FOR VALUES FROM (0) TO (1000) \
             SERVER stock0",
        ] {
            assert!(sql.contains(part), "{sql}");
        }
        let sql = foreign_tables(Kind::Payment.schema(), &sizes);
        assert!(
            sql.contains("warehouse_1 PARTITION OF public.warehouse FOR VALUES FROM (3) TO (6)")
        );
        assert!(sql.contains("PARTITION BY RANGE (o_d_id);"));
    }
}
