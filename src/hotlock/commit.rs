//! The end of a transaction: in update order, early for the next one, late enough for the client.

use super::awake;
use super::check;
use super::combine;
use super::definitions;
use super::dependency;
use super::detect;
use super::error_visibility;
use super::flush;
use super::handover;
use super::leader;
use super::predecessors::{self, StatementTimer};
use super::prepared;
use super::read_wait;
use super::readguard;
use super::session::{SESSION, member_id, memory, patience, relation_of};
use super::settings;
use super::waiting::{self, Reason};
use crate::pg::process;
use crate::pg::raw;
use crate::pg::xact;
use crate::shared::stop;
use crate::shared::wait::Wakes;
use hotrow::{Membership, Trouble};
use pgrx::pg_sys;

/// How a transaction leaves its hot rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Committed,
    Prepared,
    RolledBack,
}

/// The transaction is about to fire its deferred triggers. (After an error in a savepoint a COMMIT
/// fires none: it rolls back.)
#[inline]
pub fn wait_before_triggers() {
    if !xact::is_valid() {
        return;
    }
    waiting::check_refused();
    if SESSION.is_member() {
        stop::at(stop::Point::BeforeCommitWait);
        predecessors::wait(Reason::Commit);
        waiting::check_doomed();
    }
}

/// XACT_EVENT_PRE_COMMIT and XACT_EVENT_PRE_PREPARE, ahead of other extensions: they may commit
/// elsewhere.
pub fn before_others() {
    take_deferred_locks();
    wait_before_triggers();
    read_wait::before_elsewhere();
}

/// Locks the rows whose locks foreign keys' checks have deferred.
#[inline]
pub fn take_deferred_locks() {
    if check::has_deferred() {
        take_locks();
    }
}

fn take_locks() {
    let timer = StatementTimer::start(Reason::Commit);
    check::before_end();
    timer.stop();
}

/// Lets the predecessors end, and tells whether the transaction is to become visible before it is
/// durable.
pub fn before_members_commit() -> bool {
    awake::note();
    stop::at(stop::Point::BeforeCommitWait);
    predecessors::wait(Reason::Commit);
    waiting::check_doomed();
    predecessors::confirm_bases();
    stop::at(stop::Point::AfterCommitWait);
    waiting::check_doomed();
    let updated = || SESSION.all().filter(|(_, m)| m.has_version());
    if updated().next().is_none() {
        readguard::note_everything();
        return false;
    }
    note_predecessors();
    updated().any(|(_, m)| settings::of(relation_of(&m)).groups())
}

/// Lets the predecessors end: a YES to PREPARE is irrevocable, so all come first (rule "PREPARE").
pub fn before_members_prepare() {
    stop::at(stop::Point::BeforeCommitWait);
    predecessors::wait(Reason::Commit);
    waiting::check_doomed();
    predecessors::confirm_bases();
    note_predecessors();
}

/// What was noted of them at their ends was for the setting of that moment.
fn note_predecessors() {
    let followed = SESSION.all().filter(|(_, m)| m.seen().is_some());
    followed.for_each(|(_, m)| readguard::note_followed(relation_of(&m)));
}

/// Lets RecordTransactionCommit return before flush and standbys; `after_locks` makes up for it.
///
/// It neither flushes nor waits at synchronous_commit = off. But at remote_apply the commit record
/// asks standbys to report when they have
/// applied it (xact.c: XactLogCommitRecord), so that the setting must stay. There it passes for a
/// transaction without WAL, which is not
/// waited for either. Should another callback write WAL after this one, the commit is an ordinary
/// one.
pub fn make_asynchronous() {
    use pg_sys::SyncCommitLevel::{SYNCHRONOUS_COMMIT_OFF, SYNCHRONOUS_COMMIT_REMOTE_APPLY};
    // SAFETY: the setting is read by RecordTransactionCommit alone until
    // `restore_synchronous_commit` puts it back. The position is that of
    // the transaction's last record, which is the commit record next.
    unsafe {
        SESSION
            .synchronous_commit
            .set(Some(pg_sys::synchronous_commit));
        if pg_sys::synchronous_commit >= SYNCHRONOUS_COMMIT_REMOTE_APPLY as i32 {
            pg_sys::XactLastRecEnd = 0;
        } else {
            pg_sys::synchronous_commit = SYNCHRONOUS_COMMIT_OFF as i32;
        }
    }
}

