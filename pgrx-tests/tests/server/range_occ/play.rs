//! Plays the schedules of a page: as validated transactions, and in stock PostgreSQL's levels as a
//! counter-check.
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use pgserver::Server;
use postgres::{Client, SimpleQueryMessage};
use txn_server_tests::{Block, Transcript, Watchdog, start};

use super::page::{Claim, Page, Pair, Schedule, statements};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schedules");

/// Short waits end in the lock manager, where the player sees them.
const SETTINGS: [(&str, &str); 2] = [("deadlock_timeout", "10ms"), ("autovacuum", "off")];
/// The window lets most of those pass who would be told of a conflict, so that transcripts are of
/// servers without it.
const STRICT: (&str, &str) = ("txn.range_window", "off");

/// What the transcripts of a page call the errors of validated transactions.
const REFUSED: &str =
    "ERROR 40001: could not serialize access due to concurrent writes in a range that was read";
const REDEFINED: [&str; 2] = [
    "ERROR 40001: could not serialize access because table \"",
    "\" was redefined by a concurrent transaction",
];

/// The table that readers write to.
const FLAG: &str = "CREATE TABLE flag (id int PRIMARY KEY, v int NOT NULL); INSERT INTO flag VALUES (1, 0), (2, 0), (3, 0);";

/// How the sessions of a schedule run, where they do not say otherwise.
#[derive(Clone, Copy)]
enum Mode {
    Validated,
    StockRepeatableRead,
    StockSerializable,
}

impl Mode {
    fn tables(self) -> &'static str {
        match self {
            Mode::Validated => "txn_heap",
            Mode::StockRepeatableRead | Mode::StockSerializable => "heap",
        }
    }

    /// What each session runs first.
    fn session(self) -> String {
        let (level, range_occ) = match self {
            Mode::Validated => ("repeatable read", "SET txn.range_occ = on;"),
            Mode::StockRepeatableRead => ("repeatable read", ""),
            Mode::StockSerializable => ("serializable", ""),
        };
        // The tables are small: without this every read would be one of the whole table.
        format!(
            "SET default_transaction_isolation = '{level}'; {range_occ} SET enable_seqscan = off; \
             SET default_table_access_method = {}",
            self.tables()
        )
    }

    /// The schedule's text in this mode.
    fn text(self, text: &str) -> String {
        let line = |line: &str| -> String {
            let (session, told) = match line.split_once(": (") {
                Some((session, _)) if session.len() == 1 => line.split_at(3),
                _ => ("", line),
            };
            let error = match told.strip_prefix("(redefined ") {
                Some(table) => REDEFINED.join(table.trim_end_matches(')')),
                None if told == "(refused)" => REFUSED.to_owned(),
                None => return format!("{line}\n"),
            };
            match (self, session) {
                (Mode::Validated, _) => format!("{session}{error}\n"),
                (_, "") => "...\n".to_owned(),
                _ => format!("{session}done\n"),
            }
        };
        let text: String = text.lines().map(line).collect();
        match self {
            // Stock PostgreSQL knows nothing of what other levels write.
            Mode::StockSerializable => text.replace(" ISOLATION LEVEL READ COMMITTED", ""),
            Mode::Validated | Mode::StockRepeatableRead => text,
        }
    }
}

