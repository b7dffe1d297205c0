//! Transactions: who is current, who has committed, and the callbacks at their ends.

use super::catch::catching;
use super::local::Local;
use super::of_transaction::OfTransaction;
use super::raw::{self, TimeoutId};
use super::{cancel, process};
use pgrx::pg_sys::{self, LockAcquireResult};
use std::cell::Cell;
use std::ptr::null_mut;

/// The top transaction's id, or 0 while it has none.
pub fn own_xid() -> u32 {
    // SAFETY: reads backend state.
    unsafe { u32::from(raw::GetTopTransactionIdIfAny()) }
}

/// The id with which the present subtransaction writes, or 0 while it has none.
pub fn writing_xid() -> u32 {
    // SAFETY: reads backend state.
    unsafe { u32::from(raw::GetCurrentTransactionIdIfAny()) }
}

/// The transaction to which that one belongs, a subtransaction perhaps. One that has ended is its
/// own.
pub fn top_of(xid: u32) -> u32 {
    if !is_running(xid) {
        return xid;
    }
    // SAFETY: as XactLockTableWait does: nobody forgets the parents of transactions that run, or
    // have run a moment ago.
    unsafe { u32::from(raw::SubTransGetTopmostTransaction(xid.into())) }
}

/// Whether what PostgreSQL does after PRE_COMMIT may raise an ERROR: notifications that are to be
/// queued, and temporary tables that are emptied or dropped.
pub fn may_fail_at_end() -> bool {
    // SAFETY: a plain read of backend state.
    let flags = unsafe { pg_sys::MyXactFlags };
    flags & pg_sys::XACT_FLAGS_ACCESSEDTEMPNAMESPACE as i32 != 0 || notifies()
}

/// Whether the transaction may have notifications for others, or begin or end to listen.
pub fn notifies() -> bool {
    // SAFETY: a plain read of a setting; the check that PREPARE makes, which raises if there are
    // any, and leaves nothing behind. With that setting an error could not be caught.
    unsafe { pg_sys::ExitOnAnyError || catching(|| raw::AtPrepare_Notify(), |_| true) }
}

/// Whether commits wait for standbys, if their levels ask for it (syncrep.h: SyncStandbysDefined).
/// True as well if this session has not read its settings again.
pub fn may_have_synchronous_standbys() -> bool {
    // SAFETY: plain reads of a setting and of a flag.
    unsafe {
        let names = pg_sys::SyncRepStandbyNames;
        !names.is_null() && *names != 0 || pg_sys::ConfigReloadPending != 0
    }
}

/// How replication/walsender_private.h's WalSndCtlData begins in PostgreSQL 16.
#[repr(C)]
struct WalSenders {
    queues: [pg_sys::dlist_head; 3],
    positions: [u64; 3],
}

/// Up to where synchronous standbys have flushed WAL, or applied it, as far as commits have been
/// told.
pub fn synchronized(is_applied: bool) -> u64 {
    /// replication/syncrep.h.
    const FLUSHED: usize = 1;
    const APPLIED: usize = 2;
    // SAFETY: shared memory of at least that size, from before any session until after it. The
    // position is a word of its own, which only grows.
    unsafe {
        let all = pg_sys::WalSndCtl.cast::<WalSenders>();
        let mode = if is_applied { APPLIED } else { FLUSHED };
        std::ptr::read_volatile(&raw const (*all).positions[mode])
    }
}

/// Whether the session replays what another server has done: its commit records say how far it has
/// come (replication/logical/origin.c).
pub fn is_replay() -> bool {
    // SAFETY: a plain read of backend state.
    unsafe { pg_sys::replorigin_session_origin != pg_sys::InvalidRepOriginId as u16 }
}

/// Whether the transaction has written WAL, be it without an id of its own (pruning).
pub fn has_wal() -> bool {
    // SAFETY: a plain read of backend state.
    unsafe { pg_sys::XactLastRecEnd != 0 }
}

/// Whether the present (sub)transaction has not failed.
pub fn is_valid() -> bool {
    // SAFETY: reads backend state.
    unsafe { raw::IsTransactionState() }
}

/// The depth of subtransactions; 1 at the top.
pub fn nest_level() -> i32 {
    // SAFETY: reads backend state.
    unsafe { raw::GetCurrentTransactionNestLevel() }
}

struct Block {
    is_open: Cell<bool>,
    /// A transaction of AND CHAIN.
    is_chained: Cell<bool>,
    /// COMMIT or PREPARE has been asked for: an error ends the block.
    ends: Cell<bool>,
    /// With AND CHAIN.
    chains: Cell<bool>,
}
static BLOCK: Local<Block> = Local::new(Block {
    is_open: Cell::new(false),
    is_chained: Cell::new(false),
    ends: Cell::new(false),
    chains: Cell::new(false),
});

/// Whether BEGIN has opened the transaction block. False after COMMIT AND CHAIN, and for the block
/// that PostgreSQL makes of several statements in one message.
pub fn is_in_block() -> bool {
    BLOCK.is_open.get()
}

