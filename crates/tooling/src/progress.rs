//! The progress bar, and a line below it that says what goes on.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

pub struct Progress {
    terminal: MultiProgress,
    bar: ProgressBar,
    live: ProgressBar,
}

impl Progress {
    pub fn new(steps: usize) -> anyhow::Result<Self> {
        let terminal = MultiProgress::new();
        let bar = terminal.add(ProgressBar::new(steps as u64));
        bar.set_style(
            ProgressStyle::with_template(
                "{bar:24.cyan/dim} {pos}/{len}  {elapsed} (left: {eta})  {msg:.bold}",
            )?
            .progress_chars("━╸─"),
        );
        bar.enable_steady_tick(Duration::from_millis(250));
        let live = terminal.add(ProgressBar::new_spinner());
        live.set_style(ProgressStyle::with_template("{msg:.yellow}")?);
        Ok(Self {
            terminal,
            bar,
            live,
        })
    }

    /// A line that stays, with or without a terminal.
    pub fn print(&self, line: &str) {
        self.terminal.suspend(|| println!("{line}"));
    }

    pub fn begin(&self, what: String) {
        self.bar.set_message(what);
        self.live.set_message("");
    }

    /// Puts `line` below the bar, in place of what was there.
    pub fn tell(&self, line: String) {
        self.live.set_message(line);
    }

    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    pub fn end(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.live.finish_and_clear();
        self.bar.finish_and_clear();
    }
}
