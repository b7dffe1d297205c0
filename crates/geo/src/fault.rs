//! Faults planted for the model check, which must find them. Elsewhere there are none.

/// A mistake in the protocol, made on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Any command tag is taken for YES, also `ROLLBACK`.
    YesByAnyTag,
    /// A PREPARE that the standby may not have is taken for YES.
    YesWithoutStandby,
    /// A COMMIT PREPARED that the standby may not have is taken for applied.
    AppliedWithoutStandby,
    /// The resolver commits by a decision that is not confirmed.
    UnconfirmedCommitted,
    /// The resolver erases decision rows without asking the node.
    ErasedUnasked,
    /// The resolver takes its first look at the prepared transactions for the second.
    NoSecondLook,
    /// The resolver forgets that transactions of this incarnation may be active.
    ActiveIgnored,
    /// A process that leaves one record of the line for another, or for work, wakes nobody.
    TurnLeftUntold,
    /// A process that gives up standing in line wakes nobody.
    LineLeftUntold,
    /// A transaction that ends wakes nobody in line.
    EndUntold,
    /// The resolver takes a status for final that the node's standby may not have.
    #[cfg(test)]
    StatusUnconfirmed,
    /// The resolver reads the active slots before the prepared transactions.
    #[cfg(test)]
    ActiveBeforePrepared,
    /// The resolver reads the decision rows before the active slots.
    #[cfg(test)]
    DecidedBeforeActive,
    /// A slot is opened when the first PREPARE has been sent.
    #[cfg(test)]
    SlotOpenedLate,
    /// A slot is closed when all have voted YES, before the decision rows are visible.
    #[cfg(test)]
    SlotClosedUndecided,
    /// A slot is closed when the decision is visible, before COMMIT PREPARED is sent.
    #[cfg(test)]
    SlotClosedUnapplied,
    /// COMMIT PREPARED is sent when the decision is visible, but not yet durable.
    #[cfg(test)]
    SentBeforeDurable,
    /// The client is told when the decision is visible, but not yet durable.
    #[cfg(test)]
    ToldBeforeDurable,
    /// A session hands its commit over when the decision is visible, but not yet durable.
    #[cfg(test)]
    HandedBeforeDurable,
    /// A commit that was handed over counts as applied though a node's standby may not have it.
    #[cfg(test)]
    HandedUnwarned,
    /// A restarted coordinator keeps its incarnation, and uses names again.
    #[cfg(test)]
    IncarnationKept,
    /// A commit in one phase does not come to the gate.
    #[cfg(test)]
    OnePhaseUngated,
    /// A commit enters the gate when it is visible at the coordinator.
    #[cfg(test)]
    EnteredVisible,
    /// A commit enters the gate when the first COMMIT PREPARED has been sent.
    #[cfg(test)]
    EnteredSent,
    /// A commit leaves the gate before its last node has acknowledged it.
    #[cfg(test)]
    LeftUnacknowledged,
    /// A commit leaves the gate before it is known that it is unapplied.
    #[cfg(test)]
    LeftUntold,
    /// A reader leaves the gate before the last node has taken its snapshot.
    #[cfg(test)]
    ReaderLeftEarly,
    /// A reader takes the coordinator's snapshot before it enters the gate.
    #[cfg(test)]
    LocalTooEarly,
    /// A reader asks for unapplied commits before it enters the gate.
    #[cfg(test)]
    UnappliedTooEarly,
}

#[cfg(test)]
thread_local! {
    // A bit for each fault. shuttle runs all threads of a model on one.
    static PLANTED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// From now on this thread makes these mistakes.
#[cfg(test)]
pub(crate) fn plant(faults: &[Fault]) {
    PLANTED.set(faults.iter().map(|&fault| 1 << fault as u32).sum());
}

/// Whether this mistake is to be made.
#[cfg(test)]
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() & (1 << fault as u32) != 0
}

/// Whether this mistake is to be made: never.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn planted(_: Fault) -> bool {
    false
}