/// Whether the client of a transaction that fails is still to ask for its ROLLBACK.
pub fn awaits_rollback() -> bool {
    (is_in_block() || BLOCK.is_chained.get()) && !BLOCK.ends.get()
}

/// Whether the client has asked for the end of its block by COMMIT or PREPARE.
pub fn has_asked_for_end() -> bool {
    BLOCK.ends.get()
}

/// BEGIN has run.
#[inline]
pub fn note_begin() {
    BLOCK.is_open.set(true);
}

/// The end of the block has been asked for, with AND CHAIN or without: COMMIT or PREPARE, else
/// ROLLBACK. A transaction that has failed as a whole has ended before.
#[inline]
pub fn note_end(commits: bool, chains: bool) {
    if is_valid() || nest_level() > 1 {
        // That of a failed savepoint rolls back.
        BLOCK.ends.set(commits && is_valid());
        BLOCK.chains.set(chains);
    } else {
        BLOCK.is_chained.set(chains);
    }
}

/// The transaction has ended. If COMMIT has failed, no other one follows it.
#[inline]
pub fn ended(has_failed: bool) {
    let fails = BLOCK.ends.take() && has_failed;
    BLOCK.is_open.set(false);
    BLOCK.is_chained.set(BLOCK.chains.take() && !fails);
}

/// Whether the transaction runs, and is not in a subtransaction.
pub fn may_fire_deferred() -> bool {
    is_valid() && nest_level() == 1
}

/// PostgreSQL's own record: that transaction has left the list of running ones, and committed.
pub fn has_committed(xid: u32) -> bool {
    let xid = pg_sys::TransactionId::from(xid);
    // SAFETY: look-ups by a normal transaction id; in this order, as the C code has it.
    unsafe { !raw::TransactionIdIsInProgress(xid) && raw::TransactionIdDidCommit(xid) }
}

/// Whether PostgreSQL does not remember any more what has become of that transaction.
pub fn is_forgotten(xid: u32) -> bool {
    // SAFETY: a single word of shared memory, which only goes on.
    let oldest = unsafe { u32::from((*pg_sys::ShmemVariableCache).oldestClogXid) };
    // TransactionIdPrecedes' comparison, for normal ids.
    (xid.wrapping_sub(oldest) as i32) < 0
}

pub fn is_running(xid: u32) -> bool {
    // SAFETY: any id may be asked for; it reads shared memory under its own locks.
    unsafe { raw::TransactionIdIsInProgress(pg_sys::TransactionId::from(xid)) }
}

/// Whether the transaction, or the present savepoint, is READ ONLY.
pub fn is_read_only() -> bool {
    // SAFETY: reads a setting.
    unsafe { pg_sys::XactReadOnly }
}

#[inline]
pub fn is_read_committed() -> bool {
    // SAFETY: a global of this backend, which has one thread.
    unsafe { pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32 }
}

pub fn is_serializable() -> bool {
    // SAFETY: a global of this backend, which has one thread.
    unsafe { pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32 }
}

/// The transaction id that is given out next.
pub fn next_xid() -> u32 {
    // SAFETY: reads a shared counter under its lock. The lower half of it is the id.
    unsafe { raw::ReadNextFullTransactionId().value as u32 }
}

/// Whether all transactions with ids below that one had ended when this session took its last
/// snapshot. False if it is not known.
pub fn have_ended_below(xid: u32) -> bool {
    // TransactionIdPrecedes' comparison, for normal ids.
    oldest_running().wrapping_sub(xid) as i32 >= 0
}

/// The oldest transaction id that ran when this session took its last snapshot.
pub fn oldest_running() -> u32 {
    // SAFETY: procarray.c: GetSnapshotData keeps it there.
    u32::from(unsafe { pg_sys::RecentXmin })
}

/// Waits in the lock manager until that transaction has ended.
pub fn wait_for_end(xid: u32) {
    // SAFETY: no relation is given, so no context is printed; may raise, callers hold nothing.
    unsafe {
        raw::XactLockTableWait(
            pg_sys::TransactionId::from(xid),
            null_mut(),
            null_mut(),
            pg_sys::XLTW_Oper::XLTW_None,
        )
    }
}

/// Waits in the lock manager until the transaction has ended that holds that version of a row.
///
/// # Safety
/// `rel` is open.
pub unsafe fn wait_for_end_of_row(
    xid: u32,
    rel: pg_sys::Relation,
    mut tid: pg_sys::ItemPointerData,
    operation: pg_sys::XLTW_Oper::Type,
) {
    // SAFETY: by the contract; may raise, callers hold nothing.
    unsafe { raw::XactLockTableWait(xid.into(), rel, &raw mut tid, operation) }
}

/// Waits for that transaction's end for at most `ms` milliseconds, and for no longer than
/// `lock_timeout`. Whether it has ended.
pub fn wait_for_end_within(xid: u32, ms: i32) -> bool {
    within(ms, || wait_for_end(xid))
}

