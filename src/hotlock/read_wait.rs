//! The read guard's waits: what this transaction has read is durable before somebody is told of it.
//!
//! Its client asks for durability by `synchronous_commit`. Others who are told hear of what writers
//! of a higher level have shown, whatever this session's own level is.

use super::flush;
use super::readguard::{self, LEVELS};
use super::session::{SESSION, memory};
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{nesting, process, raw, release, xact};
use crate::shared::fault::{Fault, planted};
use hotrow::Level;
use pgrx::pg_sys::{self, SyncCommitLevel};
use std::cell::Cell;

struct Due {
    /// The transaction has written to a foreign table whose server is told before its own end.
    writes_elsewhere: OfTransaction<bool>,
    /// It is being rolled back by its client, who is told of that when what it has read is durable.
    rolls_back: Cell<bool>,
}
static DUE: Local<Due> = Local::new(Due {
    writes_elsewhere: OfTransaction::new(false),
    rolls_back: Cell::new(false),
});

fn has_nothing_to_await() -> bool {
    readguard::read_until() == [0; LEVELS]
}

/// Waits until what this transaction has read is durable, if its own commit does not see to that.
#[inline]
pub fn before_commit() {
    readguard::note_asked_for();
    if has_nothing_to_await() {
        return;
    }
    let has_id = xact::own_xid() != 0;
    // A notification gives the transaction its id later.
    let tells_others = match has_id {
        true => readguard::tells_others(DUE.writes_elsewhere.get()),
        false => readguard::is_below_reads() && (DUE.writes_elsewhere.get() || xact::notifies()),
    };
    if tells_others {
        await_levels();
    } else if !has_id || !xact::has_wal() || nesting::clients_synchronous_commit() > asked() {
        before_answer();
    }
}

/// Before the transaction is prepared. Whoever ends it may ask for less.
pub fn before_prepare() {
    readguard::note_asked_for();
    if readguard::is_below_reads_prepared() {
        await_levels();
    }
}

/// Waits until what this transaction has read is as durable as its client's settings ask for: the
/// client is going to be told something of it.
pub fn before_answer() {
    readguard::note_asked_for();
    // A function's own setting says nothing of the client.
    await_standbys(asked().max(nesting::clients_synchronous_commit()));
}

/// The session's setting.
fn asked() -> i32 {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::synchronous_commit }
}

/// Waits until what this transaction has read is as durable as its writers asked for: others are
/// going to be told something of it.
fn await_levels() {
    use SyncCommitLevel::{
        SYNCHRONOUS_COMMIT_LOCAL_FLUSH, SYNCHRONOUS_COMMIT_REMOTE_APPLY,
        SYNCHRONOUS_COMMIT_REMOTE_FLUSH,
    };
    let [_, flushed, applied] = readguard::read_until();
    let wanted = match (flushed, applied) {
        (0, 0) => SYNCHRONOUS_COMMIT_LOCAL_FLUSH,
        (_, 0) => SYNCHRONOUS_COMMIT_REMOTE_FLUSH,
        _ => SYNCHRONOUS_COMMIT_REMOTE_APPLY,
    };
    await_standbys(asked().max(wanted as i32));
}

/// Waits as a session does whose `synchronous_commit` is `setting`.
fn await_standbys(setting: i32) {
    let [local, flushed, applied] = readguard::read_until();
    let until = local.max(flushed).max(applied);
    if until == 0
        || planted(Fault::ReadGuardOff)
        || setting <= SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32
    {
        return;
    }
    // SAFETY: a flush and a wait for standbys, with interrupts held as SyncRepWaitForLSN wants it.
    let reached = unsafe {
        if raw::GetFlushRecPtr(std::ptr::null_mut()) < until {
            memory().totals.read_waits.add(1);
        }
        pg_sys::InterruptHoldoffCount += 1;
        flush::flush(until, false);
        let reached = readguard::level_of(setting);
        if flushed.max(applied) != 0 {
            with_setting(setting, || {
                if reached == Level::Applied {
                    // Standbys report what they have applied after the commit records that ask for
                    // it.
                    if await_standby(flushed, false) {
                        await_standby(applied, true);
                    }
                } else {
                    await_standby(flushed.max(applied), false);
                }
            });
        }
        pg_sys::InterruptHoldoffCount -= 1;
        reached
    };
    Level::ALL[..=reached as usize]
        .iter()
        .for_each(|level| readguard::forget_level(*level));
}

