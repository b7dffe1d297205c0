//! The end of a transaction: in update order, early for the next one, late enough for the client.

use super::answer;
use super::check;
use super::combine;
use super::definitions;
use super::dependent;
use super::detect;
use super::errors;
use super::readguard;
use super::reads;
use super::session::{SESSION, member_id, memory, patience, relation_of};
use super::settings;
use super::statement;
use super::stop;
use super::ticket;
use super::waiting::{self, Reason, Wait};
use crate::fault::{Fault, planted};
use crate::pg::raw::{self, TimeoutId};
use crate::pg::wait::{self, Wakes};
use crate::pg::xact;
use crate::range_occ;
use crate::tam::base;
use crate::tam::swap;
use hotrow::{Base, Duty, Membership, Trouble};
use pgrx::pg_sys;

/// How a transaction leaves its hot rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Committed,
    Prepared,
    RolledBack,
}

/// Waits until every predecessor has committed; 40001 if one has not, or if somebody has written what was read beside them. The
/// permission is PostgreSQL's own record of the predecessors' transaction ids; the dependency list only shortens the wait.
pub fn wait_for_predecessors(reason: Reason) {
    for (n, membership) in SESSION.all() {
        if membership.depends() {
            wait_for_predecessor(n, &membership, reason);
        }
    }
}

/// Whether every predecessor has ended, so that waiting for them takes no time.
pub fn have_predecessors_ended() -> bool {
    SESSION.all().all(|(n, membership)| {
        let Some(predecessor) = membership.predecessor().filter(|_| membership.depends()) else {
            return true;
        };
        let me = member_id(n);
        let is_ahead = memory().with_row(membership.slot(), |row, world| {
            row.predecessor(world, me).is_some()
        });
        !is_ahead && !xact::is_running(predecessor)
    })
}

/// Waits for the predecessor on one row.
pub fn wait_for_predecessor(n: usize, membership: &Membership, reason: Reason) {
    wait_for_predecessor_unless(n, membership, reason, || false);
}

