//! Whether the data is what the clients were told.

use super::pgbench::Outcome;
use super::site::Findings;
use super::workload::{Effect, Workload};

/// Everything that is wrong, in words; empty when all is well.
pub fn faults(workload: &Workload, outcome: &Outcome, found: &Findings) -> Vec<String> {
    let mut faults = faults_of_data(workload, outcome.acknowledged, found);
    if outcome.failed > 0 {
        faults.push(format!(
            "{} transactions failed in spite of all retries",
            outcome.failed
        ));
    }
    faults
}

/// The same where transactions may fail.
pub fn faults_of_data(workload: &Workload, acknowledged: u64, found: &Findings) -> Vec<String> {
    let acknowledged = acknowledged as i64;
    let mut faults = Vec::new();
    let fits = match workload.effect_is {
        Effect::Exactly => found.effect == acknowledged,
        Effect::AtMost => found.effect <= acknowledged,
    };
    if !fits {
        faults.push(format!(
            "{acknowledged} transactions were acknowledged, but the data holds {}",
            found.effect
        ));
    }
    if found.imbalance != 0 {
        faults.push(format!("balance and ledger differ by {}", found.imbalance));
    }
    for (rows, way) in [
        (found.rows_by_index, "index"),
        (found.rows_by_scan, "a full scan"),
    ] {
        if rows != workload.rows {
            faults.push(format!(
                "there are {rows} rows by {way}, but there should be {}",
                workload.rows
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::latency::Latency;
    use crate::bench::workload::{HOT_ROW, HOT_ROWS, SLOTS};

    fn outcome(acknowledged: u64) -> Outcome {
        Outcome {
            acknowledged,
            rolled_back: 0,
            failed: 0,
            retries: 0,
            seconds: 1.0,
            latency: Latency {
                mean: 1.0,
                p50: 1.0,
                p95: 1.0,
                p99: 1.0,
                max: 1.0,
            },
            output: String::new(),
        }
    }

    fn found(effect: i64) -> Findings {
        Findings {
            effect,
            imbalance: 0,
            rows_by_index: HOT_ROWS,
            rows_by_scan: HOT_ROWS,
            counters: BTreeMap::new(),
        }
    }

    #[test]
    fn one_increment_too_few_or_too_many_is_a_fault() {
        assert!(faults(&HOT_ROW, &outcome(10), &found(10)).is_empty());
        assert_eq!(faults(&HOT_ROW, &outcome(10), &found(9)).len(), 1);
        assert_eq!(faults(&HOT_ROW, &outcome(10), &found(11)).len(), 1);
    }

    #[test]
    fn slots_may_update_less_but_not_more() {
        assert!(faults(&SLOTS, &outcome(10), &found(4)).is_empty());
        assert_eq!(faults(&SLOTS, &outcome(10), &found(11)).len(), 1);
    }

    #[test]
    fn a_row_that_only_a_scan_finds_is_a_fault() {
        let damaged = Findings {
            rows_by_scan: HOT_ROWS + 1,
            ..found(10)
        };
        assert_eq!(faults(&HOT_ROW, &outcome(10), &damaged).len(), 1);
    }

    #[test]
    fn a_ledger_without_its_balance_is_a_fault() {
        let unbalanced = Findings {
            imbalance: -7,
            ..found(10)
        };
        assert_eq!(faults(&HOT_ROW, &outcome(10), &unbalanced).len(), 1);
    }
}
