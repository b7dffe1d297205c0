//! pgbench's log: what became of every transaction.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use hdrhistogram::Histogram;

use super::latency::histogram;

/// The transactions of one script.
#[derive(Debug)]
pub struct Transactions {
    pub committed: u64,
    /// Given up after a serialization failure (40001) at the last try.
    pub refused: u64,
    /// Given up after a deadlock (40P01) at the last try.
    pub deadlocks: u64,
    /// Left out because no client was free in time.
    pub skipped: u64,
    /// Latency of those that committed, tries that failed included.
    pub microseconds: Histogram<u64>,
}

/// One transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When it ended, in seconds of Unix time.
    pub at: f64,
    pub script: usize,
    pub end: End,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After so many microseconds, from when it should have begun.
    Committed(u64),
    Refused,
    Deadlock,
    /// No client was free in time.
    Skipped,
}

/// All transactions of the logs of pgbench's threads.
pub fn events(logs: &[PathBuf]) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    each(logs, |event| {
        events.push(event);
        Ok(())
    })?;
    Ok(events)
}

fn each(logs: &[PathBuf], mut act: impl FnMut(Event) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for log in logs {
        for line in fs::read_to_string(log)?.lines() {
            event(line)
                .with_context(|| format!("not a line of pgbench's log: \"{line}\""))
                .and_then(&mut act)?;
        }
    }
    Ok(())
}

/// Counts what the logs of pgbench's threads say of so many scripts, one line for each transaction.
pub fn read(logs: &[PathBuf], scripts: usize) -> anyhow::Result<Vec<Transactions>> {
    let mut all = Vec::new();
    for _ in 0..scripts {
        all.push(Transactions {
            committed: 0,
            refused: 0,
            deadlocks: 0,
            skipped: 0,
            microseconds: histogram()?,
        });
    }
    each(logs, |event| {
        let script = all
            .get_mut(event.script)
            .with_context(|| format!("pgbench's log has a script {}", event.script))?;
        match event.end {
            End::Refused => script.refused += 1,
            End::Deadlock => script.deadlocks += 1,
            End::Skipped => script.skipped += 1,
            End::Committed(microseconds) => {
                script.microseconds.saturating_record(microseconds);
                script.committed += 1;
            }
        }
        Ok(())
    })?;
    Ok(all)
}

/// Of a line "client number latency script seconds microseconds ...", whose latency may be the way
/// it failed. None when it is something else.
fn event(line: &str) -> Option<Event> {
    let mut fields = line.split(' ').skip(2);
    let end = match fields.next()? {
        "serialization" => End::Refused,
        "deadlock" => End::Deadlock,
        "skipped" => End::Skipped,
        microseconds => End::Committed(microseconds.parse().ok()?),
    };
    let script = fields.next()?.parse().ok()?;
    let seconds: f64 = fields.next()?.parse().ok()?;
    let microseconds: f64 = fields.next()?.parse().ok()?;
    Some(Event {
        at: seconds + microseconds / 1e6,
        script,
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_counted_by_script_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let logs = ["0", "1"].map(|name| folder.path().join(name));
        fs::write(
            &logs[0],
            "3 1 17218 0 1795224976 163311\n3 2 serialization 1 1795224976 163311\n",
        )
        .unwrap();
        fs::write(
            &logs[1],
            "4 1 deadlock 1 1795224976 163311\n4 2 50 1 1795224976 163311\n\
             4 3 52 1 1795224976 163311 7\n4 4 skipped 2 1795224976 163311 40\n",
        )
        .unwrap();
        let all = read(&logs, 3).unwrap();
        let counts: Vec<_> = all
            .iter()
            .map(|script| {
                (
                    script.committed,
                    script.refused,
                    script.deadlocks,
                    script.skipped,
                )
            })
            .collect();
        assert_eq!(counts, [(1, 0, 0, 0), (2, 1, 1, 0), (0, 0, 0, 1)]);
        let last = events(&logs[1..]).unwrap().pop().unwrap();
        assert_eq!((last.at, last.end), (1_795_224_976.163_311, End::Skipped));
        assert_eq!(all[1].microseconds.max(), 52);
    }

    #[test]
    fn other_lines_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        for line in [
            "3 1 fast 0 1795224976 163311",
            "3 1",
            "3 1 17218 2 1795224976 163311",
            "3 1 failed 0 1795224976 1",
        ] {
            fs::write(&log, line).unwrap();
            assert!(read(std::slice::from_ref(&log), 2).is_err(), "{line}");
        }
    }
}