/// Waits for the predecessor on one row to end, or until `is_done`. The predecessor wakes those
/// behind it when it makes that true (`order::has_come_to`).
pub fn wait_for_predecessor_unless(
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
    let is_ahead = || memory().with_row(slot, |row, world| row.await_predecessor(world, me));
    waiting::check_doomed();
    if is_ahead() || xact::is_running(predecessor) {
        memory().totals.commit_waits.add(1);
        let timer = StatementTimer::start(reason);
        let wait = Wait::begin(reason, slot);
        let own = &memory().members[me as usize];
        while is_ahead() || xact::is_running(predecessor) {
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
    SESSION.step(n, Membership::predecessor_committed);
    memory().actors[wait::me() as usize].forget(n);
    confirm_base(n);
    if !dependent::is_dependent() {
        reads::validate();
        definitions::validate();
    }
}

/// The predecessor has ended: whether the version that we have built on still names us as its updater; 40001 if it does
/// not. Nobody commits without this answer (tam/base.rs).
fn confirm_base(n: usize) {
    let Some(membership) = SESSION.get(n) else {
        return;
    };
    let Some(base) = membership.base() else {
        return;
    };
    let xid = memory().members[member_id(n) as usize].xid();
    // SAFETY: the transaction holds a lock on the relations of its memberships; nothing else is locked here.
    if !unsafe { base::restore(relation_of(&membership), base, xid) } {
        errors::BASE_TAKEN.raise();
    }
    SESSION.step(n, Membership::base_confirmed);
}

/// All predecessors have ended: confirms what no wait for one has confirmed. Then those who have built on our versions find them
/// as they were, whatever this transaction has looked at (tam/base.rs).
fn confirm_bases() {
    for (n, _) in SESSION.all() {
        confirm_base(n);
    }
    restore_own();
}

/// Takes back what PostgreSQL may have set by mistake on our versions when this transaction looked at them, as long as nobody else can see
/// them (tam/base.rs).
pub fn restore_own() {
    if planted(Fault::LeaderDoesNotRestore) {
        return;
    }
    for (n, membership) in SESSION.all() {
        if let Some(version) = membership.version().filter(|_| membership.is_listed()) {
            let me = member_id(n);
            let follower =
                memory().with_row(membership.slot(), |row, world| row.follower(world, me));
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

/// PostgreSQL disarms `statement_timeout` before it commits, because a commit does not wait for others. Ours does.
struct StatementTimer {
    armed: bool,
}

impl StatementTimer {
    fn start(reason: Reason) -> Self {
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

    fn stop(self) {
        if self.armed {
            // SAFETY: as above.
            unsafe { raw::disable_timeout(TimeoutId::StatementTimeout, true) }
            wait::check_for_interrupts();
        }
    }
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
        wait_for_predecessors(Reason::Commit);
        waiting::check_doomed();
    }
}

/// XACT_EVENT_PRE_COMMIT and XACT_EVENT_PRE_PREPARE, ahead of other extensions: they may commit
/// elsewhere.
pub fn before_others() {
    take_deferred_locks();
    wait_before_triggers();
}

/// Locks the rows whose locks foreign keys' checks have deferred.
fn take_deferred_locks() {
    if check::has_deferred() {
        let timer = StatementTimer::start(Reason::Commit);
        check::before_end();
        timer.stop();
    }
}

/// XACT_EVENT_PRE_COMMIT: the last place at which the transaction may still fail.
#[inline]
pub fn before_commit() {
    take_deferred_locks();
    check::close();
    let early = SESSION.is_member() && before_members_commit();
    reads::validate();
    definitions::validate();
    readguard::wait_for_reads();
    // From here on nothing waits, and nothing is read or written.
    range_occ::commit::before_end();
    reads::note_writes();
    definitions::begin();
    ticket::come_back();
    combine::seal();
    if early {
        make_asynchronous();
    }
}

/// Lets the predecessors end, and tells whether the transaction may become visible before it is durable.
fn before_members_commit() -> bool {
    stop::at(stop::Point::BeforeCommitWait);
    wait_for_predecessors(Reason::Commit);
    waiting::check_doomed();
    confirm_bases();
    stop::at(stop::Point::AfterCommitWait);
    waiting::check_doomed();
    let updated = || SESSION.all().filter(|(_, m)| m.has_version());
    if updated().next().is_none() {
        readguard::note_everything();
        return false;
    }
    updated().any(|(_, m)| settings::of(relation_of(&m)).groups()) && readguard::announce()
}

/// XACT_EVENT_PRE_PREPARE: a YES is irrevocable, so all predecessors come first (trap 6).
pub fn before_prepare() {
    take_deferred_locks();
    check::close();
    if SESSION.is_member() {
        stop::at(stop::Point::BeforeCommitWait);
        wait_for_predecessors(Reason::Commit);
        waiting::check_doomed();
        confirm_bases();
    }
    reads::validate();
    definitions::validate();
    readguard::wait_for_reads();
    range_occ::commit::before_end();
    reads::note_writes();
    definitions::begin();
}

/// Lets RecordTransactionCommit return before flush and standbys; `after_locks` makes up for it.
///
/// It neither flushes nor waits at synchronous_commit = off. But at remote_apply the commit record
/// asks standbys to report when they have
/// applied it (xact.c: XactLogCommitRecord), so that the setting must stay. There it passes for a
/// transaction without WAL, which is not
/// waited for either. Should another callback write WAL after this one, the commit is an ordinary
/// one.
fn make_asynchronous() {
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

/// XACT_EVENT_COMMIT: the transaction is no longer running. Raises nothing.
#[inline]
pub fn committed() {
    // SAFETY: set by RecordTransactionCommit just before.
    let end = unsafe { pg_sys::XactLastCommitEnd };
    if restore_synchronous_commit() {
        SESSION.flush_to.set(end);
        memory().totals.early_commits.add(1);
    }
    readguard::settle(end);
    combine::committed(end);
    if definitions::are_changed() && SESSION.is_member() {
        SESSION.stays.set(true);
    } else {
        finish(End::Committed);
    }
}

/// XACT_EVENT_PREPARE. Successors wait for the transaction id, which lives on. Raises nothing.
pub fn prepared() {
    readguard::settle(0);
    finish(End::Prepared);
}

/// XACT_EVENT_ABORT. Raises nothing.
pub fn rolled_back() {
    restore_synchronous_commit();
    readguard::settle(0);
    combine::rolled_back();
    range_occ::session::end_exempt();
    // An error after the commit changes nothing about it.
    let committed = SESSION.stays.take();
    finish(if committed {
        End::Committed
    } else {
        End::RolledBack
    });
}

fn restore_synchronous_commit() -> bool {
    match SESSION.synchronous_commit.take() {
        Some(configured) => {
            // SAFETY: puts the setting's value back.
            unsafe { pg_sys::synchronous_commit = configured };
            true
        }
        None => false,
    }
}

/// Leaves all hot rows, waking whoever waited, and forgets the transaction.
#[inline]
fn finish(end: End) {
    SESSION.behind.set(0);
    SESSION.refusal.set(None);
    if SESSION.is_member() {
        leave_rows(end);
    }
    clear();
    swap::end_of_transaction();
    range_occ::session::end();
    SESSION.forget_locked();
    check::forget();
    statement::forget();
    readguard::forget();
    reads::forget();
    definitions::forget();
    combine::forget(end != End::RolledBack);
}

fn leave_rows(end: End) {
    let (mut doomed, mut behind) = (0, 0);
    let (patience, now) = (patience(), wait::now());
    for (n, membership) in SESSION.all() {
        let me = member_id(n);
        let mut wakes = Wakes::new();
        if end == End::RolledBack {
            stop::at(stop::Point::RollingBack);
        }
        memory().with_row(membership.slot(), |row, world| {
            if end == End::RolledBack {
                let victims = row.roll_back(world, me, |actor| wakes.push(actor));
                doomed += victims;
                row.counters.cascades.add(u64::from(victims > 0));
                if row.trouble(Trouble::Cascade(victims), now) {
                    memory().totals.backoffs.add(1);
                }
            } else {
                row.depart(world, me, |actor| wakes.push(actor));
                row.success();
            }
            if let Some(actor) = row.leave(world, me, patience, now) {
                wakes.push(actor);
            }
            world.forgive(me);
            row.part();
            behind = behind.max(row.waiting() + row.listed());
        });
        if end == End::RolledBack {
            stop::at(stop::Point::Doomed);
        }
        wakes.deliver();
        SESSION.end(n);
    }
    SESSION.behind.set(behind);
    if doomed > 0 {
        memory().totals.cascades.add(1);
        memory().totals.doomed.add(u64::from(doomed));
    }
}

#[inline]
fn clear() {
    waiting::clear();
    detect::uncount_waiter();
    SESSION.ripe.set(0);
    if SESSION.published.take() {
        let own = &memory().actors[wait::me() as usize];
        own.clear();
    }
}

/// After the locks are released, before the client hears COMMIT: durable at the level that the settings ask for. A
/// dependent transaction's record is later in WAL, so what is acknowledged is durable with everything it built on.
pub fn after_locks() {
    // The invalidation messages have been sent: those behind us know of what we have defined.
    if SESSION.stays.take() {
        finish(End::Committed);
    }
    let end = SESSION.flush_to.take();
    let behind = SESSION.behind.take();
    if end != 0 {
        stop::at(stop::Point::Visible);
        flush(end, behind >= MANY);
    }
    combine::deliver();
    if end == 0 {
        return;
    }
    // SAFETY: interrupts are held here, as RecordTransactionCommit holds them around the same call.
    unsafe { raw::SyncRepWaitForLSN(end, true) };
}

/// Transactions behind one on a hot row that make its flush wait for theirs.
const MANY: u32 = 8;

/// How long a flush waits for those behind, in microseconds: in this time many of them commit. They
/// need the row and the processors, not the flush.
const GATHER_US: std::ffi::c_long = 500;

/// Makes WAL durable up to `end`, together with others that want the same. If many `come`, it waits for them a moment. Interrupts
/// are held.
pub fn flush(end: u64, come: bool) {
    let memory = memory();
    let me = wait::me();
    // SAFETY: reads a shared position.
    let flushed = || unsafe { raw::GetFlushRecPtr(std::ptr::null_mut()) };
    if flushed() >= end {
        return;
    }
    let mut duty = memory.flush.join(memory.actors, me, end);
    while duty == Duty::Wait {
        wait::doze(1000, pg_sys::WaitEventIO::WAIT_EVENT_WAL_SYNC);
        duty = memory.flush.duty(memory.actors, me);
    }
    if duty == Duty::Flush {
        // SAFETY: reads settings, which say whether XLogFlush waits by itself, or has nothing to wait
        // for; sleeps.
        unsafe {
            if come && raw::CommitDelay == 0 && pg_sys::enableFsync {
                raw::pg_usleep(GATHER_US);
            }
        }
        // SAFETY: the end of a record of ours; a failure in it is a PANIC, so the duty is always handed over.
        unsafe { raw::XLogFlush(end) };
        memory
            .flush
            .hand_over(memory.actors, me, flushed(), wait::wake);
    }
}

/// The version of that membership is rolled back: so is what others have built on it. It stays in
/// the list as a reader, or leaves.
fn doom_followers(n: usize, membership: &Membership, stays: bool) {
    let (me, now) = (member_id(n), wait::now());
    let mut wakes = Wakes::new();
    // We may come to wait for those behind, who will not commit.
    memory().actors[wait::me() as usize].writes_as(n, 0);
    stop::at(stop::Point::RollingBack);
    let doomed = memory().with_row(membership.slot(), |row, world| {
        let victims = row.roll_back_version(world, me, stays, |actor| wakes.push(actor));
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

/// A subtransaction at this depth has rolled back: what it began is over. A version that was written above it stays.
pub fn subtransaction_rolled_back(level: i32) {
    waiting::clear();
    answer::error_is_over();
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
                    ticket::give_back(n);
                }
                SESSION.step(n, |_| still);
            }
            None => ticket::leave(n),
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
