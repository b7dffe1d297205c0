//! The paper's baseline: ShardingSphere-JDBC with XA transactions, driven by a client in Java
//! (`bench/geo/xa`). Maven fetches the libraries, into the cache.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pgserver::{cache_dir, lock_file, make_readable_dir};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::cluster::LOCK_OPTION;
use super::draws::Draws;
use super::load::{Clock, Seen, Watched};
use super::place::At;
use super::session::random;
use super::site::Site;
use super::transaction::Transaction;
use super::workload::{Kind, Schema, Sizes};
use crate::running::Running;
use tooling::tools::output;

const LIBRARIES: &str = include_str!("../../geo/xa/pom.xml");
const CLIENT: &str = include_str!("../../geo/xa/GeoXa.java");
const LOGGING: &str = include_str!("../../geo/xa/logback.xml");

/// A client has so many transactions, and begins again after the last one.
const YCSB_TRANSACTIONS: usize = 1000;
const TPCC_TRANSACTIONS: usize = 200;

/// The compiled client, with its libraries.
pub struct Xa {
    class_path: String,
}

/// Clients that are connected and run.
pub struct Clients<'a> {
    // Before the folder: it writes there.
    process: Running,
    lines: Lines<BufReader<ChildStdout>>,
    folder: TempDir,
    transactions: &'a [Vec<Transaction>],
    columns: usize,
}

impl Xa {
    /// Fetches and compiles what is not in the cache.
    pub fn prepare() -> Result<Self> {
        let digest = Sha256::digest([LIBRARIES, CLIENT, LOGGING].concat());
        let name: String = digest[..6].iter().fold(String::new(), |mut name, byte| {
            // Writing into a string does not fail.
            let _ = write!(name, "{byte:02x}");
            name
        });
        let home = cache_dir().join("geo-xa");
        let folder = home.join(name);
        let _lock = lock_file(&home.join("lock"))?;
        let (libraries, classes) = (folder.join("lib"), folder.join("classes"));
        let done = folder.join("done");
        if !done.exists() {
            make_readable_dir(&classes)?;
            fs::write(folder.join("pom.xml"), LIBRARIES)?;
            fs::write(folder.join("GeoXa.java"), CLIENT)?;
            fs::write(classes.join("logback.xml"), LOGGING)?;
            println!("fetching ShardingSphere with Maven");
            output(
                Command::new("mvn")
                    .args(["--quiet", "--batch-mode", "dependency:copy-dependencies"])
                    .arg(format!("-DoutputDirectory={}", libraries.display()))
                    .current_dir(&folder),
                "it fetches ShardingSphere (Debian: apt install maven)",
            )?;
            output(
                Command::new("javac")
                    .arg("-cp")
                    .arg(libraries.join("*"))
                    .arg("-d")
                    .arg(&classes)
                    .arg("GeoXa.java")
                    .current_dir(&folder),
                "it compiles ShardingSphere's client (Debian: apt install default-jdk-headless)",
            )?;
            fs::write(done, "")?;
        }
        Ok(Self {
            class_path: format!("{}:{}/*", classes.display(), libraries.display()),
        })
    }

