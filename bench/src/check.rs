//! Whether the data is what the clients were told.

use super::pgbench::Outcome;
use super::site::Findings;
use super::workload::{Effect, Workload};

/// Everything that is wrong, in words; empty when all is well.
pub fn faults(workload: &Workload, outcome: &Outcome, found: &Findings) -> Vec<String> {
    let mut faults = faults_of_data(workload, &outcome.scripts, found);
    if outcome.failed > 0 {
        faults.push(format!(
            "{} transactions failed in spite of all retries",
            outcome.failed
        ));
    }
    faults
}

/// What is wrong with the data alone, where transactions may fail; `committed` are those of each
/// script.
pub fn faults_of_data(workload: &Workload, committed: &[u64], found: &Findings) -> Vec<String> {
    let acknowledged = committed.first().copied().unwrap_or(0) as i64;
    let mut faults = Vec::new();
    let fits = match workload.effect_is {
        Effect::Exactly => found.effect == acknowledged,
        Effect::AtMost => found.effect <= acknowledged,
        Effect::NotInTheTables => true,
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
    if let Some(audit) = workload.audit {
        let effects = audit.effects.iter().copied();
        faults.extend(audit.books.faults(effects, committed, &found.books));
    }
    for (index, violations) in found.conditions.iter().enumerate() {
        if *violations != 0 {
            faults.push(format!(
                "consistency condition {} is violated {violations} times",
                index + 1
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::latency::Latency;
    use crate::workload::tpcc::{PROCEDURES, tpcc};
    use crate::workload::{HOT_ROW, HOT_ROWS, SLOTS};

    fn outcome(acknowledged: u64) -> Outcome {
        Outcome {
            scripts: vec![acknowledged],
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
            books: Vec::new(),
            conditions: Vec::new(),
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
    fn a_violated_condition_and_a_delivery_too_few_are_faults() {
        let tpcc = tpcc("tpcc", PROCEDURES, 1);
        let sound = Findings {
            effect: 45,
            rows_by_index: 0,
            rows_by_scan: 0,
            books: vec![45, 45, 0, 0, 43, 43, 40],
            conditions: vec![0; 12],
            ..found(0)
        };
        let outcome = Outcome {
            scripts: vec![45, 1, 43, 4, 4, 4],
            ..outcome(0)
        };
        let told = |found: &Findings| faults(&tpcc, &outcome, found);
        assert_eq!(told(&sound), Vec::<String>::new());
        let mut wrong = sound.clone();
        wrong.books[6] = 39;
        wrong.conditions[4] = 2;
        assert_eq!(told(&wrong).len(), 2);
        assert!(told(&wrong)[1].contains("condition 5 is violated 2 times"));
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