/// The transaction has become visible. Returns the end of its commit record, and notes how far
/// `after_locks` has to flush if it was early. Raises nothing.
#[inline]
pub fn committed() -> u64 {
    // SAFETY: set by RecordTransactionCommit just before.
    let end = unsafe { pg_sys::XactLastCommitEnd };
    if restore_synchronous_commit() {
        SESSION.flush_to.set(end);
        memory().totals.early_commits.add(1);
    }
    end
}

/// Puts the setting's value back after `make_asynchronous`. Whether that had been.
pub fn restore_synchronous_commit() -> bool {
    match SESSION.synchronous_commit.take() {
        Some(configured) => {
            // SAFETY: puts the setting's value back.
            unsafe { pg_sys::synchronous_commit = configured };
            true
        }
        None => false,
    }
}

/// The transaction has ended: leaves all hot rows. One that has changed definitions stays until
/// `after_locks`.
#[inline]
pub fn end(end: End) {
    SESSION.behind.set(0);
    SESSION.refusal.clear();
    // An error after the commit changes nothing about it.
    let has_committed = SESSION.stays.take();
    if has_committed {
        leave(End::Committed);
    } else if end == End::Committed && definitions::are_changed() {
        SESSION.stays.set(true);
    } else {
        leave(end);
    }
    SESSION.forget_locked();
}

/// Whether the transaction, which has committed, is to leave its hot rows in `after_locks`.
pub fn is_to_leave() -> bool {
    SESSION.stays.get()
}

/// A transaction has committed that has come to no hot row.
#[inline]
pub fn end_ordinarily() {
    clear_published();
    SESSION.forget_locked();
}

/// So many wait for what this transaction, which has committed, had for itself; or `MANY`.
pub fn note_behind(behind: u32) {
    SESSION.behind.set(SESSION.behind.get().max(behind));
}

/// Leaves all hot rows, waking whoever waited.
#[inline]
fn leave(end: End) {
    if SESSION.is_member() {
        leave_rows(end);
    }
    clear();
    definitions::forget();
}

fn leave_rows(end: End) {
    let (mut doomed, mut behind) = (0, 0);
    let (patience, now) = (patience(), process::now());
    if end == End::Committed {
        leader::learn(now);
    }
    let heir = (end == End::Prepared).then(prepared::heir).flatten();
    for (n, membership) in SESSION.all() {
        let (me, slot) = (member_id(n), membership.slot());
        let heir = prepared::heir_of(heir, n, &membership);
        let mut is_handed_over = false;
        let mut wakes = Wakes::new();
        if end == End::RolledBack {
            stop::at(stop::Point::RollingBack);
        }
        memory().with_row(slot, |row, members| {
            if let Some(heir) = heir
                && row.hand_over(members, slot, me, heir)
            {
                is_handed_over = true;
                // It comes to no other row any more.
                row.wake_those_behind(members, heir, |backend| {
                    if waiting::waits_for(backend, Reason::Order) {
                        wakes.push(backend);
                    }
                });
            } else if end == End::RolledBack {
                let victims = row.roll_back(members, me, |backend| wakes.push(backend));
                doomed += victims;
                row.counters.cascades.add(u64::from(victims > 0));
                if row.trouble(Trouble::Cascade(victims), now) {
                    memory().totals.backoffs.add(1);
                }
            } else {
                row.depart(members, me, |backend| wakes.push(backend));
                row.success();
            }
            if let Some(backend) = row.leave(members, me, patience, now) {
                wakes.push(backend);
            }
            members.forgive(me);
            if !is_handed_over {
                row.part();
            }
            behind = behind.max(row.waiting() + row.listed());
        });
        if end == End::RolledBack {
            stop::at(stop::Point::Doomed);
        }
        wakes.deliver();
        if end == End::RolledBack {
            combine::await_seal(me);
        }
        SESSION.end(n);
    }
    if end == End::Committed {
        SESSION.behind.set(behind);
    }
    if doomed > 0 {
        memory().totals.cascades.add(1);
        memory().totals.doomed.add(u64::from(doomed));
    }
}