/// Does a wait of the lock manager for at most `ms` milliseconds, and for no longer than
/// `lock_timeout`. Whether it has come to its end.
pub fn within(ms: i32, wait: impl FnOnce()) -> bool {
    // SAFETY: LockTimeout is read by ProcSleep, and put back on both ways out, or at the abort when
    // the session ends in the wait; nothing here has a destructor. The error of a lock wait that
    // timed out leaves nothing behind, as in `hotlock::waiting`.
    unsafe {
        let configured = pg_sys::LockTimeout;
        let limit = match configured {
            1.. => ms.min(configured),
            _ => ms,
        };
        let limit = limit.max(1);
        // ProcSleep would take away the mark of an earlier wait's timer that has just fired.
        let earlier = raw::get_timeout_active(TimeoutId::LockTimeout)
            .then(|| raw::get_timeout_finish_time(TimeoutId::LockTimeout));
        raw::disable_timeout(TimeoutId::LockTimeout, true);
        let watch = cancel::Watch::begin(limit);
        let is_over = catching(
            || {
                CONFIGURED.set(Some(configured));
                pg_sys::LockTimeout = limit;
                wait();
                // The time may have been over just when the lock was granted.
                process::check_for_interrupts();
            },
            |code| {
                restore_lock_timeout();
                watch.is_timeout(code)
            },
        );
        restore_lock_timeout();
        watch.end();
        if let Some(time) = earlier {
            raw::enable_timeout_at(TimeoutId::LockTimeout, time);
        }
        !is_over
    }
}

/// The setting of `lock_timeout` while `within` has another one in force.
static CONFIGURED: Local<OfTransaction<Option<i32>>> = Local::new(OfTransaction::new(None));

/// Puts `lock_timeout` back after `within`.
#[inline]
pub fn restore_lock_timeout() {
    if let Some(configured) = CONFIGURED.take() {
        // SAFETY: puts the setting's value back.
        unsafe { pg_sys::LockTimeout = configured };
    }
}

/// Whether that process runs that transaction, which another one may have prepared and left behind.
/// Read without a lock, so it may be wrong by a moment.
pub fn is_run_by(process: usize, xid: u32) -> bool {
    run_by(process) == xid
}

/// The transaction that the process runs, 0 without one: it has not ended at the moment of the
/// look, nor been prepared.
pub fn run_by(process: usize) -> u32 {
    // SAFETY: `process` is a pgprocno, so within allProcs; a word that others write as a whole.
    unsafe {
        let process = (*pg_sys::ProcGlobal).allProcs.add(process);
        u32::from((&raw const (*process).xid).read_volatile())
    }
}

/// What stands for the transaction of that id, which this session has just prepared, and which
/// nobody can end before its locks are given away.
pub fn process_of_prepared(xid: u32) -> hotrow::BackendId {
    // SAFETY: XACT_EVENT_PREPARE comes after PostPrepare_Locks, which has looked for it as well.
    unsafe { (*raw::TwoPhaseGetDummyProc(xid.into(), false)).pgprocno as hotrow::BackendId }
}

/// Whether that process works in our database.
pub fn is_in_this_database(process: usize) -> bool {
    // SAFETY: `allProcs` has an entry for each process, and keeps it; the database is one word.
    unsafe { (*(*pg_sys::ProcGlobal).allProcs.add(process)).databaseId == pg_sys::MyDatabaseId }
}

/// How many wait in the lock manager for that running transaction to end.
pub fn waiters(xid: u32) -> u32 {
    // SAFETY: the count includes the transaction itself.
    unsafe { (raw::LockWaiterCount(&lock_of(xid)).max(1) - 1) as u32 }
}

/// Whether that other (sub)transaction has its own lock: it has not rolled back, nor been released.
pub fn has_own_lock(xid: u32) -> bool {
    !takes_lock_of(xid, true)
}

/// Waits in the lock manager until that subtransaction has rolled back or been released.
pub fn wait_for_release(xid: u32) {
    takes_lock_of(xid, false);
}

/// Takes the lock of a (sub)transaction's id, and gives it back (lmgr.c: XactLockTableWait).
/// Whether it was free, where this does not wait.
fn takes_lock_of(xid: u32, dont_wait: bool) -> bool {
    const MODE: pg_sys::LOCKMODE = pg_sys::ShareLock as pg_sys::LOCKMODE;
    let tag = lock_of(xid);
    // SAFETY: after an ERROR in the wait the abort releases the lock.
    unsafe {
        let taken = raw::LockAcquireExtended(&tag, MODE, false, dont_wait, true, null_mut())
            != LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if taken {
            raw::LockRelease(&tag, MODE, false);
        }
        taken
    }
}

/// The lock of a (sub)transaction's id (lock.h: SET_LOCKTAG_TRANSACTION).
fn lock_of(xid: u32) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: xid,
        locktag_field2: 0,
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_TRANSACTION as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}
