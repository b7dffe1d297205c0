//! From a history to a verdict.
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

/// Undecided transactions that are tried both ways; with more, only the likeliest way is.
const TRIED_BOTH_WAYS: usize = 6;

/// Checks whether `history` keeps `promise`. Takes time near to linear in the history's length
/// (see the README for what is not). Fails for a history that says nothing, see [`Invalid`].
pub fn check(history: &History, promise: Promise) -> Result<Verdict, Invalid> {
    if let Some(value) = history.repeated_value() {
        return Err(Invalid::RepeatedValue(value));
    }
    let (likeliest, unknown) = outcome::resolve(history);
    let undecided = &unknown.undecided;
    let mut mildest = search::search(history, &likeliest, promise);
    if mildest.holds() || undecided.len() > TRIED_BOTH_WAYS {
        return Ok(mildest);
    }
    let mut certain = mildest.certain;
    for flips in 1..1u32 << undecided.len() {
        let mut counted: Vec<bool> = history.transactions.iter().map(committed).collect();
        for (bit, one) in undecided.iter().enumerate() {
            counted[*one] = likeliest[*one] ^ (flips >> bit & 1 == 1);
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
