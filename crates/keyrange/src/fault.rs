//! Faults planted for the model check, which must find each of them, and, with the feature
//! `planted_faults`, for tests of the extension. Elsewhere there are none.

/// A mistake in the protocol, made on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
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
    /// The fields of an entry that changed meanwhile are believed. (The proof does not need them
    /// whole, as what was there is marked as evicted; but a conflict is to be told with the right
    /// transaction and keys.)
    TornRead,
    /// The entry that still is in the place of a newer ticket ends the walk.
    OldEntryEndsWalk,
    /// A writer raises `max_fxid` when its entry is published, not before it takes its ticket.
    MaxRaisedLate,
    /// A writer leaves out those who came between its look at `max_fxid` and its ticket.
    EarlierForgotten,
    /// Prepared transactions from before the start are taken for registered.
    RestartIgnored,
    /// A predicate ends one key too early.
    PredicateNarrowed,
    /// A writer's entries are not published.
    NotRegistered,
    /// Of many keys in one entry the last is not among its parts.
    PartForgotten,
    /// A CSN that is being written counts as larger.
    TakingIsLarger,
    /// The counter is raised without notice that a CSN is being taken.
    TakenSilently,
    /// A transaction whose entry was overwritten before it had a CSN does not remember that.
    LostCsnForgotten,
    /// A writer that overwrites an entry does not remember its CSN.
    OverwrittenCsnForgotten,
    /// A writer that overwrites an entry takes its CSN away first and marks it as evicted
    /// afterwards.
    CsnTakenFirst,
    /// A transaction stands before those that it missed, whatever it saw of later ones.
    NewerIgnored,
    /// A transaction moves before those that wrote what it wrote itself.
    LaterWritesIgnored,
    /// What validated transactions have read is not registered.
    ReadsNotRegistered,
    /// A transaction asks for readers first and tells that it has moved afterwards.
    MovedSilently,
    /// A ring copy is made though something has been overwritten that belongs there.
    RingCopyIncomplete,
    /// A ring copy is without the entries whose CSN is not in them yet.
    PendingNotCopied,
    /// A ring copy is without what the snapshot sees of later ones.
    NewerNotCopied,
    /// Registering does not raise the mark of the relation and the range.
    MarkNotRaised,
    /// Overwriting an entry does not tell the mark of its relation and range.
    MarkForgotten,
    /// A key's entry is looked for in another piece of its range than where it is.
    PieceMissed,
    /// Keys' entries are looked for in the pieces of their range, not in its own ring.
    RangeMissed,
    /// The writer of a version that has its CSN is taken for one that has none.
    NumberedTakenForNew,
    /// A transaction of which nothing is known is taken for one that has not begun to register.
    #[cfg(test)]
    UnknownTakenForIdle,
    /// A reader does not look for those that have moved before it.
    #[cfg(test)]
    MovedIgnored,
    /// A reader takes its reading point before its snapshot.
    #[cfg(test)]
    ReadingPointBeforeSnapshot,
    /// A transaction leaves the running list before it takes its CSN.
    #[cfg(test)]
    VisibleBeforeCsn,
}

#[cfg(any(test, feature = "planted_faults"))]
thread_local! {
    // shuttle runs all threads of a model on one, and a backend has one.
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread makes that mistake, or none.
#[cfg(any(test, feature = "planted_faults"))]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether this mistake is to be made.
#[cfg(any(test, feature = "planted_faults"))]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Whether this mistake is to be made: never.
#[cfg(not(any(test, feature = "planted_faults")))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
