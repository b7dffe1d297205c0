//! The check of a foreign key that comes before the update of the row to which the key refers.
//!
//! Where a ledger refers to the hot account, transactions often `INSERT INTO ledger` before they
//! update the account. The check of the foreign key locks the account's row FOR KEY SHARE, and no
//! transaction can follow a version that others have locked. But the update to come locks the row
//! more strongly than the check. So the check's lock is *deferred* where most transactions that
//! check a row also update it (`Row::expects_update`). Then the check only looks whether the row
//! exists. Its lock waits for the update of the row, or for the commit, as with a DEFERRABLE
//! constraint. At the commit the row is looked for by its key again, and locked if the transaction
//! has not updated it.
//!
//! - A check is deferred only where the foreign key refers to the key by which hot rows are known:
//!   the row is looked for by this key again.
//! - A transaction that removes the row, or changes its key, in between is not waited for and does
//!   not wait. The transaction with the check finds no row to lock and fails with 40001. So no
//!   child of a removed row is ever committed.
//! - An UPDATE of the row in between that finds none is refused as well: without deferral the
//!   check's lock would have kept the row. An UPDATE that finds another row with the key is
//!   refused, too: the lock is looked for in the statement's own snapshot. So is another check that
//!   finds none.
//! - The removal may be the transaction's own. Before it deletes a row, changes a key, or runs a
//!   utility command, it takes all locks that it has deferred (`take`). It also does so before a
//!   statement that is not ours to watch.
//! - The checks of the removed row's children see none of a transaction that has not committed, as
//!   ever.
//! - A lock that is taken, or an update that is made, in a savepoint is gone when the savepoint is
//!   rolled back: then the lock is deferred again.

pub use super::deferred::{
    close, forget, forget_asking, has_deferred, is_deferred, note_checked, note_updated, open,
    subtransaction_committed, subtransaction_rolled_back,
};

use super::access;
use super::deferred::{CHECKS, Deferred, has_room, note, note_expectation};
use super::detect;
use super::errors;
use super::session::{SESSION, memory};
use super::settings;
use crate::pg::buffer::{self, Page};
use crate::pg::plan::{self, Existence};
use crate::pg::relation::{self, key_of};
use crate::pg::{lookup, nodes, raw, xact};
use crate::tam::call::Lock;
use crate::tam::swap;
use hotrow::Identity;
use pgrx::pg_sys::{self, CmdType, LockTupleMode, LockWaitPolicy, Oid, TM_Result};
use std::ptr;

/// Before a statement starts that asks for no more than the existence of a row: whether it is the
/// check of a foreign key whose lock may be deferred.
///
/// # Safety
/// `asked` was said of `query`, which is about to be started.
pub unsafe fn consider(query: *const pg_sys::QueryDesc, asked: &Existence) {
    // Without a portal the commit is next, and other extensions may have begun theirs.
    // SAFETY: a global of this backend, which has one thread.
    let has_portal = unsafe { !pg_sys::ActivePortal.is_null() };
    let relation = Oid::from(asked.identity.relation);
    let may_defer = has_portal
        && !CHECKS.is_closed.get()
        && xact::is_read_committed()
        && !SESSION.has_locked(&asked.identity)
        && lookup::is_of_foreign_key()
        && settings::of(relation).follow()
        && detect::find(&asked.identity)
            .is_some_and(|slot| memory().directory.rows[slot as usize].expects_update());
    let is_known = || is_deferred(&asked.identity) && lookup::is_of_foreign_key();
    if may_defer || is_known() {
        CHECKS.asking.set(Some((query as usize, asked.identity)));
    } else {
        CHECKS.asking.clear();
    }
}

/// Defers the lock that the check of a foreign key asks for, if it can be had now, and hands out
/// the version. False: it is taken at once.
///
/// # Safety
/// The executor's arguments; `version` is one of the row `identity`.
pub unsafe fn defer(call: &Lock, version: u64, identity: &Identity) -> bool {
    let query = swap::usage(call.rel).map_or(0, |usage| usage.query);
    let is_asked = call.mode == LockTupleMode::LockTupleKeyShare
        && call.policy == LockWaitPolicy::LockWaitBlock
        && query != 0
        && CHECKS.asking.get() == Some((query, *identity));
    // SAFETY: the executor's relation is open, and `version` is one of the row.
    unsafe {
        if !is_asked || !detect::keeps_key(call.rel, version) {
            return false;
        }
        let page = Page::pin(call.rel, version);
        page.share();
        let found = page.heap_tuple(call.rel, version);
        page.unlock();
        let Some(mut found) = found.filter(|_| is_deferred(identity) || has_room()) else {
            page.unpin();
            return false;
        };
        if !is_deferred(identity) {
            note(call.rel, identity, &mut found);
        }
        (*call.failure).traversed = false;
        buffer::store(call.rel, call.slot, found, page);
        true
    }
}

