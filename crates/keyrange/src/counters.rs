//! What is counted over all sessions, each by itself: a line of memory that all of them write to
//! would cost more than what is counted.

use crate::{
    validate::{Cause, Refusal, Work},
    word::Word,
};

/// What a number of `Counters` counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Validations run.
    Validated,
    /// Validations that found nothing.
    Passed,
    /// Refusals by cause.
    Overlap,
    Cover,
    Relation,
    HistoryLost,
    Restarted,
    /// Refused outside of validation: the table changed between the snapshot and the first touch.
    FirstTouch,
    /// See `Work`.
    QuietBuckets,
    WalkedBuckets,
    Slots,
    CoveredRanges,
    /// Entries published, and those for which there was no place.
    Registered,
    Unplaced,
    /// Nanoseconds spent.
    RegistrationTime,
    ValidationTime,
    /// Of those that passed: transactions that stand before others whose writes they missed.
    Moved,
}

impl Count {
    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Count> {
        [
            Count::Validated,
            Count::Passed,
            Count::Overlap,
            Count::Cover,
            Count::Relation,
            Count::HistoryLost,
            Count::Restarted,
            Count::FirstTouch,
            Count::QuietBuckets,
            Count::WalkedBuckets,
            Count::Slots,
            Count::CoveredRanges,
            Count::Registered,
            Count::Unplaced,
            Count::RegistrationTime,
            Count::ValidationTime,
            Count::Moved,
        ]
        .into_iter()
    }
}

const COUNTS: usize = Count::Moved as usize + 1;

/// A process's share in the totals since the start or the last reset, in shared memory. Zeroed
/// memory is valid.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Counters {
    totals: [Word; COUNTS],
}

impl Counters {
    pub fn add(&self, count: Count, number: u64) {
        if number > 0 {
            self.totals[count as usize].add(number);
        }
    }

    pub fn get(&self, count: Count) -> u64 {
        self.totals[count as usize].get()
    }

    /// The total of all processes.
    pub fn sum(all: &[Counters], count: Count) -> u64 {
        all.iter().map(|one| one.get(count)).sum()
    }

    pub fn reset(&self) {
        self.totals.iter().for_each(|total| total.set(0));
    }

    /// Counts a validation by what `Validation::run` returned.
    pub fn validated(&self, result: &Result<(), Refusal>, work: &Work) {
        self.add(Count::Validated, 1);
        let outcome = match result {
            Ok(()) => Count::Passed,
            Err(Refusal::Conflict(conflict)) => match conflict.cause {
                Cause::Overlap => Count::Overlap,
                Cause::Cover => Count::Cover,
                Cause::Relation => Count::Relation,
            },
            Err(Refusal::HistoryLost { .. }) => Count::HistoryLost,
            Err(Refusal::Restarted) => Count::Restarted,
        };
        self.add(outcome, 1);
        self.looked(work);
    }

    /// Counts what a part of a validation looked at.
    pub fn looked(&self, work: &Work) {
        self.add(Count::QuietBuckets, work.quiet);
        self.add(Count::WalkedBuckets, work.walked);
        self.add(Count::Slots, work.slots);
        self.add(Count::CoveredRanges, work.covered);
    }
}
