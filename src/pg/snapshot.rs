//! The snapshot of a statement that has not begun to read: letting it go while the statement waits,
//! taking a fresh one after.

use super::local::Local;
use super::nodes;
use super::of_transaction::OfTransaction;
use super::{functions, raw, xact};
use pgrx::pg_sys;
use std::cell::{Cell, UnsafeCell};
use std::ptr;

/// The active snapshot when the subtransaction at each nesting level began.
struct Outer([Cell<pg_sys::Snapshot>; DEEPEST]);
const DEEPEST: usize = 64;
static OUTER: Local<Outer> = Local::new(Outer([const { Cell::new(ptr::null_mut()) }; DEEPEST]));

/// A subtransaction begins.
pub fn note_subtransaction() {
    // SAFETY: reads the stack of active snapshots.
    unsafe {
        let active = if raw::ActiveSnapshotSet() {
            raw::GetActiveSnapshot()
        } else {
            ptr::null_mut()
        };
        if let Some(outer) = OUTER.0.get(xact::nest_level() as usize) {
            outer.set(active);
        }
    }
}

/// Whether the active snapshot was pushed outside of the present subtransaction: whoever did pops
/// it, when what we had pushed in its place may have gone with the subtransaction.
fn is_from_outside(active: pg_sys::Snapshot) -> bool {
    let level = xact::nest_level() as usize;
    level > 1 && OUTER.0.get(level).is_none_or(|outer| outer.get() == active)
}

/// Whether the query's snapshot is the active one, pushed for this statement alone, and so may be
/// replaced. A query in a stable function reads with the snapshot of the statement that called it,
/// which must stay.
///
/// # Safety
/// `query` is about to be started, or started and not run.
pub unsafe fn is_replaceable(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: reads the stack of active snapshots and the reference counts.
    unsafe {
        let snapshot = (*query).snapshot;
        let estate = (*query).estate;
        let registrations = if estate.is_null() { 1 } else { 2 };
        !snapshot.is_null()
            && raw::ActiveSnapshotSet()
            && raw::GetActiveSnapshot() == snapshot
            && (*snapshot).active_count == 1
            && (*snapshot).regd_count == registrations
            && (estate.is_null() || (*estate).es_snapshot == snapshot)
            && !is_from_outside(snapshot)
    }
}

/// Whether the active snapshot, if any, was pushed for the utility command that now begins and may
/// be replaced.
pub fn is_utility_replaceable() -> bool {
    // SAFETY: reads the stack of active snapshots and the reference counts.
    unsafe {
        raw::ActiveSnapshotSet() && {
            let snapshot = raw::GetActiveSnapshot();
            (*snapshot).active_count == 1
                && (*snapshot).regd_count == 0
                && !is_from_outside(snapshot)
        }
    }
}

/// Lets the snapshot of a utility command go, as `let_go` that of a query. Whether it was the
/// portal's.
///
/// # Safety
/// `is_utility_replaceable()`.
pub unsafe fn let_utility_go() -> bool {
    // SAFETY: the portal pops the snapshot only if it knows of one (pquery.c: PortalRunUtility).
    unsafe {
        let portal = pg_sys::ActivePortal;
        let of_portal = !portal.is_null() && (*portal).portalSnapshot == raw::GetActiveSnapshot();
        if of_portal {
            (*portal).portalSnapshot = ptr::null_mut();
        }
        raw::PopActiveSnapshot();
        raw::InvalidateCatalogSnapshot();
        of_portal
    }
}

/// Takes a fresh one in place of the one let go, and tells the portal if it is the portal's.
///
/// # Safety
/// After `let_utility_go`, which returned `of_portal`.
pub unsafe fn take_for_utility(of_portal: bool) {
    // SAFETY: as PortalRunUtility and SPI push it; they pop what is on top.
    unsafe {
        if of_portal {
            let portal = pg_sys::ActivePortal;
            raw::PushActiveSnapshotWithLevel(raw::GetTransactionSnapshot(), (*portal).createLevel);
            (*portal).portalSnapshot = raw::GetActiveSnapshot();
        } else {
            raw::PushActiveSnapshot(raw::GetTransactionSnapshot());
        }
    }
}

