#![doc = include_str!("../README.md")]

mod cells;
mod plain;
mod rates;
mod sample;
mod screen;
mod source;
pub mod text;
mod tui;

use std::env;
use std::io::{IsTerminal, Write, stdout};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use postgres::Config;

use rates::{Frame, Sort};
use screen::Screen;
use source::Source;

#[derive(clap::Args)]
pub struct Args {
    /// Which server and database: `host=... dbname=...` or `postgresql://...`; PGHOST, PGPORT,
    /// PGUSER, PGDATABASE and PGPASSWORD fill in
    connection: Option<String>,
    /// Seconds between two looks, 0.1 or more
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Which hot rows come first
    #[arg(long, value_enum, default_value = "updates")]
    sort: Sort,
    /// Print one look as plain text, as is done when the output is no terminal
    #[arg(long)]
    once: bool,
}

/// Watches the server until the user has enough; `default` says which, if `args` do not.
pub fn run(args: Args, default: impl FnOnce() -> Result<Config>) -> Result<()> {
    let config = match &args.connection {
        Some(text) => config(text)?,
        None => default()?,
    };
    let mut source = Source::new(config);
    let first = source.sample()?;
    if !args.once && stdout().is_terminal() {
        let screen = Screen::new(source.address(), args.interval, first, args.sort);
        return tui::run(screen, source, args.interval);
    }
    sleep(args.interval);
    let mut frame = Frame::new(Some(&first), source.sample()?);
    frame.sort(args.sort);
    write!(stdout(), "{}", plain::print(&source.address(), &frame))?;
    Ok(())
}

/// The server of that connection string, completed by the environment.
pub fn config(text: &str) -> Result<Config> {
    source::config(text, |name| env::var(name).ok())
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, from 0.1 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds_within_reason() {
        assert_eq!(interval("1"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "0.01", "-1", "NaN", "inf", "1e9", "1s", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
