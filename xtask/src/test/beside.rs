//! Kinds of tests that run beside the others, in a process of their own: the server tests wait
//! much of the time, and these want the processors only.
use std::io::{Read, Seek};
use std::process::{Child, Command};

use anyhow::{Context, Result};
use tempfile::tempfile;

use super::tally::Tally;
use super::{Kind, name};

const BESIDE: [Kind; 2] = [Kind::Unit, Kind::Package];

/// Those of `kinds` that may run beside the others, if there are server tests; and the others.
pub fn split(kinds: &[Kind]) -> (Vec<Kind>, Vec<Kind>) {
    let may = |kind: &Kind| kinds.contains(&Kind::Server) && BESIDE.contains(kind);
    kinds.iter().partition(|kind| may(kind))
}

/// Kinds that run beside the others, or have not begun.
pub struct Beside(Option<Result<Running>>);

struct Running {
    child: Child,
    output: std::fs::File,
}

/// Starts them, with the others before them where a processor is wanted.
pub fn start(kinds: &[Kind], filter: Option<&str>) -> Beside {
    if kinds.is_empty() {
        return Beside(None);
    }
    let names = kinds.iter().map(|&kind| name(kind));
    println!(
        "beside the others, told at the end: {}\n",
        Vec::from_iter(names.clone()).join(", ")
    );
    let start = || -> Result<Running> {
        let output = tempfile()?;
        let mut command = Command::new("nice");
        command
            .arg(std::env::current_exe()?)
            .arg("test")
            .args(names)
            .args(filter.iter().flat_map(|text| ["--filter", text]))
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        let child = command.spawn().context("could not run nice")?;
        Ok(Running { child, output })
    };
    Beside(Some(start()))
}

impl Beside {
    /// Waits for them, and shows what they have printed.
    pub fn finish(self) -> Tally {
        let Some(running) = self.0 else {
            return Tally::default();
        };
        running.and_then(Running::finish).unwrap_or_else(|error| {
            let mut tally = Tally::default();
            tally.fail(&format!("the tests beside the others: {error:#}"));
            tally
        })
    }
}

impl Running {
    fn finish(mut self) -> Result<Tally> {
        self.child.wait()?;
        let mut told = Vec::new();
        self.output.rewind()?;
        self.output.read_to_end(&mut told)?;
        let told = String::from_utf8_lossy(&told);
        let (shown, tally) = read(&told).context("they have not come to their last line")?;
        println!("{shown}");
        Ok(tally)
    }
}

/// What `Tally::verdict` has printed, as a tally, and what was printed before it.
fn read(told: &str) -> Option<(String, Tally)> {
    let mut lines: Vec<&str> = told.lines().collect();
    let (passed, rest) = lines.pop()?.split_once(" passed, ")?;
    let failed: usize = rest.strip_suffix(" failed")?.parse().ok()?;
    let failures = lines.split_off(lines.len().checked_sub(failed)?);
    let failures = failures
        .into_iter()
        .map(|line| line.strip_prefix("failed: "));
    let mut tally = Tally {
        passed: passed.parse().ok()?,
        ..Tally::default()
    };
    for failure in failures {
        tally.fail(failure?);
    }
    // With a filter there may be no test of these kinds.
    if tally.passed == 0 && tally.failures == [super::NO_TEST] {
        tally = Tally::default();
    }
    Some((lines.join("\n"), tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_server_tests_have_others_beside_them() {
        use Kind::{Package, Server, Sql, Unit};
        let all = [Unit, Sql, Package, Server];
        assert_eq!(split(&all), (vec![Unit, Package], vec![Sql, Server]));
        assert_eq!(split(&all[..3]), (vec![], all[..3].to_vec()));
        assert_eq!(split(&[Server]), (vec![], vec![Server]));
    }

    #[test]
    fn the_last_lines_are_a_tally() {
        let (shown, tally) = read("a\nb\nfailed: unit: x\n12 passed, 1 failed\n").unwrap();
        assert_eq!(shown, "a\nb");
        assert_eq!(
            (tally.passed, tally.failures),
            (12, vec!["unit: x".to_owned()])
        );
        let (_, none) = read(&format!(
            "failed: {}\n0 passed, 1 failed",
            super::super::NO_TEST
        ))
        .unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn what_stops_in_between_has_no_tally() {
        for told in [
            "",
            "a\n",
            "1 passed, x failed",
            "0 passed, 3 failed",
            "x\n1 passed, 1 failed",
        ] {
            assert!(read(told).is_none(), "{told:?}");
        }
    }
}