/// Replaces the active snapshot of a utility command by a fresh one.
///
/// # Safety
/// `is_utility_replaceable()`.
pub unsafe fn renew_for_utility() {
    // SAFETY: the caller's `is_utility_replaceable` holds, so nothing else needs the snapshot.
    unsafe { take_for_utility(let_utility_go()) }
}

/// Lets the snapshot go, so that a long wait does not hold back pruning. An ERROR before `take` is
/// fine: the abort of the (sub)transaction cleans up the stack.
///
/// # Safety
/// `is_replaceable(query)`.
pub unsafe fn let_go(query: *mut pg_sys::QueryDesc) {
    // SAFETY: the query holds one registration, its state another once it has started, and the
    // stack one reference, as CreateQueryDesc, ExecutorStart and the portal made them.
    unsafe {
        raw::PopActiveSnapshot();
        let estate = (*query).estate;
        if !estate.is_null() {
            raw::UnregisterSnapshot((*estate).es_snapshot);
            (*estate).es_snapshot = ptr::null_mut();
        }
        raw::UnregisterSnapshot((*query).snapshot);
        (*query).snapshot = ptr::null_mut();
        HELD.set(let_portals_go(query));
        raw::InvalidateCatalogSnapshot();
    }
}

/// Whether `let_go` has let a portal's own registration go.
static HELD: Local<Cell<bool>> = Local::new(Cell::new(false));

/// With RETURNING the portal registers the snapshot, too, for as long as it keeps the rows
/// (pquery.c: FillPortalStore).
unsafe fn let_portals_go(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: the active portal, whose registration its own resource owner has.
    unsafe {
        let portal = pg_sys::ActivePortal;
        if portal.is_null() || (*portal).holdSnapshot.is_null() || !begins_portal(&*portal, query) {
            return false;
        }
        raw::UnregisterSnapshotFromOwner((*portal).holdSnapshot, (*portal).resowner);
        (*portal).holdSnapshot = ptr::null_mut();
        true
    }
}

/// Takes a fresh snapshot in place of the one let go.
///
/// # Safety
/// After `let_go(query)`.
pub unsafe fn take(query: *mut pg_sys::QueryDesc) {
    // SAFETY: restores what `let_go` undid: an active snapshot, and the query's registration of it.
    unsafe {
        let fresh = raw::GetTransactionSnapshot();
        if HELD.take() {
            (*pg_sys::ActivePortal).holdSnapshot = raw::RegisterSnapshot(fresh);
        }
        raw::PushCopiedSnapshot(fresh);
        (*query).snapshot = raw::RegisterSnapshot(raw::GetActiveSnapshot());
        let estate = (*query).estate;
        if !estate.is_null() {
            (*estate).es_snapshot = raw::RegisterSnapshot((*query).snapshot);
        }
    }
}

/// Puts a snapshot on the stack that reads nothing and holds nothing back, for a statement that is
/// done without having run: its portal pops one.
///
/// # Safety
/// After `let_go(query)`.
pub unsafe fn take_none() {
    // SAFETY: a static snapshot, which is copied.
    unsafe { raw::PushActiveSnapshot(&raw mut pg_sys::SnapshotAnyData) }
}

/// Whether the snapshot cannot see what that transaction did.
///
/// # Safety
/// `query` has a snapshot.
pub unsafe fn misses(query: *const pg_sys::QueryDesc, xid: u32) -> bool {
    // SAFETY: an MVCC snapshot and a normal transaction id.
    unsafe { raw::XidInMVCCSnapshot(pg_sys::TransactionId::from(xid), (*query).snapshot) }
}

