//! Transcripts of sessions side by side, as a page of the documentation shows them: played on a
//! real server and compared line by line.
//!
//! ```text
//! A> UPDATE ... RETURNING balance;    a statement of session A, up to a semicolon at a line's end
//!  90                                 a row of its result; columns are separated by " | "
//! (0 rows)                            its result has no rows
//! ...                                 it ends without an error
//! ERROR 40001: message                its error; DETAIL: and HINT: are compared if they follow
//! ERROR 40001                         an error of this code
//! (waits)                             it waits for another session, until a line with its own:
//! B: 70                               a row, an error, or "done" without anything to show
//! -- text                             a comment
//! ```
use std::collections::BTreeMap;
use std::mem::take;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pgserver::Server;
use postgres::{Client, Error, SimpleQueryMessage};

use crate::{Background, Watchdog, pid, read};

/// A statement that should end, and has not ended after so long, waits.
const PATIENCE: Duration = Duration::from_secs(30);

const WAITS: &str = "(waits)";
const ANYTHING: &str = "...";

/// A fenced block of a page.
#[derive(Debug)]
pub struct Block {
    /// What stands behind the opening fence.
    pub language: String,
    /// The number of its first line on the page.
    pub line: usize,
    pub text: String,
}

/// The fenced blocks of a page in Markdown.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(language), None) => {
                open = Some(Block {
                    language: language.trim().to_owned(),
                    line: number + 2,
                    text: String::new(),
                });
            }
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    found
}

/// A statement, and what the page says happens then.
struct Step {
    session: char,
    sql: String,
    line: usize,
    told: Vec<String>,
}

pub struct Transcript(Vec<Step>);

/// The session and the rest of a line like `A> rest` (with '>') or `A: rest` (with ':').
fn by_session(line: &str, mark: char) -> Option<(char, &str)> {
    let mut chars = line.chars();
    let session = chars.next().filter(char::is_ascii_uppercase)?;
    let rest = chars.as_str().strip_prefix(mark)?;
    Some((session, rest.strip_prefix(' ').unwrap_or(rest)))
}

impl Transcript {
    /// Reads a block; an error if it is not a transcript.
    pub fn parse(block: &Block) -> Result<Self> {
        let mut steps: Vec<Step> = Vec::new();
        let mut is_open = false;
        for (number, line) in block.text.lines().enumerate() {
            let (line, number) = (line.trim_end(), block.line + number);
            if line.starts_with("--") || line.is_empty() {
                continue;
            }
            if let Some((session, sql)) = by_session(line, '>').filter(|_| !is_open) {
                is_open = !sql.ends_with(';');
                steps.push(Step {
                    session,
                    sql: sql.to_owned(),
                    line: number,
                    told: Vec::new(),
                });
                continue;
            }
            let step = steps
                .last_mut()
                .with_context(|| format!("line {number}: no statement before this: {line}"))?;
            if is_open {
                is_open = !line.ends_with(';');
                step.sql += &format!("\n{line}");
            } else {
                step.told.push(line.to_owned());
            }
        }
        ensure!(!is_open, "line {}: a statement has no end", block.line);
        ensure!(
            !steps.is_empty(),
            "line {}: an empty transcript",
            block.line
        );
        Ok(Transcript(steps))
    }

    /// Plays it; each new session begins with `session_sql`, and has its letter as
    /// `application_name`. The error of whatever differs shows the lines of the page (-) and those
    /// of the server (+).
    pub fn play(&self, server: &Server, session_sql: &str, dog: &Watchdog) -> Result<()> {
        self.perform(server, session_sql, dog, |step, happened| {
            if happened == step.told {
                return Ok(());
            }
            let lines = |mark: &str, lines: &[String]| {
                lines.iter().fold(String::new(), |text, line| {
                    text + &format!("\n{mark} {line}")
                })
            };
            bail!(
                "{}{}{}",
                step.place(),
                lines("-", &step.told),
                lines("+", &happened)
            );
        })
    }

    /// Plays it, whatever it tells; the SQLSTATEs of all errors.
    pub fn errors(
        &self,
        server: &Server,
        session_sql: &str,
        dog: &Watchdog,
    ) -> Result<Vec<String>> {
        let mut codes = Vec::new();
        self.perform(server, session_sql, dog, |_, happened| {
            let errors = happened.iter().filter_map(|line| {
                let line = by_session(line, ':').map_or(line.as_str(), |(_, rest)| rest);
                line.strip_prefix("ERROR ")?.split_once(':')
            });
            codes.extend(errors.map(|(code, _)| code.to_owned()));
            Ok(())
        })?;
        Ok(codes)
    }

    /// Plays it, and shows `see` what happened at each step.
    fn perform(
        &self,
        server: &Server,
        session_sql: &str,
        dog: &Watchdog,
        mut see: impl FnMut(&Step, Vec<String>) -> Result<()>,
    ) -> Result<()> {
        let mut players = Players {
            server,
            session_sql,
            control: server.connect()?,
            idle: BTreeMap::new(),
            busy: BTreeMap::new(),
        };
        for step in &self.0 {
            let happened = players.play(step).with_context(|| step.place())?;
            see(step, happened)?;
            dog.progress();
        }
        let waiting: String = players.busy.keys().collect();
        ensure!(waiting.is_empty(), "at its end {waiting} still waits");
        Ok(())
    }
}

impl Step {
    fn place(&self) -> String {
        format!("line {}: {}> {}", self.line, self.session, self.sql)
    }
}

type Answer = Result<Vec<SimpleQueryMessage>, Error>;

