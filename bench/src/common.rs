//! What all benchmarks can be told.

use anyhow::{bail, ensure};

use tooling::progress::Progress;

use super::pgbench::{Failure, Protocol};

#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Common {
    /// Seconds of each run
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// How often every variant runs at every number of clients
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Numbers of clients, in place of the benchmark's own
    #[arg(long, value_delimiter = ',')]
    pub clients: Vec<usize>,
    /// Only these variants (their labels, with commas and no space between)
    #[arg(long, value_delimiter = ',')]
    pub variants: Vec<String>,
    /// pgbench's query protocol
    #[arg(long, value_enum, default_value = "prepared")]
    pub protocol: Protocol,
    /// Print all that pgbench said when a run fails
    #[arg(long)]
    pub raw: bool,
    /// Warehouses of range-tpcc and geo-tpcc [default: 16] and hammerdb [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub warehouses: Option<u64>,
}

impl Common {
    /// Fails when nothing is to be measured.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.seconds > 0 && self.rounds > 0,
            "a benchmark takes at least one second and one round"
        );
        Ok(())
    }

    /// Prints all that a load generator has said which failed, if that is wanted.
    pub fn print_output(&self, progress: &Progress, error: &anyhow::Error) {
        if let (true, Some(failure)) = (self.raw, error.downcast_ref::<Failure>()) {
            progress.print(&failure.output);
        }
    }

    /// Whether a variant of that label is to run.
    pub fn wants(&self, label: &str) -> bool {
        self.variants.is_empty() || self.variants.iter().any(|one| one == label)
    }

    /// Those variants of a benchmark that are to run. Fails when one was asked for that it does not
    /// have.
    pub fn choose<V: Clone>(
        &self,
        benchmark: &str,
        all: &[V],
        label: impl Fn(&V) -> &'static str,
    ) -> anyhow::Result<Vec<V>> {
        let known: Vec<&str> = all.iter().map(&label).collect();
        let mut asked = self.variants.iter();
        if let Some(unknown) = asked.find(|one| !known.contains(&one.as_str())) {
            bail!(
                "benchmark {benchmark} has no variant \"{unknown}\", but: {}",
                known.join(", ")
            );
        }
        let chosen = all.iter().filter(|variant| self.wants(label(variant)));
        Ok(chosen.cloned().collect())
    }
}

/// What was asked for, else what the benchmark has.
pub fn or_own<T: Clone>(asked: &[T], own: &[T]) -> Vec<T> {
    if asked.is_empty() { own } else { asked }.to_vec()
}

/// The labels of variants: a comma before a space is part of a label.
pub fn labels(parts: &[String]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for part in parts {
        match labels.last_mut() {
            Some(label) if part.starts_with(' ') => *label += &format!(",{part}"),
            _ => labels.push(part.clone()),
        }
    }
    labels
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What is asked for when nothing is.
    pub const COMMON: Common = Common {
        seconds: 10,
        rounds: 2,
        clients: Vec::new(),
        variants: Vec::new(),
        protocol: Protocol::Prepared,
        raw: false,
        warehouses: None,
    };

    #[test]
    fn labels_may_have_commas() {
        let given = ["lane", "lane", " all keys", " range OCC", "SSI"].map(String::from);
        assert_eq!(labels(&given), ["lane", "lane, all keys, range OCC", "SSI"]);
    }

    #[test]
    fn variants_are_chosen_by_their_labels_and_unknown_ones_refused() {
        let choose = |asked: &[&str]| {
            let variants = asked.iter().map(|label| (*label).to_owned()).collect();
            let common = Common { variants, ..COMMON };
            common.choose("b", &["x", "y", "z"], |label| label)
        };
        assert_eq!(choose(&[]).unwrap(), ["x", "y", "z"]);
        assert_eq!(choose(&["z", "x"]).unwrap(), ["x", "z"]);
        let error = choose(&["x", "w"]).unwrap_err().to_string();
        assert_eq!(error, "benchmark b has no variant \"w\", but: x, y, z");
    }
}
