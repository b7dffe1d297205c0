//! The transactions that this one must commit after: waiting for their ends, and the proof that it
//! has built on what they have committed.

use super::definitions;
use super::errors;
use super::prepared;
use super::readguard;
use super::reads;
use super::session::{SESSION, member_id, memory, relation_of};
use super::waiting::{self, Reason, Wait};
use crate::pg::raw::{self, TimeoutId};
use crate::pg::{process, xact};
use crate::shared::fault::{Fault, planted};
use crate::tam::base;
use hotrow::{Base, Membership};
use pgrx::pg_sys;

/// Waits until every predecessor has committed; 40001 if one has not, or if somebody has written
/// what was read beside them. The permission is PostgreSQL's own record of the predecessors'
/// transaction ids; the dependency list only shortens the wait.
pub fn wait(reason: Reason) {
    for (n, membership) in SESSION.all() {
        if membership.depends() {
            wait_on_row(n, &membership, reason);
        }
    }
}

/// The memberships of which a snapshot shows our version and not that the predecessor has ended.
///
/// # Safety
/// A snapshot, or null; it outlives what is returned.
pub unsafe fn stale(snapshot: pg_sys::Snapshot) -> impl Iterator<Item = Membership> {
    // SAFETY: the caller's snapshot; what is returned by `unseen_by` has a predecessor.
    unsafe {
        unseen_by(snapshot).filter(move |m| {
            m.seen()
                .is_some_and(|seen| (*snapshot).curcid > seen.command)
        })
    }
}

