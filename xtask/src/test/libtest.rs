//! Runs `cargo test` and reads its results.
use std::io::{BufRead, BufReader};
use std::mem::take;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::tally::Tally;

/// Runs `command`, a `cargo test` with all its arguments but `filter`, and counts. Shows its
/// output, with one line for the tests of a module that pass, so that what has failed is easy to
/// find. A run that fails, or says nothing, without a failed test is itself a failure, named
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
        if let Some(text) = results.read(&line) {
            println!("{text}");
        }
    }
    let status = child.wait()?;
    Ok(results.verdict(status.success(), what))
}

/// So many lines of a failed test's output stand in the summary: who waits for whom, if it hung.
const EXPLAINED: usize = 40;

#[derive(Default)]
struct Results {
    tally: Tally,
    /// Test programs that have come to their last line.
    programs: usize,
    /// Failures of the programs' last lines.
    failed: usize,
    /// The module whose tests pass, and how many have.
    passing: (String, usize),
    /// The failed test whose output is read, and how many lines of it the summary may still have.
    explained: Option<(String, usize)>,
}

impl Results {
    /// Takes a line of the output, and returns what to show of it.
    fn read(&mut self, line: &str) -> Option<String> {
        let mut shown = Vec::new();
        let verdict = line
            .strip_prefix("test ")
            .and_then(|test| test.rsplit_once(" ... "));
        if let Some((name, "ok")) = verdict {
            let module = name.split("::").next().unwrap_or(name);
            if self.passing.0 != module {
                shown.extend(self.have_passed());
                self.passing.0 = module.to_owned();
            }
            self.passing.1 += 1;
        } else {
            shown.extend(self.have_passed());
            shown.push(line.to_owned());
        }
        if let Some((name, "FAILED")) = verdict {
            self.tally.fail(name);
        } else if let Some(name) = output_of(line) {
            self.explained = Some((name.to_owned(), EXPLAINED));
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            self.explained = None;
            self.programs += 1;
            self.tally.passed += count(rest, "passed").unwrap_or(0);
            self.failed += count(rest, "failed").unwrap_or(0);
        } else if let Some((name, left)) = self.explained.take() {
            self.explain(name, left, line);
        }
        (!shown.is_empty()).then(|| shown.join("\n"))
    }

    /// Gives the summary a line of a failed test's output. That ends with the stack, or the list of
    /// failed tests.
    fn explain(&mut self, name: String, left: usize, line: &str) {
        if line.is_empty() {
            self.explained = Some((name, left));
        } else if !line.to_lowercase().starts_with("stack backtrace") && line != "failures:" {
            self.tally.explain(&name, line);
            self.explained = (left > 1).then(|| (name, left - 1));
        }
    }

    /// The tests that have passed one after the other, in one line.
    fn have_passed(&mut self) -> Option<String> {
        let (module, count) = take(&mut self.passing);
        (count > 0).then(|| format!("{module}: {count} ok"))
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

/// The test whose output that line announces.
fn output_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
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
        output.lines().for_each(|line| {
            results.read(line);
        });
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
    fn tests_that_pass_are_one_line_for_each_module() {
        let output = "running 4 tests\ntest a::x ... ok\ntest a::y::z ... ok\ntest a::f ... FAILED\n\
                      test b ... ok\n\nfailures:";
        let mut results = Results::default();
        let shown: Vec<_> = output
            .lines()
            .filter_map(|line| results.read(line))
            .collect();
        let wanted = "running 4 tests\na: 2 ok\ntest a::f ... FAILED\nb: 1 ok\n\nfailures:";
        assert_eq!(shown.join("\n"), wanted);
    }

    #[test]
    fn a_failure_is_told_with_its_output_but_for_the_stack() {
        let long = "w\n".repeat(2 * EXPLAINED);
        let output = format!(
            "test a ... FAILED\ntest b ... FAILED\ntest c ... FAILED\ntest d ... FAILED\n\n\
             ---- b stdout ----\n\nError: no\nmore\n\nStack backtrace:\n   0: x\n\
             ---- c stdout ----\n{long}---- d stdout ----\nError: d\n\n\
             failures:\n    b\n    c\n\ntest result: FAILED. 0 passed; 4 failed; 0 ignored"
        );
        let mut results = Results::default();
        output.lines().for_each(|line| {
            results.read(line);
        });
        let [a, b, c, d] = &results.tally.failures[..] else {
            panic!("{:?}", results.tally.failures);
        };
        assert_eq!([a, b, d], ["a", "b: Error: no\n    more", "d: Error: d"]);
        assert_eq!(c.lines().count(), EXPLAINED);
        assert_eq!(results.failed, 4);
    }

    #[test]
    fn silence_and_crashes_are_failures() {
        assert_eq!(verdict("", true), (0, 1));
        assert_eq!(verdict("", false), (0, 1));
        assert_eq!(verdict(GOOD, false), (2, 1));
    }
}