/// Takes the deferred locks: the transaction may be about to remove the rows itself.
///
/// # Errors
/// 40001 if another transaction has removed one of the rows.
#[inline]
pub fn take() {
    if has_deferred() {
        take_those(active_snapshot(), |_| true);
    }
}

/// Takes the deferred locks before a statement starts. It finds the rows that are locked here, and
/// no others of the same key.
///
/// # Safety
/// `query` is what ExecutorStart is given.
#[inline]
pub unsafe fn take_for(query: *const pg_sys::QueryDesc) {
    if has_deferred() {
        // SAFETY: the executor's query is about to be started; its snapshot is null or valid.
        take_those(unsafe { (*query).snapshot }, |_| true);
    }
}

fn active_snapshot() -> pg_sys::Snapshot {
    // SAFETY: reads the stack of active snapshots.
    unsafe {
        if raw::ActiveSnapshotSet() {
            raw::GetActiveSnapshot()
        } else {
            ptr::null_mut()
        }
    }
}

/// Takes the deferred locks of that table's rows, before the transaction removes a row of it.
#[inline]
pub fn take_in(relation: Oid) {
    if has_deferred() {
        take_those(active_snapshot(), |one| {
            Oid::from(one.identity.relation) == relation
        });
    }
}

/// Before a statement starts that may insert rows: those whose locks are deferred must not come
/// back as its own.
///
/// # Safety
/// `query` is what ExecutorStart is given.
pub unsafe fn before_inserts(query: *const pg_sys::QueryDesc) {
    // SAFETY: the executor's query is about to be started, so it has a plan.
    unsafe {
        let plan = (*query).plannedstmt;
        if (*plan).hasModifyingCTE
            || matches!((*query).operation, CmdType::CMD_INSERT | CmdType::CMD_MERGE)
        {
            take_those((*query).snapshot, |one| writes(plan, one));
        }
    }
}

/// At the end of a statement that may have come to update rows whose locks are deferred. Those that
/// it has not are locked now: if it found none, there may be none.
///
/// # Safety
/// `query` is what ExecutorEnd is given.
#[inline]
pub unsafe fn end_of_statement(query: *const pg_sys::QueryDesc) {
    // SAFETY: the executor's query has not been cleaned up yet.
    unsafe {
        let plan = (*query).plannedstmt;
        if !has_deferred() {
            return;
        }
        if let Some((_, row)) = CHECKS
            .asking
            .get()
            .filter(|asking| asking.0 == query as usize)
            && (*(*query).estate).es_processed == 0
        {
            refuse_if_deferred(&row);
        }
        if (*plan).resultRelations.is_null() {
            return;
        }
        let target = plan::target(query).filter(|_| !(*plan).hasModifyingCTE);
        take_those((*query).snapshot, |one| {
            let is_meant = target.as_ref().is_none_or(|t| t.identity == one.identity);
            is_meant && writes(plan, one)
        });
    }
}

/// Whether the statement may write the table of that row, perhaps as a partition.
unsafe fn writes(plan: *const pg_sys::PlannedStmt, one: &Deferred) -> bool {
    let relation = Oid::from(one.identity.relation);
    // SAFETY: a valid plan; a catalog look-up.
    unsafe {
        nodes::numbers((*plan).resultRelations).any(|index| {
            let entry = nodes::nth::<pg_sys::RangeTblEntry>((*plan).rtable, index as usize - 1);
            (*entry).relid == relation
                || (*entry).relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE
                    && raw::get_rel_relispartition(relation)
        })
    }
}

/// An update or a row lock has found that another transaction has removed the row of that version.
///
/// # Errors
/// 40001 if that row's lock is deferred: with it, the row would be there.
///
/// # Safety
/// `rel` is open, and a scan has found the version.
#[inline]
pub unsafe fn note_result(rel: pg_sys::Relation, version: u64, result: TM_Result::Type) {
    if result == TM_Result::TM_Deleted && has_deferred() {
        // SAFETY: the caller's relation is open, and a scan has found the version.
        let removed =
            key_of(rel).and_then(|key| unsafe { relation::identity_of(rel, key, version) });
        removed.iter().for_each(refuse_if_deferred);
    }
}

