//! Makes a failing schedule small: sessions, transactions and steps are left out as long as the
//! same rule is broken.
use std::collections::BTreeSet;

use super::schedule::{Kind, Schedule, Step};

/// Sets of steps that can be left out together, the largest first.
fn parts(schedule: &Schedule) -> Vec<BTreeSet<usize>> {
    let of = |belongs: &dyn Fn(&Step) -> bool| -> BTreeSet<usize> {
        let steps = schedule.steps.iter().filter(|step| belongs(step));
        steps.map(|step| step.id).collect()
    };
    let mut parts: Vec<BTreeSet<usize>> = Vec::new();
    for session in 0..schedule.sessions {
        parts.push(of(&|step| step.session == session));
    }
    for unit in 0..schedule.modes.len() {
        parts.push(of(&|step| step.unit == unit));
    }
    // The gate has to be opened again, a transaction to have its beginning, its end, and the
    // settings that it is judged by.
    let gate = |step: &Step| step.sql.contains("pg_advisory_") || step.sql.starts_with("RESET");
    let alone = |step: &&Step| {
        !step.is_end()
            && !gate(step)
            && matches!(
                step.kind,
                Kind::Statement | Kind::Savepoint | Kind::RollbackTo | Kind::Outside
            )
    };
    parts.extend(
        schedule
            .steps
            .iter()
            .filter(alone)
            .map(|step| BTreeSet::from([step.id])),
    );
    parts.retain(|part| !part.is_empty());
    parts
}

/// The smallest schedule for which `fails`, within so many tries.
pub fn shrink(
    schedule: &Schedule,
    tries: usize,
    mut fails: impl FnMut(&Schedule) -> bool,
) -> Schedule {
    let mut best = schedule.clone();
    let mut left = tries;
    loop {
        let before = best.steps.len();
        if !best.churn.is_empty() && left > 0 {
            let mut without = best.clone();
            without.churn.clear();
            left -= 1;
            if fails(&without) {
                best = without;
            }
        }
        for part in parts(&best) {
            if left == 0 {
                return best;
            }
            let mut smaller = best.clone();
            smaller.steps.retain(|step| !part.contains(&step.id));
            if smaller.steps.len() == best.steps.len() || smaller.steps.is_empty() {
                continue;
            }
            left -= 1;
            if fails(&smaller) {
                best = smaller;
            }
        }
        if best.steps.len() == before {
            return best;
        }
    }
}
