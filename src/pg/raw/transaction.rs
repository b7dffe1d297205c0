//! PostgreSQL's functions about transactions: their ids, snapshots, locks, triggers and ends.

use pgrx::pg_sys::*;
use std::ffi::{c_char, c_int, c_void};

unsafe extern "C-unwind" {
    // access/transam
    pub fn ReadNextFullTransactionId() -> FullTransactionId;
    pub fn GetTopFullTransactionIdIfAny() -> FullTransactionId;
    pub fn RecoveryInProgress() -> bool;
    pub fn TransactionIdDidCommit(xid: TransactionId) -> bool;
    pub fn TransactionIdIsCurrentTransactionId(xid: TransactionId) -> bool;
    pub fn GetTopTransactionIdIfAny() -> TransactionId;
    pub fn GetCurrentTransactionIdIfAny() -> TransactionId;
    pub fn GetCurrentTransactionId() -> TransactionId;
    pub fn GetCurrentTransactionNestLevel() -> c_int;
    pub fn GetCurrentTransactionStartTimestamp() -> TimestampTz;
    pub fn GetCurrentStatementStartTimestamp() -> TimestampTz;
    pub fn SetParallelStartTimestamps(transaction: TimestampTz, statement: TimestampTz);
    pub fn GetCurrentSubTransactionId() -> SubTransactionId;
    pub fn GetCurrentCommandId(used: bool) -> CommandId;
    pub fn CommandCounterIncrement();
    pub fn IsTransactionBlock() -> bool;
    pub fn IsInTransactionBlock(is_top_level: bool) -> bool;
    pub fn IsSubTransaction() -> bool;
    pub fn IsTransactionState() -> bool;
    pub fn SubTransGetTopmostTransaction(xid: TransactionId) -> TransactionId;

    // access/transam/xact.c
    pub fn BeginInternalSubTransaction(name: *const c_char);
    pub fn ReleaseCurrentSubTransaction();
    pub fn RollbackAndReleaseCurrentSubTransaction();
    pub fn RegisterXactCallback(callback: XactCallback, arg: *mut c_void);
    pub fn UnregisterXactCallback(callback: XactCallback, arg: *mut c_void);

    // commands/async.c
    pub fn AtPrepare_Notify();

    // access/transam/multixact.c
    pub fn MultiXactIdSetOldestMember();
    pub fn GetMultiXactIdMembers(
        multi: MultiXactId,
        members: *mut *mut MultiXactMember,
        from_pgupgrade: bool,
        only_locks: bool,
    ) -> c_int;

    // access/transam/twophase.c; not bound by pgrx
    pub static max_prepared_xacts: c_int;
    pub fn TwoPhaseGetDummyProc(xid: TransactionId, lock_held: bool) -> *mut PGPROC;

    // commands/trigger.c
    pub fn AfterTriggerFireDeferred();
    pub fn AfterTriggerPendingOnRel(relation: Oid) -> bool;

    // utils/time/snapmgr.c, storage/ipc/procarray.c
    pub fn ActiveSnapshotSet() -> bool;
    pub fn GetActiveSnapshot() -> Snapshot;
    pub fn PopActiveSnapshot();
    pub fn GetSnapshotData(snapshot: Snapshot) -> Snapshot;
    pub fn PushCopiedSnapshot(snapshot: Snapshot);
    pub fn GetTransactionSnapshot() -> Snapshot;
    pub fn GetLatestSnapshot() -> Snapshot;
    pub fn RegisterSnapshot(snapshot: Snapshot) -> Snapshot;
    pub fn UnregisterSnapshotFromOwner(snapshot: Snapshot, owner: ResourceOwner);
    pub fn UnregisterSnapshot(snapshot: Snapshot);
    pub fn InvalidateCatalogSnapshot();
    pub fn PushActiveSnapshot(snapshot: Snapshot);
    pub fn PushActiveSnapshotWithLevel(snapshot: Snapshot, level: c_int);
    pub fn TransactionIdIsInProgress(xid: TransactionId) -> bool;
    pub fn XidInMVCCSnapshot(xid: TransactionId, snapshot: Snapshot) -> bool;

    // storage/ipc/sinval.c, utils/cache/inval.c
    pub static SharedInvalidMessageCounter: u64;
    pub fn AcceptInvalidationMessages();

    // storage/lmgr/predicate.c
    pub fn GetSerializableTransactionSnapshot(snapshot: Snapshot) -> Snapshot;
    pub fn ReleasePredicateLocks(is_commit: bool, is_read_only_safe: bool);

    // storage/lmgr
    pub fn LWLockAcquire(lock: *mut LWLock, mode: LWLockMode::Type) -> bool;
    pub fn LWLockRelease(lock: *mut LWLock);
    pub fn LockHeldByMe(tag: *const LOCKTAG, mode: LOCKMODE) -> bool;
    pub fn LockRelationOid(relation: Oid, mode: LOCKMODE);
    pub fn UnlockRelationOid(relation: Oid, mode: LOCKMODE);
    pub fn LockTuple(relation: Relation, tid: *const ItemPointerData, mode: LOCKMODE);
    pub fn UnlockTuple(relation: Relation, tid: *const ItemPointerData, mode: LOCKMODE);
    pub fn XactLockTableWait(
        xid: TransactionId,
        rel: Relation,
        tid: ItemPointer,
        oper: XLTW_Oper::Type,
    );
    pub fn VirtualXactLock(vxid: VirtualTransactionId, wait: bool) -> bool;
    pub fn LockWaiterCount(tag: *const LOCKTAG) -> c_int;
    #[cfg(feature = "stop_events")]
    pub fn LockAcquire(
        tag: *const LOCKTAG,
        mode: LOCKMODE,
        session: bool,
        no_wait: bool,
    ) -> LockAcquireResult::Type;
    pub fn LockAcquireExtended(
        tag: *const LOCKTAG,
        mode: LOCKMODE,
        session: bool,
        no_wait: bool,
        report_memory_error: bool,
        local: *mut *mut LOCALLOCK,
    ) -> LockAcquireResult::Type;
    pub fn LockRelease(tag: *const LOCKTAG, mode: LOCKMODE, session: bool) -> bool;

    // what an ERROR lets go of
    pub fn LWLockReleaseAll();
    pub fn UnlockBuffers();
    pub fn XLogResetInsertion();
    pub fn ConditionVariableCancelSleep() -> bool;
    pub fn LockErrorCleanup();
}
