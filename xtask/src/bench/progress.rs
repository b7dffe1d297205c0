//! The progress bar, and the line below it that shows the hot row live.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::pgbench::Failure;
use super::sample::Sample;
use txn_top::text::{microseconds, thousands};

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

    /// All that a load generator has printed which failed, if that is wanted.
    pub fn print_output(&self, error: &anyhow::Error, is_wanted: bool) {
        if let (true, Some(failure)) = (is_wanted, error.downcast_ref::<Failure>()) {
            self.print(&failure.output);
        }
    }

    pub fn begin(&self, what: String) {
        self.bar.set_message(what);
        self.live.set_message("");
    }

    pub fn show(&self, sample: &Sample) {
        self.tell(live_line(sample));
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

/// What `txn.hotspots` says of the hottest row.
fn live_line(sample: &Sample) -> String {
    let Sample {
        mode,
        waiting,
        running,
        updates,
        cascades,
        handover_us,
        ..
    } = sample;
    if mode == super::sample::ROW_LOCK_MODE {
        return format!("hot row: {mode} · waiting {waiting} · running {running}");
    }
    format!(
        "hot row: {mode} · waiting {waiting} · running {running} · updates {} · \
         cascades {cascades} · hand-over {}",
        thousands(*updates as f64),
        microseconds(*handover_us)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_live_line_says_what_hotspots_says() {
        let sample = Sample {
            at: 0.5,
            mode: "group".to_owned(),
            waiting: 212,
            running: 43,
            updates: 123_456,
            cascades: 2,
            handover_us: 12.34,
        };
        assert_eq!(
            live_line(&sample),
            "hot row: group · waiting 212 · running 43 · updates 123,456 · cascades 2 · \
             hand-over 12.3 µs"
        );
    }
}