/// Where `retake` has PostgreSQL put a snapshot; its arrays are allocated once (procarray.c:
/// GetSnapshotData).
static FRESH: Local<UnsafeCell<pg_sys::SnapshotData>> = Local::new(UnsafeCell::new(
    // SAFETY: numbers, flags and null pointers; the kind SNAPSHOT_MVCC is 0.
    unsafe { std::mem::zeroed() },
));

/// Whether the query is all of a portal that begins at REPEATABLE READ or SERIALIZABLE. Then its
/// snapshot is the transaction's own, and no other statement has a copy, but for those that have
/// used it before.
///
/// # Safety
/// `query` is about to be started.
pub unsafe fn is_retakeable(query: *const pg_sys::QueryDesc) -> bool {
    // SAFETY: plain reads, by the contract.
    unsafe {
        may_retake()
            && begins_portal(&*pg_sys::ActivePortal, query)
            && is_replaceable(query)
            && is_only_active()
            && is_portals_alone()
    }
}

/// Whether the active snapshot belongs to a utility command that is all of a portal, at REPEATABLE
/// READ or SERIALIZABLE. Then the transaction's own snapshot may be taken again.
pub fn is_utility_retakeable() -> bool {
    use pg_sys::PortalStrategy::{PORTAL_MULTI_QUERY, PORTAL_UTIL_SELECT};
    // SAFETY: plain reads; the active snapshot is kept by a registration while it is popped.
    unsafe {
        if !may_retake() || !is_utility_replaceable() {
            return false;
        }
        let portal = &*pg_sys::ActivePortal;
        let is_whole = matches!(portal.strategy, PORTAL_MULTI_QUERY | PORTAL_UTIL_SELECT)
            && nodes::length(portal.stmts) == 1;
        is_whole && is_kept_only_active() && is_portals_alone()
    }
}

/// Whether the transaction's own snapshot may be taken again from within a statement.
pub fn is_transactions_retakeable() -> bool {
    // SAFETY: `may_retake`.
    may_retake() && unsafe { is_portals_alone() }
}

/// Whether the transaction's snapshot belongs together with snapshots of other servers.
static PINNED: Local<OfTransaction<bool>> = Local::new(OfTransaction::new(false));

/// It does from now on: it is not taken again.
pub fn pin() {
    PINNED.set(true);
}

/// Whether it does.
pub fn is_pinned() -> bool {
    PINNED.get()
}

/// The transaction has ended.
#[inline]
pub fn unpin() {
    PINNED.clear();
}

/// Whether the transaction's snapshot may be taken again, as far as the transaction goes: it is of
/// level REPEATABLE READ or above, and has read nothing.
fn may_retake() -> bool {
    // SAFETY: plain reads.
    let is_fit = unsafe { !pg_sys::ActivePortal.is_null() && !pg_sys::am_walsender };
    // A transaction with an id has written something.
    is_fit
        && !is_pinned()
        && !xact::is_read_committed()
        && may_restart_ssi()
        && xact::own_xid() == 0
        && !functions::are_used_outside()
}

/// Whether nobody but the active portal, if there is one, has the transaction's own snapshot.
///
/// # Safety
/// The transaction is of level REPEATABLE READ or above, and has its snapshot.
unsafe fn is_portals_alone() -> bool {
    // SAFETY: the reference counts; snapmgr.c registers the transaction's own snapshot once.
    unsafe {
        let own = raw::GetTransactionSnapshot();
        let portal = pg_sys::ActivePortal;
        let held = i32::from(!portal.is_null() && (*portal).holdSnapshot == own);
        (*own).copied && (*own).regd_count as i32 == 1 + held && (*own).active_count == 0
    }
}

/// Whether SSI is not concerned, or may begin anew. It may have let go of a transaction that is
/// READ ONLY; and after an ERROR in between a savepoint must not go on without it.
fn may_restart_ssi() -> bool {
    !xact::is_serializable() || !xact::is_read_only() && xact::nest_level() == 1
}

