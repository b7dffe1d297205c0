//! Ctrl-C: the run ends with an error, so that servers and folders are cleaned up on the way out.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on, Ctrl-C and SIGTERM only make `check` fail. Once in a process.
pub fn watch() -> anyhow::Result<()> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")
}

/// Fails when the user wants to stop.
pub fn check() -> anyhow::Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