/// Another transaction has removed that row: 40001 if its lock is deferred, and nothing else holds
/// it.
fn refuse_if_deferred(row: &Identity) {
    let is_held = |one: &Deferred| one.locked_at != 0 || is_updated(&one.identity);
    if CHECKS
        .all()
        .any(|one| one.identity == *row && !is_held(&one))
    {
        errors::REFERENCED_IS_GONE.raise();
    }
}

/// Takes the deferred locks before the transaction ends, and notes what later checks may expect.
#[inline]
pub fn before_end() {
    if has_deferred() {
        // SAFETY: what the last statement has done is looked at; nothing runs.
        unsafe { raw::CommandCounterIncrement() };
        for one in CHECKS.all().filter(|one| one.locked_at == 0) {
            note_expectation(&one.identity, is_updated(&one.identity));
        }
        take_those(ptr::null_mut(), |_| true);
        CHECKS.step(|_| None);
    }
}

/// The rows are looked for in that snapshot; null for the latest.
fn take_those(snapshot: pg_sys::Snapshot, is_meant: impl Fn(&Deferred) -> bool) {
    for one in CHECKS
        .all()
        .filter(|one| one.locked_at == 0 && is_meant(one))
    {
        if !is_updated(&one.identity) {
            // SAFETY: the statement that has deferred it holds a lock on the table until the
            // transaction ends.
            unsafe { take_one(&one, snapshot) }
        }
    }
    let level = xact::nest_level();
    CHECKS.step(|one| {
        if !is_meant(&one) {
            return Some(one);
        }
        let locked_at = if one.locked_at == 0 {
            level
        } else {
            one.locked_at
        };
        // What belongs to the transaction as a whole stays.
        (level > 1).then_some(Deferred { locked_at, ..one })
    });
}

/// Whether the transaction has a version of that row, which holds it.
fn is_updated(identity: &Identity) -> bool {
    SESSION.all().any(|(_, m)| {
        m.version().is_some()
            && !m.is_gone()
            && memory().directory.rows[m.slot() as usize].is(identity)
    })
}

/// Looks for the row by its key, and locks it.
unsafe fn take_one(one: &Deferred, snapshot: pg_sys::Snapshot) {
    // SAFETY: the table is opened here, and the caller's snapshot is null or valid. An ERROR ends
    // the transaction or a subtransaction, which cleans up.
    unsafe {
        let rel = raw::table_open(
            Oid::from(one.identity.relation),
            pg_sys::RowShareLock as pg_sys::LOCKMODE,
        );
        raw::PushActiveSnapshot(if snapshot.is_null() {
            raw::GetLatestSnapshot()
        } else {
            snapshot
        });
        let slot =
            raw::MakeSingleTupleTableSlot((*rel).rd_att, &raw const pg_sys::TTSOpsBufferHeapTuple);
        let is_locked = key_of(rel).is_some_and(|key| is_locked(rel, key, one, slot));
        raw::ExecDropSingleTupleTableSlot(slot);
        raw::PopActiveSnapshot();
        raw::table_close(rel, pg_sys::NoLock as pg_sys::LOCKMODE);
        if !is_locked {
            errors::REFERENCED_IS_GONE.raise();
        }
    }
}

unsafe fn is_locked(
    rel: pg_sys::Relation,
    key: &relation::Key,
    one: &Deferred,
    slot: *mut pg_sys::TupleTableSlot,
) -> bool {
    // SAFETY: as in `take_one`.
    unsafe {
        let snapshot = raw::GetActiveSnapshot();
        let find = || lookup::find(rel, key, one.copy, snapshot, slot);
        if swap::with_heap(rel, find) != Some(true) {
            return false;
        }
        let mut tid = (*slot).tts_tid;
        let mut failure = pg_sys::TM_FailureData::default();
        let call = Lock {
            rel,
            tid: &raw mut tid,
            snapshot,
            slot,
            cid: raw::GetCurrentCommandId(false),
            mode: LockTupleMode::LockTupleKeyShare,
            policy: LockWaitPolicy::LockWaitBlock,
            flags: (pg_sys::TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS
                | pg_sys::TUPLE_LOCK_FLAG_FIND_LAST_VERSION) as u8,
            failure: &raw mut failure,
        };
        let result = access::lock_in_heaps_way(call);
        SESSION.note_locked(&one.identity);
        // What the running command of this transaction has changed is held.
        result == TM_Result::TM_SelfModified
            || result == TM_Result::TM_Ok && key.of_slot(slot).as_ref() == Some(&one.identity)
    }
}
