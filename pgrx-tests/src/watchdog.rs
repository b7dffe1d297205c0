//! Ends a test that hangs, and says who waited for whom.
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use pgserver::Server;
use postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// A test that makes no progress for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// So long for a test that does not tell of progress, or has not begun to.
const FIRST_PATIENCE: Duration = Duration::from_secs(300);

/// No test takes so long, whatever it waits for.
const LIFETIME: Duration = Duration::from_secs(900);

/// What is asked of the server that hangs.
const QUESTIONS: [(&str, &str); 4] = [
    (
        "pg_stat_activity",
        "SELECT pid, state, wait_event_type, wait_event, pg_blocking_pids(pid), now() - xact_start \
         AS age, backend_xid, left(query, 60) AS query FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY xact_start",
    ),
    ("txn.waits", "SELECT * FROM txn.waits"),
    ("txn.hotspots", "SELECT * FROM txn.hotspots"),
    (
        "pg_locks",
        "SELECT pid, locktype, relation::regclass, transactionid, virtualxid, mode, granted \
         FROM pg_locks WHERE NOT granted OR locktype IN ('transactionid', 'tuple', 'advisory') \
         ORDER BY pid",
    ),
];

struct Shared {
    config: Config,
    data_dir: PathBuf,
    progress: AtomicU64,
    over: AtomicBool,
    findings: Mutex<Option<String>>,
}

/// Watches one server's test. After 60 s without `progress`, or 300 s without any, it stops the
/// server, so that every client of it comes back with an error. Then `finish` fails with what the
/// server was doing.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub fn new(server: &Server) -> Self {
        let config = server.config("postgres", "postgres");
        Self::watch(config, server.data_dir().to_owned())
    }

    pub(crate) fn watch(mut config: Config, data_dir: PathBuf) -> Self {
        config.connect_timeout(Duration::from_secs(10));
        let shared = Arc::new(Shared {
            config,
            data_dir,
            progress: AtomicU64::new(0),
            over: AtomicBool::new(false),
            findings: Mutex::new(None),
        });
        let watched = Arc::clone(&shared);
        let thread = Some(spawn(move || watch(&watched)));
        Watchdog { shared, thread }
    }

    /// Something went on.
    pub fn progress(&self) {
        self.shared.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// It has given the test up: there will be no server any more.
    pub(crate) fn has_bitten(&self) -> bool {
        self.shared.findings.lock().is_ok_and(|text| text.is_some())
    }

    /// The end of the test, with `result`: if it hung, that is the error, whatever followed from
    /// it.
    pub fn finish<T>(mut self, result: Result<T>) -> Result<T> {
        self.end();
        match self.shared.findings.lock().map(|mut text| text.take()) {
            Ok(Some(text)) => bail!(text),
            _ => result,
        }
    }

    fn end(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(shared: &Shared) {
    let mut seen = (0, Instant::now());
    while !shared.over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(50));
        let progress = shared.progress.load(Ordering::Relaxed);
        if progress != seen.0 {
            seen = (progress, Instant::now());
            continue;
        }
        let patience = if progress == 0 {
            FIRST_PATIENCE
        } else {
            PATIENCE
        };
        if seen.1.elapsed() > patience {
            let findings = findings(&shared.config);
            let text = format!("no progress in {} s\n{findings}", patience.as_secs());
            // The test itself may fail with a broken connection first, and say only that.
            eprintln!("{text}");
            if let Ok(mut slot) = shared.findings.lock() {
                *slot = Some(text);
            }
            stop(&shared.data_dir);
            return;
        }
    }
}

fn findings(config: &Config) -> String {
    match config.connect(NoTls) {
        Ok(mut client) => who_waits(&mut client),
        Err(error) => format!("and the server takes no connection: {error}"),
    }
}

/// The servers of this process's tests, for waits that know none.
static SERVERS: Mutex<Vec<(Config, PathBuf)>> = Mutex::new(Vec::new());

/// Makes the server known to all waits, and stops it when it has lived so long that its test must
/// hang somewhere.
pub(crate) fn guard(server: &Server) {
    let mut config = server.config("postgres", "postgres");
    config.connect_timeout(Duration::from_secs(10));
    let data_dir = server.data_dir().to_owned();
    if let Ok(mut servers) = SERVERS.lock() {
        servers.retain(|(_, data_dir)| data_dir.exists());
        servers.push((config.clone(), data_dir.clone()));
    }
    spawn(move || {
        let began = Instant::now();
        while data_dir.exists() {
            if began.elapsed() > LIFETIME {
                let who = findings(&config);
                eprintln!("a test has not ended in {} s\n{who}", LIFETIME.as_secs());
                stop(&data_dir);
                return;
            }
            sleep(Duration::from_secs(1));
        }
    });
}

/// Which backends wait for which, in all servers of this process's tests that answer.
pub(crate) fn who_waits_anywhere() -> String {
    let servers = SERVERS.lock().map(|servers| servers.clone());
    let running = servers.unwrap_or_default().into_iter();
    let running = running.filter(|(_, data_dir)| data_dir.join("postmaster.pid").exists());
    running.map(|(config, _)| findings(&config)).collect()
}

/// Which backends wait for which, in the server of `client`.
pub(crate) fn who_waits(client: &mut Client) -> String {
    let mut text = String::new();
    for (title, sql) in QUESTIONS {
        text += &format!("-- {title}\n");
        match client.simple_query(sql) {
            Ok(answer) => text += &table(&answer),
            Err(error) => text += &format!("{error}\n"),
        }
    }
    text
}

fn table(answer: &[SimpleQueryMessage]) -> String {
    let line = |row: &postgres::SimpleQueryRow| {
        let cells = row.columns().iter().enumerate();
        let cells = cells.map(|(n, column)| {
            let value = row.get(n).unwrap_or("");
            format!("{}={value}", column.name())
        });
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    answer
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(line(row)),
            _ => None,
        })
        .collect()
}

/// Immediate shutdown of whatever server runs in `data_dir` now.
fn stop(data_dir: &std::path::Path) {
    let pid = fs::read_to_string(data_dir.join("postmaster.pid")).unwrap_or_default();
    if let Some(pid) = pid.lines().next() {
        let _ = Command::new("kill").args(["-QUIT", pid]).status();
    }
}
