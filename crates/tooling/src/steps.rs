//! Progress of work that takes a while: a line on a terminal, plain lines elsewhere.
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A numbered sequence of steps, the current one with a spinner and its time.
pub struct Steps {
    bar: ProgressBar,
    total: u64,
}

impl Steps {
    pub fn new(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("{spinner} [{pos}/{len}] {msg} ({elapsed})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(100));
        Steps { bar, total }
    }

    /// Begins the next step and says what it does.
    pub fn next(&self, what: &str) {
        self.bar.inc(1);
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            eprintln!("[{}/{}] {what}", self.bar.position(), self.total);
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
