//! Processes of load generators and of servers that are not PostgreSQL's.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use tooling::interrupt;

/// A child that does not outlive an error.
pub struct Running(pub Child);

impl Running {
    /// Starts `command`, which prints to the new file `output`.
    pub fn start(command: &mut Command, output: &Path) -> anyhow::Result<Self> {
        print_to(command, output)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn();
        Ok(Self(
            child.with_context(|| format!("cannot start {program}"))?,
        ))
    }

    /// How it has ended; None when it still runs after `overdue`. Meanwhile `tick` is called.
    pub fn wait(
        &mut self,
        overdue: Instant,
        tick: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<ExitStatus>> {
        loop {
            interrupt::check()?;
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() > overdue {
                return Ok(None);
            }
            tick()?;
            sleep(Duration::from_millis(25));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.0.kill().and_then(|()| self.0.wait()).ok();
        }
    }
}

/// Makes `command` read nothing and print all to the new file `output`.
pub fn print_to(command: &mut Command, output: &Path) -> anyhow::Result<()> {
    let file = File::create(output)?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    Ok(())
}
