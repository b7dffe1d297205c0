//! Commit sequence numbers: the order that committed transactions are equivalent to.

use crate::{
    fault::{Fault, planted},
    word::Word,
};

/// Commit sequence numbers are even. The odd one below is the position just before (`window.rs`).
pub type Csn = u64;

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Line(Word);

/// The counter of CSNs, and where the history in the rings begins. Zeroed memory is a new one.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Clock {
    taken: Line,
    complete_from: Line,
    lost_at: Line,
}

impl Clock {
    /// Tells, before the first transaction after a start, that transactions below `next_fxid` may
    /// still run (prepared ones) and have left nothing in the rings.
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

    /// The last CSN that has been taken.
    pub(crate) fn taken(&self) -> Csn {
        self.taken.0.get()
    }

    /// A transaction was refused for want of history, at a time of the caller's reckoning.
    pub fn lose(&self, time: u64) {
        self.lost_at.0.lift(time);
    }

    /// When that happened last, 0 for never.
    #[inline]
    pub fn lost_at(&self) -> u64 {
        self.lost_at.0.get()
    }

    /// Where a transaction without writes stands: after all with CSNs below this one, before the
    /// others. To be read at its first capture of a predicate, after its snapshot was taken.
    pub fn reading_point(&self) -> Csn {
        self.taken.0.get() + 2
    }
}

/// The CSNs of a process's last two writing transactions. Only that process writes them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Committer {
    fxid: Word,
    /// `NONE`, `TAKING` or a CSN.
    csn: Word,
    /// The one before, which has ended.
    last_fxid: Word,
    last_csn: Word,
}

const NONE: u64 = 0;
const TAKING: u64 = u64::MAX;

/// What is known of a transaction that has begun to register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    NoneYet,
    Taking,
    Csn(Csn),
}

/// What a committer says of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CsnState {
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
        let last = (self.fxid.get(), self.csn.get());
        self.fxid.set(0);
        if !matches!(last.1, NONE | TAKING) {
            self.last_fxid.set(last.0);
            self.last_csn.set(last.1);
        }
        self.csn.set(NONE);
        self.fxid.set(fxid);
    }

    /// Takes the transaction's CSN. Everything that it wrote must have been published.
    pub(crate) fn take(&self, clock: &Clock) -> Csn {
        if !planted(Fault::TakenSilently) {
            self.csn.set(TAKING);
        }
        let csn = clock.taken.0.add(2) + 2;
        self.csn.set(csn);
        csn
    }

    /// Its transactions that have CSNs, with 0 for one that is just being written down; none while
    /// the process goes on to the next.
    pub(crate) fn numbered(&self) -> [Option<(u64, Csn)>; 2] {
        let fxid = self.fxid.get();
        let csn = self.csn.get();
        let last = (self.last_fxid.get(), self.last_csn.get());
        if fxid == 0 || fxid != self.fxid.get() {
            return [None; 2];
        }
        let present = match csn {
            NONE => None,
            TAKING => Some((fxid, 0)),
            csn => Some((fxid, csn)),
        };
        [present, Some(last)].map(|one| one.filter(|&(fxid, _)| fxid != 0))
    }

    /// What is known of that transaction, if it is one of the process's last two that wrote;
    /// nothing while it goes on to the next.
    pub(crate) fn known(&self, asked: u64) -> Option<Known> {
        let fxid = self.fxid.get();
        let csn = self.csn.get();
        let (last_fxid, last_csn) = (self.last_fxid.get(), self.last_csn.get());
        if fxid == 0 || fxid != self.fxid.get() {
            return None;
        }
        match csn {
            _ if asked == last_fxid => Some(Known::Csn(last_csn)),
            _ if asked != fxid => None,
            NONE => Some(Known::NoneYet),
            TAKING => Some(Known::Taking),
            csn => Some(Known::Csn(csn)),
        }
    }

    /// How far that transaction has come. If its CSN is below one that the caller took before, this
    /// does not say `None`: `TAKING` was set before the counter was raised.
    pub(crate) fn look(&self, fxid: u64) -> CsnState {
        let before = self.fxid.get();
        let csn = self.csn.get();
        // Transactions do not come back, so the same one before and after is the one that `csn`
        // belongs to.
        if before != fxid || self.fxid.get() != fxid {
            return CsnState::Gone;
        }
        match csn {
            NONE => CsnState::None,
            TAKING if planted(Fault::TakingIsLarger) => CsnState::None,
            TAKING => CsnState::Taking,
            csn => CsnState::Known(csn),
        }
    }
}
