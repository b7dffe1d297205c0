//! Runs `cargo test` and reads its results.
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::tally::Tally;

/// Runs `command`, a `cargo test` with all its arguments but `filter`, shows its output and
/// counts. A run that fails, or says nothing, without a failed test is itself a failure, named
/// `what`.
pub fn run(mut command: Command, filter: Option<&str>, last: &[&str], what: &str) -> Result<Tally> {
    command
        .arg("--no-fail-fast")
        .arg("--")
        .args(last)
        .args(filter);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("could not run cargo test")?;
    let stdout = child.stdout.take().context("cargo test has no output")?;
    let mut results = Results::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        results.read(&line);
    }
    let status = child.wait()?;
    Ok(results.verdict(status.success(), what))
}

#[derive(Default)]
struct Results {
    tally: Tally,
    /// Test programs that have come to their last line.
    programs: usize,
    /// Failures of the programs' last lines.
    failed: usize,
}

impl Results {
    fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.programs += 1;
            self.tally.passed += count(rest, "passed").unwrap_or(0);
            self.failed += count(rest, "failed").unwrap_or(0);
        } else if let Some(test) = line.strip_prefix("test ")
            && let Some((name, "FAILED")) = test.rsplit_once(" ... ")
        {
            self.tally.fail(name);
        }
    }

    fn verdict(mut self, success: bool, what: &str) -> Tally {
        // With output in between, a failed test's own line is not recognized.
        for _ in self.tally.failures.len()..self.failed {
            self.tally
                .fail(&format!("{what}: a failed test, see above"));
        }
        if !success && self.failed == 0 {
            self.tally.fail(&format!(
                "{what}: a build or a test program has failed, see above"
            ));
        } else if self.programs == 0 {
            self.tally
                .fail(&format!("{what}: no test program has told a result"));
        }
        self.tally
    }
}

/// The number before `word` in `ok. 12 passed; 0 failed; ...`.
fn count(text: &str, word: &str) -> Option<usize> {
    let words: Vec<&str> = text
        .split([' ', ';'])
        .filter(|word| !word.is_empty())
        .collect();
    let place = words.iter().position(|found| *found == word)?;
    words.get(place.checked_sub(1)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(output: &str, success: bool) -> (usize, usize) {
        let mut results = Results::default();
        output.lines().for_each(|line| results.read(line));
        let tally = results.verdict(success, "x");
        (tally.passed, tally.failures.len())
    }

    const GOOD: &str =
        "test a ... ok\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out";
    const BAD: &str = "test b ... FAILED\n\
                       test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured";

    #[test]
    fn all_programs_are_added_up() {
        assert_eq!(verdict(&format!("{GOOD}\n{BAD}"), false), (3, 1));
        assert_eq!(verdict(&format!("{GOOD}\n{GOOD}"), true), (4, 0));
    }

    #[test]
    fn failures_without_their_own_line_count() {
        assert_eq!(
            verdict("test result: FAILED. 1 passed; 2 failed; 0 ignored", false),
            (1, 2)
        );
    }

    #[test]
    fn silence_and_crashes_are_failures() {
        assert_eq!(verdict("", true), (0, 1));
        assert_eq!(verdict("", false), (0, 1));
        assert_eq!(verdict(GOOD, false), (2, 1));
    }
}
