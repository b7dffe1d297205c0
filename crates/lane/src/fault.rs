//! Faults planted for the model check, which must find each of them. Elsewhere there are none.

/// A mistake in the protocol, made on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Those behind a request that goes are not told.
    LeavesSleepers,
    /// A request is granted though another one in conflict is before it.
    GrantedTwice,
    /// A reader passes a writer that waits.
    ReaderPassesWriter,
    /// Those behind a writer that gives up do not count those before it.
    GapBehindWriter,
    /// A transaction that drains wakes nobody that waits for it.
    DrainingWakesNobody,
    /// A writer that waits for a holder leaves its announcement, for which the holder waits.
    PlaceKept,
    /// The place of a writer that runs is taken by another one.
    RunningWriterDisplaced,
    /// The seats are not looked at though a transaction that has a note there runs.
    NoteForgotten,
    /// A transaction looks for writers before it holds its keys.
    #[cfg(test)]
    LookedBeforeHolding,
    /// A writer looks for holders before it announces itself.
    #[cfg(test)]
    LookedBeforeAnnouncing,
    /// Keys are let go before the transaction has left the list of those that run.
    #[cfg(test)]
    LeftWhileRunning,
}

#[cfg(test)]
thread_local! {
    // shuttle runs all threads of a model on one.
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread makes that mistake, or none.
#[cfg(test)]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether this mistake is to be made.
#[cfg(test)]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Whether this mistake is to be made: never.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
