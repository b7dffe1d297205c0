//! Which of the transactions that a snapshot does not see can have left anything in the rings by
//! now.
//!
//! A snapshot's `xmin` is that of the oldest transaction that ran when it was taken, perhaps one
//! that idles for hours and has registered nothing. What is missing from a ring is of concern only
//! if its transaction is not seen *and* had begun to register before the look. That can be found
//! out at any time after the snapshot was taken, so that nobody has to know before that history
//! will be lost.

use crate::csn::{Clock, Committer, Csn, Known};
use crate::fault::{Fault, planted};

/// What is known of the transactions that ran when a snapshot was taken and that it does not see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survey {
    /// Those that had begun to register before the survey, and have not rolled back, are from this
    /// one on; `end` if there is none.
    pub first: u64,
    /// The snapshot sees none from this one on.
    pub end: u64,
    /// Those had no CSN up to this one.
    pub prefix: Csn,
    /// All that ran at the survey, whenever they register, had no CSN up to this one: good for the
    /// rest of the snapshot's life.
    pub lasting_prefix: Csn,
}

impl Survey {
    /// Nothing is known but that all below `xmin` are seen.
    pub fn unknown(xmin: u64) -> Self {
        Survey {
            first: xmin,
            end: xmin,
            prefix: 0,
            lasting_prefix: 0,
        }
    }

    /// Of the transactions that the snapshot's list has as running. It sees none from `end` on.
    /// `run_by` tells which transaction a process runs, 0 for none; a prepared one is run by
    /// nobody. It is asked after the process's `Committer` was read: what the process runs then,
    /// and had not entered before, had registered nothing. Keeps no memory.
    pub fn of(
        clock: &Clock,
        committers: &[Committer],
        running: impl Iterator<Item = u64>,
        end: u64,
        run_by: impl Fn(usize) -> u64,
        did_abort: impl Fn(u64) -> bool,
    ) -> Self {
        // First: whoever has no CSN when its committer is read will have one above this.
        let taken = clock.taken();
        let mut survey = Survey {
            first: end,
            end,
            prefix: Csn::MAX,
            lasting_prefix: taken,
        };
        for fxid in running {
            let Some(prefix) = begun(committers, fxid, taken, &run_by) else {
                continue;
            };
            if !did_abort(fxid) {
                survey.first = survey.first.min(fxid);
                survey.prefix = survey.prefix.min(prefix);
                survey.lasting_prefix = survey.lasting_prefix.min(prefix);
            }
        }
        survey
    }
}

/// Whether that transaction, which is found in the versions of a row, has no CSN yet: it will be
/// above all that have been taken. False in doubt. `run_by` is as for `Survey::of`.
pub fn has_no_csn(committers: &[Committer], fxid: u64, run_by: impl Fn(usize) -> u64) -> bool {
    for (process, committer) in committers.iter().enumerate() {
        if let Some(known) = committer.known(fxid) {
            return known == Known::NoneYet || planted(Fault::NumberedTakenForNew);
        }
        // It had not entered when its committer was read.
        if run_by(process) == fxid {
            return true;
        }
    }
    false
}

/// Up to which CSN the transaction has none; `None` if it has not begun to register.
fn begun(
    committers: &[Committer],
    fxid: u64,
    taken: Csn,
    run_by: &impl Fn(usize) -> u64,
) -> Option<Csn> {
    for (process, committer) in committers.iter().enumerate() {
        if let Some(known) = committer.known(fxid) {
            return Some(match known {
                Known::Csn(csn) => csn.saturating_sub(1),
                Known::NoneYet => taken,
                Known::Taking => 0,
            });
        }
        if run_by(process) == fxid {
            return None;
        }
    }
    // It has ended, and its process has gone on; or it is prepared.
    #[cfg(test)]
    if planted(Fault::UnknownTakenForIdle) {
        return None;
    }
    Some(0)
}
