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
    /// Latency of those that committed, tries that failed included.
    pub microseconds: Histogram<u64>,
}

/// Counts what the logs of pgbench's threads say of so many scripts, one line for each transaction.
pub fn read(logs: &[PathBuf], scripts: usize) -> anyhow::Result<Vec<Transactions>> {
    let mut all = Vec::new();
    for _ in 0..scripts {
        all.push(Transactions {
            committed: 0,
            refused: 0,
            deadlocks: 0,
            microseconds: histogram()?,
        });
    }
    for log in logs {
        for line in fs::read_to_string(log)?.lines() {
            count(line, &mut all)
                .with_context(|| format!("not a line of pgbench's log: \"{line}\""))?;
        }
    }
    Ok(all)
}

/// Adds a line "client number latency script ...", whose latency may be the way it failed. None when it is something else.
fn count(line: &str, all: &mut [Transactions]) -> Option<()> {
    let mut fields = line.split(' ').skip(2);
    let latency = fields.next()?;
    let script = all.get_mut(fields.next()?.parse::<usize>().ok()?)?;
    match latency {
        "serialization" => script.refused += 1,
        "deadlock" => script.deadlocks += 1,
        microseconds => {
            script
                .microseconds
                .saturating_record(microseconds.parse().ok()?);
            script.committed += 1;
        }
    }
    Some(())
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
        fs::write(&logs[1], "4 1 deadlock 1 1795224976 163311\n4 2 50 1 1795224976 163311\n4 3 52 1 1795224976 163311 7\n").unwrap();
        let all = read(&logs, 3).unwrap();
        let counts: Vec<_> = all
            .iter()
            .map(|script| (script.committed, script.refused, script.deadlocks))
            .collect();
        assert_eq!(counts, [(1, 0, 0), (2, 1, 1), (0, 0, 0)]);
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
