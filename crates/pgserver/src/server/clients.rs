//! How clients reach a server: connections, psql, and other programs.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use postgres::{Client, NoTls};

use super::Server;

/// The superuser and the database of every server.
const SUPERUSER: &str = "postgres";

impl Server {
    /// A superuser's connection to the database `postgres`.
    pub fn connect(&self) -> Result<Client> {
        self.connect_as(SUPERUSER, SUPERUSER)
    }

    /// A connection of role `user` to the database `database`.
    pub fn connect_as(&self, user: &str, database: &str) -> Result<Client> {
        self.config(user, database).connect(NoTls).with_context(|| {
            format!(
                "could not connect as \"{user}\" to \"{database}\" of {}",
                self.describe()
            )
        })
    }

    /// How to connect, for those who need more than `connect` (timeouts, other clients).
    pub fn config(&self, user: &str, database: &str) -> postgres::Config {
        let mut config = Client::configure();
        config
            .host_path(&self.socket_dir)
            .port(self.port)
            .user(user)
            .dbname(database);
        config
    }

    /// Runs `sql` in psql (-XAtq, stops at the first error) and returns what it prints.
    pub fn psql(&self, sql: &str) -> Result<String> {
        let mut psql = self.command("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        psql.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = psql.spawn().context("could not run psql")?;
        let mut stdin = child.stdin.take().context("psql has no standard input")?;
        let text = sql.to_owned();
        // Apart, so that neither side waits for a full pipe; a psql that has stopped reading at
        // an error tells so by its status.
        let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output()?;
        let written = writer.join();
        if !output.status.success() {
            bail!(
                "psql failed: {}",
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
        }
        if !matches!(written, Ok(Ok(()))) {
            bail!("psql did not read all of its input");
        }
        String::from_utf8(output.stdout).context("psql printed something other than UTF-8")
    }

    /// A program of this PostgreSQL, set up to reach this server and to run as its user.
    pub fn command(&self, tool: &str) -> Command {
        self.prepare_command(Command::new(self.install.bin(tool)))
    }

    /// Sets up a program from elsewhere, such as pg_regress, to reach this server and to run as its
    /// user.
    pub fn prepare_command(&self, mut command: Command) -> Command {
        for name in [
            "PGOPTIONS",
            "PGSERVICE",
            "PGSSLMODE",
            "PGTZ",
            "PGDATESTYLE",
            "PGDATA",
        ] {
            command.env_remove(name);
        }
        command
            .env("PGHOST", &self.socket_dir)
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", SUPERUSER)
            .env("PGDATABASE", SUPERUSER)
            .current_dir("/");
        self.user.apply(&mut command);
        command
    }
}
