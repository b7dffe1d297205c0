//! Faults planted for the model check, which must find each of them.

use std::cell::Cell;

use crate::image::Interval;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The CSN is taken before the entries are published.
    CsnBeforePublication,
    /// What was overwritten is not asked for.
    EvictionIgnored,
    /// An entry is overwritten first and marked as evicted afterwards.
    EvictionMarkedLate,
    /// A writer that found no place does not count itself as evicted.
    UnplacedNotMarked,
    /// What was overwritten is asked for before the slots are read.
    MarkReadFirst,
    /// A writer raises `max_fxid` when its entry is published, not before it takes its ticket.
    MaxRaisedLate,
    /// Prepared transactions from before the start are taken for registered.
    RestartIgnored,
    /// A reader is not validated because nobody is in flight, whoever has ended since its snapshot.
    QuietIsEnough,
    /// A predicate ends one key too early.
    PredicateNarrowed,
    NotRegistered,
    /// A CSN that is being written counts as larger.
    TakingIsLarger,
    /// The counter is raised without notice that a CSN is being taken.
    TakenSilently,
    /// A reader takes its reading point before its snapshot.
    ReadingPointBeforeSnapshot,
    /// A transaction leaves the running list before it takes its CSN.
    VisibleBeforeCsn,
}

thread_local! {
    // shuttle runs all threads of a model on one.
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

pub(crate) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// The transaction to be marked as evicted too late, and in time.
pub(crate) fn mark_late(victim: Option<u64>) -> (Option<u64>, Option<u64>) {
    if planted(Fault::EvictionMarkedLate) {
        (victim, None)
    } else {
        (None, victim)
    }
}

pub(crate) fn narrow(images: &mut Vec<Interval>, unit: u128) {
    if planted(Fault::PredicateNarrowed)
        && let Some(last) = images.pop()
    {
        let high = last.high().checked_sub(unit);
        images.extend(high.and_then(|high| Interval::new(last.low(), high)));
    }
}

pub(crate) fn raise_late(raise: impl FnOnce()) {
    if planted(Fault::MaxRaisedLate) {
        raise();
    }
}
