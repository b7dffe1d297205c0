//! Statements on tables at the nodes and on local twins of them, and what comes of both.
use std::fmt::Write;
use std::io::Read;

use anyhow::{Result, ensure};
use postgres::{Client, Error, SimpleQueryMessage};
use txn_server_tests::sqlstate;

use super::{Cluster, Settings};

/// The differences of a script that are shown.
const SHOWN: usize = 10;

/// A session whose tables are at the nodes, and one whose tables are local.
pub struct Twin {
    pub cluster: Cluster,
    pub far: Client,
    pub near: Client,
}

impl Twin {
    pub fn start() -> Result<Self> {
        Self::on(Cluster::start(2)?, "")
    }

    /// With options that are added to all servers, each like `ADD fetch_size '3'`.
    pub fn with_options(options: &[&str]) -> Result<Self> {
        let alter = |option: &&str| {
            (0..2).fold(String::new(), |mut sql, node| {
                let _ = write!(sql, "ALTER SERVER node{node} OPTIONS ({option});");
                sql
            })
        };
        let sql: String = options.iter().map(alter).collect();
        Self::on(Cluster::start(2)?, &sql)
    }

    /// With settings of the session whose tables are at the nodes.
    pub fn with_settings(settings: Settings) -> Result<Self> {
        let mut twin = Self::start()?;
        for (name, value) in settings {
            twin.far.batch_execute(&format!("SET {name} = {value}"))?;
        }
        Ok(twin)
    }

    /// Creates the tables; `sql` is run in the coordinator first.
    pub fn on(cluster: Cluster, sql: &str) -> Result<Self> {
        for node in &cluster.nodes {
            let mut client = node.connect()?;
            client.batch_execute(include_str!("scripts/twin_node.sql"))?;
        }
        let mut control = cluster.session()?;
        control.batch_execute(sql)?;
        let keys = "SELECT count(*) = 0 FROM pg_foreign_data_wrapper WHERE fdwname = 'txn_fdw'";
        let without_keys: bool = control.query_one(keys, &[])?.get(0);
        let tables = match without_keys {
            true => include_str!("scripts/twin.sql").replace(", key 'id'", ""),
            false => include_str!("scripts/twin.sql").to_owned(),
        };
        control.batch_execute(&tables)?;
        let session = |schema: &str| -> Result<Client> {
            let mut client = cluster.session()?;
            client.batch_execute(&format!("SET search_path = {schema}, public"))?;
            Ok(client)
        };
        Ok(Twin {
            far: session("far")?,
            near: session("near")?,
            cluster,
        })
    }

    /// Runs the script in both sessions; an error shows each statement of which something else
    /// came.
    pub fn play(&mut self, script: &str) -> Result<()> {
        let mut differences = Vec::new();
        for sql in statements(script) {
            self.cluster.dog.progress();
            let near = told(&mut self.near, &sql);
            let far = told(&mut self.far, &sql);
            if near.0 != far.0 {
                differences.push(format!(
                    "{sql}\n  local:\n{} {}\n  at the nodes:\n{} {}",
                    near.0, near.1, far.0, far.1
                ));
            }
        }
        ensure!(
            differences.is_empty(),
            "{} statements differ:\n{}",
            differences.len(),
            differences[..differences.len().min(SHOWN)].join("\n\n")
        );
        Ok(())
    }
}

/// Statements end with a semicolon at the end of a line that is in no `$$` text.
pub fn statements(script: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut sql = String::new();
    for line in script.lines().filter(|line| !line.starts_with("--")) {
        sql += line;
        sql.push('\n');
        if line.ends_with(';') && sql.matches("$$").count().is_multiple_of(2) {
            found.push(std::mem::take(&mut sql).trim().to_owned());
        }
    }
    assert!(sql.trim().is_empty(), "a statement has no end: {sql}");
    found
}

/// What a statement gives: its rows, sorted if it does not order them, and its tag, or its
/// SQLSTATE; and the text of an error, which names other constraints at a node.
fn told(client: &mut Client, sql: &str) -> (String, String) {
    let answer = match sql.starts_with("COPY") {
        true => copied(client, sql),
        false => client.simple_query(sql).map(|messages| lines(&messages)),
    };
    match answer {
        Err(error) => {
            let text = error.to_string();
            (format!("ERROR {}", sqlstate::<()>(&Err(error))), text)
        }
        Ok(mut lines) => {
            if !sql.contains("ORDER BY") && !sql.starts_with("FETCH") {
                lines.sort();
            }
            (lines.join("\n"), String::new())
        }
    }
}

fn lines(messages: &[SimpleQueryMessage]) -> Vec<String> {
    let line = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            let cells = (0..row.len()).map(|cell| row.get(cell).unwrap_or("NULL"));
            Some(cells.collect::<Vec<_>>().join("|"))
        }
        SimpleQueryMessage::CommandComplete(rows) => Some(format!("({rows})")),
        _ => None,
    };
    messages.iter().filter_map(line).collect()
}

/// What COPY TO STDOUT gives.
fn copied(client: &mut Client, sql: &str) -> Result<Vec<String>, Error> {
    let mut text = String::new();
    let read = client.copy_out(sql)?.read_to_string(&mut text);
    let lines = text.lines().map(str::to_owned);
    Ok(lines
        .chain(read.err().map(|error| error.to_string()))
        .collect())
}