    /// Runs the clients of a place; `during` gets them when they are connected and the clock runs.
    pub fn run(
        &self,
        site: &Site,
        at: &At,
        round: usize,
        (warm_up, time): (Duration, Duration),
        during: impl FnOnce(&Clock, Clients) -> Result<(Seen, Watched)>,
    ) -> Result<(Seen, Watched)> {
        let folder = tempfile::Builder::new().prefix("txn-xa-").tempdir()?;
        let clients = folder.path().join("clients");
        fs::create_dir(&clients)?;
        let transactions = draw(at, &site.sizes, round)?;
        for (client, transactions) in transactions.iter().enumerate() {
            let mut text = String::new();
            for transaction in transactions {
                transaction.write(&mut text);
            }
            fs::write(clients.join(client.to_string()), text)?;
        }
        let schema = at.kind.schema();
        let configuration = folder.path().join("configuration.yaml");
        fs::write(&configuration, configure(site, schema, at.clients))?;
        // Its pools connect one session after the other.
        for line in site.cluster.direct() {
            line.set_delay(Duration::ZERO);
            line.set_jitter(Duration::ZERO);
        }
        let errors = fs::File::create(folder.path().join("errors"))?;
        let mut process = Running(
            Command::new("java")
                .args(properties(folder.path()))
                .arg("-cp")
                .arg(&self.class_path)
                .arg("GeoXa")
                .arg(&configuration)
                .arg(&clients)
                .current_dir(folder.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(errors)
                .spawn()
                .context("cannot run java")?,
        );
        let stdout = process.0.stdout.take().context("no standard output")?;
        let mut clients = Clients {
            lines: BufReader::new(stdout).lines(),
            process,
            folder,
            transactions: &transactions,
            columns: schema.columns.len(),
        };
        while clients.line()? != "ready" {}
        site.arrange(at)?;
        let clock = Clock::start(warm_up, time);
        let stdin = clients.process.0.stdin.as_mut().context("no input")?;
        writeln!(stdin, "{} {}", warm_up.as_millis(), time.as_millis())?;
        during(&clock, clients)
    }
}

impl Clients<'_> {
    /// Waits for the end of all clients.
    pub fn finish(mut self) -> Result<Seen> {
        let mut seen = Seen::nothing()?;
        let mut client = 0;
        loop {
            let line = self.line()?;
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["acknowledged", count] => {
                    let count = count.parse()?;
                    seen.add_effects(&effects(&self.transactions[client], count, self.columns));
                    client += 1;
                }
                ["transactions", count] => seen.transactions += count.parse::<u64>()?,
                ["refused", code, times] => seen.refused(code.to_owned(), times.parse()?),
                ["latency", microseconds] => {
                    seen.latency.saturating_record(microseconds.parse()?);
                }
                ["failed", why] => bail!("ShardingSphere's client: {why}"),
                ["end"] => break,
                _ => {}
            }
        }
        ensure!(
            client == self.transactions.len(),
            "not all clients have ended"
        );
        let status = self.process.0.wait()?;
        ensure!(
            status.success(),
            "ShardingSphere's client ended with {status}"
        );
        Ok(seen)
    }

    /// The next line that it prints.
    fn line(&mut self) -> Result<String> {
        if let Some(line) = self.lines.next() {
            return Ok(line?);
        }
        let errors = fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default();
        let first: Vec<&str> = errors.lines().take(20).collect();
        bail!("ShardingSphere's client has ended:\n{}", first.join("\n"))
    }
}

/// The transactions of each client, drawn as for all others.
fn draw(at: &At, sizes: &Sizes, round: usize) -> Result<Vec<Vec<Transaction>>> {
    let count = match at.kind {
        Kind::Ycsb => YCSB_TRANSACTIONS,
        Kind::Payment | Kind::NewOrder => TPCC_TRANSACTIONS,
    };
    let of = |client| {
        let draws = Draws::new(at, sizes, client)?;
        let mut rng = random(round, client);
        Ok((0..count).map(|_| draws.draw(&mut rng)).collect())
    };
    (0..at.clients).map(of).collect()
}

/// What a client must have added to the books that has run so many of its transactions, again from
/// the first after the last.
fn effects(transactions: &[Transaction], count: usize, columns: usize) -> Vec<i64> {
    let mut books = Vec::new();
    for transaction in transactions.iter().cycle().take(count) {
        transaction.apply(&mut books, columns);
    }
    books
}

/// Of Java: Atomikos logs in the folder, and gives transactions the time that locks may take. The
/// pools of connections do not ask whether one still works, which would be a round trip.
fn properties(folder: &Path) -> [String; 7] {
    let atomikos = |name: &str, value: &str| format!("-Dcom.atomikos.icatch.{name}={value}");
    let log: PathBuf = folder.join("atomikos");
    [
        "-Xmx2g".to_owned(),
        "-Dcom.zaxxer.hikari.aliveBypassWindowMs=3600000".to_owned(),
        atomikos("log_base_dir", &log.display().to_string()),
        atomikos("max_actives", "-1"),
        atomikos("default_jta_timeout", "120000"),
        atomikos("max_timeout", "120000"),
        atomikos("enable_logging", "true"),
    ]
}

