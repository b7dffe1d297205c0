//! The read guard's session side: which tables this transaction wrote, and up to which WAL position
//! its reads must be durable before it completes. See the rule "dirty errors".

use super::flush;
use super::functions::{self, Kind};
use super::session::{SESSION, memory};
use crate::pg::error::guarded;
use crate::pg::local::Local;
use crate::pg::nodes;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{raw, release, triggers, xact};
use crate::shared::fault::{Fault, planted};
use crate::shared::guc;
use hotrow::{Level, Verdict};
use pgrx::pg_sys::{self, CmdType, Oid};
use std::cell::Cell;

const TABLES: usize = 32;

struct Notes {
    written: [Cell<Oid>; TABLES],
    count: Cell<usize>,
    /// Something was written that is not in the list: this transaction does not become visible
    /// early.
    untracked: OfTransaction<bool>,
    /// The transaction is about to become visible early, or has: at that level, with so many of the
    /// tables announced.
    announced: OfTransaction<Option<(Level, usize)>>,
    /// It has written to a foreign table whose server is told before its own end.
    writes_elsewhere: OfTransaction<bool>,
    /// It asks for something that tells of writers of any table.
    reads_all: OfTransaction<bool>,
    /// It is being rolled back by its client, who is told of that when what it has read is durable.
    rolls_back: Cell<bool>,
    /// For what writers of each level have shown.
    read_until: [Cell<u64>; LEVELS],
}

const LEVELS: usize = Level::ALL.len();

static NOTES: Local<Notes> = Local::new(Notes {
    written: [const { Cell::new(Oid::INVALID) }; TABLES],
    count: Cell::new(0),
    untracked: OfTransaction::new(false),
    announced: OfTransaction::new(None),
    writes_elsewhere: OfTransaction::new(false),
    reads_all: OfTransaction::new(false),
    rolls_back: Cell::new(false),
    read_until: [const { Cell::new(0) }; LEVELS],
});

fn database() -> u32 {
    // SAFETY: a global of this backend, which has one thread.
    u32::from(unsafe { pg_sys::MyDatabaseId })
}

/// This transaction writes in ways that are not tracked per table (utility commands).
pub fn note_untracked() {
    NOTES.untracked.set(true);
}

/// Before a function is executed, or rather made ready for that.
#[inline]
pub fn before_function(function: Oid) {
    if !functions::is_known_harmless(function) {
        guarded(|| note_function(function));
    }
}

#[cold]
fn note_function(function: Oid) {
    match functions::kind_of(function) {
        Kind::Writes => note_untracked(),
        Kind::Tells => NOTES.reads_all.set(true),
        Kind::Unknown | Kind::Harmless => {}
    }
}

/// Whether a trigger's function writes without the executor.
#[inline]
fn may_write(function: Oid) -> bool {
    functions::kind_of(function) == Kind::Writes
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
            if NOTES.announced.get().is_some() {
                announce_rest();
            }
        }
        None => note_untracked(),
    }
}

/// Announces the tables that have not been.
fn announce_rest() {
    let Some((level, announced)) = NOTES.announced.get() else {
        return;
    };
    let guard = &memory().guard;
    let written = NOTES.written[..NOTES.count.get()].iter().map(Cell::get);
    written
        .skip(announced)
        .for_each(|relation| guard.announce(level, database(), u32::from(relation)));
    NOTES.announced.set(Some((level, NOTES.count.get())));
}

/// # Safety
/// A list of ResultRelInfo, whose relations are open.
#[inline]
unsafe fn note_written(list: *const pg_sys::List) {
    // SAFETY: by the contract.
    unsafe {
        for result in nodes::nodes(list) {
            let result = &*result.cast::<pg_sys::ResultRelInfo>();
            note_write((*result.ri_RelationDesc).rd_id);
            let triggers = result.ri_TrigDesc;
            if !triggers.is_null() && triggers::functions(triggers).any(may_write) {
                note_untracked();
            }
        }
    }
}

/// What a statement wrote, at its end.
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
    }
}

