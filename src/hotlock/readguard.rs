//! The read guard's session side: which tables this transaction wrote, and up to which WAL position
//! its reads must be durable before it completes. See the rule "dirty errors".

use super::flush;
use super::session::memory;
use crate::pg::local::Local;
use crate::pg::nodes;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::raw;
use crate::shared::fault::{Fault, planted};
use crate::shared::guc;
use hotrow::Verdict;
use pgrx::pg_sys::{self, CmdType, Oid};
use std::cell::Cell;

const TABLES: usize = 32;

struct Notes {
    written: [Cell<Oid>; TABLES],
    count: Cell<usize>,
    /// Something was written that is not in the list: this transaction does not become visible
    /// early.
    untracked: OfTransaction<bool>,
    announced: OfTransaction<bool>,
    read_until: Cell<u64>,
}

static NOTES: Local<Notes> = Local::new(Notes {
    written: [const { Cell::new(Oid::INVALID) }; TABLES],
    count: Cell::new(0),
    untracked: OfTransaction::new(false),
    announced: OfTransaction::new(false),
    read_until: Cell::new(0),
});

fn database() -> u32 {
    // SAFETY: a global of this backend, which has one thread.
    u32::from(unsafe { pg_sys::MyDatabaseId })
}

/// This transaction writes in ways that are not tracked per table (utility commands).
pub fn note_untracked() {
    NOTES.untracked.set(true);
}

#[inline]
fn note_write(relation: Oid) {
    let count = NOTES.count.get();
    if NOTES.written[..count]
        .iter()
        .any(|written| written.get() == relation)
    {
        return;
    }
    match NOTES.written.get(count) {
        Some(place) => {
            place.set(relation);
            NOTES.count.set(count + 1);
        }
        None => note_untracked(),
    }
}

/// # Safety
/// A list of ResultRelInfo, whose relations are open.
#[inline]
unsafe fn note_written(list: *const pg_sys::List) {
    // SAFETY: by the contract.
    unsafe {
        for result in nodes::nodes(list) {
            note_write((*(*result.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc).rd_id);
        }
    }
}

/// What a statement wrote and read, at its end.
///
/// # Safety
/// A started query, before the executor's clean-up.
#[inline]
pub unsafe fn note_statement(query: *const pg_sys::QueryDesc) {
    // SAFETY: lists of the plan and of the executor's state.
    unsafe {
        let statement = (*query).plannedstmt;
        let writes = (*query).operation != CmdType::CMD_SELECT || (*statement).hasModifyingCTE;
        if writes {
            let estate = (*query).estate;
            note_written((*estate).es_opened_result_relations);
            note_written((*estate).es_tuple_routing_result_relations);
        }
        if is_used() {
            note_all_read((*statement).relationOids);
        }
    }
}

/// # Safety
/// A list of tables' oids.
#[cold]
unsafe fn note_all_read(tables: *const pg_sys::List) {
    // SAFETY: by the contract.
    unsafe { nodes::oids(tables) }.for_each(note_read);
}

/// This transaction has read what is durable when WAL is, up to there.
pub fn note_read_until(position: u64) {
    NOTES.read_until.set(NOTES.read_until.get().max(position));
}

/// What this transaction has read is durable when WAL is, up to there; 0 if nothing has to become
/// so.
pub fn read_until() -> u64 {
    NOTES.read_until.get()
}

/// This transaction has read the table.
pub fn note_read(relation: Oid) {
    let until = match memory().guard.check(database(), u32::from(relation)) {
        Verdict::Durable => return,
        Verdict::Until(until) => until,
        Verdict::Everything => end_of_wal(),
    };
    note_read_until(until);
}

/// This transaction has read it is not known what; or what its predecessors wrote, who have
/// committed since: at the end of the statement that looked, nothing was known of that yet.
pub fn note_everything() {
    if is_used() {
        note_read_until(end_of_wal());
    }
}

/// The end of what has been inserted into WAL. GetXLogInsertRecPtr points behind the next page's
/// header when the last record ends at a page boundary; XLogFlush wants the end of the record.
pub fn end_of_wal() -> u64 {
    const PAGE: u64 = pg_sys::XLOG_BLCKSZ as u64;
    /// xlog_internal.h: SizeOfXLogShortPHD, SizeOfXLogLongPHD.
    const HEADERS: [u64; 2] = [24, 40];
    // SAFETY: reads a shared position.
    let at = unsafe { raw::GetXLogInsertRecPtr() };
    if HEADERS.contains(&(at % PAGE)) {
        at - at % PAGE
    } else {
        at
    }
}

/// Before the commit record: from now on whoever reads these tables must look after durability.
/// False when this transaction must not become visible early.
pub fn announce() -> bool {
    // SAFETY: plain reads of settings and of this transaction's WAL position.
    let wanted = unsafe {
        guc::is_on(&guc::EARLY_VISIBILITY)
            && !NOTES.untracked.get()
            && pg_sys::synchronous_commit > pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32
            && pg_sys::XactLastRecEnd != 0
    };
    if wanted {
        let guard = memory().guard;
        guard.use_it();
        written().for_each(|relation| guard.announce(database(), u32::from(relation)));
        NOTES.announced.set(true);
    }
    wanted
}

fn written() -> impl Iterator<Item = Oid> {
    NOTES.written[..NOTES.count.get()].iter().map(Cell::get)
}

/// The announced transaction has become visible, its commit record ending at `until` (0: it has
/// not).
#[inline]
pub fn settle(until: u64) {
    if NOTES.announced.take() {
        written().for_each(|relation| {
            memory()
                .guard
                .settle(database(), u32::from(relation), until)
        });
    }
}

/// Waits until what this transaction has read is durable, if its own commit does not see to that.
#[inline]
pub fn wait_for_reads() {
    if NOTES.read_until.get() == 0 {
        return;
    }
    // SAFETY: plain reads of transaction state.
    let writes = unsafe {
        pg_sys::XactLastRecEnd != 0
            && !raw::GetTopTransactionIdIfAny().eq(&pg_sys::TransactionId::INVALID)
    };
    if !writes {
        wait_for_answer();
    }
}

/// Waits until what this transaction has read is as durable as its settings ask for: its client is
/// going to be told something of it.
pub fn wait_for_answer() {
    let until = NOTES.read_until.get();
    // SAFETY: reads settings; a flush and a wait for standbys, with interrupts held as
    // SyncRepWaitForLSN wants it.
    unsafe {
        if until == 0
            || planted(Fault::ReadGuardOff)
            || pg_sys::synchronous_commit <= pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF as i32
        {
            return;
        }
        if raw::GetFlushRecPtr(std::ptr::null_mut()) < until {
            memory().totals.read_waits.add(1);
        }
        pg_sys::InterruptHoldoffCount += 1;
        flush::flush(until, false);
        raw::SyncRepWaitForLSN(until, true);
        pg_sys::InterruptHoldoffCount -= 1;
    }
}

/// Whether anything has become visible before it was durable since the server started.
#[inline]
pub fn is_used() -> bool {
    memory().guard.is_used()
}

/// At the end of any transaction.
#[inline]
pub fn forget() {
    NOTES.count.set(0);
    NOTES.read_until.set(0);
}

/// At the end of a transaction that has written in ways that are not tracked.
#[inline]
pub fn forget_untracked() {
    NOTES.untracked.clear();
}
