//! The report that pgbench prints at its end.

use anyhow::{Context, ensure};

/// The figures of pgbench's report.
#[derive(Debug, PartialEq)]
pub struct Report {
    /// Acknowledged transactions of each script.
    pub scripts: Vec<u64>,
    /// Transactions given up.
    pub failed: u64,
    /// Transactions left out because no client was free in time.
    pub skipped: u64,
    /// Tries beyond the first; pgbench does not report any when it tries once only.
    pub retries: u64,
    /// Per second, connecting not included.
    pub tps: f64,
}

impl Report {
    /// Fails when something is missing, as after an error.
    pub fn parse(output: &str) -> anyhow::Result<Self> {
        let after = |start: &str| {
            output
                .lines()
                .find_map(|line| line.strip_prefix(start))
                .and_then(|rest| rest.split_whitespace().next())
                .with_context(|| format!("no line \"{start}\" in pgbench's report"))
        };
        let processed = after("number of transactions actually processed: ")?.parse()?;
        let mut scripts = output
            .lines()
            .filter_map(|line| {
                let (count, rest) = line.strip_prefix(" - ")?.split_once(' ')?;
                rest.starts_with("transactions (").then(|| count.parse())
            })
            .collect::<Result<Vec<u64>, _>>()?;
        if scripts.is_empty() {
            scripts.push(processed);
        }
        ensure!(
            scripts.iter().sum::<u64>() == processed,
            "pgbench's counts do not add up"
        );
        Ok(Self {
            scripts,
            failed: after("number of failed transactions: ")?.parse()?,
            // Only told of a load with a rate and a limit.
            skipped: after("number of transactions skipped: ").map_or(Ok(0), str::parse)?,
            retries: match after("maximum number of tries: ")? {
                "1" => 0,
                _ => after("total number of retries: ")?.parse()?,
            },
            tps: after("tps = ")?.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_SCRIPT: &str = "\
pgbench (16.14)
transaction type: a.sql
maximum number of tries: 1000
number of transactions actually processed: 391
number of failed transactions: 2 (0.509%)
number of transactions retried: 5 (1.272%)
total number of retries: 7
latency average = 894.478 ms
initial connection time = 1211.178 ms
tps = 286.200314 (without initial connection time)
";

    #[test]
    fn a_report_of_one_script() {
        let report = Report::parse(ONE_SCRIPT).unwrap();
        let expected = Report {
            scripts: vec![391],
            failed: 2,
            skipped: 0,
            retries: 7,
            tps: 286.200314,
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn a_report_of_two_scripts_counts_each() {
        let output = ONE_SCRIPT.to_owned()
            + "SQL script 1: a.sql
 - weight: 95 (targets 95.0% of total)
 - 371 transactions (95.3% of total, tps = 1058.460977)
 - number of failed transactions: 0 (0.000%)
 - number of transactions retried: 0 (0.000%)
SQL script 2: b.sql
 - weight: 5 (targets 5.0% of total)
 - 20 transactions (4.7% of total, tps = 52.163388)
";
        assert_eq!(Report::parse(&output).unwrap().scripts, [371, 20]);
    }

    #[test]
    fn a_report_of_single_tries_has_no_retries() {
        let once = ONE_SCRIPT
            .replace("tries: 1000", "tries: 1")
            .replace("total number of retries: 7\n", "");
        assert_eq!(Report::parse(&once).unwrap().retries, 0);
        let many = ONE_SCRIPT.replace("total number of retries: 7\n", "");
        assert!(Report::parse(&many).is_err());
    }

    #[test]
    fn a_report_of_a_rate_has_what_was_left_out() {
        let rate = ONE_SCRIPT.to_owned() + "number of transactions skipped: 1234 (75.9%)\n";
        assert_eq!(Report::parse(&rate).unwrap().skipped, 1234);
    }

    #[test]
    fn a_report_cut_short_is_an_error_that_says_what_is_missing() {
        let error = Report::parse("pgbench: error: connection failed")
            .unwrap_err()
            .to_string();
        assert!(error.contains("actually processed"), "{error}");
    }

    #[test]
    fn counts_that_do_not_add_up_are_an_error() {
        let output = ONE_SCRIPT.to_owned() + " - 390 transactions (99.7% of total, tps = 1.0)\n";
        assert!(Report::parse(&output).is_err());
    }
}
