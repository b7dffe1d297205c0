//! The mixed load: a pgbench process for each of its parts.

use std::fs;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use pgserver::Server;

use super::parts::{Outcome, PARTS, Part, RECONNECTS_PER_SECOND, Told};
use crate::pgbench::{Failure, GRACE, MAX_TRIES, add_scripts};
use crate::pgbench_report::Report;
use crate::running::Running;
use crate::scratch::Scratch;
use crate::script::Script;

/// A running load.
pub struct Load {
    parts: Vec<RunningPart>,
    scratch: Scratch,
}

struct RunningPart {
    part: &'static Part,
    clients: usize,
    child: Running,
}

impl Load {
    /// Starts `clients` clients for so many seconds, with `rate` transactions a second or as many
    /// as they can.
    pub fn start(
        server: &Server,
        clients: usize,
        rate: Option<f64>,
        seconds: u64,
    ) -> anyhow::Result<Self> {
        let scratch = Scratch::new(server.user())?;
        let (moving, reconnecting) = (clients / 4, clients / 8);
        let sizes = [clients - moving - reconnecting, moving, reconnecting];
        let mut parts = Vec::new();
        for (part, clients) in PARTS.iter().zip(sizes) {
            let rate = rate
                .map(|rate| rate * part.share)
                .or(part.reconnects.then_some(RECONNECTS_PER_SECOND));
            let child = start(server, &scratch, part, clients, rate, seconds)?;
            parts.push(RunningPart {
                part,
                clients,
                child,
            });
        }
        Ok(Self { parts, scratch })
    }

    /// Fails when a part has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for RunningPart { part, child, .. } in &mut self.parts {
            if let Some(status) = child.0.try_wait()? {
                let output = output(&self.scratch, part)?;
                return Err(Failure { output })
                    .with_context(|| format!("\"{}\" ended early with {status}", part.name));
            }
        }
        Ok(())
    }

    /// Waits for the end of the load. Fails when clients hang, or have met any error but those that
    /// are retried.
    pub fn finish(mut self) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome {
            scripts: Vec::new(),
            retries: 0,
            failed: 0,
        };
        let overdue = Instant::now() + GRACE;
        for RunningPart {
            part,
            clients,
            child,
        } in &mut self.parts
        {
            let Some(status) = child.wait(overdue, &mut || Ok(()))? else {
                bail!(
                    "\"{}\" still ran {} s after its time: sessions hang",
                    part.name,
                    GRACE.as_secs()
                );
            };
            let output = output(&self.scratch, part)?;
            let report = Report::parse(&output)
                .and_then(|report| {
                    ensure!(status.success(), "pgbench ended with {status}");
                    ensure!(
                        report.scripts.len() == part.scripts.len(),
                        "pgbench reports {} scripts",
                        report.scripts.len()
                    );
                    Ok(report)
                })
                .with_context(|| Failure {
                    output: output.clone(),
                })
                .with_context(|| format!("\"{}\"", part.name))?;
            outcome.retries += report.retries;
            outcome.failed += report.failed.saturating_sub(*clients as u64);
            outcome
                .scripts
                .extend(report.scripts.iter().zip(part.scripts).map(
                    |(count, (script, effect))| Told {
                        part: part.name,
                        script: script.name,
                        acknowledged: *count,
                        effect: *effect,
                    },
                ));
        }
        Ok(outcome)
    }
}

fn output(scratch: &Scratch, part: &Part) -> anyhow::Result<String> {
    Ok(fs::read_to_string(scratch.path().join(part.name))?)
}

/// One thread for each: with several scripts pgbench's threads would count without a lock.
fn start(
    server: &Server,
    scratch: &Scratch,
    part: &Part,
    clients: usize,
    rate: Option<f64>,
    seconds: u64,
) -> anyhow::Result<Running> {
    let mut pgbench = server.command("pgbench");
    let scripts: Vec<Script> = part.scripts.iter().map(|(script, _)| *script).collect();
    add_scripts(&mut pgbench, scratch, &scripts)?;
    pgbench
        .env("PGOPTIONS", part.settings)
        .env("PGAPPNAME", part.name)
        .args(["--no-vacuum", "--max-tries", &MAX_TRIES.to_string()])
        .args(["--protocol", "prepared", "--define", "spread=0"])
        .args(["--jobs", "1", "--client", &clients.to_string()])
        .args(["--time", &seconds.to_string()]);
    if let Some(rate) = rate {
        pgbench.args(["--rate", &rate.to_string()]);
    }
    if part.reconnects {
        pgbench.arg("--connect");
    }
    Running::start(&mut pgbench, &scratch.path().join(part.name))
}