#[inline]
fn clear() {
    waiting::restore_timeouts();
    detect::uncount_waiter();
    SESSION.ripe.clear();
    clear_published();
}

#[inline]
fn clear_published() {
    if SESSION.published.take() {
        let own = &memory().backends[process::me() as usize];
        own.clear();
    }
}

/// After the locks are released, before the client hears COMMIT: durable at the level that the
/// settings ask for. A dependent transaction's record is later in WAL, so what is acknowledged is
/// durable with everything it built on.
pub fn after_locks() {
    // The invalidation messages have been sent: those behind us know of what we have defined.
    if SESSION.stays.take() {
        leave(End::Committed);
    }
    let end = SESSION.flush_to.take();
    let behind = SESSION.behind.take();
    if end != 0 {
        stop::at(stop::Point::Visible);
        flush::flush(end, behind >= MANY);
    }
    combine::deliver();
    if end == 0 {
        return;
    }
    // SAFETY: interrupts are held here, as RecordTransactionCommit holds them around the same call.
    unsafe { raw::SyncRepWaitForLSN(end, true) };
    readguard::note_acknowledged(end);
}

/// Transactions behind one on a hot row, or requests in the lane, that make its flush wait for
/// theirs.
pub const MANY: u32 = 8;

/// The version of that membership is rolled back: so is what others have built on it. It stays in
/// the list as a reader, or leaves.
fn doom_followers(n: usize, membership: &Membership, stays: bool) {
    let (me, now) = (member_id(n), process::now());
    let mut wakes = Wakes::new();
    // We may come to wait for those behind, who will not commit.
    memory().backends[process::me() as usize].writes_as(n, 0);
    stop::at(stop::Point::RollingBack);
    let doomed = memory().with_row(membership.slot(), |row, members| {
        let victims = row.roll_back_version(members, me, stays, |backend| wakes.push(backend));
        row.counters.cascades.add(u64::from(victims > 0));
        if row.trouble(Trouble::Cascade(victims), now) {
            memory().totals.backoffs.add(1);
        }
        victims
    });
    stop::at(stop::Point::Doomed);
    wakes.deliver();
    if doomed > 0 {
        memory().totals.cascades.add(1);
        memory().totals.doomed.add(u64::from(doomed));
    }
}

/// A subtransaction at this depth has rolled back: what it began is over. A version that was
/// written above it stays.
pub fn subtransaction_rolled_back(level: i32) {
    waiting::clear();
    definitions::note_analyzed();
    error_visibility::error_is_over();
    detect::uncount_waiter();
    check::subtransaction_rolled_back(level);
    for (n, membership) in SESSION.all() {
        memory().members[member_id(n) as usize].patient.publish(0);
        let still = membership.subtransaction_rolled_back(level);
        if membership.loses_place(level) {
            doom_followers(n, &membership, still.is_some_and(|m| m.is_listed()));
        }
        let has_lost_row = still.is_none_or(|m| !m.has_ticket() && !m.has_version());
        if membership.is_passed_up() && has_lost_row {
            SESSION.note_locked_by(&membership);
        }
        match still {
            Some(still) => {
                if !still.has_ticket() {
                    handover::give_back(n);
                }
                SESSION.step(n, |_| still);
            }
            None => dependency::leave(n),
        }
    }
}

/// A subtransaction at this depth has committed into its parent.
pub fn subtransaction_committed(level: i32) {
    check::subtransaction_committed(level);
    for (n, _) in SESSION.all() {
        SESSION.step(n, |m| m.subtransaction_committed(level));
    }
}