/// The sessions of a transcript.
struct Players<'a> {
    server: &'a Server,
    session_sql: &'a str,
    control: Client,
    idle: BTreeMap<char, (Client, i32)>,
    busy: BTreeMap<char, Background<Vec<SimpleQueryMessage>>>,
}

impl Players<'_> {
    /// What happens at this step, in the order in which the page tells it.
    fn play(&mut self, step: &Step) -> Result<Vec<String>> {
        self.start(step)?;
        let waits = step.told.iter().any(|line| line == WAITS);
        let of_others = |line: &String| by_session(line, ':').is_some();
        let own = step.told.iter().filter(|line| !of_others(line));
        let mut lines = match self.end_of(step.session, !waits)? {
            Some(answer) => shown(&answer, own.map(String::as_str)),
            None => vec![WAITS.to_owned()],
        };
        let of_others: Vec<(char, &str)> = step
            .told
            .iter()
            .filter_map(|line| by_session(line, ':'))
            .collect();
        let mut told: Vec<char> = of_others.iter().map(|(session, _)| *session).collect();
        told.dedup();
        let others = self.busy.keys().filter(|other| **other != step.session);
        let untold: Vec<char> = others.filter(|o| !told.contains(o)).copied().collect();
        for (session, is_told) in told
            .iter()
            .map(|session| (session, true))
            .chain(untold.iter().map(|session| (session, false)))
        {
            if self.busy.contains_key(session)
                && let Some(answer) = self.end_of(*session, is_told)?
            {
                let of_it = of_others.iter().filter(|(of, _)| of == session);
                let mut end = shown(&answer, of_it.map(|(_, line)| *line));
                if end.is_empty() {
                    end.push("done".to_owned());
                }
                let end = end.iter().map(|line| line.trim_start());
                lines.extend(end.map(|line| format!("{session}: {line}")));
            }
        }
        for word in ["DETAIL: ", "HINT: "] {
            if !step.told.iter().any(|line| line.contains(word)) {
                lines.retain(|line| !line.contains(word));
            }
        }
        Ok(lines)
    }

    fn start(&mut self, step: &Step) -> Result<()> {
        let session = step.session;
        ensure!(
            !self.busy.contains_key(&session),
            "{session} still waits in its statement before"
        );
        let (client, pid) = match self.idle.remove(&session) {
            Some(idle) => idle,
            None => {
                let mut client = self.server.connect()?;
                client.batch_execute(&format!("SET application_name = '{session}'"))?;
                client.batch_execute(self.session_sql)?;
                let pid = pid(&mut client)?;
                (client, pid)
            }
        };
        let sql = step.sql.clone();
        let statement = Background::call(client, pid, move |client| client.simple_query(&sql));
        self.busy.insert(session, statement);
        Ok(())
    }

    /// What came of the session's statement; None if it waits. Where an end is expected a wait has
    /// to last before it is believed: it may be about to end.
    fn end_of(&mut self, session: char, is_expected: bool) -> Result<Option<Answer>> {
        let began = Instant::now();
        loop {
            let statement = &self.busy[&session];
            let (pid, is_finished) = (statement.pid, statement.is_finished());
            if is_finished && let Some(statement) = self.busy.remove(&session) {
                let (client, answer) = statement.end()?;
                self.idle.insert(session, (client, pid));
                return Ok(Some(answer));
            }
            if (!is_expected || began.elapsed() > PATIENCE) && is_blocked(&mut self.control, pid)? {
                return Ok(None);
            }
            sleep(Duration::from_millis(5));
        }
    }
}

/// Whether that process waits for a transaction that has not ended, or for a ticket that somebody
/// else has: nothing that has happened so far will wake it.
fn is_blocked(control: &mut Client, pid: i32) -> Result<bool> {
    let sql = format!(
        "SELECT cardinality(pg_blocking_pids({pid})) > 0 AND NOT EXISTS (SELECT FROM txn.waits WHERE pid = {pid} \
         AND reason = 'ticket' AND coalesce(blocked_by, pid) = pid)"
    );
    read(control, &sql)
}

/// An answer as the page, which has `told`, shows it.
fn shown<'a>(answer: &Answer, told: impl Iterator<Item = &'a str>) -> Vec<String> {
    let told: Vec<&str> = told.collect();
    let messages = match answer {
        Ok(_) if told == [ANYTHING] => return vec![ANYTHING.to_owned()],
        Ok(messages) => messages,
        Err(error) => {
            let mut lines = error_shown(error);
            if let Some((code, _)) = lines[0].split_once(':')
                && told == [code]
            {
                lines = vec![code.to_owned()];
            }
            return lines;
        }
    };
    let mut lines = Vec::new();
    let mut is_empty = false;
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(_) => is_empty = true,
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|n| row.get(n).unwrap_or(""));
                let line = cells.collect::<Vec<_>>().join(" | ");
                lines.push(format!(" {line}").trim_end().to_owned());
                is_empty = false;
            }
            SimpleQueryMessage::CommandComplete(_) if take(&mut is_empty) => {
                lines.push("(0 rows)".to_owned());
            }
            _ => {}
        }
    }
    lines
}

fn error_shown(error: &Error) -> Vec<String> {
    let Some(error) = error.as_db_error() else {
        return vec![format!("ERROR: {error}")];
    };
    let mut lines = vec![format!(
        "ERROR {}: {}",
        error.code().code(),
        error.message()
    )];
    lines.extend(error.detail().map(|text| format!("DETAIL: {text}")));
    lines.extend(error.hint().map(|text| format!("HINT: {text}")));
    lines
}