/// Waits for standbys, if they have not come so far. False if the wait was cancelled, or ended with
/// its standbys' names.
///
/// # Safety
/// Interrupts are held.
unsafe fn await_standby(until: u64, is_applied: bool) -> bool {
    let is_there = || xact::synchronized(is_applied) >= until;
    if until == 0 || memory().guard.is_acknowledged(until) || is_there() {
        return true;
    }
    // SAFETY: by the contract.
    unsafe { raw::SyncRepWaitForLSN(no_others(until), is_applied) };
    is_there()
}

/// A durable position behind `until` for which nobody else waits, where PostgreSQL wants that: with
/// assertions it stops when two wait for the same (syncrep.c: SyncRepQueueIsOrderedByLSN). Without
/// them, it is `until`.
fn no_others(until: u64) -> u64 {
    if !process::has_assertions() {
        return until;
    }
    // SAFETY: a record of WAL of our own, which is not the transaction's. A server in recovery has
    // no writers to wait for.
    let own = unsafe {
        let last = pg_sys::XactLastRecEnd;
        let own = raw::LogLogicalMessage(c"txn".as_ptr(), c"".as_ptr(), 0, false);
        pg_sys::XactLastRecEnd = last;
        own
    };
    flush::flush(own, false);
    own
}

/// Runs what raises nothing with that value of `synchronous_commit`.
fn with_setting(setting: i32, body: impl FnOnce()) {
    let own = asked();
    // SAFETY: what SET does with the value of this setting (guc_tables.c), and back again.
    let set = |value| unsafe {
        if value != own || asked() != own {
            raw::assign_synchronous_commit(value, std::ptr::null_mut());
            pg_sys::synchronous_commit = value;
        }
    };
    set(setting);
    body();
    set(own);
}

/// The client rolls the transaction back. `is_over` says that its locks are released already.
#[inline]
pub fn before_rollback(is_over: bool) {
    if !readguard::asks_for_all() && has_nothing_to_await() {
        return;
    }
    if is_over {
        before_answer();
        forget_reads();
    } else {
        DUE.rolls_back.set(true);
        release::ask();
    }
}

/// The client asks for the end of its block. Should that fail, there is no ROLLBACK to come.
#[inline]
pub fn at_end_of_block() {
    if !has_nothing_to_await() && readguard::is_any_pending() {
        release::ask();
    }
}

/// The transaction has rolled back, and its locks are released.
pub fn after_rollback() {
    // SAFETY: a plain read of backend state.
    if DUE.rolls_back.take() && !unsafe { pg_sys::proc_exit_inprogress } {
        before_answer();
        forget_reads();
    }
}

/// The transaction has written to such a table.
pub fn note_elsewhere() {
    DUE.writes_elsewhere.set(true);
}

/// Before the transaction commits on other servers, after its predecessors have ended here.
pub fn before_elsewhere() {
    if DUE.writes_elsewhere.get() {
        if SESSION.is_member() {
            readguard::note_everything();
        }
        readguard::note_asked_for();
        await_levels();
    }
}

/// At the end of a transaction that has written elsewhere.
#[inline]
pub fn forget_elsewhere() {
    DUE.writes_elsewhere.clear();
}

/// The transaction has rolled back. If it was a block of the client's, or in a CALL that goes on,
/// the client hears of what it has read later.
pub fn rolled_back() {
    readguard::note_asked_for();
    if xact::has_asked_for_end() && release::is_asked() {
        DUE.rolls_back.set(true);
    } else if !DUE.rolls_back.get() && !xact::awaits_rollback() && !nesting::goes_on() {
        forget_reads();
    }
}

/// The transaction has ended, and what it has read is durable.
#[inline]
pub fn forget_reads() {
    DUE.rolls_back.set(false);
    readguard::forget_reads();
}
