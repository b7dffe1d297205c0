//! The read guard's session side: which tables this transaction wrote, and up to which WAL position
//! its reads must be durable before anybody is told of them (`read_wait.rs`). See the rule "dirty
//! errors".

use super::functions::{self, Kind};
use super::session::memory;
use crate::pg::error::guarded;
use crate::pg::local::Local;
use crate::pg::nodes;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::{raw, triggers, xact};
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
    /// It asks for something that tells of writers of any table.
    reads_all: OfTransaction<bool>,
    /// For what writers of each level have shown.
    read_until: [Cell<u64>; LEVELS],
}

pub const LEVELS: usize = Level::ALL.len();

static NOTES: Local<Notes> = Local::new(Notes {
    written: [const { Cell::new(Oid::INVALID) }; TABLES],
    count: Cell::new(0),
    untracked: OfTransaction::new(false),
    announced: OfTransaction::new(None),
    reads_all: OfTransaction::new(false),
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
unsafe fn note_written(list: *const pg_sys::List, events: u32) {
    // SAFETY: by the contract.
    unsafe {
        for result in nodes::nodes(list) {
            let result = &*result.cast::<pg_sys::ResultRelInfo>();
            note_write((*result.ri_RelationDesc).rd_id);
            if fires_writer(result.ri_TrigDesc, events) {
                note_untracked();
            }
        }
    }
}

/// Whether a trigger for one of these events may write without the executor.
///
/// # Safety
/// Null, or the relcache's description of the triggers.
#[inline]
unsafe fn fires_writer(triggers: *const pg_sys::TriggerDesc, events: u32) -> bool {
    // SAFETY: by the contract.
    !triggers.is_null() && unsafe { triggers::functions(triggers, events) }.any(may_write)
}

/// Which events the statement's own triggers are for. Foreign keys' statements are queries of their
/// own.
///
/// # Safety
/// A started query that writes.
unsafe fn events(query: *const pg_sys::QueryDesc) -> u32 {
    use pg_sys::{TRIGGER_TYPE_DELETE, TRIGGER_TYPE_INSERT, TRIGGER_TYPE_UPDATE};
    // SAFETY: the plan and the executor's state.
    let (is_mixed, moves_rows) = unsafe {
        let mut written = nodes::nodes((*(*query).estate).es_opened_result_relations);
        let mut moves_rows = || {
            written.any(|one| {
                let one = one.cast::<pg_sys::ResultRelInfo>();
                !(*one).ri_RootResultRelInfo.is_null()
            })
        };
        let is_update = (*query).operation == CmdType::CMD_UPDATE;
        let is_mixed = (*(*query).plannedstmt).hasModifyingCTE;
        (is_mixed, is_update && moves_rows())
    };
    // SAFETY: a plain read.
    match unsafe { (*query).operation } {
        CmdType::CMD_DELETE if !is_mixed => TRIGGER_TYPE_DELETE,
        CmdType::CMD_UPDATE if !is_mixed && !moves_rows => TRIGGER_TYPE_UPDATE,
        CmdType::CMD_INSERT if !is_mixed => TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE,
        _ => TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE,
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
            let (estate, events) = ((*query).estate, events(query));
            note_written((*estate).es_opened_result_relations, events);
            note_written((*estate).es_tuple_routing_result_relations, events);
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
    note_read_of(relation, &Level::ALL);
}

/// It has, as far as writers of those levels are concerned.
#[inline]
fn note_read_of(relation: Oid, levels: &[Level]) {
    let guard = &memory().guard;
    for level in levels {
        let verdict = guard.check(*level, database(), u32::from(relation));
        note_verdict(*level, verdict);
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

/// The client asks for something that tells of writers of any table.
pub fn asks_for_all() -> bool {
    NOTES.reads_all.get()
}

/// Notes what such a thing has told of.
#[inline]
pub fn note_asked_for() {
    if asks_for_all() {
        note_everything();
    }
}

/// The level at which this transaction is durable before its client is told.
fn present_level() -> Level {
    // SAFETY: a plain read of a setting.
    level_of(unsafe { pg_sys::synchronous_commit })
}

/// Whether the commit waits until it is durable, unless it becomes visible early: a transaction
/// without WAL has nothing to wait for (xact.c: RecordTransactionCommit).
pub fn waits_in_commit() -> bool {
    xact::has_wal() && xact::own_xid() != 0 && !is_asynchronous()
}

/// Whether the session's commits wait for nothing.
fn is_asynchronous() -> bool {
    use pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_OFF;
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::synchronous_commit <= SYNCHRONOUS_COMMIT_OFF as i32 }
}

/// That of a value of `synchronous_commit`.
pub fn level_of(setting: i32) -> Level {
    use pg_sys::SyncCommitLevel::{
        SYNCHRONOUS_COMMIT_LOCAL_FLUSH, SYNCHRONOUS_COMMIT_REMOTE_APPLY,
    };
    if setting <= SYNCHRONOUS_COMMIT_LOCAL_FLUSH as i32 {
        Level::Local
    } else if setting < SYNCHRONOUS_COMMIT_REMOTE_APPLY as i32 {
        Level::Flushed
    } else {
        Level::Applied
    }
}

/// The end of what has been inserted into WAL. GetXLogInsertRecPtr points behind the next page's
/// header when the last record ends at a page boundary; XLogFlush wants the end of the record.
pub fn end_of_wal() -> u64 {
    // SAFETY: reads a shared position, and a constant of the cluster.
    let (at, segment) = unsafe { (raw::GetXLogInsertRecPtr(), pg_sys::wal_segment_size) };
    hotrow::end_of_record(at, pg_sys::XLOG_BLCKSZ.into(), segment as u64)
}

/// Before the commit record: from now on whoever reads these tables must look after durability.
/// False when this transaction must not become visible early.
pub fn announce() -> bool {
    // A client that hears a notification acts on it.
    let wanted = waits_in_commit() && may_be_early() && !xact::notifies();
    if wanted && NOTES.announced.get().is_none() {
        announce_at_least(present_level());
    }
    wanted
}

/// Whether this transaction, as far as it has come, may become visible early.
fn may_be_early() -> bool {
    guc::is_on(&guc::EARLY_VISIBILITY)
        && !NOTES.untracked.get()
        // It writes to tables without the executor, too (replication/logical/worker.c).
        && !xact::is_replay()
}

/// Whether this transaction, which is about to update the table and to commit, keeps nobody waiting
/// for standbys.
///
/// # Safety
/// `rel` is open.
pub unsafe fn commits_at_once(rel: pg_sys::Relation) -> bool {
    // SAFETY: the relcache's description of the triggers.
    let fires_writer = || unsafe { fires_writer((*rel).trigdesc, pg_sys::TRIGGER_TYPE_UPDATE) };
    is_asynchronous() || may_be_early() && !fires_writer()
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

/// The levels that ask for more than the session does: its commit does not wait for so much.
fn levels_above() -> &'static [Level] {
    use pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_REMOTE_WRITE;
    // SAFETY: a plain read of a setting.
    let setting = unsafe { pg_sys::synchronous_commit };
    if is_asynchronous() {
        &Level::ALL
    } else if setting == SYNCHRONOUS_COMMIT_REMOTE_WRITE as i32 {
        &Level::ALL[Level::Flushed as usize..]
    } else {
        &Level::ALL[present_level() as usize + 1..]
    }
}

/// This transaction has built on a version of the table whose writer has committed since. If its
/// own commit waits until its WAL is durable, writers that ask for no more have come before it
/// there. Not so in PREPARE, which never waits until anything is applied.
pub fn note_followed(relation: Oid) {
    let levels = match (waits_in_commit(), levels_above()) {
        (false, _) => &Level::ALL,
        (true, []) => &Level::ALL[Level::Applied as usize..],
        (true, above) => above,
    };
    note_read_of(relation, levels);
}

/// Whether the transaction has read what is not yet as durable as its writer asked for, and asks
/// for less itself.
pub fn is_below_reads() -> bool {
    levels_above().iter().any(|level| is_pending(*level))
}

/// Whether that is so for PREPARE, which never waits until anything is applied (twophase.c:
/// EndPrepare).
pub fn is_below_reads_prepared() -> bool {
    is_below_reads() || is_pending(Level::Applied)
}

/// Whether the transaction has read what is not yet as durable as its writer asked for.
pub fn is_any_pending() -> bool {
    Level::ALL.into_iter().any(is_pending)
}

/// A transaction with writes commits as in stock PostgreSQL. If its level is below that of what it
/// has read, readers of what it writes wait as if it had become visible early. Whether it tells
/// others in ways that nobody guards (`elsewhere` is one): then it is to wait itself.
pub fn tells_others(elsewhere: bool) -> bool {
    if NOTES.announced.get().is_some() || !is_below_reads() {
        return false;
    }
    let tells = elsewhere || NOTES.untracked.get() || xact::is_replay() || xact::notifies();
    if !tells {
        announce_at_least(present_level());
    }
    tells
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

/// What was read of writers of that level is as durable as they asked for.
pub fn forget_level(level: Level) {
    NOTES.read_until[level as usize].set(0);
}

/// What was read is durable. What a transaction has read that rolls back within a CALL is told to
/// the client at the end of that.
#[inline]
pub fn forget_reads() {
    Level::ALL.into_iter().for_each(forget_level);
}

/// At the end of a transaction that has written in ways that are not tracked.
#[inline]
pub fn forget_untracked() {
    NOTES.untracked.clear();
    NOTES.reads_all.clear();
}