/// ShardingSphere's configuration: the nodes behind their lines, and the tables over them.
fn configure(site: &Site, schema: &Schema, clients: usize) -> String {
    let mut yaml = "mode:\n  type: Standalone\ndataSources:\n".to_owned();
    for (node, line) in site.cluster.direct().iter().enumerate() {
        let socket = line.host().join(format!(".s.PGSQL.{}", line.port()));
        yaml += &source(node, &socket, clients);
    }
    yaml + &rules(schema, &site.sizes)
}

fn source(node: usize, socket: &Path, clients: usize) -> String {
    let options = LOCK_OPTION.replace(' ', "%20");
    format!(
        "  node{node}:
    dataSourceClassName: com.zaxxer.hikari.HikariDataSource
    driverClassName: org.postgresql.Driver
    jdbcUrl: \"jdbc:postgresql://localhost/postgres?sslmode=disable&gssEncMode=disable\
&socketFactory=org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg&socketFactoryArg={}\
&options={options}\"
    username: postgres
    password: \"\"
    minimumIdle: {clients}
    maximumPoolSize: {clients}
",
        socket.display(),
    )
}

fn rules(schema: &Schema, sizes: &Sizes) -> String {
    let last = sizes.nodes - 1;
    let mut yaml = "rules:\n- !SHARDING\n  tables:\n".to_owned();
    for table in schema.tables {
        let name = table.name;
        let column = table.key.split(',').next().unwrap_or(table.key);
        yaml += &format!(
            "    {name}:
      actualDataNodes: node$->{{0..{last}}}.{name}
      databaseStrategy:
        standard:
          shardingColumn: {column}
          shardingAlgorithmName: by_{name}
"
        );
    }
    yaml += "  shardingAlgorithms:\n";
    for table in schema.tables {
        let name = table.name;
        let column = table.key.split(',').next().unwrap_or(table.key);
        let width = (table.width)(sizes);
        yaml += &format!(
            "    by_{name}:
      type: INLINE
      props:
        algorithm-expression: node$->{{{column}.intdiv({width}L)}}
"
        );
    }
    yaml + "- !TRANSACTION\n  defaultType: XA\n  providerType: Atomikos\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::place::DEFAULT;

    const SIZES: Sizes = Sizes {
        nodes: 4,
        rows: 1000,
        warehouses: 2,
    };

    #[test]
    fn effects_go_on_with_the_first_after_the_last() {
        let at = At {
            clients: 2,
            ..DEFAULT
        };
        let drawn = draw(&at, &SIZES, 1).unwrap();
        assert_eq!((drawn.len(), drawn[0].len()), (2, YCSB_TRANSACTIONS));
        let two = &drawn[0][..2];
        let sum = |count| effects(two, count, 2).iter().sum::<i64>();
        let writes = |one: &Transaction| one.effects.len() as i64;
        assert_eq!(sum(1), writes(&two[0]));
        assert_eq!(sum(5), 3 * writes(&two[0]) + 2 * writes(&two[1]));
        assert_eq!(sum(0), 0);
    }

    #[test]
    fn tables_are_divided_as_at_a_coordinator() {
        let yaml = rules(Kind::Payment.schema(), &SIZES);
        assert!(yaml.contains("actualDataNodes: node$->{0..3}.district"));
        assert!(yaml.contains("algorithm-expression: node$->{d_id.intdiv(20L)}"));
        assert!(yaml.contains("shardingColumn: o_d_id\n"));
        assert!(yaml.contains("defaultType: XA"));
        let source = source(2, Path::new("/tmp/x/.s.PGSQL.5433"), 64);
        assert!(source.contains("socketFactoryArg=/tmp/x/.s.PGSQL.5433&options=-c%20lock"));
    }
}
