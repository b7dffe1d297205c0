//! Commit sequence numbers: the order that committed transactions are equivalent to.

use crate::{
    fault::{Fault, planted},
    word::Word,
};

/// Commit sequence numbers count from 1.
pub type Csn = u64;

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Line(Word);

/// The counter of CSNs, and where the history in the rings begins. Zeroed memory is a new one.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Clock {
    taken: Line,
    departed: Line,
    complete_from: Line,
}

/// Up to where a transaction without writes must check what it has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadingPoint {
    /// It comes after all transactions with CSNs below this one, and before the others.
    pub before: Csn,
    /// All those had left the running list. If, besides, no transaction at all has left it between the snapshot and this
    /// reading, the snapshot has them all and nothing need be tracked or validated.
    pub quiet: bool,
}

impl Clock {
    /// Tells, before the first transaction after a start, that transactions below `next_fxid` may still run (prepared ones)
    /// and have left nothing in the rings.
    pub fn start(&self, next_fxid: u64) {
        self.complete_from.0.set(next_fxid);
    }

    /// The first transaction that cannot have been lost in a restart.
    pub fn complete_from(&self) -> u64 {
        if planted(Fault::RestartIgnored) {
            return 0;
        }
        self.complete_from.0.get()
    }

    /// To be called at the first capture of a predicate, after the snapshot with this `xmin` was taken.
    pub fn reading_point(&self, xmin: u64) -> ReadingPoint {
        // In this order: who has departed has taken before, so equal numbers mean that there was nobody between.
        let departed = self.departed.0.get();
        let taken = self.taken.0.get();
        ReadingPoint {
            before: taken + 1,
            quiet: departed == taken && xmin >= self.complete_from(),
        }
    }

    /// A transaction that has taken a CSN has left the running list (COMMIT, ROLLBACK, COMMIT PREPARED, ROLLBACK PREPARED).
    pub fn depart(&self) {
        self.departed.0.add(1);
    }

    /// The last CSN taken.
    pub fn taken(&self) -> Csn {
        self.taken.0.get()
    }
}

/// The CSN of a process's last writing transaction. Only that process writes it.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Committer {
    fxid: Word,
    /// `NONE`, `TAKING` or a CSN.
    csn: Word,
}

const NONE: u64 = 0;
const TAKING: u64 = u64::MAX;

/// What a committer says of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// No CSN yet: it will be above all that have been taken.
    None,
    /// Being taken and written just now: a few instructions.
    Taking,
    Known(Csn),
    /// The process has gone on to another transaction.
    Gone,
}

impl Committer {
    /// The process is about to publish what this transaction wrote.
    pub(crate) fn enter(&self, fxid: u64) {
        self.fxid.set(0);
        self.csn.set(NONE);
        self.fxid.set(fxid);
    }

    /// Takes the transaction's CSN. Everything that it wrote must have been published.
    pub(crate) fn take(&self, clock: &Clock) -> Csn {
        if !planted(Fault::TakenSilently) {
            self.csn.set(TAKING);
        }
        let csn = clock.taken.0.add(1) + 1;
        self.csn.set(csn);
        csn
    }

    /// How far that transaction has come. If its CSN is below one that the caller took before, this does not say `None`:
    /// `TAKING` was set before the counter was raised.
    pub(crate) fn look(&self, fxid: u64) -> Standing {
        let before = self.fxid.get();
        let csn = self.csn.get();
        // Transactions do not come back, so the same one before and after is the one that `csn` belongs to.
        if before != fxid || self.fxid.get() != fxid {
            return Standing::Gone;
        }
        match csn {
            NONE => Standing::None,
            TAKING if planted(Fault::TakingIsLarger) => Standing::None,
            TAKING => Standing::Taking,
            csn => Standing::Known(csn),
        }
    }
}
