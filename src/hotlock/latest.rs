//! Scans that find the last version of a hot row by themselves.
//!
//! A statement that locks or updates a row works on the row's last version. That may be a running
//! predecessor's, which the statement's snapshot does not show. PostgreSQL lets the scan find an
//! older version, and then runs a second copy of the plan with the last one (execMain.c:
//! EvalPlanQualStart), while we have the ticket. A statement that comes to this row only, by its
//! key and nothing else, asks nothing of the older version. So its scan may have the last one at
//! once:
//! - of a row lock, the version is locked first, as `lock.rs` does it;
//! - of an UPDATE of a row that is so locked, it is the version that was locked;
//! - of another UPDATE, the version is offered and handed out, as after EvalPlanQual (`update.rs`).

use super::access::{self, hand_out, lend_offered, version_of};
use super::session::{SESSION, memory, relation_of};
use super::step::version_to_offer;
use super::tail::{forget_offer, offer, refuse_if_shown};
use crate::pg::buffer::{self, Page};
use crate::pg::local::Local;
use crate::pg::of_transaction::OfTransaction;
use crate::pg::plan::Target;
use crate::pg::{tuple, xact};
use crate::tam::call::{Fetch, Lock};
use crate::tam::swap;
use hotrow::{Membership, Slot};
use pgrx::pg_sys::{self, CmdType, LockTupleMode, SnapshotType, TM_Result};

/// A statement whose scan may have the last version.
#[derive(Clone, Copy)]
struct Allowed {
    /// As the address of its QueryDesc.
    query: usize,
    /// Its row.
    slot: Slot,
    /// How it locks the row, if it does no more.
    mode: LockTupleMode::Type,
}

static ALLOWED: Local<OfTransaction<Option<Allowed>>> = Local::new(OfTransaction::new(None));

/// A version that a statement's scan has locked.
#[derive(Clone, Copy)]
struct Locked {
    query: usize,
    version: u64,
    xid: u32,
}

static LOCKED: Local<OfTransaction<Option<Locked>>> = Local::new(OfTransaction::new(None));

/// Lets the scan of that statement, once it runs, have the last version of its hot row, if it may.
/// Where nobody has the row just now it is not asked whether it may: most likely there will be no
/// predecessor.
///
/// # Safety
/// `query` is about to be started, and `target` is its target, the row of that slot.
pub unsafe fn allow(query: *mut pg_sys::QueryDesc, slot: Slot, target: &Target) {
    // SAFETY: by the contract.
    let operation = unsafe { (*query).operation };
    let works_on_last = matches!(operation, CmdType::CMD_SELECT | CmdType::CMD_UPDATE);
    let row = &memory().directory.rows[slot as usize];
    let is_free = row.listed() == 0 && row.holder().is_none();
    if works_on_last && !is_free && xact::is_read_committed() && target.is_unconditional() {
        ALLOWED.set(Some(Allowed {
            query: query as usize,
            slot,
            mode: match target.locks_key() {
                true => LockTupleMode::LockTupleExclusive,
                false => LockTupleMode::LockTupleNoKeyExclusive,
            },
        }));
    }
}

/// Another statement is about to start, or one ends, or a command runs.
#[inline]
pub fn forget() {
    ALLOWED.clear();
    LOCKED.clear();
}

/// Whether a statement's scan may have the last version.
#[inline]
pub fn is_expected() -> bool {
    ALLOWED.get().is_some()
}

