//! The connection: samples, and what is wrong when there are none.

use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use postgres::config::{Host, SslMode};
use postgres::error::SqlState;
use postgres::{Client, Config, NoTls, Row};

use super::sample::{COUNTS, Counters, HotRow, Sample, TOTALS, Wait};

/// How long connecting, or a silent network, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that has other things to do is not kept busy. LOCAL, because of transaction pools.
const SETTINGS: &str = "SET LOCAL statement_timeout = '5s'";

const SERVER: &str = "
    SELECT current_setting('server_version'), current_database()::text,
           to_char(clock_timestamp(), 'HH24:MI:SS'),
           (extract(epoch FROM clock_timestamp()) * 1000000)::int8,
           (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8,
           coalesce((extract(epoch FROM stats_reset) * 1000000)::int8, 0),
           ARRAY[xact_commit, xact_rollback]
    FROM pg_stat_database WHERE datname = current_database()";

const WAITS: &str = "
    SELECT pid, blocked_by, relation::text, key, reason,
           (extract(epoch FROM clock_timestamp() - since) * 1000000)::int8
    FROM txn.waits";

pub struct Source {
    config: Config,
    client: Option<Client>,
}

/// What the thread that asks the server has to tell.
pub enum Event {
    Sample(Box<Sample>),
    /// No sample, why, and when the next try is.
    Trouble(String, Duration),
}

impl Source {
    pub fn new(mut config: Config) -> Self {
        config
            .application_name("txn top")
            .connect_timeout(PATIENCE)
            .tcp_user_timeout(PATIENCE);
        Self {
            config,
            client: None,
        }
    }

    /// Where the server is, for people.
    pub fn address(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(folder)) => folder.display().to_string(),
            None => String::new(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}")
    }

    /// Connects when it has to. After an error the next call connects anew.
    pub fn sample(&mut self) -> Result<Sample> {
        let mut client = match self.client.take() {
            Some(client) if !client.is_closed() => client,
            _ => self.connect()?,
        };
        let sample = read(&mut client).map_err(|error| explain(&error))?;
        self.client = Some(client);
        Ok(sample)
    }

    fn connect(&self) -> Result<Client> {
        self.config
            .connect(NoTls)
            .map_err(|error| explain(&error))
            .with_context(|| format!("could not connect to {}", self.address()))
    }

    /// Takes samples in a thread of its own until nobody listens any more.
    pub fn watch(mut self, interval: Duration) -> Receiver<Event> {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut failures = 0;
            let mut wait = interval;
            loop {
                sleep(wait);
                let event = match self.sample() {
                    Ok(sample) => {
                        (failures, wait) = (0, interval);
                        Event::Sample(Box::new(sample))
                    }
                    Err(error) => {
                        wait = backoff(failures);
                        failures += 1;
                        Event::Trouble(format!("{error:#}"), wait)
                    }
                };
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

/// How long to wait after so many failures before this one.
fn backoff(failures: u32) -> Duration {
    Duration::from_millis(500 << failures.min(5)).min(Duration::from_secs(10))
}

/// Reads a connection string, with libpq's environment for what it does not say.
pub fn config(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Config> {
    let mut config: Config = text
        .parse()
        .with_context(|| "expected `host=... dbname=...` or `postgresql://...`")?;
    if config.get_ssl_mode() == SslMode::Require {
        bail!("there is no TLS in here: use sslmode=prefer or disable, or a tunnel");
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host(environment("PGHOST").as_deref().unwrap_or("localhost"));
    }
    if config.get_ports().is_empty()
        && let Some(port) = environment("PGPORT")
    {
        config.port(port.parse().context("PGPORT is no port")?);
    }
    if config.get_user().is_none()
        && let Some(user) = environment("PGUSER")
    {
        config.user(&user);
    }
    if config.get_dbname().is_none()
        && let Some(database) = environment("PGDATABASE")
    {
        config.dbname(&database);
    }
    if config.get_password().is_none()
        && let Some(password) = environment("PGPASSWORD")
    {
        config.password(password);
    }
    Ok(config)
}

fn read(client: &mut Client) -> Result<Sample, postgres::Error> {
    let mut transaction = client.build_transaction().read_only(true).start()?;
    transaction.batch_execute(SETTINGS)?;
    let server = transaction.query_typed_one(SERVER, &[])?;
    let totals = transaction.query_typed_one(&totals_query(), &[])?;
    let rows = transaction.query_typed(&rows_query(), &[])?;
    let waits = transaction.query_typed(WAITS, &[])?;
    transaction.commit()?;

    let started = server.try_get(4)?;
    let version: String = server.try_get(0)?;
    Ok(Sample {
        version: version.split(' ').next().unwrap_or_default().to_owned(),
        database: server.try_get(1)?,
        clock: server.try_get(2)?,
        now: server.try_get(3)?,
        started,
        transactions: Counters {
            life: (started, server.try_get(5)?),
            values: server.try_get(6)?,
        },
        hot_rows: totals.try_get(0)?,
        totals: Counters {
            life: (started, totals.try_get(1)?),
            values: totals.try_get(2)?,
        },
        rows: rows.iter().map(hot_row).collect::<Result<_, _>>()?,
        waits: waits.iter().map(wait).collect::<Result<_, _>>()?,
    })
}

fn totals_query() -> String {
    format!(
        "SELECT hot_rows, coalesce((extract(epoch FROM stats_reset) * 1000000)::int8, 0), ARRAY[{}]
         FROM txn.stats",
        TOTALS.join(", ")
    )
}

fn rows_query() -> String {
    format!(
        "SELECT relation::oid, relation::text, key, mode,
                (extract(epoch FROM since) * 1000000)::int8, waiting, running, handover_us, obstacles,
                ARRAY[{}]
         FROM txn.hotspots",
        COUNTS.join(", ")
    )
}

fn hot_row(row: &Row) -> Result<HotRow, postgres::Error> {
    let since = row.try_get(4)?;
    Ok(HotRow {
        oid: row.try_get(0)?,
        relation: row.try_get(1)?,
        key: row.try_get(2)?,
        mode: row.try_get(3)?,
        since,
        waiting: row.try_get(5)?,
        running: row.try_get(6)?,
        handover_us: row.try_get(7)?,
        obstacles: row.try_get(8)?,
        counts: Counters {
            life: (since, 0),
            values: row.try_get(9)?,
        },
    })
}

fn wait(row: &Row) -> Result<Wait, postgres::Error> {
    Ok(Wait {
        pid: row.try_get(0)?,
        blocked_by: row.try_get(1)?,
        relation: row.try_get(2)?,
        key: row.try_get(3)?,
        reason: row.try_get(4)?,
        age: row.try_get(5)?,
    })
}

/// What to tell, in one line.
fn explain(error: &postgres::Error) -> anyhow::Error {
    let Some(report) = error.as_db_error() else {
        return match std::error::Error::source(error) {
            Some(source) => anyhow!("{source}"),
            None => anyhow!("{error}"),
        };
    };
    let code = report.code();
    if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
        return anyhow!("this database does not have the extension: CREATE EXTENSION txn");
    }
    if *code == SqlState::UNDEFINED_COLUMN {
        return anyhow!("this database has another version of the extension: {report}");
    }
    match report.hint() {
        Some(hint) => anyhow!("{}: {hint}", report.message()),
        None => anyhow!("{}", report.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_fills_in() {
        let environment = |name: &str| match name {
            "PGHOST" => Some("/run/pg".to_owned()),
            "PGPORT" => Some("7000".to_owned()),
            "PGUSER" => Some("ada".to_owned()),
            _ => None,
        };
        let source = Source::new(config("dbname=bank", environment).unwrap());
        assert_eq!(source.address(), "/run/pg:7000");
        assert_eq!(source.config.get_user(), Some("ada"));
        let url = "postgresql://bob:secret@db.example:5433/bank";
        let source = Source::new(config(url, environment).unwrap());
        assert_eq!(source.address(), "db.example:5433");
        assert_eq!(source.config.get_user(), Some("bob"));
        let source = Source::new(config("dbname=bank", |_| None).unwrap());
        assert_eq!(source.address(), "localhost:5432");
    }

    #[test]
    fn nonsense_is_no_connection_string() {
        assert!(config("host", |_| None).is_err());
        assert!(config("host=a sslmode=require", |_| None).is_err());
        assert!(config("", |name| (name == "PGPORT").then(|| "x".to_owned())).is_err());
    }

    #[test]
    fn nobody_answers() {
        let config = config("host=/nonexistent user=a dbname=b", |_| None).unwrap();
        let error = format!("{:#}", Source::new(config).sample().unwrap_err());
        assert!(
            error.starts_with("could not connect to /nonexistent:5432: "),
            "{error}"
        );
    }

    #[test]
    fn tries_become_rarer() {
        let waits: Vec<u128> = (0..7).map(|n| backoff(n).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
    }
}
