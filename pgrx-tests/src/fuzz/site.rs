//! The servers that schedules run on, kept from one schedule to the next.
use anyhow::{Context, Result};
use pgserver::{PgInstall, Server, ServerOptions};

use super::Options;
use super::compose::SAME_TABLES;
use super::draw::Abilities;
use super::finding::Finding;
use super::health::{self, Relations};
use super::judge;
use super::replay::Stock;
use super::report::Report;
use super::run::{Run, Stage};
use super::schedule::Schedule;
use super::server;
use super::session::Answer;
use crate::{int, text};

/// Figures of `txn.stats` that say what happened.
const FIGURES: [&str; 16] = [
    "promotions",
    "tickets",
    "followed",
    "combined",
    "ordinary",
    "groups",
    "commit_waits",
    "snapshot_waits",
    "cascades",
    "doomed",
    "cycles",
    "own_row",
    "fallbacks",
    "early_commits",
    "range_validated",
    "range_moved",
];

pub struct Site {
    install: PgInstall,
    options: ServerOptions,
    server: Server,
    stage: Option<Stage>,
    stock: Option<Stock>,
    pub abilities: Abilities,
    /// The group of schedules whose tables are there, and what amcheck looks at.
    tables: Option<(u64, Relations)>,
    /// Figures of servers that had to be given up.
    before: Vec<i64>,
}

impl Site {
    pub fn start(install: &PgInstall, options: &Options) -> Result<Self> {
        let with = server::settings(ServerOptions {
            library_dir: options.library_dir.clone(),
            ..ServerOptions::default()
        });
        let server = Server::start(install, with.clone())?;
        let abilities = server::prepare(&server)?;
        let stage = Some(Stage::new(&server)?);
        let stock = match options.replay {
            true => Some(Stock::start(install)?),
            false => None,
        };
        Ok(Site {
            install: install.clone(),
            options: with,
            server,
            stage,
            stock,
            abilities,
            tables: None,
            before: vec![0; FIGURES.len()],
        })
    }

    /// What the extension calls itself.
    pub fn library(&self) -> Result<String> {
        let mut client = self.server.connect()?;
        let version = text(
            &mut client,
            "SELECT extversion FROM pg_extension WHERE extname = 'txn'",
        )?;
        let server = text(&mut client, "SELECT current_setting('server_version')")?;
        Ok(format!("txn {version}, PostgreSQL {server}"))
    }

    /// The next schedule gets tables of its own: rows are remembered by the extension for how they
    /// were fought over.
    pub fn forget_tables(&mut self) {
        self.tables = None;
    }

    /// Runs a schedule and judges it.
    pub fn attempt(
        &mut self,
        schedule: &Schedule,
        report: &mut Report,
    ) -> Result<(Run, Vec<Finding>)> {
        let mut findings = Vec::new();
        let finding = |rule, text: String| Finding {
            rule,
            text,
            step: None,
        };
        match self.try_attempt(schedule, report, &mut findings) {
            Ok(run) => {
                if let Some(hang) = &run.hang {
                    findings.push(finding("hang", hang.clone()));
                }
                if let Some(lost) = &run.lost {
                    findings.push(finding("crash", format!("{lost}\n{}", self.tail())));
                }
                let endless = findings.iter().any(|finding| finding.rule == "vacuum");
                if run.hang.is_some() || run.lost.is_some() || endless {
                    self.start_over()?;
                }
                Ok((run, findings))
            }
            Err(error) => {
                findings.push(finding("crash", format!("{error:#}\n{}", self.tail())));
                self.start_over()?;
                Ok((Run::default(), findings))
            }
        }
    }

    fn try_attempt(
        &mut self,
        schedule: &Schedule,
        report: &mut Report,
        findings: &mut Vec<Finding>,
    ) -> Result<Run> {
        let stage = self.stage.as_mut().context("there is no stage")?;
        let group = schedule.seed / SAME_TABLES;
        if self
            .tables
            .as_ref()
            .is_none_or(|(there, _)| *there != group)
        {
            stage
                .control
                .batch_execute(&schedule.schema.sql())
                .context("creating the tables")?;
            self.tables = Some((group, Relations::of(&mut stage.control)?));
        }
        let Some((_, relations)) = &self.tables else {
            return Ok(Run::default());
        };
        let run = stage.run(schedule)?;
        count(&run, report);
        if run.hang.is_some() || run.lost.is_some() {
            return Ok(run);
        }
        let mut end = health::look(&mut stage.control, schedule, relations)?;
        health::vacuum(stage, schedule, &mut end);
        health::quiet(&mut stage.control, &mut end)?;
        findings.extend(judge::judge(schedule, &run, &end));
        if !end.findings.is_empty() {
            // Damage is not to be found again in the next schedule.
            self.tables = None;
        }
        if findings.is_empty()
            && let Some(stock) = &mut self.stock
        {
            findings.extend(stock.replay(schedule, &run, &end, &mut report.replays)?);
        }
        Ok(run)
    }

    fn tail(&self) -> String {
        let log = self.server.log().unwrap_or_default();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| {
                ["PANIC", "TRAP", "panicked", "terminated", "FATAL"]
                    .iter()
                    .any(|word| line.contains(word))
            })
            .collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// A new server, after one that hangs or has died.
    fn start_over(&mut self) -> Result<()> {
        self.note_stats();
        // Sessions that hang end only with their server.
        let stage = self.stage.take();
        let server = Server::start(&self.install, self.options.clone())?;
        drop(std::mem::replace(&mut self.server, server));
        drop(stage);
        server::prepare(&self.server)?;
        self.stage = Some(Stage::new(&self.server)?);
        self.tables = None;
        Ok(())
    }

    fn note_stats(&mut self) {
        let Ok(mut client) = self.server.connect() else {
            return;
        };
        for (figure, before) in FIGURES.iter().zip(&mut self.before) {
            *before += int(&mut client, &format!("SELECT {figure} FROM txn.stats")).unwrap_or(0);
        }
    }

    pub fn add_stats(&mut self, report: &mut Report) -> Result<()> {
        self.note_stats();
        for (figure, value) in FIGURES.iter().zip(&self.before) {
            report.stats.insert((*figure).to_owned(), *value);
        }
        Ok(())
    }
}

fn count(run: &Run, report: &mut Report) {
    for event in &run.events {
        let Some(answer) = &event.answer else {
            continue;
        };
        report.statements += 1;
        report.waited += u64::from(event.waited);
        if let Answer::Failed { code, .. } = answer {
            *report.errors.entry(code.clone()).or_default() += 1;
        }
    }
}