/// The memberships of which a snapshot does not show that the predecessor has ended, also those of
/// the statement that has the snapshot.
///
/// # Safety
/// As for `stale`.
pub unsafe fn unseen_by(snapshot: pg_sys::Snapshot) -> impl Iterator<Item = Membership> {
    // SAFETY: the caller's snapshot is null or valid.
    let is_mvcc = unsafe {
        !snapshot.is_null() && (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC
    };
    let is_unseen = move |m: &Membership| {
        m.seen().is_some_and(|seen| {
            let xid = pg_sys::TransactionId::from(seen.xid);
            // SAFETY: as above.
            unsafe { raw::XidInMVCCSnapshot(xid, snapshot) }
        })
    };
    let all = is_mvcc.then(|| SESSION.all()).into_iter().flatten();
    all.map(|(_, m)| m).filter(is_unseen)
}

/// The first of them.
///
/// # Safety
/// As for `stale`.
pub unsafe fn finds_stale(snapshot: pg_sys::Snapshot) -> Option<Membership> {
    // SAFETY: by the contract.
    unsafe { stale(snapshot).next() }
}

/// Whether every predecessor has ended, so that waiting for them takes no time.
pub fn have_ended() -> bool {
    SESSION.all().all(|(n, membership)| {
        let Some(predecessor) = membership.predecessor().filter(|_| membership.depends()) else {
            return true;
        };
        let me = member_id(n);
        let is_ahead = memory().with_row(membership.slot(), |row, members| {
            row.predecessor(members, me).is_some()
        });
        !is_ahead && !xact::is_running(predecessor)
    })
}

/// Waits for the predecessor on one row.
pub fn wait_on_row(n: usize, membership: &Membership, reason: Reason) {
    wait_on_row_unless(n, membership, reason, || false);
}

/// Waits for the predecessor on one row to end, or until `is_done`. The predecessor wakes those
/// behind it when it makes that true (`order::has_come_to`).
pub fn wait_on_row_unless(
    n: usize,
    membership: &Membership,
    reason: Reason,
    is_done: impl Fn() -> bool,
) {
    if reason == Reason::Commit && planted(Fault::CommitOrderNotKept) {
        return;
    }
    let Some(predecessor) = membership.predecessor() else {
        return;
    };
    let slot = membership.slot();
    let me = member_id(n);
    let is_ahead = || memory().with_row(slot, |row, members| row.await_predecessor(members, me));
    waiting::check_doomed();
    if is_ahead() || xact::is_running(predecessor) {
        memory().totals.commit_waits.add(1);
        let timer = StatementTimer::start(reason);
        let wait = Wait::begin(reason, slot);
        let own = &memory().members[me as usize];
        while is_ahead() || xact::is_running(predecessor) {
            if !xact::is_running(predecessor) {
                prepared::settle_in(slot);
            }
            waiting::check_doomed();
            if is_done() {
                wait.finish();
                return timer.stop();
            }
            if is_ahead() && wait.doze() {
                continue;
            }
            if !xact::is_running(predecessor) {
                break;
            }
            own.patient.publish(1);
            let wait_for_end = || xact::wait_for_end(predecessor);
            if reason == Reason::Order {
                wait.slice_in_lock_manager(wait_for_end);
            } else {
                wait.in_lock_manager(wait_for_end);
            }
            own.patient.publish(0);
        }
        waiting::check_doomed();
        wait.finish();
        timer.stop();
    }
    if !xact::has_committed(predecessor) && !planted(Fault::DoomedFollowerCommits) {
        errors::DOOMED.raise();
    }
    // At the end of the statement that looked, nothing was known of its commit yet.
    readguard::note_followed(relation_of(membership));
    SESSION.step(n, Membership::predecessor_committed);
    memory().backends[process::me() as usize].forget(n);
    confirm_base(n);
    if !SESSION.is_dependent() {
        reads::validate();
        definitions::validate();
    }
}

/// The predecessor has ended: whether the version that we have built on still names us as its
/// updater; 40001 if it does not. Nobody commits without this answer (tam/base.rs).
fn confirm_base(n: usize) {
    let Some(membership) = SESSION.get(n) else {
        return;
    };
    let Some(base) = membership.base() else {
        return;
    };
    let xid = memory().members[member_id(n) as usize].xid();
    // SAFETY: the transaction holds a lock on the relations of its memberships; nothing else is
    // locked here.
    if !unsafe { base::restore(relation_of(&membership), base, xid) } {
        SESSION.step(n, Membership::base_taken);
        errors::BASE_TAKEN.raise();
    }
    SESSION.step(n, Membership::base_confirmed);
}

/// All predecessors have ended: confirms what no wait for one has confirmed. Then those who have
/// built on our versions find them as they were, whatever this transaction has looked at
/// (tam/base.rs).
pub fn confirm_bases() {
    for (n, _) in SESSION.all() {
        confirm_base(n);
    }
    restore_own();
}

/// Takes back the hint bit that PostgreSQL may have set by mistake on our versions when this
/// transaction looked at them. To be called while no other transaction can see these versions
/// (tam/base.rs).
pub fn restore_own() {
    if planted(Fault::LeaderDoesNotRestore) {
        return;
    }
    for (n, membership) in SESSION.all() {
        // A follower enters the list before it writes its id into our version, and only after that
        // can we have set the hint.
        let has_others = memory().directory.rows[membership.slot() as usize].listed() > 1;
        if has_others && let Some(version) = membership.version().filter(|_| membership.is_listed())
        {
            let me = member_id(n);
            let follower =
                memory().with_row(membership.slot(), |row, members| row.follower(members, me));
            if let Some(follower) = follower {
                let own = Base {
                    version,
                    xid: memory().members[me as usize].xid(),
                };
                // SAFETY: as in `confirm_base`.
                unsafe { base::restore(relation_of(&membership), own, follower) };
            }
        }
    }
}

/// PostgreSQL disarms `statement_timeout` before it commits, because a commit does not wait for
/// others. Ours does.
pub struct StatementTimer {
    armed: bool,
}

impl StatementTimer {
    pub fn start(reason: Reason) -> Self {
        // SAFETY: reading a setting, arming a timer of PostgreSQL's.
        unsafe {
            let armed = reason == Reason::Commit
                && pg_sys::StatementTimeout > 0
                && !raw::get_timeout_active(TimeoutId::StatementTimeout);
            if armed {
                raw::enable_timeout_after(TimeoutId::StatementTimeout, pg_sys::StatementTimeout);
            }
            StatementTimer { armed }
        }
    }

    pub fn stop(self) {
        if self.armed {
            // SAFETY: disarms the timer of PostgreSQL's that `start` has armed.
            unsafe { raw::disable_timeout(TimeoutId::StatementTimeout, true) }
            process::check_for_interrupts();
        }
    }
}
