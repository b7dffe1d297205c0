//! From a history to a verdict.
mod choice;
mod cycles;
mod edges;
mod gaps;
mod graph;
mod observe;
mod outcome;
mod report;
mod search;
mod store;
mod tell;
mod verdict;

pub use verdict::{Anomaly, Class, Invalid, Level, Promise, Verdict};

use crate::model::{History, Outcome, Transaction};

/// Undecided transactions that are tried in all ways together; of more, each is by itself.
const TRIED_TOGETHER: usize = 6;

/// Checks whether `history` keeps `promise`. Takes time near to linear in the history's length
/// (see the README for what is not). Fails for a history that says nothing, see [`Invalid`].
pub fn check(history: &History, promise: Promise) -> Result<Verdict, Invalid> {
    if let Some(value) = history.repeated_value() {
        return Err(Invalid::RepeatedValue(value));
    }
    let (likeliest, unknown) = outcome::resolve(history);
    let undecided = &unknown.undecided;
    let mut mildest = search::search(history, &likeliest, promise);
    if mildest.holds() {
        return Ok(mildest);
    }
    let are_few = undecided.len() <= TRIED_TOGETHER;
    let mut certain = mildest.certain && are_few;
    let ways = match are_few {
        true => 1 << undecided.len(),
        false => undecided.len() + 1,
    };
    for way in 1..ways {
        let mut counted: Vec<bool> = history.transactions.iter().map(committed).collect();
        for (number, one) in undecided.iter().enumerate() {
            let is_other = match are_few {
                true => way >> number & 1 == 1,
                false => way == number + 1,
            };
            counted[*one] = likeliest[*one] ^ is_other;
        }
        unknown.complete(&mut counted);
        let verdict = search::search(history, &counted, promise);
        if verdict.holds() {
            return Ok(verdict);
        }
        certain &= verdict.certain;
        // What is worse may be the fault of a wrong guess.
        if worst(&verdict) > worst(&mildest) {
            mildest = verdict;
        }
    }
    Ok(Verdict { certain, ..mildest })
}

fn worst(verdict: &Verdict) -> Option<Class> {
    verdict.anomalies.iter().map(|anomaly| anomaly.class).min()
}

fn committed(transaction: &Transaction) -> bool {
    transaction.outcome == Outcome::Committed
}
