//! How many tests have passed, and which have not.
use std::ops::AddAssign;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: usize,
    pub failures: Vec<String>,
}

impl Tally {
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    pub fn fail(&mut self, what: &str) {
        self.failures.push(what.to_owned());
    }

    /// Adds the reason to a failure, or another line of it.
    pub fn explain(&mut self, what: &str, why: &str) {
        for failure in &mut self.failures {
            if failure == what {
                *failure += &format!(": {why}");
            } else if failure
                .strip_prefix(what)
                .is_some_and(|rest| rest.starts_with(": "))
            {
                *failure += &format!("\n    {why}");
            }
        }
    }

    pub fn record(&mut self, passed: bool, what: &str) {
        if passed { self.pass() } else { self.fail(what) }
    }

    /// Nothing ran at all.
    pub fn is_empty(&self) -> bool {
        self.passed == 0 && self.failures.is_empty()
    }

    /// Prints what has failed and the last line. Whether nothing has.
    pub fn verdict(&self) -> bool {
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        println!("{} passed, {} failed", self.passed, self.failures.len());
        self.failures.is_empty()
    }

    /// Puts `kind` in front of the failures' names.
    pub fn prefix(&mut self, kind: &str) {
        for failure in &mut self.failures {
            *failure = format!("{kind}: {failure}");
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
    }
}