/// How much this session has heard of changed definitions, by anybody, since it began.
pub fn definitions() -> u64 {
    // SAFETY: a counter of this process (sinval.c).
    unsafe { raw::SharedInvalidMessageCounter }
}

/// How much this session has heard of changed definitions, after it has read all messages up to
/// now.
pub fn definitions_now() -> u64 {
    // SAFETY: within a transaction, as before each lock of a table.
    unsafe { raw::AcceptInvalidationMessages() }
    definitions()
}

/// Whether PortalStart is at work on a single SELECT, or PortalRun on a single statement that
/// modifies (tcop/pquery.c).
///
/// # Safety
/// The active portal, and a query.
unsafe fn begins_portal(portal: &pg_sys::PortalData, query: *const pg_sys::QueryDesc) -> bool {
    use pg_sys::PortalStatus::{PORTAL_ACTIVE, PORTAL_DEFINED};
    use pg_sys::PortalStrategy::{PORTAL_MULTI_QUERY, PORTAL_ONE_RETURNING, PORTAL_ONE_SELECT};
    match portal.strategy {
        PORTAL_ONE_SELECT => portal.status == PORTAL_DEFINED,
        // SAFETY: by the contract; the portal's list of plans.
        PORTAL_ONE_RETURNING | PORTAL_MULTI_QUERY => unsafe {
            portal.status == PORTAL_ACTIVE
                && nodes::length(portal.stmts) == 1
                && nodes::nth(portal.stmts, 0) == (*query).plannedstmt
        },
        _ => false,
    }
}

/// `is_only_active`, with a registration meanwhile.
///
/// # Safety
/// There is an active snapshot, a copy, which was pushed at this nesting level.
unsafe fn is_kept_only_active() -> bool {
    // SAFETY: by the contract; the registration keeps it while it is popped.
    unsafe {
        let top = raw::RegisterSnapshot(raw::GetActiveSnapshot());
        let is_only = is_only_active();
        raw::UnregisterSnapshot(top);
        is_only
    }
}

/// Whether there is no other active snapshot below the one on top.
///
/// # Safety
/// The one on top is a copy, registered by a query, and was pushed at this nesting level.
unsafe fn is_only_active() -> bool {
    // SAFETY: by the contract it stays when it is popped, and is pushed as it was.
    unsafe {
        let top = raw::GetActiveSnapshot();
        raw::PopActiveSnapshot();
        let is_only = !raw::ActiveSnapshotSet();
        raw::PushActiveSnapshot(top);
        is_only
    }
}

/// Takes the transaction's snapshot again: the query, and all that follow, see what has been
/// committed meanwhile, too. Returns the xmin that it would have: all below have ended. Its own
/// stays as it was. `is_fit` is asked when the new one has been taken and the old one is still in
/// force; if it says no, that stays. A SERIALIZABLE transaction begins anew for SSI, too: it has no
/// locks yet (predicate.c).
///
/// # Safety
/// `is_retakeable(query)`, and nothing has been read with the transaction's snapshot.
pub unsafe fn retake(query: *mut pg_sys::QueryDesc, is_fit: impl FnOnce() -> bool) -> Option<u32> {
    // SAFETY: the caller's `is_retakeable` holds, and nothing was read with the snapshot.
    unsafe {
        let xmin = retake_own(is_fit)?;
        let_go(query);
        take(query);
        Some(xmin)
    }
}

/// `retake` for a utility command.
///
/// # Safety
/// `is_utility_retakeable()`, and nothing has been read with the transaction's snapshot.
pub unsafe fn retake_for_utility(is_fit: impl FnOnce() -> bool) -> Option<u32> {
    // SAFETY: the caller's `is_utility_retakeable` holds, and nothing was read with the snapshot.
    unsafe {
        let xmin = retake_own(is_fit)?;
        renew_for_utility();
        Some(xmin)
    }
}