/// An index scan has found a version: puts the last one into its slot, if the statement may have it
/// and it is not committed yet. `around_lock` runs what tries to take a row lock, and says whether
/// it has. It is given the version that was found, and the mode of the lock.
///
/// # Safety
/// `call` has the executor's arguments; its slot holds the version.
pub unsafe fn turn_to(
    call: Fetch,
    around_lock: impl FnOnce(u64, LockTupleMode::Type, &mut dyn FnMut() -> bool),
) {
    // SAFETY: by the contract; the slot is one for heap's rows.
    unsafe {
        let rel = (*call.scan).rel;
        let usage = swap::usage(rel);
        let is_its = |allowed: &Allowed| usage.is_some_and(|usage| usage.query == allowed.query);
        let (Some(usage), Some(allowed)) = (usage, ALLOWED.get().filter(is_its)) else {
            return;
        };
        if (*call.snapshot).snapshot_type != SnapshotType::SNAPSHOT_MVCC {
            return;
        }
        ALLOWED.clear();
        let Some((n, membership)) = SESSION
            .in_row(allowed.slot)
            .filter(|(_, m)| m.has_ticket() && !m.has_version())
            .filter(|(_, m)| relation_of(m) == access::relation_of(rel))
        else {
            return;
        };
        let version = tuple::pack(&(*call.slot).tts_tid);
        let last = if usage.only_locks {
            let mut locked = None;
            around_lock(version, allowed.mode, &mut || {
                locked = lock(rel, n, &allowed);
                locked.is_some()
            });
            locked
        } else if !usage.may_follow {
            None
        } else if membership.has_locked() {
            lent(rel, &membership, version)
        } else {
            hand_out_last(rel, n, version, &allowed)
        };
        if let Some((found, page)) = last {
            buffer::store(rel, call.slot, found, page);
        }
    }
}

/// Hands out the version of a running predecessor.
///
/// # Safety
/// `rel` is open, its row's ticket is ours, and a scan of the statement has found `version`.
unsafe fn hand_out_last(
    rel: pg_sys::Relation,
    n: usize,
    version: u64,
    allowed: &Allowed,
) -> Option<(pg_sys::HeapTupleData, Page)> {
    // SAFETY: by the contract.
    unsafe {
        let tail = version_to_offer(n, allowed.query)?;
        // If the version is rolled back, the executor starts from the one that was found.
        SESSION.step(n, |m| m.came_with(version));
        offer(n, &tail);
        let found = version_of(rel, tail.tid, tail.xid);
        match found {
            Some(_) => SESSION.step(n, Membership::handed_out),
            None => forget_offer(n),
        }
        found
    }
}

/// Locks the version of a running predecessor.
///
/// # Safety
/// As for `hand_out_last`.
unsafe fn lock(
    rel: pg_sys::Relation,
    n: usize,
    allowed: &Allowed,
) -> Option<(pg_sys::HeapTupleData, Page)> {
    // SAFETY: by the contract.
    unsafe {
        let tail = version_to_offer(n, allowed.query)?;
        let with_key = allowed.mode == LockTupleMode::LockTupleExclusive;
        let found = lend_offered(rel, n, &tail, with_key)?;
        LOCKED.set(Some(Locked {
            query: allowed.query,
            version: tail.tid,
            xid: tail.xid,
        }));
        Some(found)
    }
}

/// The version that we have locked before, unless it is the one that the scan has found.
///
/// # Safety
/// `rel` is open.
unsafe fn lent(
    rel: pg_sys::Relation,
    membership: &Membership,
    version: u64,
) -> Option<(pg_sys::HeapTupleData, Page)> {
    let last = membership.lent().filter(|&last| last != version)?;
    let xid = membership.predecessor()?;
    // SAFETY: by the contract.
    unsafe { version_of(rel, last, xid) }
}

/// The answer of `tuple_lock` for a version that the statement's scan has locked: the executor has
/// it already. 40001 if its writer has rolled back, and it is gone.
///
/// # Safety
/// As for `tuple_lock`.
pub unsafe fn is_locked(call: &Lock) -> Option<TM_Result::Type> {
    // SAFETY: by the contract; the slot is a buffer heap slot.
    unsafe {
        let version = tuple::pack(&*call.tid);
        let query = swap::usage(call.rel)?.query;
        let locked = LOCKED
            .get()
            .filter(|locked| locked.query == query && locked.version == version)?;
        LOCKED.clear();
        let (n, _) = SESSION.with_in_hand(access::relation_of(call.rel), version)?;
        match version_of(call.rel, version, locked.xid) {
            Some((found, page)) => {
                (*call.failure).traversed = false;
                hand_out(call, found, page);
                Some(TM_Result::TM_Ok)
            }
            None => {
                refuse_if_shown(n);
                None
            }
        }
    }
}
