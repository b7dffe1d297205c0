//! What a run of the fuzzer tells: figures, findings, and the transcript of a schedule.
use std::collections::BTreeMap;
use std::fmt::Write as _;

use postgres::Error;
use serde::Serialize;

use super::finding::Finding;
use super::run::Run;
use super::schedule::{Schedule, letter};
use super::session::Answer;

/// A schedule that shows something wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub seed: u64,
    pub findings: Vec<Finding>,
    /// Steps before and after shrinking.
    pub steps: usize,
    pub shrunk_to: usize,
    pub transcript: String,
}

/// How far replays went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    /// Every statement was told the same, and the tables are the same.
    pub same: u64,
    /// Stock PostgreSQL came upon other versions, or waited: the answers do not say all of the
    /// order.
    pub elsewhere: u64,
    /// Not replayed: snapshots of whole transactions, failed statements behind savepoints.
    pub left_out: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The library's version, as the server tells it.
    pub library: String,
    pub first_seed: u64,
    pub last_seed: u64,
    pub schedules: u64,
    pub seconds: f64,
    /// Statements that were sent, and those of them that waited for others.
    pub statements: u64,
    pub waited: u64,
    /// Errors by SQLSTATE.
    pub errors: BTreeMap<String, u64>,
    /// The transactions that were replayed without the library, and how far that went.
    pub replays: Tally,
    /// `txn.stats`: what followed, was combined, validated and so on.
    pub stats: BTreeMap<String, i64>,
    /// The seeds of all failures, by the rules that were broken.
    pub rules: BTreeMap<String, Vec<u64>>,
    pub failed: u64,
    pub failures: Vec<Failure>,
}

impl Report {
    pub fn summary(&self) -> String {
        format!(
            "{} schedules, {} statements, {} followed, {} failed",
            self.schedules,
            self.statements,
            self.stats.get("followed").copied().unwrap_or(0),
            self.failed
        )
    }
}

/// An error in one line.
pub fn said(error: &Error) -> String {
    match error.as_db_error() {
        Some(told) => format!(
            "{}: {} {}",
            told.code().code(),
            told.message(),
            told.detail().unwrap_or_default()
        ),
        None => error.to_string(),
    }
}

/// The schedule as one would type it, with what came of each step.
pub fn transcript(schedule: &Schedule, run: &Run, findings: &[Finding]) -> String {
    let mut text = format!("-- seed {}\n", schedule.seed);
    for line in schedule.schema.summary() {
        let _ = writeln!(text, "-- {line}");
    }
    for line in &schedule.churn {
        let _ = writeln!(text, "-- with a snapshot held from before: {line}");
    }
    // What waited is told when it came to its end.
    let mut moments: Vec<(u32, usize, bool)> = Vec::new();
    for (number, event) in run.events.iter().enumerate() {
        moments.push((event.sent, number, false));
        if event.waited {
            moments.push((event.got, number, true));
        }
    }
    moments.sort_unstable();
    for (_, number, is_end) in moments {
        let event = &run.events[number];
        let step = &schedule.steps[event.step];
        let Some(answer) = &event.answer else {
            if event.waited {
                let _ = writeln!(text, "{step}\n(never comes back)");
            }
            continue;
        };
        if !is_end {
            match event.instead {
                Some(sql) => {
                    let _ = writeln!(text, "{}> {sql}", letter(step.session));
                }
                None => {
                    let _ = writeln!(text, "{step}");
                }
            }
        }
        if event.waited && !is_end {
            text += "(waits)\n";
        } else {
            let prefix = if is_end {
                format!("{}:", letter(step.session))
            } else {
                String::new()
            };
            let _ = writeln!(text, "{prefix} {}", told(answer));
        }
        for finding in findings
            .iter()
            .filter(|finding| finding.step == Some(step.id) && event.waited == is_end)
        {
            let _ = writeln!(text, "   ^^^ {}: {}", finding.rule, finding.text);
        }
    }
    for finding in findings.iter().filter(|finding| finding.step.is_none()) {
        let _ = writeln!(text, "{}: {}", finding.rule, finding.text);
    }
    text
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Done { rows, count } if rows.is_empty() => format!("done ({count})"),
        Answer::Done { rows, .. } => rows.join(" | "),
        Answer::Failed {
            code,
            message,
            detail,
        } if detail.is_empty() => format!("ERROR {code}: {message}"),
        Answer::Failed {
            code,
            message,
            detail,
        } => format!("ERROR {code}: {message} ({detail})"),
        Answer::Lost(why) => format!("the connection broke: {why}"),
    }
}
