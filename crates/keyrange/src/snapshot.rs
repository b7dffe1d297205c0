//! What a transaction sees: asked of PostgreSQL.

use crate::{Relation, csn::Committer, predicate::IntervalSet, survey::Survey};

/// What PostgreSQL knows of transactions, all by top-level 64-bit id.
pub trait Snapshot {
    /// All below had ended when the snapshot was taken.
    fn xmin(&self) -> u64;

    /// Whether it had ended when the snapshot was taken (`!XidInMVCCSnapshot`).
    fn has_ended(&self, fxid: u64) -> bool;

    /// Whether it has rolled back by now. False when in doubt.
    fn did_abort(&self, fxid: u64) -> bool;

    /// Whether it had committed when the snapshot was taken; of transactions from long ago, whether
    /// true or not does not matter.
    fn sees(&self, fxid: u64) -> bool {
        fxid < self.xmin() || self.has_ended(fxid)
    }

    /// What is known by now of the transactions that ran when the snapshot was taken.
    fn survey(&self) -> Survey {
        Survey::unknown(self.xmin())
    }

    /// Whether it is the validated transaction itself.
    fn is_mine(&self, fxid: u64) -> bool;

    /// Whether the relation's own versions show that the snapshot sees all writers of these keys.
    /// Writers that have rolled back or have no CSN yet do not count. False in doubt. Asked where
    /// the rings do not tell, after `before` was taken.
    fn shows_no_writer(&self, _relation: Relation, _read: &IntervalSet) -> bool {
        false
    }
}

/// A transaction that the snapshot does not see although it sees one with a larger CSN: it had its
/// CSN and was still on the running list. Only processes that count are looked at, and only one for
/// which `can_end` holds is taken. Of each process the last two writing transactions are known;
/// there is none unless a process has ended more than one since the snapshot was taken.
pub fn overtaken(
    committers: &[Committer],
    snapshot: &impl Snapshot,
    counts: impl Fn(usize) -> bool,
    can_end: impl Fn(usize, u64) -> bool,
) -> Option<u64> {
    let numbered = || {
        let all = committers.iter().enumerate();
        all.filter(|(process, _)| counts(*process))
            .flat_map(|(process, one)| {
                let of_process = move |(fxid, csn)| (process, fxid, csn);
                one.numbered().into_iter().flatten().map(of_process)
            })
    };
    let seen = numbered().filter(|&(_, fxid, _)| snapshot.sees(fxid));
    let newest = seen.map(|(.., csn)| csn).max()?;
    numbered()
        .find(|&(process, fxid, csn)| {
            csn < newest && !snapshot.sees(fxid) && can_end(process, fxid)
        })
        .map(|(_, fxid, _)| fxid)
}