/// `retake` of the transaction's own snapshot only: the present statement keeps its copy.
///
/// # Safety
/// `is_transactions_retakeable()`, and nothing has been read with the transaction's snapshot.
pub unsafe fn retake_transactions(is_fit: impl FnOnce() -> bool) -> Option<u32> {
    // SAFETY: the caller's `is_transactions_retakeable` holds, and nothing was read with the
    // snapshot.
    unsafe { retake_own(is_fit) }
}

/// Takes a late snapshot: the transaction may have written. The active snapshot, if there is one,
/// becomes like it. So does that of the statement that is about to start (null for none). Both were
/// pushed for what comes next. False if anybody else has the transaction's own.
///
/// # Safety
/// Of what was read with the snapshot nothing depends on it. Outside of any statement but this one.
pub unsafe fn retake_late(of_statement: pg_sys::Snapshot) -> bool {
    // SAFETY: by the contract, whoever has a copy has not read with it. A copy of the transaction's
    // snapshot is one piece of memory, and nobody looks at its arrays when it is freed.
    unsafe {
        let active = match raw::ActiveSnapshotSet() {
            true => raw::GetActiveSnapshot(),
            false => ptr::null_mut(),
        };
        if is_pinned() || !is_portals_alone() || !active.is_null() && !is_kept_only_active() {
            return false;
        }
        retake_own(|| true);
        let own = raw::GetTransactionSnapshot();
        for copy in [active, of_statement] {
            let is_mvcc = |copy: pg_sys::Snapshot| {
                (*copy).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC && (*copy).copied
            };
            if !copy.is_null() && copy != own && is_mvcc(copy) {
                show_as(&mut *copy, &*own);
            }
        }
        true
    }
}

/// The first snapshot shows what the other one does, and keeps its xmin and its command id.
fn show_as(snapshot: &mut pg_sys::SnapshotData, other: &pg_sys::SnapshotData) {
    snapshot.xmax = other.xmax;
    (snapshot.xip, snapshot.xcnt) = (other.xip, other.xcnt);
    (snapshot.subxip, snapshot.subxcnt) = (other.subxip, other.subxcnt);
    snapshot.suboverflowed = other.suboverflowed;
    (snapshot.whenTaken, snapshot.lsn) = (other.whenTaken, other.lsn);
}

/// # Safety
/// The transaction's own snapshot may be taken again.
unsafe fn retake_own(is_fit: impl FnOnce() -> bool) -> Option<u32> {
    // SAFETY: the transaction's snapshot stays where it is, and keeps its xmin. Snapshots are
    // ordered by the xmin, and it holds back what it protects: a lower one than need be is right.
    // New arrays live as long as the transaction. CopySnapshot copies what the pointers point to,
    // and FreeSnapshot does not look at them.
    unsafe {
        let mut fresh = &*raw::GetSnapshotData(FRESH.get());
        if !is_fit() {
            return None;
        }
        if xact::is_serializable() {
            raw::ReleasePredicateLocks(false, false);
            fresh = &*raw::GetSerializableTransactionSnapshot(FRESH.get());
        }
        let context = pg_sys::TopTransactionContext;
        let kept = |ids: *const pg_sys::TransactionId, count: usize| {
            let size = size_of::<pg_sys::TransactionId>() * count.max(1);
            let copy = raw::MemoryContextAlloc(context, size).cast::<pg_sys::TransactionId>();
            ptr::copy_nonoverlapping(ids, copy, count);
            copy
        };
        let running = kept(fresh.xip, fresh.xcnt as usize);
        let within = if fresh.suboverflowed && !fresh.takenDuringRecovery {
            0
        } else {
            fresh.subxcnt
        };
        let inner = kept(fresh.subxip, within as usize);
        let own = &mut *raw::GetTransactionSnapshot();
        let shown = pg_sys::SnapshotData {
            xip: running,
            subxip: inner,
            subxcnt: within,
            ..*fresh
        };
        show_as(own, &shown);
        Some(fresh.xmin.into())
    }
}
