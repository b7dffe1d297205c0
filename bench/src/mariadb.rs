//! MariaDB as a site: a server of our own from the machine's packages, driven by sysbench.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use pgserver::ServerUser;

use super::catalog::System;
use super::pgbench::{Load, Outcome};
use super::running::print_to;
use super::sample::Sample;
use super::scratch::Scratch;
use super::site::{Description, Findings, Site};
use super::sysbench;
use super::workload::{HOT_ROWS, Workload};

const SCRIPT: &str = include_str!("../hot-row.lua");

/// What makes it comparable: durable at commit, in memory, no binary log, room in the redo log.
const SETTINGS: &[(&str, &str)] = &[
    ("innodb_flush_log_at_trx_commit", "1"),
    ("innodb_buffer_pool_size", "512M"),
    ("innodb_log_file_size", "2G"),
    ("skip_log_bin", "ON"),
    ("skip_networking", "ON"),
];

/// How long the first start may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct MariaDbSite {
    user: ServerUser,
    server: Child,
    folder: Scratch,
}

impl MariaDbSite {
    /// Starts a server for up to `clients` clients.
    pub fn start(clients: usize) -> anyhow::Result<Self> {
        let (mariadbd, install_db) = (program("mariadbd")?, program("mariadb-install-db")?);
        let user = ServerUser::choose()?;
        let folder = Scratch::on_disk(&user)?;
        let data = format!("--datadir={}", folder.path().join("data").display());
        let mut install = Command::new(install_db);
        install.args([
            "--no-defaults",
            &data,
            "--auth-root-authentication-method=normal",
        ]);
        let output = user
            .apply(install.args(["--skip-test-db"]).current_dir("/"))
            .output()?;
        ensure!(
            output.status.success(),
            "mariadb-install-db failed: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        // setpriv: it must not outlive us, however we end.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM"])
            .arg(mariadbd)
            .args(["--no-defaults", &data]);
        command
            .arg(socket_option(&folder))
            .arg(format!("--max-connections={}", clients + 20));
        command.arg(format!(
            "--pid-file={}",
            folder.path().join("pid").display()
        ));
        command.args(
            SETTINGS
                .iter()
                .map(|(name, value)| format!("--{name}={value}")),
        );
        print_to(command.current_dir("/"), &folder.path().join("log"))?;
        let server = user
            .apply(&mut command)
            .spawn()
            .context("cannot run setpriv mariadbd")?;
        let mut site = Self {
            user,
            server,
            folder,
        };
        site.wait_until_ready()?;
        site.sql("", "CREATE DATABASE bench")?;
        site.sql(
            "bench",
            &format!(
                "CREATE TABLE hot (id int PRIMARY KEY, val bigint NOT NULL DEFAULT 0);
                 INSERT INTO hot SELECT seq, 0 FROM seq_1_to_{HOT_ROWS};"
            ),
        )?;
        Ok(site)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while let Err(error) = self.sql("", "SELECT 1") {
            let ended = self.server.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                let log = fs::read_to_string(self.folder.path().join("log"))?;
                bail!("MariaDB does not start ({error:#}). Its log:\n{log}");
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Runs statements; what they return, without headers.
    fn sql(&self, database: &str, sql: &str) -> anyhow::Result<String> {
        let output = Command::new(program("mariadb")?)
            .args([
                "--no-defaults",
                "--user=root",
                "--batch",
                "--skip-column-names",
            ])
            .arg(socket_option(&self.folder))
            .args(["--execute", sql, database])
            .output()?;
        ensure!(
            output.status.success(),
            "MariaDB refused: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    fn number(&self, sql: &str) -> anyhow::Result<i64> {
        self.sql("bench", sql)?
            .parse()
            .with_context(|| format!("reading \"{sql}\""))
    }
}

impl Drop for MariaDbSite {
    fn drop(&mut self) {
        // Its data goes with it: no orderly shutdown.
        self.server.kill().and_then(|()| self.server.wait()).ok();
    }
}

impl Site for MariaDbSite {
    fn system(&self) -> System {
        System::MariaDb
    }

    fn describe(&mut self) -> anyhow::Result<Description> {
        let settings = SETTINGS
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        Ok(Description {
            system: "MariaDB",
            version: self.sql("", "SELECT version()")?,
            build: None,
            settings: BTreeMap::from_iter(settings),
        })
    }

    fn reset(&mut self, _workload: &Workload, _load: &Load) -> anyhow::Result<()> {
        self.sql("bench", "UPDATE hot SET val = 0 WHERE val <> 0")?;
        Ok(())
    }

    fn run(&mut self, load: &Load, _watch: &mut dyn FnMut(Sample)) -> anyhow::Result<Outcome> {
        let scratch = Scratch::new(&self.user)?;
        let script = scratch.path().join("hot-row.lua");
        fs::write(&script, SCRIPT)?;
        let mut sysbench = sysbench::command(script, load)?;
        sysbench
            .args(["--db-driver=mysql", "--mysql-user=root", "--mysql-db=bench"])
            .arg(format!("--mysql-{}", &socket_option(&self.folder)[2..]))
            .args([&format!("--spread={}", u8::from(load.spread)), "run"]);
        self.user.apply(&mut sysbench);
        sysbench::run(sysbench, &scratch, load, &mut || Ok(()))
    }

    fn inspect(&mut self, workload: &Workload) -> anyhow::Result<Findings> {
        ensure!(
            workload.name == "hot-row",
            "MariaDB only runs the workload hot-row"
        );
        Ok(Findings {
            effect: self.number("SELECT sum(val) FROM hot")?,
            imbalance: 0,
            rows_by_index: self.number("SELECT count(*) FROM hot FORCE INDEX (PRIMARY)")?,
            rows_by_scan: self.number("SELECT count(*) FROM hot")?,
            books: Vec::new(),
            conditions: Vec::new(),
            counters: BTreeMap::new(),
        })
    }
}

fn socket_option(folder: &Scratch) -> String {
    format!("--socket={}", folder.path().join("socket").display())
}

/// Fails when a package is missing.
pub fn check_installed() -> anyhow::Result<()> {
    for name in ["mariadbd", "mariadb-install-db", "mariadb", "sysbench"] {
        program(name)?;
    }
    Ok(())
}

fn program(name: &str) -> anyhow::Result<PathBuf> {
    sysbench::program(name, "mariadb-server sysbench")
}
