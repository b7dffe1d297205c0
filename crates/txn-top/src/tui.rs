//! The terminal: taken, drawn on, given back on every way out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::screen::Screen;
use super::source::{self, Source};

/// How long a key press or a sample may wait.
const TICK: Duration = Duration::from_millis(100);

/// SIGINT or SIGTERM has come.
static STOPPED: AtomicBool = AtomicBool::new(false);

pub fn run(screen: Screen, source: Source, interval: Duration) -> Result<()> {
    ctrlc::set_handler(|| STOPPED.store(true, Ordering::Relaxed))
        .context("cannot watch for signals")?;
    // A panic, too, restores the terminal first.
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let result = watch(&mut terminal, screen, &source.watch(interval));
    ratatui::restore();
    result
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    events: &Receiver<source::Event>,
) -> Result<()> {
    loop {
        if STOPPED.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        match events.try_recv() {
            Ok(source::Event::Sample(sample)) => screen.sample(*sample),
            Ok(source::Event::Trouble(message, wait)) => screen.trouble(message, wait),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => bail!("the thread that asks the server has ended"),
        }
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && screen.key(key).is_break()
        {
            return Ok(());
        }
    }
}