/// What a part of a statement has read, at its end: a cursor may come to no other end.
///
/// # Safety
/// A started query.
#[inline]
pub unsafe fn note_read_by(query: *const pg_sys::QueryDesc) {
    if is_used() {
        // SAFETY: lists of the plan and of the executor's state.
        unsafe {
            note_all_read((*(*query).plannedstmt).relationOids);
            note_routed((*(*query).estate).es_tuple_routing_result_relations);
            // What functions in its workers have read is noted there.
            if (*(*query).plannedstmt).parallelModeNeeded {
                note_everything();
            }
        }
    }
}

/// A partition to which a row has been routed is not in the plan. A conflict there tells of rows.
///
/// # Safety
/// As for `note_written`.
#[inline]
unsafe fn note_routed(list: *const pg_sys::List) {
    // SAFETY: by the contract.
    unsafe {
        for result in nodes::nodes(list) {
            note_read((*(*result.cast::<pg_sys::ResultRelInfo>()).ri_RelationDesc).rd_id);
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

/// This transaction's update has been done by another one with the same level of
/// `synchronous_commit`, whose commit record ends there.
pub fn note_done(until: u64) {
    note_verdict(present_level(), Verdict::Until(until));
}

fn note_verdict(level: Level, verdict: Verdict) {
    let until = match verdict {
        Verdict::Durable => return,
        Verdict::Until(until) => until,
        Verdict::Everything => end_of_wal(),
    };
    let noted = &NOTES.read_until[level as usize];
    noted.set(noted.get().max(until));
}

/// What this transaction has read is durable when WAL is, up to there: for each level of writers; 0
/// if nothing has to become so.
pub fn read_until() -> [u64; LEVELS] {
    NOTES.read_until.each_ref().map(Cell::get)
}

/// This transaction has read the table.
pub fn note_read(relation: Oid) {
    let guard = &memory().guard;
    for level in Level::ALL {
        note_verdict(level, guard.check(level, database(), u32::from(relation)));
    }
}

/// This transaction has read it is not known what; or what its predecessors wrote, who have
/// committed since: at the end of the statement that looked, nothing was known of that yet.
pub fn note_everything() {
    if is_used() {
        for level in Level::ALL {
            note_verdict(level, memory().guard.check_all(level));
        }
    }
}

/// The level at which this transaction is durable before its client is told.
fn present_level() -> Level {
    use pg_sys::SyncCommitLevel::{
        SYNCHRONOUS_COMMIT_LOCAL_FLUSH, SYNCHRONOUS_COMMIT_REMOTE_APPLY,
    };
    // SAFETY: a plain read of a setting.
    let level = unsafe { pg_sys::synchronous_commit };
    if level <= SYNCHRONOUS_COMMIT_LOCAL_FLUSH as i32 {
        Level::Local
    } else if level < SYNCHRONOUS_COMMIT_REMOTE_APPLY as i32 {
        Level::Flushed
    } else {
        Level::Applied
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
            // It writes to tables without the executor, too (replication/logical/worker.c).
            && !xact::is_replay()
    };
    // A client that hears a notification acts on it.
    let wanted = wanted && !xact::notifies();
    if wanted {
        announce_at_least(present_level());
    }
    wanted
}

/// At that level, or at that of what the transaction has read: what it writes may tell of that.
fn announce_at_least(own: Level) {
    let level = match Level::ALL.into_iter().rfind(|level| is_pending(*level)) {
        Some(read) if read as usize > own as usize => read,
        _ => own,
    };
    memory().guard.begin(level);
    NOTES.announced.set(Some((level, 0)));
    announce_rest();
}

/// Whether the transaction has read what is not durable yet at the level of its writer.
fn is_pending(level: Level) -> bool {
    let until = NOTES.read_until[level as usize].get();
    let durable = || match level {
        // SAFETY: reads a shared position.
        Level::Local => unsafe { raw::GetFlushRecPtr(std::ptr::null_mut()) },
        Level::Flushed => xact::synchronized(false),
        Level::Applied => xact::synchronized(true),
    };
    until != 0 && !memory().guard.is_acknowledged(until) && durable() < until
}

/// A transaction with writes commits as in stock PostgreSQL. If its level is below that of what it
/// has read, readers of what it writes wait as if it had become visible early.
fn announce_reads() {
    use pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF;
    // SAFETY: a plain read of a setting.
    let is_off = unsafe { pg_sys::synchronous_commit } <= SYNCHRONOUS_COMMIT_OFF as i32;
    let own = present_level();
    let levels_above = if is_off { 0 } else { own as usize + 1 };
    let is_below = Level::ALL[levels_above..]
        .iter()
        .any(|level| is_pending(*level));
    if is_below && NOTES.announced.get().is_none() {
        announce_at_least(own);
    }
}

/// The announced transaction has become visible, its commit record ending at `until` (0: it has
/// not).
#[inline]
pub fn settle(until: u64) {
    if let Some((level, announced)) = NOTES.announced.take() {
        let guard = &memory().guard;
        for relation in NOTES.written[..announced].iter().map(Cell::get) {
            guard.settle(level, database(), u32::from(relation), until);
        }
        guard.end(level, until);
    }
}

/// An early commit whose record ends there has been flushed, and acknowledged by standbys if there
/// are any.
pub fn note_acknowledged(until: u64) {
    if !xact::may_have_synchronous_standbys() {
        memory().guard.note_alone(until);
    }
}

/// Waits until what this transaction has read is durable, if its own commit does not see to that.
#[inline]
pub fn wait_for_reads() {
    if NOTES.reads_all.get() {
        note_everything();
    }
    if read_until() == [0; LEVELS] {
        return;
    }
    // SAFETY: plain reads of transaction state.
    let writes = unsafe {
        pg_sys::XactLastRecEnd != 0
            && !raw::GetTopTransactionIdIfAny().eq(&pg_sys::TransactionId::INVALID)
    };
    if writes {
        announce_reads();
    } else {
        wait_for_answer();
    }
}

/// Waits until what this transaction has read is as durable as its settings ask for: its client is
/// going to be told something of it.
pub fn wait_for_answer() {
    if NOTES.reads_all.get() {
        note_everything();
    }
    let [local, flushed, applied] = read_until();
    let until = local.max(flushed).max(applied);
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
        // Standbys report what they have applied after the commit records that ask for it.
        for (until, is_applied) in [(flushed, false), (applied, true)] {
            if until != 0 && !memory().guard.is_acknowledged(until) {
                raw::SyncRepWaitForLSN(until, is_applied);
            }
        }
        pg_sys::InterruptHoldoffCount -= 1;
    }
    forget_reads();
}

/// The client rolls the transaction back. `is_over` says that its locks are released already.
#[inline]
pub fn before_rollback(is_over: bool) {
    if !NOTES.reads_all.get() && read_until() == [0; LEVELS] {
        return;
    }
    if is_over {
        wait_for_answer();
    } else {
        NOTES.rolls_back.set(true);
        release::ask();
    }
}

/// The transaction has rolled back, and its locks are released.
pub fn after_rollback() {
    // SAFETY: a plain read of backend state.
    if NOTES.rolls_back.take() && !unsafe { pg_sys::proc_exit_inprogress } {
        wait_for_answer();
    }
}

/// Before the transaction commits on other servers, after its predecessors have ended here.
pub fn wait_before_elsewhere() {
    if NOTES.writes_elsewhere.get() {
        if SESSION.is_member() {
            note_everything();
        }
        wait_for_answer();
    }
}

/// The transaction has written to such a table.
pub fn note_elsewhere() {
    NOTES.writes_elsewhere.set(true);
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
}

/// The transaction rolls back. What it has asked for has told of others up to now.
pub fn keep_reads() {
    if NOTES.reads_all.get() {
        note_everything();
    }
}

/// What was read is durable. What a transaction has read that rolls back within a CALL is told to
/// the client at the end of that.
#[inline]
pub fn forget_reads() {
    NOTES.rolls_back.set(false);
    NOTES.read_until.iter().for_each(|until| until.set(0));
}

/// At the end of a transaction that has written in ways that are not tracked, or elsewhere.
#[inline]
pub fn forget_untracked() {
    NOTES.untracked.clear();
    NOTES.writes_elsewhere.clear();
    NOTES.reads_all.clear();
}