/// Plays the page `name` of the folder on a server of its own: line by line without the window,
/// and, where a schedule would be an anomaly, once more with it, as is the default: then somebody
/// has to be refused. All that is not as told is in the error.
pub fn page(name: &str) -> Result<()> {
    let path = Path::new(FOLDER).join(format!("{name}.md"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let page = Page::parse(&text).with_context(|| path.display().to_string())?;
    let settings = page.settings.iter();
    let settings = settings.map(|(name, value)| (name.as_str(), value.as_str()));
    let settings: Vec<(&str, &str)> = SETTINGS.into_iter().chain(settings).collect();
    let strict = [&[STRICT][..], &settings].concat();
    played(&strict, |play| play.page(&page)).with_context(|| path.display().to_string())?;
    played(&settings, |play| play.anomalies(&page))
        .with_context(|| format!("{}, with txn.range_window", path.display()))
}

/// Plays something on a server of its own.
fn played(settings: &[(&str, &str)], body: impl FnOnce(&mut Play) -> Result<()>) -> Result<()> {
    let server = start(settings)?;
    let dog = Watchdog::new(&server);
    let mut play = Play {
        server: &server,
        dog: &dog,
        control: server.connect()?,
        played: 0,
        failures: Vec::new(),
    };
    let result = body(&mut play);
    dog.finish(result)
}

struct Play<'a> {
    server: &'a Server,
    dog: &'a Watchdog,
    control: Client,
    played: usize,
    failures: Vec<String>,
}

impl Play<'_> {
    fn page(&mut self, page: &Page) -> Result<()> {
        for schedule in &page.schedules {
            self.schedule(schedule)?;
        }
        for pair in &page.pairs {
            if let Err(error) = self.is_true(pair) {
                self.failures.push(format!("line {}: {error:#}", pair.line));
                continue;
            }
            for schedule in pair.schedules() {
                self.schedule(&schedule)?;
            }
        }
        self.end()
    }

    /// The schedules that are anomalies if all commit.
    fn anomalies(&mut self, page: &Page) -> Result<()> {
        let pairs: Vec<Schedule> = page.pairs.iter().flat_map(Pair::schedules).collect();
        for schedule in page.schedules.iter().chain(&pairs) {
            match schedule.claim {
                Claim::Anomaly | Claim::AnomalyThatSsiMisses | Claim::AnomalyBeyondSsi => {
                    self.play(schedule, Mode::Validated, false)?;
                }
                Claim::Own | Claim::Serial => {}
            }
        }
        self.end()
    }

    fn end(&self) -> Result<()> {
        ensure!(
            self.failures.is_empty(),
            "{} of {} schedules are not as told:\n\n{}\n",
            self.failures.len(),
            self.played,
            self.failures.join("\n\n")
        );
        Ok(())
    }

    /// Fresh tables, and no session from before.
    fn anew(&mut self, setup: &str, mode: Mode) -> Result<()> {
        self.control.batch_execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )?;
        for row in self
            .control
            .query("SELECT gid FROM pg_prepared_xacts", &[])?
        {
            let gid: &str = row.get(0);
            self.control
                .batch_execute(&format!("ROLLBACK PREPARED '{gid}'"))?;
        }
        self.control
            .batch_execute("SELECT pg_advisory_unlock_all()")?;
        self.control.batch_execute(&format!(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public; SET default_table_access_method = {}",
            mode.tables()
        ))?;
        self.control.batch_execute(FLAG)?;
        // One by one: some cannot run in a block.
        for sql in setup.split(";\n") {
            self.control
                .batch_execute(sql)
                .with_context(|| format!("the page's set-up: {sql}"))?;
        }
        self.dog.progress();
        Ok(())
    }

    fn schedule(&mut self, schedule: &Schedule) -> Result<()> {
        self.play(schedule, Mode::Validated, !schedule.anywhere)?;
        match schedule.claim {
            Claim::Own => {}
            Claim::Serial | Claim::AnomalyBeyondSsi => {
                self.play(schedule, Mode::StockRepeatableRead, true)?;
            }
            Claim::Anomaly | Claim::AnomalyThatSsiMisses => {
                let missed = schedule.claim == Claim::AnomalyThatSsiMisses;
                self.play(schedule, Mode::StockRepeatableRead, true)?;
                self.play(schedule, Mode::StockSerializable, missed)?;
            }
        }
        Ok(())
    }

    /// `as_told`: line by line; else somebody has to be told 40001.
    fn play(&mut self, schedule: &Schedule, mode: Mode, as_told: bool) -> Result<()> {
        self.anew(&schedule.setup, mode)?;
        self.played += 1;
        let block = Block {
            language: String::new(),
            line: schedule.block.line,
            text: mode.text(&schedule.block.text),
        };
        let transcript = Transcript::parse(&block)?;
        let session = mode.session();
        let result = match as_told {
            true => transcript.play(self.server, &session, self.dog),
            false => match transcript.errors(self.server, &session, self.dog) {
                Ok(errors) if errors.iter().any(|code| code == "40001") => Ok(()),
                Ok(errors) => Err(anyhow::anyhow!("nobody was refused: {errors:?}")),
                Err(error) => Err(error),
            },
        };
        if let Err(error) = result {
            if self.control.is_closed() {
                bail!("the server is gone: {error:#}");
            }
            let mode = match mode {
                Mode::Validated => "validated",
                Mode::StockRepeatableRead => "stock REPEATABLE READ",
                Mode::StockSerializable => "stock SERIALIZABLE",
            };
            self.failures
                .push(format!("{mode}: {error:#}\n{}", block.text.trim_end()));
        }
        Ok(())
    }

    /// Whether the writes of a pair change what its read finds, or do not, and whether the plan is
    /// the one meant.
    fn is_true(&mut self, pair: &Pair) -> Result<()> {
        for (write, changes) in [(&pair.changes, true), (&pair.harmless, false)] {
            let Some(write) = write else { continue };
            self.anew(&pair.setup, Mode::StockRepeatableRead)?;
            let mut client = self.server.connect()?;
            client.batch_execute(&Mode::StockRepeatableRead.session())?;
            let before = found(&mut client, &pair.read)?;
            client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")?;
            for sql in statements(write) {
                client.batch_execute(sql).with_context(|| sql.to_owned())?;
            }
            client.batch_execute("COMMIT")?;
            let after = found(&mut client, &pair.read)?;
            ensure!(
                (before != after) == changes,
                "the page is wrong: {} finds {before:?}, and after {write} {after:?}",
                pair.read
            );
        }
        let Some(plan) = &pair.plan else {
            return Ok(());
        };
        self.anew(&pair.setup, Mode::StockRepeatableRead)?;
        let mut client = self.server.connect()?;
        client.batch_execute(&Mode::StockRepeatableRead.session())?;
        client.batch_execute("BEGIN")?;
        let explained = ["SELECT", "DECLARE", "EXECUTE", "WITH", "INSERT"];
        for sql in statements(&pair.read) {
            if !explained.iter().any(|word| sql.starts_with(word)) {
                client.batch_execute(sql)?;
                continue;
            }
            let shown = rows(&mut client, &format!("EXPLAIN (COSTS OFF) {sql}"))?.join("\n");
            ensure!(
                shown.contains(plan.as_str()),
                "{sql} is planned without {plan}:\n{shown}"
            );
            return Ok(());
        }
        bail!("nothing to explain in {}", pair.read)
    }
}

/// What the last statement of a cell returns, in a transaction of its own that is rolled back.
fn found(client: &mut Client, cell: &str) -> Result<Vec<String>> {
    client.batch_execute("BEGIN")?;
    let mut last = Vec::new();
    for sql in statements(cell) {
        last = rows(client, sql).with_context(|| sql.to_owned())?;
    }
    client.batch_execute("ROLLBACK; DEALLOCATE ALL")?;
    Ok(last)
}

/// Rows as text; of a statement without any, how many it touched.
fn rows(client: &mut Client, sql: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for message in client.simple_query(sql)? {
        match message {
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|n| row.get(n).unwrap_or("null"));
                lines.push(cells.collect::<Vec<_>>().join(" "));
            }
            SimpleQueryMessage::CommandComplete(count) => lines.push(format!("{count} rows")),
            _ => {}
        }
    }
    Ok(lines)
}
