//! Reads what pg_regress prints: `ok 1 - name 12 ms`, `not ok 2 + name 3 ms`, and the plan `1..2`.
use std::collections::HashMap;

use super::tally::Tally;

/// Counts the tests `asked` for. One that pg_regress does not report has failed.
pub fn read(output: &str, asked: &[String]) -> Tally {
    let told: HashMap<&str, bool> = output.lines().filter_map(result).collect();
    let mut tally = Tally::default();
    for name in asked {
        match told.get(name.as_str()) {
            Some(true) => tally.pass(),
            Some(false) => tally.fail(name),
            None => tally.fail(&format!("{name} (did not run)")),
        }
    }
    tally
}

/// Name and success of a test's line.
fn result(line: &str) -> Option<(&str, bool)> {
    let (rest, success) = match line.strip_prefix("not ok ") {
        Some(rest) => (rest, false),
        None => (line.strip_prefix("ok ")?, true),
    };
    let mut words = rest.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    match words.next()? {
        "-" | "+" => Some((words.next()?, success)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_asked_test_has_a_verdict() {
        let output = "# using postmaster on /tmp, port 5432\n\
                      ok 1         - surface                                   56 ms\n\
                      not ok 2     + shapes                                    12 ms\n\
                      1..2\n# 1 of 2 tests failed.\n";
        let asked = ["surface", "shapes", "lost"].map(str::to_owned);
        let tally = read(output, &asked);
        assert_eq!(tally.passed, 1);
        assert_eq!(tally.failures, ["shapes", "lost (did not run)"]);
    }

    #[test]
    fn other_lines_are_no_results() {
        for line in ["1..2", "ok", "ok then", "# ok 1 - a", "Bail out! ok 1 - a"] {
            assert_eq!(result(line), None, "{line}");
        }
    }
}
